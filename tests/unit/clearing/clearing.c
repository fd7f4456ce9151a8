/* clearing: a library that clears a large table when it starts, as drivers' libraries do. */
#include <stddef.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

#define SIZE (8u << 20)

static char table[SIZE];

EXPORT size_t clearing_size(void);
EXPORT void clearing_start(void);
EXPORT char *clearing_at(size_t i);

EXPORT size_t clearing_size(void)
{
	return SIZE;
}

EXPORT void clearing_start(void)
{
	memset(table, 1, SIZE); /* otherwise the compiler removes the memset to 0 */
	__asm__ volatile("" ::: "memory");
	memset(table, 0, SIZE);
}

EXPORT char *clearing_at(size_t i)
{
	return &table[i];
}
