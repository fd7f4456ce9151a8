/* guard_doc: what the guard knows and decides, as JSON.
 *
 * Each writes members of an object that is open, or a whole element of an array.  Times come twice: UTC,
 * and in seconds from now, for whoever has no clock that agrees. */
#ifndef GW_SERVE_GUARD_DOC_H
#define GW_SERVE_GUARD_DOC_H

#include "api_parts.h"
#include "guard_view.h"

/* Now, on both clocks. */
struct guard_moment {
	uint64_t mono_ns, wall_ns;
};
struct guard_moment guard_moment(const struct api *a);

/* "NAME_utc" and "NAME_seconds", which count from or until now; null where at_ns is 0 or UINT64_MAX. */
void guard_doc_time(struct json *j, const char *name, uint64_t at_ns, struct guard_moment now);

/* An array of the names of reasons. */
void guard_doc_mask(struct json *j, const char *key, uint32_t mask);

/* Members of a worker. */
void guard_doc_worker(struct json *j, const struct guard_view *g, unsigned worker,
		      struct guard_moment now);
/* An element. */
void guard_doc_decision(struct json *j, const struct guard_view *g,
			const struct guard_view_decision *d, struct guard_moment now);
/* Members of a reservation. */
void guard_doc_room(struct json *j, const struct guard_reservation *room,
		    struct guard_moment now);
/* Members of an operation. */
void guard_doc_operation(struct json *j, const struct guard_operation *o);
/* The array "processes" of a GPU of the scene. */
void guard_doc_processes(struct json *j, const struct guard_view *g, unsigned gpu);

/* total_memory_mb, used_memory_mb, free_memory_mb and gpu_vram_gb of bytes; null where NAN. */
void guard_doc_old_names(struct json *j, double total, double used, double free_bytes);

/* Is the state only decided?  One that is on its GPU is really there. */
bool guard_doc_pretends(const struct guard_status *s);

const char *guard_doc_mode(enum guard_mode mode);
/* Is a GPU simulated that the guard has seen? */
bool guard_doc_simulated(const struct guard_view *g);
const char *guard_doc_hold(enum guard_hold hold);

/* A text, or null where it is empty. */
void guard_doc_text(struct json *j, const char *key, const char *text);

/* A document with an object for each GPU that ?gpu= names, of which one() writes the members; head() writes what
 * stands before them, or NULL.  Replies what is missing where there is no guard, no reading or no such GPU. */
void guard_doc_gpus(const struct api *a, const struct request *q, struct reply *r,
		    void (*head)(struct json *j, const struct api *a),
		    void (*one)(struct json *j, const struct api *a, unsigned i));

/* Is there a guard?  If not: 503, which says how to have one. */
const struct guard_view *guard_doc_there(const struct api *a, struct reply *r);
/* The worker of this name; -1: 404 was replied. */
int guard_doc_find(const struct guard_view *g, struct reply *r, const char *name);

/* For what changes something: the guard, if the body is said to be JSON and it can be asked; NULL: replied. */
const struct guard_view *guard_doc_may_ask(const struct api *a, const struct request *q,
					   struct reply *r);

/* 429 to somebody whose user moved workers too often; says when to ask again.  message: the sentence, or "". */
void guard_doc_too_often(const struct api *a, const struct guard_view *g,
			 const struct request *q, struct reply *r, const char *message);

#define GUARD_TTL_MOST_S (365 * 86400.0) /* that a wish lasts, if not without end */

/* Who asks and why, for the audit: "token: maintenance". */
#define GUARD_REASON_MAX 120
void guard_doc_who(const struct request *q, const char *reason, char *out, size_t size);

#endif
