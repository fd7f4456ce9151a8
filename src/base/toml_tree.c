/* The tree of a TOML document: the memory of its nodes, errors with line and column, and the
 * rules for where a table may be defined. toml_reader.h has the contracts. */
#include "toml_reader.h"

#include "text.h"
#include "utf8.h"

#include <gpuward.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How a table or array was created. This decides what may still be added to it. */
enum {
	/* A longer header, [here.x], created the table. A header [here] may still define it. */
	BY_PATH = 1 << 0,
	BY_HEADER = 1 << 1, /* The header [here] defined the table. */
	/* A dotted key, here.x = 1, created the table. Further dotted keys may add members. */
	BY_DOTS = 1 << 2,
	BY_ROWS = 1 << 3, /* Headers [[here]] created the array. */
	CLOSED = 1 << 4,  /* The value is complete: nothing may be added. */
};

struct toml_block {
	struct toml_block *next;
	size_t used, size;
	struct toml_node mem[]; /* The memory; this type gives it the right alignment. */
};

struct toml_member {
	const struct toml_node *table;
	struct toml_node *node;
};

void *reader_alloc(struct toml_reader *r, size_t n)
{
	const size_t align = _Alignof(struct toml_node);
	struct toml_block *b = r->doc->blocks;
	void *p;

	n = (n + align - 1) / align * align;
	if (!b || b->size - b->used < n) {
		size_t size = n > 8192 ? n : 8192;

		b = malloc(sizeof(*b) + size);
		if (!b) {
			r->rc = -GW_E_NOMEM;
			return NULL;
		}
		*b = (struct toml_block){ .next = r->doc->blocks, .size = size };
		r->doc->blocks = b;
	}
	p = (char *)b->mem + b->used;
	b->used += n;
	return p;
}

void toml_free(struct toml *doc)
{
	if (!doc)
		return;
	for (struct toml_block *b = doc->blocks, *next; b; b = next) {
		next = b->next;
		free(b);
	}
	free(doc);
}

void reader_locate(struct toml_reader *r, const char *at, unsigned *ret_line,
		   unsigned *ret_column)
{
	if (!r->mark || at < r->mark) {
		r->mark = r->text;
		r->mark_line = r->mark_column = 1;
	}
	for (; r->mark < at; r->mark++) {
		if (*r->mark == '\n') {
			r->mark_line++;
			r->mark_column = 1;
		} else if (((unsigned char)*r->mark & 0xC0) != 0x80) {
			r->mark_column++;
		}
	}
	*ret_line = r->mark_line;
	*ret_column = r->mark_column;
}

bool reader_fail(struct toml_reader *r, const char *at, const char *fmt, ...)
{
	va_list ap;

	if (r->rc)
		return false;
	r->rc = -GW_E_PARSE;
	reader_locate(r, at, &r->err->line, &r->err->column);
	va_start(ap, fmt);
	vsnprintf(r->err->text, sizeof(r->err->text), fmt, ap);
	va_end(ap);
	return false;
}

const char *reader_spell(const char *text, size_t n, char out[static SPELL_SIZE])
{
	char raw[SPELL_SIZE];
	bool cut = n > sizeof(raw) - 4;

	n = cut ? sizeof(raw) - 4 : n;
	while (cut && n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80)
		n--;
	memcpy(raw, text, n);
	memcpy(raw + n, cut ? "..." : "", cut ? 4 : 1);
	utf8_clean(out, SPELL_SIZE, raw);
	return out;
}

bool reader_expected(struct toml_reader *r, const char *what)
{
	char name[SPELL_SIZE];

	if (*r->p == '\0')
		return reader_fail(r, r->p, "expected %s but the text ends", what);
	if (*r->p == '\n' || *r->p == '\r')
		return reader_fail(r, r->p, "expected %s but the line ends", what);
	return reader_fail(r, r->p, "expected %s but found '%s'", what,
			   reader_spell(r->p, utf8_length(r->p), name));
}

static size_t hash_member(const struct toml_node *table, const char *key, size_t len)
{
	uint64_t h = text_hash(TEXT_HASH_START ^ (uint64_t)(uintptr_t)table, key, len);

	return (size_t)(h ^ h >> 29);
}

/* Returns the slot of this member, or the free slot for it. There is always a free slot. */
static struct toml_member *member_slot(const struct toml_reader *r,
				       const struct toml_node *table, const char *key,
				       size_t len)
{
	size_t at = hash_member(table, key, len) & (r->index_size - 1);

	for (;; at = (at + 1) & (r->index_size - 1)) {
		struct toml_member *m = &r->index[at];

		if (!m->node || (m->table == table && m->node->key_len == len &&
				 memcmp(m->node->key, key, len) == 0))
			return m;
	}
}

static struct toml_node *find_member(const struct toml_reader *r, const struct toml_node *table,
				     const struct key *key)
{
	return r->index_size ? member_slot(r, table, key->text, key->len)->node : NULL;
}

static bool index_grow(struct toml_reader *r)
{
	struct toml_member *old = r->index;
	size_t old_size = r->index_size, size = old_size ? old_size * 2 : 64;
	struct toml_member *fresh = calloc(size, sizeof(*fresh));

	if (!fresh) {
		r->rc = -GW_E_NOMEM;
		return false;
	}
	r->index = fresh;
	r->index_size = size;
	for (size_t i = 0; i < old_size; i++)
		if (old[i].node)
			*member_slot(r, old[i].table, old[i].node->key, old[i].node->key_len) =
				old[i];
	free(old);
	return true;
}

static bool index_add(struct toml_reader *r, const struct toml_node *table,
		      struct toml_node *node)
{
	if (r->index_used * 2 >= r->index_size && !index_grow(r))
		return false;
	*member_slot(r, table, node->key, node->key_len) = (struct toml_member){ table, node };
	r->index_used++;
	return true;
}

struct toml_node *tree_element(struct toml_reader *r, struct toml_node *parent, const char *at)
{
	struct toml_node *node = reader_alloc(r, sizeof(*node));

	if (!node)
		return NULL;
	*node = (struct toml_node){ 0 };
	reader_locate(r, at, &node->line, &node->column);
	if (parent->last)
		parent->last->next = node;
	else
		parent->child = node;
	parent->last = node;
	parent->count++;
	return node;
}

static struct toml_node *add_member(struct toml_reader *r, struct toml_node *table,
				    const struct key *key, enum toml_type type, unsigned flags)
{
	struct toml_node *node = tree_element(r, table, key->at);

	if (!node)
		return NULL;
	node->type = type;
	node->flags = flags;
	node->key = key->text;
	node->key_len = key->len;
	node->key_line = node->line;
	node->key_column = node->column;
	return index_add(r, table, node) ? node : NULL;
}

static bool enter_table(struct toml_reader *r, struct place *place, struct toml_node *table,
			const struct key *key, unsigned levels)
{
	if (!table)
		return false;
	place->table = table;
	place->depth += levels;
	return place->depth <= TOML_DEPTH ||
	       reader_fail(r, key->at, "tables and arrays are nested deeper than %d levels",
			   TOML_DEPTH);
}

static bool enter_new_table(struct toml_reader *r, struct place *place, const struct key *key,
			    unsigned flags)
{
	return enter_table(r, place, add_member(r, place->table, key, TOML_TABLE, flags), key,
			   1);
}

static bool fail_twice(struct toml_reader *r, const struct key *key,
		       const struct toml_node *first)
{
	char name[SPELL_SIZE];

	reader_spell(key->text, key->len, name);
	return reader_fail(r, key->at, "%s '%s' is defined twice (first on line %u)",
			   first->type == TOML_TABLE ? "table" : "key", name, first->key_line);
}

static bool fail_step(struct toml_reader *r, const struct key *key,
		      const struct toml_node *there)
{
	char name[SPELL_SIZE];

	reader_spell(key->text, key->len, name);
	if (there->type != TOML_TABLE && !(there->flags & BY_ROWS))
		return reader_fail(r, key->at,
				   "'%s' is not a table but a value of type %s (line %u)", name,
				   toml_type_name(there->type), there->key_line);
	return reader_fail(r, key->at,
			   "table '%s' is already complete (line %u): add the key there", name,
			   there->key_line);
}

bool tree_step_header(struct toml_reader *r, struct place *place, const struct key *key)
{
	struct toml_node *there = find_member(r, place->table, key);

	if (!there)
		return enter_new_table(r, place, key, BY_PATH);
	if (there->flags & BY_ROWS)
		return enter_table(r, place, there->last, key, 2);
	if (there->type != TOML_TABLE || there->flags & CLOSED)
		return fail_step(r, key, there);
	return enter_table(r, place, there, key, 1);
}

bool tree_step_dotted(struct toml_reader *r, struct place *place, const struct key *key)
{
	struct toml_node *there = find_member(r, place->table, key);

	if (!there)
		return enter_new_table(r, place, key, BY_DOTS);
	if (there->type != TOML_TABLE || there->flags & (BY_HEADER | CLOSED))
		return fail_step(r, key, there);
	there->flags = BY_DOTS;
	return enter_table(r, place, there, key, 1);
}

bool tree_define_table(struct toml_reader *r, struct place *place, const struct key *key)
{
	struct toml_node *there = find_member(r, place->table, key);

	if (there && there->flags != BY_PATH)
		return fail_twice(r, key, there);
	if (!there)
		there = add_member(r, place->table, key, TOML_TABLE, 0);
	if (!enter_table(r, place, there, key, 1))
		return false;
	there->flags = BY_HEADER;
	there->line = place->line;
	there->column = place->column;
	return true;
}

bool tree_define_row(struct toml_reader *r, struct place *place, const struct key *key)
{
	struct toml_node *there = find_member(r, place->table, key);
	struct toml_node *row;

	if (there && !(there->flags & BY_ROWS))
		return fail_twice(r, key, there);
	if (!there)
		there = add_member(r, place->table, key, TOML_ARRAY, BY_ROWS);
	if (!there)
		return false;
	row = tree_element(r, there, key->at);
	if (!enter_table(r, place, row, key, 2))
		return false;
	row->type = TOML_TABLE;
	row->flags = BY_HEADER;
	row->line = place->line;
	row->column = place->column;
	return true;
}

struct toml_node *tree_define_value(struct toml_reader *r, const struct place *place,
				    const struct key *key)
{
	const struct toml_node *there = find_member(r, place->table, key);

	if (there) {
		fail_twice(r, key, there);
		return NULL;
	}
	return add_member(r, place->table, key, TOML_STRING, 0);
}

void tree_close(struct toml_node *table)
{
	table->flags |= CLOSED;
}
