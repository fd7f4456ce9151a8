/* textfile: the metrics in a file that node_exporter's textfile collector reads.
 *
 * The file is replaced whole by a rename, so that a reader sees the old text or the new one, never
 * half of either.  Nothing is synced: what is written every tick need not outlive a crash, and a
 * disk that is slow to sync would hold the loop up. */
#ifndef GW_DAEMON_TEXTFILE_H
#define GW_DAEMON_TEXTFILE_H

#include <stdbool.h>
#include <stddef.h>

#define TEXTFILE_PATH_MAX 4096

struct textfile {
	char path[TEXTFILE_PATH_MAX];
	char temp[TEXTFILE_PATH_MAX +
		  16]; /* beside it, without .prom at its end: not collected */
	int error;     /* of the last write; 0: it went well */
};

/* 0; -GW_E_ARG (the name does not end in ".prom", which the collector wants) or -GW_E_SIZE, with a
 * sentence in message. */
int textfile_init(struct textfile *f, const char *path, char *message, size_t size);

/* Writes it anew.  0, -GW_E_NOENT, -GW_E_PERM or -GW_E_IO, with a sentence in message.  *ret_news:
 * it fails otherwise than last time, or no longer: say so once. */
int textfile_write(struct textfile *f, const char *text, size_t n, bool *ret_news,
		   char *message, size_t size);

/* Takes the file away: figures of a service that ended must not be collected for ever. */
void textfile_done(struct textfile *f);

#endif
