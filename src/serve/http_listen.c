/* Opens listening sockets, or uses those of the service manager. Refuses to be reachable from
 * other machines without TLS and a token, unless the configuration allows it. */
#include "http_impl.h"

#include <gpuward.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 1024

static int fail(char *message, size_t size, int code, const char *what, const char *address)
{
	snprintf(message, size, "cannot listen on %s: %s", address, what);
	return code;
}

static int fail_errno(char *message, size_t size, const char *address)
{
	switch (errno) {
	case EADDRINUSE:
		return fail(
			message, size, -GW_E_IO,
			"another program uses this port; stop it, or choose another address "
			"with --listen or service.listen",
			address);
	case EADDRNOTAVAIL:
		return fail(message, size, -GW_E_IO,
			    "this machine does not have that address (service.listen)",
			    address);
	case EACCES:
		return fail(message, size, -GW_E_PERM,
			    "permission denied; ports below 1024 and directories of other "
			    "users need privileges",
			    address);
	default: return fail(message, size, -GW_E_IO, strerror(errno), address);
	}
}

static bool is_loopback(const struct sockaddr_storage *a)
{
	const struct sockaddr_in6 *six = (const void *)a;
	const struct sockaddr_in *four = (const void *)a;

	if (a->ss_family == AF_INET)
		return ntohl(four->sin_addr.s_addr) >> 24 == 127;
	if (IN6_IS_ADDR_V4MAPPED(&six->sin6_addr))
		return six->sin6_addr.s6_addr[12] == 127;
	return IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
}

static bool is_wildcard(const struct sockaddr_storage *a)
{
	const struct sockaddr_in6 *six = (const void *)a;
	const struct sockaddr_in *four = (const void *)a;

	return a->ss_family == AF_INET ? four->sin_addr.s_addr == INADDR_ANY
				       : IN6_IS_ADDR_UNSPECIFIED(&six->sin6_addr);
}

void listen_set_tls(struct listener *l, bool tls)
{
	if (l->unix_socket)
		return;
	l->tls = tls;
	snprintf(l->url, sizeof(l->url), "%s://%s", tls ? "https" : "http", l->host_port);
}

static void name_inet(struct listener *l, const struct sockaddr_storage *a)
{
	const struct sockaddr_in6 *six = (const void *)a;
	const struct sockaddr_in *four = (const void *)a;
	bool v6 = a->ss_family == AF_INET6;

	inet_ntop(a->ss_family,
		  v6 ? (const void *)&six->sin6_addr : (const void *)&four->sin_addr, l->host,
		  sizeof(l->host));
	snprintf(l->host_port, sizeof(l->host_port), v6 ? "[%.50s]:%u" : "%.50s:%u", l->host,
		 ntohs(v6 ? six->sin6_port : four->sin_port));
	listen_set_tls(l, l->tls);
	l->loopback = is_loopback(a);
	l->wildcard = is_wildcard(a);
}

/* Splits "host:port" or "[v6]:port". */
static bool split(const char *address, char *host, size_t size, const char **port)
{
	const char *colon = strrchr(address, ':');
	size_t n = colon ? (size_t)(colon - address) : 0;

	if (!colon || n == 0 || n >= size || !colon[1])
		return false;
	if (address[0] == '[') {
		if (address[n - 1] != ']')
			return false;
		address++;
		n -= 2;
	} else if (memchr(address, ':', n)) {
		return false;
	}
	memcpy(host, address, n);
	host[n] = '\0';
	*port = colon + 1;
	return n > 0;
}

static int address_resolve(const char *address, struct sockaddr_storage *ret,
			   socklen_t *ret_size, char *message, size_t size)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
				  .ai_flags = AI_PASSIVE | AI_NUMERICSERV };
	struct addrinfo *found;
	const char *port;
	char host[256];

	if (!split(address, host, sizeof(host), &port))
		return fail(message, size, -GW_E_ARG,
			    "not an address; use HOST:PORT, [IPV6]:PORT or unix:PATH", address);

	int r = getaddrinfo(host, port, &hints, &found);

	if (r != 0)
		return fail(message, size, -GW_E_ARG, gai_strerror(r), address);
	memcpy(ret, found->ai_addr, found->ai_addrlen);
	*ret_size = found->ai_addrlen;
	freeaddrinfo(found);
	return 0;
}

static int open_inet(struct listener *l, const char *address, char *message, size_t size)
{
	struct sockaddr_storage a = { 0 };
	socklen_t n = 0;
	int one = 1, r = address_resolve(address, &a, &n, message, size);

	if (r != 0)
		return r;
	l->fd = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->fd < 0)
		return fail_errno(message, size, address);
	setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (a.ss_family == AF_INET6)
		setsockopt(l->fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	if (bind(l->fd, (struct sockaddr *)&a, n) != 0 || listen(l->fd, BACKLOG) != 0)
		return fail_errno(message, size, address);
	return 0;
}

/* True if a process listens on the socket file. If not, the file is left over from a crash. */
static bool is_in_use(const struct sockaddr_un *a)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool yes = fd >= 0 && (connect(fd, (const struct sockaddr *)a, sizeof(*a)) == 0 ||
			       errno == EAGAIN);

	if (fd >= 0)
		close(fd);
	return yes;
}

static int open_unix(struct listener *l, const char *address, unsigned mode, char *message,
		     size_t size)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	const char *path = address + 5;
	struct stat st;

	if (strlen(path) >= sizeof(a.sun_path) || *path != '/')
		return fail(
			message, size, -GW_E_ARG,
			"the path of a socket must begin with '/' and have at most 107 bytes",
			address);
	memcpy(a.sun_path, path, strlen(path) + 1);
	if (lstat(path, &st) == 0) {
		if (!S_ISSOCK(st.st_mode))
			return fail(message, size, -GW_E_IO,
				    "a file that is not a socket exists there", address);
		if (is_in_use(&a))
			return fail(message, size, -GW_E_IO,
				    "another program uses this socket; stop it, or choose "
				    "another path",
				    address);
		unlink(path);
	}
	l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->fd < 0)
		return fail_errno(message, size, address);
	/* Set the mode before bind() creates the file, so that no client can connect with other
	 * permissions. */
	fchmod(l->fd, mode);
	if (bind(l->fd, (struct sockaddr *)&a, sizeof(a)) != 0)
		return fail_errno(message, size, address);
	l->ours = true;
	memcpy(l->path, path, strlen(path) + 1);
	if (chmod(path, mode) != 0 || listen(l->fd, BACKLOG) != 0)
		return fail_errno(message, size, address);
	return 0;
}

static int inspect_socket(struct listener *l, const char *address, char *message, size_t size)
{
	struct sockaddr_storage a = { 0 };
	socklen_t n = sizeof(a);

	/* A socket of the service manager may be blocking; accept() would then block the
	 * loop. */
	if (getsockname(l->fd, (struct sockaddr *)&a, &n) != 0 ||
	    fcntl(l->fd, F_SETFL, fcntl(l->fd, F_GETFL) | O_NONBLOCK) != 0)
		return fail(message, size, -GW_E_ARG, "the given descriptor is not a socket",
			    address);
	if (a.ss_family == AF_UNIX) {
		const struct sockaddr_un *u = (const void *)&a;

		l->unix_socket = true;
		l->tls = false;
		snprintf(l->url, sizeof(l->url), "unix:%s", u->sun_path);
	} else if (a.ss_family == AF_INET || a.ss_family == AF_INET6) {
		name_inet(l, &a);
	} else {
		return fail(message, size, -GW_E_ARG, "neither TCP nor a UNIX socket", address);
	}
	return 0;
}

/* Checks and prepares a socket of the service manager. */
static int adopt_socket(int fd, const char *address, char *message, size_t size)
{
	int listening = 0;
	socklen_t n = sizeof(listening);

	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &n) != 0 || !listening)
		return fail(message, size, -GW_E_ARG,
			    "the given descriptor is not a listening socket", address);
	if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0 ||
	    fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
		return fail_errno(message, size, address);
	return 0;
}

int listen_allowed(const struct listener *l, const struct http_config *config, char *message,
		   size_t size)
{
	if (l->unix_socket || l->loopback || (config->token_file && config->tls_cert) ||
	    config->insecure)
		return 0;
	snprintf(message, size,
		 "%s is reachable from other machines, but %s%s%s: set service.token_file, "
		 "service.tls_cert and service.tls_key; or listen on 127.0.0.1 or a UNIX "
		 "socket; or set service.insecure if you trust the network",
		 l->host_port, config->token_file ? "" : "there is no token",
		 !config->token_file && !config->tls_cert ? " and " : "",
		 config->tls_cert ? "" : "no TLS");
	return -GW_E_PERM;
}

int listen_open(struct listener *l, const struct http_listener *from,
		const struct http_config *config, char *message, size_t size)
{
	const char *address = from->address ? from->address : "the given socket";
	int r = 0;

	*l = (struct listener){ .fd = from->fd, .tls = config->tls_cert != NULL };
	if (from->fd >= 0)
		r = adopt_socket(from->fd, address, message, size);
	else if (strncmp(address, "unix:", 5) == 0)
		r = open_unix(l, address, config->unix_mode, message, size);
	else
		r = open_inet(l, address, message, size);
	if (r == 0)
		r = inspect_socket(l, address, message, size);
	if (r == 0)
		r = listen_allowed(l, config, message, size);
	return r;
}

void listen_close(struct listener *l)
{
	loop_remove(l->source);
	if (l->fd >= 0)
		close(l->fd);
	if (l->ours)
		unlink(l->path);
	l->fd = -1;
	l->ours = false;
	l->source = NULL;
}
