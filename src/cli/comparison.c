#include "comparison.h"

#include "base/array.h"
#include "base/text.h"
#include "measure/distribution.h"
#include "measure/sensor.h"

#include <gpuward.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALPHA 0.05

static const char *const names[METRICS] = {
	"latency", "power", "energy", "net", "token", "size"
};

const char *comparison_metric_name(enum comparison_metric m)
{
	return names[m];
}

enum comparison_metric comparison_metric_find(const char *name)
{
	unsigned m = 0;

	while (m < METRICS && strcmp(names[m], name) != 0)
		m++;
	return (enum comparison_metric)m;
}

bool comparison_knows_sd(const struct comparison *c)
{
	for (size_t i = 0; i < c->nrows; i++)
		if (!isnan(c->rows[i].power_sd_w))
			return true;
	return false;
}

const char *comparison_title(const struct comparison *c, enum comparison_metric m)
{
	switch (m) {
	case METRIC_TIME: return c->per_iteration ? "Latency" : "Time per run";
	case METRIC_POWER: return comparison_knows_sd(c) ? "Power (s.d. of the load)" : "Power";
	case METRIC_ENERGY: return c->per_iteration ? "Energy per iteration" : "Energy per run";
	case METRIC_NET:
		return c->per_iteration ? "Net energy per iteration" : "Net energy per run";
	case METRIC_TOKEN: return "Energy per token";
	default: return "Model size";
	}
}

static double iterations_of(const struct comparison_run *r)
{
	return r->run->work.iterations > 0 ? r->run->work.iterations : NAN;
}

static bool has_iterations(const struct comparison_run *r)
{
	return r->run->work.iterations > 0 || r->run->work.latency_s > 0;
}

static double time_of(const struct comparison_run *r, bool per_iteration)
{
	if (!per_iteration)
		return r->run->seconds;
	return isnan(r->run->work.latency_s) ? r->run->seconds / iterations_of(r)
					     : r->run->work.latency_s;
}

static double power_of(const struct result_run *run)
{
	return isnan(run->sum.power_mean_w) ? run->sum.energy_j.best / run->seconds
					    : run->sum.power_mean_w;
}

/* Returns the energy per iteration or token: the value in the result, or else the energy of the
 * run divided by the number of iterations or tokens. */
static double per_unit(const struct gw_interval *stated, double whole, double count)
{
	return isnan(stated->best) ? whole / count : stated->best;
}

/* Returns the number by which net energy is divided. A result states net energy per run only. */
static double net_count(const struct comparison_run *r, bool per_iteration)
{
	const struct result_run *run = r->run;
	double count = per_iteration ? iterations_of(r) : 1;

	return isnan(count) ? run->sum.energy_j.best / run->work.energy_per_iteration_j.best
			    : count;
}

double comparison_value(const struct comparison *c, const struct comparison_run *r,
			enum comparison_metric m)
{
	const struct result_run *run = r->run;

	switch (m) {
	case METRIC_TIME: return time_of(r, c->per_iteration);
	case METRIC_POWER: return power_of(run);
	case METRIC_ENERGY:
		return c->per_iteration ? per_unit(&run->work.energy_per_iteration_j,
						   run->sum.energy_j.best, iterations_of(r))
					: run->sum.energy_j.best;
	case METRIC_NET: return run->sum.energy_net_j.best / net_count(r, c->per_iteration);
	case METRIC_TOKEN:
		return per_unit(&run->work.energy_per_token_j, run->sum.energy_j.best,
				r->run->work.tokens);
	default: return r->file->model_size_bytes;
	}
}

/* Returns the relative standard uncertainty of an interval.  Uses the high end, because the low
 * end may be cut at 0. */
static double relative_u(const struct gw_interval *b)
{
	return (b->high - b->best) / NORMAL_95 / fabs(b->best);
}

static double larger_known(double a, double b)
{
	return isnan(a) || b > a ? b : a;
}

static bool is_measured_power(enum comparison_metric m)
{
	return m == METRIC_POWER || m == METRIC_ENERGY || m == METRIC_NET || m == METRIC_TOKEN;
}

/* Returns the relative standard uncertainty of the energy of a run, for comparisons on one GPU.
 * It also applies to the mean power and to the energy per iteration or token.  Nothing cancels
 * in net energy, so all of its uncertainty is in u_net(). */
static double u_fair(const struct comparison_run *r, enum comparison_metric m)
{
	if (m == METRIC_NET)
		return 0;
	return is_measured_power(m) ? relative_u(&r->run->sum.energy_relative_j) : NAN;
}

/* Returns the relative standard uncertainty of the absolute value.  In a result, the intervals
 * of energy per iteration and per token are absolute, too. */
static double u_true(const struct comparison_run *r, enum comparison_metric m)
{
	double u = larger_known(u_fair(r, m), relative_u(&r->run->sum.energy_j));

	if (m == METRIC_ENERGY)
		u = larger_known(u, relative_u(&r->run->work.energy_per_iteration_j));
	if (m == METRIC_TOKEN)
		u = larger_known(u, relative_u(&r->run->work.energy_per_token_j));
	return is_measured_power(m) ? u : NAN;
}

/* Returns the standard uncertainty of net energy in joules.  It is never relative, because net
 * energy may be close to 0. */
static double u_net(const struct comparison *c, const struct comparison_run *r)
{
	const struct gw_interval *b = &r->run->sum.energy_net_j;

	return (b->high - b->best) / NORMAL_95 / net_count(r, c->per_iteration);
}

struct sums {
	double *value; /* the n values of the usable runs */
	size_t n;
	double mean, variance; /* variance between runs; NAN for one run */
	double fair2, true2;   /* mean squares of relative uncertainties; NAN: unknown */
	/* standard uncertainty that all runs share, in the unit of the values: gain and offset
	 * of the sensor; for net energy, the whole uncertainty of a run */
	double lasting;
};

/* Collects the values of the usable runs of a row; `value` has room for all of them. */
static struct sums collect_values(const struct comparison *c, const struct comparison_row *row,
				  enum comparison_metric m, double *value)
{
	struct sums s = { .value = value, .variance = NAN };
	double m2 = 0, net2 = 0;

	for (size_t i = 0; i < row->nruns; i++) {
		const struct comparison_run *r = &row->runs[i];
		double v = comparison_value(c, r, m), away = v - s.mean;

		if (!result_run_usable(r->run) || !isfinite(v))
			continue;
		value[s.n++] = v;
		s.mean += away / (double)s.n;
		m2 += away * (v - s.mean);
		s.fair2 += pow(u_fair(r, m), 2);
		s.true2 += pow(u_true(r, m), 2);
		net2 += pow(u_net(c, r), 2);
	}
	s.fair2 /= (double)s.n;
	s.true2 /= (double)s.n;
	s.lasting = m == METRIC_NET  ? sqrt(net2 / (double)s.n)
		    : isnan(s.true2) ? NAN
				     : sqrt(fmax(0, s.true2 - (isnan(s.fair2) ? 0 : s.fair2))) *
					       fabs(s.mean);
	if (s.n > 1)
		s.variance = m2 / ((double)s.n - 1);
	if (s.n == 0)
		s.mean = NAN;
	return s;
}

/* Returns half the width of the 95 % interval of the mean, for comparisons. With several runs,
 * computes it from the scatter of the runs; with one run, from the uncertainty of its
 * energy. */
static double fair_half_width(const struct sums *s)
{
	if (s->n < 2)
		return NORMAL_95 * sqrt(s->fair2) * fabs(s->mean);
	return student_factor(ALPHA, (double)s->n - 1) * sqrt(s->variance / (double)s->n);
}

/* Returns half the width of the 95 % interval of the absolute value.  Gain and offset have the
 * same error in every run, so more runs do not reduce this part. */
static double absolute_half_width(const struct sums *s, double fair)
{
	double lasting = NORMAL_95 * s->lasting;

	return s->n == 1 && isnan(fair) ? lasting : hypot(fair, lasting);
}

static void figure_fill(struct comparison_figure *f, const struct sums *s,
			enum comparison_metric m)
{
	double fair = fair_half_width(s),
	       whole = is_measured_power(m) ? absolute_half_width(s, fair) : fair;

	*f = (struct comparison_figure){ .n = s->n,
					 .mean = s->mean,
					 .low = fmax(0, s->mean - whole),
					 .high = s->mean + whole,
					 .fair_low = fmax(0, s->mean - fair),
					 .fair_high = s->mean + fair,
					 .change = { .basis = COMPARE_NONE,
						     .change = NAN,
						     .change_low = NAN,
						     .change_high = NAN } };
	if (isnan(whole))
		f->low = f->high = NAN; /* fmax() above turned NAN into 0, so set NAN again */
	if (isnan(fair))
		f->fair_low = f->fair_high = NAN;
	/* net energy may be negative, and its absolute interval is also its interval for
	 * comparisons */
	if (m == METRIC_NET) {
		f->low = s->mean - whole;
		f->fair_low = f->fair_high = NAN;
	}
	if (m == METRIC_SIZE) /* the size is given, not measured, so it has no interval */
		f->low = f->high = f->fair_low = f->fair_high = NAN;
}

static const struct result_run *first_used(const struct comparison_row *row)
{
	for (size_t i = 0; i < row->nruns; i++)
		if (result_run_usable(row->runs[i].run) && row->runs[i].run->ndevices > 0)
			return row->runs[i].run;
	return NULL;
}

/* Returns the uncertainty of the power at 0 W, summed over the GPUs.  A calibrated line is most
 * certain at its pivot.  The uncertainties are added, not their squares, because boards of the
 * same model have the same error. */
static double offset_u_w(const struct comparison_row *row)
{
	const struct result_run *run = first_used(row);
	double sum = 0;

	for (size_t i = 0; run && i < run->ndevices; i++) {
		const struct result_sensor *s = &run->devices[i].sensor;

		sum += hypot(s->offset_u_w, s->gain_u * s->pivot_w);
	}
	return run ? sum : SENSOR_OFFSET_U_W;
}

/* Returns the part of the standard uncertainty of ln(row / first) that more runs do not
 * reduce. */
static double extra_log(const struct comparison_row *first, const struct comparison_row *row,
			const struct sums *a, const struct sums *b, enum comparison_metric m)
{
	if (m == METRIC_TIME || m == METRIC_SIZE)
		return 0;
	if (m == METRIC_NET || row->other_gpu || row->other_scale)
		return hypot(a->lasting / a->mean, b->lasting / b->mean);
	return compare_offset(offset_u_w(row), first->figure[METRIC_POWER].mean,
			      row->figure[METRIC_POWER].mean);
}

static void change_fill(struct comparison_row *row, const struct comparison_row *first,
			const struct sums *a, const struct sums *b, enum comparison_metric m)
{
	struct compare_arm from = { a->value, a->n, sqrt(a->fair2) };
	struct compare_arm to = { b->value, b->n, sqrt(b->fair2) };
	struct compare_change change;

	if (m == METRIC_SIZE)
		from.n = to.n =
			/* count each model once, because all trials have the same size */
			from.n > 0 && to.n > 0;
	if (compare_arms(&from, &to, extra_log(first, row, a, b, m), ALPHA, &change) == 0)
		row->figure[m].change = change;
}

static int row_figures(const struct comparison *c, struct comparison_row *row)
{
	double *value = calloc(row->nruns + 1, sizeof(*value));

	if (!value)
		return -GW_E_NOMEM;
	for (unsigned m = 0; m < METRICS; m++) {
		struct sums s = collect_values(c, row, m, value);

		figure_fill(&row->figure[m], &s, m);
	}
	free(value);
	return 0;
}

/* Computes the changes relative to the reference.  Call it after row_figures() of all rows. */
static int row_changes(const struct comparison *c, struct comparison_row *row)
{
	const struct comparison_row *first = c->reference;
	double *value = calloc(first->nruns + row->nruns + 1, sizeof(*value));

	if (!value)
		return -GW_E_NOMEM;
	for (unsigned m = 0; m < METRICS; m++) {
		struct sums a = collect_values(c, first, m, value);
		struct sums b = collect_values(c, row, m, value + first->nruns);

		change_fill(row, first, &a, &b, m);
	}
	free(value);
	return 0;
}

static void gpu_text(const struct result_run *run, struct buf *out)
{
	for (size_t i = 0; i < run->ndevices; i++) {
		const struct result_device *d = &run->devices[i];

		buf_addf(out, "%s%s (%s, driver %s)", i ? " + " : "",
			 d->name ? d->name : "a GPU without a name",
			 d->uuid ? d->uuid : "no UUID",
			 d->driver_version ? d->driver_version : "unknown");
	}
}

static void gpu_clean(const struct result_run *run, char out[static 1024])
{
	struct buf b;

	buf_init_fixed(&b, out, 1024);
	gpu_text(run, &b);
}

bool comparison_mixes_gpus(const struct result_file *results, size_t n, struct buf *sentence)
{
	char first[1024] = "", other[1024], before[1024] = "";
	size_t named = 0;

	for (size_t i = 0; i < n; i++) {
		for (size_t k = 0; k < results[i].nruns; k++) {
			gpu_clean(&results[i].runs[k], other);
			if (!*other || strcmp(other, before) == 0)
				continue;
			if (!*first)
				snprintf(first, sizeof(first), "%s", other);
			named += strcmp(first, other) != 0;
			buf_addf(sentence, "%s%s was measured on %s", sentence->len ? "; " : "",
				 results[i].path, other);
			snprintf(before, sizeof(before), "%s", other);
		}
	}
	return named > 0;
}

static bool same_gpus(const struct comparison_row *a, const struct comparison_row *b)
{
	const struct result_run *x = first_used(a), *y = first_used(b);
	char first[1024], second[1024];

	if (!x || !y)
		return true; /* no difference between the GPUs is known */
	gpu_clean(x, first);
	gpu_clean(y, second);
	return strcmp(first, second) == 0;
}

/* Returns true if both rows have the same calibration.  Then the error of the calibration
 * cancels in a change; the errors of two calibrations do not. */
static bool same_scale(const struct comparison_row *a, const struct comparison_row *b)
{
	const struct result_run *x = first_used(a), *y = first_used(b);

	for (size_t i = 0; x && y && i < x->ndevices && i < y->ndevices; i++) {
		const struct result_sensor *s = &x->devices[i].sensor,
					   *t = &y->devices[i].sensor;

		if (s->gain != t->gain || s->offset_w != t->offset_w)
			return false;
	}
	return true;
}

/* Finds the row of a label and a part, or adds it.  Returns NULL if memory is short. */
static struct comparison_row *row_of(struct comparison *c, const char *name, const char *part)
{
	size_t size = strlen(name) + (part ? strlen(part) : 0) + 4;
	struct comparison_row *row = &c->rows[c->nrows];

	for (size_t i = 0; i < c->nrows; i++)
		if (strcmp(c->rows[i].name, name) == 0 && text_same(c->rows[i].part, part))
			return &c->rows[i];
	row->label = malloc(size);
	if (!row->label)
		return NULL;
	snprintf(row->label, size, "%s%s%s%s", name, part ? " (" : "", part ? part : "",
		 part ? ")" : "");
	row->name = name;
	row->part = part;
	c->nrows++;
	return row;
}

static int validity_rank(const char *validity)
{
	static const char *const words[] = { "valid", "suspect", "invalid" };

	for (int i = 0; validity && i < 3; i++)
		if (strcmp(words[i], validity) == 0)
			return i;
	return 1; /* an unknown word counts as suspect */
}

static int row_add(struct comparison_row *row, const struct result_file *file,
		   const struct result_run *run)
{
	const char *validity = run->validity ? run->validity : "unknown";
	struct comparison_run *runs = realloc(row->runs, (row->nruns + 1) * sizeof(*runs));

	if (!runs)
		return -GW_E_NOMEM;
	row->runs = runs;
	row->runs[row->nruns++] = (struct comparison_run){ file, run };
	if (!result_run_usable(run) && row->used > 0)
		return 0;
	if (result_run_usable(run))
		row->rooms[file->room]++;
	if (result_run_usable(run) && row->used++ == 0)
		/* the earlier runs of the row were invalid and are not used */
		row->validity = NULL;
	if (!row->validity || validity_rank(validity) > validity_rank(row->validity))
		row->validity = validity;
	return 0;
}

/* Adds every run to its row; a result without runs gets a row, too. */
static int add_file(struct comparison *c, const struct result_file *file)
{
	for (size_t i = 0; i < file->nruns || i == 0; i++) {
		const struct result_run *run = file->nruns ? &file->runs[i] : NULL;
		struct comparison_row *row = row_of(c, file->label, run ? run->part : NULL);

		if (!row || (run && row_add(row, file, run) != 0))
			return -GW_E_NOMEM;
		row->simulated |= file->simulated;
	}
	return 0;
}

static size_t most_rows(const struct result_file *results, size_t n)
{
	size_t most = 0;

	for (size_t i = 0; i < n; i++)
		most += results[i].nruns ? results[i].nruns : 1;
	return most;
}

/* Returns the standard deviation of the load, as the root mean square over all runs.  This
 * equals the value of one long run. */
static double load_sd(const struct comparison_row *row)
{
	double sum = 0;
	size_t n = 0;

	for (size_t i = 0; i < row->nruns; i++) {
		const struct result_run *run = row->runs[i].run;

		if (!result_run_usable(run) || isnan(run->sum.power_sd_w))
			continue;
		sum += run->sum.power_sd_w * run->sum.power_sd_w;
		n++;
	}
	return n ? sqrt(sum / (double)n) : NAN;
}

static bool all_have_iterations(const struct comparison *c)
{
	size_t used = 0;

	for (size_t i = 0; i < c->nrows; i++) {
		for (size_t k = 0; k < c->rows[i].nruns; k++) {
			if (!result_run_usable(c->rows[i].runs[k].run))
				continue;
			used++;
			if (!has_iterations(&c->rows[i].runs[k]))
				return false;
		}
	}
	return used > 0;
}

/* Chooses the first row with a known energy, or else the first with a usable run. */
static const struct comparison_row *choose_reference(const struct comparison *c)
{
	for (size_t i = 0; i < c->nrows; i++)
		if (c->rows[i].figure[METRIC_ENERGY].n > 0)
			return &c->rows[i];
	for (size_t i = 0; i < c->nrows; i++)
		if (c->rows[i].used > 0)
			return &c->rows[i];
	return c->rows;
}

/* Finds the row that has this label, with or without its part; NULL: no such row. */
static const struct comparison_row *row_labelled(const struct comparison *c, const char *label)
{
	for (size_t i = 0; i < c->nrows; i++)
		if (strcmp(c->rows[i].label, label) == 0)
			return &c->rows[i];
	for (size_t i = 0; i < c->nrows; i++)
		if (strcmp(c->rows[i].name, label) == 0)
			return &c->rows[i];
	return NULL;
}

int comparison_init(struct comparison *c, const struct result_file *results, size_t n,
		    const char *reference)
{
	int err = 0;

	*c = (struct comparison){ .rows = calloc(most_rows(results, n), sizeof(*c->rows)) };
	if (!c->rows)
		return -GW_E_NOMEM;
	for (size_t i = 0; i < n && !err; i++)
		err = add_file(c, &results[i]);
	c->per_iteration = all_have_iterations(c);
	for (size_t i = 0; i < c->nrows && !err; i++) {
		c->rows[i].power_sd_w = load_sd(&c->rows[i]);
		err = row_figures(c, &c->rows[i]);
	}
	c->reference = reference ? row_labelled(c, reference) : choose_reference(c);
	if (!err && !c->reference)
		return -GW_E_NOENT;
	for (size_t i = 0; i < c->nrows && c->reference && !err; i++) {
		struct comparison_row *row = &c->rows[i];

		row->other_gpu = !same_gpus(row, c->reference);
		row->other_scale = !same_scale(row, c->reference);
		if (row != c->reference)
			err = row_changes(c, row);
	}
	if (err)
		comparison_done(c);
	return err;
}

void comparison_done(struct comparison *c)
{
	for (size_t i = 0; i < c->nrows; i++) {
		free(c->rows[i].label);
		free(c->rows[i].runs);
	}
	free(c->rows);
	*c = (struct comparison){ .rows = NULL };
}

static bool all_have_net(const struct comparison *c)
{
	size_t n = 0;

	for (size_t i = 0; i < c->nrows; i++) {
		if (c->rows[i].figure[METRIC_NET].n < c->rows[i].used)
			return false;
		n += c->rows[i].used;
	}
	return n > 0;
}

bool comparison_has(const struct comparison *c, enum comparison_metric m)
{
	if (m == METRIC_NET)
		return all_have_net(c);
	for (size_t i = 0; i < c->nrows; i++)
		if (c->rows[i].figure[m].n > 0)
			return true;
	return false;
}

const char *comparison_room(const struct comparison_row *row)
{
	static const char *const words[] = { "none", "kept", "lost" };

	for (unsigned i = 0; i <= ROOM_LOST; i++)
		if (row->used && row->rooms[i] == row->used)
			return words[i];
	return row->used ? "mixed" : NULL;
}

static size_t count_rooms(const struct comparison *c, enum result_room room)
{
	size_t n = 0;

	for (size_t i = 0; i < c->nrows; i++)
		n += c->rows[i].rooms[room];
	return n;
}

bool comparison_has_rooms(const struct comparison *c)
{
	return count_rooms(c, ROOM_KEPT) + count_rooms(c, ROOM_LOST) > 0;
}

struct comparison_scale comparison_scale_of(double typical, const char *unit)
{
	static const struct {
		char unit;
		double factor;
		const char *text;
	} scales[] = { { 's', 1e9, "ns" }, { 's', 1e6, "µs" },  { 's', 1e3, "ms" },
		       { 's', 1, "s" },    { 'J', 1e6, "µJ" },  { 'J', 1e3, "mJ" },
		       { 'J', 1, "J" },    { 'J', 1e-3, "kJ" }, { 'J', 1e-6, "MJ" },
		       { 'W', 1e3, "mW" }, { 'W', 1, "W" } };
	struct comparison_scale s = { 1, 3, unit };
	double shown;

	if (!(typical > 0))
		return s;
	for (size_t i = 0; i < COUNT(scales); i++) {
		if (scales[i].unit != *unit)
			continue;
		s.factor = scales[i].factor;
		s.unit = scales[i].text;
		if (typical * s.factor < 1000)
			break;
	}
	shown = typical * s.factor;
	s.decimals = shown >= 1000 ? 0 : shown >= 100 ? 1 : shown >= 10 ? 2 : 3;
	return s;
}

struct comparison_scale comparison_scale(const struct comparison *c, enum comparison_metric m)
{
	double logs = 0;
	size_t n = 0;

	for (size_t i = 0; i < c->nrows; i++) {
		double v = c->rows[i].figure[m].mean;

		if (v > 0) {
			logs += log(v);
			n++;
		}
	}
	return comparison_scale_of(n ? exp(logs / (double)n) : NAN, m == METRIC_TIME    ? "s"
								    : m == METRIC_POWER ? "W"
											: "J");
}

/* Writes bytes in the largest unit in which the number is at least 1.  Writes up to six digits
 * if the number is then exact, else four.  Returns true if it is exact. */
static bool size_in(double bytes, double base, const char *const units[static 5], char *out,
		    size_t size)
{
	unsigned u = 0;
	char text[32];
	bool exact;

	while (bytes >= base && u < 4) {
		bytes /= base;
		u++;
	}
	snprintf(text, sizeof(text), "%.6g", bytes);
	exact = strtod(text, NULL) == bytes;
	if (!exact)
		snprintf(text, sizeof(text), "%.4g", bytes);
	snprintf(out, size, "%s %s", text, units[u]);
	return exact;
}

void comparison_size_text(double bytes, char *out, size_t size)
{
	static const char *const tens[] = { "B", "kB", "MB", "GB", "TB" };
	static const char *const twos[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	char decimal[48];
	bool ten = size_in(bytes, 1000, tens, decimal, sizeof(decimal));
	bool two = size_in(bytes, 1024, twos, out, size);

	/* If both strings are exact, the shorter one probably has the unit that the user
	 * gave. */
	if (ten && (!two || strlen(decimal) < strlen(out)))
		snprintf(out, size, "%s", decimal);
}

/* Returns a ratio in per cent.  A value that would be printed as "-0.0" becomes 0. */
static double per_cent(double ratio, int decimals)
{
	const double v = 100 * ratio;

	return fabs(v) < 0.5 * pow(10, -decimals) ? 0 : v;
}

#define CHANGE_DECIMALS_MAX 3

int comparison_change_decimals(const struct compare_change *c)
{
	const double widest =
		fmax(fabs(c->change), fmax(fabs(c->change_low), fabs(c->change_high)));
	const double nearest = c->change_low * c->change_high > 0
				       ? fmin(fabs(c->change_low), fabs(c->change_high))
				       : widest;
	int decimals = widest >= 1 ? 0 : 1;

	while (!isnan(c->change_low) && decimals > 0 && decimals < CHANGE_DECIMALS_MAX &&
	       per_cent(nearest, decimals) == 0)
		decimals++;
	return decimals;
}

void comparison_change_text(const struct compare_change *change, char *out, size_t size)
{
	int decimals = comparison_change_decimals(change);

	if (isnan(change->change))
		*out = '\0';
	else if (isnan(change->change_low))
		snprintf(out, size, "%+.*f %%", decimals, per_cent(change->change, decimals));
	else if (decimals == CHANGE_DECIMALS_MAX && per_cent(change->change, decimals) == 0 &&
		 per_cent(change->change_low, decimals) == 0 &&
		 per_cent(change->change_high, decimals) == 0)
		snprintf(out, size, "no difference [within 0.001 %%]");
	else
		snprintf(out, size, "%+.*f %% [%+.*f, %+.*f]", decimals,
			 per_cent(change->change, decimals), decimals,
			 per_cent(change->change_low, decimals), decimals,
			 per_cent(change->change_high, decimals));
}

struct notes {
	void (*say)(void *ctx, const char *sentence);
	void *ctx;
	struct buf b;
};

static void note_begin(struct notes *n)
{
	buf_clear(&n->b);
}

static void note_end(struct notes *n)
{
	if (n->b.len)
		n->say(n->ctx, n->b.p);
}

static bool run_has(const struct result_run *run, const char *code)
{
	for (size_t i = 0; i < run->ncodes; i++)
		if (run->codes[i].code && strcmp(run->codes[i].code, code) == 0)
			return true;
	return false;
}

/* Adds a note about a code of a row, if `first` is the first run with this code. */
static void note_code(struct notes *n, const struct comparison_row *row, size_t first,
		      const struct result_code *code)
{
	size_t count = 0;

	for (size_t i = 0; i < row->nruns; i++) {
		if (!run_has(row->runs[i].run, code->code))
			continue;
		if (i < first)
			return; /* a note about this code exists already */
		count++;
	}
	note_begin(n);
	buf_addf(&n->b, "%s: %s: %s", row->label, result_code_level(code), code->code);
	if (row->nruns > 1)
		buf_addf(&n->b, " in %zu of %zu runs", count, row->nruns);
	if (code->sentence)
		buf_addf(&n->b, ": %s", code->sentence);
	if (code->evidence)
		buf_addf(&n->b, "; %s%s", row->nruns > 1 ? "first: " : "", code->evidence);
	note_end(n);
}

/* Adds a note if the runs have different numbers of iterations: they are then not trials of the
 * same work. */
static void note_iterations(struct notes *n, const struct comparison_row *row)
{
	double least = INFINITY, most = 0;

	for (size_t i = 0; i < row->nruns; i++) {
		double v = row->runs[i].run->work.iterations;

		if (!result_run_usable(row->runs[i].run) || isnan(v))
			continue;
		least = fmin(least, v);
		most = fmax(most, v);
	}
	note_begin(n);
	if (most > least)
		buf_addf(&n->b,
			 "%s: its runs have different numbers of iterations (%.0f to %.0f), so "
			 "its values are means of different work; give these runs different "
			 "labels",
			 row->label, least, most);
	note_end(n);
}

static void note_row(struct notes *n, const struct comparison_row *row)
{
	for (size_t i = 0; i < row->nruns; i++) {
		const struct result_run *run = row->runs[i].run;

		for (size_t k = 0; k < run->ncodes; k++) {
			bool again = false; /* the code was already found on another GPU */

			for (size_t p = 0; p < k && run->codes[k].code; p++)
				again |= run->codes[p].code &&
					 strcmp(run->codes[p].code, run->codes[k].code) == 0;
			if (run->codes[k].code && !again)
				note_code(n, row, i, &run->codes[k]);
		}
	}
	note_begin(n);
	if (row->nruns == 0)
		buf_addf(&n->b, "%s: the result has no run", row->label);
	else if (row->used < row->nruns)
		buf_addf(&n->b, "%s: %zu of %zu runs %s invalid and not used", row->label,
			 row->nruns - row->used, row->nruns,
			 row->nruns - row->used == 1 ? "is" : "are");
	note_end(n);
}

/* Returns true if no earlier run of any row is from the same file.  The parts of one file are
 * in different rows. */
static bool first_of_file(const struct comparison *c, const struct comparison_row *row,
			  size_t run)
{
	for (const struct comparison_row *r = c->rows; r <= row; r++)
		for (size_t i = 0; i < (r == row ? run : r->nruns); i++)
			if (r->runs[i].file == row->runs[run].file)
				return false;
	return true;
}

static void note_lost_room(struct notes *n, const struct result_file *file)
{
	size_t listed = 0;

	note_begin(n);
	buf_addf(&n->b, "%s: the clean room was not kept", file->path);
	for (size_t i = 0; i < file->nworkers; i++)
		if (file->workers[i].broken)
			buf_addf(&n->b, "%s worker %s: %s", listed++ ? ";" : ":",
				 file->workers[i].name ? file->workers[i].name : "unnamed",
				 file->workers[i].broken);
	note_end(n);
}

/* Adds a note if only some runs were measured with --clean-room. In the other runs, workers of
 * the guard may have used the GPU, and this alone can change the result. */
static void note_rooms(struct notes *n, const struct comparison *c)
{
	size_t kept = count_rooms(c, ROOM_KEPT);
	size_t others = count_rooms(c, ROOM_LOST) + count_rooms(c, ROOM_NONE);

	for (size_t i = 0; i < c->nrows; i++)
		for (size_t k = 0; k < c->rows[i].nruns; k++)
			if (c->rows[i].runs[k].file->room == ROOM_LOST &&
			    first_of_file(c, &c->rows[i], k))
				note_lost_room(n, c->rows[i].runs[k].file);
	if (!kept || !others)
		return;
	note_begin(n);
	buf_adds(&n->b, "Only some of these runs had a clean room (");
	for (size_t i = 0, listed = 0; i < c->nrows; i++)
		if (c->rows[i].used)
			buf_addf(&n->b, "%s%s: %zu of %zu", listed++ ? ", " : "",
				 c->rows[i].label, c->rows[i].rooms[ROOM_KEPT],
				 c->rows[i].used);
	buf_adds(&n->b, "): in the others, workers of the guard may have used the GPU and "
			"caused a change. Measure all runs with --clean-room.");
	note_end(n);
}

static void add_note(struct notes *n, bool when, const char *sentence)
{
	if (when)
		n->say(n->ctx, sentence);
}

/* Adds a note that explains how the numbers of runs affect the intervals. */
static void note_runs(struct notes *n, const struct comparison *c)
{
	bool once = false, each = false, lent = false;

	for (size_t i = 0; i < c->nrows; i++) {
		const struct comparison_row *row = &c->rows[i], *first = c->reference;

		once |= row->used == 1;
		each |= row != first && row->used == 1 && first->used == 1;
		lent |= row->used && (row->used == 1) != (first->used == 1);
	}
	add_note(n, once && !each,
		 "The interval of a single run contains only the uncertainty of its "
		 "measurement, not the variation between runs.");
	add_note(n, each,
		 "Each row has one run, so the variation between runs is unknown. All "
		 "intervals, also those of changes, contain only the uncertainty of the "
		 "measurement and do not show whether the rows really differ.");
	add_note(n, lent,
		 "In a change between one run and several runs, the single run is assumed to "
		 "vary like the others.");
}

static bool has_trials(const struct comparison *c)
{
	for (size_t i = 0; i < c->nrows; i++)
		if (c->rows[i].used > 1)
			return true;
	return false;
}

/* Returns a text about the gain error of the sensor. The error cancels in the change from one row
 * to another if both have the same GPU and the same calibration; the text says whether such rows
 * exist. */
static const char *gain_text(const struct comparison *c)
{
	bool cancels = false, scales = false;

	if (!comparison_has(c, METRIC_ENERGY))
		return "";
	for (size_t i = 0; i < c->nrows; i++) {
		const struct comparison_row *row = &c->rows[i];

		scales |= row->other_scale;
		cancels |= row != c->reference && !row->other_gpu && !row->other_scale;
	}
	return !cancels ? "; the intervals of energy include the uncertainty of the sensor gain"
	       : scales ? "; the intervals of energy include the uncertainty of the sensor "
			  "gain; in the change between two rows of one GPU with one "
			  "calibration it cancels"
			: "; the intervals of energy include the uncertainty of the sensor "
			  "gain; in the change between two rows of one GPU it cancels";
}

static void note_reference(struct notes *n, const struct comparison *c)
{
	if (c->nrows < 2 || c->reference->used == 0)
		return;
	note_begin(n);
	buf_addf(&n->b, "Changes are relative to '%s'", c->reference->label);
	if (c->reference != c->rows && c->reference == choose_reference(c))
		buf_addf(&n->b, ", the first row that can be compared: '%s' has no %s",
			 c->rows[0].label, c->rows[0].used ? "energy" : "usable run");
	if (has_trials(c)) /* for a single run, geometric and arithmetic mean are equal */
		buf_adds(&n->b, ". They are ratios of geometric means; the values in the table "
				"are arithmetic means");
	buf_addf(&n->b, ". Intervals are 95 %%%s.", gain_text(c));
	note_end(n);
}

void comparison_notes(const struct comparison *c, void (*say)(void *ctx, const char *sentence),
		      void *ctx)
{
	struct notes n = { .say = say, .ctx = ctx };
	bool others = false, scales = false, counts = false;

	buf_init(&n.b, 1u << 16);
	for (size_t i = 0; i < c->nrows; i++) {
		note_row(&n, &c->rows[i]);
		note_iterations(&n, &c->rows[i]);
		others |= c->rows[i].other_gpu;
		scales |= c->rows[i].other_scale;
		for (size_t k = 0; k < c->rows[i].nruns; k++)
			counts |= has_iterations(&c->rows[i].runs[k]);
	}
	note_rooms(&n, c);
	add_note(&n, counts && !c->per_iteration,
		 "The number of iterations is unknown for some runs, so whole runs are "
		 "compared.");
	note_runs(&n, c);
	add_note(&n, others,
		 "The rows are from different GPUs. The gain errors of their sensors do not "
		 "cancel, so the intervals of the changes include them.");
	add_note(&n, scales && !others,
		 "The rows have different calibrations. The gain error of the sensor does not "
		 "cancel, so the intervals of the changes include it.");
	note_reference(&n, c);
	buf_done(&n.b);
}
