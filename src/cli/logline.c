#include "logline.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/number.h"
#include "serve/render.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The fields from FIELD_FIGURE on are the figures of a tick; their names are the keys of
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

const char *logline_field_name(unsigned i)
{
	if (i < FIELD_FIGURE)
		return names[i];
	if (i - FIELD_FIGURE < FIGURES)
		return gw_quantity_info(event_quantity[i - FIELD_FIGURE])->key;
	return NULL;
}

static void add_field(struct logline_format *f, unsigned field)
{
	assert(f->count < LOGLINE_FIELDS); /* if this fails, LOGLINE_FIELDS is too small */
	f->field[f->count++] = field;
}

void logline_defaults(struct logline_format *f, bool json)
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

int logline_add_field(struct logline_format *f, const char *name)
{
	for (unsigned i = 0; logline_field_name(i); i++) {
		if (strcmp(name, logline_field_name(i)) != 0)
			continue;
		for (unsigned k = 0; k < f->count; k++)
			if (f->field[k] == i)
				return -GW_E_ARG;
		add_field(f, i);
		return 0;
	}
	return -GW_E_NOENT;
}

static bool is_reasons(unsigned field)
{
	return field == FIELD_FIGURE + FIGURE_CLOCK_REASONS;
}

/* Writes the names of the clock event reasons of NVML, separated by commas; "" if there are
 * none. */
static void reasons_of(double v, char out[static 160])
{
	if (gw_quantity_name(GW_Q_CLOCK_REASONS, v, out, 160) != 0)
		snprintf(out, 160, "unknown");
}

/* Rounds to a microsecond, so that no line has 0.30000000000000004. */
static double elapsed(const struct logline *l)
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

static void csv_field(struct buf *out, unsigned field, const struct logline *l)
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

static void csv_line(const struct logline_format *f, const struct logline *l, struct buf *out)
{
	for (unsigned i = 0; i < f->count; i++) {
		if (i)
			buf_addc(out, ',');
		csv_field(out, f->field[i], l);
	}
	buf_addc(out, '\n');
}

void logline_heading(const struct logline_format *f, struct buf *out)
{
	for (unsigned i = 0; i < f->count && !f->json; i++)
		buf_addf(out, "%s%s", i ? "," : "", logline_field_name(f->field[i]));
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

static void json_field(struct json *j, unsigned field, const struct logline *l)
{
	const char *key = logline_field_name(field);
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

void logline_write(const struct logline_format *f, const struct logline *l, struct buf *out)
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
