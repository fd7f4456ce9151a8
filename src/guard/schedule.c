/* Hours of the week: read from a text, and looked up by the clock on the wall. */
#include "policy.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define ALL_DAYS 0x7fU

static const char *const days[7] = { "monday", "tuesday",  "wednesday", "thursday",
				     "friday", "saturday", "sunday" };

/* A text under way, and where to say what is wrong with it. */
struct reading {
	const char *p;
	char *message;
	size_t size;
};

static bool refuse(struct reading *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static bool refuse(struct reading *r, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r->message, r->size, fmt, ap);
	va_end(ap);
	return false;
}

static void blanks(struct reading *r)
{
	while (*r->p == ' ' || *r->p == '\t')
		r->p++;
}

static bool take(struct reading *r, char c)
{
	blanks(r);
	if (*r->p != c)
		return false;
	r->p++;
	blanks(r);
	return true;
}

/* ---- days ---- */

static size_t word_length(const char *p)
{
	size_t n = 0;

	while (isalpha((unsigned char)p[n]))
		n++;
	return n;
}

/* "Fri" or "Friday". */
static bool read_day(struct reading *r, unsigned *ret)
{
	size_t n = word_length(r->p);

	for (unsigned i = 0; i < 7; i++)
		if (strncasecmp(r->p, days[i], n) == 0 && (n == 3 || n == strlen(days[i]))) {
			*ret = i;
			r->p += n;
			return true;
		}
	if (n == 0)
		return refuse(r, "a day is missing before \"%.20s\"", r->p);
	return refuse(
		r, "\"%.*s\" is no day: days are Mon, Tue, Wed, Thu, Fri, Sat, Sun and daily",
		(int)(n < 20 ? n : 20), r->p);
}

/* "Fri" or "Fri-Mon": the week goes round. */
static bool read_day_range(struct reading *r, unsigned *set)
{
	unsigned from, to;

	if (!read_day(r, &from))
		return false;
	to = from;
	if (take(r, '-') && !read_day(r, &to))
		return false;
	for (unsigned d = from;; d = (d + 1) % 7) {
		*set |= 1U << d;
		if (d == to)
			return true;
	}
}

static bool read_days(struct reading *r, unsigned *ret)
{
	size_t n = word_length(r->p);

	*ret = 0;
	if (n == 0 && *r->p != ',') {
		*ret = ALL_DAYS;
		return true;
	}
	if (n == 5 && strncasecmp(r->p, "daily", n) == 0) {
		*ret = ALL_DAYS;
		r->p += n;
		return true;
	}
	do {
		if (!read_day_range(r, ret))
			return false;
	} while (take(r, ','));
	return true;
}

/* ---- hours ---- */

static bool digits(const char **p, unsigned least, unsigned most, unsigned *ret)
{
	unsigned n = 0;

	for (*ret = 0; n < most && isdigit((unsigned char)**p); n++)
		*ret = *ret * 10 + (unsigned)(*(*p)++ - '0');
	return n >= least && !isdigit((unsigned char)**p);
}

/* "18:00"; "24:00" only ends a day. */
static bool read_time(struct reading *r, bool end, unsigned *ret)
{
	const char *start = r->p;
	unsigned hour, min;

	if (!*start || *start == ';')
		return refuse(r, "the %s is missing: write for example \"Fri-Sun 18:00-23:00\"",
			      end ? "end" : "time");
	if (!digits(&r->p, 1, 2, &hour) || *r->p++ != ':' || !digits(&r->p, 2, 2, &min))
		return refuse(r, "\"%.*s\" is no time: write HH:MM, such as 18:00-23:00",
			      (int)(strcspn(start, " -;") < 20 ? strcspn(start, " -;") : 20),
			      start);
	if (hour > 24 || min > 59 || (hour == 24 && (min > 0 || !end)))
		return refuse(r, "there is no %.*s: a day has 00:00 to %s", (int)(r->p - start),
			      start, end ? "24:00" : "23:59");
	*ret = hour * 60 + min;
	return true;
}

static bool read_span(struct reading *r, struct policy_span *ret)
{
	blanks(r);
	if (!read_days(r, &ret->days))
		return false;
	blanks(r);
	if (!read_time(r, false, &ret->from_min))
		return false;
	if (!take(r, '-'))
		return refuse(r,
			      "the end is missing: write for example \"Fri-Sun 18:00-23:00\"");
	if (!read_time(r, true, &ret->to_min))
		return false;
	blanks(r);
	if (*r->p && *r->p != ';')
		return refuse(r, "there is more after the span: \"%.20s\"; part spans with ';'",
			      r->p);
	if (ret->from_min == ret->to_min)
		return refuse(r, "the span is empty: it ends when it begins; a whole day is "
				 "00:00-24:00");
	return true;
}

int policy_spans_read(const char *text, struct policy_span *span, unsigned n, char *message,
		      size_t size)
{
	struct reading r = { text, message, size };
	unsigned first = n;

	do {
		struct policy_span s;

		if (!read_span(&r, &s))
			return -GW_E_PARSE;
		if (n == POLICY_SPANS) {
			refuse(&r, "a worker has at most %d spans", POLICY_SPANS);
			return -GW_E_PARSE;
		}
		span[n++] = s;
	} while (take(&r, ';'));
	return (int)(n - first);
}

/* ---- looking up ---- */

bool policy_in_schedule(const struct policy_worker *w, const struct tm *local)
{
	const unsigned now = (unsigned)(local->tm_hour * 60 + local->tm_min);
	const unsigned today = (unsigned)(local->tm_wday + 6) % 7;
	const unsigned yesterday = (today + 6) % 7;

	for (unsigned i = 0; i < w->schedules; i++) {
		const struct policy_span *s = &w->schedule[i];
		bool begun = (s->days >> today & 1) && now >= s->from_min;

		if (s->to_min > s->from_min) {
			if (begun && now < s->to_min)
				return true;
		} else if (begun || ((s->days >> yesterday & 1) && now < s->to_min)) {
			return true;
		}
	}
	return false;
}

static bool in_schedule_at(const struct policy_worker *w, int64_t local_s)
{
	time_t t = (time_t)local_s;
	struct tm local;

	return gmtime_r(&t, &local) && policy_in_schedule(w, &local);
}

int64_t policy_schedule_left_s(const struct policy_worker *w, int64_t local_s)
{
	const int64_t day_s = 86400, midnight = local_s - local_s % day_s;
	int64_t first = INT64_MAX;

	for (unsigned i = 0; i < w->schedules; i++)
		for (int day = 0; day <= 7; day++) {
			int64_t end =
				midnight + day * day_s + 60 * (int64_t)w->schedule[i].to_min;

			if (end > local_s && end < first && !in_schedule_at(w, end))
				first = end;
		}
	return first == INT64_MAX ? -1 : first - local_s;
}

void policy_schedule_text(const struct policy_worker *w, int64_t local_s, char *out,
			  size_t size)
{
	static const char *const name[7] = { "Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun" };
	char on[40] = "";

	out[0] = '\0';
	for (unsigned i = 0; i < w->schedules; i++) {
		const struct policy_span *s = &w->schedule[i];
		struct policy_worker one = { .schedule = { *s }, .schedules = 1 };

		if (!in_schedule_at(&one, local_s))
			continue;
		for (unsigned d = 0; s->days != ALL_DAYS && d < 7; d++)
			if (s->days >> d & 1)
				snprintf(on + strlen(on), sizeof(on) - strlen(on), "%s%s",
					 *on ? "," : "", name[d]);
		snprintf(out, size, "%s %02u:%02u-%02u:%02u", *on ? on : "daily",
			 s->from_min / 60, s->from_min % 60, s->to_min / 60, s->to_min % 60);
		return;
	}
}
