/* history: power as a piecewise constant function of time, with its integrals.
 *
 * Each piece holds what had been summed when it began, so the energy between any two instants
 * is a difference and not a loop: a moving mean of any window, the counter and the utilisation
 * all come from here.  First-order filters (the sensor's low-pass, the temperature) are
 * advanced in closed form, piece by piece.  Only the latest HISTORY_PIECES are kept, far more
 * than the longest sensor looks back; before them the oldest piece is taken to have held for
 * ever. */
#ifndef SIM_HISTORY_H
#define SIM_HISTORY_H

#include <stddef.h>
#include <stdint.h>

#define HISTORY_PIECES 4096u

/* Two low-passes: what power readings are made of, and what the ring holds. */
enum history_filter { FILTER_READING, FILTER_RING, HISTORY_FILTERS };

struct piece {
	uint64_t at_ns;
	double watts;                       /* true power in this piece                       */
	double load;                        /* 0..1, how busy                                 */
	double clock;                       /* SM clock, MHz                                  */
	double joules;                      /* at its beginning, since the world began        */
	double busy_s;                      /* the same for the load                          */
	double filtered_w[HISTORY_FILTERS]; /* low-passed power at its beginning */
	double celsius;                     /* temperature at its beginning               */
};

struct history {
	struct piece *piece;              /* ring of HISTORY_PIECES */
	uint64_t n;                       /* pieces ever added      */
	double filter_s[HISTORY_FILTERS]; /* time constants */
	double thermal_s;
	double ambient_c, c_per_w;
};

/* Starts with one piece at 0, in equilibrium.  0 or -1 (no memory). */
int history_init(struct history *h, double watts);
void history_done(struct history *h);

/* From t on these hold.  t must not be before the last piece; at its very beginning it is
 * replaced. */
void history_add(struct history *h, uint64_t t_ns, double watts, double load, double clock);

const struct piece *history_last(const struct history *h);
const struct piece *history_at(const struct history *h, uint64_t t_ns);

double history_joules(const struct history *h, uint64_t t_ns);
double history_busy_s(const struct history *h, uint64_t t_ns);
double history_filtered_w(const struct history *h, enum history_filter filter, uint64_t t_ns);
double history_celsius(const struct history *h, uint64_t t_ns);

/* Mean power (or load) over the window that ends at t; power at t where window is 0. */
double history_mean_w(const struct history *h, uint64_t t_ns, uint64_t window_ns);
double history_mean_load(const struct history *h, uint64_t t_ns, uint64_t window_ns);

#endif
