/* tail: keeps the end of what a command writes to standard error, in a fixed amount of
 * memory. */
#ifndef GW_CLI_TAIL_H
#define GW_CLI_TAIL_H

#include <stddef.h>

#define TAIL_BYTES 2048

struct tail {
	int write_fd; /* for the command */
	int read_fd;  /* call tail_drain() when it is readable */
	char text[TAIL_BYTES];
	size_t fill;
};

/* Returns 0 or -GW_E_IO. */
int tail_open(struct tail *t);
void tail_close(struct tail *t);

/* Reads what the command has written so far; never blocks. */
void tail_drain(struct tail *t);

/* Discards everything up to now. */
void tail_clear(struct tail *t);

/* Writes the last `lines` lines, each after "\n ", without control characters; "" if there are
 * none. */
void tail_lines(struct tail *t, unsigned lines, char *out, size_t size);

#endif
