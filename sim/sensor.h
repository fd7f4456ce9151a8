/* sensor: what the driver publishes of true power, and what goes wrong with it.
 *
 * A moving mean ("average") and a short mean ("instant"), both renewed at most once a period
 * and only when somebody asks; an energy counter that moves on a fixed grid; a ring of
 * low-passed samples with wall-clock stamps.
 *
 * The two means come in three makes.  The plain one is a boxcar, as published for most chips.
 * Kepler and Maxwell show power through a first-order low-pass, one value for everything.
 * Recordings of an H200 show how it is done there: power goes through a low-pass of about 10 ms
 * and is sampled every 20 ms on a grid of its own; instant is the newest sample, average the
 * mean of the last fifty.  To a slow load that looks like boxcars of 25 ms and 1 s; a load near
 * 20 ms beats with the grid, and then even the average is wrong.
 *
 * Gain and offset stand for the calibration of the board and touch everything.  On a module
 * (GH200) the instant value and the counter hold the power of its other parts as well. */
#ifndef SIM_SENSOR_H
#define SIM_SENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "history.h"

struct sensor_params {
	double period_ms; /* of average and instant                 */
	bool own_time; /* renewed on a grid of their own, else by whoever reads first after it  */
	double average_ms, average_lag_ms; /* boxcar that ends lag before the read   */
	double instant_ms, instant_lag_ms;
	double sample_ms; /* 0: boxcars, else means are made of samples that far apart  */
	double sample_phase_ms, sample_age_ms, sample_filter_ms;
	double low_pass_ms; /* 0: no; else both are power through a low-pass, lag before    */
	double gain, offset_w;
	double module_w; /* of the module's other parts: in instant and counter          */
	double tick_ms, tick_phase_ms, tick_lag_ms; /* of the counter                   */
	double read_loss_ms; /* a counter read d after another loses r/(r+d) of the
				energy between them; 0: reads do no harm                */
	double read_safe_ms; /* reads that far apart lose nothing; 0: all lose          */
	uint64_t counter_start_mj;
	unsigned counter_bits; /* it wraps at 2^bits; 0: 64                             */
	double ring_gap_ms, ring_phase_ms, ring_age_ms, ring_jitter_ms, ring_delay_ms,
		ring_filter_ms;
	unsigned ring_entries;
	unsigned ring_copies;    /* each entry is given so often; 0: once                */
	bool ring_ignores_since; /* gives what was given before once more                */
	bool power_is_instant;   /* nvmlDeviceGetPowerUsage gives the instant value       */
	bool no_average, no_instant, no_counter, no_ring;
};

struct sensor {
	struct sensor_params p;
	bool fresh; /* average_w and instant_w were read at refreshed_ns */
	uint64_t refreshed_ns;
	double average_w, instant_w;
	bool counter_read;
	uint64_t counter_read_ns;  /* when the counter was last read         */
	double counter_read_j;     /* true joules then                       */
	double lost_j;             /* what reads took away, and resets       */
	uint64_t epoch_ns;         /* the driver started then                */
	uint64_t counter_epoch_ns; /* the counter counts since then ...      */
	uint64_t counter_epoch_mj; /* ... from this value                    */
};

struct sensor_sample {
	uint64_t at_ns; /* world time */
	double watts;
};

/* Renews average and instant where they are due. */
void sensor_refresh(struct sensor *s, const struct history *h, uint64_t now_ns);

/* The counter as read now, in mJ; below its beginning it stays at 0, at its end it wraps. */
uint64_t sensor_counter_mj(struct sensor *s, const struct history *h, uint64_t now_ns);

/* The ring is the end of an endless series: how many of it are out at now, and number k. */
uint64_t sensor_ring_count(const struct sensor *s, uint64_t now_ns);
struct sensor_sample sensor_ring_sample(const struct sensor *s, const struct history *h,
					uint64_t k);

/* The counter begins again at 0. */
void sensor_counter_reset(struct sensor *s, const struct history *h, uint64_t now_ns);

/* The driver started anew: the counter begins at 0, the ring is empty. */
void sensor_restart(struct sensor *s, const struct history *h, uint64_t now_ns);

#endif
