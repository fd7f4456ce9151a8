/* power_record: what a GPU's sensor said over a whole session, for holding it against another
 * meter.
 *
 * A running integral at some moments: the mean power between any two of them is exact however
 * long the session was, for what is dropped when the room is full are moments, not power.
 * Fixed memory, as it is filled on the meter's thread; one thread at a time. */
#ifndef GW_CLI_POWER_RECORD_H
#define GW_CLI_POWER_RECORD_H

#include <stdbool.h>
#include <stddef.h>

#define POWER_RECORD_POINTS 16384

struct power_record_point {
	double t_s, joules, hole_s; /* joules and seconds without samples, since the first */
};

struct power_record {
	struct power_record_point point[POWER_RECORD_POINTS];
	size_t n;
	struct power_record_point last; /* of the latest sample */
	double last_w;
	unsigned long samples, every; /* one of so many is kept */
};

void power_record_init(struct power_record *r);

/* A sample; one that is not later than the one before is passed over. */
void power_record_add(struct power_record *r, double t_s, double watts);

/* Mean power from..to.  False where samples do not cover it. */
bool power_record_mean(const struct power_record *r, double from_s, double to_s, double *ret_w);

/* First and last moment; false while there are not two samples. */
bool power_record_span(const struct power_record *r, double *ret_from_s, double *ret_to_s);

#endif
