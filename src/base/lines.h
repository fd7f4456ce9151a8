/* lines: walks a text file of any length line by line, without allocating.
 *
 * For files that are too long to read whole on the stack: /proc/cpuinfo of a large machine,
 * /etc/passwd of a large site. */
#ifndef GW_BASE_LINES_H
#define GW_BASE_LINES_H

#include "root.h"

#include <stdbool.h>
#include <stddef.h>

#define LINES_SIZE 4096 /* a longer line is cut here */

struct lines {
	int fd;
	size_t at, used;
	bool end;  /* nothing more to read            */
	bool skip; /* the last line was cut: drop its rest */
	char buf[LINES_SIZE];
};

/* 0, -GW_E_NOENT, -GW_E_PERM or -GW_E_IO.  End with lines_close() after success. */
int lines_open(struct lines *l, const struct root *root, const char *path);
void lines_close(struct lines *l);

/* The next line without its newline, to be used (and changed) until the next call.  NULL at
 * the end, also when reading fails. */
char *lines_next(struct lines *l);

#endif
