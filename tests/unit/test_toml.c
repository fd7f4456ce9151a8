#include "base/toml.h"
#include "base/toml_write.h"

#include "test.h"

#include <gpuward.h>

#include <sys/stat.h>
#include <unistd.h>

static struct toml *good(const char *text)
{
	struct toml_error err = { 0 };
	struct toml *doc = NULL;

	if (toml_parse(text, strlen(text), &doc, &err) != 0)
		fail_msg("%u:%u: %s in: %s", err.line, err.column, err.text, text);
	return doc;
}

static void refused_n(const char *text, size_t n, unsigned line, unsigned column,
		      const char *sentence)
{
	struct toml_error err = { 0 };
	struct toml *doc = NULL;

	assert_int_equal(toml_parse(text, n, &doc, &err), -GW_E_PARSE);
	assert_null(doc);
	assert_string_equal(err.text, sentence);
	if (err.line != line || err.column != column)
		fail_msg("at %u:%u instead of %u:%u: %s", err.line, err.column, line, column,
			 text);
}

static void refused(const char *text, unsigned line, unsigned column, const char *sentence)
{
	refused_n(text, strlen(text), line, column, sentence);
}

static const char *string_at(const struct toml *doc, const char *key)
{
	const struct toml_node *n = toml_get(toml_top(doc), key);

	assert_non_null(n);
	assert_int_equal(n->type, TOML_STRING);
	return n->v.string.text;
}

TEST(an_empty_document_is_an_empty_table)
{
	struct toml *doc = good("");

	assert_int_equal(toml_top(doc)->type, TOML_TABLE);
	assert_int_equal(toml_top(doc)->count, 0);
	assert_null(toml_get(toml_top(doc), "a"));
	toml_free(doc);
	toml_free(NULL);
}

TEST(values_have_their_types)
{
	static const struct {
		const char *text;
		enum toml_type type;
		const char *name;
	} rows[] = {
		{ "a = {}", TOML_TABLE, "table" },
		{ "a = []", TOML_ARRAY, "array" },
		{ "a = ''", TOML_STRING, "string" },
		{ "a = 0", TOML_INTEGER, "integer" },
		{ "a = 0.0", TOML_FLOAT, "float" },
		{ "a = true", TOML_BOOL, "boolean" },
		{ "a = 2026-01-31T12:00:00Z", TOML_DATETIME, "date-time" },
		{ "a = 2026-01-31T12:00:00", TOML_LOCAL_DATETIME, "local date-time" },
		{ "a = 2026-01-31", TOML_LOCAL_DATE, "local date" },
		{ "a = 12:00:00", TOML_LOCAL_TIME, "local time" },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct toml *doc = good(rows[i].text);

		assert_int_equal(toml_get(toml_top(doc), "a")->type, rows[i].type);
		assert_string_equal(toml_type_name(rows[i].type), rows[i].name);
		toml_free(doc);
	}
	assert_string_equal(toml_type_name((enum toml_type)77), "unknown");
}

TEST(integers_reach_both_ends_of_64_bits)
{
	static const struct {
		const char *text;
		int64_t want;
	} rows[] = {
		{ "a=9223372036854775807", INT64_MAX },
		{ "a=-9223372036854775808", INT64_MIN },
		{ "a=0x7fff_ffff_ffff_ffff", INT64_MAX },
		{ "a=0o17", 15 },
		{ "a=0b1_0", 2 },
		{ "a=-0", 0 },
		{ "a=+1_000", 1000 },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct toml *doc = good(rows[i].text);

		assert_true(toml_get(toml_top(doc), "a")->v.integer == rows[i].want);
		toml_free(doc);
	}
	refused("a=9223372036854775808", 1, 3, "the number does not fit into 64 bits");
	refused("a=-9223372036854775809", 1, 3, "the number does not fit into 64 bits");
	refused("a=0x8000000000000000", 1, 3, "the number does not fit into 64 bits");
	refused("a=1e999", 1, 3, "the number is too large");
}

TEST(times_come_as_rfc_3339)
{
	struct toml *doc = good("a = 1987-07-05 17:45:00.50z\nb = 1987-07-05t17:45:60-08:30");
	const struct toml_node *a = toml_get(toml_top(doc), "a");
	const struct toml_node *b = toml_get(toml_top(doc), "b");

	assert_string_equal(a->v.string.text, "1987-07-05T17:45:00.50Z");
	assert_int_equal(a->v.string.len, strlen(a->v.string.text));
	assert_string_equal(b->v.string.text, "1987-07-05T17:45:60-08:30");
	toml_free(doc);
}

TEST(strings_are_unescaped)
{
	struct toml *doc = good("a = \"x\\t\\u00e9\\U0001F600\\\"\\\\\"\n"
				"b = '\\n'\n"
				"c = \"\"\"\nx\\\n   \n  y\"\"\"\"\"\n"
				"d = '''\r\n'a'\n'''\n"
				"e = \"a\\u0000b\"\n");

	assert_string_equal(string_at(doc, "a"), "x\t\xc3\xa9\xf0\x9f\x98\x80\"\\");
	assert_string_equal(string_at(doc, "b"), "\\n");
	assert_string_equal(string_at(doc, "c"), "xy\"\"");
	assert_string_equal(string_at(doc, "d"), "'a'\n");
	assert_int_equal(toml_get(toml_top(doc), "e")->v.string.len, 3);
	assert_memory_equal(string_at(doc, "e"), "a\0b", 4);
	toml_free(doc);
}

TEST(members_keep_their_order_and_places)
{
	struct toml *doc =
		good("\xef\xbb\xbf# \xc3\xa9\nz = 1\n\n  [t.u]\n\"\xc3\xa9\" . a = [ 1,\n"
		     "\t{ b = 2 } ]\n[[rows]]\n[[rows]]\n");
	const struct toml_node *z = toml_top(doc)->child, *t = z->next, *u = t->child;
	const struct toml_node *list = u->child->child, *rows = t->next;

	assert_string_equal(z->key, "z");
	assert_int_equal(z->line, 2);
	assert_int_equal(z->column, 5);
	assert_int_equal(z->key_column, 1);
	assert_string_equal(t->key, "t");
	assert_int_equal(u->line, 4); /* the position of the header's bracket */
	assert_int_equal(u->column, 3);
	assert_int_equal(u->key_column, 6);
	assert_string_equal(list->key, "a");
	assert_int_equal(list->key_line, 5);
	assert_int_equal(list->key_column, 7);
	assert_int_equal(list->column, 11);
	assert_int_equal(list->count, 2);
	assert_null(list->child->key);
	assert_int_equal(list->child->next->line, 6);
	assert_int_equal(list->child->next->column, 2);
	assert_int_equal(rows->type, TOML_ARRAY);
	assert_int_equal(rows->count, 2);
	assert_int_equal(rows->child->next->line, 8);
	assert_int_equal(rows->child->next->column, 1);
	assert_null(rows->next);
	toml_free(doc);
}

TEST(reading_from_a_value_that_is_not_a_table_gives_nothing)
{
	struct toml *doc = good("a = [1]\n'' = 2\n\"b\\u0000c\" = 3");

	assert_null(toml_get(NULL, "a"));
	assert_null(toml_get(toml_get(toml_top(doc), "a"), "x"));
	assert_null(toml_get(toml_top(doc), "b"));
	assert_int_equal(toml_get(toml_top(doc), "")->v.integer, 2);
	toml_free(doc);
}

TEST(refuses_what_is_defined_twice)
{
	refused("a = 1\n\na = 2", 3, 1, "key 'a' is defined twice (first on line 1)");
	refused("[a]\nb=1\n[a]", 3, 2, "table 'a' is defined twice (first on line 1)");
	refused("a.b = 1\n[a]", 2, 2, "table 'a' is defined twice (first on line 1)");
	refused("[a.b.c]\n[a]\nb.x = 1\n[a.b]", 4, 4,
		"table 'b' is defined twice (first on line 1)");
	refused("x = {b=1, b=2}", 1, 11, "key 'b' is defined twice (first on line 1)");
	refused("a = [1]\n[[a]]", 2, 3, "key 'a' is defined twice (first on line 1)");
	refused("[[a]]\n[a]", 2, 2, "key 'a' is defined twice (first on line 1)");
}

TEST(refuses_to_extend_what_is_complete)
{
	refused("a = {b=1}\n[a.c]", 2, 2,
		"table 'a' is already complete (line 1): add the key there");
	refused("a = {b=1}\na.c = 1", 2, 1,
		"table 'a' is already complete (line 1): add the key there");
	refused("[t.a]\n[t]\na.x = 1", 3, 1,
		"table 'a' is already complete (line 1): add the key there");
	refused("a = 1\na.b = 2", 2, 1,
		"'a' is not a table but a value of type integer (line 1)");
	refused("a = 1\n[a.b]", 2, 2,
		"'a' is not a table but a value of type integer (line 1)");
}

TEST(an_error_names_what_was_expected_and_its_place)
{
	refused("a", 1, 2, "expected '=' after the key but the text ends");
	refused("a b", 1, 3, "expected '=' after the key but found 'b'");
	refused("a =\n", 1, 4, "expected a value but the line ends");
	refused("a = \xe3\x80\x80", 1, 5, "expected a value but found '\xe3\x80\x80'");
	refused("\xc3\xa9 = 1", 1, 1, "expected a key but found '\xc3\xa9'");
	refused("'\xc3\xa9' x", 1, 5, "expected '=' after the key but found 'x'");
	refused("[a", 1, 3, "expected ']' after the name but the text ends");
	refused("[[a]", 1, 4, "expected ']]' after the name but found ']'");
	refused("a = [1 2]", 1, 8, "expected ',' or ']' but found '2'");
	refused("a = {b=1,}", 1, 10, "expected a key but found '}'");
	refused("a = 1 b = 2", 1, 7, "expected the end of the line but found 'b'");
	refused("a = yes", 1, 5, "'yes' is not a value (text needs quotes)");
	refused("a = 1.", 1, 5, "'1.' is not a number");
	refused("a = 012", 1, 5, "an integer must not have leading zeros");
	refused("a = 2026-02-30", 1, 5, "'2026-02-30' is not a valid date or time");
	refused("a = \"b", 1, 5, "the string is not closed on its line");
	refused("a = \"b\\\n\"", 1, 5, "the string is not closed on its line");
	refused("\na = '''b", 2, 5, "the string is not closed");
	refused("a = \"\\q\"", 1, 6, "'\\q' is not an escape sequence");
	refused("a = \"\\u12\"", 1, 6, "'\\u' needs 4 hexadecimal digits");
	refused("a = \"\\ud800\"", 1, 6, "U+D800 is not a character");
}

TEST(refuses_bytes_that_no_document_may_hold)
{
	refused("a = '\x80'", 1, 6, "the byte 0x80 is not UTF-8");
	refused("a = '\xc3", 1, 6, "the byte 0xC3 is not UTF-8");
	refused("# \x7f", 1, 3, "the control character U+007F is not allowed");
	refused("a = 1\rb = 2", 1, 6, "a carriage return must be followed by a line feed");
	refused_n("a = 1\n\0", 7, 2, 1, "the control character U+0000 is not allowed");
}

TEST(a_long_name_is_cut_in_the_sentence)
{
	char text[512];

	snprintf(text, sizeof(text), "%0200d = 1\n%0200d = 2", 0, 0);
	refused(text, 2, 1,
		"key '000000000000000000000000000000000000000000000000000000000000...' is "
		"defined "
		"twice (first on line 1)");
}

/* Returns a string: head, n times open, middle, n times close. */
static char *nested(const char *head, size_t n, const char *open, const char *middle,
		    const char *close)
{
	char *text = malloc(strlen(head) + n * (strlen(open) + strlen(close)) + 64);
	char *end;

	end = stpcpy(text, head);
	for (size_t i = 0; i < n; i++)
		end = stpcpy(end, open);
	end = stpcpy(end, middle);
	for (size_t i = 0; i < n; i++)
		end = stpcpy(end, close);
	return text;
}

TEST(nesting_ends_at_64_levels)
{
	static const struct {
		const char *head, *open, *middle, *close;
		size_t most, column;
	} rows[] = {
		{ "a=", "[", "", "]", 64, 67 },     { "a=", "[", "1", "]", 63, 67 },
		{ "a=", "{a=", "1", "}", 63, 195 }, { "", "a.", "a=1", "", 63, 0 },
		{ "[", "a.", "a]", "", 63, 0 },     { "[[", "a.", "a]]", "", 62, 0 },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct toml_error err = { 0 };
		struct toml *doc = NULL;
		char *most = nested(rows[i].head, rows[i].most, rows[i].open, rows[i].middle,
				    rows[i].close);
		char *more = nested(rows[i].head, rows[i].most + 1, rows[i].open,
				    rows[i].middle, rows[i].close);

		toml_free(good(most));
		assert_int_equal(toml_parse(more, strlen(more), &doc, &err), -GW_E_PARSE);
		assert_string_equal(err.text,
				    "tables and arrays are nested deeper than 64 levels");
		if (rows[i].column)
			assert_int_equal(err.column, rows[i].column);
		free(most);
		free(more);
	}
}

TEST(a_hostile_depth_is_refused_and_not_followed)
{
	char *text = nested("a=", 400000, "[", "", "");

	refused(text, 1, 67, "tables and arrays are nested deeper than 64 levels");
	free(text);
}

/* A linear search for each key would take hours here. */
TEST(a_table_of_many_keys_is_read_in_linear_time)
{
	const unsigned n = 100000;
	char *text = malloc(n * 16), *end = text;
	struct toml *doc;

	for (unsigned i = 0; i < n; i++)
		end += sprintf(end, "[k%u]\n", i);
	doc = good(text);
	assert_int_equal(toml_top(doc)->count, n);
	toml_free(doc);
	end = text;
	for (unsigned i = 0; i < n; i++)
		end += sprintf(end, "%sk%u=1", i ? "," : "a={", i);
	strcpy(end, "}");
	doc = good(text);
	assert_int_equal(toml_get(toml_top(doc), "a")->count, n);
	toml_free(doc);
	free(text);
}

TEST(the_text_needs_no_nul_behind_it)
{
	char *text = malloc(5);
	struct toml_error err;
	struct toml *doc = NULL;

	memcpy(text, "a = 1", 5);
	assert_int_equal(toml_parse(text, 5, &doc, &err), 0);
	free(text);
	assert_int_equal(toml_get(toml_top(doc), "a")->v.integer, 1);
	toml_free(doc);
}

static char folder[] = "/tmp/gpuward-toml-XXXXXX";

static void file_gives(const char *path, int want, const char *sentence)
{
	struct toml_error err = { 7, 7, "" };
	struct toml *doc = NULL;

	assert_int_equal(toml_parse_file(path, &doc, &err), want);
	assert_null(doc);
	assert_string_equal(err.text, sentence);
	assert_int_equal(err.line, 0);
	assert_int_equal(err.column, 0);
}

static void write_file(const char *path, const char *text, size_t size)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(ftruncate(fileno(f), (off_t)size), 0);
	fclose(f);
}

TEST(a_file_is_read_or_the_reason_is_reported)
{
	char path[64];
	struct toml *doc = NULL;
	struct toml_error err;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/f", folder);
	file_gives(path, -GW_E_NOENT, "there is no such file");
	file_gives(folder, -GW_E_IO, "this path is a directory, not a file");
	write_file(path, "a = 1\n", 6);
	assert_int_equal(toml_parse_file(path, &doc, &err), 0);
	toml_free(doc);
	write_file(path, "a = \n", 5);
	assert_int_equal(toml_parse_file(path, &doc, &err), -GW_E_PARSE);
	assert_int_equal(err.line, 1);
	write_file(path, "", 1024 * 1024 + 1);
	file_gives(path, -GW_E_SIZE, "the file is larger than 1 MiB");
	if (geteuid() != 0) {
		chmod(path, 0);
		file_gives(path, -GW_E_PERM, "this user may not read the file");
	}
	unlink(path);
	rmdir(folder);
}

TEST(a_field_of_another_type_is_refused_and_leaves_the_member_unchanged)
{
	struct record {
		double real;
		int count;
		unsigned size;
		uint64_t long_size;
		bool flag;
		char word[4];
	};
	static const struct toml_field fields[] = {
		TOML_FIELD(REAL, "", "real", struct record, real),
		TOML_FIELD(INT, "", "count", struct record, count),
		TOML_FIELD(UINT, "", "size", struct record, size),
		TOML_FIELD(U64, "", "long_size", struct record, long_size),
		TOML_FIELD(BOOL, "", "flag", struct record, flag),
		TOML_FIELD(TEXT, "", "word", struct record, word),
	};
	static const char *const bad[] = {
		"real = \"1\"",    "count = 1.5",    "count = 2147483648", "size = -1",
		"size = true",     "long_size = -1", "flag = 0.025",       "flag = \"true\"",
		"word = \"four\"", "word = 1",
	};
	static const struct record was = { 2.5, -3, 4, 5, true, "abc" };

	for (size_t i = 0; i < COUNT_OF(bad); i++)
		for (size_t f = 0; f < COUNT_OF(fields); f++) {
			struct record r;
			struct toml *doc;

			memcpy(&r, &was, sizeof(r)); /* with its padding */
			if (strncmp(bad[i], fields[f].key, strcspn(bad[i], " ")) != 0)
				continue;
			doc = good(bad[i]);
			assert_ptr_equal(toml_read_fields(toml_top(doc), &fields[f], 1, &r),
					 &fields[f]);
			assert_memory_equal(&r, &was, sizeof(r));
			toml_free(doc);
		}
}

TEST_MAIN(NULL, NULL)
