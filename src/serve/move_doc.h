/* move_doc: writes how long a worker takes to leave its GPU and to return, as JSON and as
 * sentences: an estimate of the next move, and the duration of the last one.
 *
 * For a worker of kind checkpoint, the functions read /proc and /sys; they call no driver. */
#ifndef GW_SERVE_MOVE_DOC_H
#define GW_SERVE_MOVE_DOC_H

#include "guard_view.h"

#include "base/json.h"

/* Writes the members "leave" and "return" of a worker. no_gpu: why no GPU can be read; NULL:
 * GPUs can be read. */
void move_doc_write(struct json *j, const struct guard_view *g, unsigned worker,
		    const struct guard_status *s, const char *no_gpu);

/* Writes sentence i about the moves of a worker: 0 estimate, 1 last move, 2 host memory, 3
 * memory pages. Writes "" if there is nothing to say. Returns false after the last sentence. */
bool move_doc_sentence(const struct guard_view *g, unsigned worker,
		       const struct guard_status *s, const char *no_gpu, unsigned i, char *out,
		       size_t size);

#endif
