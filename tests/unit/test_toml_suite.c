/* Tests the public TOML 1.0.0 conformance cases: every valid document must give the tree that
 * the tagged JSON next to it describes; every invalid one must be refused with a position. */
#include "base/toml.h"

#include "test.h"

#include <gpuward.h>

#include <ctype.h>
#include <math.h>

enum json_kind { JSON_OBJECT, JSON_LIST, JSON_STRING };

struct json_value {
	enum json_kind kind;
	char *name, *text;
	size_t name_len, len;
	struct json_value *child, *next;
};

static struct json_value *json_read(const char **p);

static void blanks(const char **p)
{
	while (isspace((unsigned char)**p))
		++*p;
}

static void expect(const char **p, char c)
{
	blanks(p);
	assert_int_equal(*(*p)++, c);
}

static char *put_code(char *out, unsigned code)
{
	if (code < 0x80) {
		*out++ = (char)code;
	} else if (code < 0x800) {
		*out++ = (char)(0xC0 | code >> 6);
		*out++ = (char)(0x80 | (code & 0x3F));
	} else if (code < 0x10000) {
		*out++ = (char)(0xE0 | code >> 12);
		*out++ = (char)(0x80 | (code >> 6 & 0x3F));
		*out++ = (char)(0x80 | (code & 0x3F));
	} else {
		*out++ = (char)(0xF0 | code >> 18);
		*out++ = (char)(0x80 | (code >> 12 & 0x3F));
		*out++ = (char)(0x80 | (code >> 6 & 0x3F));
		*out++ = (char)(0x80 | (code & 0x3F));
	}
	return out;
}

static unsigned hex4(const char **p)
{
	char digits[5] = { 0 };

	memcpy(digits, *p, 4);
	*p += 4;
	return (unsigned)strtoul(digits, NULL, 16);
}

static char *json_escape(const char **p, char *out)
{
	static const char from[] = "bfnrt\"\\/", to[] = "\b\f\n\r\t\"\\/";
	char c = *(*p)++;
	unsigned code;

	if (c != 'u') {
		*out++ = to[strchr(from, c) - from];
		return out;
	}
	code = hex4(p);
	if (code >= 0xD800 && code < 0xDC00) {
		*p += 2;
		code = 0x10000 + ((code - 0xD800) << 10) + (hex4(p) - 0xDC00);
	}
	return put_code(out, code);
}

static char *json_text(const char **p, size_t *ret_len)
{
	char *text, *out;

	expect(p, '"');
	text = out = malloc(strlen(*p) + 1);
	while (**p != '"') {
		if (**p == '\\') {
			++*p;
			out = json_escape(p, out);
		} else {
			*out++ = *(*p)++;
		}
	}
	++*p;
	*out = '\0';
	*ret_len = (size_t)(out - text);
	return text;
}

static void json_members(const char **p, struct json_value *v, char close)
{
	struct json_value **tail = &v->child;

	blanks(p);
	while (**p != close) {
		char *name = NULL;
		size_t len = 0;

		if (v->kind == JSON_OBJECT) {
			name = json_text(p, &len);
			expect(p, ':');
		}
		*tail = json_read(p);
		(*tail)->name = name;
		(*tail)->name_len = len;
		tail = &(*tail)->next;
		blanks(p);
		if (**p == ',')
			++*p;
		blanks(p);
	}
	++*p;
}

static struct json_value *json_read(const char **p)
{
	struct json_value *v = calloc(1, sizeof(*v));

	blanks(p);
	if (**p == '"') {
		v->kind = JSON_STRING;
		v->text = json_text(p, &v->len);
		return v;
	}
	v->kind = **p == '{' ? JSON_OBJECT : JSON_LIST;
	++*p;
	json_members(p, v, v->kind == JSON_OBJECT ? '}' : ']');
	return v;
}

static void json_free(struct json_value *v)
{
	while (v) {
		struct json_value *next = v->next;

		json_free(v->child);
		free(v->name);
		free(v->text);
		free(v);
		v = next;
	}
}

static const struct json_value *json_get(const struct json_value *v, const char *name)
{
	for (v = v->child; v; v = v->next)
		if (v->name && strcmp(v->name, name) == 0)
			return v;
	return NULL;
}

static const char *const tags[] = {
	[TOML_STRING] = "string",         [TOML_INTEGER] = "integer",
	[TOML_FLOAT] = "float",           [TOML_BOOL] = "bool",
	[TOML_DATETIME] = "datetime",     [TOML_LOCAL_DATETIME] = "datetime-local",
	[TOML_LOCAL_DATE] = "date-local", [TOML_LOCAL_TIME] = "time-local",
};

/* Writes a time without trailing zeros in its fraction, and UTC always as Z. */
static void normal_time(const char *text, char *out)
{
	const char *dot = strchr(text, '.');
	size_t head = dot ? (size_t)(dot - text) : strlen(text), digits = 0;

	if (dot)
		digits = strspn(dot + 1, "0123456789");
	memcpy(out, text, head);
	out[head] = '\0';
	if (dot) {
		const char *rest = dot + 1 + digits;

		while (digits > 0 && dot[digits] == '0')
			digits--;
		if (digits)
			strncat(out, dot, digits + 1);
		strcat(out, rest);
	}
	if (strlen(out) > 6 && strcmp(out + strlen(out) - 6, "+00:00") == 0)
		strcpy(out + strlen(out) - 6, "Z");
}

static bool same_time(const char *a, const char *b)
{
	char x[128], y[128];

	normal_time(a, x);
	normal_time(b, y);
	return strcmp(x, y) == 0;
}

static bool same_leaf(const struct toml_node *n, const struct json_value *want)
{
	double d;

	switch (n->type) {
	case TOML_STRING:
		return n->v.string.len == want->len &&
		       memcmp(n->v.string.text, want->text, want->len) == 0 &&
		       n->v.string.text[want->len] == '\0';
	case TOML_INTEGER: return n->v.integer == strtoll(want->text, NULL, 10);
	case TOML_FLOAT:
		d = strtod(want->text, NULL);
		return isnan(d) ? isnan(n->v.real) : n->v.real == d;
	case TOML_BOOL: return n->v.boolean == (strcmp(want->text, "true") == 0);
	default: return same_time(n->v.string.text, want->text);
	}
}

static bool same(const struct toml_node *n, const struct json_value *want);

static bool same_table(const struct toml_node *n, const struct json_value *want)
{
	size_t count = 0;

	for (const struct json_value *w = want->child; w; w = w->next, count++) {
		const struct toml_node *m = n->child;

		while (m && (m->key_len != w->name_len || memcmp(m->key, w->name, m->key_len)))
			m = m->next;
		if (!m || !same(m, w))
			return false;
	}
	return count == n->count;
}

static bool same_list(const struct toml_node *n, const struct json_value *want)
{
	const struct toml_node *m = n->child;
	const struct json_value *w = want->child;

	for (; m && w; m = m->next, w = w->next)
		if (!same(m, w))
			return false;
	return !m && !w;
}

static bool same(const struct toml_node *n, const struct json_value *want)
{
	const struct json_value *type = json_get(want, "type");

	if (want->kind == JSON_OBJECT && type && type->kind == JSON_STRING)
		return n->type > TOML_ARRAY && strcmp(tags[n->type], type->text) == 0 &&
		       same_leaf(n, json_get(want, "value"));
	if (want->kind == JSON_OBJECT)
		return n->type == TOML_TABLE && same_table(n, want);
	return n->type == TOML_ARRAY && same_list(n, want);
}

static char suite[4000];

static int find_suite(void **state)
{
	const char *data = getenv("GPUWARD_TEST_DATA");

	snprintf(suite, sizeof(suite), "%s/toml-test", data ? data : ".");
	return 0;
}

static char *slurp(const char *name, size_t *ret_size)
{
	char path[4600], *text = malloc(1 << 20);
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", suite, name);
	f = fopen(path, "rb");
	if (!f)
		fail_msg("cannot open %s", path);
	*ret_size = fread(text, 1, (1 << 20) - 1, f);
	text[*ret_size] = '\0';
	fclose(f);
	return text;
}

static bool accepts(const char *name)
{
	struct toml_error err = { 0 };
	struct toml *doc = NULL;
	size_t size, json_size;
	char *text = slurp(name, &size), json_name[512], *json;
	struct json_value *want;
	const char *p;
	bool ok = false;

	snprintf(json_name, sizeof(json_name), "%.*s.json", (int)strlen(name) - 5, name);
	json = slurp(json_name, &json_size);
	p = json;
	want = json_read(&p);
	if (toml_parse(text, size, &doc, &err) != 0)
		print_message("%s: refused at %u:%u: %s\n", name, err.line, err.column,
			      err.text);
	else if (!same(toml_top(doc), want))
		print_message("%s: not the tree of its JSON\n", name);
	else
		ok = true;
	toml_free(doc);
	json_free(want);
	free(json);
	free(text);
	return ok;
}

static bool refuses(const char *name)
{
	struct toml_error err = { 0 };
	struct toml *doc = NULL;
	size_t size;
	char *text = slurp(name, &size);
	int rc = toml_parse(text, size, &doc, &err);
	bool ok = rc == -GW_E_PARSE && !doc && err.line > 0 && err.column > 0 && err.text[0];

	if (getenv("GPUWARD_TEST_VERBOSE"))
		print_message("%s:%u:%u: %s\n", name, err.line, err.column, err.text);
	if (!ok)
		print_message("%s: returned %d at %u:%u\n", name, rc, err.line, err.column);
	toml_free(doc);
	free(text);
	return ok;
}

/* Runs the check on every .toml file of the list in this folder. */
static void each_case(const char *folder, bool (*check)(const char *name), unsigned least)
{
	char path[4100], line[256];
	unsigned cases = 0, bad = 0;
	FILE *list;

	snprintf(path, sizeof(path), "%s/files-toml-1.0.0", suite);
	list = fopen(path, "r");
	if (!list) {
		print_message("skipped: no conformance cases at %s\n", suite);
		skip();
	}
	while (fgets(line, sizeof(line), list)) {
		line[strcspn(line, "\n")] = '\0';
		if (strncmp(line, folder, strlen(folder)) != 0 || !strstr(line, ".toml"))
			continue;
		cases++;
		bad += !check(line);
	}
	fclose(list);
	assert_int_equal(bad, 0);
	assert_true(cases >= least);
}

TEST(every_valid_document_gives_the_tree_of_its_json)
{
	each_case("valid/", accepts, 210);
}

TEST(every_invalid_document_is_refused_with_a_place)
{
	each_case("invalid/", refuses, 499);
}

TEST_MAIN(find_suite, NULL)
