#include "member.h"

#include "number.h"
#include "text.h"

#include <gpuward.h>

#include <inttypes.h>
#include <math.h>

static uint64_t get_bits(const struct member *m, const void *at)
{
	return m->size == 1   ? *(const bool *)at
	       : m->size == 4 ? *(const uint32_t *)at
			      : *(const uint64_t *)at;
}

static int64_t get_signed(const struct member *m, const void *at)
{
	return m->size == 4 ? *(const int32_t *)at : *(const int64_t *)at;
}

static void add_unsigned(struct buf *out, uint64_t v)
{
	if (v < 10) /* most values are flags, and this is faster */
		buf_addc(out, (char)('0' + v));
	else
		buf_addf(out, "%" PRIu64, v);
}

static void add_real(struct buf *out, double v)
{
	char text[NUMBER_SIZE] = "-";

	if (isfinite(v))
		number_format(v, text);
	buf_adds(out, v == 0 && signbit(v) ? "-0" : text);
}

/* Writes control characters and backslashes in hexadecimal, and dashes if `dash` is set. */
static void add_text(struct buf *out, const char *s, bool dash)
{
	for (; *s; s++) {
		if ((unsigned char)*s < 0x20 || *s == '\\' || (dash && *s == '-') || *s == 0x7f)
			buf_addf(out, "\\%02x", (unsigned char)*s);
		else
			buf_addc(out, *s);
	}
}

static void add_set(struct buf *out, const char *const *names, uint64_t set)
{
	bool first = true;

	for (unsigned i = 0; names[i]; i++) {
		if (!(set >> i & 1))
			continue;
		buf_addf(out, "%s%s", first ? "" : ",", names[i]);
		first = false;
	}
	if (first)
		buf_addc(out, '-');
}

static void add_pids(struct buf *out, const int64_t *pid, size_t n)
{
	if (!pid[0])
		buf_addc(out, '-');
	for (size_t i = 0; i < n && pid[i]; i++)
		buf_addf(out, "%s%" PRId64, i ? "," : "", pid[i]);
}

void member_add(struct buf *out, const struct member *m, const void *at)
{
	switch (m->kind) {
	case MEMBER_UNSIGNED: add_unsigned(out, get_bits(m, at)); break;
	case MEMBER_SIGNED: buf_addf(out, "%" PRId64, get_signed(m, at)); break;
	case MEMBER_REAL: add_real(out, *(const double *)at); break;
	case MEMBER_HEX: buf_addf(out, "%a", *(const double *)at); break;
	case MEMBER_TEXT:
		if (!*(const char *)at)
			buf_addc(out, '-');
		add_text(out, at, true);
		break;
	case MEMBER_PLAIN: add_text(out, at, false); break;
	case MEMBER_NAME: buf_adds(out, m->names[get_bits(m, at)]); break;
	case MEMBER_SET: add_set(out, m->names, get_bits(m, at)); break;
	case MEMBER_PIDS: add_pids(out, at, m->size / sizeof(int64_t)); break;
	case MEMBER_END: break;
	}
}

static bool at_end(const char *text)
{
	return *text == '\0' || *text == '\t';
}

static void set_bits(void *at, unsigned size, uint64_t v)
{
	if (size == 1)
		*(bool *)at = v;
	else if (size == 4)
		*(uint32_t *)at = (uint32_t)v;
	else
		*(uint64_t *)at = v;
}

static bool take_unsigned(const char **text, const struct member *m, void *ret)
{
	uint64_t v;

	if (!text_read_number(text,
			      m->max         ? m->max
			      : m->size == 1 ? true
			      : m->size == 4 ? UINT32_MAX
					     : UINT64_MAX,
			      &v))
		return false;
	set_bits(ret, m->size, v);
	return true;
}

static bool take_signed(const char **text, unsigned size, void *ret)
{
	const bool negative = **text == '-';
	const uint64_t most = size == 4 ? INT32_MAX : INT64_MAX;
	uint64_t v;

	*text += negative;
	if (!text_read_number(text, most + negative, &v))
		return false;
	set_bits(ret, size, negative ? 0 - v : v);
	return true;
}

/* If the word at *text is only a dash, moves *text past the dash and returns true. */
static bool take_dash(const char **text)
{
	const bool is = **text == '-' && at_end(*text + 1);

	*text += is;
	return is;
}

static bool take_real(const char **text, const struct member *m, double *ret)
{
	const char *start = *text;

	*ret = NAN;
	if (m->kind == MEMBER_REAL && take_dash(text))
		return true;
	/* strtod() skips blanks, which would include the tab before the next word. */
	if (*start <= ' ')
		return false;
	*ret = number_parse(start, text);
	return *text != start && (m->kind == MEMBER_HEX || isfinite(*ret));
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads one character, which may be escaped. Returns its number of bytes in s, or 0 if the
 * escape sequence is invalid. */
static unsigned unescape_char(const char *s, char *ret)
{
	int high, low;

	*ret = *s;
	if (*s != '\\')
		return 1;
	high = hex_digit(s[1]);
	low = high < 0 ? -1 : hex_digit(s[2]);
	*ret = (char)(high * 16 + low);
	return low < 0 || high + low == 0 ? 0 : 3;
}

static bool take_text(const char **text, const struct member *m, char *ret)
{
	size_t n = 0;

	ret[0] = '\0';
	if (m->kind == MEMBER_TEXT && at_end(*text))
		return false;
	if (m->kind == MEMBER_TEXT && take_dash(text))
		return true;
	while (!at_end(*text) && n + 1 < m->size) {
		unsigned used = unescape_char(*text, &ret[n++]);

		if (!used)
			return false;
		*text += used;
	}
	ret[n] = '\0';
	return true;
}

/* Reads a name up to a comma, a tab or the end. Returns the index of the name in the list, or
 * -1 if the list does not have the name. */
static int take_name(const char **text, const char *const *names)
{
	const char *word = *text;
	const size_t n = strcspn(word, ",\t");

	*text += n;
	return text_find(names, word, n);
}

static bool take_enum(const char **text, const struct member *m, void *ret)
{
	const int i = take_name(text, m->names);

	if (i >= 0)
		set_bits(ret, m->size, (uint64_t)i);
	return i >= 0;
}

static bool take_set(const char **text, const struct member *m, void *ret)
{
	uint64_t set = 0;
	int i;

	if (!take_dash(text))
		do {
			i = take_name(text, m->names);
			if (i < 0)
				return false;
			set |= UINT64_C(1) << i;
		} while (text_read_word(text, ","));
	set_bits(ret, m->size, set);
	return true;
}

static bool take_pids(const char **text, const struct member *m, int64_t *ret)
{
	size_t n = 0;

	if (take_dash(text))
		return true;
	do {
		if (n == m->size / sizeof(*ret) || !take_signed(text, sizeof(*ret), &ret[n]) ||
		    ret[n++] == 0)
			return false;
	} while (text_read_word(text, ","));
	return true;
}

int member_take(const char **text, const struct member *m, void *at)
{
	bool good = false;

	switch (m->kind) {
	case MEMBER_UNSIGNED: good = take_unsigned(text, m, at); break;
	case MEMBER_SIGNED: good = take_signed(text, m->size, at); break;
	case MEMBER_REAL:
	case MEMBER_HEX: good = take_real(text, m, at); break;
	case MEMBER_TEXT:
	case MEMBER_PLAIN: good = take_text(text, m, at); break;
	case MEMBER_NAME: good = take_enum(text, m, at); break;
	case MEMBER_SET: good = take_set(text, m, at); break;
	case MEMBER_PIDS: good = take_pids(text, m, at); break;
	case MEMBER_END: break;
	}
	return good && at_end(*text) ? 0 : -GW_E_PARSE;
}

static void add_values(struct buf *out, const struct member *m, unsigned n, const char *at)
{
	for (; n; n--, at += m->size) {
		buf_addc(out, '\t');
		member_add(out, m, at);
	}
}

void members_add(struct buf *out, const struct member *m, const void *of)
{
	for (; m->kind != MEMBER_END; m++)
		add_values(out, m, m->count, (const char *)of + m->offset);
}

int members_take(const char **text, const struct member *m, void *of)
{
	for (; m->kind != MEMBER_END; m++)
		for (unsigned i = 0; i < m->count; i++) {
			void *at = (char *)of + m->offset + i * m->size;

			if (!**text && m->least && i >= m->least)
				*(double *)at = NAN;
			else if (!text_read_word(text, "\t") || member_take(text, m, at) != 0)
				return -GW_E_PARSE;
		}
	return 0;
}

/* Returns the number of values up to the last one that is not zero. */
static unsigned count_used(const struct member *m, const char *at)
{
	unsigned n = m->count;

	for (; n; n--)
		for (unsigned i = 0; i < m->size; i++) {
			if (at[(n - 1) * m->size + i])
				return n;
			if (m->kind == MEMBER_PLAIN)
				break; /* ignore the bytes after the end of a string */
		}
	return 0;
}

void members_write(struct buf *out, const char *prefix, const struct member *m, const void *of)
{
	for (; m->kind != MEMBER_END; m++) {
		const char *at = (const char *)of + m->offset;
		const unsigned n = count_used(m, at);

		if (!n)
			continue;
		buf_adds(out, prefix);
		buf_adds(out, m->name);
		add_values(out, m, n, at);
		buf_addc(out, '\n');
	}
}

int members_read(const char *line, const struct member *m, void *of)
{
	const size_t n = strcspn(line, "\t");
	char *at;

	while (m->kind != MEMBER_END && (strncmp(m->name, line, n) != 0 || m->name[n]))
		m++;
	if (m->kind == MEMBER_END)
		return -GW_E_NOENT;
	at = (char *)of + m->offset;
	line += n;
	if (!*line)
		return -GW_E_PARSE;
	for (unsigned i = 0; text_read_word(&line, "\t"); i++)
		if (i == m->count || member_take(&line, m, at + i * m->size) != 0)
			return -GW_E_PARSE;
	return *line ? -GW_E_PARSE : 0;
}
