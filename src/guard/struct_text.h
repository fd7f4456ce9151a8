/* struct_text: writes and reads the members of a struct as lines of text, for recordings. A table
 * lists the members.
 *
 * A line has a name and its values, separated by tabs. A member that is zero has no line.
 * Numbers read back to the same bits, and strings are escaped. Enums and sets of bits are
 * written by name, so that their numbers may change. */
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
	STRUCT_TEXT_SET,  /* a set of bits, written by name: "thermal,health"; "-": empty */
};

struct struct_text_member {
	const char *name; /* NULL ends the table */
	enum struct_text_kind kind;
	unsigned size, count; /* size of one value in bytes, and number of values */
	size_t offset;
	const char *const *names; /* for NAME and SET: the names; NULL ends the list */
};

/* Adds a line with prefix, name and values for each member that is not zero. */
void struct_text_write(struct buf *out, const char *prefix, const struct struct_text_member *m,
		       const void *of);
/* Reads one line of struct_text_write(), without prefix and newline. The struct `of` begins
 * zeroed. Returns 0 or -GW_E_PARSE; -GW_E_NOENT: the table has no such member. */
int struct_text_read(const struct struct_text_member *m, void *of, const char *line);

/* Adds one value as a word. For a TEXT, at is an array of size bytes. */
void struct_text_add(struct buf *out, const struct struct_text_member *m, const void *at);
/* Reads one value from *text, up to the next tab or the end, and moves *text there. Returns 0
 * or -GW_E_PARSE. */
int struct_text_take(const char **text, const struct struct_text_member *m, void *at);

#endif
