/* tail: the last of what a command wrote to standard error, in a fixed amount of memory. */
#ifndef GW_CLI_TAIL_H
#define GW_CLI_TAIL_H

#include <stddef.h>

#define TAIL_BYTES 2048

struct tail {
	int write_fd; /* for the command */
	int read_fd;  /* readable: call tail_drain() */
	char text[TAIL_BYTES];
	size_t fill;
};

/* 0 or -GW_E_IO. */
int tail_open(struct tail *t);
void tail_close(struct tail *t);

/* Takes what has come; never waits. */
void tail_drain(struct tail *t);

/* Forgets all that has come so far. */
void tail_clear(struct tail *t);

/* The last `lines` lines, each after "\n ", without control characters; "" where there are
 * none. */
void tail_lines(struct tail *t, unsigned lines, char *out, size_t size);

#endif
