#include "struct_text.h"

#include "base/buf.h"
#include "base/tsv.h"

#include <gpuward.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- writing ---- */

static uint64_t bits_of(const void *at, unsigned size)
{
	uint64_t v = 0;

	switch (size) {
	case 1: return *(const uint8_t *)at;
	case 4: return *(const uint32_t *)at;
	default: memcpy(&v, at, sizeof(v)); return v;
	}
}

static int64_t signed_of(const void *at, unsigned size)
{
	return size == 4 ? *(const int32_t *)at : *(const int64_t *)at;
}

void struct_text_add(struct buf *out, enum struct_text_kind kind, unsigned size, const void *at)
{
	switch (kind) {
	case STRUCT_TEXT_UNSIGNED: buf_addf(out, "%" PRIu64, bits_of(at, size)); break;
	case STRUCT_TEXT_SIGNED: buf_addf(out, "%" PRId64, signed_of(at, size)); break;
	case STRUCT_TEXT_REAL: buf_addf(out, "%a", *(const double *)at); break;
	case STRUCT_TEXT_TEXT: tsv_escape(out, at); break;
	}
}

/* How many there are before zeros alone follow. */
static unsigned used(const struct struct_text_member *m, const char *at)
{
	unsigned n = m->count;

	for (; n; n--)
		for (unsigned i = 0; i < m->size; i++) {
			if (at[(n - 1) * m->size + i])
				return n;
			if (m->kind == STRUCT_TEXT_TEXT)
				break; /* what stands behind the end of a text is nothing */
		}
	return 0;
}

void struct_text_write(struct buf *out, const char *prefix, const struct struct_text_member *m,
		       const void *of)
{
	for (; m->name; m++) {
		const char *at = (const char *)of + m->offset;
		unsigned n = used(m, at);

		if (!n)
			continue;
		buf_adds(out, prefix);
		buf_adds(out, m->name);
		for (unsigned i = 0; i < n; i++) {
			buf_addc(out, '\t');
			struct_text_add(out, m->kind, m->size, at + i * m->size);
		}
		buf_addc(out, '\n');
	}
}

/* ---- reading ---- */

static void set_bits(void *at, unsigned size, uint64_t v)
{
	if (size == 1)
		*(uint8_t *)at = (uint8_t)v;
	else if (size == 4)
		*(uint32_t *)at = (uint32_t)v;
	else
		memcpy(at, &v, sizeof(v));
}

int struct_text_take(const char **text, enum struct_text_kind kind, unsigned size, void *at)
{
	char *end = NULL;
	uint64_t v;

	if (kind == STRUCT_TEXT_TEXT)
		return tsv_unescape(text, at, size) ? 0 : -GW_E_PARSE;
	if (kind == STRUCT_TEXT_REAL)
		*(double *)at = strtod(*text, &end);
	else if (kind == STRUCT_TEXT_SIGNED)
		set_bits(at, size, (uint64_t)strtoll(*text, &end, 10));
	else if (**text == '-')
		return -GW_E_PARSE;
	else {
		v = strtoull(*text, &end, 10);
		if (size < sizeof(v) && v >> 8 * size)
			return -GW_E_PARSE;
		set_bits(at, size, v);
	}
	if (end == *text || (*end && *end != '\t'))
		return -GW_E_PARSE;
	*text = end;
	return 0;
}

int struct_text_read(const struct struct_text_member *m, void *of, const char *line)
{
	size_t n = strcspn(line, "\t");
	char *at;

	while (m->name && (strlen(m->name) != n || memcmp(m->name, line, n) != 0))
		m++;
	if (!m->name || !line[n])
		return -GW_E_PARSE;
	at = (char *)of + m->offset;
	line += n;
	for (unsigned i = 0; *line; i++) {
		line++; /* a tab */
		if (i == m->count ||
		    struct_text_take(&line, m->kind, m->size, at + i * m->size) != 0)
			return -GW_E_PARSE;
	}
	return 0;
}
