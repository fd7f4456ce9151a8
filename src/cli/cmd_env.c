#include "cli.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define VALUE_COLUMN 35 /* behind the longest key */

static void line(const char *key, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void line(const char *key, const char *fmt, ...)
{
	char text[1024], left[64];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(left, sizeof(left), "  %-32s", key);
	if (VALUE_COLUMN + utf8_columns(text) <= term_width()) {
		printf("%s %s\n", left, text);
	} else { /* one that is cut in two cannot be copied */
		printf("  %s\n", key);
		term_wrap("", 4, text, term_width());
	}
}

static void heading(const char *text)
{
	printf("%s%s%s\n", term_on(TERM_BOLD), text, term_off());
}

static bool ends(const char *key, const char *tail)
{
	size_t n = strlen(key), t = strlen(tail);

	return n >= t && strcmp(key + n - t, tail) == 0;
}

static void print_number(const char *key, double v)
{
	static const struct {
		const char *tail, *unit;
		double scale;
	} units[] = {
		{ "_watts", "W", 1 },      { "_celsius", "degrees C", 1 },
		{ "_hertz", "MHz", 1e-6 }, { "_seconds", "s", 1 },
		{ "_joules", "J", 1 },     { "_ratio", "%", 100 },
		{ "_lanes", "lanes", 1 },
	};
	char size[16];

	if (ends(key, "_bytes")) {
		cli_bytes(size, v);
		line(key, "%s", size);
		return;
	}
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (ends(key, units[i].tail)) {
			line(key, "%.10g %s", v * units[i].scale, units[i].unit);
			return;
		}
	line(key, "%.10g", v);
}

static void print_fact(const struct gw_fact *f)
{
	if (f->absence != GW_HAVE) {
		line(f->key, "- (%s)", gw_absence_text(f->absence));
	} else if (f->type == GW_FACT_TEXT) {
		line(f->key, "%s", *f->text ? f->text : "none");
	} else if (f->type == GW_FACT_FLAG) {
		line(f->key, "%s", f->number != 0 ? "yes" : "no");
	} else {
		print_number(f->key, f->number);
	}
}

static void print_value(const struct cli *c, const struct gw_device *d, unsigned q)
{
	const struct gw_quantity_info *info = gw_quantity_info(q);
	char name[128];
	double v = 0;
	enum gw_absence why = gw_device_value(d, q, &v);

	if (why != GW_HAVE) {
		if (c->verbose)
			line(info->key, "- (%s)", gw_absence_text(why));
	} else if (info->kind == GW_KIND_FLAG) {
		line(info->key, "%s", v != 0 ? "yes" : "no");
	} else if (gw_quantity_name(q, v, name, sizeof(name)) == 0) {
		line(info->key, "%s", *name ? name : "none");
	} else {
		print_number(info->key, v);
	}
}

static void print_device(const struct cli *c, const struct gw_device *d)
{
	char title[32];

	snprintf(title, sizeof(title), "gpu %u", d->index);
	heading(title);
	for (unsigned t = 0; t < GW_TEXTS; t++)
		if (gw_device_text(d, t))
			line(gw_text_key(t), "%s", gw_device_text(d, t));
	line("provenance", "%s", gw_provenance_name(d->provenance));
	line("state", "%s%s%s", gw_device_state_name(d->state), *d->message ? ": " : "",
	     d->message);
	for (unsigned q = 0; q < GW_QUANTITIES; q++)
		if (gw_quantity_info(q)->tier & (GW_TIER_STATIC | GW_TIER_HEALTH) ||
		    q == GW_Q_MEMORY_TOTAL || q == GW_Q_TEMPERATURE_GPU || q == GW_Q_CLOCK_SM ||
		    q == GW_Q_CLOCK_MEMORY)
			print_value(c, d, q);
}

static void print_text(const struct cli *c, const struct gw_environment *env)
{
	const struct gw_status *s = gw_snapshot_status(c->snap);
	const char *section = "";

	cli_preface(c);
	for (unsigned i = 0; i < gw_environment_count(env); i++) {
		const struct gw_fact *f = gw_environment_get(env, i);

		if (f->absence != GW_HAVE && !c->verbose)
			continue;
		if (strcmp(section, f->section) != 0)
			heading(f->section);
		section = f->section;
		print_fact(f);
	}
	heading("driver");
	line("backend", "%s", s->backend);
	line("driver_version", "%s", s->driver_version ? s->driver_version : "-");
	line("cuda_driver_version", "%s", s->cuda_version ? s->cuda_version : "-");
	line("nvml_version", "%s", s->nvml_version ? s->nvml_version : "-");
	for (unsigned i = 0; i < gw_snapshot_device_count(c->snap); i++)
		if (render_shows(&c->filter, i))
			print_device(c, gw_snapshot_device(c->snap, i));
}

static int show(const struct cli *c, const struct gw_environment *env)
{
	struct buf out;
	struct json j;
	int code;

	if (!c->json) {
		print_text(c, env);
		return EXIT_OK;
	}
	buf_init(&out, 16u << 20);
	json_init(&j, &out, true);
	render_environment(&j, env, c->snap, &c->filter);
	json_end(&j);
	code = cli_write(&out);
	buf_done(&out);
	return code;
}

static int run(struct cli *c)
{
	struct gw_environment *env;
	int code = cli_open(c, GW_TIERS_COMMON), err;

	if (code != EXIT_OK)
		return code;
	err = gw_environment_new(c->ctx, &env);
	if (err) {
		cli_error("%s", gw_strerror(err));
		return EXIT_FAILED;
	}
	code = show(c, env);
	gw_environment_free(env);
	return code == EXIT_OK ? cli_outcome(c) : code;
}

const struct command command_env = {
	.name = "env",
	.summary = "what a published result should say about this machine",
	.description = "Prints the facts that make a measurement repeatable: GPUs, driver, "
		       "limits, clocks, CPU, "
		       "memory, kernel, container. cuda_driver_version is the newest CUDA that "
		       "the driver can "
		       "run, not an installed toolkit. -v also shows what could not be found "
		       "out, and why.",
	.examples = "  gpuward env\n"
		    "  gpuward env --json > environment.json\n",
	.run = run,
};
