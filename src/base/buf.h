/* buf: text that grows up to a given maximum and never beyond it.
 *
 * A text is added completely or not at all. If a text does not fit, or if there is no memory,
 * `err` is set, and everything that is added later is ignored. So the caller checks `err` only
 * once, at the end. The text is always NUL-terminated. */
#ifndef GW_BASE_BUF_H
#define GW_BASE_BUF_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

struct buf {
	char *p;    /* the text; it is never NULL and always ends with a NUL */
	size_t len; /* length of the text without the NUL */
	size_t cap; /* size of the memory at p in bytes */
	size_t max; /* upper limit of cap */
	bool heap;  /* The memory is on the heap, and buf_done() frees it. */
	int err;    /* 0, -GW_E_NOMEM or -GW_E_SIZE */
};

/* Makes an empty heap buffer of at most `max` bytes including the NUL; allocates nothing yet.
 * Free it with buf_done(). */
void buf_init(struct buf *b, size_t max);

/* Makes an empty buffer in the caller's memory. This buffer never allocates. size >= 1. */
void buf_init_fixed(struct buf *b, char *mem, size_t size);

/* Frees the memory. The buffer is then empty and can be used again, with the same maximum. */
void buf_done(struct buf *b);

/* Clears the text and the error, keeps the memory. */
void buf_clear(struct buf *b);

void buf_add(struct buf *b, const char *s, size_t n);
void buf_adds(struct buf *b, const char *s);
void buf_addc(struct buf *b, char c);
void buf_addf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_addv(struct buf *b, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));

#endif
