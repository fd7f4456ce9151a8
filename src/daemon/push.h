/* push: sends the metrics to a server at an interval, by Prometheus remote write or OTLP, and
 * writes them to a file for node_exporter.
 *
 * The main thread makes a record of the metrics page. A writer thread appends it to the queue
 * on disk, and a sender thread takes records from the queue. So neither a slow server nor a
 * slow disk delays the service, and records are on disk while the sender waits for an
 * answer. */
#ifndef GW_DAEMON_PUSH_H
#define GW_DAEMON_PUSH_H

#include "push_encode.h"
#include "push_http.h"

#include "base/log.h"
#include "base/loop.h"

struct config;

/* The settings of the push. Compare them with memcmp(). */
struct push_settings {
	struct push_server server; /* If the url is "", nothing is pushed. */
	struct push_identity id;
	enum push_protocol protocol;
	uint64_t interval_ns, queue_bytes;
	char dir[PUSH_PATH_MAX]; /* Folder of the queue. "" if it is unknown. */
};

/* state_dir is the folder for the state of the service, or NULL if it is unknown. Data of
 * simulated GPUs has its own queue. */
void push_settings_make(const struct config *c, const char *state_dir, bool simulated,
			struct push_settings *ret);

struct push_config {
	struct loop *loop;
	const struct clock *clock;
	/* Passes the metrics page to sink. */
	void (*page)(void *arg, const struct metrics_sink *sink);
	/* Logs a sentence. Called on the loop's thread. */
	void (*log)(void *arg, enum log_level level, const char *sentence);
	void *arg;
};

struct push;

/* Makes the push follow new settings. Creates *p if it is NULL and the settings have a url.
 * *ret_changed is false if the settings are the same as before. Returns 0, -GW_E_NOMEM or
 * -GW_E_IO. After an error nothing is pushed, and the next call tries again. */
int push_change(struct push **p, const struct push_config *config,
		const struct push_settings *settings, bool *ret_changed);

/* Marks all series stale, tries for two seconds to send the waiting records, and stops. Records
 * that still wait are sent after the next start. */
void push_free(struct push *p);

/* Logs what changed, and returns the current figures of the push. The figures are valid until
 * the next call. */
const struct view_push *push_look(struct push *p);

/* Returns the delay before the next attempt. The delay begins with one second (or with the
 * interval, if that is shorter). It doubles with each failure, up to one minute (or four
 * intervals, if that is shorter). The random number chance, from 0 to 1, changes the delay by
 * up to 25 %. */
uint64_t push_delay(unsigned failures, uint64_t interval_ns, double chance);

/* The file for node_exporter's textfile collector. It is replaced by a rename, so that a reader
 * sees the old or the new text, never a mix. The file is not synced to disk, because it need
 * not survive a crash, and because a slow disk would delay the loop. */
#define TEXTFILE_PATH_MAX 4096

struct textfile {
	char path[TEXTFILE_PATH_MAX];
	/* Path of the temporary file. It is in the same directory. Its name does not end in
	 * .prom, so that node_exporter does not collect it. */
	char temp[TEXTFILE_PATH_MAX + 16];
	int error; /* Error of the last write. 0 if it succeeded. */
};

/* Sets the path. Returns 0 or -GW_E_SIZE, with a sentence in message. */
int textfile_init(struct textfile *f, const char *path, char *message, size_t size);

/* Replaces the file. Returns 0, -GW_E_NOENT, -GW_E_PERM or -GW_E_IO, with a sentence in
 * message. *ret_news is true if the result differs from the result of the last call and should
 * be logged. */
int textfile_write(struct textfile *f, const char *text, size_t n, bool *ret_news,
		   char *message, size_t size);

/* Deletes the file, so that the values of a stopped service are not collected forever. */
void textfile_done(struct textfile *f);

#endif
