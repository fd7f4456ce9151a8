/* Lets one allocation of the tested code fail. The test is linked with --wrap for malloc,
 * calloc, realloc and strdup. */
#ifndef ALLOC_FAIL_H
#define ALLOC_FAIL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

static atomic_uint allocations;
static unsigned fail_at; /* number of the allocation that fails; 0: none */

static bool fails(void)
{
	return ++allocations == fail_at;
}

#define ALLOCATES(result, name, parameters, arguments)           \
	result __real_##name parameters;                         \
	result __wrap_##name parameters;                         \
	result __wrap_##name parameters                          \
	{                                                        \
		return fails() ? NULL : __real_##name arguments; \
	}

ALLOCATES(void *, malloc, (size_t n), (n))
ALLOCATES(void *, calloc, (size_t n, size_t m), (n, m))
ALLOCATES(void *, realloc, (void *p, size_t n), (p, n))
ALLOCATES(char *, strdup, (const char *s), (s))

#endif
