#include "struct_text.h"

#include "base/buf.h"
#include "base/number.h"
#include "base/text.h"

#include <gpuward.h>

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static uint64_t get_bits(const void *at, unsigned size)
{
	uint64_t v = 0;

	switch (size) {
	case 1: return *(const uint8_t *)at;
	case 4: return *(const uint32_t *)at;
	default: memcpy(&v, at, sizeof(v)); return v;
	}
}

static int64_t get_signed(const void *at, unsigned size)
{
	return size == 4 ? *(const int32_t *)at : *(const int64_t *)at;
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

void struct_text_add(struct buf *out, const struct struct_text_member *m, const void *at)
{
	switch (m->kind) {
	case STRUCT_TEXT_UNSIGNED: buf_addf(out, "%" PRIu64, get_bits(at, m->size)); break;
	case STRUCT_TEXT_SIGNED: buf_addf(out, "%" PRId64, get_signed(at, m->size)); break;
	case STRUCT_TEXT_REAL: buf_addf(out, "%a", *(const double *)at); break;
	case STRUCT_TEXT_TEXT: tsv_escape(out, at); break;
	case STRUCT_TEXT_NAME: buf_adds(out, m->names[get_bits(at, m->size)]); break;
	case STRUCT_TEXT_SET: add_set(out, m->names, get_bits(at, m->size)); break;
	}
}

/* Returns the number of values up to the last one that is not zero. */
static unsigned count_used(const struct struct_text_member *m, const char *at)
{
	unsigned n = m->count;

	for (; n; n--)
		for (unsigned i = 0; i < m->size; i++) {
			if (at[(n - 1) * m->size + i])
				return n;
			if (m->kind == STRUCT_TEXT_TEXT)
				break; /* ignore the bytes after the end of a string */
		}
	return 0;
}

void struct_text_write(struct buf *out, const char *prefix, const struct struct_text_member *m,
		       const void *of)
{
	for (; m->name; m++) {
		const char *at = (const char *)of + m->offset;
		unsigned n = count_used(m, at);

		if (!n)
			continue;
		buf_adds(out, prefix);
		buf_adds(out, m->name);
		for (unsigned i = 0; i < n; i++) {
			buf_addc(out, '\t');
			struct_text_add(out, m, at + i * m->size);
		}
		buf_addc(out, '\n');
	}
}

static void set_bits(void *at, unsigned size, uint64_t v)
{
	if (size == 1)
		*(uint8_t *)at = (uint8_t)v;
	else if (size == 4)
		*(uint32_t *)at = (uint32_t)v;
	else
		memcpy(at, &v, sizeof(v));
}

/* Returns the position of a word of n bytes; -1: not found. */
static int take_names(const char **text, const struct struct_text_member *m, void *at)
{
	const char *p = *text;
	uint64_t set = 0;
	size_t n;
	int i;

	*text += strcspn(p, "\t");
	if (m->kind == STRUCT_TEXT_NAME) {
		i = text_find(m->names, p, (size_t)(*text - p));
		set_bits(at, m->size, (uint64_t)i);
		return i < 0 ? -GW_E_PARSE : 0;
	}
	for (; p < *text; p += n + (p[n] == ',')) {
		n = strcspn(p, ",\t");
		i = text_find(m->names, p, n);
		if (i < 0 && !(n == 1 && *p == '-'))
			return -GW_E_PARSE;
		set |= i < 0 ? 0 : UINT64_C(1) << i;
	}
	set_bits(at, m->size, set);
	return 0;
}

int struct_text_take(const char **text, const struct struct_text_member *m, void *at)
{
	char *end = NULL;
	uint64_t v;

	switch (m->kind) {
	case STRUCT_TEXT_NAME:
	case STRUCT_TEXT_SET: return take_names(text, m, at);
	case STRUCT_TEXT_TEXT: return tsv_unescape(text, at, m->size) ? 0 : -GW_E_PARSE;
	case STRUCT_TEXT_REAL: *(double *)at = strtod(*text, &end); break;
	case STRUCT_TEXT_SIGNED:
		set_bits(at, m->size, (uint64_t)strtoll(*text, &end, 10));
		break;
	case STRUCT_TEXT_UNSIGNED:
		if (**text == '-')
			return -GW_E_PARSE;
		v = strtoull(*text, &end, 10);
		if (m->size < sizeof(v) && v >> 8 * m->size)
			return -GW_E_PARSE;
		set_bits(at, m->size, v);
		break;
	default: return -GW_E_PARSE;
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
	if (!m->name)
		return -GW_E_NOENT;
	if (!line[n])
		return -GW_E_PARSE;
	at = (char *)of + m->offset;
	line += n;
	for (unsigned i = 0; *line; i++) {
		line++; /* a tab */
		if (i == m->count || struct_text_take(&line, m, at + i * m->size) != 0)
			return -GW_E_PARSE;
	}
	return 0;
}
