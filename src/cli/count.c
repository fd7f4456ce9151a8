#include "count.h"

#include "base/child.h"
#include "base/clock.h"
#include "base/number.h"

#include <gpuward.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST_NS    (10 * NS_PER_S)
#define MOST_COUNT 1e15 /* whole numbers are exact in a double up to there */

static const char space[] = " \t\r\n";

static double parse(const char *text)
{
	const char *end;
	double v;

	text += strspn(text, space);
	v = number_parse(text, &end);
	if (end == text || end[strspn(end, space)] || !(v >= 0 && v <= MOST_COUNT))
		return NAN;
	return v;
}

void count_read(const char *command, struct count_reading *ret)
{
	const char *const argv[] = { "/bin/sh", "-c", command, NULL };
	char out[256] = "";
	int status;

	*ret = (struct count_reading){ .value = NAN, .before_ns = clock_mono_ns(clock_real()) };
	status = child_run(argv, ret->before_ns + MOST_NS, out, sizeof(out));
	ret->after_ns = clock_mono_ns(clock_real());
	if (status == 0)
		ret->value = parse(out);
	out[strcspn(out, "\r\n")] = '\0';
	if (status < 0)
		snprintf(ret->why, sizeof(ret->why), "%s", gw_strerror(status));
	else if (status > 0)
		snprintf(ret->why, sizeof(ret->why), "it ended with status %d", status);
	else if (isnan(ret->value))
		snprintf(ret->why, sizeof(ret->why), "it printed '%.60s', and not one number",
			 out);
}

static double seconds(uint64_t from_ns, uint64_t to_ns)
{
	return to_ns > from_ns ? (double)(to_ns - from_ns) * 1e-9 : 0;
}

void count_between(const struct count_reading *first, const struct count_reading *last,
		   uint64_t begin_ns, uint64_t end_ns, struct count *ret)
{
	double around = seconds(first->before_ns, begin_ns) + seconds(end_ns, last->after_ns);

	*ret = (struct count){ .number = last->value - first->value, .edge = 0 };
	if (isnan(ret->number)) {
		snprintf(ret->why, sizeof(ret->why), "%s",
			 *first->why ? first->why : last->why);
	} else if (!(ret->number > 0)) {
		snprintf(ret->why, sizeof(ret->why), "it said %.0f before and %.0f after",
			 first->value, last->value);
		ret->number = NAN;
	} else {
		ret->edge = ret->number * around / seconds(first->before_ns, last->after_ns);
	}
}
