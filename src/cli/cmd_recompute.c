/* recompute: computes the windows of a bundle again from its samples. */
#include "calibrate.h"
#include "cli.h"
#include "table.h"

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
	double device; /* NAN: not given */
};

#define COLUMNS(X)                           \
	X(GPU, "GPU", 0, true, false)        \
	X(WINDOW, "WINDOW", 0, false, true)  \
	X(THEN, "THEN", 1, true, false)      \
	X(NOW, "NOW", 0, true, false)        \
	X(CHANGE, "CHANGE", 0, false, false) \
	X(METER, "METER", 3, false, false)   \
	X(VALIDITY, "VALIDITY", 2, false, false)

enum { COLUMNS(TABLE_SYMBOL) };
static const struct table_column columns[] = { COLUMNS(TABLE_COLUMN) TABLE_END };

struct output_to {
	struct table *table; /* NULL: write JSON */
	struct json *json;
	/* calibration of the GPU `device`; NULL: no calibration */
	const struct calibration *calibration;
	unsigned device;
};

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

static void add_row(struct table *t, const struct bundle_found *f)
{
	char change[32], label[64];

	table_row(t);
	table_set(t, GPU, TERM_PLAIN, "%u", f->device);
	utf8_clean(label, sizeof(label), f->label);
	table_set(t, WINDOW, TERM_PLAIN, "%s", *label ? label : "-");
	if (f->recorded)
		set_joules(t, THEN, f->then.best);
	set_joules(t, NOW, f->energy.joules.best);
	table_set(t, CHANGE, f->same ? TERM_PLAIN : TERM_MARK, "%s",
		  change_text(f, change, sizeof(change)));
	table_set(t, METER, TERM_PLAIN, "%s", gw_meter_kind_name(f->energy.meter));
	table_set(t, VALIDITY, TERM_PLAIN, "%s", gw_validity_name(f->energy.validity));
}

static void add_object(struct json *j, const struct bundle_found *f)
{
	json_object(j, NULL);
	json_uint(j, "device", f->device);
	json_string(j, "uuid", *f->uuid ? f->uuid : NULL);
	json_uint(j, "window", f->id);
	json_string(j, "label", f->label);
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
	render_codes(j, f->energy.codes);
	json_object_end(j);
}

static void add_window(void *arg, const struct bundle_found *f)
{
	struct output_to *s = arg;
	struct bundle_found shown = *f;
	struct sensor sensor = f->setup->sensor;

	if (s->calibration && f->device == s->device) {
		calibration_apply(s->calibration, &sensor);
		energy_calibrate(&shown.energy, &sensor.calibration);
	}
	if (s->json)
		add_object(s->json, &shown);
	else
		add_row(s->table, &shown);
}

/* Prints the problems of the bundle. Returns true if a file was changed, if a line could not be
 * read, or if a computed result differs from the recorded one. */
static bool print_problems(const struct bundle_summary *s, const char *dir)
{
	if (s->check == BUNDLE_CHANGED)
		cli_error("%s/%s was changed after it was written", dir, s->changed_file);
	if (s->check == BUNDLE_UNFINISHED)
		cli_error("%s is incomplete: it has no SHA256SUMS", dir);
	if (s->bad_lines)
		cli_error("%llu lines of samples could not be read",
			  (unsigned long long)s->bad_lines);
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

static int print_json(const char *dir, const struct output_to *how, struct bundle_summary *sum,
		      char *message, size_t size)
{
	struct cli_document doc;
	struct output_to s = *how;
	int err;

	s.json = &doc.json;

	cli_document_begin(&doc, true);
	json_object(&doc.json, NULL);
	json_uint(&doc.json, "schema_version", RENDER_SCHEMA_VERSION);
	json_string(&doc.json, "kind", "recompute");
	json_array(&doc.json, "windows");
	err = bundle_recompute(dir, add_window, &s, sum, message, size);
	if (err) {
		buf_done(&doc.buf);
		return err;
	}
	json_array_end(&doc.json);
	render_calibration(&doc.json, "calibration",
			   s.calibration ? &s.calibration->summary : NULL);
	json_string(&doc.json, "version_then", sum->version);
	json_string(&doc.json, "version_now", gw_version());
	json_bool(&doc.json, "finished", sum->check != BUNDLE_UNFINISHED);
	json_bool(&doc.json, "whole", sum->check == BUNDLE_WHOLE);
	json_uint(&doc.json, "bad_lines", sum->bad_lines);
	json_object_end(&doc.json);
	return cli_document_end(&doc) == EXIT_OK ? 0 : -GW_E_IO;
}

static void print_calibration(const struct measured_calibration *c, unsigned device)
{
	const char *pm = term_utf8() ? "±" : "+-";

	term_row(0, "",
		 "GPU %u is calibrated by %s: gain %.4f %s %.4f, offset %+.1f W (%s %.1f W at "
		 "%.0f W). The fit has %zu points; its residuals have a standard deviation of "
		 "%.1f W. The columns THEN and CHANGE are not calibrated.",
		 device, c->trace, c->gain, pm, 1.96 * c->gain_u, c->offset_w, pm,
		 1.96 * c->offset_u_w, c->pivot_w, c->points, c->residual_w);
	if (!isnan(c->correlation))
		term_row(0, "", "The delay of the trace is %.2f s; correlation %.4f.", c->lag_s,
			 c->correlation);
	for (unsigned i = 0; i < MEASURED_NOTES && *c->note[i]; i++)
		term_row(0, "", "%s", c->note[i]);
}

static int print_table(const char *dir, const struct output_to *how, struct bundle_summary *sum,
		       char *message, size_t size)
{
	struct table t;
	struct output_to s = *how;
	int err;

	s.table = &t;
	table_init(&t, columns);
	err = bundle_recompute(dir, add_window, &s, sum, message, size);
	if (!err)
		table_print(&t, term_width());
	if (!err && !t.rows && !t.error)
		printf("The bundle has no window.\n");
	if (!err && s.calibration)
		print_calibration(&s.calibration->summary, s.device);
	table_done(&t);
	return err;
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

/* Returns how far the wall clock is ahead of the times of the samples.  An old bundle has no
 * monotonic creation time.  The time of the first sample, which follows shortly after, is then
 * used instead; the fit finds the remaining lag. */
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
		err = bundle_power(dir, *ret_device, add_sample, s, name, sizeof(name), message,
				   sizeof(message));
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

static int print_bundle(struct cli *c, const struct output_to *how)
{
	struct bundle_summary sum;
	char message[5000] = "";
	int err = c->json ? print_json(c->argv[0], how, &sum, message, sizeof(message))
			  : print_table(c->argv[0], how, &sum, message, sizeof(message));

	if (err) {
		if (*message)
			cli_error("%s", message);
		return EXIT_FAILED;
	}
	return print_problems(&sum, c->argv[0]) ? EXIT_FAILED : EXIT_OK;
}

static int recompute_run(struct cli *c)
{
	const struct given *g = c->own;
	struct calibration calibration;
	struct output_to how = { .calibration = NULL };
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
	calibration_done(&calibration);
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
		"gives identical joules; a newer version may give other joules, because its "
		"energy models changed. Files that were changed since are reported. A "
		"truncated bundle is computed from the samples that it has.",
	.examples = "  gpuward recompute run1\n  gpuward recompute --json run1 | jq .windows\n"
		    "  gpuward recompute --calibrate pdu.csv run1\n",
	.arguments = "BUNDLE",
	.options = options,
	.options_size = sizeof(struct given),
	.offline = true,
	.run = recompute_run,
};
