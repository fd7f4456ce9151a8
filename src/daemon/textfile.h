/* textfile: writes the metrics to a file for node_exporter's textfile collector.
 *
 * The file is replaced by a rename, so that a reader sees the old or the new text, never a
 * mix. It is not synced: it need not survive a crash, and a slow disk would delay the loop. */
#ifndef GW_DAEMON_TEXTFILE_H
#define GW_DAEMON_TEXTFILE_H

#include <stdbool.h>
#include <stddef.h>

#define TEXTFILE_PATH_MAX 4096

struct textfile {
	char path[TEXTFILE_PATH_MAX];
	/* in the same directory, without .prom, so that it is not collected */
	char temp[TEXTFILE_PATH_MAX + 16];
	int error; /* error of the last write; 0: success */
};

/* Sets the path. Returns 0, -GW_E_ARG (the name must end in ".prom" for the collector) or
 * -GW_E_SIZE, with a sentence in message. */
int textfile_init(struct textfile *f, const char *path, char *message, size_t size);

/* Replaces the file. Returns 0, -GW_E_NOENT, -GW_E_PERM or -GW_E_IO, with a sentence in
 * message. *ret_news is true if the result differs from the last one and should be logged. */
int textfile_write(struct textfile *f, const char *text, size_t n, bool *ret_news,
		   char *message, size_t size);

/* Deletes the file, so that the values of a stopped service are not collected for ever. */
void textfile_done(struct textfile *f);

#endif
