#include "comparison.h"
#include "output.h"

#include "base/array.h"
#include "base/suggest.h"
#include "base/text.h"
#include "base/utf8.h"
#include "measure/distribution.h"
#include "measure/sensor.h"
#include "measure/stat.h"

#include <gpuward.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define ALPHA 0.05 /* Error probability of the intervals of changes: they are 95 % intervals. */

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

size_t comparison_simulated(const struct comparison *c)
{
	size_t n = 0;

	for (size_t i = 0; i < c->nrows; i++)
		n += c->rows[i].simulated;
	return n;
}

const char *comparison_simulated_text(const struct comparison *c)
{
	return comparison_simulated(c) == c->nrows ? "these GPUs are not real"
						   : "the GPUs of the marked rows are not real";
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
	case METRIC_POWER: return comparison_knows_sd(c) ? "Power (s.d. over time)" : "Power";
	case METRIC_ENERGY: return c->per_iteration ? "Energy per iteration" : "Energy per run";
	case METRIC_NET:
		return c->per_iteration ? "Net energy per iteration" : "Net energy per run";
	case METRIC_TOKEN: return "Energy per token";
	default: return "Model size";
	}
}

static double iterations_of(const struct comparison_run *r)
{
	return r->run->figures.iterations > 0 ? r->run->figures.iterations : NAN;
}

static double time_of(const struct comparison_run *r, bool per_iteration)
{
	if (!per_iteration)
		return r->run->seconds;
	return isnan(r->run->figures.latency_s) ? r->run->seconds / iterations_of(r)
						: r->run->figures.latency_s;
}

static double power_of(const struct result_run *run)
{
	return isnan(run->figures.power_mean_w) ? run->figures.energy_j.best / run->seconds
						: run->figures.power_mean_w;
}

/* Returns the energy per iteration or token: the value in the result, or else the energy of the
 * run divided by the number of iterations or tokens. */
static double per_unit(const struct gw_interval *stated, double whole, double count)
{
	return isnan(stated->best) ? whole / count : stated->best;
}

/* Returns the number by which net energy is divided. A result contains net energy only per run,
 * so this is the number of iterations, or 1 for whole runs. */
static double net_count(const struct comparison_run *r, bool per_iteration)
{
	const struct result_run *run = r->run;
	double count = per_iteration ? iterations_of(r) : 1;

	return isnan(count)
		       ? run->figures.energy_j.best / run->figures.energy_per_iteration_j.best
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
		return c->per_iteration ? per_unit(&run->figures.energy_per_iteration_j,
						   run->figures.energy_j.best, iterations_of(r))
					: run->figures.energy_j.best;
	case METRIC_NET: return run->figures.energy_net_j.best / net_count(r, c->per_iteration);
	case METRIC_TOKEN:
		return per_unit(&run->figures.energy_per_token_j, run->figures.energy_j.best,
				r->run->figures.tokens);
	default: return r->file->model_size_bytes;
	}
}

static double relative_u(const struct gw_interval *b)
{
	return interval_u(b) / fabs(b->best);
}

static double larger_known(double a, double b)
{
	return isnan(a) || b > a ? b : a;
}

static bool is_measured_power(enum comparison_metric m)
{
	return m != METRIC_TIME && m != METRIC_SIZE;
}

/* Adds a run to the mean of a metric. On one GPU, the energy of a run has an error of its own
 * (`own`); the other errors are equal in all runs. The mean power, and the energy per iteration
 * or token, are computed from the energy, so they have the same relative error. */
static void add_run(struct run_mean *mean, const struct comparison *c,
		    const struct comparison_run *r, enum comparison_metric m, double v)
{
	const struct gw_interval *net = &r->run->figures.energy_net_j;
	double own = relative_u(&r->run->figures.energy_relative_j) * fabs(v);
	double all = relative_u(&r->run->figures.energy_j) * fabs(v);

	/* Net energy may be close to 0, so its uncertainty is computed in joules and not as a
	 * ratio. */
	if (m == METRIC_NET) {
		double count = net_count(r, c->per_iteration);

		own = interval_u(&r->run->figures.energy_relative_j) / count;
		all = interval_u(net) / count;
		/* It is unknown which part of the uncertainty differs from run to run. Assume
		 * that the whole uncertainty is equal in all runs. */
		if (!(own <= all))
			own = 0;
	}
	/* The energy per iteration or token can have a wider interval than the energy of the
	 * run, because the uncertainty of the count widens it. */
	if (m == METRIC_ENERGY)
		all = larger_known(all, relative_u(&r->run->figures.energy_per_iteration_j) *
						fabs(v));
	if (m == METRIC_TOKEN)
		all = larger_known(all,
				   relative_u(&r->run->figures.energy_per_token_j) * fabs(v));
	if (!is_measured_power(m))
		own = all = NAN;
	run_mean_add(mean, v, own, all);
}

/* The values of one metric in the usable runs of a row. */
struct sums {
	double *value; /* One value per usable run. */
	struct run_mean mean;
};

/* Collects the values of the usable runs of a row; `value` has room for all of them. */
static struct sums collect_values(const struct comparison *c, const struct comparison_row *row,
				  enum comparison_metric m, double *value)
{
	struct sums s = { .value = value };

	run_mean_init(&s.mean);
	for (size_t i = 0; i < row->nruns; i++) {
		const struct comparison_run *r = &row->runs[i];
		double v = comparison_value(c, r, m);

		if (!result_run_usable(r->run) || !isfinite(v))
			continue;
		value[s.mean.moments.count] = v;
		add_run(&s.mean, c, r, m, v);
	}
	return s;
}

static void figure_fill(struct comparison_figure *f, const struct sums *s,
			enum comparison_metric m)
{
	double mean = moments_mean(&s->mean.moments), fair = run_mean_reach_own(&s->mean),
	       whole = fair;

	if (is_measured_power(m))
		whole = run_mean_reach(&s->mean);
	/* The user gives the size. It is not measured, so it has no interval. */
	if (m == METRIC_SIZE)
		whole = fair = NAN;
	/* Net energy has no separate interval for comparisons on one GPU. */
	if (m == METRIC_NET)
		fair = NAN;
	*f = (struct comparison_figure){ .n = s->mean.moments.count,
					 .mean = mean,
					 .low = mean - whole,
					 .high = mean + whole,
					 .fair_low = mean - fair,
					 .fair_high = mean + fair,
					 .change = { .basis = COMPARE_NONE,
						     .change = NAN,
						     .change_low = NAN,
						     .change_high = NAN } };
	/* Only net energy can be negative. If low is NAN, it stays NAN: fmax() would make it
	 * 0. */
	f->cut = m != METRIC_NET && f->low < 0;
	if (f->cut)
		f->low = 0;
	if (f->fair_low < 0)
		f->fair_low = 0;
}

static const struct result_run *first_used(const struct comparison_row *row)
{
	for (size_t i = 0; i < row->nruns; i++)
		if (result_run_usable(row->runs[i].run) && row->runs[i].run->ndevices > 0)
			return row->runs[i].run;
	return NULL;
}

size_t comparison_gpus(const struct comparison_row *row)
{
	const struct result_run *run = first_used(row);

	return run ? run->ndevices : 0;
}

/* Returns the standard uncertainty of the power at 0 W, summed over the GPUs.  It is larger
 * than at the pivot, where a calibrated line is most certain.  The uncertainties are added, not
 * their squares, because boards of the same model have the same error. */
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
	if (!is_measured_power(m))
		return 0;
	if (m == METRIC_NET || row->other_gpu || row->other_scale)
		return hypot(run_mean_u_shared(&a->mean) / moments_mean(&a->mean.moments),
			     run_mean_u_shared(&b->mean) / moments_mean(&b->mean.moments));
	return compare_offset(offset_u_w(row), first->figure[METRIC_POWER].mean,
			      row->figure[METRIC_POWER].mean);
}

static struct compare_arm arm_of(const struct sums *s)
{
	return (struct compare_arm){ s->value, s->mean.moments.count,
				     run_mean_u_own(&s->mean) /
					     fabs(moments_mean(&s->mean.moments)) };
}

static void change_fill(struct comparison_row *row, const struct comparison_row *first,
			const struct sums *a, const struct sums *b, enum comparison_metric m)
{
	struct compare_arm from = arm_of(a), to = arm_of(b);
	struct compare_change change;

	/* Each row counts as one value, because all trials of a model have the same size. */
	if (m == METRIC_SIZE)
		from.n = to.n = from.n > 0 && to.n > 0;
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

#define GPU_TEXT 1024

/* Writes the GPUs of a run: name, UUID and driver. Replaces control characters, because a
 * newline would begin a new line of a message. */
static void gpu_text(const struct result_run *run, char out[static GPU_TEXT])
{
	char text[GPU_TEXT] = "";
	struct buf b;

	buf_init_fixed(&b, text, GPU_TEXT);
	for (size_t i = 0; i < run->ndevices; i++) {
		const struct result_device *d = &run->devices[i];

		buf_addf(&b, "%s%s (%s, driver %s)", i ? " + " : "",
			 d->name ? d->name : "a GPU without a name",
			 d->uuid ? d->uuid : "no UUID",
			 d->driver_version ? d->driver_version : "unknown");
	}
	utf8_clean(out, GPU_TEXT, text);
}

/* Returns true if the results are from different GPUs; `sentence` then lists the GPU of each
 * file. */
static bool mixes_gpus(const struct result_file *results, size_t n, struct buf *sentence)
{
	char first[GPU_TEXT] = "", other[GPU_TEXT], before[GPU_TEXT] = "";
	size_t named = 0;

	for (size_t i = 0; i < n; i++) {
		for (size_t k = 0; k < results[i].nruns; k++) {
			gpu_text(&results[i].runs[k], other);
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
	char first[GPU_TEXT], second[GPU_TEXT];

	if (!x || !y)
		/* No difference between the GPUs is known, so they count as the same GPU. */
		return true;
	gpu_text(x, first);
	gpu_text(y, second);
	return strcmp(first, second) == 0;
}

/* Returns true if both rows have the same calibration.  The error of one calibration cancels in
 * a change; the errors of two calibrations do not. */
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
	return 1; /* A word that this version does not know counts as "suspect". */
}

static int row_add(struct comparison_row *row, const struct result_file *file,
		   const struct result_run *run)
{
	const char *validity = run->validity ? run->validity : "unknown";
	struct comparison_run *runs = realloc(row->runs, (row->nruns + 1) * sizeof(*runs));

	if (!runs)
		return -GW_E_NOMEM;
	if (validity[strspn(validity, "abcdefghijklmnopqrstuvwxyz-")])
		validity = "unknown"; /* The validity is printed, so it must be a word. */
	row->runs = runs;
	row->runs[row->nruns++] = (struct comparison_run){ file, run };
	if (!result_run_usable(run) && row->used > 0)
		return 0;
	if (result_run_usable(run))
		row->rooms[file->room]++;
	if (result_run_usable(run) && row->used++ == 0)
		/* All earlier runs of the row are invalid and not used, so forget their
		 * validity. */
		row->validity = NULL;
	if (!row->validity || validity_rank(validity) > validity_rank(row->validity))
		row->validity = validity;
	return 0;
}

/* Adds every run of the file to its row. A result without runs also gets a row. */
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

/* Returns the standard deviation of the power within a run, as the root mean square over all
 * usable runs. */
static double load_sd(const struct comparison_row *row)
{
	double sum = 0;
	size_t n = 0;

	for (size_t i = 0; i < row->nruns; i++) {
		const struct result_run *run = row->runs[i].run;

		if (!result_run_usable(run) || isnan(run->figures.power_sd_w))
			continue;
		sum += run->figures.power_sd_w * run->figures.power_sd_w;
		n++;
	}
	return n ? sqrt(sum / (double)n) : NAN;
}

/* Sets per_iteration if the iterations, or the time per iteration, of all usable runs are
 * known. Sets iterations_partly if they are known for some runs but not for all usable ones. */
static void find_iterations(struct comparison *c)
{
	size_t used = 0, unknown = 0, known = 0;

	for (size_t i = 0; i < c->nrows; i++)
		for (size_t k = 0; k < c->rows[i].nruns; k++) {
			const struct result_run *run = c->rows[i].runs[k].run;
			bool has = run->figures.iterations > 0 || run->figures.latency_s > 0;

			used += result_run_usable(run);
			unknown += result_run_usable(run) && !has;
			known += has;
		}
	c->per_iteration = used > 0 && unknown == 0;
	c->iterations_partly = known > 0 && unknown > 0;
}

/* Chooses the first row with a known energy. If there is none, chooses the first row with a
 * usable run. */
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

/* Finds a row by the label that is printed, which contains the part. If there is none, finds a
 * row by its label without the part. Returns NULL if no row has the label. */
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
		    const char *reference, bool whole_runs)
{
	int err = 0;

	*c = (struct comparison){ .rows = calloc(most_rows(results, n), sizeof(*c->rows)) };
	if (!c->rows)
		return -GW_E_NOMEM;
	for (size_t i = 0; i < n && !err; i++)
		err = add_file(c, &results[i]);
	find_iterations(c);
	c->per_iteration = c->per_iteration && !whole_runs;
	for (size_t i = 0; i < c->nrows && !err; i++) {
		c->rows[i].power_sd_w = load_sd(&c->rows[i]);
		err = row_figures(c, &c->rows[i]);
	}
	c->reference = reference ? row_labelled(c, reference) : choose_reference(c);
	c->reference_named = reference != NULL;
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

/* Returns true if the command line names file i a second time.  A second copy would count as a
 * second trial and make the intervals too narrow. */
static bool given_twice(const struct cli *c, int i)
{
	struct stat a, b;

	if (stat(c->argv[i], &a) != 0 || !S_ISREG(a.st_mode))
		return false;
	for (int k = 0; k < i; k++)
		if (stat(c->argv[k], &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
			return true;
	return false;
}

/* If the last result is a copy of an earlier one, prints an error and returns true. For
 * example, the user gave a bundle and the file of -o, which have the same content. */
static bool is_copy(const struct result_set *r)
{
	const struct result_file *last = &r->v[r->n - 1];

	for (size_t i = 0; i + 1 < r->n; i++)
		if (result_file_same(&r->v[i], last)) {
			cli_error("%s and %s are the same measurement; give only one of them",
				  r->v[i].path, last->path);
			return true;
		}
	return false;
}

static int refuse_mixture(const struct result_set *r)
{
	struct buf b;
	int code = EXIT_OK;

	buf_init(&b, 1u << 16);
	if (mixes_gpus(r->v, r->n, &b))
		code = cli_usage("%s: results of different GPUs are not compared by default; "
				 "to compare them, give --across-gpus",
				 b.p);
	buf_done(&b);
	return code;
}

static int result_set_load(struct result_set *r, const struct cli *c, bool across)
{
	char error[512];
	int code = EXIT_OK;

	if (c->argc == 0)
		return cli_usage("no result is given: name at least one result file of gpuward "
				 "measure");
	r->v = calloc((size_t)c->argc, sizeof(*r->v));
	if (!r->v)
		return cli_no_memory();
	for (int i = 0; i < c->argc; i++) {
		if (given_twice(c, i))
			return cli_usage("%s is given twice; give it only once", c->argv[i]);
		if (result_file_read(&r->v[r->n], c->argv[i], NULL, 0, error, sizeof(error)) ==
		    0) {
			r->n++;
			if (is_copy(r))
				return EXIT_USAGE;
		} else {
			code = cli_fail("%s", error);
		}
	}
	return code == EXIT_OK && !across ? refuse_mixture(r) : code;
}

int result_set_with(const struct cli *c, const char *output, bool across,
		    int (*work)(const struct cli *c, const struct result_set *r))
{
	struct result_set r = { .v = NULL };
	int code = output_spares(output, c->argv, c->argc);

	if (code == EXIT_OK)
		code = result_set_load(&r, c, across);
	if (code == EXIT_OK)
		code = work(c, &r);
	for (size_t i = 0; i < r.n; i++)
		result_file_free(&r.v[i]);
	free(r.v);
	return code;
}

static int refuse_reference(const struct comparison *c, const char *label)
{
	const char *near = suggest(label, (const char *const *)&c->rows[0].label, c->nrows,
				   sizeof(c->rows[0]));
	char clean[200], list[600] = "";
	struct buf b;

	if (near) {
		utf8_clean(clean, sizeof(clean), near);
		return cli_usage(
			"--reference: no result has the label '%s' (did you mean '%s'?)", label,
			clean);
	}
	buf_init_fixed(&b, list, sizeof(list));
	for (size_t i = 0; i < c->nrows && b.len < 400; i++) {
		utf8_clean(clean, sizeof(clean), c->rows[i].label);
		buf_addf(&b, "%s'%s'", i ? ", " : "", clean);
	}
	return cli_usage("--reference: no result has the label '%s'; the labels are: %s", label,
			 list);
}

int result_set_compare(const struct result_set *r, const char *reference,
		       struct comparison *ret)
{
	int err = comparison_init(ret, r->v, r->n, reference, false);

	if (err == -GW_E_NOENT)
		return refuse_reference(ret, reference);
	if (err)
		return cli_no_memory();
	if (reference && ret->reference->used == 0)
		return cli_fail("--reference: '%s' has no usable run, so nothing can be "
				"compared with it",
				reference);
	return EXIT_OK;
}
