/* baseline: what a GPU draws when it does nothing, and the energy above that.
 *
 * Three kinds, never merged: no program has a context on it, a program has one and is idle, and
 * just after a load.  A baseline is kept per uuid, driver, vbios, kind, power limit and
 * persistence, for an hour of the wall clock. */
#ifndef GW_MEASURE_BASELINE_H
#define GW_MEASURE_BASELINE_H

#include "sensor.h"

#include <gpuward.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum baseline_kind {
	BASELINE_NO_CONTEXT,
	BASELINE_CONTEXT_IDLE,
	BASELINE_HOT_IDLE,
	BASELINE_KINDS
};

struct baseline {
	char uuid[96], driver[96], vbios[96];
	enum baseline_kind kind;
	double limit_w;  /* enforced power limit then; NAN unknown     */
	int persistence; /* 1, 0, -1 unknown                           */
	double power_w;  /* mean                                       */
	double u_w;      /* standard error of the mean                 */
	double seconds;  /* how long it was looked at                  */
	double temperature_c;
	uint64_t wall_ns; /* when it was taken                          */
	uint64_t codes;   /* enum gw_code; baseline-contended: not idle */
	char evidence
		[192]; /* what was on it then, or that nobody could see who was; "" when it was idle */
};

/* "no-context", "context-idle", "hot-idle". */
const char *baseline_kind_name(unsigned kind);

/* The state of a GPU that a baseline must be of: uuid, driver, vbios, kind, limit, persistence and
 * temperature, as a snapshot of GW_TIERS_COMMON tells them; all else is cleared. */
void baseline_key(const struct gw_device *d, enum baseline_kind kind, struct baseline *ret);

/* Mean of n batch means of a second each, its standard error, and the half width of its 95 %
 * interval by Student's t.  Samples of a sensor that averages are alike, those of neighbouring
 * seconds hardly: so the seconds are counted, not the samples.  NAN where n is too small. */
struct baseline_estimate {
	double power_w, u_w, half_width_w;
};
void baseline_estimate(const double *batch_w, unsigned n, struct baseline_estimate *ret);

struct baseline_plan {
	enum baseline_kind kind;
	double most_s;       /* 30: when to stop in any case                  */
	double least_s;      /* 10: not before, and then                      */
	double half_width_w; /* 1: when the 95 % half-width is not above this */
	/* How far it is; NULL: nobody looks.  False ends it. */
	bool (*progress)(void *ctx, double seconds, double power_w, double half_width_w);
	void *ctx;
};

/* Takes one on device i of a meter that runs with GW_METER_PROCESSES.  Clocks that are held back,
 * more than 2 % of utilisation at any tick, a changed limit, or somebody on it (no-context: anybody
 * at all; else: a process that is not the meter's own; context-idle also: nobody) end it: 0 with
 * its code and evidence set, and it must not be kept.  0, -GW_E_NODEV, -GW_E_NOSUPPORT (it tells no
 * power), -GW_E_LOST, -GW_E_STATE (ended by progress), -GW_E_ARG (less than 2 s) or -GW_E_NOMEM. */
int baseline_take(struct gw_meter *m, unsigned i, const struct baseline_plan *plan,
		  struct baseline *ret);

/* As file_cache_directory("baseline"). */
int baseline_directory(char *out, size_t size);

/* Keeps it (-GW_E_STATE: it was contended; -GW_E_ARG: of a GPU without uuid; else as file_replace) / finds the one that key (uuid, driver, vbios, kind, limit_w, persistence,
 * temperature_c filled) may use now: not older than ttl_s by the wall clock, the same limit and
 * persistence, and taken within 10 degrees of it.  load: 0, -GW_E_NOENT with a sentence in why
 * (none, too old, other limit, other temperature, file damaged). */
int baseline_save(const struct baseline *b, const char *dir, char *message, size_t size);
int baseline_load(struct baseline *key, const char *dir, double ttl_s, uint64_t wall_now_ns,
		  char *why, size_t size);

/* Is one there of this GPU and kind, whatever its state? */
bool baseline_kept(const char *uuid, enum baseline_kind kind, const char *dir);

/* Forgets those of a GPU (all kinds and states), or of all where uuid is NULL.  How many. */
unsigned baseline_clear(const char *uuid, const char *dir);

/* Energy above the baseline. */
struct baseline_net {
	struct gw_interval joules; /* signed; NAN: unknown         */
	double adjusted_joules;    /* never below 0                */
	bool floored;              /* that bit                     */
};

/* Pure: gross energy over `seconds` less the baseline, interpolated from before to after (after
 * may be NULL).  Its interval is that of the gross, in quadrature with the baseline's standard error x
 * duration and half the drift between the two; of a calibrated sensor, the one that gross was made with,
 * the uncertainty of the gain counts from the baseline where that is further off than the pivot. */
void baseline_net(const struct gw_energy *gross, const struct sensor *sensor,
		  const struct baseline *before, const struct baseline *after,
		  struct baseline_net *ret);

#endif
