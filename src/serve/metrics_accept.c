/* metrics_accept: selects the form by the Accept header (RFC 9110, 12.5.1).
 *
 * OpenMetrics is only used if the client names it in a supported version and does not prefer
 * plain text. */
#include "metrics.h"

#include "base/number.h"

#include <string.h>
#include <strings.h>

/* A part of the header without surrounding spaces. */
struct piece {
	const char *p;
	size_t n;
};

/* The next part before `end`; *rest is the text after it. */
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

/* 1 if it is not a number from 0 to 1. */
static double quality(struct piece x)
{
	char text[8] = "";
	const char *end;
	double q;

	memcpy(text, x.p + 2, x.n - 2 < sizeof(text) ? x.n - 2 : sizeof(text) - 1);
	q = number_parse(text, &end);
	return end != text && q >= 0 && q <= 1 ? q : 1;
}

struct range { /* one media range of the header */
	struct piece type;
	double q;
	bool ours; /* its version is supported, or not given */
};

static struct range read_range(struct piece x)
{
	const char *at = x.p, *end = x.p + x.n;
	struct range r = { .type = next_piece(&at, end, ';'), .q = 1, .ours = true };

	while (at < end) {
		struct piece option = next_piece(&at, end, ';');

		if (piece_begins(option, "q="))
			r.q = quality(option);
		else if (piece_begins(option, "version="))
			r.ours = piece_is(option, "version=1.0.0") ||
				 piece_is(option, "version=0.0.1") ||
				 piece_is(option, "version=\"1.0.0\"");
	}
	return r;
}

enum metrics_form metrics_negotiate(const char *accept)
{
	double open = 0, plain = 0;
	int exact = 0; /* precision for plain text: none, * / *, text / *, text/plain */
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
			plain = r.q;
		}
	}
	return open > 0 && open >= plain ? METRICS_OPENMETRICS : METRICS_PROMETHEUS;
}

const char *metrics_type(enum metrics_form form)
{
	return form == METRICS_OPENMETRICS
		       ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
		       : "text/plain; version=0.0.4; charset=utf-8";
}
