/* toml_reader: declarations that only the files of the TOML parser include.
 *
 * toml.c has the grammar, toml_value.c the scalars, toml_tree.c the memory, the positions and
 * the rules about where a table may be defined. Functions return false after an error. The
 * member rc then has the error code, and every caller returns false at once, up to
 * toml_parse(). */
#ifndef GW_BASE_TOML_READER_H
#define GW_BASE_TOML_READER_H

#include "toml.h"

#define TOML_DEPTH 64

struct toml {
	struct toml_block *blocks; /* all memory that lives as long as the document */
	struct toml_node top;
};

struct toml_reader {
	struct toml *doc;
	/* The whole document: valid UTF-8, no control characters except tab, LF and CR LF,
	 * followed by a NUL. */
	const char *text;
	const char *p; /* the next byte to read */

	/* A position with known line and column, from which reader_locate() continues to count.
	 * Callers ask for positions nearly in document order, so all calls together read the
	 * text about once. */
	const char *mark;
	unsigned mark_line, mark_column;

	struct toml_member *index; /* index of all members of all tables, by table and key */
	size_t index_used, index_size;

	int rc; /* 0, -GW_E_PARSE or -GW_E_NOMEM */
	struct toml_error *err;
};

struct key {
	const char *text; /* in the document's memory */
	size_t len;
	const char *at; /* position of the key in the text */
};

/* A table and its depth. For a header, also the position of the header. */
struct place {
	struct toml_node *table;
	unsigned depth;
	unsigned line, column;
};

/* toml_tree.c */

/* Allocates memory that belongs to the document, aligned for everything that the document
 * contains. If there is no memory, returns NULL and sets rc. */
void *reader_alloc(struct toml_reader *r, size_t n);

/* Sets rc and the error message, with the position of `at`. Always returns false. */
bool reader_fail(struct toml_reader *r, const char *at, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Fails with "expected WHAT but found 'C'", where C is the character at r->p. Always returns
 * false. */
bool reader_expected(struct toml_reader *r, const char *what);

/* Returns the line and the column of `at`, which points into r->text. */
void reader_locate(struct toml_reader *r, const char *at, unsigned *ret_line,
		   unsigned *ret_column);

/* Writes the first n bytes of text to out, cleaned for a message and cut if too long. */
#define SPELL_SIZE 64
const char *reader_spell(const char *text, size_t n, char out[static SPELL_SIZE]);

/* Adds an element at the end of the array `parent` and returns it. If there is no memory,
 * returns NULL and sets rc. */
struct toml_node *tree_element(struct toml_reader *r, struct toml_node *parent, const char *at);

/* Move `place` from a table to its subtable `key`, and create the subtable if it is missing.
 * tree_step_header() is for a part of a [header.path], tree_step_dotted() for a part of a
 * dotted.key. */
bool tree_step_header(struct toml_reader *r, struct place *place, const struct key *key);
bool tree_step_dotted(struct toml_reader *r, struct place *place, const struct key *key);

/* Define the object that the last part of a path names: a table for [key], an element of an
 * array of tables for [[key]], a value for key =. The first two functions move `place` into the
 * new table. */
bool tree_define_table(struct toml_reader *r, struct place *place, const struct key *key);
bool tree_define_row(struct toml_reader *r, struct place *place, const struct key *key);
struct toml_node *tree_define_value(struct toml_reader *r, const struct place *place,
				    const struct key *key);

/* Closes a table: nothing more may be added to it. */
void tree_close(struct toml_node *table);

/* toml_value.c */

/* Reads the string at r->p, which is a quote. A multi-line string is allowed only if multi is
 * set. */
bool value_string(struct toml_reader *r, bool multi, const char **ret_text, size_t *ret_len);

/* Reads the value at r->p, which is not a string, array or inline table. */
bool value_scalar(struct toml_reader *r, struct toml_node *node);

#endif
