/* remote: sends requests to the service, on this machine or another, over http or a UNIX
 * socket.
 *
 * The address comes from --address, GPUWARD_ADDRESS, or the configuration of the service. If
 * the configuration names several addresses, a UNIX socket is preferred. The token comes from
 * --token-file, GPUWARD_TOKEN_FILE, the configuration, or ~/.config/gpuward/token. */
#ifndef GW_CLI_REMOTE_H
#define GW_CLI_REMOTE_H

#include "option.h"

#include "base/buf.h"
#include "serve/render.h"

#include <stddef.h>
#include <stdint.h>

struct json_doc;
struct deadline_stop;

/* Options of a command that sends requests to the service. */
struct remote_flags {
	const char *address, *token_file;
	bool quiet; /* print no errors, because the command also works without a service */
};
#define REMOTE_OPTIONS_OF(type, member)                                                      \
	OPTION_ROW(TEXT, 0, "address", offsetof(type, member.address), "ADDRESS",            \
		   "where the service listens: HOST:PORT or unix:PATH (default: from its "   \
		   "configuration)"),                                                        \
		OPTION_ROW(TEXT, 0, "token-file", offsetof(type, member.token_file), "FILE", \
			   "file with the token of the service (default: from its "          \
			   "configuration, else ~/.config/gpuward/token)")
#define REMOTE_OPTIONS(member) REMOTE_OPTIONS_OF(struct given, member)

struct remote {
	char address[512]; /* "HOST:PORT" or "unix:PATH" */
	char token[512];   /* "": there is no token */
	/* The following members are the last reply. */
	int status; /* HTTP status */
	struct buf body;
	/* The body, parsed. Its strings have no control characters, because another program
	 * than the service may have written them. NULL: it is not JSON. */
	struct json_doc *reply;
};

/* Finds the address and the token. Sends no request. Returns an exit code. Call remote_close()
 * afterwards, even after an error. */
int remote_open(struct remote *r, const struct remote_flags *f);
void remote_close(struct remote *r);

/* Sends one request.  `body` is JSON or NULL.  Returns 0 for any HTTP status, otherwise an
 * error of client_request_reply() with a sentence in message. */
int remote_request(struct remote *r, const char *method, const char *path, const char *body,
		   uint64_t timeout_ns, char *message, size_t size);

/* Do the same as remote_request() in two steps. Between the two calls, the caller can do other
 * work while the service answers. */
int remote_send(struct remote *r, const char *method, const char *path, const char *body,
		uint64_t timeout_ns, int *ret_fd, char *message, size_t size);
int remote_reply(struct remote *r, int fd, uint64_t timeout_ns, char *message, size_t size);

/* remote_fetch() sends a GET request and does not parse the reply: r->body contains its text.
 * remote_parse() parses r->body into r->reply. So a caller can compare the text with the
 * previous reply, and parse it only if it differs. */
int remote_fetch(struct remote *r, const char *path, const struct deadline_stop *stop,
		 uint64_t timeout_ns, char *message, size_t size);
void remote_parse(struct remote *r);

/* A JSON object for the body of a request. remote_body_begin() starts the object and returns
 * the writer for its members. remote_body_end() returns the text, which is valid until
 * remote_body_done(). */
struct remote_body {
	struct buf buf;
	struct json json;
};
struct json *remote_body_begin(struct remote_body *b);
const char *remote_body_end(struct remote_body *b);
void remote_body_done(struct remote_body *b);

/* Writes the path of a route that contains a name, and escapes the name. For example,
 * remote_path(out, REMOTE_WORKERS, "my model", "/hold") writes ".../workers/my%20model/hold".
 * Returns out. */
#define REMOTE_WORKERS "/api/v1/guard/workers/"
#define REMOTE_PATH    1024
const char *remote_path(char out[static REMOTE_PATH], const char *before, const char *name,
			const char *after);

/* Read one value of a reply. reply_text() returns the text at key, or `otherwise` if the text
 * is missing or "". reply_is() returns true if the text at key is equal to `word`. reply_has()
 * returns true if the array at key contains `word`. */
const char *reply_text(const struct json_doc *d, const char *key, const char *otherwise);
bool reply_is(const struct json_doc *d, const char *key, const char *word);
bool reply_has(const struct json_doc *d, const char *key, const char *word);

/* Work like remote_request(), but print errors, and after 2 s a note that the command waits for
 * the service. remote_request_any() accepts any HTTP status; for remote_request_ok(), a status
 * of 400 or more is an error, too. Both return EXIT_OK or EXIT_FAILED. */
int remote_request_any(struct remote *r, const char *method, const char *path,
		       const char *body);
int remote_request_ok(struct remote *r, const char *method, const char *path, const char *body);

/* remote_json() copies the body of the reply, which is JSON, and writes control characters in
 * its strings as escapes; call buf_done() afterwards. remote_print() prints this text and
 * returns an exit code. */
void remote_json(const struct remote *r, struct buf *out);
int remote_print(const struct remote *r);

/* Returns the error message in the reply, or "no reason given". */
const char *remote_why(const struct remote *r);

/* Writes a sentence about a reply with a status of 400 or more: what the service replied, why,
 * and, for the status 401 or 403, what the user can do. */
void remote_refusal(const struct remote *r, char *out, size_t size);

/* Loads the configuration of the service. If the configuration has a mistake, uses the parts
 * without mistakes, prints a note unless `quiet` is set, and sets *ret_mistake: the running
 * service may have read the file before the mistake was made. Returns an exit code; after
 * EXIT_OK call config_done(). */
struct config;
int remote_config(struct config *ret, bool *ret_mistake, bool quiet);

/* Gets from a running service what the driver does not report about processes: their energy,
 * power and workload. This is for a command that reads the driver itself. If no service answers
 * in time, these figures stay unknown, and nothing is printed. */
struct cli;
struct service_processes {
	struct remote remote;
	bool use; /* send requests; false: no service is wanted, or it was too slow once */
	int fd;   /* connection on which a reply is expected; -1: there is none */
	struct render_process_rows rows;
};

/* Finds the address of the service. If c is NULL or has options about the driver, no request
 * will be sent. Call service_processes_close() at the end. */
void service_processes_open(struct service_processes *s, const struct cli *c);
void service_processes_close(struct service_processes *s);

/* Sends the request, so that the service answers while the caller reads the driver. */
void service_processes_ask(struct service_processes *s);

/* Reads the reply and returns the list together with the figures of the service. The result is
 * valid until the next call. Without a reply, the result contains only the list. */
struct render_process_list service_processes_take(struct service_processes *s,
						  const struct gw_process_list *list,
						  const struct gw_snapshot *snap);

#endif
