#include "log_text.h"

#include "cli.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/number.h"
#include "base/suggest.h"
#include "serve/render.h"
#include "serve/render_result.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The fields from FIELD_FIGURE on are the figures of a tick. Their names are the keys of
 * quantity.def. */
enum {
	FIELD_TIME,
	FIELD_ELAPSED,
	FIELD_INDEX,
	FIELD_UUID,
	FIELD_MISSED,
	FIELD_PROVENANCE,
	FIELD_FIGURE
};

static const char *const names[] = {
	[FIELD_TIME] = "time_utc",      [FIELD_ELAPSED] = "elapsed_seconds",
	[FIELD_INDEX] = "device_index", [FIELD_UUID] = "device_uuid",
	[FIELD_MISSED] = "missed",      [FIELD_PROVENANCE] = "provenance",
};

const char *log_line_field_name(unsigned i)
{
	if (i < FIELD_FIGURE)
		return names[i];
	if (i - FIELD_FIGURE < FIGURES)
		return gw_quantity_info(event_quantity[i - FIELD_FIGURE])->key;
	return NULL;
}

static void add_field(struct log_format *f, unsigned field)
{
	assert(f->count < LOG_FIELDS); /* If this fails, LOG_FIELDS is too small. */
	f->field[f->count++] = field;
}

static void choose_defaults(struct log_format *f, bool json)
{
	static const unsigned usual[] = { FIGURE_POWER,           FIGURE_POWER_AVERAGE,
					  FIGURE_POWER_INSTANT,   FIGURE_TEMPERATURE_GPU,
					  FIGURE_UTILIZATION_GPU, FIGURE_MEMORY_USED,
					  FIGURE_CLOCK_SM,        FIGURE_CLOCK_REASONS };

	f->json = json;
	f->count = 0;
	add_field(f, FIELD_TIME);
	add_field(f, FIELD_ELAPSED);
	add_field(f, FIELD_INDEX);
	if (json)
		add_field(f, FIELD_UUID);
	for (size_t i = 0; i < COUNT(usual); i++)
		add_field(f, FIELD_FIGURE + usual[i]);
	add_field(f, FIELD_MISSED);
	add_field(f, FIELD_PROVENANCE);
}

static void unknown_field(const char *name)
{
	const char *known[LOG_FIELDS], *near;
	char list[512];
	struct buf b;
	unsigned n = 0;

	buf_init_fixed(&b, list, sizeof(list));
	for (; n < LOG_FIELDS && log_line_field_name(n); n++) {
		known[n] = log_line_field_name(n);
		buf_addf(&b, "%s%s", n ? ", " : "", known[n]);
	}
	near = suggest(name, known, n, sizeof(known[0]));
	if (near)
		cli_error("--fields: there is no field '%s' (did you mean '%s'?)", name, near);
	else
		cli_error("--fields: there is no field '%s'; the fields are %s", name, list);
}

/* Adds a field by its name.  Returns an exit code. */
static int choose_field(struct log_format *f, const char *name)
{
	const char *known;

	for (unsigned i = 0; (known = log_line_field_name(i)) != NULL; i++) {
		if (strcmp(name, known) != 0)
			continue;
		for (unsigned k = 0; k < f->count; k++)
			if (f->field[k] == i)
				return cli_usage("--fields: '%s' is given twice", name);
		add_field(f, i);
		return EXIT_OK;
	}
	unknown_field(name);
	return EXIT_USAGE;
}

int log_line_choose(struct log_format *f, bool json, const struct option_list *fields)
{
	int code = EXIT_OK;

	choose_defaults(f, json);
	if (fields->count)
		f->count = 0;
	for (unsigned i = 0; i < fields->count && code == EXIT_OK; i++)
		code = choose_field(f, fields->item[i]);
	return code;
}

static bool is_reasons(unsigned field)
{
	return field == FIELD_FIGURE + FIGURE_CLOCK_REASONS;
}

/* Writes the names of the reasons for reduced clocks (NVML: clock event reasons), separated by
 * commas.  Writes "" if there are none. */
static void reasons_of(double v, char out[static 160])
{
	if (gw_quantity_name(GW_Q_CLOCK_REASONS, v, out, 160) != 0)
		snprintf(out, 160, "unknown");
}

/* Returns the elapsed time, rounded to a microsecond so that no line has
 * 0.30000000000000004. */
static double elapsed(const struct log_line *l)
{
	return round(l->elapsed_s * 1e6) / 1e6;
}

static void csv_text(struct buf *out, const char *s)
{
	if (!strpbrk(s, ",\"\r\n")) {
		buf_adds(out, s);
		return;
	}
	buf_addc(out, '"');
	for (; *s; s++) {
		if (*s == '"')
			buf_addc(out, '"');
		buf_addc(out, *s);
	}
	buf_addc(out, '"');
}

static void csv_number(struct buf *out, double v)
{
	char text[NUMBER_SIZE];

	if (!isfinite(v))
		return;
	number_format(v, text);
	buf_adds(out, text);
}

static void csv_field(struct buf *out, unsigned field, const struct log_line *l)
{
	char text[160];

	switch (field) {
	case FIELD_TIME:
		clock_format_rfc3339(l->wall_ns, text);
		buf_adds(out, text);
		break;
	case FIELD_ELAPSED: csv_number(out, elapsed(l)); break;
	case FIELD_INDEX: buf_addf(out, "%u", l->index); break;
	case FIELD_UUID: csv_text(out, l->uuid ? l->uuid : ""); break;
	case FIELD_PROVENANCE: csv_text(out, l->provenance); break;
	case FIELD_MISSED: buf_addf(out, "%llu", (unsigned long long)l->missed); break;
	default:
		if (is_reasons(field) && !isnan(l->figure[FIGURE_CLOCK_REASONS])) {
			reasons_of(l->figure[FIGURE_CLOCK_REASONS], text);
			csv_text(out, *text ? text : "none");
		} else {
			csv_number(out, l->figure[field - FIELD_FIGURE]);
		}
	}
}

static void csv_line(const struct log_format *f, const struct log_line *l, struct buf *out)
{
	for (unsigned i = 0; i < f->count; i++) {
		if (i)
			buf_addc(out, ',');
		csv_field(out, f->field[i], l);
	}
	buf_addc(out, '\n');
}

void log_line_heading(const struct log_format *f, struct buf *out)
{
	for (unsigned i = 0; i < f->count && !f->json; i++)
		buf_addf(out, "%s%s", i ? "," : "", log_line_field_name(f->field[i]));
	if (!f->json)
		buf_addc(out, '\n');
}

static void json_reasons(struct json *j, const char *key, double v)
{
	char text[160], *word = text, *end;

	if (isnan(v)) {
		json_null(j, key);
		return;
	}
	reasons_of(v, text);
	json_array(j, key);
	for (; *word; word = end) {
		end = word + strcspn(word, ",");
		if (*end)
			*end++ = '\0';
		json_string(j, NULL, word);
	}
	json_array_end(j);
}

static void json_field(struct json *j, unsigned field, const struct log_line *l)
{
	const char *key = log_line_field_name(field);
	char text[CLOCK_RFC3339_SIZE];

	switch (field) {
	case FIELD_TIME:
		clock_format_rfc3339(l->wall_ns, text);
		json_string(j, key, text);
		break;
	case FIELD_ELAPSED: json_double(j, key, elapsed(l)); break;
	case FIELD_INDEX: json_uint(j, key, l->index); break;
	case FIELD_UUID: json_string(j, key, l->uuid); break;
	case FIELD_PROVENANCE: json_string(j, key, l->provenance); break;
	case FIELD_MISSED: json_uint(j, key, l->missed); break;
	default:
		if (is_reasons(field))
			json_reasons(j, key, l->figure[FIGURE_CLOCK_REASONS]);
		else
			json_double(j, key, l->figure[field - FIELD_FIGURE]);
	}
}

void log_line_write(const struct log_format *f, const struct log_line *l, struct buf *out)
{
	struct json j;

	if (!f->json) {
		csv_line(f, l, out);
		return;
	}
	json_init(&j, out, false);
	json_object(&j, NULL);
	json_int(&j, "schema_version", RENDER_SCHEMA_VERSION);
	for (unsigned i = 0; i < f->count; i++)
		json_field(&j, f->field[i], l);
	json_object_end(&j);
	json_end(&j);
}

/* If the coverage is lower than this, the summary says for how long samples are missing. The
 * validity code low-coverage has the same limit. */
#define COVERAGE_FULL 0.98

/* The power in the lines of one GPU, in watts.  All members are NAN if it is unknown. */
struct line_power {
	double mean, sd, min, max, p50, p95;
};

static struct line_power line_power(const struct log_gpu *g)
{
	const struct moments *m = &g->power;

	if (m->count == 0)
		return (struct line_power){ NAN, NAN, NAN, NAN, NAN, NAN };
	return (struct line_power){ moments_mean(m),
				    sqrt(moments_variance_in_time(m)),
				    m->min,
				    m->max,
				    histogram_percentile(&g->spread, 0.5),
				    histogram_percentile(&g->spread, 0.95) };
}

/* Returns the mean power.  If the energy does not include the gaps between samples, the mean is
 * over the time that has samples. */
static double mean_power(const struct gw_energy *e)
{
	bool holes = e->meter == GW_METER_SAMPLES && e->gap_joules == 0 &&
		     e->coverage_ratio < COVERAGE_FULL && e->coverage_ratio > 0;

	return e->joules.best / (holes ? e->coverage_ratio * e->seconds : e->seconds);
}

static void print_energy(const struct gw_energy *e)
{
	bool first = true;

	if (isnan(e->joules.best))
		fputs("  energy    unknown", stderr);
	else
		fprintf(stderr,
			"  energy    %.1f J (%.1f to %.1f J) in %.2f s, mean %.2f W, measured "
			"by %s",
			e->joules.best, number_without_minus_zero(e->joules.low, 1),
			e->joules.high, e->seconds, mean_power(e), gw_rung_name(e->rung));
	if (e->meter == GW_METER_SAMPLES && e->coverage_ratio < COVERAGE_FULL)
		fprintf(stderr, " (no sample in %.1f s of this time)",
			(1 - e->coverage_ratio) * e->seconds);
	for (unsigned i = 0; i < GW_CODES; i++)
		if (e->codes & UINT64_C(1) << i) {
			fprintf(stderr, "%s %s", first ? ";" : ",", gw_code_info(i)->key);
			first = false;
		}
	fputc('\n', stderr);
}

static void print_throttle(const struct gw_energy *e)
{
	bool any = false, known = false;

	fputs("  throttle ", stderr);
	for (unsigned i = 0; i < GW_THROTTLES; i++) {
		known |= !isnan(e->throttle_seconds[i]);
		if (!(e->throttle_seconds[i] > 0))
			continue;
		fprintf(stderr, "%s %s %.2f s (%.1f %%)", any ? "," : "", gw_throttle_name(i),
			e->throttle_seconds[i], 100 * e->throttle_seconds[i] / e->seconds);
		any = true;
	}
	if (!any)
		fputs(known ? " none" : " unknown", stderr);
	if (!isnan(e->temperature_max))
		fprintf(stderr, "; highest temperature %.0f %s", e->temperature_max,
			term_plain("°C"));
	fputc('\n', stderr);
}

void log_gpu_print(const struct log_gpu *g, const struct energy_cost *cost)
{
	const struct line_power p = line_power(g);
	char text[ENERGY_COST_TEXT];

	fprintf(stderr, "GPU %u: %lu of %lu samples, %lu missed", g->device->index,
		g->collected, g->expected, g->expected - g->collected);
	if (!isnan(g->longest_s))
		fprintf(stderr, ", largest gap %.3f s", g->longest_s);
	if (g->dropped)
		fprintf(stderr,
			"; %lu lines dropped: the program that reads the log was too slow",
			g->dropped);
	if (isnan(p.mean))
		fputs("\n  power     unknown\n", stderr);
	else
		fprintf(stderr,
			"\n  power     mean %.2f W, s.d. %.2f W, %.2f to %.2f W, p50 %.1f W, "
			"p95 %.1f W\n",
			p.mean, p.sd, p.min, p.max, p.p50, p.p95);
	print_energy(&g->energy);
	energy_cost_text(cost, g->energy.joules.best, text);
	if (*text)
		fprintf(stderr, "  cost      %s\n", text);
	print_throttle(&g->energy);
}

void log_gpu_render(struct json *j, const struct log_gpu *g, const struct energy_cost *cost)
{
	const struct line_power p = line_power(g);

	json_object(j, NULL);
	json_uint(j, "device_index", g->device->index);
	json_string(j, "device_uuid", gw_device_text(g->device, GW_T_UUID));
	json_string(j, "device_name", gw_device_text(g->device, GW_T_NAME));
	json_string(j, "provenance", gw_provenance_name(g->device->provenance));
	json_double(j, "duration_seconds", g->energy.seconds);
	json_object(j, "lines");
	json_uint(j, "expected", g->expected);
	json_uint(j, "collected", g->collected);
	json_uint(j, "missed", g->expected - g->collected);
	json_uint(j, "dropped", g->dropped);
	json_double(j, "longest_gap_seconds", g->longest_s);
	json_object_end(j);
	json_object(j, "line_power_watts");
	json_double(j, "mean", p.mean);
	json_double(j, "sd", p.sd);
	json_double(j, "min", p.min);
	json_double(j, "max", p.max);
	json_double(j, "p50", p.p50);
	json_double(j, "p95", p.p95);
	json_object_end(j);
	render_energy(j, &g->energy);
	render_energy_detail(j, &g->energy);
	energy_cost_render(j, cost, &g->energy.joules);
	json_object_end(j);
}
