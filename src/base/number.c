#include "number.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Returns the C locale. It is a constant of libc, so this allocates nothing and cannot fail. */
static locale_t c_locale(void)
{
	return newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

double number_parse(const char *text, const char **ret_end)
{
	locale_t c = c_locale();
	char *end;
	double v = strtod_l(text, &end, c);

	freelocale(c);
	*ret_end = end;
	return v;
}

void number_format(double v, char out[static NUMBER_SIZE])
{
	locale_t c, before;

	if (fabs(v) < 9007199254740992.0 && v == trunc(v)) {
		snprintf(out, NUMBER_SIZE, "%lld", (long long)v);
		return;
	}
	c = c_locale();
	before = uselocale(c);
	for (int digits = 6; digits <= 17; digits++) {
		snprintf(out, NUMBER_SIZE, "%.*g", digits, v);
		if (strtod(out, NULL) == v)
			break;
	}
	uselocale(before);
	freelocale(c);
}

double number_without_minus_zero(double v, int decimals)
{
	double half = 0.5;

	while (decimals-- > 0)
		half /= 10;
	return fabs(v) <= half ? 0 : v;
}

bool number_u64(const char *text, uint64_t *ret)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*ret = strtoull(text, &end, 10);
	return *end == '\0' && errno == 0;
}

bool number_i64(const char *text, int64_t *ret)
{
	const bool negative = *text == '-';
	uint64_t v;

	if (!number_u64(text + negative, &v) || v > (uint64_t)INT64_MAX + negative)
		return false;
	*ret = negative ? (int64_t)(0 - v) : (int64_t)v;
	return true;
}

bool number_real(const char *text, double *ret)
{
	const char *end;

	*ret = NAN;
	if (strcmp(text, "-") == 0)
		return true;
	*ret = number_parse(text, &end);
	return end != text && *end == '\0' && isfinite(*ret);
}

const struct unit unit_times[] = { { "h", 3600e9 }, { "m", 60e9 }, { "s", 1e9 }, { "ms", 1e6 },
				   { "us", 1e3 },   { "ns", 1 },   { "", 1e9 },  { NULL, 0 } };
const struct unit unit_sizes[] = {
	{ "TiB", 0x1p40 }, { "GiB", 0x1p30 }, { "MiB", 0x1p20 }, { "KiB", 0x1p10 }, { "B", 1 },
	{ "TB", 1e12 },    { "GB", 1e9 },     { "MB", 1e6 },     { "kB", 1e3 },     { "", 1 },
	{ "T", 0x1p40 },   { "G", 0x1p30 },   { "M", 0x1p20 },   { "K", 0x1p10 },   { NULL, 0 },
};

bool unit_parse(const char *text, const struct unit *units, double *ret)
{
	/* Ignore case only for sizes: for times, "m" and "M" could mean different units. */
	const bool any_case = units == unit_sizes;
	const char *end;
	double v = number_parse(text, &end);

	/* strtod() also reads hexadecimal, which is not allowed here. */
	if (end == text || !isfinite(v) || v < 0 || strpbrk(text, "xX"))
		return false;
	while (*end == ' ')
		end++;
	for (; units->name; units++)
		if ((any_case ? strcasecmp : strcmp)(end, units->name) == 0) {
			*ret = v * units->size;
			return true;
		}
	return false;
}

/* Escapes dashes only if dash is set. */
static void escape_text(struct buf *out, const char *s, bool dash)
{
	for (; *s; s++) {
		if ((unsigned char)*s < 0x20 || *s == '\\' || (dash && *s == '-') || *s == 0x7f)
			buf_addf(out, "\\%02x", (unsigned char)*s);
		else
			buf_addc(out, *s);
	}
}

void tsv_escape(struct buf *out, const char *s)
{
	escape_text(out, s, false);
}

void tsv_add_text(struct buf *out, const char *s)
{
	if (!*s)
		buf_addc(out, '-');
	escape_text(out, s, true);
}

void tsv_add_real(struct buf *out, double v)
{
	char text[NUMBER_SIZE] = "-";

	if (isfinite(v))
		number_format(v, text);
	buf_adds(out, v == 0 && signbit(v) ? "-0" : text);
}

bool tsv_take(const char **at, char *out, size_t size)
{
	size_t n = strcspn(*at, "\t");

	if (n == 0 || n >= size)
		return false;
	memcpy(out, *at, n);
	out[n] = '\0';
	*at += n + ((*at)[n] == '\t');
	return true;
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

bool tsv_unescape(const char **at, char *out, size_t size)
{
	const char *s = *at;
	size_t n = 0;

	while (*s && *s != '\t' && n + 1 < size) {
		unsigned used = unescape_char(s, &out[n++]);

		if (!used)
			return false;
		s += used;
	}
	out[n] = '\0';
	*at = s;
	return *s == '\0' || *s == '\t';
}

bool tsv_text(const char *s, char *out, size_t size)
{
	if (strcmp(s, "-") == 0)
		s = "";
	return tsv_unescape(&s, out, size) && *s == '\0';
}
