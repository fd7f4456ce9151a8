/* text: strings that may not be there. */
#ifndef GW_BASE_TEXT_H
#define GW_BASE_TEXT_H

#include <stdbool.h>
#include <string.h>

/* Are they equal?  NULL is equal to NULL alone. */
static inline bool text_same(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

#endif
