/* here: facts about the process of the test. */
#ifndef GW_TEST_HERE_H
#define GW_TEST_HERE_H

#include <dirent.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A sanitizer makes everything ten times as slow. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOW 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SLOW 1
#endif
#endif

/* Under valgrind, the kernel's name and the executable of this process are those of valgrind. */
static inline bool under_valgrind(void)
{
	const char *preload = getenv("LD_PRELOAD");

	return preload && strstr(preload, "vgpreload");
}

static inline unsigned open_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	if (!d)
		abort();
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

#endif
