#include "tsv.h"

#include "number.h"

#include <math.h>
#include <string.h>

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

/* Reads one character. Returns the number of bytes that it takes in s, 0: invalid. */
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
