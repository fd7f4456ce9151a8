/* device_events: finds which readings of a GPU fail, and when a failure begins and ends.
 *
 * A figure that fails at every tick is reported twice: when it begins to fail and when it works
 * again. The engine calls this once per GPU and tick. While a GPU is lost, asleep or stalled,
 * its state is reported and its figures are not evaluated. */
#ifndef GW_DAEMON_DEVICE_EVENTS_H
#define GW_DAEMON_DEVICE_EVENTS_H

#include <gpuward.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The figures of a report, and the list of processes. */
#define QUERY_FIGURES   (GW_QUANTITIES + 1)
#define QUERY_PROCESSES GW_QUANTITIES

/* A failed figure counts as working again after it was readable at this number of ticks in a
 * row. Without this rule, a figure that fails from time to time would fill the log. */
#define QUERY_GOOD_TICKS 5

struct query_errors {
	/* failed readings since the figure began to fail; 0: the figure works */
	uint32_t failed[QUERY_FIGURES];
	/* number of readable ticks in a row since the last failure */
	uint8_t good[QUERY_FIGURES];
};

/* One call that began to fail (or works again), with the figures that it returns. */
struct query_change {
	bool fails;
	/* name of the call, such as "nvmlDeviceGetPowerUsage", or of the backend if it has no
	 * calls */
	const char *call;
	char figures[256]; /* keys of quantities, separated by ", " */
	enum gw_absence why;
	uint32_t failed; /* if the call works again: number of readings that failed */
};

/* Evaluates the report d of this tick and the absence reason of its process list. Calls
 * change() for each NVML call with figures that began to fail or work again. called(arg, call):
 * true if the NVML call with this number was made. If a call was never made, its older variant
 * is named. */
void query_errors_follow(struct query_errors *q, const struct gw_device *d,
			 enum gw_absence processes, bool (*called)(void *arg, unsigned call),
			 void (*change)(void *arg, const struct query_change *c), void *arg);

#endif
