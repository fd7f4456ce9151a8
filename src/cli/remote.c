#include "remote.h"

#include "cli.h"
#include "client.h"
#include "base/json_doc.h"

#include "base/clock.h"
#include "base/file.h"
#include "daemon/config.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* What the configuration says of both; a user may not be allowed to read the token.  A mistake
 * elsewhere in it keeps nobody from the service, which runs on with what it read before. */
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
	buf_init(&r->body, CLIENT_ANSWER_MAX);
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

/* ---- asking ---- */

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

static void forget_answer(struct remote *r)
{
	buf_clear(&r->body);
	json_doc_free(r->reply);
	r->reply = NULL;
	r->status = 0;
}

int remote_send(struct remote *r, const char *method, const char *path, const char *body,
		uint64_t timeout_ns, int *ret_fd, char *message, size_t size)
{
	struct client_request q = {
		.address = r->address,
		.method = method,
		.path = path,
		.accept = "application/json",
		.token = strcmp(method, "GET") == 0 ? NULL
						    : r->token, /* to read none is needed */
		.body = body,
	};
	int err;

	forget_answer(r);
	err = client_send(&q, timeout_ns, ret_fd);
	if (err)
		explain(r, err, message, size);
	return err;
}

int remote_answer(struct remote *r, int fd, uint64_t timeout_ns, char *message, size_t size)
{
	char ignored[200];
	int err;

	forget_answer(r);
	err = client_answer(fd, timeout_ns, &r->status, &r->body);
	if (err)
		explain(r, err, message, size);
	else if (r->body.len)
		json_doc_new(r->body.p, r->body.len, &r->reply, ignored, sizeof(ignored));
	return err;
}

int remote_ask(struct remote *r, const char *method, const char *path, const char *body,
	       uint64_t timeout_ns, char *message, size_t size)
{
	uint64_t until_ns = clock_mono_ns(clock_real()) + timeout_ns, now_ns;
	int fd, err = remote_send(r, method, path, body, timeout_ns, &fd, message, size);

	if (err)
		return err;
	now_ns = clock_mono_ns(clock_real());
	return remote_answer(r, fd, until_ns > now_ns ? until_ns - now_ns : 0, message, size);
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
