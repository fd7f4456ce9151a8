/* toml_reader: what the files of the TOML reader share, and nobody else includes.
 *
 * toml.c is the grammar, toml_value.c the scalars, toml_tree.c the memory, the positions and
 * the rules about which table may be defined where.  Functions return false once something
 * is wrong; reader.rc then says what, and everyone returns up to toml_parse(). */
#ifndef GW_BASE_TOML_READER_H
#define GW_BASE_TOML_READER_H

#include "toml.h"

#define TOML_DEPTH 64

struct toml {
	struct toml_block *blocks; /* everything that lives as long as the document */
	struct toml_node top;
};

struct reader {
	struct toml *doc;
	const char *text; /* the whole document: valid UTF-8, no control characters but tab,
	                     LF and CR LF; a NUL stands behind it */
	const char *p;    /* the next byte to read */

	/* A place whose line and column are known.  Places are asked for nearly in order, so
	 * that all of them together cost one walk over the text. */
	const char *mark;
	unsigned mark_line, mark_column;

	struct toml_member *index; /* all members of all tables by table and key */
	size_t index_used, index_size;

	int rc; /* 0, -GW_E_PARSE or -GW_E_NOMEM */
	struct toml_error *err;
};

struct key {
	const char *text; /* in the document's memory */
	size_t len;
	const char *at; /* where it stands in the text */
};

/* A table and how deep it stands; for a header also where that begins. */
struct place {
	struct toml_node *table;
	unsigned depth;
	unsigned line, column;
};

/* ---- toml_tree.c */

/* Memory of the document, aligned for anything in it; NULL sets rc. */
void *reader_alloc(struct reader *r, size_t n);

/* Sets rc and the sentence, with the position of `at`.  Always false. */
bool reader_fail(struct reader *r, const char *at, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* "expected (what) but found (what stands at r->p)".  Always false. */
bool reader_expected(struct reader *r, const char *what);

void reader_locate(struct reader *r, const char *at, unsigned *ret_line, unsigned *ret_column);

/* First n bytes of text as it can stand in a sentence, cut where it is long. */
#define SPELL_SIZE 64
const char *reader_spell(const char *text, size_t n, char out[static SPELL_SIZE]);

/* A new element at the end of an array; NULL sets rc. */
struct toml_node *tree_element(struct reader *r, struct toml_node *array, const char *at);

/* From a table to the one that key names in it, made where there is none: a part of a
 * [header.path], or of a dotted.key. */
bool tree_step_header(struct reader *r, struct place *place, const struct key *key);
bool tree_step_dotted(struct reader *r, struct place *place, const struct key *key);

/* [key], [[key]] and key =: what the last part of a path defines.  The first two move place
 * into the table. */
bool tree_define_table(struct reader *r, struct place *place, const struct key *key);
bool tree_define_row(struct reader *r, struct place *place, const struct key *key);
struct toml_node *tree_define_value(struct reader *r, const struct place *place,
				    const struct key *key);

/* Nothing may be added to this table any more. */
void tree_close(struct toml_node *table);

/* ---- toml_value.c */

/* The string at r->p, which is a quote.  A multi-line one only where multi is set. */
bool value_string(struct reader *r, bool multi, const char **ret_text, size_t *ret_len);

/* The value at r->p, which is neither string, array nor inline table. */
bool value_scalar(struct reader *r, struct toml_node *node);

#endif
