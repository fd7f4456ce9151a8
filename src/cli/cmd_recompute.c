/* recompute: works a bundle's windows out again, from its readings. */
#include "cli.h"
#include "table.h"

#include "base/utf8.h"
#include "measure/bundle.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { GPU, WINDOW, THEN, NOW, CHANGE, METER, VALIDITY };

static const struct table_column columns[] = {
	[GPU] = { "GPU", 0, true, false },
	[WINDOW] = { "WINDOW", 0, false, true },
	[THEN] = { "THEN", 1, true, false },
	[NOW] = { "NOW", 0, true, false },
	[CHANGE] = { "CHANGE", 0, false, false },
	[METER] = { "METER", 3, false, false },
	[VALIDITY] = { "VALIDITY", 2, false, false },
	{ NULL, 0, false, false },
};

struct seen {
	struct table *table; /* or ... */
	struct json *json;
};

static const char *change_of(const struct bundle_found *f, char *out, size_t size)
{
	if (f->cut)
		snprintf(out, size, "cut off");
	else if (!f->recorded)
		snprintf(out, size, "not told then");
	else if (f->same)
		snprintf(out, size, "none, to the bit");
	else if (isnan(f->energy.joules.best) || !(f->then.best > 0))
		snprintf(out, size, "not the same");
	else
		snprintf(out, size, "%+.3g %%",
			 100 * (f->energy.joules.best / f->then.best - 1));
	return out;
}

static void joules(struct table *t, unsigned column, double j)
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
		joules(t, THEN, f->then.best);
	joules(t, NOW, f->energy.joules.best);
	table_set(t, CHANGE, f->same ? TERM_PLAIN : TERM_MARK, "%s",
		  change_of(f, change, sizeof(change)));
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
	json_string(j, "meter", gw_meter_kind_name(f->energy.meter));
	json_string(j, "verdict", gw_verdict_name(f->energy.verdict));
	json_string(j, "validity", gw_validity_name(f->energy.validity));
	json_array(j, "codes");
	for (unsigned c = 0; c < GW_CODES; c++)
		if (f->energy.codes >> c & 1)
			json_string(j, NULL, gw_code_info(c)->key);
	json_array_end(j);
	json_object_end(j);
}

static void visit(void *arg, const struct bundle_found *f)
{
	struct seen *s = arg;

	if (s->json)
		add_object(s->json, f);
	else
		add_row(s->table, f);
}

/* Anything that a reader of the figures must know; true: they are not what they were. */
static bool judge(const struct bundle_summary *s, const char *dir)
{
	if (s->sums && !s->whole)
		cli_error("%s/%s is not as it was written", dir, s->spoilt);
	if (!s->sums)
		cli_error("%s was not finished: it has no SHA256SUMS", dir);
	if (s->bad_lines)
		cli_error("%llu lines of readings could not be read",
			  (unsigned long long)s->bad_lines);
	if (s->same < s->recorded)
		cli_error("%u of %u windows come out otherwise than then%s%s%s",
			  s->recorded - s->same, s->recorded,
			  strcmp(s->version, gw_version()) ? ", by version " : "",
			  strcmp(s->version, gw_version()) ? s->version : "",
			  strcmp(s->version, gw_version()) ? "; models may have changed" : "");
	return (s->sums && !s->whole) || s->bad_lines || s->same < s->recorded;
}

static int print_json(const char *dir, struct bundle_summary *sum, char *message, size_t size)
{
	struct cli_document doc;
	struct seen s = { .json = &doc.json };
	int err;

	cli_document_begin(&doc, true);
	json_object(&doc.json, NULL);
	json_uint(&doc.json, "schema_version", 1);
	json_string(&doc.json, "kind", "recompute");
	json_array(&doc.json, "windows");
	err = bundle_recompute(dir, visit, &s, sum, message, size);
	if (err) {
		buf_done(&doc.buf);
		return err;
	}
	json_array_end(&doc.json);
	json_string(&doc.json, "version_then", sum->version);
	json_string(&doc.json, "version_now", gw_version());
	json_bool(&doc.json, "finished", sum->sums);
	json_bool(&doc.json, "whole", sum->whole);
	json_uint(&doc.json, "bad_lines", sum->bad_lines);
	json_object_end(&doc.json);
	return cli_document_end(&doc) == EXIT_OK ? 0 : -GW_E_IO;
}

static int print_table(const char *dir, struct bundle_summary *sum, char *message, size_t size)
{
	struct table t;
	struct seen s = { .table = &t };
	int err;

	table_init(&t, columns);
	err = bundle_recompute(dir, visit, &s, sum, message, size);
	if (!err && t.rows)
		table_print(&t, term_width());
	if (!err && !t.rows)
		printf("No window was measured.\n");
	table_done(&t);
	return err;
}

static int run(struct cli *c)
{
	struct bundle_summary sum;
	char message[5000] = "";
	int err;

	if (c->argc != 1) {
		cli_error("recompute wants the folder of one bundle");
		return EXIT_USAGE;
	}
	err = c->json ? print_json(c->argv[0], &sum, message, sizeof(message))
		      : print_table(c->argv[0], &sum, message, sizeof(message));
	if (err) {
		if (*message)
			cli_error("%s", message);
		return EXIT_FAILED;
	}
	return judge(&sum, c->argv[0]) ? EXIT_FAILED : EXIT_OK;
}

const struct command command_recompute = {
	.name = "recompute",
	.summary = "the windows of a bundle, worked out again from its readings",
	.description =
		"Feeds the readings of a bundle (gpuward measure --bundle) to the energy "
		"engine "
		"again and compares: the same version gives the same joules to the bit, a "
		"newer "
		"one says what its models make of them. Files that were changed are named. A "
		"bundle that was cut off is worked out as far as it goes.",
	.examples = "  gpuward recompute run1\n  gpuward recompute --json run1 | jq .windows\n",
	.arguments = "BUNDLE",
	.offline = true,
	.run = run,
};
