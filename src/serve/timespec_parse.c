#include "timespec_parse.h"

#include "base/clock.h"
#include "base/number.h"

#include <gpuward.h>

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define MOST_S (86400.0 * TIMESPEC_MOST_DAYS) /* in ns, this fits into 63 bits */

static const struct {
	const char *word;
	double seconds;
} units[] = { { "ms", 0.001 }, { "s", 1 }, { "m", 60 }, { "h", 3600 }, { "d", 86400 } };

/* Returns the seconds of the unit at *p and advances *p; NAN: no unit. */
static double parse_unit(const char **p)
{
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		size_t n = strlen(units[i].word);

		if (strncmp(*p, units[i].word, n) == 0 && !isalpha((unsigned char)(*p)[n])) {
			*p += n;
			return units[i].seconds;
		}
	}
	return NAN;
}

/* Works like number_parse(), but refuses hexadecimal numbers. */
static double parse_decimal(const char *text, const char **ret_end)
{
	double v = number_parse(text, ret_end);

	if (*text == '0' && (text[1] == 'x' || text[1] == 'X'))
		*ret_end = text + 1;
	return v;
}

int timespec_parse_span(const char *text, uint64_t *ret_ns)
{
	double total = 0;
	const char *p = text;

	do {
		const char *end;
		double v, factor = 1;

		if (!isdigit((unsigned char)*p))
			return -GW_E_PARSE;
		v = parse_decimal(p, &end);
		if (*end || p != text)
			factor = parse_unit(&end);
		total += v * factor;
		p = end;
		if (!(total >= 0 && total <= MOST_S))
			return -GW_E_PARSE;
	} while (*p);
	*ret_ns = (uint64_t)llround(total * 1e9);
	return 0;
}

/* Reads "Z", "+01:00" or "-0330" as seconds east of UTC. Returns false if the text has none of
 * these forms, or if more characters follow. */
static bool parse_offset(const char *p, long *ret)
{
	unsigned h, m;
	int n = 0;

	*ret = 0;
	if ((*p == 'Z' || *p == 'z') && !p[1])
		return true;
	if ((*p != '+' && *p != '-') ||
	    (sscanf(p + 1, "%2u:%2u%n", &h, &m, &n) != 2 &&
	     sscanf(p + 1, "%2u%2u%n", &h, &m, &n) != 2) ||
	    p[1 + n] || h > 23 || m > 59)
		return false;
	*ret = (long)(h * 3600 + m * 60) * (*p == '-' ? -1 : 1);
	return true;
}

/* Returns false for a day that does not exist, such as 30 February. timegm() changes such a day
 * to another day. */
static bool day_exists(const struct tm *day)
{
	struct tm tm = { .tm_year = day->tm_year,
			 .tm_mon = day->tm_mon,
			 .tm_mday = day->tm_mday };

	timegm(&tm);
	return tm.tm_mday == day->tm_mday;
}

static int parse_rfc3339(const char *text, uint64_t *ret)
{
	struct tm tm = { 0 };
	const char *p = strptime(text, "%Y-%m-%d", &tm);
	double fraction = 0;
	long east;
	time_t t;

	if (!p || (*p != 'T' && *p != 't' && *p != ' ') || !day_exists(&tm))
		return -GW_E_PARSE;
	p = strptime(p + 1, "%H:%M:%S", &tm);
	if (p && *p == '.' && isdigit((unsigned char)p[1]))
		fraction = number_parse(p, &p);
	if (!p || fraction >= 1 || !parse_offset(p, &east))
		return -GW_E_PARSE;
	t = timegm(&tm) - east;
	if (t < 0 || (double)t >= MOST_S)
		return -GW_E_PARSE;
	*ret = (uint64_t)t * NS_PER_S + (uint64_t)(fraction * 1e9);
	return 0;
}

int timespec_parse(const char *text, uint64_t now_wall_ns, uint64_t *ret)
{
	const char *end;
	uint64_t span;

	if (strcmp(text, "now") == 0) {
		*ret = now_wall_ns;
		return 0;
	}
	if (*text == '-') {
		if (timespec_parse_span(text + 1, &span) != 0)
			return -GW_E_PARSE;
		*ret = span < now_wall_ns ? now_wall_ns - span : 0;
		return 0;
	}
	if (isdigit((unsigned char)*text)) {
		double s = parse_decimal(text, &end);

		if (!*end && s < MOST_S) {
			*ret = (uint64_t)llround(s * 1e9);
			return 0;
		}
	}
	return parse_rfc3339(text, ret);
}
