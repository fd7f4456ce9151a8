#include "counter.h"

#include "base/child.h"
#include "base/clock.h"
#include "base/number.h"
#include "counter_url.h"

#include <gpuward.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#define MOST_COUNT 1e15 /* whole numbers are exact in a double up to there */

#define CLOCKS_S 2.0 /* by so much the server's clock and ours may differ, and its own be set */

#define LOOK_NS (50 * NS_PER_MS) /* between two looks whether somebody asked us to end */

static const char space[] = " \t\r\n";

/* ---- asking ---- */

void counter_refuse(struct counter_reading *r, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r->why, sizeof(r->why), fmt, ap);
	va_end(ap);
	r->value = NAN;
	r->n = 0;
}

static const struct counter_series *find(const struct counter_reading *r, uint64_t id)
{
	for (unsigned i = 0; i < r->n; i++)
		if (r->series[i].id == id)
			return &r->series[i];
	return NULL;
}

void counter_add(struct counter_reading *r, uint64_t id, double value)
{
	char number[NUMBER_SIZE] = "no number (NaN)";

	if (isfinite(value))
		number_format(value, number);
	if (isnan(r->value))
		return; /* refused already */
	if (!(value >= 0 && value <= MOST_COUNT))
		counter_refuse(r, "it is %s, which nothing can be counted by",
			       isinf(value) ? "infinite" : number);
	else if (find(r, id))
		counter_refuse(r, "it tells one series twice");
	else if (r->n == COUNTER_SERIES)
		counter_refuse(r, "it has more than %d series: choose some by their labels",
			       COUNTER_SERIES);
	else
		r->series[r->n++] = (struct counter_series){ id, value, NAN };
	if (!isnan(r->value))
		r->value += value;
}

/* The next moment to look whether somebody asked us to end; 0: the time is up. */
static uint64_t next_look(struct deadline *p)
{
	uint64_t now = clock_mono_ns(clock_real()), next = now + LOOK_NS;

	deadline_check_stop(p);
	if (now >= p->until_ns)
		return 0;
	return next < p->until_ns ? next : p->until_ns;
}

/* Reads to the end; what does not fit is passed over, and there was too much for a number
 * anyhow. */
static int read_output(struct child *c, struct deadline *p, char *out, size_t size)
{
	char rest[512];
	size_t used = 0;
	long n = 1;

	while (n > 0 || n == -GW_E_TIMEOUT) {
		bool fits = used < size - 1;
		uint64_t until = next_look(p);

		if (!until)
			return deadline_error(p);
		n = child_read(c, until, fits ? out + used : rest,
			       fits ? size - 1 - used : sizeof(rest));
		if (n > 0 && fits)
			used += (size_t)n;
	}
	out[used] = '\0';
	return (int)n;
}

static int await_end(struct child *c, struct deadline *p)
{
	int status = 0;
	uint64_t until;

	do {
		until = next_look(p);
		if (!until)
			return deadline_error(p);
	} while (child_wait(c, until, &status) != 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* As child_run(), and whoever asks us to end is heard meanwhile: -GW_E_STATE. */
static int run(const char *command, const struct deadline_stop *stop, char *out, size_t size)
{
	const char *const argv[] = { "/bin/sh", "-c", command, NULL };
	struct deadline p;
	struct child c;
	int status = child_start(&c, argv, NULL);

	if (status < 0)
		return status;
	deadline_init(&p, COUNTER_MOST_NS, stop);
	status = read_output(&c, &p, out, size);
	if (status == 0)
		status = await_end(&c, &p);
	child_stop(&c);
	return status;
}

/* A shell command: it prints one number. */
static void read_command(const char *command, const struct deadline_stop *stop,
			 struct counter_reading *ret)
{
	char out[256] = "";
	int status = run(command, stop, out, sizeof(out));
	const char *text = out + strspn(out, space), *end;
	double v = number_parse(text, &end);

	if (status == -GW_E_STATE) {
		counter_refuse(ret, "the command had not ended when this was interrupted");
	} else if (status < 0) {
		counter_refuse(ret, "%s", gw_strerror(status));
	} else if (status > 0) {
		counter_refuse(ret, "it ended with status %d", status);
	} else if (end == text || end[strspn(end, space)] || !(v >= 0 && v <= MOST_COUNT)) {
		out[strcspn(out, "\r\n")] = '\0';
		counter_refuse(ret, "it printed '%.60s', and not one number", out);
	} else {
		counter_add(ret, 0, v);
	}
}

static int any_command(const char *command, char *why, size_t size)
{
	if (*command)
		return 0;
	snprintf(why, size, "it wants a command, and '' is none");
	return -GW_E_ARG;
}

const struct counter_kind counter_kinds[COUNTER_KINDS] = {
	[COUNTER_CMD] = { "count-cmd", NULL, any_command, read_command },
	[COUNTER_URL] = { "count-url", counter_url_place, counter_url_check, counter_url_read },
};

void counter_read(const struct counter_kind *kind, const char *text,
		  const struct deadline_stop *stop, struct counter_reading *ret)
{
	ret->value = 0;
	ret->n = 0;
	ret->why[0] = ret->name[0] = '\0';
	ret->before_ns = clock_mono_ns(clock_real());
	ret->wall_s = (double)clock_wall_ns(clock_real()) * 1e-9;
	kind->read(text, stop, ret);
	ret->after_ns = clock_mono_ns(clock_real());
}

/* ---- what it means ---- */

static double seconds(uint64_t from_ns, uint64_t to_ns)
{
	return to_ns > from_ns ? (double)(to_ns - from_ns) * 1e-9 : 0;
}

/* It has outgrown what it was, and only the server can tell. */
static bool began_anew(const struct counter_series *a, const struct counter_series *b)
{
	return b->created_s > a->created_s + CLOCKS_S;
}

/* Series that are new: false where one of them was there before, and how much of it is of the
 * run nobody knows. */
static bool take_fresh(const struct counter_reading *first, const struct counter_reading *last,
		       struct counter *ret)
{
	for (unsigned i = 0; i < last->n; i++) {
		const struct counter_series *s = &last->series[i];

		if (find(first, s->id))
			continue;
		if (s->created_s < first->wall_s - CLOCKS_S) {
			snprintf(ret->why, sizeof(ret->why),
				 "one of its series, which says %.0f, was not told before, and "
				 "began %.0f s earlier by the server's clock",
				 s->value, first->wall_s - s->created_s);
			return false;
		}
		ret->fresh++;
		ret->fresh_number += s->value;
		ret->fresh_assumed = ret->fresh_assumed || isnan(s->created_s);
	}
	return true;
}

/* One series that began anew is not made good by others that went on. */
static bool went_back(const struct counter_reading *first, const struct counter_reading *last,
		      struct counter *ret)
{
	for (unsigned i = 0; i < first->n; i++) {
		const struct counter_series *a = &first->series[i], *b = find(last, a->id);

		if (b && b->value >= a->value && !began_anew(a, b))
			continue;
		if (!b)
			snprintf(ret->why, sizeof(ret->why),
				 "one of its series, which said %.0f before, is gone after",
				 a->value);
		else if (b->value >= a->value)
			snprintf(ret->why, sizeof(ret->why),
				 "it began anew between: it said %.0f before, and what counted "
				 "then is gone",
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

void counter_between(const struct counter_reading *first, const struct counter_reading *last,
		     uint64_t begin_ns, uint64_t end_ns, struct counter *ret)
{
	double around = seconds(first->before_ns, begin_ns) + seconds(end_ns, last->after_ns);
	double made = last->value - first->value;

	*ret = (struct counter){ .number = NAN, .edge = 0 };
	if (isnan(made)) {
		snprintf(ret->why, sizeof(ret->why), "%s",
			 *first->why ? first->why : last->why);
	} else if (went_back(first, last, ret) || !take_fresh(first, last, ret)) {
		;
	} else if (!(made > 0)) {
		snprintf(ret->why, sizeof(ret->why), "it said %.0f before and %.0f after",
			 first->value, last->value);
	} else {
		ret->number = made;
		ret->edge = made * around / seconds(first->before_ns, last->after_ns);
		return;
	}
	ret->fresh = 0;
	ret->fresh_number = 0;
	ret->fresh_assumed = false;
}
