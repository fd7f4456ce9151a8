/* plain: members of a struct as lines of text, by a table of them; for what a recording begins with.
 *
 * A line has a name and its values, parted by tabs.  What is zero has none, numbers read back to the same bits, and texts are
 * escaped.  Not a part of the library: only the service and the program record and replay. */
#ifndef GW_GUARD_STRUCT_TEXT_H
#define GW_GUARD_STRUCT_TEXT_H

#include <stddef.h>

struct buf;

enum struct_text_kind {
	STRUCT_TEXT_UNSIGNED,
	STRUCT_TEXT_SIGNED,
	STRUCT_TEXT_REAL,
	STRUCT_TEXT_TEXT
};

struct struct_text_member {
	const char *name; /* NULL ends the table */
	enum struct_text_kind kind;
	unsigned size, count; /* of one of them in bytes, and how many there are */
	size_t offset;
};

/* Adds prefix, name and values of each that is not zero. */
void struct_text_write(struct buf *out, const char *prefix, const struct struct_text_member *m,
		       const void *of);
/* line: what struct_text_write() added after the prefix, without its newline.  of begins zeroed.  0 or -GW_E_PARSE. */
int struct_text_read(const struct struct_text_member *m, void *of, const char *line);

/* One value, as a word; at: of a STRUCT_TEXT_TEXT an array of size bytes. */
void struct_text_add(struct buf *out, enum struct_text_kind kind, unsigned size,
		     const void *at);
/* Reads it from *text, up to the next tab or the end, where *text stands afterwards.  0 or -GW_E_PARSE. */
int struct_text_take(const char **text, enum struct_text_kind kind, unsigned size, void *at);

#endif
