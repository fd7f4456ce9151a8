#include "remote.h"

#include "cli.h"
#include "base/json_doc.h"

#include "base/clock.h"
#include "base/file.h"
#include "daemon/config.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ANSWER_MAX (16u << 20)
#define TIMEOUT_NS (20 * NS_PER_S)
#define STANDARD   "127.0.0.1:9490"

/* ---- where it is ---- */

static const char *listens_on(const struct config_list *l)
{
	const char *found = l->count ? l->item[0] : STANDARD;

	for (unsigned i = l->count; i-- > 0;)
		if (strncmp(l->item[i], "unix:", 5) == 0 && access(l->item[i] + 5, W_OK) == 0)
			found = l->item[i];
	return found;
}

/* Who listens everywhere is here too. */
static void set_address(struct remote *r, const char *text)
{
	static const char *const everywhere[][2] = { { "0.0.0.0:", "127.0.0.1:" },
						     { "[::]:", "[::1]:" } };

	if (strncmp(text, "http://", 7) == 0)
		text += 7;
	snprintf(r->address, sizeof(r->address), "%s", text);
	if (strncmp(text, "unix:", 5) != 0)
		r->address[strcspn(r->address, "/")] = '\0';
	for (unsigned i = 0; i < 2; i++)
		if (strncmp(text, everywhere[i][0], strlen(everywhere[i][0])) == 0)
			snprintf(r->address, sizeof(r->address), "%s%s", everywhere[i][1],
				 text + strlen(everywhere[i][0]));
}

static int read_token(struct remote *r, const char *path, bool must)
{
	char message[600];
	ssize_t n = file_read(path, r->token, sizeof(r->token) - 1, message, sizeof(message));

	if (n < 0 && must) {
		cli_error("%s", message);
		return EXIT_FAILED;
	}
	r->token[n > 0 ? n : 0] = '\0';
	r->token[strcspn(r->token, " \t\r\n")] = '\0';
	return EXIT_OK;
}

/* What the configuration says of both; a user may not be allowed to read the token.  A mistake elsewhere in it keeps nobody
 * from the service, which runs on with what it read before. */
static int from_config(struct remote *r, bool address, bool token)
{
	struct config c;
	char message[2000];
	int err = config_load_rest(&c, message, sizeof(message));

	if (err == -GW_E_NOMEM) {
		cli_error("%s", message);
		return EXIT_FAILED;
	}
	if (err)
		cli_error("note: the configuration has a mistake, and the rest of it is used: "
			  "%s; see gpuward config check",
			  message);
	if (address && c.service_tls_cert &&
	    strncmp(listens_on(&c.service_listen), "unix:", 5) != 0) {
		cli_error("the service speaks TLS, which this command does not: let it listen "
			  "on a UNIX socket too ([service] listen = [..., \"unix:PATH\"])");
		config_done(&c);
		return EXIT_USAGE;
	}
	if (address)
		set_address(r, listens_on(&c.service_listen));
	if (token && c.service_token_file)
		read_token(r, c.service_token_file, false);
	config_done(&c);
	return EXIT_OK;
}

/* A user of the desktop has the token in a file of their own. */
static void own_token(struct remote *r)
{
	const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	char path[PATH_MAX];

	if (config && *config == '/')
		snprintf(path, sizeof(path), "%s/gpuward/token", config);
	else if (home && *home == '/')
		snprintf(path, sizeof(path), "%s/.config/gpuward/token", home);
	else
		return;
	read_token(r, path, false);
}

static const char *or_variable(const char *given, const char *name)
{
	const char *v = given ? given : getenv(name);

	return v && *v ? v : NULL;
}

int remote_open(struct remote *r, const struct remote_flags *f)
{
	const char *address = or_variable(f->address, "GPUWARD_ADDRESS");
	const char *token = or_variable(f->token_file, "GPUWARD_TOKEN_FILE");
	int code = EXIT_OK;

	*r = (struct remote){ .status = 0 };
	buf_init(&r->body, ANSWER_MAX);
	if (address && strncmp(address, "https://", 8) == 0) {
		cli_error("%s: this command speaks plain http and UNIX sockets only; use the "
			  "service's unix:PATH",
			  address);
		return EXIT_USAGE;
	}
	if (address)
		set_address(r, address);
	if (token)
		code = read_token(r, token, true);
	if (code == EXIT_OK && (!address || !token))
		code = from_config(r, !address, !token);
	if (code == EXIT_OK && !token && !*r->token)
		own_token(r);
	return code;
}

void remote_close(struct remote *r)
{
	json_doc_free(r->reply);
	buf_done(&r->body);
	memset(r->token, 0, sizeof(r->token));
}

/* ---- the connection ---- */

static int wait_for(int fd, short events, uint64_t deadline_ns)
{
	for (;;) {
		uint64_t now = clock_mono_ns(clock_real());
		struct pollfd p = { fd, events, 0 };
		uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
		struct timespec t = clock_timespec(left);
		int n = ppoll(&p, 1, &t, NULL);

		if (n > 0)
			return 0;
		if (n == 0)
			return -GW_E_TIMEOUT;
		if (errno != EINTR)
			return -GW_E_IO;
	}
}

static int finish_connect(int fd, int result, uint64_t deadline_ns)
{
	socklen_t n = sizeof(int);
	int err = errno;

	if (result == 0)
		return 0;
	if (err == EINPROGRESS) {
		if (wait_for(fd, POLLOUT, deadline_ns) != 0)
			return -GW_E_TIMEOUT;
		if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &n) != 0 || err == 0)
			return err ? -GW_E_IO : 0;
	}
	errno = err;
	return err == ECONNREFUSED || err == ENOENT ? -GW_E_NOENT
	       : err == EACCES || err == EPERM      ? -GW_E_PERM
						    : -GW_E_IO;
}

static int connect_unix(const char *path, uint64_t deadline_ns, int *ret_fd)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int err;

	if (strlen(path) >= sizeof(a.sun_path))
		return -GW_E_SIZE;
	memcpy(a.sun_path, path, strlen(path) + 1);
	*ret_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (*ret_fd < 0)
		return -GW_E_IO;
	err = finish_connect(*ret_fd, connect(*ret_fd, (struct sockaddr *)&a, sizeof(a)),
			     deadline_ns);
	if (err)
		close(*ret_fd);
	return err;
}

static int connect_tcp(const char *address, uint64_t deadline_ns, int *ret_fd)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list = NULL;
	char host[512];
	char *colon;
	int err = -GW_E_NOENT;

	snprintf(host, sizeof(host), "%s", address);
	colon = strrchr(host, ':');
	if (!colon || colon == host || !colon[1])
		return -GW_E_ARG;
	*colon = '\0';
	if (host[0] == '[' && colon[-1] == ']') {
		colon[-1] = '\0';
		memmove(host, host + 1, strlen(host));
	}
	if (getaddrinfo(host, strrchr(address, ':') + 1, &hints, &list) != 0)
		return -GW_E_NODEV;
	for (const struct addrinfo *a = list; a && err; a = a->ai_next) {
		int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

		if (fd < 0)
			continue;
		err = finish_connect(fd, connect(fd, a->ai_addr, a->ai_addrlen), deadline_ns);
		if (err)
			close(fd);
		else
			*ret_fd = fd;
	}
	freeaddrinfo(list);
	return err;
}

static int send_all(int fd, const char *p, size_t n, uint64_t deadline_ns)
{
	while (n > 0) {
		ssize_t k = send(fd, p, n, MSG_NOSIGNAL);

		if (k > 0) {
			p += k;
			n -= (size_t)k;
		} else if (k < 0 && errno == EAGAIN) {
			int err = wait_for(fd, POLLOUT, deadline_ns);

			if (err)
				return err;
		} else if (k < 0 && errno != EINTR) {
			return -GW_E_IO;
		}
	}
	return 0;
}

/* Up to the end of the connection: we asked for it to be closed. */
static int receive(int fd, struct buf *out, uint64_t deadline_ns)
{
	char part[16384];

	for (;;) {
		ssize_t n = recv(fd, part, sizeof(part), 0);

		if (n == 0)
			return out->err;
		if (n > 0)
			buf_add(out, part, (size_t)n);
		else if (errno == EAGAIN) {
			int err = wait_for(fd, POLLIN, deadline_ns);

			if (err)
				return err;
		} else if (errno != EINTR)
			return -GW_E_IO;
		if (out->err)
			return out->err;
	}
}

/* ---- the answer ---- */

static const char *header(const char *head, const char *name)
{
	size_t n = strlen(name);

	for (const char *line = strstr(head, "\r\n"); line; line = strstr(line + 2, "\r\n"))
		if (strncasecmp(line + 2, name, n) == 0 && line[2 + n] == ':')
			return line + 3 + n + strspn(line + 3 + n, " \t");
	return NULL;
}

static int unchunk(const char *p, const char *end, struct buf *out)
{
	while (p < end) {
		char *after;
		unsigned long n = strtoul(p, &after, 16);
		const char *data = strstr(after, "\r\n");

		if (after == p || !data || n > ANSWER_MAX)
			return -GW_E_PARSE;
		data += 2;
		if (n == 0)
			return 0;
		if ((size_t)(end - data) < n + 2)
			return -GW_E_PARSE;
		buf_add(out, data, n);
		p = data + n + 2;
	}
	return -GW_E_PARSE; /* the last piece, which is empty, never came */
}

static int take_answer(struct remote *r, const struct buf *raw)
{
	char *end = strstr(raw->p, "\r\n\r\n");
	const char *body, *length, *coding;

	if (!end || sscanf(raw->p, "HTTP/1.%*d %d", &r->status) != 1)
		return -GW_E_PARSE;
	end[2] = '\0';
	body = end + 4;
	coding = header(raw->p, "Transfer-Encoding");
	length = header(raw->p, "Content-Length");
	if (coding && strncasecmp(coding, "chunked", 7) == 0)
		return unchunk(body, raw->p + raw->len, &r->body);
	if (length && strtoull(length, NULL, 10) != (size_t)(raw->p + raw->len - body))
		return -GW_E_PARSE;
	buf_add(&r->body, body, (size_t)(raw->p + raw->len - body));
	return r->body.err;
}

static void build(struct buf *out, const struct remote *r, const char *method, const char *path,
		  const char *body)
{
	bool local = strncmp(r->address, "unix:", 5) == 0;

	buf_addf(out, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n", method, path,
		 local ? "localhost" : r->address);
	buf_adds(out, "Accept: application/json\r\nUser-Agent: gpuward\r\n");
	if (*r->token && strcmp(method, "GET") != 0) /* to read none is needed */
		buf_addf(out, "Authorization: Bearer %s\r\n", r->token);
	if (body)
		buf_adds(out, "Content-Type: application/json\r\n");
	if (body || strcmp(method, "GET") != 0)
		buf_addf(out, "Content-Length: %zu\r\n", body ? strlen(body) : 0);
	buf_addf(out, "\r\n%s", body ? body : "");
}

static int exchange(struct remote *r, const struct buf *request, uint64_t deadline_ns)
{
	bool local = strncmp(r->address, "unix:", 5) == 0;
	struct buf raw;
	int fd = -1, err;

	err = local ? connect_unix(r->address + 5, deadline_ns, &fd)
		    : connect_tcp(r->address, deadline_ns, &fd);
	if (err)
		return err;
	buf_init(&raw, ANSWER_MAX + 65536);
	err = send_all(fd, request->p, request->len, deadline_ns);
	if (!err)
		err = receive(fd, &raw, deadline_ns);
	if (!err)
		err = take_answer(r, &raw);
	buf_done(&raw);
	close(fd);
	return err;
}

static void explain(const struct remote *r, int err, char *message, size_t size)
{
	switch (-err) {
	case GW_E_NOENT:
		snprintf(message, size,
			 "no service listens on %s; gpuward serve starts one, --address names "
			 "another",
			 r->address);
		break;
	case GW_E_ARG:
		snprintf(message, size, "'%s' is no address: HOST:PORT or unix:PATH",
			 r->address);
		break;
	case GW_E_NODEV: snprintf(message, size, "%s: no such host", r->address); break;
	case GW_E_PERM:
		snprintf(message, size, "%s: you may not write to this socket", r->address);
		break;
	case GW_E_TIMEOUT:
		snprintf(message, size, "the service on %s did not answer in time", r->address);
		break;
	case GW_E_PARSE:
		snprintf(message, size, "what listens on %s does not answer as gpuward does",
			 r->address);
		break;
	default:
		snprintf(message, size, "the service on %s cannot be asked: %s", r->address,
			 gw_strerror(err));
	}
}

int remote_ask(struct remote *r, const char *method, const char *path, const char *body,
	       uint64_t timeout_ns, char *message, size_t size)
{
	struct buf request;
	char ignored[200];
	int err;

	buf_init(&request, 1u << 20);
	buf_clear(&r->body);
	json_doc_free(r->reply);
	r->reply = NULL;
	r->status = 0;
	build(&request, r, method, path, body);
	err = request.err ? request.err
			  : exchange(r, &request, clock_mono_ns(clock_real()) + timeout_ns);
	buf_done(&request);
	if (err)
		explain(r, err, message, size);
	else if (r->body.len)
		json_doc_new(r->body.p, r->body.len, &r->reply, ignored, sizeof(ignored));
	return err;
}

const char *remote_why(const struct remote *r)
{
	static const char *const where[] = { "error.message", "detail", "message", "title" };

	for (size_t i = 0; r->reply && i < sizeof(where) / sizeof(where[0]); i++) {
		const char *s = json_doc_string(r->reply, where[i]);

		if (s && *s)
			return s;
	}
	return "it does not say why";
}

const char *remote_hint(const struct remote *r)
{
	const char *type = r->reply ? json_doc_string(r->reply, "type") : NULL;

	if (type && strstr(type, "read-only"))
		return "set token_file in [service], or ask over a UNIX socket as root";
	if (type && strstr(type, "wrong-token") && strstr(remote_why(r), "has no token"))
		return "set token_file in [service], or leave the token out and ask over a "
		       "UNIX socket as root";
	return "--token-file names a file with its token, or have it in "
	       "~/.config/gpuward/token";
}

int remote_want(struct remote *r, const char *method, const char *path, const char *body)
{
	char message[700];

	if (remote_ask(r, method, path, body, TIMEOUT_NS, message, sizeof(message)) != 0) {
		cli_error("%s", message);
		return EXIT_FAILED;
	}
	if (r->status == 401 || r->status == 403) {
		cli_error("the service refuses: %s (%s)", remote_why(r), remote_hint(r));
		return EXIT_FAILED;
	}
	if (r->status >= 400) {
		cli_error("the service answers %d: %s", r->status, remote_why(r));
		return EXIT_FAILED;
	}
	return EXIT_OK;
}

void remote_escape(struct buf *out, const char *s)
{
	for (; *s; s++) {
		if (isalnum((unsigned char)*s) || strchr("-._~", *s))
			buf_addc(out, *s);
		else
			buf_addf(out, "%%%02X", (unsigned)(unsigned char)*s);
	}
}
