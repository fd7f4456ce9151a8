/* budget: prints the uncertainty budget of windows of several lengths (docs/MEASURING.md).
 *
 * It feeds the energy engine (measure/energy.h) with the readings of a simulated H200 under a known
 * load: power samples every 20 ms after a low-pass of 13.5 ms and a delay of 3.5 ms, and a counter
 * that ticks every 100 ms and takes 3 ms to read.  The counter is read as the sampler reads it: at
 * edges and every 10 s, never twice within a second.  tools/check-docs compares the page with the
 * output. */
#include "measure/energy.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define STEP_S    0.0005
#define DELAY     7 /* steps: 3.5 ms */
#define TAU_S     0.0135
#define SPACING_S 0.02
#define TICK_S    0.1
#define PHASE_S   0.037 /* phase of the counter's ticks; any value works */
#define READ_S    0.003
#define AFTER_S   0.5 /* time after a window; by then a sample covers its end */
#define LEAD_S    5.0 /* load before the first window */

struct world {
	double wave_s; /* period of the load; 0: constant */
	double t_s, joules, ticked_j, filtered_w, late_w[DELAY];
	unsigned step;
	uint32_t noise;
};

static uint64_t ns(double t_s)
{
	return (uint64_t)llround(t_s * 1e9);
}

/* Returns 400 W with 2 W of noise, or 400 W for 60 % of the time and 120 W for 40 %. */
static double world_watts(struct world *w)
{
	w->noise = w->noise * 1664525u + 1013904223u;
	double noise = ((double)(w->noise >> 8) / 0x1p24 - 0.5) * 2 * 3.46;

	if (w->wave_s > 0 && fmod(w->t_s, w->wave_s) >= 0.6 * w->wave_s)
		return 120 + noise;
	return 400 + noise;
}

static void world_advance(struct world *w)
{
	double now = world_watts(w), before = w->t_s;

	w->joules += now * STEP_S;
	w->filtered_w += (now - w->filtered_w) * STEP_S / TAU_S;
	w->late_w[w->step++ % DELAY] = w->filtered_w;
	w->t_s = w->step * STEP_S;
	if (floor((w->t_s - PHASE_S) / TICK_S) > floor((before - PHASE_S) / TICK_S))
		w->ticked_j = w->joules;
}

struct counter_reader { /* reads the counter as the sampler does */
	double last_s, anchor_s;
	unsigned anchors;
};

static void budget_next_anchor(struct counter_reader *r, double t_s)
{
	r->anchor_s = t_s + 10 + fmod(r->anchors++ * 0.6180339887, 1) * TICK_S;
}

static void budget_read_counter(struct counter_reader *r, struct energy *e,
				const struct world *w)
{
	if (w->t_s < r->last_s + 1)
		return;
	r->last_s = w->t_s;
	energy_count(e, ns(w->t_s - READ_S / 2), ns(w->t_s + READ_S / 2), w->ticked_j);
}

struct row {
	struct gw_energy energy;
	double true_j;
};

/* Measures one window of length_s. inside: the window lies in the middle of a window of two
 * minutes. */
static void budget_measure(struct energy *e, struct energy_window *outer,
			   struct energy_window *inner, double wave_s, double length_s,
			   bool inside, struct row *ret)
{
	struct energy_setup set = { .shape = SHAPE_RING,
				    .spacing_s = SPACING_S,
				    .window_s = TAU_S,
				    .lag_s = TAU_S + DELAY * STEP_S,
				    .look_ratio = 1,
				    .counter = true,
				    .limit_w = 700 };
	struct world w = { .wave_s = wave_s, .filtered_w = 400, .noise = 1 };
	struct counter_reader r = { .last_s = -1, .anchor_s = 1e9 };
	double begin = LEAD_S + (inside ? 65.0123 : 0.0123), end = begin + length_s;
	double begin_j = 0;
	bool opened = false, inner_open = false, closed = false;

	set.sensor.ring.model = SENSOR_LOWPASS;
	set.sensor.tick_s = TICK_S;
	set.sensor.calibration.gain_u = SENSOR_GAIN_U;
	set.sensor.calibration.offset_u_w = SENSOR_OFFSET_U_W;
	energy_init(e, &set);
	while (w.t_s < end + AFTER_S) {
		world_advance(&w);
		if (w.step % (unsigned)(SPACING_S / STEP_S) == 0) {
			energy_add(e, ns(w.t_s), w.late_w[w.step % DELAY]);
			if (opened)
				energy_follow(e, outer);
			if (inner_open)
				energy_follow(e, inner);
		}
		if (inside && !opened && w.t_s >= LEAD_S) {
			opened = true;
			energy_open(outer, ns(w.t_s), NAN);
			budget_read_counter(&r, e, &w);
			budget_next_anchor(&r, w.t_s);
		}
		if (!inner_open && w.t_s >= begin) {
			inner_open = true;
			begin = w.t_s;
			end = begin + length_s;
			begin_j = w.joules;
			energy_open(inner, ns(begin), NAN);
			budget_read_counter(&r, e, &w);
			budget_next_anchor(&r, w.t_s);
		}
		if (!closed && inner_open && w.t_s >= end - STEP_S / 2) {
			closed = true;
			energy_close(inner, ns(w.t_s));
			ret->true_j = w.joules - begin_j;
			budget_read_counter(&r, e, &w);
			budget_next_anchor(&r, w.t_s);
		}
		if (w.t_s >= r.anchor_s) {
			budget_read_counter(&r, e, &w);
			budget_next_anchor(&r, w.t_s);
		}
	}
	energy_follow(e, inner);
	ret->energy = (struct gw_energy){ 0 };
	energy_result(e, inner, &ret->energy);
}

/* Rounds to two decimals; 0 has no sign. */
static double rounded(double percent)
{
	double r = round(percent * 100) / 100;

	return r == 0 ? 0 : r;
}

static void budget_print(const char *load, double length_s, const struct row *r)
{
	const struct gw_energy *g = &r->energy;
	double best = g->joules.best;

	printf("| %s | %g | %s |", load, length_s, gw_meter_kind_name(g->meter));
	for (unsigned i = 0; i < GW_BUDGETS; i++) {
		if (g->budget[i] > 0)
			printf(" %.2f |", 100 * g->budget[i] / best);
		else
			printf(" - |");
	}
	printf(" %.1f | %.1f | %.2f |\n", 196 * g->u_relative / best,
	       196 * g->u_absolute / best, rounded(100 * (best / r->true_j - 1)));
}

int main(void)
{
	static const struct {
		const char *name;
		double wave_s;
		bool inside;
	} loads[] = {
		{ "steady", 0, false },
		{ "steady, inside a longer window", 0, true },
		{ "300 ms on, 200 ms off", 0.5, false },
		{ "the same, inside a longer window", 0.5, true },
	};
	static const double lengths[] = { 0.5, 1, 5, 60 };
	struct energy *e = malloc(sizeof(*e));
	struct energy_window *w = malloc(2 * sizeof(*w));

	if (!e || !w)
		return 1;
	printf("| load | window, s | meter | edges | gaps | coverage | residual | gain | "
	       "offset |"
	       " relative ± | absolute ± | miss |\n");
	printf("|---|---|---|---|---|---|---|---|---|---|---|---|\n");
	for (size_t i = 0; i < sizeof(loads) / sizeof(loads[0]); i++)
		for (size_t k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++) {
			struct row r;

			budget_measure(e, &w[0], &w[1], loads[i].wave_s, lengths[k],
				       loads[i].inside, &r);
			budget_print(loads[i].name, lengths[k], &r);
		}
	free(w);
	free(e);
	return 0;
}
