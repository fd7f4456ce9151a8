#include "buf.h"

#include <gpuward.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Contents of an empty heap buffer: a NUL that is never overwritten. */
static char nothing[1];

void buf_init(struct buf *b, size_t max)
{
	*b = (struct buf){ .p = nothing, .max = max, .heap = true };
}

void buf_init_fixed(struct buf *b, char *mem, size_t size)
{
	mem[0] = '\0';
	*b = (struct buf){ .p = mem, .cap = size, .max = size };
}

void buf_done(struct buf *b)
{
	if (b->heap) {
		if (b->cap)
			free(b->p);
		buf_init(b, b->max);
	}
}

void buf_clear(struct buf *b)
{
	b->len = 0;
	b->err = 0;
	if (b->cap)
		b->p[0] = '\0';
}

/* Makes space for n more bytes and the NUL. */
static bool buf_reserve(struct buf *b, size_t n)
{
	size_t need, cap;
	char *p;

	if (b->err)
		return false;
	if (n >= b->max || b->len >= b->max - n) {
		b->err = -GW_E_SIZE;
		return false;
	}
	need = b->len + n + 1;
	if (need <= b->cap)
		return true;
	cap = b->cap ? b->cap : 256;
	while (cap < need)
		cap *= 2;
	if (cap > b->max)
		cap = b->max;
	p = b->cap ? realloc(b->p, cap) : malloc(cap);
	if (!p) {
		b->err = -GW_E_NOMEM;
		return false;
	}
	b->p = p;
	b->cap = cap;
	return true;
}

void buf_add(struct buf *b, const char *s, size_t n)
{
	if (n == 0 || !buf_reserve(b, n))
		return;
	memcpy(b->p + b->len, s, n);
	b->len += n;
	b->p[b->len] = '\0';
}

void buf_adds(struct buf *b, const char *s)
{
	buf_add(b, s, strlen(s));
}

void buf_addc(struct buf *b, char c)
{
	buf_add(b, &c, 1);
}

void buf_addv(struct buf *b, const char *fmt, va_list ap)
{
	va_list again;
	int n;

	va_copy(again, ap);
	n = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	if (n < 0 && !b->err)
		b->err = -GW_E_SIZE;
	if (n < 0 || !buf_reserve(b, (size_t)n))
		return;
	vsnprintf(b->p + b->len, (size_t)n + 1, fmt, ap);
	b->len += (size_t)n;
}

void buf_addf(struct buf *b, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	buf_addv(b, fmt, ap);
	va_end(ap);
}
