/* remote: asks the service that runs on this machine, or on another.
 *
 * Over plain http or a UNIX socket (client.h).  Where the service is: --address,
 * GPUWARD_ADDRESS, else what the configuration listens on (a UNIX socket first).  The token:
 * --token-file, GPUWARD_TOKEN_FILE, else the configuration's, else that of
 * ~/.config/gpuward/token. */
#ifndef GW_CLI_REMOTE_H
#define GW_CLI_REMOTE_H

#include "option.h"

#include "base/buf.h"

#include <stddef.h>
#include <stdint.h>

struct json_doc;

/* Options of a command that asks: first of its own struct. */
struct remote_flags {
	const char *address, *token_file;
};
#define REMOTE_OPTIONS_OF(type, member)                                                       \
	{ "address",                                                                          \
	  0,                                                                                  \
	  OPTION_TEXT,                                                                        \
	  offsetof(type, member.address),                                                     \
	  "ADDRESS",                                                                          \
	  "where the service listens: HOST:PORT or unix:PATH (default: as it is configured)", \
	  NULL,                                                                               \
	  NULL },                                                                             \
	{                                                                                     \
		"token-file", 0, OPTION_TEXT, offsetof(type, member.token_file), "FILE",      \
			"file that holds the service's token (default: as it is configured, " \
			"else ~/.config/gpuward/token)",                                      \
			NULL, NULL                                                            \
	}
#define REMOTE_OPTIONS(member) REMOTE_OPTIONS_OF(struct given, member)

struct remote {
	char address[512]; /* "HOST:PORT" or "unix:PATH" */
	char token[512];   /* "": none                   */
	/* Of the last answer. */
	int status;
	struct buf body;
	struct json_doc *reply; /* NULL: it was no JSON */
};

/* EXIT_OK, or an exit code having said why.  remote_close() in any case. */
int remote_open(struct remote *r, const struct remote_flags *f);
void remote_close(struct remote *r);

/* One request; body NULL or JSON.  0 whatever the status is; else -GW_E_NOENT (nobody listens),
 * -GW_E_TIMEOUT, -GW_E_IO or -GW_E_PARSE, with a sentence. */
int remote_ask(struct remote *r, const char *method, const char *path, const char *body,
	       uint64_t timeout_ns, char *message, size_t size);

/* The same in two steps, for who has something to do meanwhile, be it to ask something else: 0
 * and *ret_fd for remote_answer(). */
int remote_send(struct remote *r, const char *method, const char *path, const char *body,
		uint64_t timeout_ns, int *ret_fd, char *message, size_t size);
int remote_answer(struct remote *r, int fd, uint64_t timeout_ns, char *message, size_t size);

/* remote_ask(); a failure and a status of 400 or more are said.  EXIT_OK or EXIT_FAILED. */
int remote_want(struct remote *r, const char *method, const char *path, const char *body);

/* What the answer says went wrong. */
const char *remote_why(const struct remote *r);

/* ... and, of a refusal (401, 403), what to do about it. */
const char *remote_hint(const struct remote *r);

/* s as a part of a path. */
void remote_escape(struct buf *out, const char *s);

#endif
