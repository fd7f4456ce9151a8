/* no_swap: with LD_PRELOAD, renameat2() fails as on a file system that cannot exchange two
 * names. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdio.h>

__attribute__((visibility("default"))) int renameat2(int a, const char *from, int b,
						     const char *to, unsigned flags)
{
	(void)a;
	(void)from;
	(void)b;
	(void)to;
	(void)flags;
	errno = EINVAL;
	return -1;
}
