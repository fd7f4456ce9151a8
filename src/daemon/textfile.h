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
	char temp[TEXTFILE_PATH_MAX + 16]; /* same directory, not .prom: not collected */
	int error;                         /* of the last write; 0: success */
};

/* 0; -GW_E_ARG (the name must end in ".prom" for the collector) or -GW_E_SIZE, with a text in
 * message. */
int textfile_init(struct textfile *f, const char *path, char *message, size_t size);

/* Replaces the file. 0, -GW_E_NOENT, -GW_E_PERM or -GW_E_IO, with a text in message.
 * *ret_news: the result differs from the last one, so it should be logged. */
int textfile_write(struct textfile *f, const char *text, size_t n, bool *ret_news,
		   char *message, size_t size);

/* Deletes the file: the values of a stopped service must not be collected for ever. */
void textfile_done(struct textfile *f);

#endif
