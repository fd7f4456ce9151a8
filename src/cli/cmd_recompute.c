/* recompute: computes the windows of a bundle again from its samples. */
#include "bundle_open.h"
#include "calibrate.h"
#include "cli.h"
#include "result_file.h"
#include "table.h"

#include "base/array.h"
#include "base/number.h"
#include "base/utf8.h"
#include "measure/bundle.h"
#include "serve/timespec_parse.h"
#include "serve/render.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct given {
	const char *calibrate, *accuracy;
	double device; /* The GPU to calibrate. NAN: --device is not given. */
};

#define COLUMNS(X)                           \
	X(GPU, "GPU", 0, true, false)        \
	X(WINDOW, "WINDOW", 0, false, true)  \
	X(TRIAL, "TRIAL", 1, true, false)    \
	X(THEN, "THEN", 2, true, false)      \
	X(NOW, "NOW", 0, true, false)        \
	X(CHANGE, "CHANGE", 0, false, false) \
	X(METER, "METER", 3, false, false)   \
	X(VALIDITY, "VALIDITY", 1, false, false)

enum { COLUMNS(TABLE_SYMBOL) };
static const struct table_column columns[] = { COLUMNS(TABLE_COLUMN) TABLE_END };

/* A window of the bundle, kept until all windows are known. */
struct kept_window {
	struct bundle_found f; /* Use only the figures. The pointers are not valid any more. */
	char label[256], uuid[96];
	/* Number of the run that the window belongs to. NAN: it belongs to no run. */
	double trial;
	const char *validity; /* Validity of the run in result.json. NULL: unknown. */
	const char *code;     /* The code that makes the run invalid. NULL: none. */
};

struct output_to {
	struct kept_window *v;
	unsigned n, room;
	int err; /* The first error, or 0. */
	/* The calibration of the GPU `device`. NULL: no calibration. */
	const struct calibration *calibration;
	unsigned device;
};

#define WARM_UP "warm-up" /* Label of the windows of warm-up runs. */

/* Returns the window of the whole run. If w is a marked part, this is the window around w;
 * otherwise it is w itself. */
static const struct kept_window *run_of(const struct output_to *s, const struct kept_window *w)
{
	for (unsigned i = 0; i < s->n; i++)
		if (w->f.device == s->v[i].f.device &&
		    bundle_is_inside(&w->f.energy, &s->v[i].f.energy))
			return run_of(s, &s->v[i]);
	return w;
}

/* Returns how many runs of the same GPU came before this run. Warm-ups do not count. */
static unsigned runs_before(const struct output_to *s, const struct kept_window *run)
{
	unsigned n = 0;

	for (unsigned i = 0; i < s->n; i++)
		n += s->v[i].f.device == run->f.device && s->v[i].f.id < run->f.id &&
		     run_of(s, &s->v[i]) == &s->v[i] && strcmp(s->v[i].label, WARM_UP) != 0;
	return n;
}

/* Fills in what result.json says about the run of each window, because the samples do not show,
 * for example, that the command failed. result is NULL if the bundle has no readable
 * result.json. */
static void number_trials(struct output_to *s, const struct result_file *result)
{
	for (unsigned i = 0; i < s->n; i++) {
		struct kept_window *w = &s->v[i];
		const struct kept_window *run = run_of(s, w);
		unsigned before = runs_before(s, run);
		const struct result_run *r =
			result && before < result->nruns ? &result->runs[before] : NULL;

		w->trial = NAN;
		if (strcmp(run->label, WARM_UP) == 0)
			continue;
		w->trial = r ? r->trial : before + 1;
		w->validity = r ? r->validity : NULL;
		for (size_t k = 0; r && k < r->ncodes && !w->code; k++)
			if (r->codes[k].level && strcmp(r->codes[k].level, "invalid") == 0)
				w->code = r->codes[k].code;
	}
}

/* Returns true if the run is invalid for a reason that is not in the samples. */
static bool run_failed(const struct kept_window *w)
{
	return w->validity && strcmp(w->validity, "invalid") == 0 &&
	       w->f.energy.validity < GW_INVALID;
}

static const char *change_text(const struct bundle_found *f, char *out, size_t size)
{
	if (f->cut)
		snprintf(out, size, "truncated");
	else if (!f->recorded)
		snprintf(out, size, "not recorded");
	else if (f->same)
		snprintf(out, size, "none (identical)");
	else if (isnan(f->energy.joules.best) || !(f->then.best > 0))
		snprintf(out, size, "different");
	else
		snprintf(out, size, "%+.3g %%",
			 100 * (f->energy.joules.best / f->then.best - 1));
	return out;
}

static void set_joules(struct table *t, unsigned column, double j)
{
	if (isnan(j))
		table_set(t, column, TERM_DIM, "unknown");
	else
		table_set(t, column, TERM_PLAIN, "%.6g J", j);
}

static void add_row(struct table *t, const struct kept_window *w)
{
	const struct bundle_found *f = &w->f;
	char change[32], label[64];

	table_row(t);
	table_set(t, GPU, TERM_PLAIN, "%u", f->device);
	utf8_clean(label, sizeof(label), w->label);
	table_set(t, WINDOW, TERM_PLAIN, "%s", *label ? label : "-");
	if (!isnan(w->trial))
		table_set(t, TRIAL, TERM_PLAIN, "%.0f", w->trial);
	if (f->recorded)
		set_joules(t, THEN, f->then.best);
	set_joules(t, NOW, f->energy.joules.best);
	table_set(t, CHANGE, f->same ? TERM_PLAIN : TERM_MARK, "%s",
		  change_text(f, change, sizeof(change)));
	table_set(t, METER, TERM_PLAIN, "%s", gw_meter_kind_name(f->energy.meter));
	if (run_failed(w))
		table_set(t, VALIDITY, TERM_BAD, "invalid%s%s", w->code ? ": " : "",
			  w->code ? w->code : "");
	else
		table_set(t, VALIDITY, TERM_PLAIN, "%s", gw_validity_name(f->energy.validity));
}

static void add_object(struct json *j, const struct kept_window *w)
{
	const struct bundle_found *f = &w->f;

	json_object(j, NULL);
	json_uint(j, "device", f->device);
	json_string(j, "uuid", *w->uuid ? w->uuid : NULL);
	json_uint(j, "window", f->id);
	json_string(j, "label", w->label);
	json_double(j, "trial", w->trial);
	json_bool(j, "recorded", f->recorded);
	json_bool(j, "same", f->same);
	json_bool(j, "cut", f->cut);
	json_double(j, "then_joules", f->recorded ? f->then.best : NAN);
	json_object(j, "energy_joules");
	json_double(j, "low", f->energy.joules.low);
	json_double(j, "best", f->energy.joules.best);
	json_double(j, "high", f->energy.joules.high);
	json_object_end(j);
	json_double(j, "energy_raw_joules", f->energy.raw_joules);
	json_string(j, "meter", gw_meter_kind_name(f->energy.meter));
	json_string(j, "verdict", gw_verdict_name(f->energy.verdict));
	json_string(j, "validity", gw_validity_name(f->energy.validity));
	json_string(j, "run_validity", w->validity);
	render_codes(j, f->energy.codes);
	json_object_end(j);
}

static void keep_window(void *arg, const struct bundle_found *f)
{
	struct output_to *s = arg;
	struct sensor sensor = f->setup->sensor;
	struct kept_window *w;

	if (array_reserve(&s->v, &s->room, s->n + 1, sizeof(*s->v)) != 0) {
		s->err = -GW_E_NOMEM;
		return;
	}
	w = &s->v[s->n++];
	*w = (struct kept_window){ .f = *f };
	snprintf(w->label, sizeof(w->label), "%s", f->label);
	snprintf(w->uuid, sizeof(w->uuid), "%s", f->uuid);
	if (s->calibration && f->device == s->device) {
		calibration_apply(s->calibration, &sensor);
		energy_calibrate(&w->f.energy, &sensor.calibration);
	}
}

static void print_problem(void *arg, const char *sentence)
{
	(void)arg;
	cli_error("%s", sentence);
}

/* Prints the problems of the bundle. Returns true if a file was changed, if a line could not be
 * read, or if a computed result differs from the recorded one. */
static bool print_problems(const struct bundle_summary *s, const char *dir)
{
	bundle_problems(s, dir, print_problem, NULL);
	if (s->same < s->recorded)
		cli_error("%u of %u windows differ from the recorded result%s%s%s",
			  s->recorded - s->same, s->recorded,
			  strcmp(s->version, gw_version()) ? " of version " : "",
			  strcmp(s->version, gw_version()) ? s->version : "",
			  strcmp(s->version, gw_version())
				  ? "; the cause may be that gpuward's energy models changed"
				  : "");
	return s->check == BUNDLE_CHANGED || s->bad_lines || s->same < s->recorded;
}

static int print_json(const struct output_to *s, const struct bundle_summary *sum)
{
	struct cli_document doc;

	cli_document_begin(&doc, true);
	json_object(&doc.json, NULL);
	json_uint(&doc.json, "schema_version", RENDER_SCHEMA_VERSION);
	json_string(&doc.json, "kind", "recompute");
	json_bool(&doc.json, "simulated", sum->simulated);
	json_array(&doc.json, "windows");
	for (unsigned i = 0; i < s->n; i++)
		add_object(&doc.json, &s->v[i]);
	json_array_end(&doc.json);
	render_calibration(&doc.json, "calibration",
			   s->calibration ? &s->calibration->summary : NULL);
	json_string(&doc.json, "version_then", sum->version);
	json_string(&doc.json, "version_now", gw_version());
	json_bool(&doc.json, "finished", sum->check != BUNDLE_UNFINISHED);
	json_bool(&doc.json, "whole", sum->check == BUNDLE_WHOLE);
	json_uint(&doc.json, "bad_lines", sum->bad_lines);
	json_object_end(&doc.json);
	return cli_document_end(&doc);
}

static void print_calibration(const struct measured_calibration *c, unsigned device)
{
	const char *pm = term_plain("±");

	term_row(0, "",
		 "GPU %u is calibrated by %s: gain %.4f %s %.4f, offset %+.1f W (%s %.1f W at "
		 "%.0f W). The fit has %zu points; its residuals have a standard deviation of "
		 "%.1f W. The columns THEN and CHANGE are not calibrated.",
		 device, c->trace, c->gain, pm, 1.96 * c->gain_u,
		 number_without_minus_zero(c->offset_w, 1), pm, 1.96 * c->offset_u_w,
		 c->pivot_w, c->points, c->residual_w);
	if (!isnan(c->correlation))
		term_row(0, "", "The delay of the trace is %.2f s; correlation %.4f.", c->lag_s,
			 c->correlation);
	for (unsigned i = 0; i < MEASURED_NOTES && *c->note[i]; i++)
		term_row(0, "", "%s", c->note[i]);
}

static void print_table(const struct output_to *s, const struct bundle_summary *sum)
{
	struct table t;

	if (sum->simulated)
		term_print_simulated(stdout);
	table_init(&t, columns);
	for (unsigned i = 0; i < s->n; i++)
		add_row(&t, &s->v[i]);
	table_print(&t, term_width());
	if (!t.rows && !t.error)
		printf("The bundle has no window.\n");
	if (s->calibration)
		print_calibration(&s->calibration->summary, s->device);
	table_done(&t);
}

struct samples {
	struct power_record record;
	uint64_t first_ns;
};

static void add_sample(void *arg, uint64_t t_ns, double watts)
{
	struct samples *s = arg;

	if (!s->first_ns)
		s->first_ns = t_ns;
	power_record_add(&s->record, (double)t_ns * 1e-9, watts);
}

/* Returns the wall clock minus the clock of the samples, in seconds. An old bundle does not
 * contain the monotonic time of its creation. Then the time of the first sample is used
 * instead, which is a little later; the fit finds this difference as a part of the lag. */
static double wall_ahead_s(const struct bundle_summary *sum, uint64_t first_ns)
{
	uint64_t wall_ns = 0;

	(void)timespec_parse(sum->created, 0, &wall_ns);
	return ((double)wall_ns - (double)(sum->mono_ns ? sum->mono_ns : first_ns)) * 1e-9;
}

static int choose_device(const struct given *g, const struct bundle_summary *sum, unsigned *ret)
{
	*ret = isnan(g->device) ? 0 : (unsigned)g->device;
	if (isnan(g->device) && sum->devices != 1)
		return cli_usage("--calibrate works with one GPU, but the bundle has %u; "
				 "select one with --device",
				 sum->devices);
	return EXIT_OK;
}

static int make_calibration(const struct given *g, const char *dir, struct calibration *c,
			    unsigned *ret_device)
{
	struct samples *s = calloc(1, sizeof(*s));
	struct bundle_summary sum;
	char name[96], message[5000] = "";
	double accuracy;
	bool simulated;
	int err, code = calibration_accuracy(g->accuracy, &accuracy);

	if (!s)
		snprintf(message, sizeof(message), "%s", gw_strerror(-GW_E_NOMEM));
	if (code != EXIT_OK || !s)
		goto end;
	power_record_init(&s->record);
	err = bundle_recompute(dir, NULL, NULL, &sum, message, sizeof(message));
	if (!err)
		code = choose_device(g, &sum, ret_device);
	if (!err && code == EXIT_OK)
		err = bundle_power(dir, *ret_device, add_sample, s, name, sizeof(name),
				   &simulated, message, sizeof(message));
	if (!err && code == EXIT_OK)
		err = calibration_make(c, g->calibrate, &s->record,
				       wall_ahead_s(&sum, s->first_ns), accuracy, message,
				       sizeof(message));
end:
	if (*message)
		code = cli_fail("%s", message);
	free(s);
	return code;
}

static int print_bundle(struct cli *c, struct output_to *s)
{
	struct bundle_summary sum;
	struct result_file result;
	char message[5000] = "", path[4096], why[512];
	bool has_result;
	int code = EXIT_OK,
	    err = bundle_recompute(c->argv[0], keep_window, s, &sum, message, sizeof(message));

	if (err || s->err) {
		free(s->v);
		return *message ? cli_fail("%s", message) : cli_no_memory();
	}
	snprintf(path, sizeof(path), "%s/result.json", c->argv[0]);
	has_result = result_file_read(&result, path, NULL, 0, why, sizeof(why)) == 0;
	number_trials(s, has_result ? &result : NULL);
	if (c->json)
		code = print_json(s, &sum);
	else
		print_table(s, &sum);
	if (has_result)
		result_file_free(&result);
	free(s->v);
	return print_problems(&sum, c->argv[0]) ? EXIT_FAILED : code;
}

static int recompute_run(struct cli *c)
{
	const struct given *g = c->own;
	struct calibration calibration;
	struct output_to how = { .v = NULL };
	int code;

	if (c->argc != 1)
		return cli_usage("give the folder of one bundle: gpuward recompute BUNDLE");
	if (!g->calibrate && (g->accuracy || !isnan(g->device)))
		return cli_usage("--%s needs --calibrate",
				 !isnan(g->device) ? "device" : "calibrate-accuracy");
	if (!g->calibrate)
		return print_bundle(c, &how);
	code = make_calibration(g, c->argv[0], &calibration, &how.device);
	if (code != EXIT_OK)
		return code;
	how.calibration = &calibration;
	code = print_bundle(c, &how);
	trace_done(&calibration.trace);
	return code;
}

#define AT(member) offsetof(struct given, member)
static const struct option options[] = {
	CALIBRATION_OPTIONS(AT(calibrate), AT(accuracy), ""),
	OPTION_COUNT_ROW("device", AT(device),
			 "the GPU to calibrate, if the bundle has several", 0, 63, NAN),
	OPTION_END,
};

const struct command command_recompute = {
	.name = "recompute",
	.summary = "compute the windows of a bundle again from its samples",
	.description =
		"Computes the energy of a bundle (gpuward measure --bundle) again from its "
		"samples and compares it with the recorded result. The same version of gpuward "
		"gives identical joules; a newer version may give other joules, if its energy "
		"models changed. Files that were changed after they were written are "
		"reported. A truncated bundle is computed from the samples that it has.",
	.examples = "  gpuward recompute run1\n  gpuward recompute --json run1 | jq .windows\n"
		    "  gpuward recompute --calibrate pdu.csv run1\n",
	.arguments = "BUNDLE",
	.options = options,
	.options_size = sizeof(struct given),
	.offline = true,
	.run = recompute_run,
};
