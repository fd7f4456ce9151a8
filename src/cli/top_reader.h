/* top_reader: reads the figures for `gpuward top` in a thread, from a running service or from
 * the driver, so that neither a hanging driver nor a slow network blocks the keyboard. */
#ifndef GW_CLI_TOP_READER_H
#define GW_CLI_TOP_READER_H

#include "top_model.h"

struct cli;
struct remote;
struct top_reader;

struct top_reader_options {
	struct cli *c;         /* its GPUs are open if remote is NULL */
	struct remote *remote; /* the service; NULL: read the driver */
	bool local;            /* the service runs on this machine */
	uint64_t interval_ns;
};

/* Starts the thread.  The objects that the options point to must outlive the reader; only the
 * thread may use them until top_reader_stop().  Returns 0 or a negative error. */
int top_reader_start(const struct top_reader_options *o, struct top_reader **ret);

/* Returns a descriptor that is readable when there is something new. */
int top_reader_fd(const struct top_reader *r);

/* Copies the latest model into *m.  Returns false if there is nothing new. */
bool top_reader_take(struct top_reader *r, struct top_model *m);

/* Stops reading, or starts it again.  While the reader is paused, it makes no request and no
 * driver call. */
void top_reader_pause(struct top_reader *r, bool paused);

/* Selects whether the figures that only the zoom shows are read.  If zoom is new, reads at
 * once. */
void top_reader_zoom(struct top_reader *r, bool zoom);

/* Ends the thread and frees the reader.  Returns 0, or -GW_E_STATE: the thread hangs in a call
 * and still uses the reader and its options; end the program without freeing them. */
int top_reader_stop(struct top_reader *r);

#endif
