/* baseline: the idle power of a GPU, and the energy above it.
 *
 * There are three kinds, never mixed: no program has a context on it, a program has one but is
 * idle, and just after a load. A baseline is stored per uuid, driver, vbios, kind, power limit
 * and persistence, and is valid for an hour of the wall clock. */
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
	double limit_w;  /* enforced power limit at that time; NAN: unknown */
	int persistence; /* 1, 0, -1: unknown */
	double power_w;  /* mean                                       */
	double u_w;      /* standard error of the mean                 */
	double seconds;  /* duration of the measurement */
	double temperature_c;
	uint64_t wall_ns; /* when it was taken                          */
	uint64_t codes;   /* enum gw_code; baseline-contended: not idle */
	char evidence
		/* What used the GPU, or that its processes were not visible; "" if it was idle. */
		[192];
};

/* "no-context", "context-idle", "hot-idle". */
const char *baseline_kind_name(unsigned kind);

/* The state of a GPU that a baseline belongs to: uuid, driver, vbios, kind, limit, persistence
 * and temperature, from a snapshot of GW_TIERS_COMMON; the rest is cleared. */
void baseline_key(const struct gw_device *d, enum baseline_kind kind, struct baseline *ret);

/* Mean of n batch means of one second each, its standard error, and the half width of its 95 %
 * interval by Student's t. Samples of an averaging sensor are correlated, those of different
 * seconds hardly: so seconds are counted, not samples. NAN if n is too small. */
struct baseline_estimate {
	double power_w, u_w, half_width_w;
};
void baseline_estimate(const double *batch_w, unsigned n, struct baseline_estimate *ret);

struct baseline_plan {
	enum baseline_kind kind;
	double max_s;        /* 30: stop at the latest */
	double min_s;        /* 10: not before, and then ... */
	double half_width_w; /* 1: ... when the 95 % half-width is not above this */
	/* Progress; may be NULL. False ends it. */
	bool (*progress)(void *ctx, double seconds, double power_w, double half_width_w);
	void *ctx;
};

/* Measures a baseline on device i of a meter that runs with GW_METER_PROCESSES. It ends early,
 * with its code and evidence set, if clocks are throttled, utilisation exceeds 2 % at any tick,
 * the limit changes, or a process interferes (no-context: any process; else: a process that is
 * not the meter's own; context-idle also: no process). Such a baseline must not be stored.
 * Returns 0, -GW_E_NODEV, -GW_E_NOSUPPORT (no power value), -GW_E_LOST, -GW_E_STATE (ended by
 * progress), -GW_E_ARG (less than 2 s) or -GW_E_NOMEM. */
int baseline_take(struct gw_meter *m, unsigned i, const struct baseline_plan *plan,
		  struct baseline *ret);

/* As file_cache_directory("baseline"). */
int baseline_directory(char *out, size_t size);

/* save: stores it. Returns 0, -GW_E_STATE (contended), -GW_E_ARG (no uuid) or an error of
 * file_replace. load: finds the one that matches key (uuid, driver, vbios, kind, limit_w,
 * persistence, temperature_c filled): not older than ttl_s by the wall clock, same limit and
 * persistence, within 10 degrees. Returns 0, or -GW_E_NOENT with a sentence in why (none, too
 * old, other limit, other temperature, damaged file). */
int baseline_save(const struct baseline *b, const char *dir, char *message, size_t size);
int baseline_load(struct baseline *key, const char *dir, double ttl_s, uint64_t wall_now_ns,
		  char *why, size_t size);

/* Is there one for this GPU and kind, in any state? */
bool baseline_kept(const char *uuid, enum baseline_kind kind, const char *dir);

/* Deletes those of a GPU (all kinds and states), or of all GPUs if uuid is NULL. Returns how
 * many. */
unsigned baseline_clear(const char *uuid, const char *dir);

/* Energy above the baseline. */
struct baseline_net {
	struct gw_interval joules; /* signed; NAN: unknown */
	double adjusted_joules;    /* never below 0                */
	bool floored;              /* it would be below 0 */
};

/* Pure: gross energy over `seconds` minus the baseline, interpolated from before to after
 * (after may be NULL). The interval combines in quadrature that of the gross, the baseline's
 * standard error x duration, and half the drift between the two. With a calibrated sensor (the
 * one of gross) the uncertainty of the gain counts from the baseline if that is further away
 * than the pivot. */
void baseline_net(const struct gw_energy *gross, const struct sensor *sensor,
		  const struct baseline *before, const struct baseline *after,
		  struct baseline_net *ret);

#endif
