/* struct_text: members of a struct as lines of text, by a table of them, for recordings.
 *
 * A line has a name and its values, separated by tabs.  A member that is zero has no line, numbers read back to the same
 * bits, and texts are escaped.  Enums and sets of bits are written by name, so that a number may change its meaning. */
#ifndef GW_GUARD_STRUCT_TEXT_H
#define GW_GUARD_STRUCT_TEXT_H

#include <stddef.h>

struct buf;

enum struct_text_kind {
	STRUCT_TEXT_UNSIGNED,
	STRUCT_TEXT_SIGNED,
	STRUCT_TEXT_REAL,
	STRUCT_TEXT_TEXT,
	STRUCT_TEXT_NAME, /* a value of an enum */
	STRUCT_TEXT_SET,  /* bits, numbered by an enum: "thermal,health"; "-" is none of them */
};

struct struct_text_member {
	const char *name; /* NULL ends the table */
	enum struct_text_kind kind;
	unsigned size, count; /* of one value in bytes, and how many there are */
	size_t offset;
	const char *const *names; /* of a NAME or a SET; NULL ends them */
};

/* Adds prefix, name and values of each member that is not zero. */
void struct_text_write(struct buf *out, const char *prefix, const struct struct_text_member *m,
		       const void *of);
/* line: what struct_text_write() added after the prefix, without its newline.  of begins zeroed.  0 or -GW_E_PARSE;
 * -GW_E_NOENT: the table has no such member. */
int struct_text_read(const struct struct_text_member *m, void *of, const char *line);

/* One value, as a word; at: of a TEXT an array of size bytes. */
void struct_text_add(struct buf *out, const struct struct_text_member *m, const void *at);
/* Reads it from *text, up to the next tab or the end, where *text stands afterwards.  0 or -GW_E_PARSE. */
int struct_text_take(const char **text, const struct struct_text_member *m, void *at);

#endif
