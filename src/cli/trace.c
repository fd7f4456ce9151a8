#include "trace.h"

#include "base/file.h"
#include "base/number.h"
#include "base/sha256.h"
#include "serve/timespec_parse.h"

#include <gpuward.h>

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define TEXT_MAX       (64u << 20)
#define COLUMNS        64
#define LINE_MAX_BYTES 4096

enum { TIME, POWER, WANTED };

static const char *const names[WANTED][6] = {
	[TIME] = { "time", "timestamp", "time_utc", "timestamp_utc", "unix_s", NULL },
	[POWER] = { "power_w", "power_watts", "watts", "power", NULL },
};

struct layout {
	char separator;
	/* The name of the time column contains "UTC", so a time without an offset is in UTC. */
	bool utc;
	size_t column[WANTED];
};

/* Copies field number k of a line, without the quotes and blanks around it.  Returns false if
 * the field is missing, empty or too long. */
static bool get_field(const char *line, char separator, size_t k, char *out, size_t size)
{
	size_t n;

	for (; k > 0; k--) {
		line = strchr(line, separator);
		if (!line)
			return false;
		line++;
	}
	line += strspn(line, " \"");
	n = strcspn(line, (char[]){ separator, '"', '\r', '\0' });
	while (n > 0 && line[n - 1] == ' ')
		n--;
	snprintf(out, size, "%.*s", (int)n, line);
	return n > 0 && n < size;
}

/* Turns "Power (W)" into "power_w".  All characters except letters and digits separate
 * words. */
static void plain_name(char *name)
{
	char *to = name;

	for (const char *from = name; *from; from++)
		if (isalnum((unsigned char)*from) || (*from & 0x80))
			*to++ = (char)tolower((unsigned char)*from);
		else if (to > name && to[-1] != '_')
			*to++ = '_';
	to -= to > name && to[-1] == '_';
	*to = '\0';
}

static const char *find_column(const char *head, char separator, unsigned what, size_t *ret)
{
	char name[64];

	for (unsigned i = 0; names[what][i]; i++)
		for (size_t k = 0; k < COLUMNS; k++) {
			if (!get_field(head, separator, k, name, sizeof(name)))
				continue;
			plain_name(name);
			if (strcmp(name, names[what][i]) == 0) {
				*ret = k;
				return names[what][i];
			}
		}
	return NULL;
}

static bool read_head(const char *head, struct layout *l)
{
	const char *time;

	l->separator = strchr(head, '\t') ? '\t' : strchr(head, ';') ? ';' : ',';
	time = find_column(head, l->separator, TIME, &l->column[TIME]);
	l->utc = time && strstr(time, "_utc");
	return time && find_column(head, l->separator, POWER, &l->column[POWER]);
}

static bool read_time(const char *text, bool utc, uint64_t *ret_ns)
{
	char with_z[72];

	if (!isdigit((unsigned char)*text))
		return false;
	snprintf(with_z, sizeof(with_z), "%sZ", text);
	return timespec_parse(text, 0, ret_ns) == 0 ||
	       (utc && timespec_parse(with_z, 0, ret_ns) == 0);
}

/* Returns true if only the UTC offset of the time is missing. */
static bool lacks_offset(const char *line, const struct layout *l, char *time, size_t size)
{
	uint64_t wall_ns;

	return get_field(line, l->separator, l->column[TIME], time, size) &&
	       !read_time(time, false, &wall_ns) && read_time(time, true, &wall_ns);
}

/* Returns true if the number is followed only by blanks or by the unit W.  So "312,5" is not
 * read as 312 W, and kilowatts are not accepted. */
static bool is_watts(const char *unit)
{
	unit += strspn(unit, " ");
	return !*unit || strcasecmp(unit, "W") == 0;
}

static bool read_point(const char *line, const struct layout *l, struct trace_point *ret)
{
	char time[64], power[64];
	const char *end;
	uint64_t wall_ns;

	if (!get_field(line, l->separator, l->column[TIME], time, sizeof(time)) ||
	    !get_field(line, l->separator, l->column[POWER], power, sizeof(power)) ||
	    !read_time(time, l->utc, &wall_ns))
		return false;
	ret->t_s = (double)wall_ns * 1e-9;
	ret->w = number_parse(power, &end);
	return end != power && is_watts(end) && isfinite(ret->w);
}

static char *read_text(const char *path, size_t *ret_n, int *ret_err, char *why, size_t size)
{
	char *text = malloc(TEXT_MAX + 1);
	ssize_t n = text ? file_read(path, text, TEXT_MAX, why, size) : -GW_E_NOMEM;

	if (!text)
		snprintf(why, size, "%s", gw_strerror(-GW_E_NOMEM));
	if (n == TEXT_MAX) {
		snprintf(why, size, "%s is longer than the limit of %u MiB", path,
			 TEXT_MAX >> 20);
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

static void add_point(struct trace *t, const char *line, const struct layout *l)
{
	struct trace_point p;

	if (read_point(line, l, &p) && (t->n == 0 || p.t_s > t->point[t->n - 1].t_s))
		t->point[t->n++] = p;
	else
		t->passed_over++;
}

static int set_head_error(const char *path, char *why, size_t size)
{
	snprintf(why, size,
		 "%s: the first line has no column for time (time, timestamp, time_utc, "
		 "unix_s) or for power (power_w, power_watts, watts, power)",
		 path);
	return -GW_E_PARSE;
}

/* Writes the error for a file without a usable line.  `without_offset` is the first timestamp
 * that lacks only its UTC offset, or "" if there is none. */
static int set_lines_error(const char *path, const char *without_offset, char *why, size_t size)
{
	if (*without_offset)
		snprintf(why, size,
			 "%s: the times have no time zone, for example %s; name the column "
			 "time_utc if they are UTC, or write them as 2026-01-31T12:00:00+01:00 "
			 "(RFC 3339)",
			 path, without_offset);
	else
		snprintf(why, size,
			 "%s: no line has a time (such as 2026-01-31T12:00:00Z, RFC 3339, or "
			 "seconds since 1970) and watts (with a decimal point, such as 312.5)",
			 path);
	return -GW_E_PARSE;
}

/* Copies the next line at *at that is neither empty nor a comment. */
static bool next_line(const char **at, char *line, size_t size)
{
	while (**at) {
		size_t n = strcspn(*at, "\n");

		snprintf(line, size, "%.*s", (int)n, *at);
		*at += n + ((*at)[n] == '\n');
		if (line[0] != '#' && line[strspn(line, " \t\r")] != '\0')
			return true;
	}
	return false;
}

static const char *skip_bom(const char *text)
{
	return text + (strncmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0);
}

static int read_lines(struct trace *t, const char *path, char *why, size_t size)
{
	const char *at = skip_bom(t->text);
	char line[LINE_MAX_BYTES], without_offset[64] = "";
	struct layout layout;

	if (!next_line(&at, line, sizeof(line)) || !read_head(line, &layout))
		return set_head_error(path, why, size);
	while (next_line(&at, line, sizeof(line))) {
		add_point(t, line, &layout);
		if (t->n == 0 && !*without_offset &&
		    !lacks_offset(line, &layout, without_offset, sizeof(without_offset)))
			without_offset[0] = '\0';
	}
	return t->n ? 0 : set_lines_error(path, without_offset, why, size);
}

int trace_parse(struct trace *t, const char *path, char *text, size_t n, char *why, size_t size)
{
	int err = -GW_E_NOMEM;

	*t = (struct trace){ .text = text,
			     .length = n,
			     .point = calloc(count_lines(text), sizeof(*t->point)) };
	sha256_hex(text, n, t->sha256);
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

int trace_check(const char *path, char *why, size_t size)
{
	char text[4 * LINE_MAX_BYTES], line[LINE_MAX_BYTES], ignored[512];
	struct layout layout;
	struct stat st;
	const char *at;
	ssize_t n;

	if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
		return 0;
	n = file_read(path, text, sizeof(text) - 1, ignored, sizeof(ignored));
	if (n < 0)
		return 0;
	text[n] = '\0';
	at = skip_bom(text);
	/* A first line without a newline is still being written. */
	if (!next_line(&at, line, sizeof(line)) || at[-1] != '\n' || read_head(line, &layout))
		return 0;
	return set_head_error(path, why, size);
}

void trace_done(struct trace *t)
{
	free(t->point);
	free(t->text);
	*t = (struct trace){ .point = NULL };
}
