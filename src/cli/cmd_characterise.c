/* characterise: measures the properties of the power sensors of this machine. */
#include "cli.h"
#include "output.h"
#include "table.h"

#include "base/clock.h"
#include "base/number.h"
#include "measure/cuda.h"
#include "measure/sensor.h"
#include "serve/render_sensor.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct outcome {
	unsigned device; /* Position of the GPU in the snapshot. */
	bool known;      /* True: `sensor` has values, which were measured, saved or assumed. */
	bool unsaved;    /* The values could not be saved. */
	int error;       /* The error of the measurement, or 0. */
	struct sensor sensor;
	char message[512]; /* A note or an error. "": none. */
	char path[4096];   /* The file in which the values are saved. "": they are not saved. */
};

static void show_progress(void *ctx, const char *what, double done_ratio)
{
	const struct gw_device *d = ctx;

	progress_show("GPU %u: %s (%.0f %%)", d->index, what, 100 * done_ratio);
}

struct given {
	bool active, show, no_save;
};

#define given(cli) ((const struct given *)(cli)->own)

static int characterise_device(const struct cli *c, const struct gw_device *d,
			       struct outcome *o)
{
	struct cuda_drive cuda;
	struct sensor_plan plan = { .ctx = (void *)(uintptr_t)d };
	int err;

	if (given(c)->active && d->provenance == GW_FROM_SIMULATOR) {
		snprintf(o->message, sizeof(o->message),
			 "a simulated GPU cannot run a load: leave out --active");
		return -GW_E_NOSUPPORT;
	}
	if (given(c)->active && d->vendor != GW_VENDOR_NVIDIA) {
		snprintf(o->message, sizeof(o->message),
			 "--active needs CUDA, and this is not an NVIDIA GPU: leave out "
			 "--active");
		return -GW_E_NOSUPPORT;
	}
	cuda_drive_init(&cuda, clock_real());
	if (given(c)->active)
		plan.drive = &cuda.drive;
	if (progress_possible(c->quiet))
		plan.progress = show_progress;
	err = sensor_characterise(c->ctx, o->device, &plan, &o->sensor, o->message,
				  sizeof(o->message));
	if (progress_possible(c->quiet))
		progress_clear();
	if (err && !*o->message)
		snprintf(o->message, sizeof(o->message), "%s", gw_strerror(err));
	return err;
}

/* Saves the sensor.  Keeps an earlier calibration of this card with an external meter. */
static int save_sensor(struct sensor *s, const char *dir, char *message, size_t size)
{
	struct sensor before = *s;
	char unused[512];

	if (sensor_load(&before, dir, unused, sizeof(unused)) == 0 && before.calibration.done)
		s->calibration = before.calibration;
	return sensor_save(s, dir, message, size);
}

static void save_outcome(struct outcome *o)
{
	char dir[3800];

	if (sensor_directory(dir, sizeof(dir)) != 0) {
		snprintf(o->message, sizeof(o->message),
			 "neither XDG_CACHE_HOME nor HOME is set to a folder");
		o->unsaved = true;
	} else if (save_sensor(&o->sensor, dir, o->message, sizeof(o->message)) != 0) {
		o->unsaved = true;
	} else {
		(void)sensor_key(&o->sensor, dir, o->path, sizeof(o->path));
	}
}

static void load_sensor(const struct cli *c, struct outcome *o)
{
	char dir[3800];
	bool have = sensor_directory(dir, sizeof(dir)) == 0;

	o->error = sensor_known(c->ctx, o->device, have ? dir : NULL, &o->sensor, o->message,
				sizeof(o->message));
	o->known = o->error == 0;
	if (o->known && o->sensor.origin != SENSOR_ASSUMED)
		(void)sensor_key(&o->sensor, dir, o->path, sizeof(o->path));
}

static void process_device(const struct cli *c, struct outcome *o)
{
	const struct gw_device *d = gw_snapshot_device(c->snap, o->device);

	if (d->state != GW_DEVICE_OK) {
		o->error = -GW_E_STATE;
		snprintf(o->message, sizeof(o->message), "%s", d->message);
	} else if (given(c)->show) {
		load_sensor(c, o);
	} else {
		o->error = characterise_device(c, d, o);
		o->known = o->error == 0;
		if (o->known && !given(c)->no_save)
			save_outcome(o);
	}
}

enum { SOURCE, EVERY, COVERS, LATE, COST, WORST, FROM };

static const struct table_column columns[] = {
	[SOURCE] = { "SOURCE", 0, false, false }, [EVERY] = { "NEW EVERY", 0, true, false },
	[COVERS] = { "COVERS", 1, true, false },  [LATE] = { "DELAY", 1, true, false },
	[COST] = { "CALL p50", 3, true, false },  [WORST] = { "p99", 4, true, false },
	[FROM] = { "FROM", 2, false, true },      { NULL, 0, false, false },
};

static const char *time_text(char out[static 32], double s)
{
	if (s > 0 && s < 1e-3)
		snprintf(out, 32, "%.3g %s", s * 1e6, term_plain("µs"));
	else if (s < 1)
		snprintf(out, 32, "%.4g ms", s * 1e3);
	else
		snprintf(out, 32, "%.4g s", s);
	return out;
}

static void set_time(struct table *t, unsigned column, enum term_style style, double s)
{
	char text[32];

	if (!isnan(s))
		table_set(t, column, style, "%s", time_text(text, s));
}

static void add_source(struct table *t, const char *name, const struct sensor_source *s,
		       bool active)
{
	enum term_style learned = active ? TERM_PLAIN : TERM_DIM;
	const char *note = sensor_source_note(s);

	table_row(t);
	table_set(t, SOURCE, TERM_PLAIN, "%s", name);
	if (s->why != GW_HAVE) {
		table_set(t, FROM, TERM_DIM, "%s", note);
		return;
	}
	set_time(t, EVERY, s->changes ? TERM_PLAIN : TERM_DIM, s->period_s);
	set_time(t, COVERS, learned, s->window_s);
	set_time(t, LATE, learned, s->lag_s);
	set_time(t, COST, TERM_PLAIN, s->call_p50_s);
	set_time(t, WORST, TERM_PLAIN, s->call_p99_s);
	if (s->changes == 0)
		table_set(t, FROM, TERM_DIM, "%s", note);
	else
		table_set(t, FROM, TERM_PLAIN, "%u changes%s%s", s->changes, note ? "; " : "",
			  note ? note : "");
}

static void add_counter(struct table *t, const struct sensor *s)
{
	table_row(t);
	table_set(t, SOURCE, TERM_PLAIN, "counter");
	if (s->counter != GW_HAVE) {
		table_set(t, FROM, TERM_DIM, "%s", gw_absence_text(s->counter));
		return;
	}
	set_time(t, EVERY, s->ticks ? TERM_PLAIN : TERM_DIM, s->tick_s);
	set_time(t, LATE, s->origin == SENSOR_ACTIVE ? TERM_PLAIN : TERM_DIM, s->counter_lag_s);
	set_time(t, COST, TERM_PLAIN, s->counter_p50_s);
	set_time(t, WORST, TERM_PLAIN, s->counter_p99_s);
	if (s->ticks)
		table_set(t, FROM, TERM_PLAIN, "%u ticks", s->ticks);
	else
		table_set(t, FROM, TERM_DIM, "assumed; no tick was observed");
}

static void print_rates(const struct sensor *s)
{
	char key[64], text[32];

	for (unsigned i = 0; i < SENSOR_RATES; i++) {
		const struct sensor_rate *r = &s->rate[i];

		if (isnan(r->every_s))
			continue;
		snprintf(key, sizeof(key), "counter read every %s",
			 time_text(text, r->every_s));
		figure_line(key, "%.2f W compared with %.2f W (%+.2f %%)", r->counter_w,
			    r->reference_w,
			    number_without_minus_zero(100 * (r->counter_w / r->reference_w - 1),
						      2));
	}
	if (s->counter != GW_HAVE)
		return;
	if (s->counter_unsafe)
		figure_line("counter may be read",
			    "never: reading disturbs the counter at every tested rate");
	else
		figure_line("counter may be read", "every %s",
			    time_text(text, s->counter_safe_s));
}

static void print_title(const struct gw_device *d, const struct outcome *o)
{
	const char *name = gw_device_text(d, GW_T_NAME);
	char time[CLOCK_RFC3339_SIZE];

	printf("%sGPU %u  %s%s", term_on(TERM_BOLD), d->index, name ? name : "", term_off());
	if (o->known && o->sensor.wall_ns) {
		clock_format_rfc3339(o->sensor.wall_ns, time);
		printf("  %s %s", sensor_origin_words(o->sensor.origin), time);
	} else if (o->known) {
		printf("  %s; typical values are used", sensor_origin_words(o->sensor.origin));
	}
	putchar('\n');
}

static void print_sensor(const struct sensor *s)
{
	bool active = s->origin == SENSOR_ACTIVE;
	struct table t;

	table_init(&t, columns);
	add_source(&t, "ring", &s->ring, active);
	add_source(&t, "instant", &s->instant, active);
	add_source(&t, "average", &s->average, active);
	add_counter(&t, s);
	table_end(&t, term_width());
	if (s->ring.why == GW_HAVE)
		figure_line("ring", "%u entries, %.4g s%s", s->ring_entries, s->ring_span_s,
			    s->ring_wall ? ", wall-clock timestamps" : "");
	if (s->ring.why == GW_HAVE && !isnan(s->ring_gap_p10_s))
		figure_line("ring spacing, p10 to p90", "%.4g to %.4g ms",
			    s->ring_gap_p10_s * 1e3, s->ring_gap_p90_s * 1e3);
	print_rates(s);
	figure_line("power is measured for", "%s",
		    s->module_scope ? "the module, CPU included" : "the board");
	if (s->calibration.done)
		figure_line("calibrated", "gain %.4f, offset %+.1f W, by an external meter",
			    s->calibration.gain,
			    number_without_minus_zero(s->calibration.offset_w, 1));
	if (!active)
		figure_line("covers, delay",
			    "assumed; --active measures them with its own load");
}

static int print_text(const struct cli *c, const struct outcome *o, unsigned n)
{
	cli_print_status(c);
	for (unsigned i = 0; i < n; i++) {
		print_title(gw_snapshot_device(c->snap, o[i].device), &o[i]);
		if (o[i].known)
			print_sensor(&o[i].sensor);
		if (*o[i].path)
			figure_line("saved in", "%s", o[i].path);
		if (*o[i].message && o[i].known && !o[i].unsaved)
			figure_line("note", "%s", o[i].message);
	}
	fflush(stdout);
	for (unsigned i = 0; i < n; i++)
		if (!o[i].known || o[i].unsaved)
			cli_error("GPU %u: %s%s",
				  gw_snapshot_device(c->snap, o[i].device)->index,
				  o[i].unsaved ? "its values could not be saved: " : "",
				  o[i].message);
	return EXIT_OK;
}

static int print_json(const struct cli *c, const struct outcome *o, unsigned n)
{
	struct render_learned *l = calloc(n ? n : 1, sizeof(*l));
	struct cli_document doc;
	int code;

	if (!l)
		return cli_no_memory();
	for (unsigned i = 0; i < n; i++)
		l[i] = (struct render_learned){ o[i].device, o[i].known ? &o[i].sensor : NULL,
						*o[i].message ? o[i].message : NULL,
						*o[i].path ? o[i].path : NULL };
	cli_document_begin(&doc, true);
	render_characterise(&doc.json, c->snap, l, n);
	code = cli_document_end(&doc);
	free(l);
	return code;
}

static int exit_code(const struct outcome *o, unsigned n)
{
	unsigned bad = 0;

	for (unsigned i = 0; i < n; i++)
		bad += !o[i].known || o[i].unsaved;
	if (n == 0)
		return EXIT_NO_GPU;
	return bad == 0 ? EXIT_OK : bad == n ? EXIT_FAILED : EXIT_PARTIAL;
}

static int characterise_run(struct cli *c)
{
	unsigned n = 0;
	struct outcome *o;
	int code;

	if (given(c)->show && given(c)->active)
		return cli_usage("--show and --active exclude each other: give one of them");
	code = cli_open(c, GW_TIERS_COMMON | GW_TIER_ENERGY);
	if (code != EXIT_OK)
		return code;
	stop_exit("gpuward: interrupted; the values of the GPU that was being measured are not "
		  "saved\n");
	o = calloc(gw_snapshot_device_count(c->snap) + 1, sizeof(*o));
	if (!o)
		return cli_no_memory();
	for (unsigned at = 0; cli_next_device(c, &at);) {
		o[n].device = at - 1;
		process_device(c, &o[n++]);
	}
	code = c->json ? print_json(c, o, n) : print_text(c, o, n);
	if (code == EXIT_OK)
		code = exit_code(o, n);
	free(o);
	return code;
}

#define AT(member) offsetof(struct given, member)

static const struct option options[] = {
	OPTION_ROW(FLAG, 0, "active", AT(active), NULL,
		   "also run a load on the GPU for a minute, to measure averaging windows and "
		   "delays; no other process may use the GPU meanwhile"),
	OPTION_ROW(FLAG, 0, "show", AT(show), NULL, "only show the saved or assumed values"),
	OPTION_ROW(FLAG, 0, "no-save", AT(no_save), NULL, "do not save the values"),
	OPTION_END,
};

const struct command command_characterise = {
	.name = "characterise",
	.summary = "measure the properties of the power sensors",
	.description =
		"Measures how often each power source has a new value, how the energy counter "
		"is updated, whether reading the counter disturbs it, and what each call "
		"costs. This takes half a minute per GPU, runs no load of its own, and works "
		"best on an idle GPU. --active also measures the averaging window and the "
		"delay of each power source. The values are saved and used by all later "
		"measurements on this GPU, driver and VBIOS; without them, published values "
		"for the GPU's generation are assumed.",
	.examples = "  gpuward characterise\n"
		    "  gpuward characterise --gpu 0 --active\n"
		    "  gpuward characterise --show --json\n",
	.options = options,
	.options_size = sizeof(struct given),
	.run = characterise_run,
};
