#include "json.h"

#include "clock.h"
#include "number.h"
#include "utf8.h"

#include <assert.h>
#include <math.h>
#include <string.h>

void json_init(struct json *j, struct buf *out, bool pretty)
{
	*j = (struct json){ .out = out, .pretty = pretty, .first = true };
}

static void new_line(struct json *j)
{
	if (!j->pretty)
		return;
	buf_addc(j->out, '\n');
	for (unsigned i = 0; i < j->depth; i++)
		buf_adds(j->out, "  ");
}

static void escape_byte(struct buf *out, unsigned char c)
{
	static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
	const char *at = c ? strchr(from, c) : NULL;

	if (at)
		buf_addf(out, "\\%c", to[at - from]);
	else if (c < 0x20 || c == 0x7f)
		buf_addf(out, "\\u%04x", c);
	else
		buf_addc(out, (char)c);
}

size_t json_escape(struct buf *out, const char *s)
{
	size_t n = utf8_length(s);

	if (n == 0)
		buf_adds(out, "\xef\xbf\xbd");
	else if (n == 1)
		escape_byte(out, (unsigned char)*s);
	else if (utf8_is_control(utf8_decode(s, n))) /* for readers on a terminal */
		buf_addf(out, "\\u%04x", utf8_decode(s, n));
	else
		buf_add(out, s, n);
	return n ? n : 1;
}

static void write_string(struct buf *out, const char *s)
{
	buf_addc(out, '"');
	while (*s)
		s += json_escape(out, s);
	buf_addc(out, '"');
}

/* Writes the comma, the line break and the key before a value. */
static void begin_value(struct json *j, const char *key)
{
	key = key ? key : j->next;
	j->next = NULL;
	assert(j->depth == 0 || (j->kind[j->depth - 1] == '{') == (key != NULL));
	if (!j->first)
		buf_addc(j->out, ',');
	j->first = false;
	if (j->depth > 0)
		new_line(j);
	if (key) {
		write_string(j->out, key);
		buf_adds(j->out, j->pretty ? ": " : ":");
	}
}

static void open_level(struct json *j, const char *key, char kind)
{
	begin_value(j, key);
	assert(j->depth < JSON_DEPTH);
	buf_addc(j->out, kind);
	j->kind[j->depth++] = kind;
	j->first = true;
}

static void close_level(struct json *j, char kind, char mark)
{
	assert(j->depth > 0 && j->kind[j->depth - 1] == kind);
	j->depth--;
	if (!j->first)
		new_line(j);
	buf_addc(j->out, mark);
	j->first = false;
}

void json_next_key(struct json *j, const char *key)
{
	j->next = key;
}

void json_object(struct json *j, const char *key)
{
	open_level(j, key, '{');
}

void json_object_end(struct json *j)
{
	close_level(j, '{', '}');
}

void json_array(struct json *j, const char *key)
{
	open_level(j, key, '[');
}

void json_array_end(struct json *j)
{
	close_level(j, '[', ']');
}

void json_string(struct json *j, const char *key, const char *s)
{
	if (!s) {
		json_null(j, key);
		return;
	}
	begin_value(j, key);
	write_string(j->out, s);
}

void json_bool(struct json *j, const char *key, bool v)
{
	begin_value(j, key);
	buf_adds(j->out, v ? "true" : "false");
}

void json_int(struct json *j, const char *key, int64_t v)
{
	begin_value(j, key);
	buf_addf(j->out, "%lld", (long long)v);
}

void json_uint(struct json *j, const char *key, uint64_t v)
{
	begin_value(j, key);
	buf_addf(j->out, "%llu", (unsigned long long)v);
}

void json_double(struct json *j, const char *key, double v)
{
	char s[NUMBER_SIZE];

	if (!isfinite(v)) {
		json_null(j, key);
		return;
	}
	begin_value(j, key);
	number_format(v, s);
	buf_adds(j->out, s);
}

void json_null(struct json *j, const char *key)
{
	begin_value(j, key);
	buf_adds(j->out, "null");
}

void json_time(struct json *j, const char *key, uint64_t wall_ns)
{
	char text[CLOCK_RFC3339_SIZE];

	clock_format_rfc3339(wall_ns, text);
	json_string(j, key, wall_ns ? text : NULL);
}

void json_raw(struct json *j, const char *key, const char *value)
{
	begin_value(j, key);
	buf_adds(j->out, value);
}

int json_end(struct json *j)
{
	assert(j->depth == 0);
	buf_addc(j->out, '\n');
	return j->out->err;
}
