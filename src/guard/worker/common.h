/* common: what the adapters share: requests over HTTP, the meaning of a status, and notes.
 *
 * An HTTP status becomes the error code that says what can be done about it.  The sentence
 * contains the server's own error text, cleaned of control characters and of the token. */
#ifndef GW_GUARD_WORKER_COMMON_H
#define GW_GUARD_WORKER_COMMON_H

#include "guard/worker.h"
#include "guard/worker/http.h"
#include "base/json_doc.h"

#define WORKER_MODEL 256 /* size of the longest model name that is noted */

/* Writes the sentence of the call and returns error. */
int worker_fail(const struct worker_call *c, int error, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Writes a remark and returns 0. */
#define worker_ok(c, ...) worker_fail(c, 0, __VA_ARGS__)

/* Sends a request.  2xx: 0; 401, 403: -GW_E_PERM; 404, 405, 501: -GW_E_NOSUPPORT; 409, 423,
 * 429, 503: -GW_E_STATE; other statuses: -GW_E_IO; without an answer as worker_http_do(). */
int worker_get(struct worker_call *c, const char *path);
int worker_post(struct worker_call *c, const char *path, const char *body);

/* GET whose answer is JSON.  The caller owns *ret. */
int worker_get_json(struct worker_call *c, const char *path, struct json_doc **ret);

/* POSTs {key: value}, both strings. */
int worker_post_field(struct worker_call *c, const char *path, const char *key,
		      const char *value);

/* Does the document of worker_ops.busy_path show running requests? */
int worker_busy(struct worker_call *c, const struct worker_ops *ops, bool *ret_busy);

/* Sends a list of fixed requests (worker_ops.posts) until one fails. */
int worker_post_all(struct worker_call *c, const struct worker_post *posts);

/* Does the last status mean that the server does not know the model (400, 404, 422)? */
bool worker_unknown_model(const struct worker_call *c);

/* Notes.  One that is already noted or does not fit is not added.  All are deleted after a
 * successful resume. */
void worker_note(struct worker_call *c, const char *key, const char *value);
/* Copies the value of the i-th note with this key; false: there are fewer. */
bool worker_noted(const struct worker_call *c, const char *key, unsigned i, char *out,
		  size_t size);

/* A process that resume must find again, as a note "process". */
void worker_note_process(struct worker_call *c, struct proc_id id);
/* Reads at most most of them; returns how many. */
unsigned worker_noted_processes(const struct worker_call *c, struct proc_id *ret,
				unsigned most);

/* Records that the worker was asked which models are loaded; each is a note "model". */
void worker_note_asked(struct worker_call *c);
/* For a resume without a noted and without a configured model.  0 with a remark: no model was
 * loaded, or the worker held no memory; else -GW_E_NOSUPPORT with what a person can do. */
int worker_none_noted(const struct worker_call *c);

/* Calls load for each noted model, or for the configured one.  A model that the server no
 * longer has is skipped, with a remark.  With resume = "lazy" it does nothing: the server loads
 * a model with the next request. */
int worker_load_noted(struct worker_call *c,
		      int (*load)(struct worker_call *c, const char *model));

#endif
