/* reader: the thread that reads the GPUs and passes the readings to the main thread.
 *
 * Everything that may block on a driver happens here: opening, snapshots, process lists,
 * starting and stopping the meter, releasing drivers. Each round begins at an absolute
 * deadline. There are two objects of struct reading: the thread fills one while the main thread
 * uses the other. A driver that hangs blocks only this thread, until the context's deadline. */
#ifndef GW_DAEMON_READER_H
#define GW_DAEMON_READER_H

#include "base/loop.h"
#include "measure/energy.h"
#include "serve/view.h"

#include <gpuward.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* A meter and the accumulated energy of each of its GPUs. */
struct metering {
	struct gw_meter *meter;
	uint64_t signature; /* Identifies the set of GPUs. */
	unsigned count;
	struct metering_device {
		pthread_mutex_t lock;
		struct energy_total total;
		bool hung; /* The GPU hung when the meter started, so it is not measured. */
	} * device;
};

/* The result of one round. The main thread owns a reading until it takes the next reading. */
struct reading {
	struct gw_snapshot *snap;
	struct gw_process_list *processes;
	struct gw_environment *env; /* NULL if it was not collected yet. */
	uint64_t env_ns;            /* Monotonic time at which `env` was collected. */
	struct metering *metering;  /* NULL if energy is not measured. */
	bool unmetered;             /* No meter runs, because memory or threads are missing. */
	/* The GPUs changed. The main thread must stop using `metering`. */
	bool retire;
	bool let_go; /* The drivers are released. */
	/* Time to the next round. While no client uses the readings, this time is longer than
	 * the interval. */
	uint64_t pace_ns;
	bool full; /* Every tier that was due was read. */
	/* Number of requests of reader_send_request() that are done. */
	unsigned requests_done;
	int request_error;         /* Result of the last request. 0 means success. */
	uint64_t begin_ns, end_ns; /* Monotonic times at which the round began and ended. */
	uint64_t missed;           /* Number of rounds that were skipped since the start. */
	struct gw_ctx *ctx;
	/* Why NVML cannot be initialised, as a cause and as a sentence. The cause is
	 * GW_CAUSE_NONE if NVML is open or not used. */
	enum gw_cause nvml_cause;
	char nvml_message[400];
	struct view_program program; /* The cost of running nvidia-smi. */
};

struct reader;

struct reader_config {
	const struct gw_options *options; /* Options of the context. The reader copies them. */
	uint64_t interval_ns;
	const char *cache_dir; /* Folder for sensor profiles. NULL: the XDG default. */
	/* Called on the main thread with a new reading. The previous reading is no longer
	 * valid. */
	void (*ready)(void *arg, const struct reading *r);
	/* Called on the main thread if the GPUs cannot be opened. why is a sentence. The
	 * reader tries again. */
	void (*failed)(void *arg, const char *why);
	void *arg;
};

/* Starts the thread and returns at once. The first reading arrives when the drivers are open.
 * Returns 0, -GW_E_NOMEM or -GW_E_IO. */
int reader_new(struct loop *l, const struct reader_config *config, struct reader **ret);

/* Stops the thread. Returns 0, or -GW_E_STATE if a driver call has not returned within
 * timeout_ns. The thread and everything that it uses then stay in memory, and the process
 * should exit without calling the driver again. */
int reader_free(struct reader *r, uint64_t timeout_ns);

void reader_set_interval(struct reader *r, uint64_t interval_ns);

/* Sets whether each round also reads GW_TIER_PROFILE. If no round reads this tier, the driver
 * is not queried for GPM. */
void reader_set_profile(struct reader *r, bool on);

/* Requests an action. Actions are done between two rounds, in the order of the requests.
 * Returns 0, or -GW_E_STATE if the queue is full. */
enum reader_request {
	READER_LET_GO,
	READER_RESUME,
	READER_CAME, /* A driver was loaded. The reader opens it at once. */
	/* A driver is being removed. The reader closes it now and tries to open it later. */
	READER_GONE,
	READER_RETIRED /* The main thread no longer uses `metering`. */
};
int reader_send_request(struct reader *r, enum reader_request what);

/* Runs fn(arg, ctx) on the reader thread, before the next round. Returns 0, or -GW_E_STATE if
 * the queue is full. */
int reader_do(struct reader *r, void (*fn)(void *arg, struct gw_ctx *ctx), void *arg);

/* Until the monotonic time until_ns, each full round also reads the SM utilisation of every
 * process. Other rounds read the utilisation only on GPUs with several processes. If `now` is
 * true and the last round did not read the utilisation of every process, a round begins at
 * once. */
void reader_look(struct reader *r, uint64_t until_ns, bool now);

/* For this time after the start, every round is full. */
#define READER_START_NS (5 * NS_PER_S)
/* While no client uses the readings, a round comes every READER_REST_NS. Such a round reads
 * only the cheap tiers; the expensive tiers are read every READER_REST_HEALTH_NS. */
#define READER_REST_NS        (10 * NS_PER_S)
#define READER_REST_HEALTH_NS (30 * NS_PER_S)

/* Makes the rounds full, at the configured interval, until the monotonic time until_ns. If
 * `now` is true, a full round begins at once, even if until_ns is in the past. */
void reader_watch(struct reader *r, uint64_t until_ns, bool now);

/* Returns the energy of device i in joules. *ret_seconds is the measured time. */
double metering_joules(struct metering *m, unsigned i, double *ret_seconds);

#endif
