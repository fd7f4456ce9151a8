/* member: tables of the members of structs, which are used to write and read files. A new
 * member of a struct needs one new row in its table.
 *
 * A value is a word of a line: words are separated by tabs, and control characters in strings
 * are escaped. Numbers read back to the same bits in any locale. Enums and sets of bits are
 * written by name, so that their numbers may change. Only a buf that grows allocates memory. */
#ifndef GW_BASE_MEMBER_H
#define GW_BASE_MEMBER_H

#include "buf.h"

#include <stddef.h>
#include <stdint.h>

enum member_kind {
	MEMBER_END,      /* ends a list */
	MEMBER_UNSIGNED, /* bool, unsigned or uint64_t */
	MEMBER_SIGNED,   /* int or int64_t */
	MEMBER_REAL,     /* double; "-": NAN or infinite */
	MEMBER_HEX,      /* double, in hexadecimal */
	MEMBER_TEXT,     /* char[]; "-": empty */
	MEMBER_PLAIN,    /* char[]; a dash is ordinary text */
	MEMBER_NAME,     /* a value of an enum */
	MEMBER_SET,      /* a set of bits: "thermal,health"; "-": empty */
	MEMBER_PIDS,     /* int64_t[], ended by 0: "7,1"; "-": empty */
};

struct member {
	const char *name; /* NULL if the order of the values in a line identifies the member */
	enum member_kind kind;
	unsigned size, count; /* size of one value in bytes, and number of values */
	size_t offset;
	const char *const *names; /* for NAME and SET: the names; NULL ends the list */
	uint64_t max;             /* for UNSIGNED: the largest valid value; 0: no limit */
	/* For REAL: minimum number of values in a line; missing values become NAN. 0: every
	 * line has all values. */
	unsigned least;
};

/* Initialise a row: { MEMBER(UNSIGNED, struct scene_gpu, errors) }. */
/* clang-format off */
#define MEMBER_SIZE(of, m) ((unsigned)sizeof(((of *)0)->m))
#define MEMBER(kind_, of, m) \
	.kind = MEMBER_##kind_, .size = MEMBER_SIZE(of, m), .count = 1, .offset = offsetof(of, m)
#define MEMBER_ARRAY(kind_, of, m) \
	.kind = MEMBER_##kind_, .size = MEMBER_SIZE(of, m[0]), \
	.count = MEMBER_SIZE(of, m) / MEMBER_SIZE(of, m[0]), .offset = offsetof(of, m)
/* clang-format on */

/* Adds one value as a word. */
void member_add(struct buf *out, const struct member *m, const void *at);
/* Reads one value from *text, up to the next tab or the end, and moves *text there. The bytes
 * after the end of a string or list are unchanged. Returns 0 or -GW_E_PARSE. */
int member_take(const char **text, const struct member *m, void *at);

/* Adds all values, each with a tab before it. */
void members_add(struct buf *out, const struct member *m, const void *of);
/* Reads what members_add() wrote and moves *text past it. Returns 0 or -GW_E_PARSE. */
int members_take(const char **text, const struct member *m, void *of);

/* Adds a line for each member that is not zero: prefix, name, and the values, each with a tab
 * before it. */
void members_write(struct buf *out, const char *prefix, const struct member *m, const void *of);
/* Reads one line of members_write(), without prefix and newline. The caller sets the struct to
 * zero before the first line. Returns 0, -GW_E_PARSE, or -GW_E_NOENT if the list has no such
 * member. */
int members_read(const char *line, const struct member *m, void *of);

#endif
