#include "remote.h"

#include "cli.h"
#include "client.h"
#include "output.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/http_message.h"
#include "base/json_doc.h"
#include "base/utf8.h"
#include "daemon/config.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TIMEOUT_NS (20 * NS_PER_S)

static const char *choose_address(const struct config_list *l)
{
	const char *found = l->count ? l->item[0] : CONFIG_ADDRESS;

	for (unsigned i = l->count; i-- > 0;)
		if (strncmp(l->item[i], "unix:", 5) == 0 && access(l->item[i] + 5, W_OK) == 0)
			found = l->item[i];
	return found;
}

/* Sets the address. A service can listen on 0.0.0.0 or [::], but a client cannot connect to
 * these addresses; they are replaced with the loopback address. */
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

	if (n < 0 && must)
		return cli_fail("%s", message);
	r->token[n > 0 ? n : 0] = '\0';
	r->token[strcspn(r->token, " \t\r\n")] = '\0';
	return EXIT_OK;
}

int remote_config(struct config *ret, bool *ret_mistake, bool quiet)
{
	char message[2000];
	int err = config_load_rest(ret, message, sizeof(message));

	*ret_mistake = err != 0;
	if (err == -GW_E_NOMEM)
		return cli_fail("%s", message);
	if (err && !quiet)
		cli_error("note: the configuration has a mistake: %s; its other settings are "
			  "used; see gpuward config check",
			  message);
	return EXIT_OK;
}

/* Reads the address, if `address` is set, and the token, if `token` is set, from the
 * configuration of the service. It is not an error if the user may not read the token file. */
static int read_config(struct remote *r, bool address, bool token, bool quiet)
{
	struct config c;
	bool mistake;
	int code = remote_config(&c, &mistake, quiet);

	if (code != EXIT_OK)
		return code;
	if (address && c.service_tls_cert &&
	    strncmp(choose_address(&c.service_listen), "unix:", 5) != 0) {
		if (!quiet)
			cli_error("the service uses TLS, which this command does not support; "
				  "let the service also listen on a UNIX socket ([service] "
				  "listen = [..., \"unix:PATH\"])");
		config_done(&c);
		return EXIT_USAGE;
	}
	if (address)
		set_address(r, choose_address(&c.service_listen));
	if (token && c.service_token_file)
		read_token(r, c.service_token_file, false);
	config_done(&c);
	return EXIT_OK;
}

static void read_user_token(struct remote *r)
{
	char path[PATH_MAX];

	if (file_user_config("token", path, sizeof(path)) == 0)
		read_token(r, path, false);
}

static const char *option_or_variable(const char *given, const char *name)
{
	const char *v = given ? given : getenv(name);

	return v && *v ? v : NULL;
}

int remote_open(struct remote *r, const struct remote_flags *f)
{
	const char *address = option_or_variable(f->address, "GPUWARD_ADDRESS");
	const char *token = option_or_variable(f->token_file, "GPUWARD_TOKEN_FILE");
	int code = EXIT_OK;

	*r = (struct remote){ .status = 0 };
	buf_init(&r->body, CLIENT_REPLY_MAX);
	if (address && strncmp(address, "https://", 8) == 0)
		return f->quiet ? EXIT_USAGE
				: cli_usage("%s: this command supports only http:// and UNIX "
					    "sockets; on the machine of the service, use its "
					    "socket (unix:PATH)",
					    address);
	if (address)
		set_address(r, address);
	if (token)
		code = read_token(r, token, !f->quiet);
	if (code == EXIT_OK && (!address || !token))
		code = read_config(r, !address, !token, f->quiet);
	if (code == EXIT_OK && !token && !*r->token)
		read_user_token(r);
	return code;
}

void remote_close(struct remote *r)
{
	json_doc_free(r->reply);
	buf_done(&r->body);
	memset(r->token, 0, sizeof(r->token));
}

static void describe_error(const struct remote *r, int err, char *message, size_t size)
{
	switch (-err) {
	case GW_E_NOENT:
		snprintf(message, size,
			 "no service listens on %s; start one with gpuward serve, or give "
			 "--address",
			 r->address);
		break;
	case GW_E_ARG:
		snprintf(message, size, "'%s' is not an address; give HOST:PORT or unix:PATH",
			 r->address);
		break;
	case GW_E_NODEV:
		snprintf(message, size,
			 "the host of the address %s is not known; check --address",
			 r->address);
		break;
	case GW_E_PERM:
		snprintf(message, size,
			 "you do not have permission to use the socket %s; use sudo, or give "
			 "--address",
			 r->address);
		break;
	case GW_E_TIMEOUT:
		snprintf(message, size,
			 "the service on %s did not answer in time; see its log, or try again",
			 r->address);
		break;
	case GW_E_PARSE:
		snprintf(message, size,
			 "the server on %s is not a gpuward service; check --address",
			 r->address);
		break;
	default:
		snprintf(message, size, "cannot reach the service on %s: %s", r->address,
			 gw_strerror(err));
	}
}

static void clear_reply(struct remote *r)
{
	buf_clear(&r->body);
	json_doc_free(r->reply);
	r->reply = NULL;
	r->status = 0;
}

/* Makes a request. A GET request needs no token. */
static struct client_request make_request(const struct remote *r, const char *method,
					  const char *path, const char *body)
{
	return (struct client_request){
		.address = r->address,
		.method = method,
		.path = path,
		.accept = "application/json",
		.token = strcmp(method, "GET") == 0 ? NULL : r->token,
		.body = body,
	};
}

int remote_send(struct remote *r, const char *method, const char *path, const char *body,
		uint64_t timeout_ns, int *ret_fd, char *message, size_t size)
{
	const struct client_request q = make_request(r, method, path, body);
	int err;

	clear_reply(r);
	err = client_send(&q, timeout_ns, ret_fd);
	if (err)
		describe_error(r, err, message, size);
	return err;
}

int remote_reply(struct remote *r, int fd, uint64_t timeout_ns, char *message, size_t size)
{
	int err;

	clear_reply(r);
	err = client_reply(fd, timeout_ns, &r->status, &r->body);
	if (err)
		describe_error(r, err, message, size);
	else
		remote_parse(r);
	return err;
}

/* Sends a request and reads the reply, without parsing it. */
static int exchange(struct remote *r, const struct client_request *q, uint64_t timeout_ns,
		    char *message, size_t size)
{
	int err;

	clear_reply(r);
	err = client_request_reply(q, timeout_ns, &r->status, &r->body);
	if (err)
		describe_error(r, err, message, size);
	return err;
}

int remote_request(struct remote *r, const char *method, const char *path, const char *body,
		   uint64_t timeout_ns, char *message, size_t size)
{
	const struct client_request q = make_request(r, method, path, body);
	int err = exchange(r, &q, timeout_ns, message, size);

	if (!err)
		remote_parse(r);
	return err;
}

int remote_fetch(struct remote *r, const char *path, const struct deadline_stop *stop,
		 uint64_t timeout_ns, char *message, size_t size)
{
	struct client_request q = make_request(r, "GET", path, NULL);

	q.stop = stop;
	return exchange(r, &q, timeout_ns, message, size);
}

void remote_parse(struct remote *r)
{
	char ignored[200];

	json_doc_free(r->reply);
	r->reply = NULL;
	if (r->body.len &&
	    json_doc_new(r->body.p, r->body.len, &r->reply, ignored, sizeof(ignored)) == 0 &&
	    json_doc_clean(r->reply) != 0) {
		json_doc_free(r->reply);
		r->reply = NULL;
	}
}

void remote_json(const struct remote *r, struct buf *out)
{
	buf_init(out, 8 * (size_t)CLIENT_REPLY_MAX);
	for (size_t i = 0, n; i < r->body.len; i += n) {
		const char *s = r->body.p + i;
		uint32_t code;

		n = utf8_length(s);
		code = n ? utf8_decode(s, n) : 0;
		n = n ? n : 1;
		if (utf8_is_control(code) && !isspace((unsigned char)*s))
			buf_addf(out, "\\u%04x", code);
		else
			buf_add(out, s, n);
	}
}

int remote_print(const struct remote *r)
{
	struct buf out;
	int code;

	remote_json(r, &out);
	code = out.err ? cli_no_memory() : output_print(out.p, out.len);
	buf_done(&out);
	return code;
}

const char *remote_why(const struct remote *r)
{
	static const char *const where[] = { "error.message", "detail", "message", "title" };

	for (size_t i = 0; r->reply && i < COUNT(where); i++)
		if (*reply_text(r->reply, where[i], ""))
			return json_doc_string(r->reply, where[i]);
	return "no reason given";
}

/* Returns what the user can do after the service refused a request. */
static const char *remote_hint(const struct remote *r)
{
	const char *type = r->reply ? json_doc_string(r->reply, "type") : NULL;

	if (type && strstr(type, "read-only"))
		return "set token_file in [service], or use a UNIX socket as root";
	if (type && strstr(type, "wrong-token") && strstr(remote_why(r), "has no token"))
		return "set token_file in [service], or leave out the token and use a UNIX "
		       "socket as root";
	return "give the service's token with --token-file, or put it into "
	       "~/.config/gpuward/token";
}

static bool is_from_gpuward(const struct remote *r)
{
	const char *type = r->reply ? json_doc_string(r->reply, "type") : NULL;

	return type && strncmp(type, "tag:gpuward,", strlen("tag:gpuward,")) == 0;
}

void remote_refusal(const struct remote *r, char *out, size_t size)
{
	if (r->status == 401 || r->status == 403)
		snprintf(out, size, "the service refuses the request: %s (%s)", remote_why(r),
			 remote_hint(r));
	/* gpuward's own sentence needs no status: it already says why */
	else if (r->status == 409 || (r->status < 500 && is_from_gpuward(r)))
		snprintf(out, size, "%s", remote_why(r));
	else
		snprintf(out, size, "the service replied %d: %s", r->status, remote_why(r));
}

struct json *remote_body_begin(struct remote_body *b)
{
	buf_init(&b->buf, 64u << 10);
	json_init(&b->json, &b->buf, false);
	json_object(&b->json, NULL);
	return &b->json;
}

const char *remote_body_end(struct remote_body *b)
{
	json_object_end(&b->json);
	json_end(&b->json);
	return b->buf.p;
}

void remote_body_done(struct remote_body *b)
{
	buf_done(&b->buf);
}

const char *remote_path(char out[static REMOTE_PATH], const char *before, const char *name,
			const char *after)
{
	struct buf b;

	buf_init_fixed(&b, out, REMOTE_PATH);
	buf_adds(&b, before);
	url_escape(&b, name);
	buf_adds(&b, after);
	return out;
}

const char *reply_text(const struct json_doc *d, const char *key, const char *otherwise)
{
	const char *s = json_doc_string(d, key);

	return s && *s ? s : otherwise;
}

bool reply_is(const struct json_doc *d, const char *key, const char *word)
{
	return strcmp(reply_text(d, key, ""), word) == 0;
}

bool reply_has(const struct json_doc *d, const char *key, const char *word)
{
	for (size_t i = 0; i < json_doc_count(d, key); i++)
		if (reply_is(json_doc_at(d, key, i), "", word))
			return true;
	return false;
}

static void report_slow(const char *address)
{
	cli_error("waiting for the service on %s", address);
}

int remote_request_any(struct remote *r, const char *method, const char *path, const char *body)
{
	struct client_request q = make_request(r, method, path, body);
	char message[700];

	q.slow = report_slow;
	if (exchange(r, &q, TIMEOUT_NS, message, sizeof(message)) != 0)
		return cli_fail("%s", message);
	remote_parse(r);
	return EXIT_OK;
}

int remote_request_ok(struct remote *r, const char *method, const char *path, const char *body)
{
	char message[700];

	if (remote_request_any(r, method, path, body) != EXIT_OK)
		return EXIT_FAILED;
	/* Every document of the service has a schema_version; documents of other servers do
	 * not. */
	if (r->status == 204 || (r->status >= 200 && r->status < 300 && r->reply &&
				 json_doc_get(r->reply, "schema_version")))
		return EXIT_OK;
	if (r->status < 400)
		return cli_fail("the server on %s is not a gpuward service; check --address",
				r->address);
	remote_refusal(r, message, sizeof(message));
	return cli_fail("%s", message);
}

/* Longest wait for the reply of the service. The service itself may wait up to 0.3 s for a new
 * reading of the GPUs before it replies. */
#define REPLY_NS (500 * NS_PER_MS)

void service_processes_open(struct service_processes *s, const struct cli *c)
{
	const struct remote_flags flags = { .quiet = true };

	*s = (struct service_processes){ .fd = -1 };
	s->use = c && !cli_names_driver(c) && remote_open(&s->remote, &flags) == EXIT_OK;
}

void service_processes_close(struct service_processes *s)
{
	if (s->fd >= 0)
		close(s->fd);
	remote_close(&s->remote);
	render_process_rows_done(&s->rows);
}

void service_processes_ask(struct service_processes *s)
{
	char ignored[700];
	int err;

	if (!s->use || s->fd >= 0)
		return;
	err = remote_send(&s->remote, "GET", "/api/v1/processes", NULL, REPLY_NS, &s->fd,
			  ignored, sizeof(ignored));
	if (err)
		s->fd = -1;
	if (err == -GW_E_TIMEOUT)
		/* Do not ask a slow service again: with --watch, every snapshot would wait for
		 * it. */
		s->use = false;
}

/* Waits for the reply and reads it. Returns false if there is no usable reply. */
static bool read_reply(struct service_processes *s)
{
	char ignored[700];
	int err;

	if (s->fd < 0)
		return false;
	err = remote_reply(&s->remote, s->fd, REPLY_NS, ignored, sizeof(ignored));
	s->fd = -1;
	if (err == -GW_E_TIMEOUT)
		s->use = false;
	return !err && s->remote.status == 200 && s->remote.reply;
}

struct render_process_list service_processes_take(struct service_processes *s,
						  const struct gw_process_list *list,
						  const struct gw_snapshot *snap)
{
	struct render_process_list known = { .list = list };

	if (list && read_reply(s))
		(void)render_read_processes(s->remote.reply, snap, &s->rows, &known);
	return known;
}
