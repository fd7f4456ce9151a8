/* toml: a strict TOML 1.0 parser.
 *
 * The whole document is parsed at once, into memory that toml_free() frees. An error has a
 * line, a column and a sentence. Every node stores its position, so that a caller can also
 * report a wrong value or an unknown key with line and column. Strings may contain NUL (TOML
 * allows \u0000): use `len` where that matters. */
#ifndef GW_BASE_TOML_H
#define GW_BASE_TOML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum toml_type {
	TOML_TABLE,
	TOML_ARRAY,
	TOML_STRING,
	TOML_INTEGER,
	TOML_FLOAT,
	TOML_BOOL,
	TOML_DATETIME,       /* with an offset from UTC */
	TOML_LOCAL_DATETIME, /* without an offset */
	TOML_LOCAL_DATE,
	TOML_LOCAL_TIME,
};

struct toml_node {
	enum toml_type type;
	/* Position of the value, from 1. For a table, the position of its header or '{'. */
	unsigned line, column;
	/* Name of this node in its table, NUL-terminated. NULL for an element of an array and
	 * for the top table. */
	const char *key;
	size_t key_len;
	unsigned key_line, key_column;
	struct toml_node *next;  /* next sibling, in document order */
	struct toml_node *child; /* first member of a table or element of an array */
	size_t count;            /* number of members of a table or of elements of an array */
	union {
		struct {
			const char *text; /* a string, or a date and time as RFC 3339 text */
			size_t len;
		} string;
		int64_t integer;
		double real;
		bool boolean;
	} v;
	/* Only the parser uses these two members. */
	struct toml_node *last; /* last member or element */
	unsigned flags;
};

struct toml_error {
	unsigned line, column; /* Both begin at 1. column counts code points, not bytes. */
	char text[160];        /* one sentence without position and full stop */
};

struct toml;

/* Parses size bytes of text (borrowed during the call). Returns 0, and the caller owns *ret;
 * -GW_E_PARSE with *err filled; or -GW_E_NOMEM. The depth is limited to 64, so that a hostile
 * document cannot exhaust the stack. */
int toml_parse(const char *text, size_t size, struct toml **ret, struct toml_error *err);

/* Works like toml_parse(), for a file of at most 1 MiB. Also returns -GW_E_NOENT, -GW_E_PERM,
 * -GW_E_IO and -GW_E_SIZE, each with a sentence in *err and line 0. */
int toml_parse_file(const char *path, struct toml **ret, struct toml_error *err);

void toml_free(struct toml *doc);

/* Returns the top table; valid as long as doc. */
const struct toml_node *toml_top(const struct toml *doc);

bool toml_is_key(const struct toml_node *n, const char *key);
/* Returns a member of a table; NULL if it is missing, or if table is NULL or not a table. */
const struct toml_node *toml_get(const struct toml_node *table, const char *key);

/* Returns "string", "integer", "table", ... for messages. */
const char *toml_type_name(enum toml_type type);

#endif
