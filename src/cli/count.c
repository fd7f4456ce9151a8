#include "count.h"

#include "base/child.h"
#include "base/clock.h"
#include "base/number.h"
#include "count_url.h"

#include <gpuward.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MOST_COUNT 1e15 /* whole numbers are exact in a double up to there */

static const char space[] = " \t\r\n";

/* ---- asking ---- */

void count_refuse(struct count_reading *r, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r->why, sizeof(r->why), fmt, ap);
	va_end(ap);
	r->value = NAN;
	r->n = 0;
}

static const struct count_series *find(const struct count_reading *r, uint64_t id)
{
	for (unsigned i = 0; i < r->n; i++)
		if (r->series[i].id == id)
			return &r->series[i];
	return NULL;
}

void count_add(struct count_reading *r, uint64_t id, double value)
{
	char number[NUMBER_SIZE] = "no number (NaN)";

	if (isfinite(value))
		number_format(value, number);
	if (isnan(r->value))
		return; /* refused already */
	if (!(value >= 0 && value <= MOST_COUNT))
		count_refuse(r, "it is %s, which nothing can be counted by",
			     isinf(value) ? "infinite" : number);
	else if (find(r, id))
		count_refuse(r, "it tells one series twice");
	else if (r->n == COUNT_SERIES)
		count_refuse(r, "it has more than %d series: choose some by their labels",
			     COUNT_SERIES);
	else
		r->series[r->n++] = (struct count_series){ id, value };
	if (!isnan(r->value))
		r->value += value;
}

/* A shell command: it prints one number. */
static void read_command(const char *command, struct count_reading *ret)
{
	const char *const argv[] = { "/bin/sh", "-c", command, NULL };
	char out[256] = "";
	int status = child_run(argv, ret->before_ns + COUNT_MOST_NS, out, sizeof(out));
	const char *text = out + strspn(out, space), *end;
	double v = number_parse(text, &end);

	if (status < 0) {
		count_refuse(ret, "%s", gw_strerror(status));
	} else if (status > 0) {
		count_refuse(ret, "it ended with status %d", status);
	} else if (end == text || end[strspn(end, space)] || !(v >= 0 && v <= MOST_COUNT)) {
		out[strcspn(out, "\r\n")] = '\0';
		count_refuse(ret, "it printed '%.60s', and not one number", out);
	} else {
		count_add(ret, 0, v);
	}
}

static int any_command(const char *command, char *why, size_t size)
{
	if (*command)
		return 0;
	snprintf(why, size, "it wants a command, and '' is none");
	return -GW_E_ARG;
}

const struct count_kind count_kinds[COUNT_KINDS] = {
	[COUNT_CMD] = { "count-cmd", NULL, any_command, read_command },
	[COUNT_URL] = { "count-url", count_url_place, count_url_check, count_url_read },
};

void count_read(const struct count_kind *kind, const char *text, struct count_reading *ret)
{
	ret->value = 0;
	ret->n = 0;
	ret->why[0] = ret->name[0] = '\0';
	ret->before_ns = clock_mono_ns(clock_real());
	kind->read(text, ret);
	ret->after_ns = clock_mono_ns(clock_real());
}

/* ---- what it means ---- */

static double seconds(uint64_t from_ns, uint64_t to_ns)
{
	return to_ns > from_ns ? (double)(to_ns - from_ns) * 1e-9 : 0;
}

/* One series that began anew is not made good by others that went on. */
static bool went_back(const struct count_reading *first, const struct count_reading *last,
		      struct count *ret)
{
	for (unsigned i = 0; i < first->n; i++) {
		const struct count_series *a = &first->series[i], *b = find(last, a->id);

		if (b && b->value >= a->value)
			continue;
		if (!b)
			snprintf(ret->why, sizeof(ret->why),
				 "one of its series, which said %.0f before, is gone after",
				 a->value);
		else
			snprintf(ret->why, sizeof(ret->why),
				 "it said %.0f before and %.0f after: it went back, as when "
				 "what counts is started anew",
				 a->value, b->value);
		return true;
	}
	return false;
}

void count_between(const struct count_reading *first, const struct count_reading *last,
		   uint64_t begin_ns, uint64_t end_ns, struct count *ret)
{
	double around = seconds(first->before_ns, begin_ns) + seconds(end_ns, last->after_ns);
	double made = last->value - first->value;

	*ret = (struct count){ .number = NAN, .edge = 0 };
	if (isnan(made)) {
		snprintf(ret->why, sizeof(ret->why), "%s",
			 *first->why ? first->why : last->why);
	} else if (went_back(first, last, ret)) {
		;
	} else if (!(made > 0)) {
		snprintf(ret->why, sizeof(ret->why), "it said %.0f before and %.0f after",
			 first->value, last->value);
	} else {
		ret->number = made;
		ret->edge = made * around / seconds(first->before_ns, last->after_ns);
	}
}
