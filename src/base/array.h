/* array: the number of elements of an array, and arrays on the heap that grow. */
#ifndef GW_BASE_ARRAY_H
#define GW_BASE_ARRAY_H

#include <gpuward.h>

#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Makes room for n elements of `size` bytes each. `array` is the address of the pointer to the
 * array; *cap is the number of elements for which there is memory. If the array must grow, *cap
 * at least doubles, so that adding one element at a time is cheap. Returns 0, or -GW_E_NOMEM
 * and changes nothing. */
static inline int array_reserve(void *array, unsigned *cap, unsigned n, size_t size)
{
	unsigned more = 2 * *cap > n ? 2 * *cap : n;
	void *old, *p;

	if (n <= *cap)
		return 0;
	memcpy(&old, array, sizeof(old));
	p = realloc(old, more * size);
	if (!p)
		return -GW_E_NOMEM;
	memcpy(array, &p, sizeof(p));
	*cap = more;
	return 0;
}

#endif
