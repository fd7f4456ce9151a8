/* count: counts how often our code and other code in the process allocate memory. */
#ifndef GW_BENCH_COUNT_H
#define GW_BENCH_COUNT_H

/* Calls of malloc, calloc and realloc so far. count_ours has the calls by the program, and by
 * libc when the program called libc. count_others has the calls by any other library, such as
 * the driver's. */
extern unsigned long count_ours, count_others;

/* Finds the program and libc in memory. Calls before count_start() are not counted. */
void count_start(void);

#endif
