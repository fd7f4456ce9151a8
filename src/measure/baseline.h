/* baseline: the idle power of a GPU, and the energy above it.
 *
 * There are three kinds, which are never mixed: no program has a context on the GPU; a program
 * has a context but is idle; the GPU is idle just after a load. A baseline is stored per uuid,
 * driver, vbios, kind, power limit and persistence. By default it is used for an hour by the
 * wall clock, and only while the GPU's temperature is at most 10 degrees above or below that of
 * the baseline. */
#ifndef GW_MEASURE_BASELINE_H
#define GW_MEASURE_BASELINE_H

#include "sensor.h"

#include <gpuward.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct baseline {
	char uuid[96], driver[96], vbios[96];
	enum gw_baseline_kind kind;
	double limit_w;  /* enforced power limit when the baseline was measured; NAN: unknown */
	int persistence; /* persistence mode: 1 on, 0 off, -1 unknown */
	double power_w;  /* mean idle power */
	double u_w;      /* standard error of the mean */
	double seconds;  /* duration of the measurement */
	double temperature_c; /* of the GPU during the measurement; NAN: unknown */
	uint64_t wall_ns;     /* when the baseline was measured */
	uint64_t codes; /* bits of enum gw_code; baseline-contended: the GPU was not idle */
	/* Why the GPU was not idle, or a note that its processes were not visible; otherwise
	 * "". */
	char evidence[192];
};

/* Fills in the state that a baseline belongs to: uuid, driver, vbios, kind, limit, persistence
 * and temperature, from a snapshot of GW_TIERS_COMMON. Clears the other members. */
void baseline_key(const struct gw_device *d, enum gw_baseline_kind kind, struct baseline *ret);

/* The mean of n batch means of one second each, its standard error, and the half width of its
 * 95 % interval by Student's t. Samples of an averaging sensor are correlated, but means of
 * different seconds are nearly independent. Therefore n counts seconds, not samples. NAN if n
 * is too small. */
struct baseline_estimate {
	double power_w, u_w, half_width_w;
};
void baseline_estimate(const double *batch_w, unsigned n, struct baseline_estimate *ret);

/* Works like baseline_key(), for the present state of device i of a meter. ret_provenance may
 * be NULL. Returns 0, -GW_E_NODEV, -GW_E_LOST or -GW_E_NOMEM. */
int baseline_state(struct gw_meter *m, unsigned i, enum gw_baseline_kind kind,
		   struct baseline *ret, enum gw_provenance *ret_provenance);

struct baseline_plan {
	enum gw_baseline_kind kind;
	double max_s; /* maximum duration of the measurement; usually 30 */
	double min_s; /* minimum duration of the measurement; usually 10 */
	/* After min_s, the measurement ends when the half-width of the 95 % interval is at most
	 * half_width_w; usually 1. */
	double half_width_w;
	/* Reports progress; may be NULL. If it returns false, the measurement ends. */
	bool (*progress)(void *ctx, double seconds, double power_w, double half_width_w);
	void *ctx;
};

/* Measures a baseline on device i of a meter that runs with GW_METER_PROCESSES. The kind
 * no-context allows no process on the GPU. The other kinds allow only the meter's own
 * processes, and context-idle requires one. The measurement ends early, with code and evidence
 * set, if the processes do not fit the kind, if clocks are throttled, if the power limit
 * changes, or if a reading shows a utilisation above 2 %. Such a baseline must not be stored.
 * Returns 0, -GW_E_NODEV, -GW_E_NOSUPPORT (no power value), -GW_E_LOST, -GW_E_STATE
 * (plan->progress returned false), -GW_E_ARG (less than 2 s) or -GW_E_NOMEM. */
int baseline_take(struct gw_meter *m, unsigned i, const struct baseline_plan *plan,
		  struct baseline *ret);

/* Writes the default folder of baselines. Returns the same as
 * file_cache_directory(). */
int baseline_directory(char *out, size_t size);

/* baseline_save() stores a baseline. Returns 0, -GW_E_STATE (the GPU was not idle), -GW_E_ARG
 * (no uuid) or an error of file_replace(), with a message.
 * baseline_load() finds the stored baseline for the state in key (uuid, driver, vbios, kind,
 * limit_w, persistence and temperature_c are set). The stored baseline must be at most ttl_s
 * old by the wall clock, have the same limit and persistence, and a temperature within 10
 * degrees. Returns 0, or -GW_E_NOENT with the reason in `why`. */
int baseline_save(const struct baseline *b, const char *dir, char *message, size_t size);
int baseline_load(struct baseline *key, const char *dir, double ttl_s, uint64_t wall_now_ns,
		  char *why, size_t size);

/* Returns true if a baseline is stored for this GPU and kind, for any driver, power limit or
 * temperature. */
bool baseline_kept(const char *uuid, enum gw_baseline_kind kind, const char *dir);

/* Deletes all stored baselines of a GPU, or of all GPUs if uuid is NULL. Returns the number of
 * deleted baselines. */
unsigned baseline_clear(const char *uuid, const char *dir);

/* Energy above the baseline. */
struct baseline_net {
	struct gw_interval joules; /* may be below 0; NAN: unknown */
	double adjusted_joules;    /* joules.best, or 0 if joules.best is below 0 */
	bool floored;              /* joules.best is below 0 */
};

/* Computes the gross energy minus the energy of the baseline. The baseline changes linearly
 * from `before` to `after`; `after` may be NULL. Pure. The interval adds three uncertainties in
 * quadrature: that of the gross energy, the baseline's standard error times the duration, and
 * half the drift between the two baselines. `sensor` is the sensor that measured gross. If this
 * sensor is calibrated, the uncertainty of the gain is multiplied by the distance of the power
 * from the baseline or from the pivot, whichever is larger. */
void baseline_net(const struct gw_energy *gross, const struct sensor *sensor,
		  const struct baseline *before, const struct baseline *after,
		  struct baseline_net *ret);

#endif
