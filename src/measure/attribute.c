#include "attribute.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool usable(double x)
{
	return isfinite(x) && x >= 0;
}

const char *attribute_how_name(unsigned how)
{
	static const char *const names[ATTRIBUTE_HOWS] = { "measured", "modelled",
							   "equal-split" };

	return how < ATTRIBUTE_HOWS ? names[how] : "";
}

void attribute_init(struct attribute *a, double no_context_w, double context_w)
{
	memset(a, 0, sizeof(*a));
	a->no_context_w = usable(no_context_w) ? no_context_w : NAN;
	a->context_w = usable(context_w) ? context_w : NAN;
	a->idle_known = usable(no_context_w);
	a->context_known = a->idle_known && usable(context_w);
}

/* ---- one interval ---- */

static bool same(const struct attribute_use *a, const struct attribute_use *b)
{
	return a->pid == b->pid && a->start_ticks == b->start_ticks;
}

static bool listed_before(const struct attribute_use *uses, size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (same(&uses[k], &uses[i]))
			return true;
	return false;
}

/* Utilisation of the process at i, NAN when no entry of it says. */
static double use_ratio(const struct attribute_use *uses, size_t n, size_t i)
{
	double most = NAN;

	for (size_t k = i; k < n; k++)
		if (same(&uses[k], &uses[i]) && uses[k].sm_ratio >= 0 && uses[k].sm_ratio <= 1)
			most = fmax(most, uses[k].sm_ratio); /* fmax(NAN, x) is x */
	return most;
}

/* The row of a process, made where there is none yet; NULL when there is no room. */
static struct attribute_row *find_row(struct attribute *a, const struct attribute_use *u)
{
	struct attribute_row *r;

	for (unsigned i = 0; i < a->count; i++)
		if (a->row[i].pid == u->pid && a->row[i].start_ticks == u->start_ticks)
			return &a->row[i];
	if (a->count == ATTRIBUTE_ROWS)
		return NULL;
	r = &a->row[a->count++];
	r->pid = u->pid;
	r->start_ticks = u->start_ticks;
	return r;
}

static void give(struct attribute *a, const struct attribute_use *u, double joules,
		 double seconds, enum attribute_how how)
{
	struct attribute_row *r = find_row(a, u);

	if (!r) {
		a->crowded = true;
		a->unattributed_joules += joules;
		return;
	}
	/* A process changes its name when it starts another program: the latest is kept. */
	if (u->name[0]) {
		memcpy(r->name, u->name, sizeof(r->name) - 1);
		r->name[sizeof(r->name) - 1] = 0;
	}
	r->joules += joules;
	r->seconds += seconds;
	if (how > r->how)
		r->how = how;
}

/* Who was there, counted. */
struct crowd {
	size_t residents, unknown;
	double ratio_sum; /* of those that are known */
};

static struct crowd count_crowd(const struct attribute_use *uses, size_t n)
{
	struct crowd c = { 0 };

	for (size_t i = 0; i < n; i++) {
		double ratio;

		if (listed_before(uses, i))
			continue;
		ratio = use_ratio(uses, n, i);
		c.residents++;
		if (isnan(ratio))
			c.unknown++;
		else
			c.ratio_sum += ratio;
	}
	return c;
}

/* What several residents took together.  What nobody's figures explain is unattributed. */
static void split(struct attribute *a, double joules, double seconds,
		  const struct attribute_use *uses, size_t n, const struct crowd *c)
{
	double heads = (double)c->residents, context = 0, rest, equal, known;
	enum attribute_how how = c->unknown ? ATTRIBUTE_EQUAL_SPLIT : ATTRIBUTE_MODELLED;

	if (a->context_known && a->context_w > a->no_context_w)
		context = fmin(joules, (a->context_w - a->no_context_w) * seconds);
	rest = joules - context;
	equal = rest / heads;
	known = c->unknown == c->residents ? 0 : rest - equal * (double)c->unknown;
	if (!(c->ratio_sum > 0)) {
		a->unattributed_joules += fmax(0, known);
		known = 0;
	}
	for (size_t i = 0; i < n; i++) {
		double ratio, share = context / heads;

		if (listed_before(uses, i))
			continue;
		ratio = use_ratio(uses, n, i);
		if (isnan(ratio))
			share += equal;
		else if (ratio > 0)
			share += fmax(0, known) * (ratio / c->ratio_sum);
		give(a, &uses[i], share, seconds, how);
	}
}

int attribute_add(struct attribute *a, double joules, double seconds,
		  const struct attribute_use *uses, size_t n, bool hidden)
{
	struct crowd c;
	double idle;

	if (!usable(joules) || !usable(seconds))
		return -GW_E_ARG;
	a->seconds += seconds;
	if (hidden) {
		a->unattributed_joules += joules;
		return 0;
	}
	idle = a->idle_known ? fmin(joules, a->no_context_w * seconds) : 0;
	a->idle_joules += idle;
	joules -= idle;
	c = count_crowd(uses, n);
	if (c.residents == 0)
		a->unattributed_joules += joules;
	else if (c.residents == 1)
		give(a, &uses[0], joules, seconds, ATTRIBUTE_MEASURED);
	else
		split(a, joules, seconds, uses, n, &c);
	return 0;
}

/* ---- the end ---- */

static int by_joules(const void *left, const void *right)
{
	const struct attribute_row *a = left, *b = right;

	if (a->joules != b->joules)
		return a->joules < b->joules ? 1 : -1;
	if (a->pid != b->pid)
		return a->pid < b->pid ? -1 : 1;
	return (a->start_ticks > b->start_ticks) - (a->start_ticks < b->start_ticks);
}

static double joules_added(const struct attribute *a)
{
	double sum = a->idle_joules + a->unattributed_joules;

	for (unsigned i = 0; i < a->count; i++)
		sum += a->row[i].joules;
	return sum;
}

/* Takes a share out of what is left, in whole units, and never more than there is. */
static double take(double share, double unit, double *left)
{
	double taken = fmin(floor(share / unit) * unit, *left);

	*left -= taken;
	return taken;
}

/* Every figure becomes a multiple of the last digit of the total, so that no sum of them is
 * ever rounded, in whatever order a reader adds.  What they leave is unattributed. */
static void close_rows(struct attribute *a, double total, double factor)
{
	double left = total, unit;
	int exponent;

	frexp(total, &exponent);
	unit = fmax(ldexp(1, exponent - DBL_MANT_DIG), DBL_TRUE_MIN);
	for (unsigned i = 0; i < a->count; i++)
		a->row[i].joules = take(a->row[i].joules * factor, unit, &left);
	a->idle_joules = take(a->idle_joules * factor, unit, &left);
	a->unattributed_joules = left;
}

int attribute_finish(struct attribute *a, double energy_total_joules)
{
	double sum = joules_added(a);
	double factor = sum > 0 ? energy_total_joules / sum : 0;

	if (!usable(energy_total_joules))
		return -GW_E_ARG;
	qsort(a->row, a->count, sizeof(a->row[0]), by_joules);
	close_rows(a, energy_total_joules, isfinite(factor) ? factor : 0);
	return 0;
}
