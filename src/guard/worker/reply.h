/* reply: reads the JSON that a worker answers.
 *
 * jansson does, loaded when the first answer is read, as libcurl is: the library needs libc alone,
 * and a parser is not written by hand.  (An op of the daemon would have split each adapter in two.) */
#ifndef GW_GUARD_WORKER_REPLY_H
#define GW_GUARD_WORKER_REPLY_H

#include <stdbool.h>
#include <stddef.h>

struct worker_reply; /* a document, or a value in it */

/* 0 and the caller owns *ret; -GW_E_PARSE or -GW_E_NOSUPPORT (no libjansson), with a sentence. */
int worker_reply_new(const char *text, size_t n, struct worker_reply **ret, char *message,
		     size_t size);
void worker_reply_free(struct worker_reply *r); /* of a document; NULL is fine */

/* Path: keys parted by dots; "" is r itself.  What is not there, or of another kind: NULL, 0, false. */
const struct worker_reply *worker_reply_get(const struct worker_reply *r, const char *path);
const char *worker_reply_string(const struct worker_reply *r, const char *path);
double worker_reply_number(const struct worker_reply *r, const char *path);
bool worker_reply_true(const struct worker_reply *r, const char *path);
size_t worker_reply_count(const struct worker_reply *r, const char *path); /* of an array */
const struct worker_reply *worker_reply_at(const struct worker_reply *r, const char *path,
					   size_t i);

#endif
