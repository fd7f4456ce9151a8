/* Reads a bundle, and passes its events through a window tracker again, as during the
 * measurement. */
#include "bundle.h"
#include "bundle_file.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/number.h"
#include "base/toml.h"
#include "base/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *const shapes[] = {
	[SHAPE_NONE] = "none", [SHAPE_RING] = "ring", [SHAPE_INSTANT] = "instant",
	[SHAPE_MEAN] = "mean", [SHAPE_TEXT] = "text", [SHAPE_SYSFS] = "sysfs",
};
#define SHAPES COUNT(shapes)

const char *bundle_shape_name(unsigned shape)
{
	return shape < SHAPES ? shapes[shape] : "none";
}

static int bundle_shape_find(const char *name)
{
	for (unsigned i = 0; i < SHAPES; i++)
		if (strcmp(shapes[i], name) == 0)
			return (int)i;
	return -1;
}

struct bundle_reader {
	const char *dir;
	struct bundle_summary *sum;
	void (*visit)(void *arg, const struct bundle_found *f);
	void *arg;
	char *message;
	size_t size;
	/* The members below describe the device that is being read. */
	unsigned device;
	char uuid[96], name[96], driver[96];
	struct energy_setup setup;
	double interval_s;
	struct window_tracker *tracker;
	uint64_t last_ns;
};

/* Opens a regular file only, because opening a pipe would block. */
static FILE *open_plain(const char *path)
{
	struct stat st;

	if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
		errno = EINVAL;
		return NULL;
	}
	return fopen(path, "re");
}

static int open_toml(struct bundle_reader *r, const char *path, struct toml **ret)
{
	struct toml_error error;
	const struct toml_node *schema;
	int err = toml_parse_file(path, ret, &error);

	if (err) {
		if (error.line)
			snprintf(r->message, r->size, "%s:%u:%u: %s", path, error.line,
				 error.column, error.text);
		else
			snprintf(r->message, r->size, "%s: %s", path, error.text);
		return err;
	}
	schema = toml_get(toml_top(*ret), "schema");
	if (!schema || schema->type != TOML_INTEGER || schema->v.integer < 1) {
		snprintf(r->message, r->size,
			 "%s: 'schema' is missing: this is not a gpuward bundle", path);
		err = -GW_E_PARSE;
	} else if (schema->v.integer > BUNDLE_SCHEMA) {
		snprintf(r->message, r->size,
			 "%s:%u:%u: schema %lld is newer than this version knows (%d); use a "
			 "newer "
			 "gpuward",
			 path, schema->line, schema->column, (long long)schema->v.integer,
			 BUNDLE_SCHEMA);
		err = -GW_E_PARSE;
	}
	if (err)
		toml_free(*ret);
	return err;
}

static void get_text(const struct toml_node *top, const char *key, char *out, size_t size)
{
	const struct toml_node *v = toml_get(top, key);

	snprintf(out, size, "%s",
		 v && (v->type == TOML_STRING || v->type == TOML_DATETIME) ? v->v.string.text
									   : "");
}

static bool get_real(const struct toml_node *top, const char *key, double *ret)
{
	const struct toml_node *v = toml_get(top, key);

	if (v && v->type == TOML_FLOAT)
		*ret = v->v.real;
	else if (v && v->type == TOML_INTEGER)
		*ret = (double)v->v.integer;
	else
		return false;
	return true;
}

/* The longest time in a setup: about 30 years. This time in nanoseconds fits into 64 bits. */
#define SETUP_MAX_S 1e9

/* Reads a figure of a setup. Its value must be from min to max. Only limit_w may be NAN
 * (unknown). Returns 0, or -GW_E_PARSE with a message. */
static int get_figure(struct bundle_reader *r, const char *path, const struct toml_node *top,
		      const char *key, double min, double max, double *ret)
{
	if (!get_real(top, key, ret)) {
		snprintf(r->message, r->size, "%s: %s is missing or is not a number", path,
			 key);
		return -GW_E_PARSE;
	}
	if ((*ret >= min && *ret <= max) || (isnan(*ret) && strcmp(key, "limit_w") == 0))
		return 0;
	snprintf(r->message, r->size, "%s: %s is %g; it must be from %g to %g", path, key, *ret,
		 min, max);
	return -GW_E_PARSE;
}

static bool get_flag(const struct toml_node *top, const char *key)
{
	const struct toml_node *v = toml_get(top, key);

	return v && v->type == TOML_BOOL && v->v.boolean;
}

static int read_setup(struct bundle_reader *r)
{
	struct energy_setup *s = &r->setup;
	const struct {
		const char *key;
		double min, max, *value;
	} figures[] = {
		{ "spacing_s", 1e-9, SETUP_MAX_S, &s->spacing_s },
		{ "window_s", 0, SETUP_MAX_S, &s->window_s },
		{ "lag_s", -SETUP_MAX_S, SETUP_MAX_S, &s->lag_s },
		{ "look_ratio", 0, 1, &s->look_ratio },
		{ "limit_w", 0, 1e9, &s->limit_w },
		{ "interval_s", 0, SETUP_MAX_S, &r->interval_s },
	};
	char path[4096], shape[32];
	const struct toml_node *top;
	struct toml *doc;
	int found, err;

	bundle_path(path, sizeof(path), r->dir, BUNDLE_SETUP, (int)r->device);
	err = open_toml(r, path, &doc);
	if (err)
		return err;
	top = toml_top(doc);
	memset(s, 0, sizeof(*s));
	get_text(top, "uuid", r->uuid, sizeof(r->uuid));
	get_text(top, "name", r->name, sizeof(r->name));
	get_text(top, "driver", r->driver, sizeof(r->driver));
	get_text(top, "shape", shape, sizeof(shape));
	found = bundle_shape_find(shape);
	s->shape = found >= 0 ? (enum energy_shape)found : SHAPE_NONE;
	s->counter = get_flag(top, "counter");
	s->mig = get_flag(top, "mig");
	if (found < 0) {
		snprintf(r->message, r->size,
			 "%s: 'shape' is missing or unknown; the file is damaged", path);
		err = -GW_E_PARSE;
	}
	for (unsigned i = 0; i < COUNT(figures) && !err; i++)
		err = get_figure(r, path, top, figures[i].key, figures[i].min, figures[i].max,
				 figures[i].value);
	toml_free(doc);
	return err;
}

static int read_sensor(struct bundle_reader *r)
{
	char path[4096], text[32768], why[256];
	ssize_t n;
	int err;

	bundle_path(path, sizeof(path), r->dir, BUNDLE_SENSOR, (int)r->device);
	n = file_read(path, text, sizeof(text), r->message, r->size);
	if (n < 0)
		return (int)n;
	err = sensor_parse(text, (size_t)n, &r->setup.sensor, why, sizeof(why));
	if (!err && (fabs(r->setup.sensor.tick_s) > SETUP_MAX_S ||
		     fabs(r->setup.sensor.counter_lag_s) > SETUP_MAX_S)) {
		snprintf(why, sizeof(why), "tick_s or counter_lag_s is more than %g s",
			 SETUP_MAX_S);
		err = -GW_E_PARSE;
	}
	if (err)
		snprintf(r->message, r->size, "%s: %s", path, why);
	return err;
}

static bool same_bits(double a, double b)
{
	return memcmp(&a, &b, sizeof(a)) == 0 || (isnan(a) && isnan(b));
}

/* Finds the recorded result of a window, and sets f->same if the new result is identical. */
static void find_original(const struct bundle_reader *r, struct bundle_found *f)
{
	char path[4096], line[1024];
	FILE *in = open_plain(bundle_path(path, sizeof(path), r->dir, BUNDLE_WINDOWS, -1));

	while (in && fgets(line, sizeof(line), in)) {
		double v[3] = { NAN, NAN, NAN };
		char *at = line;
		unsigned device = (unsigned)strtoul(at, &at, 10);
		unsigned id = (unsigned)strtoul(at, &at, 10);

		if (device != f->device || id != f->id)
			continue;
		for (unsigned i = 0; i < 3 && *at == '\t'; i++) {
			const char *end;

			v[i] = number_parse(++at, &end);
			if (end == at) {
				v[i] = NAN;
				end = at + strcspn(at, "\t\n");
			}
			at += end - at;
		}
		f->recorded = true;
		f->then = (struct gw_interval){ v[0], v[1], v[2] };
	}
	if (in)
		fclose(in);
	f->same = f->recorded && same_bits(f->then.low, f->energy.joules.low) &&
		  same_bits(f->then.best, f->energy.joules.best) &&
		  same_bits(f->then.high, f->energy.joules.high);
}

static void add_result(struct bundle_reader *r, struct tracked_window *w, bool cut)
{
	struct bundle_found f = { .device = r->device,
				  .id = w->id,
				  .label = w->label,
				  .uuid = r->uuid,
				  .name = r->name,
				  .driver = r->driver,
				  .setup = &r->setup,
				  .interval_s = r->interval_s,
				  .window = w,
				  .cut = cut };

	f.energy.device = r->device;
	window_tracker_result(r->tracker, w, &f.energy);
	window_tracker_share(r->tracker, w, &f.energy);
	find_original(r, &f);
	r->sum->windows++;
	r->sum->recorded += f.recorded;
	r->sum->same += f.same;
	r->sum->cut += cut;
	if (r->visit)
		r->visit(r->arg, &f);
	window_tracker_forget(r->tracker, w);
	free(w);
}

static int feed_event(struct bundle_reader *r, const struct event *e)
{
	struct tracked_window *w = NULL;

	if (e->type == EVENT_OPEN) {
		w = calloc(1, sizeof(*w));
		if (!w)
			return -GW_E_NOMEM;
	}
	if (e->t_ns > r->last_ns)
		r->last_ns = e->t_ns;
	window_tracker_feed(r->tracker, e, w);
	r->sum->events++;
	if (e->type == EVENT_RESULT) {
		w = window_tracker_find(r->tracker, e->u.window.id);
		if (w)
			add_result(r, w, false);
	}
	return 0;
}

/* Computes the windows for which no result was requested, because the events of the bundle end
 * before the request. */
static void finish_windows(struct bundle_reader *r)
{
	while (r->tracker->open) {
		struct tracked_window *w = r->tracker->open;
		struct event e = { .type = EVENT_RESULT, .t_ns = r->last_ns };

		e.u.window.id = w->id;
		window_tracker_feed(r->tracker, &e, NULL);
		w->codes |= code_bit(GW_CODE_TRUNCATED);
		add_result(r, w, true);
	}
}

/* Calls fn() for each event. Ignores a last line without newline: the writer stopped before the
 * line was complete. */
static int each_event(struct bundle_reader *r,
		      int (*fn)(struct bundle_reader *r, const struct event *e))
{
	char path[4096], line[EVENT_LINE_MAX];
	FILE *in = open_plain(
		bundle_path(path, sizeof(path), r->dir, BUNDLE_EVENTS, (int)r->device));
	int err = 0;

	if (!in)
		return file_failed(r->message, r->size, path, "read");
	while (!err && fgets(line, sizeof(line), in)) {
		size_t n = strlen(line);
		struct event e;

		if (line[0] == '#')
			continue;
		if (n == 0 || line[n - 1] != '\n') {
			r->sum->bad_lines += !feof(in);
			continue;
		}
		line[n - 1] = '\0';
		if (event_read(line, &e) == 0)
			err = fn(r, &e);
		else
			r->sum->bad_lines++;
	}
	fclose(in);
	if (err)
		snprintf(r->message, r->size, "%s: %s", path, gw_strerror(err));
	return err;
}

static bool device_exists(const char *dir, unsigned n)
{
	char path[4096];
	FILE *f = open_plain(bundle_path(path, sizeof(path), dir, BUNDLE_SETUP, (int)n));

	if (!f)
		return false;
	fclose(f);
	return true;
}

static int recompute_device(struct bundle_reader *r)
{
	int err = read_setup(r);

	if (!err)
		err = read_sensor(r);
	if (err)
		return err;
	r->tracker = calloc(1, sizeof(*r->tracker));
	if (!r->tracker)
		return -GW_E_NOMEM;
	window_tracker_init(r->tracker, &r->setup, r->interval_s);
	r->last_ns = 0;
	err = each_event(r, feed_event);
	finish_windows(r);
	free(r->tracker);
	r->tracker = NULL;
	return err;
}

static void mark_changed(struct bundle_reader *r, const char *name)
{
	r->sum->check = BUNDLE_CHANGED;
	if (!r->sum->changed_file[0])
		utf8_clean(r->sum->changed_file, sizeof(r->sum->changed_file), name);
}

static void check_sums(struct bundle_reader *r)
{
	char path[4096], line[512], sum[65];
	FILE *in = open_plain(bundle_path(path, sizeof(path), r->dir, BUNDLE_SUMS, -1));
	unsigned own = 0;

	r->sum->check = in ? BUNDLE_WHOLE : BUNDLE_UNFINISHED;
	while (in && fgets(line, sizeof(line), in)) {
		const char *name = line + 66;

		line[strcspn(line, "\n")] = '\0';
		if (strlen(line) < 67 || strchr(name, '/')) {
			mark_changed(r, BUNDLE_SUMS);
			continue;
		}
		snprintf(path, sizeof(path), "%s/%s", r->dir, name);
		own += strncmp(name, "gpu", 3) == 0 || strcmp(name, BUNDLE_MANIFEST) == 0;
		if (bundle_sum(path, sum) != 0 || memcmp(sum, line, 64) != 0)
			mark_changed(r, name);
	}
	if (in) {
		fclose(in);
		/* Results depend on the manifest and on three files per GPU. If some of them
		 * have no checksum, the list of checksums was changed. */
		if (own < 1 + 3 * r->sum->devices)
			mark_changed(r, BUNDLE_SUMS);
	}
}

static int read_manifest(struct bundle_reader *r)
{
	char path[4096];
	const struct toml_node *mono;
	struct toml *doc;
	struct stat st;
	int err;

	memset(r->sum, 0, sizeof(*r->sum));
	if (stat(r->dir, &st) == 0 && !S_ISDIR(st.st_mode)) {
		snprintf(r->message, r->size,
			 "%s is not a bundle: a bundle is the folder that gpuward measure "
			 "--bundle writes",
			 r->dir);
		return -GW_E_NOENT;
	}
	err = open_toml(r, bundle_path(path, sizeof(path), r->dir, BUNDLE_MANIFEST, -1), &doc);
	if (err)
		return err;
	get_text(toml_top(doc), "version", r->sum->version, sizeof(r->sum->version));
	r->sum->simulated = get_flag(toml_top(doc), "simulated");
	mono = toml_get(toml_top(doc), "monotonic_ns");
	if (mono && mono->type == TOML_INTEGER && mono->v.integer > 0)
		r->sum->mono_ns = (uint64_t)mono->v.integer;
	get_text(toml_top(doc), "label", r->sum->label, sizeof(r->sum->label));
	get_text(toml_top(doc), "command", r->sum->command, sizeof(r->sum->command));
	get_text(toml_top(doc), "created", r->sum->created, sizeof(r->sum->created));
	toml_free(doc);
	return 0;
}

int bundle_recompute(const char *dir, void (*visit)(void *arg, const struct bundle_found *f),
		     void *arg, struct bundle_summary *ret, char *message, size_t size)
{
	struct bundle_reader r = { .dir = dir,
				   .sum = ret,
				   .visit = visit,
				   .arg = arg,
				   .message = message,
				   .size = size };
	int err = read_manifest(&r);

	for (r.device = 0; !err && device_exists(dir, r.device); r.device++) {
		err = recompute_device(&r);
		ret->devices++;
	}
	if (err == -GW_E_NOMEM)
		snprintf(message, size, "%s", gw_strerror(err));
	if (!err)
		check_sums(&r);
	return err;
}

struct power {
	struct bundle_reader r;
	void (*visit)(void *arg, uint64_t t_ns, double watts);
	void *arg;
	uint64_t last_ns; /* time of the last sample; 0: none yet */
	bool back;        /* a sample is earlier than the previous one */
};

static int power_event(struct bundle_reader *r, const struct event *e)
{
	struct power *p = (struct power *)r;

	if (e->type != EVENT_POWER)
		return 0;
	p->back = e->t_ns < p->last_ns;
	if (p->back)
		return -GW_E_PARSE;
	p->last_ns = e->t_ns;
	p->visit(p->arg, e->t_ns, e->u.power_w);
	return 0;
}

int bundle_power(const char *dir, unsigned device,
		 void (*visit)(void *arg, uint64_t t_ns, double watts), void *arg, char *name,
		 size_t name_size, bool *ret_simulated, char *message, size_t size)
{
	struct bundle_summary sum;
	struct power p = { .r = { .dir = dir,
				  .sum = &sum,
				  .device = device,
				  .message = message,
				  .size = size },
			   .visit = visit,
			   .arg = arg };
	int err = read_manifest(&p.r);

	if (!err && !device_exists(dir, device)) {
		snprintf(message, size, "%s contains no GPU %u", dir, device);
		return -GW_E_NODEV;
	}
	if (!err)
		err = read_setup(&p.r);
	if (err)
		return err;
	snprintf(name, name_size, "%s", p.r.name);
	*ret_simulated = sum.simulated;
	err = each_event(&p.r, power_event);
	if (p.back)
		snprintf(message, size,
			 "%s: the times of GPU %u's power samples go back after %llu ns", dir,
			 device, (unsigned long long)p.last_ns);
	return err;
}

int bundle_check_unchanged(const char *dir, char *message, size_t size)
{
	struct bundle_summary sum = { 0 };
	struct bundle_reader r = { .dir = dir, .sum = &sum, .message = message, .size = size };
	int err = read_manifest(&r);

	if (err)
		return err;
	while (device_exists(dir, sum.devices))
		sum.devices++;
	check_sums(&r);
	if (sum.check != BUNDLE_CHANGED)
		return 0;
	snprintf(message, size, "%s/%s was changed after it was written", dir,
		 sum.changed_file);
	return -GW_E_PARSE;
}
