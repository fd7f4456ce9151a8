#include "render_result.h"

#include "base/clock.h"
#include "measure/window_tracker.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "render_sensor.h"

/* One number of an object, with its key. */
struct row {
	const char *key;
	double v;
};

static void write_rows(struct json *j, const char *key, const struct row *row, size_t n)
{
	if (key)
		json_object(j, key);
	for (size_t i = 0; i < n; i++)
		json_double(j, row[i].key, row[i].v);
	if (key)
		json_object_end(j);
}
#define ROWS(j, key, ...)                                       \
	write_rows(j, key, (const struct row[]){ __VA_ARGS__ }, \
		   sizeof((const struct row[]){ __VA_ARGS__ }) / sizeof(struct row))

void render_codes(struct json *j, uint64_t codes)
{
	json_array(j, "codes");
	for (unsigned c = 0; c < GW_CODES; c++)
		if (codes & UINT64_C(1) << c)
			json_string(j, NULL, gw_code_info(c)->key);
	json_array_end(j);
}

static void write_baseline(struct json *j, const struct measured_baseline *b)
{
	render_interval(j, "energy_net_joules", &b->net_joules);
	json_double(j, "energy_adjusted_joules", b->adjusted_joules);
	json_bool(j, "energy_adjusted_was_floored", b->floored);
	if (!json_object_if(j, "baseline", b->kind))
		return;
	json_string(j, "kind", b->kind);
	ROWS(j, NULL, { "power_watts", b->power_w }, { "standard_uncertainty_watts", b->u_w },
	     { "age_seconds", b->age_s }, { "seconds", b->seconds });
	json_object_end(j);
}

static void write_process(struct json *j, const struct attribute_row *r)
{
	json_object(j, NULL);
	json_int(j, "pid", r->id.pid);
	json_uint_if(j, "start_ticks", r->id.start_ticks, r->id.start_ticks);
	render_text(j, "name", r->name);
	json_double(j, "joules", r->joules);
	json_string(j, "how", attribute_how_name(r->how));
	json_object_end(j);
}

static void remainder_row(struct json *j, const char *name, double joules)
{
	json_object(j, NULL);
	json_string(j, "name", name);
	json_double(j, "joules", joules);
	json_string(j, "how", attribute_how_name(ATTRIBUTE_MEASURED));
	json_object_end(j);
}

void render_shares(struct json *j, const struct attribute *a)
{
	if (!a) {
		json_null(j, "processes");
		return;
	}
	json_array(j, "processes");
	for (unsigned i = 0; i < a->count; i++)
		write_process(j, &a->row[i]);
	remainder_row(j, "idle", a->idle_known ? a->idle_joules : NAN);
	remainder_row(j, "unattributed", a->unattributed_joules);
	json_array_end(j);
}

/* Begins an array on one line, because it has thousands of numbers. */
static bool column_begin(struct json *j, const char *key)
{
	bool pretty = j->pretty;

	json_array(j, key);
	j->pretty = false;
	return pretty;
}

static void column_end(struct json *j, bool pretty)
{
	json_array_end(j);
	j->pretty = pretty;
}

/* Rounds to a multiple of the step, because the readings have no higher precision. */
static double rounded(double v, double step)
{
	return round(v / step) * step;
}

static double since(uint64_t t_ns, uint64_t from_ns)
{
	return rounded((double)((int64_t)t_ns - (int64_t)from_ns), 1000) / 1e9;
}

static void power_series(struct json *j, const struct run_trace_copy *s, uint64_t begin_ns)
{
	uint64_t first = s->powers ? s->power[0].t_ns : begin_ns;
	bool pretty;

	json_object(j, "power");
	json_double(j, "begin_seconds", since(first, begin_ns));
	pretty = column_begin(j, "t_seconds");
	for (size_t i = 0; i < s->powers; i++)
		json_double(j, NULL, since(s->power[i].t_ns, first));
	column_end(j, pretty);
	pretty = column_begin(j, "watts");
	for (size_t i = 0; i < s->powers; i++)
		json_double(j, NULL, round((double)s->power[i].w * 1e3) / 1e3);
	column_end(j, pretty);
	json_object_end(j);
}

enum tick_column { TICK_TEMPERATURE, TICK_CLOCK, TICK_UTILIZATION, TICK_MEMORY, TICK_COLUMNS };

static double tick_figure(const struct run_trace_tick *t, enum tick_column column)
{
	switch (column) {
	case TICK_TEMPERATURE: return (double)t->temperature_c;
	case TICK_CLOCK: return (double)t->clock_sm_hz;
	case TICK_UTILIZATION: return round((double)t->utilization * 1e4) / 1e4;
	default: return t->memory_bytes;
	}
}

static void throttle_words(struct json *j, double reasons)
{
	char text[128] = "";

	for (unsigned i = 0; i < GW_THROTTLES; i++) {
		size_t n = strlen(text);

		if ((uint64_t)reasons & window_tracker_reason_bits[i])
			snprintf(text + n, sizeof(text) - n, "%s%s", n ? "," : "",
				 gw_throttle_name(i));
	}
	json_string(j, NULL, text);
}

static void tick_series(struct json *j, const struct run_trace_copy *s, uint64_t begin_ns)
{
	static const char *const keys[TICK_COLUMNS] = { "temperature_celsius", "clock_sm_hertz",
							"utilization_ratio",
							"memory_used_bytes" };
	uint64_t first = s->ticks ? s->tick[0].t_ns : begin_ns;
	bool pretty;

	json_object(j, "ticks");
	json_double(j, "begin_seconds", since(first, begin_ns));
	pretty = column_begin(j, "t_seconds");
	for (size_t i = 0; i < s->ticks; i++)
		json_double(j, NULL, since(s->tick[i].t_ns, first));
	column_end(j, pretty);
	for (unsigned c = 0; c < TICK_COLUMNS; c++) {
		pretty = column_begin(j, keys[c]);
		for (size_t i = 0; i < s->ticks; i++)
			json_double(j, NULL, tick_figure(&s->tick[i], (enum tick_column)c));
		column_end(j, pretty);
	}
	pretty = column_begin(j, "throttle");
	for (size_t i = 0; i < s->ticks; i++)
		if (isnan(s->tick[i].reasons))
			json_null(j, NULL);
		else
			throttle_words(j, s->tick[i].reasons);
	column_end(j, pretty);
	json_object_end(j);
}

/* Writes one value per word of a list. The '*' in key is replaced by the word. */
static void energy_list(struct json *j, const struct gw_energy_field *f, const char *key,
			const double *v)
{
	const char *star = strchr(key, '*');

	for (unsigned i = 0; i < f->count; i++) {
		char word[64];

		snprintf(word, sizeof(word), "%.*s%s%s", (int)(star - key), key, f->name(i),
			 star + 1);
		json_double(j, word, v[i]);
	}
}

static void energy_field(struct json *j, const struct gw_energy_field *f, const char *key,
			 const struct gw_energy *e)
{
	const void *at = (const char *)e + f->offset;
	const char *word;

	switch (f->kind) {
	case GW_FIELD_INDEX: json_uint(j, key, *(const unsigned *)at); break;
	case GW_FIELD_TIME: json_uint(j, key, *(const uint64_t *)at); break;
	case GW_FIELD_FLAG: json_bool(j, key, *(const int *)at); break;
	case GW_FIELD_COUNT: json_double(j, key, (double)*(const uint64_t *)at); break;
	case GW_FIELD_CODES: render_codes(j, *(const uint64_t *)at); break;
	case GW_FIELD_NUMBER: json_double(j, key, *(const double *)at); break;
	case GW_FIELD_INTERVAL: render_interval(j, key, at); break;
	case GW_FIELD_WORD:
		word = f->name(*(const unsigned *)at);
		json_string(j, key, strcmp(word, "unknown") == 0 ? NULL : word);
		break;
	case GW_FIELD_LIST: energy_list(j, f, key, at); break;
	}
}

/* Returns the length of the name of the inner object that holds the field; 0: the field is not
 * in an inner object. */
static size_t group_length(const struct gw_energy_field *f)
{
	const char *dot = strchr(f->key, '.');

	return dot ? (size_t)(dot - f->key) : 0;
}

static bool same_group(const struct gw_energy_field *a, const struct gw_energy_field *b)
{
	size_t n = group_length(a);

	return n == group_length(b) && strncmp(a->key, b->key, n) == 0;
}

/* Writes all fields of the inner object of field i, unless an earlier field has written
 * them. */
static void energy_group(struct json *j, unsigned i, const struct gw_energy *e)
{
	const struct gw_energy_field *first = gw_energy_field(i), *f;
	size_t n = group_length(first);
	char name[48];

	for (unsigned k = 0; k < i; k++)
		if (same_group(first, gw_energy_field(k)))
			return;
	snprintf(name, sizeof(name), "%.*s", (int)n, first->key);
	json_object(j, name);
	for (; (f = gw_energy_field(i)); i++)
		if (same_group(first, f))
			energy_field(j, f, f->key + n + 1, e);
	json_object_end(j);
}

/* True if the field is one of those that a document has first: a word, codes or an interval, if
 * it is not in an inner object. */
static bool is_headline(const struct gw_energy_field *f)
{
	return group_length(f) == 0 && (f->kind == GW_FIELD_WORD || f->kind == GW_FIELD_CODES ||
					f->kind == GW_FIELD_INTERVAL);
}

static void energy_fields(struct json *j, const struct gw_energy *e, bool headline)
{
	const struct gw_energy_field *f;

	for (unsigned i = 0; (f = gw_energy_field(i)); i++) {
		if (!*f->key || is_headline(f) != headline)
			continue;
		if (group_length(f))
			energy_group(j, i, e);
		else
			energy_field(j, f, f->key, e);
	}
}

void render_energy(struct json *j, const struct gw_energy *e)
{
	energy_fields(j, e, true);
}

void render_energy_detail(struct json *j, const struct gw_energy *e)
{
	energy_fields(j, e, false);
}

void render_energy_part(struct json *j, const struct gw_energy *e)
{
	render_interval(j, "energy_joules", &e->joules);
	render_interval(j, "energy_relative_joules", &e->relative);
	json_string(j, "meter", gw_meter_kind_name(e->meter));
	json_string(j, "verdict", gw_verdict_name(e->verdict));
	json_string(j, "validity", gw_validity_name(e->validity));
	render_codes(j, e->codes);
}

static void write_device(struct json *j, const struct measured_device *d, uint64_t begin_ns)
{
	const struct gw_energy *e = &d->energy;

	json_object(j, NULL);
	json_uint(j, "index", d->index);
	render_text(j, "uuid", d->uuid);
	render_text(j, "name", d->name);
	json_string(j, "provenance", gw_provenance_name(d->provenance));
	render_text(j, "driver_version", d->driver);
	render_energy(j, e);
	write_baseline(j, &d->baseline);
	render_energy_detail(j, e);
	json_double(j, "power_limit_watts", d->power_limit_w);
	sensor_json(j, "sensor", &d->sensor);
	render_shares(j, d->processes && !isnan(e->joules.best) ? &d->who : NULL);
	json_object(j, "series");
	power_series(j, &d->series, begin_ns);
	tick_series(j, &d->series, begin_ns);
	json_object_end(j);
	json_object_end(j);
}

static void write_codes(struct json *j, const struct measured_run *r)
{
	json_array(j, "codes");
	for (unsigned i = 0; i < r->codes; i++) {
		const struct measured_code *c = &r->code[i];
		const struct gw_code_info *info = gw_code_info(c->code);

		json_object(j, NULL);
		json_string(j, "code", info->key);
		json_string(j, "level", gw_validity_name(c->level));
		json_string(j, "sentence", info->sentence);
		render_text(j, "evidence", c->evidence);
		if (c->device >= 0)
			json_uint(j, "device", r->device[c->device].index);
		else
			json_null(j, "device");
		json_object_end(j);
	}
	json_array_end(j);
}

static void write_host(struct json *j, const struct host_energy *h)
{
	json_object(j, "host");
	json_double(j, "joules", h->joules);
	json_string(j, "absence", h->why == GW_HAVE ? NULL : gw_absence_key(h->why));
	render_text(j, "remedy", h->why == GW_HAVE ? NULL : h->remedy);
	json_array(j, "domains");
	for (unsigned i = 0; i < h->count; i++) {
		const struct host_domain *d = &h->domain[i];

		json_object(j, NULL);
		json_string(j, "name", d->name);
		json_double(j, "joules", d->joules);
		json_string(j, "absence", d->why == GW_HAVE ? NULL : gw_absence_key(d->why));
		json_object_end(j);
	}
	json_array_end(j);
	json_object_end(j);
}

static void write_window(struct json *j, const struct measured_run *r,
			 const struct measured_window *w)
{
	json_object(j, NULL);
	json_string(j, "label", w->label);
	json_double(j, "begin_seconds", w->begin_s);
	json_double(j, "seconds", w->seconds);
	json_bool(j, "unfinished", w->unfinished);
	json_array(j, "devices");
	for (unsigned i = 0; w->energy && i < r->devices; i++) {
		json_object(j, NULL);
		json_uint(j, "index", r->device[i].index);
		render_energy_part(j, &w->energy[i]);
		json_object_end(j);
	}
	json_array_end(j);
	json_object_end(j);
}

static void write_outcome(struct json *j, const struct measured_run *r)
{
	json_int_if(j, "exit_status", r->exit_status >= 0, r->exit_status);
	json_int_if(j, "exit_signal", r->exit_signal > 0, r->exit_signal);
}

static void fresh_series(struct json *j, const struct measured_count *c)
{
	if (!json_object_if(j, "new", c->fresh))
		return;
	json_uint(j, "series", c->fresh);
	json_double(j, "number", c->fresh_number);
	json_string(j, "began", c->fresh_assumed ? "assumed" : "told");
	json_object_end(j);
}

static void write_count(struct json *j, const struct measured_count *c)
{
	bool known = !isnan(c->number);

	if (!json_object_if(j, "count", c->source))
		return;
	json_string(j, "source", c->source);
	json_string(j, "url", c->place);
	render_text(j, "counter", c->name);
	json_uint_if(j, "series", c->series, c->series);
	json_string(j, "of", c->iterations ? "iterations" : "tokens");
	ROWS(j, NULL, { "number", c->number }, { "edge", known ? c->edge : NAN });
	fresh_series(j, c);
	json_array(j, "server_pids");
	for (unsigned i = 0; i < c->servers; i++)
		json_int(j, NULL, c->server_pid[i]);
	json_array_end(j);
	json_string(j, "absence", known ? NULL : c->why);
	json_object_end(j);
}

const struct run_figures run_figures_unknown = {
#define UNKNOWN_NUMBER NAN
#define UNKNOWN_INTERVAL      \
	{                     \
		NAN, NAN, NAN \
	}
#define UNKNOWN_FLAG                             false
#define UNKNOWN_TEXT                             NULL
#define RUN_FIGURE(kind, member, key, help)      .member = UNKNOWN_##kind,
#define RUN_ENERGY_PER(items, member, key, help) .member = UNKNOWN_INTERVAL,
#include "run_figure.def"
};

static void write_figures(struct json *j, const struct run_figures *f)
{
#define WRITE_NUMBER(key, v)                     json_double(j, key, v);
#define WRITE_INTERVAL(key, v)                   render_interval(j, key, &(v));
#define WRITE_FLAG(key, v)                       json_bool(j, key, v);
#define WRITE_TEXT(key, v)                       json_string(j, key, v);
#define RUN_FIGURE(kind, member, key, help)      WRITE_##kind(key, f->member)
#define RUN_ENERGY_PER(items, member, key, help) WRITE_INTERVAL(key, f->member)
#include "run_figure.def"
}

static void write_run(struct json *j, const struct measured_run *r,
		      const struct energy_cost *cost)
{
	json_object(j, NULL);
	json_uint(j, "trial", r->trial);
	json_time(j, "begin_time", r->begin_wall_ns);
	json_string(j, "part", r->part);
	json_double(j, "seconds", r->seconds);
	json_double(j, "window_seconds", r->window_s > 0 ? r->window_s : NAN);
	write_outcome(j, r);
	json_string(j, "validity", gw_validity_name(r->validity));
	write_codes(j, r);
	write_figures(j, &r->figures);
	energy_cost_render(j, cost, &r->figures.energy_j);
	write_count(j, &r->count);
	json_array(j, "devices");
	for (unsigned i = 0; i < r->devices; i++)
		write_device(j, &r->device[i], r->begin_ns);
	json_array_end(j);
	write_host(j, &r->host);
	json_array(j, "windows");
	for (unsigned i = 0; i < r->windows; i++)
		write_window(j, r, &r->window[i]);
	json_array_end(j);
	json_object_end(j);
}

bool measured_room_kept(const struct measured_room *r)
{
	for (unsigned i = 0; i < r->workers; i++)
		if (r->worker[i].broken[0])
			return false;
	return true;
}

static void room_worker(struct json *j, const struct measured_worker *w)
{
	json_object(j, NULL);
	json_string(j, "name", w->name);
	json_string(j, "state_before", w->state);
	json_string(j, "hold_before", w->hold);
	json_double(j, "hold_before_seconds", w->hold_left_s);
	json_string(j, "held_by", w->held ? "measurement" : "others");
	render_text(j, "broken", w->broken);
	json_object_end(j);
}

void render_room(struct json *j, const struct measured_room *r)
{
	if (!json_object_if(j, "clean_room", r && r->asked))
		return;
	json_bool(j, "kept", measured_room_kept(r));
	json_double(j, "waited_seconds", r->waited_s);
	json_array(j, "workers");
	for (unsigned i = 0; i < r->workers; i++)
		room_worker(j, &r->worker[i]);
	json_array_end(j);
	json_object_end(j);
}

static void write_tags(struct json *j, const struct measured *m)
{
	json_object(j, "tags");
	for (unsigned i = 0; i < m->tag_count; i++) {
		char key[64];
		const char *equals = strchr(m->tags[i], '=');

		snprintf(key, sizeof(key), "%.*s", (int)(equals - m->tags[i]), m->tags[i]);
		json_string(j, key, equals + 1);
	}
	json_object_end(j);
}

void render_calibration(struct json *j, const char *key, const struct measured_calibration *c)
{
	if (!json_object_if(j, key, c))
		return;
	json_string(j, "trace", c->trace);
	json_string(j, "sha256", c->sha256);
	json_uint(j, "points", c->points);
	json_uint(j, "lines_passed_over", c->passed_over);
	ROWS(j, NULL, { "span_seconds", c->span_s }, { "lag_seconds", c->lag_s },
	     { "correlation", c->correlation }, { "residual_watts", c->residual_w },
	     { "gain", c->gain }, { "gain_uncertainty", c->gain_u },
	     { "offset_watts", c->offset_w }, { "offset_uncertainty_watts", c->offset_u_w },
	     { "pivot_watts", c->pivot_w }, { "reference_uncertainty", c->reference_u },
	     { "fitted_offset_watts", c->measured_offset_w });
	json_bool(j, "offset_alone", c->offset_alone);
	json_bool(j, "more_than_the_gpu", c->wider);
	json_array(j, "notes");
	for (unsigned i = 0; i < MEASURED_NOTES && *c->note[i]; i++)
		json_string(j, NULL, c->note[i]);
	json_array_end(j);
	json_object_end(j);
}

void render_result(struct json *j, const struct measured *m, const struct gw_environment *env,
		   const struct gw_snapshot *snap, const struct render_filter *filter)
{
	render_kept_head(j, "measurement", m->version, m->wall_ns, m->simulated);
	json_string(j, "label", m->label);
	write_tags(j, m);
	ROWS(j, NULL, { "model_size_bytes", m->model_size_bytes },
	     { "iterations", m->iterations }, { "tokens", m->tokens });
	json_string(j, "command_name", m->command_name);
	json_string(j, "command", m->command);
	json_string(j, "service", m->service);
	json_string(j, "validity", gw_validity_name(m->validity));
	render_room(j, m->room);
	json_array(j, "runs");
	for (unsigned i = 0; i < m->runs; i++)
		write_run(j, &m->run[i], &m->cost);
	json_array_end(j);
	render_calibration(j, "calibration", m->calibration);
	json_next_key(j, "environment");
	if (m->environment)
		json_raw(j, NULL, m->environment);
	else if (env)
		render_environment(j, env, snap, filter);
	else
		json_null(j, NULL);
	json_object_end(j);
}
