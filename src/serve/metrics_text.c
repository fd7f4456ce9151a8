#include "metrics_text.h"

#include "base/array.h"
#include "base/number.h"
#include "base/utf8.h"

#include <math.h>
#include <string.h>
#include <strings.h>

static char *put_integer(char *at, uint64_t v)
{
	char digit[20];
	unsigned n = 0;

	do
		digit[n++] = (char)('0' + v % 10);
	while (v /= 10);
	while (n)
		*at++ = digit[--n];
	return at;
}

/* Writes v as a decimal fraction k / 10^places with at most nine places. Returns NULL if a
 * reader would not get exactly v from any such text. k and the power of ten are exact, so their
 * quotient here is rounded in the same way as the number that a reader parses. */
static char *put_fraction(char *at, double v)
{
	double power = 10;

	for (unsigned places = 1; places <= 9; places++, power *= 10) {
		double k = rint(v * power);
		uint64_t whole, rest;

		if (k >= 9007199254740992.0)
			return NULL;
		if (k / power != v)
			continue;
		whole = (uint64_t)k / (uint64_t)power;
		rest = (uint64_t)k % (uint64_t)power;
		at = put_integer(at, whole);
		*at = '.';
		for (unsigned i = places; i > 0; i--, rest /= 10)
			at[i] = (char)('0' + rest % 10);
		return at + places + 1;
	}
	return NULL;
}

/* Writes the shortest number from which a reader gets exactly v. Does not use printf for common
 * values, because printf would take most of the time of a metrics page. */
static char *put_number(char *at, double v)
{
	double size = fabs(v);
	char *begin = at, *end;

	if (v < 0)
		*at++ = '-';
	if (size < 9007199254740992.0 && size == trunc(size))
		return put_integer(at, (uint64_t)size);
	end = put_fraction(at, size);
	if (end)
		return end;
	number_format(v, begin);
	return begin + strlen(begin);
}

/* Writes the character at *s with the escapes of a quoted text, and advances *s. Returns the
 * number of bytes written. */
static unsigned escape(const char **s, char out[static 4])
{
	size_t n = utf8_length(*s);
	char c = **s;

	*s += n ? n : 1;
	if (n == 0) {
		memcpy(out, "\xef\xbf\xbd", 3);
		return 3;
	}
	if (c == '\\' || c == '"' || c == '\n') {
		out[0] = '\\';
		out[1] = c == '\n' ? 'n' : c;
		return 2;
	}
	memcpy(out, *s - n, n);
	return (unsigned)n;
}

void labels_clear(struct labels *l)
{
	l->len = 0;
	l->text[0] = '\0';
}

/* True for a character that needs no escape. Most values consist of such characters and are
 * copied as a whole. */
static bool plain(char c)
{
	return c >= ' ' && c <= '~' && c != '"' && c != '\\';
}

static unsigned put_value(char *at, unsigned room, const char *value)
{
	unsigned used = 0, n;
	char c[4];

	while (*value) {
		if (plain(*value)) {
			c[0] = *value++;
			n = 1;
		} else {
			n = escape(&value, c);
		}
		if (used + n > room)
			break;
		for (unsigned i = 0; i < n; i++)
			at[used++] = c[i];
	}
	return used;
}

void labels_add(struct labels *l, const char *name, const char *value)
{
	unsigned n = (unsigned)strlen(name);
	char *at = l->text + l->len;

	if (l->len + n + 5 > METRIC_LABELS_SIZE)
		return;
	if (l->len)
		*at++ = ',';
	memcpy(at, name, n);
	at += n;
	*at++ = '=';
	*at++ = '"';
	at += put_value(at, (unsigned)(l->text + METRIC_LABELS_SIZE - 2 - at),
			value ? value : "");
	*at++ = '"';
	*at = '\0';
	l->len = (unsigned)(at - l->text);
}

void labels_add_number(struct labels *l, const char *name, uint64_t value)
{
	char text[24];

	*put_integer(text, value) = '\0';
	labels_add(l, name, text);
}

const char *metric_unit(const char *name)
{
	static const char *const units[] = { "bytes",  "watts", "joules",  "celsius",
					     "hertz",  "ratio", "seconds", "bytes_per_second",
					     "percent" };
	size_t n = strlen(name);

	for (size_t i = 0; i < COUNT(units); i++) {
		size_t u = strlen(units[i]);

		if (n > u && name[n - u - 1] == '_' && strcmp(name + n - u, units[i]) == 0)
			return units[i];
	}
	return "";
}

const char *metric_type_name(enum metric_type type, enum metrics_form form)
{
	static const char *const names[][2] = { { "gauge", "gauge" },
						{ "counter", "counter" },
						{ "gauge", "info" },
						{ "untyped", "unknown" },
						{ "counter", "unknown" } };

	return names[type][form == METRICS_OPENMETRICS];
}

void metrics_family(struct metrics_text *t, const struct metric *m)
{
	t->family = m;
	t->begun = false;
}

/* Writes one header line of the family, such as "# TYPE". In Prometheus text, the name of the
 * family is the name of its samples. In OpenMetrics, it is that name without the suffix. */
static void head_line(struct metrics_text *t, const char *what, const char *text)
{
	buf_adds(t->out, what);
	buf_adds(t->out, t->family->name);
	if (t->form == METRICS_PROMETHEUS)
		buf_adds(t->out, metric_suffix(t->family->type));
	buf_addc(t->out, ' ');
	buf_adds(t->out, text);
	buf_addc(t->out, '\n');
}

static void write_head(struct metrics_text *t)
{
	const struct metric *m = t->family;

	head_line(t, "# TYPE ", metric_type_name(m->type, t->form));
	if (t->form == METRICS_OPENMETRICS && *metric_unit(m->name))
		head_line(t, "# UNIT ", metric_unit(m->name));
	head_line(t, "# HELP ", m->help);
	t->begun = true;
}

static char *put_text(char *at, const char *s)
{
	size_t n = strlen(s);

	memcpy(at, s, n);
	return at + n;
}

void metrics_sample(struct metrics_text *t, const char *base, const char *more, double value)
{
	char line[128 + 2 * METRIC_LABELS_SIZE + NUMBER_SIZE], *at = line;
	bool some = base && *base, others = more && *more;

	if (!isfinite(value))
		return;
	if (t->sink) {
		t->sink->sample(t->sink->arg, t->family, base, more, value);
		return;
	}
	if (!t->begun)
		write_head(t);
	at = put_text(at, t->family->name);
	at = put_text(at, metric_suffix(t->family->type));
	if (some || others) {
		*at++ = '{';
		at = put_text(at, some ? base : "");
		if (some && others)
			*at++ = ',';
		at = put_text(at, others ? more : "");
		*at++ = '}';
	}
	*at++ = ' ';
	at = put_number(at, value);
	*at++ = '\n';
	buf_add(t->out, line, (size_t)(at - line));
}

void metrics_end(struct metrics_text *t)
{
	if (t->form == METRICS_OPENMETRICS)
		buf_adds(t->out, "# EOF\n");
}

/* A part of the Accept header, without the spaces around it. */
struct piece {
	const char *p;
	size_t n;
};

/* Returns the next part, which ends at the character `stop` or at the address `end`. Sets *rest
 * to the text after it. */
static struct piece next_piece(const char **rest, const char *end, char stop)
{
	const char *from = *rest, *to = memchr(from, stop, (size_t)(end - from));

	to = to ? to : end;
	*rest = to < end ? to + 1 : end;
	while (from < to && (*from == ' ' || *from == '\t'))
		from++;
	while (to > from && (to[-1] == ' ' || to[-1] == '\t'))
		to--;
	return (struct piece){ from, (size_t)(to - from) };
}

static bool piece_is(struct piece x, const char *text)
{
	return x.n == strlen(text) && strncasecmp(x.p, text, x.n) == 0;
}

static bool piece_begins(struct piece x, const char *text)
{
	return x.n >= strlen(text) && strncasecmp(x.p, text, strlen(text)) == 0;
}

/* Reads "q=0.5". Returns 1 if there is no number from 0 to 1. */
static double read_quality(struct piece x)
{
	char text[8] = "";
	const char *end;
	double q;

	memcpy(text, x.p + 2, x.n - 2 < sizeof(text) ? x.n - 2 : sizeof(text) - 1);
	q = number_parse(text, &end);
	return end != text && q >= 0 && q <= 1 ? q : 1;
}

/* One element of the Accept header. */
struct range {
	struct piece type;
	double q;
	/* The element has a version that the service supports, or it has no version. */
	bool ours;
};

static struct range read_range(struct piece x)
{
	const char *at = x.p, *end = x.p + x.n;
	struct range r = { .type = next_piece(&at, end, ';'), .q = 1, .ours = true };

	while (at < end) {
		struct piece option = next_piece(&at, end, ';');

		if (piece_begins(option, "q="))
			r.q = read_quality(option);
		else if (piece_begins(option, "version="))
			r.ours = piece_is(option, "version=1.0.0") ||
				 piece_is(option, "version=0.0.1") ||
				 piece_is(option, "version=\"1.0.0\"");
	}
	return r;
}

enum metrics_form metrics_negotiate(const char *accept)
{
	double open = 0, text = 0;
	/* How exactly an element names plain text: 0 not at all, 1 as any type, 2 as any text,
	 * 3 as text/plain. */
	int exact = 0;
	const char *end;

	if (!accept)
		return METRICS_PROMETHEUS;
	end = accept + strlen(accept);
	while (accept < end) {
		struct range r = read_range(next_piece(&accept, end, ','));
		int how = piece_is(r.type, "text/plain") ? 3
			  : piece_is(r.type, "text/*")   ? 2
			  : piece_is(r.type, "*/*")      ? 1
							 : 0;

		if (piece_is(r.type, "application/openmetrics-text") && r.ours && r.q > open)
			open = r.q;
		if (how > exact) {
			exact = how;
			text = r.q;
		}
	}
	return open > 0 && open >= text ? METRICS_OPENMETRICS : METRICS_PROMETHEUS;
}

const char *metrics_type(enum metrics_form form)
{
	return form == METRICS_OPENMETRICS
		       ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
		       : "text/plain; version=0.0.4; charset=utf-8";
}
