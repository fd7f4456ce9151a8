#include "markup.h"

#include "base/utf8.h"

#include <stdint.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd"

static const char *reference(char c)
{
	switch (c) {
	case '&': return "&amp;";
	case '<': return "&lt;";
	case '>': return "&gt;";
	case '"': return "&quot;";
	case '\'': return "&#39;";
	default: return NULL;
	}
}

/* Code points that no XML document may hold. */
static bool forbidden(uint32_t code)
{
	return (code < 0x20 && code != '\t' && code != '\n' && code != '\r') ||
	       (code >= 0x7f && code < 0xa0) || (code & 0xfffe) == 0xfffe;
}

/* Adds the character at s; returns its bytes. */
static size_t add_one(struct buf *out, const char *s)
{
	const char *ref = reference(*s);
	size_t n = utf8_length(s);

	if (ref)
		buf_adds(out, ref);
	else if (n == 0 || forbidden(utf8_decode(s, n)))
		buf_adds(out, REPLACEMENT);
	else
		buf_add(out, s, n);
	return n ? n : 1;
}

void markup_text(struct buf *out, const char *s)
{
	while (s && *s)
		s += add_one(out, s);
}

void markup_cut(struct buf *out, const char *s, size_t columns)
{
	bool whole = utf8_columns(s) <= columns;
	size_t used = 0;

	while (*s) {
		char one[8] = "";
		size_t n = utf8_length(s), width;

		memcpy(one, s, n ? n : 1);
		width = utf8_columns(one);
		if (!whole && used + width + 1 > columns) {
			buf_adds(out, "…");
			return;
		}
		used += width;
		s += add_one(out, s);
	}
}
