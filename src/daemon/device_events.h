/* device_events: finds what changed between two ticks, and emits an event for each change. It
 * looks at the driver, at the state of each GPU, and at readings that fail.
 *
 * A reading that fails at every tick causes two events: when it begins to fail and when it
 * works again. While a GPU is lost, asleep or stalled, only its state is reported. The engine
 * calls these functions once per tick. */
#ifndef GW_DAEMON_DEVICE_EVENTS_H
#define GW_DAEMON_DEVICE_EVENTS_H

#include "reader.h"

#include "serve/view.h"

/* Number of the figures whose failures are reported: all quantities, and then the process
 * list. */
#define QUERY_FIGURES   (GW_QUANTITIES + 1)
#define QUERY_PROCESSES GW_QUANTITIES /* Index of the process list. */

struct engine; /* The engine emits the events. */

/* What the last tick reported about the drivers. */
struct driver_events {
	enum gw_cause cause, nvml_cause;
	char backend[64]; /* Names of the open backends. */
};

/* What the last tick reported about one GPU. The caller sets it to zero when another GPU
 * takes this position. */
struct gpu_events {
	bool known; /* The GPU was present at an earlier tick. */
	enum gw_device_state state;
	/* Number of failed readings since the figure began to fail. 0 if the figure can be
	 * read. */
	uint32_t failed[QUERY_FIGURES];
	/* Number of ticks in a row at which the figure could be read, since its last
	 * failure. */
	uint8_t good[QUERY_FIGURES];
};

/* Emits an event if a driver was opened, failed or changed. v has the new snapshot. */
void driver_events_follow(struct driver_events *d, struct engine *e, const struct view *v,
			  const struct reading *r);

/* Emits an event if GPU i is new or its state changed. uuid is NULL if the GPU has no UUID.
 * Returns true if the state changed; a new GPU does not count as a change. */
bool gpu_events_follow_state(struct gpu_events *g, struct engine *e, const struct view *v,
			     unsigned i, const char *uuid);

/* Emits an event for each driver call of GPU i that begins to fail or works again. */
void gpu_events_follow_queries(struct gpu_events *g, struct engine *e, const struct view *v,
			       unsigned i, const char *uuid);

#endif
