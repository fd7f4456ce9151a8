/* text: small helpers for strings. */
#ifndef GW_BASE_TEXT_H
#define GW_BASE_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Are they equal? NULL equals only NULL. */
static inline bool text_same(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

/* snprintf() for text that may be cut on purpose. */
__attribute__((format(printf, 3, 4))) static inline void text_fit(char *out, size_t size,
								  const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(out, size, fmt, ap);
	va_end(ap);
}

#endif
