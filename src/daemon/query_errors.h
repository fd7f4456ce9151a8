/* query_errors: which readings of a GPU fail, and when that begins and ends.
 *
 * A figure that fails at every tick is reported twice: when it begins to fail and when it works
 * again. The engine calls this once per GPU and tick. A GPU that is lost, asleep or stalled is
 * reported as a whole by its state, so its figures are not followed in that time. */
#ifndef GW_DAEMON_QUERY_ERRORS_H
#define GW_DAEMON_QUERY_ERRORS_H

#include <gpuward.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The figures of a report, and the list of processes. */
#define QUERY_FIGURES   (GW_QUANTITIES + 1)
#define QUERY_PROCESSES GW_QUANTITIES

/* A figure works again when it was readable at this many ticks in a row, so that one that fails
 * now and then does not fill the log. */
#define QUERY_GOOD_TICKS 5

struct query_errors {
	uint32_t failed[QUERY_FIGURES]; /* failed readings since it began; 0: it works */
	uint8_t good[QUERY_FIGURES];    /* readable ticks in a row since then */
};

/* One call that began to fail (or works again), with the figures that it returns. */
struct query_change {
	bool fails;
	const char *call;  /* "nvmlDeviceGetPowerUsage", or the backend if it has no calls */
	char figures[256]; /* keys of quantities, separated by ", " */
	enum gw_absence why;
	uint32_t failed; /* failed readings, if it works again */
};

/* Takes the report d of this tick, with the absence reason of its process list, and calls
 * change() for each call with figures that changed. called(arg, call): true if the NVML call with
 * this number was made; an older call is named if the newer one never was. */
void query_errors_follow(struct query_errors *q, const struct gw_device *d,
			 enum gw_absence processes, bool (*called)(void *arg, unsigned call),
			 void (*change)(void *arg, const struct query_change *c), void *arg);

#endif
