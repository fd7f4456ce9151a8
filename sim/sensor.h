/* sensor: converts the true power to the values that the driver publishes, with the errors of a
 * real sensor.
 *
 * It has a moving mean ("average") and a short mean ("instant"). Both are updated at most once
 * per period, and only when they are read. An energy counter advances at fixed times. A ring
 * buffer holds low-passed samples with wall-clock timestamps. */
#ifndef SIM_SENSOR_H
#define SIM_SENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "history.h"

/* The two means come in three kinds:
 * - boxcars, as published for most chips
 * - one first-order low-pass for everything (Kepler and Maxwell)
 * - samples, as measured on an H200: power passes a low-pass of about 10 ms and is sampled
 *   every 20 ms on a fixed grid. Instant is the newest sample, average is the mean of the last
 *   fifty. For a slow load this looks like boxcars of 25 ms and 1 s. A load with a period near
 *   20 ms aliases with the grid, and then even the average is wrong.
 *
 * Gain and offset simulate the calibration of the board and affect everything. On a module
 * (GH200) the instant value and the counter include the module's other parts. */
struct sensor_params {
	double period_ms; /* update period of average and instant */
	/* true: updated at fixed times; false: updated by the first read after the period */
	bool own_time;
	/* length of the boxcar; it ends average_lag_ms before the read */
	double average_ms, average_lag_ms;
	double instant_ms, instant_lag_ms;
	struct {
		double gap_ms; /* 0: boxcars, else the means are made from samples this far apart */
		double phase_ms, age_ms, filter_ms;
	} sample;
	/* 0: no low-pass; else average and instant are the low-passed power, each at its lag
	 * before the read */
	double low_pass_ms;
	double gain, offset_w;
	/* power of the module's other parts; included in instant and counter */
	double module_w;
	double tick_ms, tick_phase_ms, tick_lag_ms; /* update grid of the counter */
	/* A counter read that comes d ms after another read loses r/(r+d) of the energy between
	 * them; r is this value. 0: reads lose nothing. */
	double read_loss_ms;
	/* reads at least this far apart lose nothing; 0: all reads lose energy */
	double read_safe_ms;
	uint64_t counter_start_mj;
	unsigned counter_bits; /* the counter wraps at 2^bits; 0: 64 bits */
	struct {
		double gap_ms, phase_ms, age_ms, jitter_ms, delay_ms, filter_ms;
		unsigned entries;
		unsigned copies;    /* how often each entry is returned; 0: once */
		bool ignores_since; /* the call also returns entries from before `since` */
	} ring;
	bool power_is_instant; /* nvmlDeviceGetPowerUsage returns the instant value */
	bool no_average, no_instant, no_counter, no_ring;
};

struct sensor {
	struct sensor_params p;
	bool fresh; /* average_w and instant_w are valid; computed at refreshed_ns */
	uint64_t refreshed_ns;
	double average_w, instant_w;
	bool counter_read;
	uint64_t counter_read_ns;  /* when the counter was last read         */
	double counter_read_j;     /* true joules at counter_read_ns */
	double lost_j;             /* joules lost by reads and resets */
	uint64_t epoch_ns;         /* start of the driver */
	uint64_t counter_epoch_ns; /* the counter counts from this time ... */
	uint64_t counter_epoch_mj; /* ... from this value                    */
};

struct sensor_sample {
	uint64_t at_ns; /* world time */
	double watts;
};

/* Updates average and instant if they are due. */
void sensor_refresh(struct sensor *s, const struct history *h, uint64_t now_ns);

/* Reads the counter now and returns mJ. The value never goes below 0 and wraps at
 * 2^counter_bits. */
uint64_t sensor_counter_mj(struct sensor *s, const struct history *h, uint64_t now_ns);

/* The ring is the end of an infinite series of samples. sensor_ring_count() returns how many
 * samples exist now; sensor_ring_sample() returns sample k. */
uint64_t sensor_ring_count(const struct sensor *s, uint64_t now_ns);
struct sensor_sample sensor_ring_sample(const struct sensor *s, const struct history *h,
					uint64_t k);

/* Restarts the counter at 0. */
void sensor_counter_reset(struct sensor *s, const struct history *h, uint64_t now_ns);

/* The driver restarted: the counter starts at 0 and the ring is empty. */
void sensor_restart(struct sensor *s, const struct history *h, uint64_t now_ns);

#endif
