/* count: how often memory was allocated by our code, and by others in the same process. */
#ifndef GW_BENCH_COUNT_H
#define GW_BENCH_COUNT_H

/* Calls of malloc, calloc and realloc so far: by the program and by libc on its behalf; by any
 * other library (the driver's). */
extern unsigned long count_ours, count_others;

/* Finds where the program and libc lie in memory.  Before this nothing is counted. */
void count_start(void);

#endif
