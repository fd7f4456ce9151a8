/* remote: sends requests to the service, on this machine or another, over http or a UNIX
 * socket.
 *
 * The address comes from --address, GPUWARD_ADDRESS, or the configuration (a UNIX socket
 * first).  The token comes from --token-file, GPUWARD_TOKEN_FILE, the configuration, or
 * ~/.config/gpuward/token. */
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
	bool quiet; /* print nothing: the command works without a service, too */
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
	char token[512];   /* "": none                   */
	/* The last reply: */
	int status;
	struct buf body;
	struct json_doc *reply; /* NULL: not JSON */
};

/* Finds address and token; sends no request.  Returns an exit code.  Call remote_close()
 * afterwards, even after an error. */
int remote_open(struct remote *r, const struct remote_flags *f);
void remote_close(struct remote *r);

/* Sends one request.  body is JSON or NULL.  Returns 0 for any HTTP status.  Errors:
 * -GW_E_NOENT (no service listens), -GW_E_TIMEOUT, -GW_E_IO or -GW_E_PARSE, with a sentence in
 * message. */
int remote_request(struct remote *r, const char *method, const char *path, const char *body,
		   uint64_t timeout_ns, char *message, size_t size);

/* Do the same as remote_request() in two steps, so that the caller can do something in between,
 * such as another request. */
int remote_send(struct remote *r, const char *method, const char *path, const char *body,
		uint64_t timeout_ns, int *ret_fd, char *message, size_t size);
int remote_reply(struct remote *r, int fd, uint64_t timeout_ns, char *message, size_t size);

/* remote_fetch() sends a GET request and leaves the reply as text in r->body; remote_parse()
 * parses that text into r->reply.  For a caller that compares a reply with the previous
 * reply. */
int remote_fetch(struct remote *r, const char *path, const struct deadline_stop *stop,
		 uint64_t timeout_ns, char *message, size_t size);
void remote_parse(struct remote *r);

/* The JSON object in the body of a request.  remote_body_begin() returns the object to write
 * into; remote_body_end() returns its text, which is valid until remote_body_done(). */
struct remote_body {
	struct buf buf;
	struct json json;
};
struct json *remote_body_begin(struct remote_body *b);
const char *remote_body_end(struct remote_body *b);
void remote_body_done(struct remote_body *b);

/* Writes a path with an escaped name in it: remote_path(out, REMOTE_WORKERS, "my model", "/hold").
 * Returns out. */
#define REMOTE_WORKERS "/api/v1/guard/workers/"
#define REMOTE_PATH    1024
const char *remote_path(char out[static REMOTE_PATH], const char *before, const char *name,
			const char *after);

/* Read a part of a reply.  reply_text() returns the text at key, or `otherwise` if it is missing
 * or "".  reply_is() returns true if the text at key is this word, reply_has() if the array at
 * key contains this word. */
const char *reply_text(const struct json_doc *d, const char *key, const char *otherwise);
bool reply_is(const struct json_doc *d, const char *key, const char *word);
bool reply_has(const struct json_doc *d, const char *key, const char *word);

/* Works like remote_request(), but prints errors, also for a status of 400 or more.  Returns
 * EXIT_OK or EXIT_FAILED. */
int remote_request_ok(struct remote *r, const char *method, const char *path, const char *body);

/* Returns the error message in the reply. */
const char *remote_why(const struct remote *r);

/* Writes a sentence about a reply that is a refusal or an error: what the service replied, why,
 * and what to do about a refusal (401, 403). */
void remote_refusal(const struct remote *r, char *out, size_t size);

/* Loads the configuration of the service. Leaves out the parts that have a mistake, because a
 * running service continues with the values that it read before. A mistake is printed as a
 * note. Returns an exit code; after EXIT_OK call config_done(). */
struct config;
int remote_config(struct config *ret, bool *ret_mistake);

/* What only a running service knows about the processes on the GPUs: their energy, power and
 * workload.  For a command that reads the driver itself.  The service is optional: if none
 * answers in time, everything stays unknown, and nothing is printed. */
struct cli;
struct service_processes {
	struct remote remote;
	bool use; /* false: read the driver only, or the service was too slow once */
	int fd;   /* connection of the request that waits for its reply; -1: none */
	struct render_process_rows rows;
};

/* Finds the address of the service as `gpuward top` does.  c NULL: no service is asked.  Call
 * service_processes_close() at the end. */
void service_processes_open(struct service_processes *s, const struct cli *c);
void service_processes_close(struct service_processes *s);

/* Sends the request, so that the service answers while the caller reads the driver. */
void service_processes_ask(struct service_processes *s);

/* Reads the reply and returns the rows for this list.  They are valid until the next call.
 * Without a reply, the result has only the list. */
struct render_process_list service_processes_take(struct service_processes *s,
						  const struct gw_process_list *list,
						  const struct gw_snapshot *snap);

#endif
