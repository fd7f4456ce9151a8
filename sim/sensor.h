/* sensor: converts the true power to the values that the driver publishes, with the errors of a
 * real sensor.
 *
 * The sensor has a moving mean ("average") and a short mean ("instant"). Both are updated at
 * most once per period, and only when they are read. An energy counter advances at fixed times.
 * A ring buffer holds low-passed samples with wall-clock timestamps. */
#ifndef SIM_SENSOR_H
#define SIM_SENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "history.h"

/* A sensor makes the two means in one of three ways:
 * - Boxcars (means over a window of fixed length), as published for most chips.
 * - One first-order low-pass for both (Kepler and Maxwell).
 * - Samples, as measured on an H200: power passes a low-pass of about 10 ms and is sampled
 * every
 *   20 ms at fixed times. Instant is the newest sample; average is the mean of the last fifty.
 *   For a slow load the result looks like boxcars of 25 ms and 1 s. A load with a period near
 *   20 ms aliases with the sampling, and then even the average is wrong.
 *
 * Gain and offset simulate the calibration of the board and affect everything. On a module
 * (GH200) the instant value and the counter include the module's other parts. */
struct sensor_params {
	double period_ms; /* update period of average and instant */
	/* true: average and instant are updated at fixed times; false: the first read after the
	 * period updates both */
	bool own_time;
	/* Length of the boxcar, and the time from the end of the boxcar to the read. */
	double average_ms, average_lag_ms;
	double instant_ms, instant_lag_ms;
	struct {
		/* time between two samples; 0: the means are not made from samples */
		double gap_ms;
		double phase_ms, age_ms, filter_ms;
	} sample;
	/* Time constant of the low-pass. Average and instant are then the low-passed power as
	 * it was average_lag_ms or instant_lag_ms before the read. 0: no low-pass. */
	double low_pass_ms;
	double gain, offset_w;
	/* Power of the other parts of the module, which instant and counter include. */
	double module_w;
	/* The counter is updated every tick_ms. An update lacks the energy of the last
	 * tick_lag_ms. */
	double tick_ms, tick_phase_ms, tick_lag_ms;
	/* A counter read that comes d ms after another read loses r/(r+d) of the energy between
	 * them; r is this value. 0: reads lose nothing. */
	double read_loss_ms;
	/* Reads that are at least this far apart lose nothing. 0: all reads lose energy. */
	double read_safe_ms;
	uint64_t counter_start_mj;
	unsigned counter_bits; /* The counter wraps at 2^counter_bits. 0 means 64. */
	struct {
		double gap_ms, phase_ms, age_ms, jitter_ms, delay_ms, filter_ms;
		unsigned entries;
		unsigned copies; /* how often each entry is returned; 0 means once */
		bool ignores_since; /* The call also returns entries that are older than requested. */
	} ring;
	bool power_is_instant; /* nvmlDeviceGetPowerUsage returns the instant value */
	bool no_average, no_instant, no_counter, no_ring;
};

struct sensor {
	struct sensor_params p;
	bool fresh;            /* average_w and instant_w are valid */
	uint64_t refreshed_ns; /* when average_w and instant_w were computed */
	double average_w, instant_w;
	bool counter_read;        /* The counter was read before. */
	uint64_t counter_read_ns; /* when the counter was last read */
	double counter_read_j;    /* true energy when the counter was last read */
	double lost_j;     /* energy that the counter lacks because of reads and resets */
	uint64_t epoch_ns; /* start of the driver */
	uint64_t counter_epoch_ns; /* last reset of the counter */
	uint64_t counter_epoch_mj; /* value of the counter after that reset */
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
