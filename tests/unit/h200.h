/* h200: recordings of a real H200 and their replay in stepped time. The simulator gets a load.
 * Power is read when the real driver renewed it and the counter whenever the recording read it;
 * then the values are compared tick by tick. All times are of the recorder's clock, and only
 * one recording is loaded at a time. */
#ifndef TESTS_H200_H
#define TESTS_H200_H

#include <stdbool.h>
#include <stdio.h>

#define ROWS_MAX 4096

/* One row: the time before its reads, the time after the counter was read, and the values. */
struct row {
	double begin_s, end_s;
	double average_w, instant_w, counter_j;
};

struct recording {
	const char *name;
	struct row row[ROWS_MAX];
	int n;
	double zero_s; /* recorder's clock at world time 0 */
};

/* watts is the power from at_s on. at_s is a time at which the host started or stopped the
 * load. */
struct level {
	double at_s, watts;
};

struct load {
	struct level point[ROWS_MAX];
	int n;
};

/* The sensor model that is tested. */
struct model {
	double sample_ms, sample_s; /* sampling period and phase; 0: boxcars */
	double filter_ms;           /* time constant of the low-pass before the sampler */
	double counter_s;           /* phase of the counter's grid of 100 ms */
	double counter_lag_s;       /* lag of the counter behind the host's times of bursts */
};

/* The timing of a value. age_ms: the age of the sample when the driver read it. early: the
 * driver read the sample one row before the row that first shows the value. */
struct timing {
	double age_ms;
	bool early;
};

struct replay {
	double average_w[ROWS_MAX], instant_w[ROWS_MAX], counter_j[ROWS_MAX];
};

extern const struct model MODEL_FITTED;
extern const struct timing USUAL;
extern struct model model;
extern struct recording rec;
extern struct replay now_; /* the last replay with the timing USUAL */

/* Opens the simulator. Returns 0, or -1 with a message on stderr. */
int h200_open(void);

FILE *open_data(const char *name, const char *suffix);

/* Loads a recording. Returns false if there is no recording of this name. */
bool load_recording(const char *name);

/* renewed(): true if row i is the first with new power values. ticked(): the same for the
 * counter value. */
bool renewed(int i);
bool ticked(int i);

/* True for a counter tick that was read long after its time on the grid: the driver was late,
 * so this tick contains some energy of the next one. */
bool late(int i);

double tick_before(double t_s);

/* Make loads only from the increments of the counter. */
void step_load(struct load *out);
bool burst_load(struct load *out, double on_w, double off_w);

/* Replays a load with each timing that the recording allows. */
void replay_load(const struct load *load);

/* Replays a load with the timing USUAL; the result is in now_. */
void replay_usual(const struct load *load);

/* Writes the two times between which the driver read the sampler for row i. */
void open_times(int i, double *from_s, double *to_s);

/* Returns the newest sample's power at each time. Times are in rising order; NAN times are
 * skipped. */
void replay_moments(const struct load *load, const double *at_s, double *ret_w);

/* True if all timings that the recording allows give the same instant value within 5 %. */
bool settled(int i);

struct differences {
	int n, edges, within, beyond;
	double worst, sum;
};

/* Counts a comparison; prints it if the difference exceeds the bound. */
void judge(struct differences *t, const char *what, double t_s, double simulated,
	   double recorded, double bound);
void report(const struct differences *t, const char *what);

struct bounds {
	double average, instant, edge, counter;
	double share; /* least share of the settled instant values that must be within 5 % */
};

struct score {
	struct differences average, instant, counter, any;
	/* Numbers of edges at which a possible timing explains the instant value: `between`
	 * within the bound, `close` within 5 %. */
	int between, close;
};

/* Compares the replay from `from_s` on. Rows in `always` (may be NULL) are compared even if
 * they are not settled. */
struct score compare(double from_s, const bool *always, struct bounds bound);
void expect(const struct score *s, struct bounds bound);

#endif
