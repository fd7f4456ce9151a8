/* toml_write: writes TOML lines that read back to the same values, and writes and reads structs
 * as tables of fields. */
#ifndef GW_BASE_TOML_WRITE_H
#define GW_BASE_TOML_WRITE_H

#include "buf.h"
#include "toml.h"

#include <stddef.h>
#include <stdint.h>

/* Writes key = "text", escaped. */
void toml_write_text(struct buf *out, const char *key, const char *text);

/* Writes key = v, as a float that reads back to the same bits. Writes nan if v is not
 * finite. */
void toml_write_real(struct buf *out, const char *key, double v);

/* One member of a struct that is stored in a file. */
struct toml_field {
	const char *section, *key; /* section is "" for a key at the top level */
	enum {
		TOML_FIELD_TEXT, /* char[size] */
		TOML_FIELD_REAL, /* double */
		TOML_FIELD_INT,
		TOML_FIELD_UINT,
		TOML_FIELD_U64,
		TOML_FIELD_BOOL,
		/* an unsigned; the file contains the name that name() returns for it */
		TOML_FIELD_ENUM,
	} type;
	size_t offset;
	size_t size;                         /* bytes of the member, for TOML_FIELD_TEXT */
	const char *(*name)(unsigned value); /* for TOML_FIELD_ENUM */
	unsigned names;                      /* number of values, for TOML_FIELD_ENUM */
	bool optional; /* Older files lack the field. The member then stays unchanged. */
};

/* clang-format off */
#define TOML_FIELD(kind, section_, key_, object, member)                                   \
	{ .section = section_, .key = key_, .type = TOML_FIELD_##kind,                     \
	  .offset = offsetof(object, member), .size = sizeof(((object *)0)->member) }
#define TOML_OPTIONAL(kind, section_, key_, object, member)                                \
	{ .section = section_, .key = key_, .type = TOML_FIELD_##kind,                     \
	  .offset = offsetof(object, member), .optional = true }
#define TOML_ENUM(section_, key_, object, member, name_, names_)                           \
	{ .section = section_, .key = key_, .type = TOML_FIELD_ENUM,                       \
	  .offset = offsetof(object, member), .name = name_, .names = names_ }
/* clang-format on */

/* Writes n fields of object, with a [section] line at each new section. */
void toml_write_fields(struct buf *out, const struct toml_field *f, size_t n,
		       const void *object);

/* Reads n fields into object. Returns NULL, or the first field that is missing or invalid. */
const struct toml_field *toml_read_fields(const struct toml_node *top,
					  const struct toml_field *f, size_t n, void *object);

#endif
