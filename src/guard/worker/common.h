/* common: the sets of adapters (worker.h), and functions that the adapters share: HTTP
 * requests, notes, lists of models, and the check that a process still belongs to its worker.
 *
 * Each HTTP status is converted to an error code. The message contains the server's own error
 * text, without control characters and without the token. */
#ifndef GW_GUARD_WORKER_COMMON_H
#define GW_GUARD_WORKER_COMMON_H

#include "guard/worker.h"
#include "guard/worker/http.h"
#include "base/json_doc.h"

#define WORKER_MODEL \
	256 /* size of a value in a note, such as the name of a model, with its NUL */

/* Writes the message of the call and returns error. */
int worker_fail(const struct worker_call *c, int error, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Writes a remark as the message and returns 0. */
#define worker_ok(c, ...) worker_fail(c, 0, __VA_ARGS__)

/* Send a request. Return 0 for 2xx; -GW_E_PERM for 401 and 403; -GW_E_NOSUPPORT for 404, 405
 * and 501; -GW_E_STATE for 409, 423, 429 and 503; -GW_E_IO for other statuses. Without an
 * answer, return the errors of worker_http_do(). */
int worker_get(struct worker_call *c, const char *path);
int worker_post(struct worker_call *c, const char *path, const char *body);

/* Sends a GET and parses the answer as JSON. The caller owns *ret. */
int worker_get_json(struct worker_call *c, const char *path, struct json_doc **ret);

/* POSTs {key: value}; key and value are strings. */
int worker_post_field(struct worker_call *c, const char *path, const char *key,
		      const char *value);

/* Reads the document at worker_ops.busy_path. Sets *ret_busy to whether requests are
 * running. */
int worker_busy(struct worker_call *c, const struct worker_ops *ops, bool *ret_busy);

/* Sends a list of fixed requests (worker_ops.posts) until one fails. */
int worker_post_all(struct worker_call *c, const struct worker_post *posts);

/* True if the last answer is an error and contains these words, in upper or lower case. The
 * words are needed because one status can have several meanings: llama.cpp answers 400 both for
 * "already running" and for "not loaded". */
bool worker_said(const struct worker_call *c, const char *words);

/* Waits a quarter of a second and returns true. Returns false at once if the deadline of the
 * call is sooner than that, or if the order was cancelled. */
bool worker_pause(const struct worker_call *c);

/* Adds a note unless it is already there. Returns false if the note does not fit. All notes are
 * deleted after a successful resume. */
bool worker_note(struct worker_call *c, const char *key, const char *value);
/* Copies the value of note number i (from 0) among the notes with this key. Returns false if
 * there are fewer such notes. */
bool worker_noted(const struct worker_call *c, const char *key, unsigned i, char *out,
		  size_t size);
bool worker_is_noted(const struct worker_call *c, const char *key, const char *value);
/* Deletes all notes with this key. */
void worker_forget(struct worker_call *c, const char *key);

/* Adds a note "process": the resume of the worker must find this process again. */
void worker_note_process(struct worker_call *c, struct proc_id id);
/* Reads at most `most` notes "process". Returns the number of notes that were read. */
unsigned worker_noted_processes(const struct worker_call *c, struct proc_id *ret,
				unsigned most);

/* Adds a note "model": the resume of the worker loads this model again. If the note does not
 * fit, adds the note "unrecorded" instead, and the resume reports this. */
void worker_note_model(struct worker_call *c, const char *name);
/* Adds the note "asked": the worker reported which models are loaded. Each loaded model is a
 * note "model". */
void worker_note_asked(struct worker_call *c);
/* Returns the result of a resume for a worker with no noted and no configured model. Returns 0
 * with a remark if no model was loaded at the eviction, or if the worker held no memory.
 * Otherwise returns -GW_E_NOSUPPORT with a message that says what a person can do. */
int worker_none_noted(const struct worker_call *c);

/* Calls load for each noted model, or for the configured one. If a model does not load, the
 * remark names it, and the other models are still loaded; if no model loads, the first failure
 * is the result. Sets c->listed if the server lists the loaded models. With resume = "lazy" the
 * function does nothing, because the server loads a model with the next request. */
int worker_load_noted(struct worker_call *c,
		      int (*load)(struct worker_call *c, const char *model));

/* A process keeps its pid and its start time when it executes another program, so the process
 * that the last scene found may run another program now. Therefore an adapter calls
 * worker_process_belongs() before it touches a process. The check repeats how the process was
 * found: by its pidfile, its port, or other parts of the match. A descendant of a worker's root
 * may be any program and is not checked. */

/* True if the process still belongs to the worker. False also if the process cannot be read
 * now; the next order checks again. */
bool worker_process_belongs(const struct worker_call *c, const struct guard_target *t);

/* True if the worker's match finds the process. False if the match is empty, or if it has a
 * pidfile or a port. */
bool worker_process_matches(const struct worker_call *c, const struct guard_target *t);

/* The lists of models that inference servers report, one format per kind of server. The
 * adapters use them to note what an eviction unloads; the service uses them to count tokens per
 * model. The functions are in http_servers.c. */

/* From MODEL_LOADING on, the server runs the model or keeps it ready. */
enum model_state {
	MODEL_OUT,    /* not in the memory of this machine */
	MODEL_FAILED, /* the server could not load the model */
	MODEL_LOADING,
	MODEL_LOADED,
	MODEL_SLEEPING, /* llama.cpp after --sleep-idle-seconds: its weights are not on the GPU */
	/* llama.cpp with a single model, which is loaded and cannot be unloaded */
	MODEL_SINGLE,
};

/* One entry of a list. The strings belong to the document. */
struct listed_model {
	const char *name; /* NULL: the server does not report it */
	enum model_state state;
	const struct json_doc *entry;
};

/* Requests the list of the call's worker. The caller owns *ret, which is NULL if the server
 * reports that no model is loaded. Returns the errors of worker_get_json(), and -GW_E_NOSUPPORT
 * for a kind without a list. */
int model_list_get(struct worker_call *c, struct json_doc **ret);

/* Reads entry i (from 0) of a list. Returns false if the list has fewer entries. list may be
 * NULL. */
bool model_list_at(enum policy_kind kind, const struct json_doc *list, size_t i,
		   struct listed_model *ret);

/* Requests the list and writes the name of its first model, "" if there is none or if the
 * server does not report it. Returns the errors of model_list_get(). */
int model_list_first(struct worker_call *c, char *out, size_t size);

/* worker_NAME: the adapter of each row of kind.def. */
#define K(symbol, name, url, level, stop_s, traits, help) \
	extern const struct worker_ops worker_##name;
#include "guard/kind.def"

/* Carries out levels 5 (SIGTERM) and 6 (SIGTERM, and SIGKILL after a grace period) for workers
 * of every kind. Returns -GW_E_PERM if allow_kill is not set. The function is in signal.c. */
int worker_kill(const struct worker_call *c);

#endif
