/* energy: joules of a window from power samples and counter readings.
 *
 * Pure: it is fed what was read and when, and asked for windows.  Power samples make a running
 * integral I(t), straight lines between samples, shifted by the sensor's lag; a hole longer than
 * a few samples is never bridged but counted.  Counter readings hold whole ticks only; what lies
 * between the last tick and a window's edge is taken from I.  Each of the two meters gets a
 * standard uncertainty, the smaller one is the result, and the other its witness.
 *
 * The engine keeps the last ENERGY_SAMPLES samples; windows may be of any length, since all they
 * need of the past is kept in them.  Nothing is allocated. */
#ifndef GW_MEASURE_ENERGY_H
#define GW_MEASURE_ENERGY_H

#include "sensor.h"

#include <gpuward.h>

#include <stdbool.h>
#include <stdint.h>

#define ENERGY_SAMPLES 4096 /* 82 s of a 20 ms ring */
#define ENERGY_READS   64
#define ENERGY_NOTES   32
#define ENERGY_BUCKETS 2800 /* of half a per cent, 0.01 W to 10 kW */

/* Where the power samples come from. */
enum energy_shape {
	SHAPE_NONE,
	SHAPE_RING,    /* the driver's own buffer     */
	SHAPE_INSTANT, /* polled, short window        */
	SHAPE_MEAN,    /* polled, mean of a second    */
	SHAPE_TEXT,    /* printed by nvidia-smi       */
	SHAPE_SYSFS,   /* a file of the kernel        */
};

struct energy_setup {
	struct sensor sensor;
	enum energy_shape shape;
	double spacing_s;    /* between samples, as planned                           */
	double window_s;     /* time that one sample tells of, or its time constant   */
	double lag_s;        /* samples are late by this                              */
	double look_ratio;   /* share of the time that the sensor looks at, 0 to 1   */
	bool counter;        /* there is one, and it may be trusted                   */
	enum gw_absence why; /* there is neither shape nor counter: why          */
	bool mig;            /* the board is split                                    */
	double limit_w;      /* NAN: unknown                                          */
};

struct energy_sample {
	uint64_t t_ns; /* lag taken off */
	double w;
	double joules;   /* integral up to here, holes left out                 */
	double square;   /* of w^2 dt                                           */
	double hole_s;   /* length of holes so far                              */
	double hole_j;   /* what they may have held: mean of both sides         */
	double hole_var; /* and the variance of that                            */
};

struct energy_read {
	uint64_t before_ns, after_ns;
	double joules;
	unsigned epoch; /* differences are good within one only */
};

struct energy_note {
	uint64_t t_ns;
	unsigned code;
};

struct energy {
	struct energy_setup set;
	struct energy_sample sample[ENERGY_SAMPLES]; /* number n at n % ENERGY_SAMPLES */
	uint64_t samples;                            /* ever; the next number          */
	struct energy_read read[ENERGY_READS];
	uint64_t reads;
	unsigned epoch;
	struct energy_note note[ENERGY_NOTES];
	uint64_t notes;
	/* Ticks of the counter: tick_s apart, one of them at phase_ns; found by fitting. */
	bool fitted; /* to all readings that there are */
	bool phase_known;
	double phase_s;   /* of the ticks, within tick_s, on the monotonic clock     */
	double phase_u_s; /* its standard uncertainty                                */
};

/* The integrals at one moment. */
struct energy_point {
	double joules, square, hole_s, hole_j, hole_var;
	uint64_t number; /* of the first sample at or after it */
};

struct energy_window {
	uint64_t begin_ns, end_ns; /* end 0: open */
	bool begun, ended;         /* the points are known */
	bool cut;                  /* its end was never covered */
	struct energy_point begin, end;
	struct energy_read begin_read, end_read;  /* nearest to the edges; before_ns 0: none */
	struct energy_point begin_tick, end_tick; /* integrals at the ticks they tell of */
	bool begin_tick_known, end_tick_known;
	uint64_t next; /* number of the sample to look at next                          */
	uint64_t collected;
	double min_w, max_w, longest_s;
	double seen_s;        /* weight in the buckets */
	double period_s;      /* of the load, worked out when its end was covered; NAN none */
	double hint_period_s; /* of the load as its owner knows it; NAN: none               */
	double begin_slope_w, end_slope_w; /* most power change around each edge */
	double begin_tick_slope_w, end_tick_slope_w;
	double begin_w; /* power at its beginning */
	double noise_square;
	float bucket[ENERGY_BUCKETS]; /* seconds */
};

void energy_init(struct energy *e, const struct energy_setup *set);

/* There is no counter after all: told before any reading. */
void energy_no_counter(struct energy *e, enum gw_absence why);

/* A power sample with its stamp on the monotonic clock.  0, or -GW_E_ARG: not later than the one
 * before, or no power a board can have; it is left out. */
int energy_add(struct energy *e, uint64_t stamp_ns, double w);

/* A counter reading.  The code of what is wrong with it, or -1.  A bad one begins a new epoch:
 * no difference is taken across it. */
int energy_count(struct energy *e, uint64_t before_ns, uint64_t after_ns, double joules);

/* Something happened at t that concerns every window around it. */
void energy_tell(struct energy *e, uint64_t t_ns, unsigned code);

/* Integrals at t.  0, 1 when no sample as late as t has come, or -GW_E_NOENT when t is forgotten. */
int energy_at(const struct energy *e, uint64_t t_ns, struct energy_point *ret);

/* A window from begin_ns; the caller's memory.  hint_period_s: NAN, or the load's own period. */
void energy_open(struct energy_window *w, uint64_t begin_ns, double hint_period_s);
void energy_close(struct energy_window *w, uint64_t end_ns);

/* Takes in what came since; to be called at least once in 30 s.  True: the window is closed and
 * its end covered. */
bool energy_follow(const struct energy *e, struct energy_window *w);

/* Of a window shorter than the spacing of samples: is one within half of it of its end?  No later one tells much
 * more.  energy_end_near() ends it there, with that sample held. */
bool energy_is_near(const struct energy *e, const struct energy_window *w);
bool energy_end_near(const struct energy *e, struct energy_window *w);

/* No more samples will come: what is missing up to its end is a hole. */
void energy_cut(const struct energy *e, struct energy_window *w);

/* Sets every field but the device to unknown, zero or no code. */
void energy_unknown(struct gw_energy *e);

/* The energy of the window.  Resets *ret but for its device, then fills the energy, power and
 * completeness fields and the codes.  An open window ends with its last sample. */
void energy_result(const struct energy *e, struct energy_window *w, struct gw_energy *ret);

/* The result with gain, offset and their uncertainties as s has them, instead of those that it was made with.
 * energy_result() does it where the sensor of its setup is calibrated. */
void energy_calibrate(struct gw_energy *r, const struct sensor *s);

/* The result as that of something which lasted so many seconds less than the window.  When in the window it ran, and what
 * was drawn before and after, is not known: the interval has room for the most that was drawn meanwhile, and where
 * that is more than it had, the code says so. */
void energy_late(struct gw_energy *r, double seconds);

/* Level of a set of codes, each counted as its row in code.def says. */
enum gw_validity energy_validity(uint64_t codes);

/* Adds what another device took.  Widths as they are where boards of one kind err alike, else in
 * quadrature; one that is not known makes the sum unknown. */
void energy_interval_add(struct gw_interval *to, const struct gw_interval *v, bool alike);

/* Watts at t, NAN when unknown. */
double energy_watts(const struct energy *e, uint64_t t_ns);

#endif
