/* common: what the adapters share: asking a worker and judging its status, and notes.
 *
 * A status becomes the error that says what can be done about it; the sentence has the worker's
 * own words in it, cleaned. */
#ifndef GW_GUARD_WORKER_COMMON_H
#define GW_GUARD_WORKER_COMMON_H

#include "guard/worker.h"
#include "guard/worker/http.h"
#include "base/json_doc.h"

#define WORKER_MODEL 256 /* longest name of a model that is remembered */

/* Asks; a 2xx is 0.  401, 403: -GW_E_PERM; 404, 405, 501: -GW_E_NOSUPPORT; 409, 423, 429, 503:
 * -GW_E_STATE; other statuses -GW_E_IO; else as worker_http_do(). */
int worker_ask(struct worker_call *c, const char *method, const char *path, const char *body,
	       char *message, size_t size);

/* The same, and the answer is JSON.  The caller owns *ret. */
int worker_ask_json(struct worker_call *c, const char *method, const char *path,
		    const char *body, struct json_doc **ret, char *message, size_t size);

/* POSTs {key: value} (both strings). */
int worker_post(struct worker_call *c, const char *path, const char *key, const char *value,
		char *message, size_t size);

/* Was the last status one that says: this model, not this worker (400, 404, 422)? */
bool worker_unknown_model(const struct worker_call *c);

/* Steps one after another until one fails: rows ending with a NULL path; method POST. */
struct worker_step {
	const char *path, *body;
	bool may_lack; /* -GW_E_NOSUPPORT is no failure */
};
int worker_steps(struct worker_call *c, const struct worker_step *steps, char *message,
		 size_t size);

/* Notes.  Adding one that is there, or does not fit, changes nothing.  All are forgotten after a resume
 * that went well. */
void worker_note(struct worker_call *c, const char *key, const char *value);
bool worker_noted(const struct worker_call *c, const char *key, unsigned i, char *out,
		  size_t size);

/* That a worker was asked what is loaded; its models are noted as "model". */
void worker_note_asked(struct worker_call *c);
/* No model is noted, and none is named.  0: none was loaded, or nothing is missed; else -GW_E_NOSUPPORT, with what
 * a person can do. */
int worker_none_noted(const struct worker_call *c, char *message, size_t size);

/* Calls load for each noted "model", or for the policy's; a model that the worker no longer has is
 * passed over with a remark. */
int worker_load_noted(struct worker_call *c,
		      int (*load)(struct worker_call *c, const char *model, char *message,
				  size_t size),
		      char *message, size_t size);

#endif
