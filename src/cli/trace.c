#include "trace.h"

#include "base/file.h"
#include "base/number.h"
#include "base/sha256.h"
#include "serve/moment.h"

#include <gpuward.h>

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define TEXT_MAX (64u << 20)
#define COLUMNS  64

enum { TIME, POWER, WANTED };

static const char *const names[WANTED][5] = {
	[TIME] = { "time", "timestamp", "time_utc", "unix_s", NULL },
	[POWER] = { "power_w", "power_watts", "watts", "power", NULL },
};

struct layout {
	char parted_by;
	size_t column[WANTED];
};

/* ---- lines ---- */

/* Field number k of a line (which ends with NUL), without quotes and blanks around it; false: it has none. */
static bool field(const char *line, char parted_by, size_t k, char *out, size_t size)
{
	size_t n;

	for (; k > 0; k--) {
		line = strchr(line, parted_by);
		if (!line)
			return false;
		line++;
	}
	line += strspn(line, " \"");
	n = strcspn(line, (char[]){ parted_by, '"', '\r', '\0' });
	while (n > 0 && line[n - 1] == ' ')
		n--;
	snprintf(out, size, "%.*s", (int)n, line);
	return n > 0 && n < size;
}

static bool find(const char *head, char parted_by, unsigned what, size_t *ret)
{
	char name[64];

	for (unsigned i = 0; names[what][i]; i++)
		for (size_t k = 0; k < COLUMNS; k++)
			if (field(head, parted_by, k, name, sizeof(name)) &&
			    strcasecmp(name, names[what][i]) == 0) {
				*ret = k;
				return true;
			}
	return false;
}

static bool read_head(const char *head, struct layout *l)
{
	l->parted_by = strchr(head, '\t') ? '\t' : strchr(head, ';') ? ';' : ',';
	return find(head, l->parted_by, TIME, &l->column[TIME]) &&
	       find(head, l->parted_by, POWER, &l->column[POWER]);
}

/* What follows a number: "312,5" is not 312 W, and kilowatts are none. */
static bool is_watts(const char *unit)
{
	unit += strspn(unit, " ");
	return !*unit || strcasecmp(unit, "W") == 0;
}

static bool read_point(const char *line, const struct layout *l, struct calibrate_point *ret)
{
	char time[64], power[64];
	const char *end;
	uint64_t wall_ns;

	if (!field(line, l->parted_by, l->column[TIME], time, sizeof(time)) ||
	    !field(line, l->parted_by, l->column[POWER], power, sizeof(power)) ||
	    !isdigit((unsigned char)*time) || moment_parse(time, 0, &wall_ns) != 0)
		return false;
	ret->t_s = (double)wall_ns * 1e-9;
	ret->w = number_parse(power, &end);
	return end != power && is_watts(end) && isfinite(ret->w);
}

/* ---- the file ---- */

static char *read_text(const char *path, size_t *ret_n, int *ret_err, char *why, size_t size)
{
	char *text = malloc(TEXT_MAX + 1);
	ssize_t n = text ? file_read(path, text, TEXT_MAX, why, size) : -GW_E_NOMEM;

	if (!text)
		snprintf(why, size, "%s", gw_strerror(-GW_E_NOMEM));
	if (n == TEXT_MAX) {
		snprintf(why, size, "%s: longer than %u MiB", path, TEXT_MAX >> 20);
		n = -GW_E_SIZE;
	}
	*ret_err = n < 0 ? (int)n : 0;
	if (n < 0) {
		free(text);
		return NULL;
	}
	text[n] = '\0';
	*ret_n = (size_t)n;
	return text;
}

static size_t count_lines(const char *text)
{
	size_t n = 1;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

static void take_point(struct trace *t, const char *line, const struct layout *l)
{
	struct calibrate_point p;

	if (read_point(line, l, &p) && (t->n == 0 || p.t_s > t->point[t->n - 1].t_s))
		t->point[t->n++] = p;
	else
		t->passed_over++;
}

/* Lines one by one, copied: the text stays as it was read. */
static int read_lines(struct trace *t, const char *path, char *why, size_t size)
{
	struct layout layout;
	bool headed = false;
	const char *at = t->text;

	at += strncmp(at, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
	while (*at) {
		size_t n = strcspn(at, "\n");
		char line[4096];

		snprintf(line, sizeof(line), "%.*s", (int)n, at);
		at += n + (at[n] == '\n');
		if (line[0] == '#' || line[strspn(line, " \t\r")] == '\0')
			continue;
		if (headed)
			take_point(t, line, &layout);
		else if (!(headed = read_head(line, &layout)))
			break;
	}
	if (headed && t->n)
		return 0;
	if (headed)
		snprintf(why, size,
			 "%s: no line has a time (RFC 3339 with its offset, as in "
			 "2026-01-31T12:00:00Z, or seconds since 1970) and watts (with a "
			 "point, as in 312.5)",
			 path);
	else
		snprintf(why, size,
			 "%s: its first line names no time (time, timestamp, time_utc, unix_s) "
			 "or no "
			 "power (power_w, power_watts, watts, power)",
			 path);
	return -GW_E_PARSE;
}

int trace_parse(struct trace *t, const char *path, char *text, size_t n, char *why, size_t size)
{
	struct sha256 sum;
	int err = -GW_E_NOMEM;

	*t = (struct trace){ .text = text,
			     .length = n,
			     .point = calloc(count_lines(text), sizeof(*t->point)) };
	sha256_init(&sum);
	sha256_add(&sum, text, n);
	sha256_end(&sum, t->sha256);
	if (t->point)
		err = read_lines(t, path, why, size);
	else
		snprintf(why, size, "%s", gw_strerror(err));
	if (err)
		trace_done(t);
	return err;
}

int trace_read(struct trace *t, const char *path, char *why, size_t size)
{
	size_t n = 0;
	int err;
	char *text = read_text(path, &n, &err, why, size);

	return text ? trace_parse(t, path, text, n, why, size) : err;
}

void trace_done(struct trace *t)
{
	free(t->point);
	free(t->text);
	*t = (struct trace){ .point = NULL };
}
