/* reader: the thread that asks the GPUs, and hands what they said to the main thread.
 *
 * All that may block on a driver is done here: opening, snapshots, process lists, starting and
 * ending the meter, letting go.  It reads on absolute deadlines into one of two readings, while
 * the main thread looks at the other; a driver that hangs hangs this thread (for the context's
 * deadline) and nobody else.  The meter's own threads run beside it. */
#ifndef GW_DAEMON_READER_H
#define GW_DAEMON_READER_H

#include "base/loop.h"
#include "measure/energy_total.h"

#include <gpuward.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* A meter, and the running energy of each of its GPUs. */
struct metering {
	struct gw_meter *meter;
	uint64_t signature; /* of the GPUs that it is of */
	unsigned count;
	struct metering_device {
		pthread_mutex_t lock;
		struct energy_total total;
		bool hung; /* as the meter was started: it is not measured */
	} * device;
};

/* What one round gave.  The main thread's until it takes the next. */
struct reading {
	struct gw_snapshot *snap;
	struct gw_process_list *processes;
	const struct gw_environment *env; /* NULL: not collected yet */
	struct metering *metering;        /* NULL: none */
	bool retire; /* metering is of other GPUs than there are now: let it go */
	bool let_go;
	unsigned asks; /* of reader_ask() that were done, and how the last ended */
	int ask_error;
	uint64_t begin_ns, end_ns; /* of the round */
	uint64_t missed;           /* rounds that were left out, ever */
	struct gw_ctx *ctx;
};

struct reader;

struct reader_config {
	const struct gw_options *options; /* of the context; copied */
	uint64_t interval_ns;
	const char *cache_dir; /* of sensor profiles; NULL: as XDG says */
	/* A reading came; on the main thread, by the loop.  From then on the one before is not to be
	 * looked at.  NULL: there was no memory to begin, and none will come. */
	void (*came)(void *arg, const struct reading *r);
	void *arg;
};

/* Starts the thread and returns at once: the first reading comes when the drivers are open.  0,
 * -GW_E_NOMEM or -GW_E_IO. */
int reader_new(struct loop *l, const struct reader_config *config, struct reader **ret);

/* Ends it.  0, or -GW_E_STATE: a driver call has not returned within timeout_ns; the thread is left
 * behind with all that it uses, and the process should end without calling the driver again. */
int reader_free(struct reader *r, uint64_t timeout_ns);

void reader_set_interval(struct reader *r, uint64_t interval_ns);

/* Asks for something between two rounds, done in the order in which it is asked.  0, or -GW_E_STATE: too
 * many wait. */
enum reader_request {
	READER_LET_GO,
	READER_RESUME,
	READER_CAME,   /* a driver did: it is tried at once              */
	READER_GONE,   /* one is taken away: it is closed, and tried later */
	READER_RETIRED /* metering is no longer used */
};
int reader_ask(struct reader *r, enum reader_request what);

/* Runs fn(arg, ctx) on the reader's thread, soon.  0, or -GW_E_STATE: too many wait. */
int reader_do(struct reader *r, void (*fn)(void *arg, struct gw_ctx *ctx), void *arg);

/* Joules that device i of a metering took so far, and the time of which its samples spoke. */
double metering_joules(struct metering *m, unsigned i, double *ret_seconds);

#endif
