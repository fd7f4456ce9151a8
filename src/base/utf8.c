#include "utf8.h"

#include <string.h>

static bool is_continuation(char c)
{
	return ((unsigned char)c & 0xC0) == 0x80;
}

size_t utf8_length(const char *s)
{
	const unsigned char c = (unsigned char)s[0];
	unsigned char d;

	if (c < 0x80)
		return 1;
	if (c < 0xC2 || c > 0xF4 || !is_continuation(s[1]))
		return 0;
	d = (unsigned char)s[1];
	if (c < 0xE0)
		return 2;
	if ((c == 0xE0 && d < 0xA0) || (c == 0xED && d > 0x9F) || (c == 0xF0 && d < 0x90) ||
	    (c == 0xF4 && d > 0x8F))
		return 0;
	if (!is_continuation(s[2]))
		return 0;
	if (c < 0xF0)
		return 3;
	return is_continuation(s[3]) ? 4 : 0;
}

uint32_t utf8_decode(const char *s, size_t n)
{
	static const unsigned char lead_bits[] = { 0, 0x7F, 0x1F, 0x0F, 0x07 };
	uint32_t code = (unsigned char)s[0] & lead_bits[n];

	for (size_t i = 1; i < n; i++)
		code = code << 6 | ((unsigned char)s[i] & 0x3F);
	return code;
}

size_t utf8_encode(uint32_t code, char out[static 4])
{
	static const unsigned char mark[] = { 0, 0, 0xC0, 0xE0, 0xF0 };
	size_t n;

	if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
		return 0;
	n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
	for (size_t i = n - 1; i > 0; i--) {
		out[i] = (char)(0x80 | (code & 0x3F));
		code >>= 6;
	}
	out[0] = (char)(n == 1 ? code : mark[n] | code);
	return n;
}

static size_t columns_of(uint32_t code)
{
	if ((code >= 0x300 && code <= 0x36F) || (code >= 0x200B && code <= 0x200F) ||
	    (code >= 0xFE00 && code <= 0xFE0F))
		return 0;
	if ((code >= 0x1100 && code <= 0x115F) || (code >= 0x2E80 && code <= 0xA4CF) ||
	    (code >= 0xAC00 && code <= 0xD7A3) || (code >= 0xF900 && code <= 0xFAFF) ||
	    (code >= 0xFE30 && code <= 0xFE6F) || (code >= 0xFF00 && code <= 0xFF60) ||
	    (code >= 0x1F300 && code <= 0x1FAFF) || (code >= 0x20000 && code <= 0x3FFFD))
		return 2;
	return 1;
}

size_t utf8_columns(const char *s)
{
	size_t columns = 0;

	while (*s) {
		size_t n = utf8_length(s);

		columns += n ? columns_of(utf8_decode(s, n)) : 1;
		s += n ? n : 1;
	}
	return columns;
}

const char *utf8_tail(const char *s, size_t columns)
{
	size_t all = utf8_columns(s);

	while (*s && all > columns) {
		size_t n = utf8_length(s);

		all -= n ? columns_of(utf8_decode(s, n)) : 1;
		s += n ? n : 1;
	}
	return s;
}

bool utf8_is_control(uint32_t code)
{
	return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x61C ||
	       code == 0x200E || code == 0x200F || (code >= 0x2028 && code <= 0x202E) ||
	       (code >= 0x2066 && code <= 0x2069);
}

bool utf8_is_valid(const char *s)
{
	for (size_t n; *s; s += n)
		if ((n = utf8_length(s)) == 0)
			return false;
	return true;
}

void utf8_clean(char *dst, size_t size, const char *src)
{
	size_t used = 0;

	while (*src) {
		size_t n = utf8_length(src);
		uint32_t code = n ? utf8_decode(src, n) : 0;
		bool bad = utf8_is_control(code); /* an invalid byte has code 0 */
		size_t put = bad ? 1 : n;

		if (used + put >= size)
			break;
		if (bad)
			dst[used] = '?';
		else
			memcpy(dst + used, src, n);
		used += put;
		src += n ? n : 1;
	}
	dst[used] = '\0';
}
