/* Replies with the history of quantities over a time range, as one array per column. */
#include "api_parts.h"

#include "timespec_parse.h"

#include "base/suggest.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POINTS_AUTO  1000  /* maximum number of points per block if the request has no step */
#define POINTS_MOST  11000 /* maximum number of points per block */
#define POINTS_TOTAL 100000
#define RANGE_NS     (15 * 60 * NS_PER_S)

struct series_request {
	uint64_t from_ns, to_ns, step_ns;
	unsigned quantity[VIEW_HISTORIES];
	unsigned quantities;
	unsigned points; /* maximum number of points per block */
};

static bool has_history(unsigned quantity)
{
	for (unsigned i = 0; i < VIEW_HISTORIES; i++)
		if (view_history_quantity[i] == quantity)
			return true;
	return false;
}

static void no_quantity(struct reply *r, const char *word)
{
	const char *keys[VIEW_HISTORIES], *near;
	char mem[1024];
	struct buf list;

	buf_init_fixed(&list, mem, sizeof(mem)); /* truncates a list that is too long */
	for (unsigned i = 0; i < VIEW_HISTORIES; i++) {
		keys[i] = gw_quantity_info(view_history_quantity[i])->key;
		buf_addf(&list, "%s%s", i ? ", " : "", keys[i]);
	}
	near = suggest(word, keys, VIEW_HISTORIES, sizeof(keys[0]));
	if (near)
		reply_problem(r, 404, "no-such-quantity", NULL,
			      "no history of \"%.64s\"; did you mean \"%s\"?", word, near);
	else
		reply_problem(r, 404, "no-such-quantity", NULL,
			      "no history of \"%.64s\"; available: %s", word, list.p);
}

static bool read_quantities(const struct request *q, struct reply *r, struct series_request *s)
{
	const char *list = request_param(q, "quantity");
	char word[65];

	if (!list)
		list = gw_quantity_info(GW_Q_POWER)->key;
	do {
		size_t n = strcspn(list, ",");
		int found;

		snprintf(word, sizeof(word), "%.*s", (int)(n < 64 ? n : 64), list);
		found = gw_quantity_find(word);
		if (found < 0 || !has_history((unsigned)found)) {
			no_quantity(r, word);
			return false;
		}
		if (s->quantities < VIEW_HISTORIES)
			s->quantity[s->quantities++] = (unsigned)found;
		list += n;
	} while (*list++);
	return true;
}

/* Returns the smallest step of the table that is at least least_ns. */
static uint64_t nice_step(uint64_t least_ns)
{
	static const unsigned steps[] = {
		1,   2,   5,    10,   15,   30,    60,    120,   300,
		600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400
	};

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		if (steps[i] * NS_PER_S >= least_ns)
			return steps[i] * NS_PER_S;
	return (least_ns + 86400 * NS_PER_S - 1) / (86400 * NS_PER_S) * (86400 * NS_PER_S);
}

static const struct {
	const char *word;
	uint64_t step_ns;
} tier_table[] = {
	{ "auto", 0 },
	{ "second", NS_PER_S },
	{ "minute", 60 * NS_PER_S },
	{ "hour", 3600 * NS_PER_S },
};
#define TIERS (sizeof(tier_table) / sizeof(tier_table[0]))

/* Reads ?tier=, which names a step. Returns false after an error reply. */
static bool read_tier(const struct request *q, struct reply *r, uint64_t *ret)
{
	const char *word = request_param(q, "tier");

	*ret = 0;
	if (!word)
		return true;
	for (size_t i = 0; i < TIERS; i++)
		if (strcmp(word, tier_table[i].word) == 0) {
			*ret = tier_table[i].step_ns;
			return true;
		}
	reply_problem(r, 400, "bad-parameter", "Tiers are auto, second, minute and hour.",
		      "unknown tier \"%.64s\"", word);
	return false;
}

static bool read_step(const struct api *a, const struct request *q, struct reply *r,
		      struct series_request *s)
{
	const char *text = request_param(q, "step");
	uint64_t span = s->to_ns - s->from_ns, interval = a->view.interval_ns;

	if (!read_tier(q, r, &s->step_ns))
		return false;
	if (text && (timespec_parse_span(text, &s->step_ns) != 0 || s->step_ns == 0)) {
		reply_problem(r, 400, "bad-parameter", "Write 10s, 1m or a number of seconds.",
			      "step=\"%.64s\" is not a duration of more than 0 s and at most "
			      "%d days",
			      text, TIMESPEC_MOST_DAYS);
		return false;
	}
	if (s->step_ns == 0)
		s->step_ns = span / POINTS_AUTO <= interval ? interval
							    : nice_step(span / POINTS_AUTO);
	if (s->step_ns == 0 || span / s->step_ns >= POINTS_MOST) {
		reply_problem(r, 400, "too-many-points", NULL,
			      "a range of %.0f s in steps of %g s has too many points; use a "
			      "step of at least %.0f s, or omit it",
			      (double)span / 1e9, (double)s->step_ns / 1e9,
			      ceil((double)span / 1e9 / (POINTS_MOST - 1)));
		return false;
	}
	s->points = (unsigned)(span / s->step_ns) + 2;
	return true;
}

static bool read_range(const struct api *a, const struct request *q, struct reply *r,
		       struct series_request *s)
{
	uint64_t now = clock_wall_ns(a->clock);

	if (!api_time(a, q, r, "to", now, &s->to_ns) ||
	    !api_time(a, q, r, "from", s->to_ns > RANGE_NS ? s->to_ns - RANGE_NS : 0,
		      &s->from_ns))
		return false;
	if (s->from_ns < s->to_ns)
		return true;
	reply_problem(r, 400, "bad-parameter", "from must be earlier than to.",
		      "the range is empty: \"from\" is not earlier than \"to\"");
	return false;
}

enum column { COLUMN_TIME, COLUMN_MEAN, COLUMN_MIN, COLUMN_MAX, COLUMNS };

/* Rounds to seven significant digits, because values are stored as float. Whole numbers stay
 * unchanged. */
static double round_digits(double v)
{
	double scale;

	if (!isfinite(v) || v == 0 || fabs(v) >= 1e7)
		return v;
	scale = pow(10, 6 - floor(log10(fabs(v))));
	return round(v * scale) / scale;
}

static double point_figure(const struct view_point *p, enum column c)
{
	switch (c) {
	case COLUMN_TIME: return (double)(p->begin_wall_ns / NS_PER_MS) / 1e3;
	case COLUMN_MEAN: return round_digits(p->mean);
	case COLUMN_MIN: return round_digits(p->min);
	default: return round_digits(p->max);
	}
}

static void write_columns(struct json *j, const struct view_point *p, unsigned n)
{
	static const char *const names[COLUMNS] = { "time", "mean", "min", "max" };

	for (unsigned c = 0; c < COLUMNS; c++) {
		json_array(j, names[c]);
		for (unsigned i = 0; i < n; i++)
			if (p[i].count)
				json_double(j, NULL, point_figure(&p[i], (enum column)c));
		json_array_end(j);
	}
}

static void write_block(struct json *j, const struct api *a, const struct gw_device *d,
			unsigned quantity, const struct series_request *s,
			struct view_point *points)
{
	const char *uuid = gw_device_text(d, GW_T_UUID);
	uint64_t step_ns = s->step_ns;
	int n = -GW_E_NOSUPPORT;

	if (uuid && a->view.ops && a->view.ops->history)
		n = a->view.ops->history(a->view.engine, uuid, quantity, s->from_ns, s->to_ns,
					 s->step_ns, points, s->points, &step_ns);
	json_object(j, NULL);
	json_string(j, "quantity", gw_quantity_info(quantity)->key);
	json_string(j, "gpu", uuid);
	json_uint(j, "index", d->index);
	json_double(j, "step_seconds", (double)step_ns / 1e9);
	json_string(j, "error", n < 0 && n != -GW_E_NODEV ? gw_strerror(n) : NULL);
	write_columns(j, points, n > 0 ? (unsigned)n : 0);
	json_object_end(j);
}

static void write_blocks(const struct api *a, struct reply *r, const struct series_request *s,
			 const struct render_filter *filter, struct view_point *points)
{
	struct json j;

	api_begin(&j, a, r);
	json_time(&j, "from", s->from_ns);
	json_time(&j, "to", s->to_ns);
	json_array(&j, "series");
	for (unsigned i = 0; i < gw_snapshot_device_count(a->view.snap); i++)
		for (unsigned k = 0; render_shows(filter, i) && k < s->quantities; k++)
			write_block(&j, a, gw_snapshot_device(a->view.snap, i), s->quantity[k],
				    s, points);
	json_array_end(&j);
	api_end(&j);
}

static unsigned count_shown(const struct api *a, const struct render_filter *filter)
{
	unsigned n = 0;

	for (unsigned i = 0; i < gw_snapshot_device_count(a->view.snap); i++)
		n += render_shows(filter, i);
	return n;
}

static void send_series(const struct api *a, const struct request *q, struct reply *r,
			const struct render_filter *filter)
{
	struct series_request s = { 0 };
	struct view_point *points;

	if (!read_quantities(q, r, &s) || !read_range(a, q, r, &s) || !read_step(a, q, r, &s))
		return;
	if (count_shown(a, filter) * s.quantities * s.points > POINTS_TOTAL) {
		reply_problem(
			r, 400, "too-many-points",
			"Request fewer GPUs or quantities at a time, or use longer steps.",
			"%u GPUs with %u quantities of up to %u points exceed the limit of %u "
			"points",
			count_shown(a, filter), s.quantities, s.points, POINTS_TOTAL);
		return;
	}
	points = calloc(s.points, sizeof(*points));
	if (!points) {
		api_no_memory(r);
		return;
	}
	write_blocks(a, r, &s, filter, points);
	free(points);
}

void api_series(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	struct render_filter f;
	const struct render_filter *filter;

	if (api_has_reading(a, r) && api_filter(a, q, r, &f, &filter))
		send_series(a, q, r, filter);
}

void api_device_series(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	struct render_filter f = { { false } };
	int i;

	if (!api_has_reading(a, r) || (i = api_find(a, r, 404, q->arg[0])) < 0)
		return;
	f.selected[i] = true;
	send_series(a, q, r, &f);
}
