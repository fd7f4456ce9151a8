/* guard_doc: writes the guard's state and decisions as JSON.
 *
 * Each function writes members of an open object, or one array element. Each time is written as
 * UTC and as seconds from now, because the clock of a client may differ. */
#ifndef GW_SERVE_GUARD_DOC_H
#define GW_SERVE_GUARD_DOC_H

#include "api_parts.h"
#include "guard_view.h"

/* The current time on the monotonic and on the wall clock. */
struct guard_moment {
	uint64_t mono_ns, wall_ns;
};
struct guard_moment guard_moment(const struct api *a);

/* Writes the keys NAME_utc and NAME_seconds. NAME_seconds is the time between now and at_ns,
 * and never negative. Both are null if at_ns is 0 or UINT64_MAX. */
void guard_doc_time(struct json *j, const char *name, uint64_t at_ns, struct guard_moment now);

/* Writes the names of the reasons in `mask` (bits of enum guard_reason) as an array. */
void guard_doc_mask(struct json *j, const char *key, uint32_t mask);

/* Writes the members of a worker. */
void guard_doc_worker(struct json *j, const struct api *a, unsigned worker,
		      struct guard_moment now);
/* If no GPU can be read, writes "no GPU can be read: REASON" to out and returns out. Returns
 * NULL if the guard observes a GPU. */
const char *guard_doc_no_gpu(const struct api *a, char *out, size_t size);
/* Writes sentence i about the moves of a worker: 0 the estimate of the next move, 1 the last
 * move off its GPU, 2 the last return, 3 host memory, 4 memory pages. Writes "" if there is
 * nothing to say. Returns false after the last sentence. no_gpu: the result of
 * guard_doc_no_gpu(). For a worker of kind checkpoint, the function reads /proc and /sys. */
bool guard_doc_move_sentence(const struct guard_view *g, unsigned worker,
			     const struct guard_status *s, const char *no_gpu, unsigned i,
			     char *out, size_t size);
/* Writes a decision as an array element. */
void guard_doc_decision(struct json *j, const struct guard_view *g,
			const struct guard_view_decision *d, struct guard_moment now);
/* Writes the members of a reservation. */
void guard_doc_room(struct json *j, const struct guard_reservation *room,
		    struct guard_moment now);
/* Writes the array "processes" of a GPU in the scene. */
void guard_doc_processes(struct json *j, const struct guard_view *g, unsigned gpu);

/* Writes total_memory_mb, used_memory_mb, free_memory_mb and gpu_vram_gb. The arguments are
 * bytes; NAN is written as null. */
void guard_doc_old_names(struct json *j, double total, double used, double free_bytes);

/* Works like guard_explain(), with two differences: the evidence of REASON_MANUAL names the
 * person who made the request, and the end of a schedule is right even if daylight saving time
 * begins or ends before it. */
bool guard_doc_explain(const struct guard_view *g, unsigned worker, enum guard_reason r,
		       struct guard_moment now, struct guard_explanation *ret);

/* Replies with a list that has one object per GPU that ?gpu= names. The function `one` writes
 * the members of each object. The function `head`, which may be NULL, writes members before the
 * list. Replies with a problem if there is no guard, no reading or no such GPU. */
void guard_doc_gpus(const struct api *a, const struct request *q, struct reply *r,
		    void (*head)(struct json *j, const struct api *a),
		    void (*one)(struct json *j, const struct api *a, unsigned i));

/* If the GPUs are simulated, no worker is moved, even in the mode enforce; returns a sentence
 * that says this. Returns NULL if the mode decides. */
const char *guard_doc_mode_note(const struct guard_view *g);
/* Writes the mode in force and the configured mode. If the two differ, also writes who set the
 * mode. */
void guard_doc_mode(struct json *j, const struct guard_view *g);

/* Returns the guard's view. If there is no guard, replies 503 with the cause and returns
 * NULL. */
const struct guard_view *guard_doc_there(const struct api *a, struct reply *r);
/* Returns the index of this worker, or -1 after a reply with 404. */
int guard_doc_find(const struct guard_view *g, struct reply *r, const char *name);

/* Call it for a request that changes something. Returns the guard's view if the guard accepts
 * such requests, or NULL after an error reply. */
const struct guard_view *guard_doc_may_ask(const struct api *a, struct reply *r);

/* Replies 429 with Retry-After, because this user moved workers too often. The reply has the
 * sentence `message`; "": a default sentence. */
void guard_doc_too_often(const struct api *a, const struct guard_view *g,
			 const struct request *q, struct reply *r, const char *message);

#define GUARD_TTL_MOST_S (365 * 86400.0) /* maximum of ttl_s in a request, in seconds */

/* Writes client and reason for the audit log: "a client with the token:
 * maintenance". A reason has at most GUARD_REASON_MAX bytes. */
#define GUARD_REASON_MAX 120
void guard_doc_who(const struct request *q, const char *reason, char *out, size_t size);

#endif
