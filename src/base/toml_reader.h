/* toml_reader: what the files of the TOML parser share; no other file includes this.
 *
 * toml.c has the grammar, toml_value.c the scalars, toml_tree.c the memory, the positions and
 * the rules about where a table may be defined. Functions return false after an error;
 * reader.rc then has the code, and everything returns up to toml_parse(). */
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

	/* A position with known line and column. Positions are requested nearly in order, so
	 * all of them together cost one pass over the text. */
	const char *mark;
	unsigned mark_line, mark_column;

	struct toml_member *index; /* all members of all tables, by table and key */
	size_t index_used, index_size;

	int rc; /* 0, -GW_E_PARSE or -GW_E_NOMEM */
	struct toml_error *err;
};

struct key {
	const char *text; /* in the document's memory */
	size_t len;
	const char *at; /* its position in the text */
};

/* A table and its depth; for a header also its position. */
struct place {
	struct toml_node *table;
	unsigned depth;
	unsigned line, column;
};

/* toml_tree.c */

/* Allocates memory of the document, aligned for anything in it; NULL sets rc. */
void *reader_alloc(struct toml_reader *r, size_t n);

/* Sets rc and the sentence, with the position of `at`. Always false. */
bool reader_fail(struct toml_reader *r, const char *at, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* "expected (what) but found (the text at r->p)". Always false. */
bool reader_expected(struct toml_reader *r, const char *what);

void reader_locate(struct toml_reader *r, const char *at, unsigned *ret_line,
		   unsigned *ret_column);

/* The first n bytes of text, cleaned for a message and cut if long. */
#define SPELL_SIZE 64
const char *reader_spell(const char *text, size_t n, char out[static SPELL_SIZE]);

/* A new element at the end of an array; NULL sets rc. */
struct toml_node *tree_element(struct toml_reader *r, struct toml_node *array, const char *at);

/* Moves from a table to the one that key names in it, creating it if missing: a part of a
 * [header.path], or of a dotted.key. */
bool tree_step_header(struct toml_reader *r, struct place *place, const struct key *key);
bool tree_step_dotted(struct toml_reader *r, struct place *place, const struct key *key);

/* What the last part of a path defines: [key], [[key]] and key =. The first two move place into
 * the table. */
bool tree_define_table(struct toml_reader *r, struct place *place, const struct key *key);
bool tree_define_row(struct toml_reader *r, struct place *place, const struct key *key);
struct toml_node *tree_define_value(struct toml_reader *r, const struct place *place,
				    const struct key *key);

/* Nothing more may be added to this table. */
void tree_close(struct toml_node *table);

/* toml_value.c */

/* Reads the string at r->p, which is a quote; a multi-line one only if multi is set. */
bool value_string(struct toml_reader *r, bool multi, const char **ret_text, size_t *ret_len);

/* Reads the value at r->p, which is not a string, array or inline table. */
bool value_scalar(struct toml_reader *r, struct toml_node *node);

#endif
