/* sensor_active: windows and lags, learned under a load of our own. */
#ifndef GW_MEASURE_SENSOR_ACTIVE_H
#define GW_MEASURE_SENSOR_ACTIVE_H

#include "sensor_watch.h"

/* What the parts of sensor_learn() share. */
struct learn {
	struct event_watch w;
	struct sensor s;
	const struct sensor_plan *plan;
	uint64_t begin_ns;
	double expected_s; /* of all */
	char *message;
	size_t size;
	double work[WATCH_POINTS], work2[WATCH_POINTS];
};

/* Tells how far it is. */
void learn_say(const struct learn *l, const char *what);

/* Period of a polled source out of its trace, where that tells more than what is known. */
void learn_period(struct learn *l, const struct watch_trace *t, struct sensor_source *s);

/* Seconds that the active part will take, about. */
#define ACTIVE_S 62

/* May a load be put on the GPU?  0, -GW_E_STATE or -GW_E_NOMEM, with a sentence in l->message. */
int sensor_active_alone(struct learn *l);

/* With the drive of the plan: corrects model, window and lag of each source, the counter's lag,
 * and sets SENSOR_ACTIVE.  0, -GW_E_STATE (another process is on the GPU), -GW_E_NOMEM,
 * -GW_E_LOST or what the drive says, with a sentence in l->message. */
int sensor_active(struct learn *l);

#endif
