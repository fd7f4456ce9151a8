/* What diff says: the names of states and sections, the verdict, the notes. */
#include "difference.h"

#include <math.h>
#include <stdio.h>

const char *difference_section_name(enum difference_section s)
{
	static const char *const names[SECTIONS] = {
		[SECTION_FIGURES] = "figures",         [SECTION_CODES] = "codes",
		[SECTION_PROCESSES] = "processes",     [SECTION_SETTINGS] = "settings",
		[SECTION_ENVIRONMENT] = "environment", [SECTION_GPU] = "gpu",
		[SECTION_SENSOR] = "sensor",
	};

	return names[s];
}

const char *difference_state_name(enum difference_state s)
{
	static const char *const names[] = { "equal", "differs", "cannot-tell", "unknown" };

	return names[s];
}

/* ---- sentences ---- */

static bool all_invalid(const struct comparison_row *row)
{
	return row && row->nruns && !row->used;
}

void difference_verdict(const struct difference *d, char *out, size_t size)
{
	const struct difference_row *energy = d->rows; /* the first of the figures */
	double change = energy->change.change;
	char text[96];

	comparison_change_text(&energy->change, text, sizeof(text));
	if (isnan(change))
		snprintf(out, size, "The energies cannot be compared: %s.",
			 all_invalid(d->a) || all_invalid(d->b)
				 ? "a run that is invalid decides nothing"
				 : "one of them is not known");
	else if (isnan(energy->change.change_low))
		snprintf(out, size, "B against A: energy %s. How sure that is, is not known.",
			 text);
	else if (compare_verdict(&energy->change) == COMPARE_UNKNOWN)
		snprintf(out, size,
			 "B against A: energy %s. One run each: how much runs scatter is not "
			 "known, so it cannot be told whether they differ.",
			 text);
	else if (energy->state == STATE_DIFFERS)
		snprintf(out, size,
			 "B against A: energy %s. That is more than is uncertain of it.", text);
	else
		snprintf(out, size,
			 "B against A: energy %s. That is within what is uncertain of it: it "
			 "cannot be told whether they differ.",
			 text);
}

static void note_side(const struct comparison_row *row, const char *name,
		      void (*say)(void *ctx, const char *sentence), void *ctx)
{
	char text[160];

	if (!row || row->nruns == 0)
		snprintf(text, sizeof(text), "%s holds no run.", name);
	else if (row->used == 0)
		snprintf(text, sizeof(text),
			 "%s: no run of it is usable; its figures are shown, and nothing is "
			 "concluded from them.",
			 name);
	else if (row->used < row->nruns)
		snprintf(text, sizeof(text),
			 "%s: %zu of %zu runs are invalid and left out of the figures.", name,
			 row->nruns - row->used, row->nruns);
	else
		return;
	say(ctx, text);
}

/* How the change follows from the runs. */
static void note_runs(const struct difference *d, const struct compare_change *energy,
		      void (*say)(void *ctx, const char *sentence), void *ctx)
{
	bool first = d->a->figure[METRIC_ENERGY].n == 1;

	if (energy->basis == COMPARE_BUDGET)
		say(ctx, "One run tells how well it was measured, not how runs differ: the "
			 "interval of the change holds the meter's uncertainty alone.");
	if (energy->basis == COMPARE_ONE_SIDE)
		say(ctx, first ? "A has one run: it is taken to scatter as those of B do."
			       : "B has one run: it is taken to scatter as those of A do.");
	if (!first || d->b->figure[METRIC_ENERGY].n > 1)
		say(ctx, "Changes are ratios of geometric means, A and B plain means.");
}

void difference_notes(const struct difference *d, void (*say)(void *ctx, const char *sentence),
		      void *ctx)
{
	const struct compare_change *energy = &d->rows[0].change;

	note_side(d->a, "A", say, ctx);
	note_side(d->b, "B", say, ctx);
	if (d->other_gpu)
		say(ctx, "They were measured on different GPUs or drivers: the gain of their "
			 "sensors does not cancel and is in the intervals of the changes.");
	else if (d->other_scale)
		say(ctx, "One is calibrated by an outside meter and the other is not, or "
			 "otherwise: the gain of the sensor does not cancel and is in the "
			 "intervals of the changes.");
	else if (!isnan(energy->change))
		say(ctx,
		    "Intervals are 95 %; those of energies hold the gain and the offset of "
		    "the sensor, of which the gain cancels in changes on one GPU.");
	if (!isnan(energy->change))
		note_runs(d, energy, say, ctx);
}
