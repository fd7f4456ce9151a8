/* energy: joules of a window from power samples and counter readings.
 *
 * Pure: the caller adds readings with their times and gets the energy of windows of any length;
 * nothing is allocated. The power samples are integrated over time. The energy counter of the
 * GPU changes only when the driver updates it. For the time between the last update and the
 * boundary of a window, the energy is taken from the integral of the samples. The energy is
 * computed from the counter and from the samples, each with a standard uncertainty. The result
 * is the energy with the smaller uncertainty; the other energy verifies it. */
#ifndef GW_MEASURE_ENERGY_H
#define GW_MEASURE_ENERGY_H

#include "sensor.h"

#include <gpuward.h>

#include <stdbool.h>
#include <stdint.h>

#define K95 1.96 /* the factor of the 95 % interval of an energy */

/* The energy engine (struct energy) keeps this many of the latest samples, counter readings and
 * notes (codes with a time). */
#define ENERGY_SAMPLES 4096 /* 82 s of samples, if they are 20 ms apart */
#define ENERGY_READS   64
#define ENERGY_NOTES   32
#define ENERGY_BUCKETS 2800 /* power levels from 0.01 W to 11.6 kW, each 0.5 % wide */

/* The source of the power samples. */
enum energy_shape {
	SHAPE_NONE,    /* no samples: there is only a counter, or nothing */
	SHAPE_RING,    /* the driver's ring buffer */
	SHAPE_INSTANT, /* a polled value, averaged over a short time */
	SHAPE_MEAN,    /* a polled value, the mean of one second */
	SHAPE_TEXT,    /* the output of nvidia-smi */
	SHAPE_SYSFS,   /* a sysfs file */
};

struct energy_setup {
	struct sensor sensor;
	enum energy_shape shape;
	double spacing_s;  /* planned time between samples */
	double window_s;   /* averaging window of one sample, or time constant of the filter */
	double lag_s;      /* delay of the samples */
	double look_ratio; /* share of the time in which the sensor measures, 0 to 1 */
	bool counter;      /* there is an energy counter, and it can be trusted */
	enum gw_absence why; /* why there are neither samples nor a counter */
	bool mig;            /* the board is split into MIG instances */
	double limit_w;      /* power limit of the board; NAN: unknown */
};

struct energy_sample {
	uint64_t t_ns;   /* monotonic time, corrected for the lag */
	double w;        /* power */
	double joules;   /* integral of the power up to this sample, without the gaps */
	double square;   /* integral of the squared power, without the gaps */
	double hole_s;   /* total length of the gaps up to this sample */
	double hole_j;   /* energy of these gaps, estimated from the power on both sides */
	double hole_var; /* variance of hole_j */
};

struct energy_read {                  /* one reading of the energy counter */
	uint64_t before_ns, after_ns; /* monotonic time before and after the driver call */
	double joules;
	/* Every bad reading begins a new epoch. Only readings of the same epoch may be
	 * subtracted. */
	unsigned epoch;
};

struct energy_note { /* a code for every window that contains t_ns */
	uint64_t t_ns;
	unsigned code; /* enum gw_code */
};

struct energy {
	struct energy_setup set;
	struct energy_sample sample[ENERGY_SAMPLES]; /* sample n is at n % ENERGY_SAMPLES */
	uint64_t samples;                            /* number of samples since the start */
	struct energy_read read[ENERGY_READS];       /* reading n is at n % ENERGY_READS */
	uint64_t reads;                              /* number of readings since the start */
	unsigned epoch;                              /* epoch of the next reading */
	struct energy_note note[ENERGY_NOTES];       /* note n is at n % ENERGY_NOTES */
	uint64_t notes;                              /* number of notes since the start */
	/* The counter is updated every tick_s; a fit finds the phase of the updates. */
	bool fitted;      /* the fit includes all readings */
	bool phase_known; /* the fit found a phase */
	double phase_s;   /* phase of the updates: 0 to tick_s, on the monotonic clock */
	double phase_u_s; /* standard uncertainty of phase_s */
};

/* The values of the integrals at one time. */
struct energy_point {
	double joules, square, hole_s, hole_j, hole_var; /* as in struct energy_sample */
	uint64_t number; /* number of the first sample at or after this time */
};

/* What is known about the start or the end of a window. */
struct energy_boundary {
	bool known; /* `point` is filled in */
	struct energy_point point;
	double slope_w; /* largest change of power around the boundary */
	/* the counter reading nearest to the boundary; before_ns is 0 if there is none */
	struct energy_read read;
	/* the integrals at the last update of the counter before that reading */
	struct energy_point tick;
	bool tick_known;     /* false: the time of the counter update is estimated */
	double tick_slope_w; /* largest change of power around that counter update */
};

struct energy_window {
	uint64_t begin_ns, end_ns; /* end_ns is 0 while the window is open */
	struct energy_boundary begin, end;
	bool cut;            /* energy_cut() ended the window before a sample covered its end */
	uint64_t next;       /* number of the next sample to process */
	uint64_t collected;  /* number of samples in the window */
	double min_w, max_w; /* lowest and highest sample */
	double longest_s;    /* longest time between two samples */
	double seen_s;       /* sum of the seconds in all buckets */
	/* period of the load, computed when samples cover the end; NAN: unknown */
	double period_s;
	double hint_period_s; /* period of the load, from the caller; NAN: unknown */
	double begin_w;       /* power at the start of the window */
	/* sum of the squared differences between neighbouring samples, in W^2 */
	double noise_square;
	float bucket[ENERGY_BUCKETS]; /* seconds at each power level */
};

/* Returns the bit of an enum gw_code in a set of codes. */
static inline uint64_t code_bit(unsigned code)
{
	return UINT64_C(1) << code;
}

void energy_init(struct energy *e, const struct energy_setup *set);

/* Records that the GPU has no counter. Call it before the first reading. */
void energy_no_counter(struct energy *e, enum gw_absence why);

/* Adds a power sample with its time on the monotonic clock. Between two samples, power is a
 * straight line. All times are shifted by the lag of the sensor. A gap longer than
 * ENERGY_HOLE_STEPS spacings is counted, not bridged. Returns 0, or -GW_E_ARG if the sample is
 * not later than the previous one or its power is impossible; the sample is then ignored. */
int energy_add(struct energy *e, uint64_t stamp_ns, double w);

/* Adds a counter reading. Returns -1 if the reading is good, else the code of its problem.
 * After a bad reading a new epoch begins: no difference is computed between readings of two
 * epochs. */
int energy_count(struct energy *e, uint64_t before_ns, uint64_t after_ns, double joules);

/* Adds a code to every window that contains t. */
void energy_note(struct energy *e, uint64_t t_ns, unsigned code);

/* Gets the integrals at t. Returns 0; 1 if there is no sample at or after t yet; or -GW_E_NOENT
 * if t is before the oldest sample that is kept. */
int energy_at(const struct energy *e, uint64_t t_ns, struct energy_point *ret);

/* Opens a window in the caller's memory. hint_period_s is the period of the load; NAN:
 * unknown. */
void energy_open(struct energy_window *w, uint64_t begin_ns, double hint_period_s);
void energy_close(struct energy_window *w, uint64_t end_ns);

/* Adds to the window the samples that arrived since the last call. Call it at least every 30 s.
 * Returns true if the window is closed and samples cover its end. */
bool energy_follow(const struct energy *e, struct energy_window *w);

/* energy_is_near() returns true if the window is shorter than the spacing of samples and a
 * sample is within half a spacing of its end; waiting for a later sample would improve the
 * result little. energy_end_near() ends the window with that sample. */
bool energy_is_near(const struct energy *e, const struct energy_window *w);
bool energy_end_near(const struct energy *e, struct energy_window *w);

/* Ends the window although no sample covers its end. The time after the last sample is a gap.
 * If the samples around the end are no longer stored, only the counter can give the energy. */
void energy_cut(const struct energy *e, struct energy_window *w);

/* Resets every field except the device: figures are then unknown, and counts, times and codes
 * are 0. */
void energy_unknown(struct gw_energy *e);

/* Computes the energy of the window. Resets *ret except for its device, then fills in the
 * energy, power and completeness fields and the codes. An open window ends with its last
 * sample. */
void energy_result(const struct energy *e, struct energy_window *w, struct gw_energy *ret);

/* Replaces gain, offset and their uncertainties in r by those of c.  energy_result() calls this
 * function if the sensor is calibrated. */
void energy_calibrate(struct gw_energy *r, const struct sensor_calibration *c);

/* Widens the interval if the program did not run for `seconds` of the window, and it is unknown
 * in which part of the window it did not run. Adds the highest power of the window x `seconds`
 * in quadrature on each side of the interval. If this product is more than r->relative.best -
 * r->relative.low, adds the code late-edges. */
void energy_late(struct gw_energy *r, double seconds);

/* Returns the worst level of a set of codes, by code.def. */
enum gw_validity energy_validity(uint64_t codes);

/* Adds the energy of another device. If alike is true, both boards have the same error, so the
 * widths of the intervals are added; otherwise they are added in quadrature. An unknown value
 * makes the sum unknown. */
void energy_interval_add(struct gw_interval *to, const struct gw_interval *v, bool alike);

/* Returns which sources of power and energy this setup has. */
enum gw_rung energy_rung(const struct energy_setup *set);

/* Returns the power at t; NAN: unknown. */
double energy_watts(const struct energy *e, uint64_t t_ns);

/* The energy of one GPU since a given time, as a counter that never falls. The sum is the
 * hardware counter up to its last reading plus the power samples after that reading; without a
 * counter, only samples. A gap between samples is not bridged: its energy and its time are
 * missing, unless the next counter reading adds both. An impossible sample is ignored. If the
 * step between two counter readings is impossible, the sum uses the samples of that time. */
struct energy_total {
	struct energy_setup set;
	uint64_t begin_ns;   /* energy before this monotonic time is not included */
	double counted_j;    /* energy up to the last reading of the counter */
	double counted_s;    /* time that this energy covers */
	double since_j;      /* energy from the samples after that reading */
	double since_s;      /* time that these samples cover */
	double shown_j;      /* last energy returned; the next is never less */
	double shown_s;      /* last time returned; the next is never less */
	bool read;           /* there was a counter reading */
	bool sampled;        /* there was a power sample */
	double reading_j;    /* last reading of the counter */
	uint64_t reading_ns; /* time of that reading */
	double last_w;       /* power of the last sample */
	uint64_t last_ns;    /* time of the last sample */
};

/* Samples before begin_ns are ignored. The driver's ring buffer still holds such samples, and
 * an earlier process may have counted them. */
void energy_total_init(struct energy_total *t, const struct energy_setup *set,
		       uint64_t begin_ns);

struct event;

/* Takes an event of the device's meter; ignores all but power and counter events. */
void energy_total_feed(struct energy_total *t, const struct event *e);

/* Returns the joules so far. The value never decreases. */
double energy_total_joules(struct energy_total *t);
/* Returns the seconds that these joules cover. The value never decreases. */
double energy_total_seconds(struct energy_total *t);

#endif
