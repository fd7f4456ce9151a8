#include "attribute.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_valid(double x)
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
	a->no_context_w = is_valid(no_context_w) ? no_context_w : NAN;
	a->context_w = is_valid(context_w) ? context_w : NAN;
	a->idle_known = is_valid(no_context_w);
	a->context_known = a->idle_known && is_valid(context_w);
}

static bool listed_before(const struct attribute_use *uses, size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (proc_id_equal(uses[k].id, uses[i].id))
			return true;
	return false;
}

/* Returns the largest utilisation of the process at i; NAN if none of its entries has one. */
static double use_ratio(const struct attribute_use *uses, size_t n, size_t i)
{
	double largest = NAN;

	for (size_t k = i; k < n; k++)
		if (proc_id_equal(uses[k].id, uses[i].id) && uses[k].sm_ratio >= 0 &&
		    uses[k].sm_ratio <= 1)
			largest = fmax(largest, uses[k].sm_ratio); /* fmax(NAN, x) is x */
	return largest;
}

/* Finds or adds the row of a process; NULL: the table is full. */
static struct attribute_row *find_row(struct attribute *a, const struct attribute_use *u)
{
	struct attribute_row *r;

	for (unsigned i = 0; i < a->count; i++)
		if (proc_id_equal(a->row[i].id, u->id))
			return &a->row[i];
	if (a->count == ATTRIBUTE_ROWS)
		return NULL;
	r = &a->row[a->count++];
	r->id = u->id;
	return r;
}

static void add_share(struct attribute *a, const struct attribute_use *u, double joules,
		      double seconds, enum attribute_how how)
{
	struct attribute_row *r = find_row(a, u);

	if (!r) {
		a->unattributed_joules += joules;
		return;
	}
	/* A process changes its name when it executes another program. Keep the latest name. */
	if (u->name[0]) {
		memcpy(r->name, u->name, sizeof(r->name) - 1);
		r->name[sizeof(r->name) - 1] = 0;
	}
	r->joules += joules;
	r->seconds += seconds;
	if (how > r->how)
		r->how = how;
}

/* Sums over the processes of an interval. */
struct crowd {
	size_t residents; /* number of different processes */
	size_t unknown;   /* number of processes of unknown utilisation */
	double ratio_sum; /* sum of the known utilisations */
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

/* Splits the energy of several processes. Energy that their utilisation does not explain is
 * unattributed. */
static void split_by_use(struct attribute *a, double joules, double seconds,
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
		add_share(a, &uses[i], share, seconds, how);
	}
}

int attribute_add(struct attribute *a, double joules, double seconds,
		  const struct attribute_use *uses, size_t n, bool hidden)
{
	struct crowd c;
	double idle;

	if (!is_valid(joules) || !is_valid(seconds))
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
		add_share(a, &uses[0], joules, seconds, ATTRIBUTE_MEASURED);
	else
		split_by_use(a, joules, seconds, uses, n, &c);
	return 0;
}

static int by_joules(const void *left, const void *right)
{
	const struct attribute_row *a = left, *b = right;

	if (a->joules != b->joules)
		return a->joules < b->joules ? 1 : -1;
	if (a->id.pid != b->id.pid)
		return a->id.pid < b->id.pid ? -1 : 1;
	return (a->id.start_ticks > b->id.start_ticks) -
	       (a->id.start_ticks < b->id.start_ticks);
}

static double joules_added(const struct attribute *a)
{
	double sum = a->idle_joules + a->unattributed_joules;

	for (unsigned i = 0; i < a->count; i++)
		sum += a->row[i].joules;
	return sum;
}

/* Rounds a share down to whole units, and limits it to *left. Subtracts it from *left and
 * returns it. */
static double take_units(double share, double unit, double *left)
{
	double taken = fmin(floor(share / unit) * unit, *left);

	*left -= taken;
	return taken;
}

/* Rounds every value down to a multiple of the last binary digit of the total. Then every sum
 * of values is exact, in any order. The remainder becomes unattributed. */
static void close_rows(struct attribute *a, double total, double factor)
{
	double left = total, unit;
	int exponent;

	frexp(total, &exponent);
	unit = fmax(ldexp(1, exponent - DBL_MANT_DIG), DBL_TRUE_MIN);
	for (unsigned i = 0; i < a->count; i++)
		a->row[i].joules = take_units(a->row[i].joules * factor, unit, &left);
	a->idle_joules = take_units(a->idle_joules * factor, unit, &left);
	a->unattributed_joules = left;
}

int attribute_finish(struct attribute *a, double total_joules)
{
	double sum = joules_added(a);
	double factor = sum > 0 ? total_joules / sum : 0;

	if (!is_valid(total_joules))
		return -GW_E_ARG;
	qsort(a->row, a->count, sizeof(a->row[0]), by_joules);
	close_rows(a, total_joules, isfinite(factor) ? factor : 0);
	return 0;
}
