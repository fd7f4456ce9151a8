#include "toml_write.h"

#include "number.h"
#include "utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void toml_write_text(struct buf *out, const char *key, const char *text)
{
	buf_addf(out, "%s = \"", key);
	for (size_t n; *text; text += n ? n : 1) {
		uint32_t code;

		n = utf8_length(text);
		code = n ? utf8_decode(text, n) : (unsigned char)*text;
		if (*text == '"' || *text == '\\')
			buf_addf(out, "\\%c", *text);
		else if (n && utf8_is_control(code))
			buf_addf(out, "\\u%04x", (unsigned)code);
		else
			buf_addf(out, "%.*s", n ? (int)n : 1, text);
	}
	buf_adds(out, "\"\n");
}

void toml_write_real(struct buf *out, const char *key, double v)
{
	char text[NUMBER_SIZE] = "nan";

	if (isfinite(v))
		number_format(v, text);
	/* A whole number must still read back as a float. */
	buf_addf(out, "%s = %s%s\n", key, text, strpbrk(text, ".en") ? "" : ".0");
}

static void write_field(struct buf *out, const struct toml_field *f, const void *p)
{
	switch (f->type) {
	case TOML_FIELD_TEXT: toml_write_text(out, f->key, p); break;
	case TOML_FIELD_REAL: toml_write_real(out, f->key, *(const double *)p); break;
	case TOML_FIELD_INT: buf_addf(out, "%s = %d\n", f->key, *(const int *)p); break;
	case TOML_FIELD_UINT: buf_addf(out, "%s = %u\n", f->key, *(const unsigned *)p); break;
	case TOML_FIELD_U64:
		buf_addf(out, "%s = %" PRIu64 "\n", f->key, *(const uint64_t *)p);
		break;
	case TOML_FIELD_BOOL:
		buf_addf(out, "%s = %s\n", f->key, *(const bool *)p ? "true" : "false");
		break;
	case TOML_FIELD_ENUM:
		toml_write_text(out, f->key, f->name(*(const unsigned *)p));
		break;
	}
}

void toml_write_fields(struct buf *out, const struct toml_field *f, size_t n,
		       const void *object)
{
	const char *section = "";

	for (; n; n--, f++) {
		if (strcmp(section, f->section) != 0)
			buf_addf(out, "\n[%s]\n", f->section);
		section = f->section;
		write_field(out, f, (const char *)object + f->offset);
	}
}

static bool read_name(const struct toml_node *v, const struct toml_field *f, unsigned *ret)
{
	if (v->type != TOML_STRING)
		return false;
	for (*ret = 0; *ret < f->names; ++*ret)
		if (strcmp(v->v.string.text, f->name(*ret)) == 0)
			return true;
	return false;
}

static bool is_integer(const struct toml_node *v, int64_t min, int64_t max)
{
	return v->type == TOML_INTEGER && v->v.integer >= min && v->v.integer <= max;
}

static bool read_field(const struct toml_node *v, const struct toml_field *f, void *p)
{
	switch (f->type) {
	case TOML_FIELD_TEXT:
		if (v->type != TOML_STRING || v->v.string.len >= f->size)
			return false;
		snprintf(p, f->size, "%s", v->v.string.text);
		return true;
	case TOML_FIELD_REAL:
		if (v->type != TOML_FLOAT && v->type != TOML_INTEGER)
			return false;
		*(double *)p = v->type == TOML_FLOAT ? v->v.real : (double)v->v.integer;
		return true;
	case TOML_FIELD_INT:
		if (!is_integer(v, INT32_MIN, INT32_MAX))
			return false;
		*(int *)p = (int)v->v.integer;
		return true;
	case TOML_FIELD_UINT:
		if (!is_integer(v, 0, UINT32_MAX))
			return false;
		*(unsigned *)p = (unsigned)v->v.integer;
		return true;
	case TOML_FIELD_U64:
		if (!is_integer(v, 0, INT64_MAX))
			return false;
		*(uint64_t *)p = (uint64_t)v->v.integer;
		return true;
	case TOML_FIELD_BOOL:
		if (v->type != TOML_BOOL)
			return false;
		*(bool *)p = v->v.boolean;
		return true;
	case TOML_FIELD_ENUM: return read_name(v, f, p);
	}
	return false;
}

const struct toml_field *toml_read_fields(const struct toml_node *top,
					  const struct toml_field *f, size_t n, void *object)
{
	for (; n; n--, f++) {
		const struct toml_node *v =
			toml_get(*f->section ? toml_get(top, f->section) : top, f->key);

		if (!v ? !f->optional : !read_field(v, f, (char *)object + f->offset))
			return f;
	}
	return NULL;
}
