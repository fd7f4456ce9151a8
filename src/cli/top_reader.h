/* top_reader: reads the figures for `gpuward top`, from a running service or from the driver. A
 * thread does the reading, so that keys still work while the driver hangs or the network is
 * slow. */
#ifndef GW_CLI_TOP_READER_H
#define GW_CLI_TOP_READER_H

#include "top_model.h"

struct cli;
struct remote;
struct top_reader;

struct top_reader_options {
	struct cli *c;         /* if remote is NULL, cli_open() was called */
	struct remote *remote; /* the service; NULL: read the driver */
	bool local;            /* the service runs on this machine */
	uint64_t interval_ns;
};

/* Starts the thread. Until top_reader_stop(), only the thread may use the objects to which the
 * options point. Returns 0 or a negative error. */
int top_reader_start(const struct top_reader_options *o, struct top_reader **ret);

/* Returns a descriptor that becomes readable when there is a new model. */
int top_reader_fd(const struct top_reader *r);

/* Copies the latest model into *m. Returns false if it is not new. */
bool top_reader_take(struct top_reader *r, struct top_model *m);

/* Stops reading, or starts it again.  While the reader is paused, it makes no request and no
 * driver call. */
void top_reader_pause(struct top_reader *r, bool paused);

/* Selects whether the figures that only the zoom shows are read. When the zoom begins, the
 * driver is read at once. */
void top_reader_zoom(struct top_reader *r, bool zoom);

/* Ends the thread and frees the reader. Returns 0, or -GW_E_STATE if the thread hangs in a
 * call. The thread then still uses the reader and its options: end the program without freeing
 * them. */
int top_reader_stop(struct top_reader *r);

#endif
