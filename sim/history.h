/* history: stores power as a function of time, and its integrals. Time is divided into pieces,
 * and the power is constant within each piece.
 *
 * Each piece stores the sums at its start, so the energy between two times is the difference of
 * two sums, without a loop. Moving means, the energy counter and the utilisation all come from
 * these sums. First-order filters (the sensor's low-pass, the temperature) are computed in
 * closed form per piece. Only the latest HISTORY_PIECES pieces are kept. These pieces cover far
 * more time than the longest sensor window; the oldest piece extends infinitely into the
 * past. */
#ifndef SIM_HISTORY_H
#define SIM_HISTORY_H

#include <stddef.h>
#include <stdint.h>

#define HISTORY_PIECES 4096u

/* Two low-pass filters: for power readings, and for the ring. */
enum history_filter { FILTER_READING, FILTER_RING, HISTORY_FILTERS };

struct piece {
	uint64_t at_ns; /* start of the piece */
	double watts;   /* true power in this piece */
	double load;    /* utilisation, 0..1 */
	double clock;   /* SM clock in MHz */
	double joules;  /* energy from the start of the world to the start of the piece */
	double busy_s;  /* busy seconds from the start of the world to the start of the piece */
	/* output of each filter at the start of the piece */
	double filtered_w[HISTORY_FILTERS];
	double celsius; /* temperature at the start of the piece */
};

struct history {
	struct piece *piece; /* ring buffer of HISTORY_PIECES */
	uint64_t n; /* number of pieces that were added; the last HISTORY_PIECES are stored */
	double filter_s[HISTORY_FILTERS]; /* time constants of the filters */
	double thermal_s;                 /* time constant of the temperature */
	/* At constant power, the temperature approaches ambient_c + c_per_w * power. */
	double ambient_c, c_per_w;
};

/* Starts the history with one constant piece at time 0. All filters have already reached the
 * power of this piece. Returns 0 or -1 (out of memory). */
int history_init(struct history *h, double watts);
void history_done(struct history *h);

/* Adds a piece: these values are valid from t on. t must not be before the start of the last
 * piece. If t is equal to that start, the new piece replaces the last piece. */
void history_add(struct history *h, uint64_t t_ns, double watts, double load, double clock);

const struct piece *history_last(const struct history *h);
const struct piece *history_at(const struct history *h, uint64_t t_ns);

double history_joules(const struct history *h, uint64_t t_ns);
double history_busy_s(const struct history *h, uint64_t t_ns);
double history_filtered_w(const struct history *h, enum history_filter filter, uint64_t t_ns);
double history_celsius(const struct history *h, uint64_t t_ns);

/* Return the mean power (or load) over the window that ends at t, or the value at t if the
 * window is 0. */
double history_mean_w(const struct history *h, uint64_t t_ns, uint64_t window_ns);
double history_mean_load(const struct history *h, uint64_t t_ns, uint64_t window_ns);

#endif
