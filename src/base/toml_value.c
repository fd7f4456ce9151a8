/* Reads the values of a TOML document: strings with escapes, numbers, dates and times. */
#include "toml_reader.h"

#include "number.h"
#include "utf8.h"

#include "array.h"

#include <gpuward.h>

#include <math.h>
#include <string.h>

static int digit_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return 99;
}

/* Returns the quotes that close the string that starts at p; NULL if there are none. */
static const char *find_close(const char *p, char quote, bool multi)
{
	while (*p && (multi || *p != '\n')) {
		size_t run = 0;

		if (*p == '\\' && quote == '"' && p[1] && (multi || p[1] != '\n')) {
			p += 2;
			continue;
		}
		while (run < 5 && p[run] == quote)
			run++;
		if (run > 0 && !multi)
			return p;
		/* Up to two quotes before the closing three belong to the string. */
		if (run >= 3)
			return p + run - 3;
		p += run ? run : 1;
	}
	return NULL;
}

/* Reads \uXXXX and \UXXXXXXXX; *s is at the u. */
static bool escape_code(struct toml_reader *r, const char **s, char **out)
{
	const char *at = *s - 1;
	int n = **s == 'u' ? 4 : 8;
	uint32_t code = 0;
	size_t bytes;

	for (int i = 0; i < n; i++) {
		int digit = digit_of(*++*s);

		if (digit > 15)
			return reader_fail(r, at, "'\\%c' needs %d hexadecimal digits", at[1],
					   n);
		code = code << 4 | (uint32_t)digit;
	}
	bytes = utf8_encode(code, *out);
	if (bytes == 0)
		return reader_fail(r, at, "U+%04X is not a character", (unsigned)code);
	*out += bytes;
	++*s;
	return true;
}

/* Skips a backslash at the end of a line and the blanks up to the next text. *s is after the
 * backslash. Returns false and leaves *s unchanged if the backslash does not end a line. */
static bool escape_line(const char **s)
{
	const char *p = *s;

	p += strspn(p, " \t\r");
	if (*p != '\n')
		return false;
	*s = p + strspn(p, " \t\r\n");
	return true;
}

/* Reads an escape sequence; *s is after the backslash. The result is never longer than the
 * escape sequence, so out has enough space. */
static bool read_escape(struct toml_reader *r, const char **s, char **out, bool multi)
{
	static const char from[] = "btnfr\"\\", to[] = "\b\t\n\f\r\"\\";
	const char *at = strchr(from, **s);
	char name[SPELL_SIZE];

	if (at && *at) {
		*(*out)++ = to[at - from];
		++*s;
		return true;
	}
	if (**s == 'u' || **s == 'U')
		return escape_code(r, s, out);
	if (multi && escape_line(s))
		return true;
	return reader_fail(r, *s - 1, "'\\%s' is not an escape sequence",
			   reader_spell(*s, utf8_length(*s), name));
}

bool value_string(struct toml_reader *r, bool multi, const char **ret_text, size_t *ret_len)
{
	const char *open = r->p, quote = *open, *s, *close;
	char *text, *out;

	multi = multi && open[1] == quote && open[2] == quote;
	s = open + (multi ? 3 : 1);
	close = find_close(s, quote, multi);
	if (!close)
		return reader_fail(r, open, "the string is not closed%s",
				   multi ? "" : " on its line");
	/* A line break directly after the opening quotes is not part of the string. */
	if (multi)
		s += *s == '\n' ? 1 : strncmp(s, "\r\n", 2) == 0 ? 2 : 0;
	text = out = reader_alloc(r, (size_t)(close - s) + 1);
	if (!text)
		return false;
	while (s < close) {
		if (*s != '\\' || quote == '\'')
			*out++ = *s++;
		else if (s++, !read_escape(r, &s, &out, multi))
			return false;
	}
	*out = '\0';
	*ret_text = text;
	*ret_len = (size_t)(out - text);
	r->p = close + (multi ? 3 : 1);
	return true;
}

static bool digits_fixed(const char **p, int n, int low, int high, int *ret)
{
	int v = 0;

	for (int i = 0; i < n; i++, ++*p) {
		if (digit_of(**p) > 9)
			return false;
		v = v * 10 + digit_of(**p);
	}
	*ret = v;
	return v >= low && v <= high;
}

static bool skip_char(const char **p, char c)
{
	return *(*p)++ == c;
}

static bool read_date(const char **p)
{
	static const int days[] = { 0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
	int y, m, d;

	if (!digits_fixed(p, 4, 0, 9999, &y) || !skip_char(p, '-') ||
	    !digits_fixed(p, 2, 1, 12, &m) || !skip_char(p, '-') ||
	    !digits_fixed(p, 2, 1, 31, &d))
		return false;
	return d <= days[m] || (m == 2 && d == 29 && y % 4 == 0 && (y % 100 || y % 400 == 0));
}

/* Reads a time of day. Second 60 is allowed, because it is a leap second. */
static bool read_time(const char **p)
{
	int v;

	if (!digits_fixed(p, 2, 0, 23, &v) || !skip_char(p, ':') ||
	    !digits_fixed(p, 2, 0, 59, &v) || !skip_char(p, ':') ||
	    !digits_fixed(p, 2, 0, 60, &v))
		return false;
	if (**p != '.')
		return true;
	++*p;
	if (digit_of(**p) > 9)
		return false;
	while (digit_of(**p) <= 9)
		++*p;
	return true;
}

static bool read_offset(const char **p)
{
	int v;
	char c = *(*p)++;

	if (c == 'Z' || c == 'z')
		return true;
	return (c == '+' || c == '-') && digits_fixed(p, 2, 0, 23, &v) && skip_char(p, ':') &&
	       digits_fixed(p, 2, 0, 59, &v);
}

/* Reads the parts of a date and time that are present. Every step stops at the NUL at the end
 * of the text. */
static bool read_datetime(const char **p, enum toml_type *ret)
{
	if ((*p)[2] == ':') {
		*ret = TOML_LOCAL_TIME;
		return read_time(p);
	}
	*ret = TOML_LOCAL_DATE;
	if (!read_date(p))
		return false;
	if (**p != 'T' && **p != 't' && **p != ' ')
		return true;
	++*p;
	*ret = TOML_LOCAL_DATETIME;
	if (!read_time(p))
		return false;
	if (**p == '\0')
		return true;
	*ret = TOML_DATETIME;
	return read_offset(p);
}

/* Reads a date or time. text is the token, NUL-terminated, in the document's memory. */
static bool value_datetime(struct toml_reader *r, struct toml_node *node, char *text, size_t n)
{
	const char *p = text;
	char name[SPELL_SIZE];

	if (!read_datetime(&p, &node->type) || p != text + n)
		return reader_fail(r, r->p, "'%s' is not a valid date or time",
				   reader_spell(text, n, name));
	if (node->type == TOML_DATETIME || node->type == TOML_LOCAL_DATETIME)
		text[10] = 'T';
	if (text[n - 1] == 'z')
		text[n - 1] = 'Z';
	node->v.string.text = text;
	node->v.string.len = n;
	return true;
}

/* Returns the position after the digits at p, which may have single underscores between them.
 * NULL if there is no digit or an underscore is misplaced. */
static const char *skip_digits(const char *p, int base)
{
	if (digit_of(*p) >= base)
		return NULL;
	while (digit_of(*p) < base || *p == '_') {
		if (*p == '_' && digit_of(p[1]) >= base)
			return NULL;
		p++;
	}
	return p;
}

static bool value_integer(struct toml_reader *r, struct toml_node *node, const char *p,
			  int base, bool negative)
{
	const uint64_t limit = (uint64_t)INT64_MAX + negative;
	uint64_t v = 0;

	for (; *p; p++) {
		uint64_t digit = (uint64_t)digit_of(*p);

		if (*p == '_')
			continue;
		if (v > (limit - digit) / (uint64_t)base)
			return reader_fail(r, r->p, "the number does not fit into 64 bits");
		v = v * (uint64_t)base + digit;
	}
	node->type = TOML_INTEGER;
	/* For the lowest number, v is larger than INT64_MAX. -1 - (v - 1) does not overflow for
	 * any v. */
	node->v.integer = negative && v ? -1 - (int64_t)(v - 1) : (int64_t)v;
	return true;
}

/* Reads a float. text matches the grammar of a float; its underscores are removed first. */
static bool value_float(struct toml_reader *r, struct toml_node *node, char *text)
{
	const char *end;
	char *out = text;

	for (const char *p = text; *p; p++)
		if (*p != '_')
			*out++ = *p;
	*out = '\0';
	node->type = TOML_FLOAT;
	node->v.real = number_parse(text, &end);
	return isfinite(node->v.real) || reader_fail(r, r->p, "the number is too large");
}

/* Returns the position after ".digits" and "e+digits", both optional; NULL if one of them is
 * wrong. */
static const char *skip_fraction(const char *p)
{
	if (*p == '.')
		p = skip_digits(p + 1, 10);
	if (p && (*p == 'e' || *p == 'E')) {
		p++;
		p = skip_digits(p + (*p == '+' || *p == '-'), 10);
	}
	return p;
}

static bool fail_value(struct toml_reader *r, const char *text, size_t n)
{
	const char *first = text + strspn(text, "+-.");
	char name[SPELL_SIZE];

	reader_spell(text, n, name);
	if (n == 0)
		return reader_expected(r, "a value");
	if (*first >= '0' && *first <= '9')
		return reader_fail(r, r->p, "'%s' is not a number", name);
	return reader_fail(r, r->p, "'%s' is not a value (text needs quotes)", name);
}

static bool value_number(struct toml_reader *r, struct toml_node *node, char *text, size_t n)
{
	static const struct {
		char letter;
		int base;
	} prefix[] = { { 'x', 16 }, { 'o', 8 }, { 'b', 2 } };
	const char *first = text + (*text == '+' || *text == '-'), *p;

	for (size_t i = 0; i < COUNT(prefix); i++) {
		if (text[0] != '0' || text[1] != prefix[i].letter)
			continue;
		p = skip_digits(text + 2, prefix[i].base);
		return p == text + n ? value_integer(r, node, text + 2, prefix[i].base, false)
				     : fail_value(r, text, n);
	}
	p = skip_digits(first, 10);
	if (!p)
		return fail_value(r, text, n);
	if (p == text + n && *first == '0' && p > first + 1)
		return reader_fail(r, r->p, "an integer must not have leading zeros");
	if (p == text + n)
		return value_integer(r, node, first, 10, *text == '-');
	if ((*first == '0' && p > first + 1) || skip_fraction(p) != text + n)
		return fail_value(r, text, n);
	return value_float(r, node, text);
}

static bool value_keyword(struct toml_node *node, const char *text)
{
	static const struct {
		const char *word;
		enum toml_type type;
		double v;
	} words[] = {
		{ "true", TOML_BOOL, 1 },        { "false", TOML_BOOL, 0 },
		{ "inf", TOML_FLOAT, INFINITY }, { "+inf", TOML_FLOAT, INFINITY },
		{ "nan", TOML_FLOAT, NAN },      { "-inf", TOML_FLOAT, -INFINITY },
		{ "+nan", TOML_FLOAT, NAN },     { "-nan", TOML_FLOAT, NAN },
	};

	for (size_t i = 0; i < COUNT(words); i++) {
		if (strcmp(text, words[i].word) != 0)
			continue;
		node->type = words[i].type;
		if (node->type == TOML_BOOL)
			node->v.boolean = words[i].v > 0;
		else
			node->v.real = words[i].v;
		return true;
	}
	return false;
}

static size_t token_length(const char *p)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789+-_.:";
	size_t n = strspn(p, letters);

	/* One blank may separate a date and its time. */
	if (n == 10 && p[4] == '-' && p[7] == '-' && p[10] == ' ' && digit_of(p[11]) <= 9)
		n = 11 + strspn(p + 11, letters);
	return n;
}

bool value_scalar(struct toml_reader *r, struct toml_node *node)
{
	size_t n = token_length(r->p);
	char *text = reader_alloc(r, n + 1);
	size_t digits;
	bool ok;

	if (!text)
		return false;
	memcpy(text, r->p, n);
	text[n] = '\0';
	digits = strspn(text, "0123456789");
	if (value_keyword(node, text))
		ok = true;
	else if ((digits == 2 && text[2] == ':') || (digits == 4 && text[4] == '-'))
		ok = value_datetime(r, node, text, n);
	else
		ok = value_number(r, node, text, n);
	r->p += ok ? n : 0;
	return ok;
}
