#include "toml_reader.h"

#include "file.h"
#include "utf8.h"

#include "array.h"

#include <gpuward.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_MAX (1024 * 1024)

static bool read_value(struct toml_reader *r, struct toml_node *node, unsigned depth);

static void skip_blanks(struct toml_reader *r)
{
	r->p += strspn(r->p, " \t");
}

static bool at_line_end(const struct toml_reader *r)
{
	return *r->p == '\n' || *r->p == '\r' || *r->p == '\0';
}

static void skip_comment(struct toml_reader *r)
{
	if (*r->p == '#')
		r->p += strcspn(r->p, "\r\n");
}

/* Skips blanks, comments and line breaks, which are allowed between the elements of an
 * array. */
static void skip_lines(struct toml_reader *r)
{
	const char *before;

	do {
		before = r->p;
		r->p += strspn(r->p, " \t\r\n");
		skip_comment(r);
	} while (r->p != before);
}

static bool read_key(struct toml_reader *r, struct key *ret)
{
	size_t n = strspn(r->p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				"0123456789_-");
	char *text;

	ret->at = r->p;
	if (*r->p == '"' || *r->p == '\'')
		return value_string(r, false, &ret->text, &ret->len);
	if (n == 0)
		return reader_expected(r, "a key");
	text = reader_alloc(r, n + 1);
	if (!text)
		return false;
	memcpy(text, r->p, n);
	text[n] = '\0';
	ret->text = text;
	ret->len = n;
	r->p += n;
	return true;
}

typedef bool step_fn(struct toml_reader *r, struct place *place, const struct key *key);

/* Reads key.key.key. Calls step for each key but the last, and returns the last in *last. */
static bool read_path(struct toml_reader *r, struct place *place, struct key *last,
		      step_fn *step)
{
	for (;;) {
		skip_blanks(r);
		if (!read_key(r, last))
			return false;
		skip_blanks(r);
		if (*r->p != '.')
			return true;
		r->p++;
		if (!step(r, place, last))
			return false;
	}
}

/* Reads key = value into the table at place. */
static bool read_pair(struct toml_reader *r, struct place place)
{
	struct key key;
	struct toml_node *node;

	if (!read_path(r, &place, &key, tree_step_dotted))
		return false;
	if (*r->p != '=')
		return reader_expected(r, "'=' after the key");
	node = tree_define_value(r, &place, &key);
	if (!node)
		return false;
	r->p++;
	skip_blanks(r);
	return read_value(r, node, place.depth + 1);
}

/* Reads the comma or the closing bracket after an element. Sets *ret_more if there was a
 * comma. */
static bool read_comma(struct toml_reader *r, char close, bool *ret_more)
{
	*ret_more = *r->p == ',';
	if (*r->p != ',' && *r->p != close)
		return reader_expected(r, close == ']' ? "',' or ']'" : "',' or '}'");
	r->p++;
	return true;
}

static bool read_array(struct toml_reader *r, struct toml_node *node, unsigned depth)
{
	bool more = true;

	node->type = TOML_ARRAY;
	r->p++;
	while (more) {
		struct toml_node *element;

		skip_lines(r);
		if (*r->p == ']') {
			r->p++;
			break;
		}
		element = tree_element(r, node, r->p);
		if (!element || !read_value(r, element, depth + 1))
			return false;
		skip_lines(r);
		if (!read_comma(r, ']', &more))
			return false;
	}
	tree_close(node);
	return true;
}

/* Reads { key = value, ... }. TOML 1.0 requires that the table is on one line, without a comma
 * after the last pair. */
static bool read_inline_table(struct toml_reader *r, struct toml_node *node, unsigned depth)
{
	bool more = true;

	node->type = TOML_TABLE;
	r->p++;
	skip_blanks(r);
	if (*r->p == '}') {
		r->p++;
		more = false;
	}
	while (more) {
		if (!read_pair(r, (struct place){ .table = node, .depth = depth }))
			return false;
		skip_blanks(r);
		if (!read_comma(r, '}', &more))
			return false;
		skip_blanks(r);
	}
	tree_close(node);
	return true;
}

static bool read_value(struct toml_reader *r, struct toml_node *node, unsigned depth)
{
	if (depth > TOML_DEPTH)
		return reader_fail(r, r->p,
				   "tables and arrays are nested deeper than %d levels",
				   TOML_DEPTH);
	reader_locate(r, r->p, &node->line, &node->column);
	switch (*r->p) {
	case '"':
	case '\'':
		node->type = TOML_STRING;
		return value_string(r, true, &node->v.string.text, &node->v.string.len);
	case '[': return read_array(r, node, depth);
	case '{': return read_inline_table(r, node, depth);
	default: return value_scalar(r, node);
	}
}

/* Reads [table] or [[array.of.tables]] and moves `place` into this table. */
static bool read_header(struct toml_reader *r, struct place *place)
{
	bool row = r->p[1] == '[';
	struct key key;

	*place = (struct place){ .table = &r->doc->top };
	reader_locate(r, r->p, &place->line, &place->column);
	r->p += row ? 2 : 1;
	if (!read_path(r, place, &key, tree_step_header))
		return false;
	if (strncmp(r->p, "]]", row ? 2 : 1) != 0)
		return reader_expected(r, row ? "']]' after the name" : "']' after the name");
	r->p += row ? 2 : 1;
	return row ? tree_define_row(r, place, &key) : tree_define_table(r, place, &key);
}

static bool read_document(struct toml_reader *r)
{
	struct place place = { .table = &r->doc->top };

	for (;;) {
		skip_lines(r);
		if (*r->p == '\0')
			return true;
		if (*r->p == '[' ? !read_header(r, &place) : !read_pair(r, place))
			return false;
		skip_blanks(r);
		skip_comment(r);
		if (!at_line_end(r))
			return reader_expected(r, "the end of the line");
	}
}

/* Checks that the document is UTF-8 without control characters. */
static bool check_text(struct toml_reader *r, size_t size)
{
	const char *end = r->text + size;

	for (const char *p = r->text; p < end;) {
		unsigned char c = (unsigned char)*p;
		size_t n = utf8_length(p);

		if (n == 0)
			return reader_fail(r, p, "the byte 0x%02X is not UTF-8", c);
		if (c == '\r' && p[1] != '\n')
			return reader_fail(r, p,
					   "a carriage return must be followed by a line feed");
		if ((c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7F)
			return reader_fail(r, p, "the control character U+%04X is not allowed",
					   c);
		p += n;
	}
	return true;
}

static bool parse_text(struct toml_reader *r, const char *text, size_t size)
{
	static const char bom[] = "\xEF\xBB\xBF";
	char *copy;
	bool ok;

	if (size >= 3 && memcmp(text, bom, 3) == 0) {
		text += 3;
		size -= 3;
	}
	copy = malloc(size + 1);
	if (!copy) {
		r->rc = -GW_E_NOMEM;
		return false;
	}
	if (size)
		memcpy(copy, text, size);
	copy[size] = '\0';
	r->text = r->p = copy;
	ok = check_text(r, size) && read_document(r);
	free(copy);
	free(r->index);
	return ok;
}

int toml_parse(const char *text, size_t size, struct toml **ret, struct toml_error *err)
{
	struct toml *doc = calloc(1, sizeof(*doc));
	struct toml_reader r = { .doc = doc, .err = err };

	/* Every other error replaces this text. */
	*err = (struct toml_error){ .text = "out of memory" };
	if (!doc)
		return -GW_E_NOMEM;
	doc->top = (struct toml_node){ .type = TOML_TABLE, .line = 1, .column = 1 };
	if (!parse_text(&r, text, size)) {
		toml_free(doc);
		return r.rc;
	}
	*ret = doc;
	return 0;
}

static int fail_file(struct toml_error *err, int code, const char *text)
{
	err->line = err->column = 0;
	snprintf(err->text, sizeof(err->text), "%s", text);
	return code;
}

static int fail_errno(struct toml_error *err, int e)
{
	switch (e) {
	case ENOENT:
	case ENOTDIR: return fail_file(err, -GW_E_NOENT, "there is no such file");
	case EACCES:
	case EPERM: return fail_file(err, -GW_E_PERM, "this user may not read the file");
	case ETIMEDOUT: return fail_file(err, -GW_E_IO, "no program writes to this pipe");
	case EISDIR: return fail_file(err, -GW_E_IO, "this path is a directory, not a file");
	default: return fail_file(err, -GW_E_IO, "the file cannot be read");
	}
}

int toml_parse_file(const char *path, struct toml **ret, struct toml_error *err)
{
	int fd = file_open(path), rc;
	char *text;
	ssize_t n;

	if (fd < 0)
		return fail_errno(err, errno);
	text = malloc(FILE_MAX + 1);
	n = text ? file_read_all(fd, text, FILE_MAX + 1) : 0;
	if (!text)
		rc = fail_file(err, -GW_E_NOMEM, "out of memory while reading the file");
	else if (n < 0)
		rc = fail_errno(err, errno);
	else if (n > FILE_MAX)
		rc = fail_file(err, -GW_E_SIZE, "the file is larger than 1 MiB");
	else
		rc = toml_parse(text, (size_t)n, ret, err);
	free(text);
	close(fd);
	return rc;
}

const struct toml_node *toml_top(const struct toml *doc)
{
	return &doc->top;
}

bool toml_is_key(const struct toml_node *n, const char *key)
{
	return n->key_len == strlen(key) && memcmp(n->key, key, n->key_len) == 0;
}

const struct toml_node *toml_get(const struct toml_node *table, const char *key)
{
	if (!table || table->type != TOML_TABLE)
		return NULL;
	for (const struct toml_node *n = table->child; n; n = n->next)
		if (toml_is_key(n, key))
			return n;
	return NULL;
}

const char *toml_type_name(enum toml_type type)
{
	static const char *const names[] = {
		[TOML_TABLE] = "table",           [TOML_ARRAY] = "array",
		[TOML_STRING] = "string",         [TOML_INTEGER] = "integer",
		[TOML_FLOAT] = "float",           [TOML_BOOL] = "boolean",
		[TOML_DATETIME] = "date-time",    [TOML_LOCAL_DATETIME] = "local date-time",
		[TOML_LOCAL_DATE] = "local date", [TOML_LOCAL_TIME] = "local time",
	};

	return (unsigned)type < COUNT(names) ? names[type] : "unknown";
}
