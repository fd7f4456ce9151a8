/* The texts of diff: names of states and sections, the verdict, the notes. */
#include "diff.h"

#include <math.h>
#include <stdio.h>

const char *diff_section_name(enum diff_section s)
{
	static const char *const names[SECTIONS] = {
		[SECTION_FIGURES] = "figures",         [SECTION_CODES] = "codes",
		[SECTION_PROCESSES] = "processes",     [SECTION_SETTINGS] = "settings",
		[SECTION_ENVIRONMENT] = "environment", [SECTION_GPU] = "gpu",
		[SECTION_SENSOR] = "sensor",
	};

	return names[s];
}

const char *diff_state_name(enum diff_state s)
{
	static const char *const names[] = { "equal", "differs", "cannot-tell", "unknown" };

	return names[s];
}

/* ---- sentences ---- */

static bool all_invalid(const struct comparison_row *row)
{
	return row && row->nruns && !row->used;
}

void diff_verdict(const struct diff *d, char *out, size_t size)
{
	const struct diff_row *energy = d->rows; /* the first of the figures */
	double change = energy->change.change;
	char text[96];

	comparison_change_text(&energy->change, text, sizeof(text));
	if (isnan(change))
		snprintf(out, size, "The energies cannot be compared: %s.",
			 all_invalid(d->a) || all_invalid(d->b) ? "no valid run"
								: "one of them is unknown");
	else if (isnan(energy->change.change_low))
		snprintf(out, size, "B against A: energy %s. The uncertainty is unknown.",
			 text);
	else if (compare_verdict(&energy->change) == COMPARE_UNKNOWN)
		snprintf(out, size,
			 "B against A: energy %s. One run each: the variation between runs is "
			 "unknown, "
			 "so it is unknown whether they differ.",
			 text);
	else if (energy->state == STATE_DIFFERS)
		snprintf(out, size,
			 "B against A: energy %s. That is more than the uncertainty.", text);
	else
		snprintf(
			out, size,
			"B against A: energy %s. That is within the uncertainty: it is unknown "
			"whether they differ.",
			text);
}

static void note_side(const struct comparison_row *row, const char *name,
		      void (*say)(void *ctx, const char *sentence), void *ctx)
{
	char text[160];

	if (!row || row->nruns == 0)
		snprintf(text, sizeof(text), "%s has no run.", name);
	else if (row->used == 0)
		snprintf(text, sizeof(text),
			 "%s has no valid run; its figures are shown, but nothing follows from "
			 "them.",
			 name);
	else if (row->used < row->nruns)
		snprintf(text, sizeof(text),
			 "%s: %zu of %zu runs are invalid and not part of the figures.", name,
			 row->nruns - row->used, row->nruns);
	else
		return;
	say(ctx, text);
}

/* How the change follows from the runs. */
static void note_runs(const struct diff *d, const struct compare_change *energy,
		      void (*say)(void *ctx, const char *sentence), void *ctx)
{
	bool first = d->a->figure[METRIC_ENERGY].n == 1;

	if (energy->basis == COMPARE_BUDGET)
		say(ctx, "One run shows how well it was measured, not how much runs vary: the "
			 "interval of the change has the uncertainty of the meter only.");
	if (energy->basis == COMPARE_ONE_SIDE)
		say(ctx, first ? "A has one run; its variation is assumed to be that of B."
			       : "B has one run; its variation is assumed to be that of A.");
	if (!first || d->b->figure[METRIC_ENERGY].n > 1)
		say(ctx,
		    "Changes are ratios of geometric means; A and B are arithmetic means.");
}

void diff_notes(const struct diff *d, void (*say)(void *ctx, const char *sentence), void *ctx)
{
	const struct compare_change *energy = &d->rows[0].change;

	note_side(d->a, "A", say, ctx);
	note_side(d->b, "B", say, ctx);
	if (d->other_gpu)
		say(ctx,
		    "A and B were measured on different GPUs or drivers: the scale error of "
		    "their sensors does not cancel and is part of the intervals of the "
		    "changes.");
	else if (d->other_scale)
		say(ctx, "A and B have different calibrations: the scale error of the sensor "
			 "does not cancel and is part of the intervals of the changes.");
	else if (!isnan(energy->change))
		say(ctx,
		    "Intervals are 95 %. Those of energies include the scale and zero error of "
		    "the sensor; in changes on one GPU the scale error cancels.");
	if (!isnan(energy->change))
		note_runs(d, energy, say, ctx);
}
