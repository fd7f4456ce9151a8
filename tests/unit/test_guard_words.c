/* Checks that the guard's words in the schema, the web page and the manual agree with the
 * tables. */
#include "guard/demand.h"
#include "guard/guard.h"
#include "base/json_doc.h"

#include <dirent.h>

#include "test.h"

/* Returns a whole file of the source tree; the caller frees it. */
static char *whole(const char *name)
{
	const char *top = getenv("GPUWARD_TEST_SOURCE");
	char path[4096], *text = calloc(1, 1 << 20);
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", top ? top : ".", name);
	f = fopen(path, "r");
	assert_non_null(text);
	if (!f)
		fail_msg("%s cannot be read", path);
	assert_true(fread(text, 1, (1 << 20) - 1, f) < (1 << 20) - 1);
	fclose(f);
	return text;
}

static void has_these(const struct json_doc *schema, const char *def,
		      const char *(*name)(unsigned), unsigned n)
{
	char path[100];

	snprintf(path, sizeof(path), "$defs.%s.enum", def);
	assert_int_equal(json_doc_count(schema, path), n);
	for (unsigned i = 0; i < n; i++)
		assert_string_equal(json_doc_string(json_doc_at(schema, path, i), ""), name(i));
}

static unsigned times(const char *text, const char *word)
{
	unsigned n = 0;

	for (; (text = strstr(text, word)); text += strlen(word))
		n++;
	return n;
}

TEST(the_schema_has_each_word_once)
{
	char *text = whole("docs/schema/api.json"), message[200];
	struct json_doc *schema;
	int rc = json_doc_new(text, strlen(text), &schema, message, sizeof(message));

	if (rc == -GW_E_NOSUPPORT)
		skip();
	assert_int_equal(rc, 0);
	has_these(schema, "guard_reason", guard_reason_name, GUARD_REASONS);
	has_these(schema, "guard_state", guard_state_name, GUARD_STATES);
	has_these(schema, "guard_class", guard_class_name, GUARD_CLASSES);
	/* The schema must contain the list of reasons and the list of states only once. */
	assert_int_equal(times(text, "\"contention\",\n"), 1);
	assert_int_equal(times(text, "\"verify-up\",\n"), 1);
	json_doc_free(schema);
	free(text);
}

static bool is_word(char c)
{
	return (c >= 'a' && c <= 'z') || c == '-';
}

/* True if the text has "word:", with or without quotes around the word. */
static bool has_key(const char *text, const char *word)
{
	size_t n = strlen(word);

	for (const char *p = text; (p = strstr(p, word)); p += n)
		if (p > text && !is_word(p[-1]) && (p[n] == ':' || !strncmp(p + n, "\":", 2)))
			return true;
	return false;
}

/* Returns the object that follows head in text, as a pointer into text. Writes a NUL after the
 * object. */
static const char *object(char *text, const char *head)
{
	char *begin = strstr(text, head), *end = begin ? strstr(begin, "\n};") : NULL;

	if (!end)
		fail_msg("there is no \"%s\"", head);
	*end = '\0';
	return begin + strlen(head);
}

static void page_has(const char *head, const char *(*name)(unsigned), unsigned n)
{
	char *text = whole("web/guard.js");
	const char *words = object(text, head);

	for (unsigned i = 0; i < n; i++)
		if (!has_key(words, name(i)))
			fail_msg("%s} of web/guard.js lacks %s", head, name(i));
	free(text);
}

TEST(the_web_page_has_a_text_for_every_state_and_reason)
{
	page_has("const STATES = {", guard_state_name, GUARD_STATES);
	page_has("const REASONS = {", guard_reason_name, GUARD_REASONS);
}

TEST(the_modes_of_the_configuration_are_those_of_the_guard)
{
	char *setting = whole("src/daemon/config.def"), choices[64] = "";

	for (unsigned i = 0; guard_modes[i]; i++)
		snprintf(choices + strlen(choices), 20, "%s%s", i ? "|" : "\"", guard_modes[i]);
	strcat(choices, "\"");
	assert_in(setting, choices);
	free(setting);
}

TEST(every_kind_has_its_row)
{
	char *guard = whole("docs/GUARD.md"), *page = whole("docs/man/gpuward.toml.5.scd");
	char head[64];

	for (unsigned i = 0; i < WORKER_KINDS; i++) {
		const char *name = policy_kind_name(i), *row, *loads;

		if (i == WORKER_CALLBACK)
			continue;
		snprintf(head, sizeof(head), "\n| `%s` |", name);
		row = strstr(guard, head);
		if (!row)
			fail_msg("the table of docs/GUARD.md lacks %s", name);
		loads = strstr(row, "the next request loads");
		if ((loads && loads < strchr(row + 1, '\n')) !=
		    policy_kind_is(i, KIND_LOADS_ON_REQUEST))
			fail_msg("docs/GUARD.md: only the rows of the kinds that load on "
				 "request say \"the next request loads\"; wrong for %s",
				 name);
	}
	assert_in(page, "\n@kinds@\n"); /* written by docs/man/settings.c */
	free(page);
	free(guard);
}

/* Without a row, the models of a server have no energy. Servers without counters have a row,
 * too, with the reason. */
TEST(every_kind_with_an_address_has_a_row_in_the_table_of_token_counters)
{
	static const struct {
		const char *symbol, *name, *url;
	} kind[] = {
#define K(symbol, name, url, level, stop_s, traits, help) { #symbol, #name, url },
#include "guard/kind.def"
	};
	char *table = whole("src/daemon/token_source.def"), row[64];

	for (unsigned i = 0; i < COUNT_OF(kind); i++) {
		snprintf(row, sizeof(row), "\nT(%s, ", kind[i].symbol);
		if (!strstr(table, row) != !kind[i].url)
			fail_msg("src/daemon/token_source.def %s %s",
				 kind[i].url ? "lacks a row of" : "has a row without address:",
				 kind[i].name);
	}
	free(table);
}

static void asks_for_no_kind(const char *path)
{
	static const char *const how[] = { "kind == WORKER_", "kind != WORKER_",
					   "case WORKER_" };
	char *text = whole(path);

	for (unsigned i = 0; i < COUNT_OF(how); i++)
		if (strstr(text, how[i]))
			fail_msg("%s asks for a kind (%s...): give it a trait in kind.def",
				 path, how[i]);
	free(text);
}

/* True if a table of guard_state.c has "(part.name" or ", part.name". */
static bool has_member(const char *table, const char *part, const char *name, size_t n)
{
	const size_t len = strlen(part);

	for (const char *p = table; (p = strpbrk(p, "(,")); p++) {
		const char *at = p + 1 + (p[1] == ' ');

		if (!strncmp(at, part, len) && !strncmp(at + len, name, n) &&
		    strchr(").,", at[len + n]))
			return true;
	}
	return false;
}

/* Returns the text between head and end, as a pointer into text. Writes a NUL after it. */
static char *between(char *text, const char *head, const char *end)
{
	char *at = strstr(text, head), *last = at ? strstr(at, end) : NULL;

	if (!last)
		fail_msg("there is no \"%s\"", head);
	*last = '\0';
	return at + strlen(head);
}

/* A recording that begins while the guard runs starts with the guard's state, which
 * guard_state.c lists in rows. A member without a row would be missing in the recording.
 *
 * Checks that each member of struct `of` has a row. part: the prefix of `of` within struct
 * `whole_of`. but: members that need no row. */
static void has_part(const char *file, const char *of, const char *whole_of, const char *part,
		     const char *but)
{
	char *text = whole(file), *rows = whole("src/guard/guard_state.c");
	char head[64], word[64];
	const char *at, *table;

	snprintf(head, sizeof(head), "\nstruct %s {", of);
	at = between(text, head, "\n};");
	snprintf(head, sizeof(head), "\n#define OF %s", whole_of);
	table = between(rows, head, "\n#undef OF");
	for (; *at; at++) {
		size_t n = strspn(at, "abcdefghijklmnopqrstuvwxyz_0123456789");

		if (!strncmp(at, "/*", 2))
			at = strstr(at, "*/") + 1;
		else if (n && n < sizeof(word) - 2) {
			snprintf(word, sizeof(word), " %.*s ", (int)n, at);
			if (strchr(",;[", at[n]) && !has_member(table, part, at, n) &&
			    !strstr(but, word))
				fail_msg("struct %s,%s: guard_state.c has no row for it", of,
					 word);
			at += n - 1;
		}
	}
	free(rows);
	free(text);
}

static void has_members(const char *file, const char *of, const char *but)
{
	has_part(file, of, of, "", but);
}

TEST(every_member_of_the_guards_state_can_be_recorded)
{
	static const char internal[] = "src/guard/guard_internal.h";
	static const char *const part[] = { "observed", "demand",  "reasons", "intent",
					    "order",    "backoff", "idle",    "report" };
	char of[32], prefix[32];

	has_members(internal, "guard_worker", " policy knobs ");
	for (unsigned i = 0; i < COUNT_OF(part); i++) {
		snprintf(of, sizeof(of), "worker_%s", part[i]);
		snprintf(prefix, sizeof(prefix), "%s.", part[i]);
		has_part(internal, of, "guard_worker", prefix, " ");
	}
	has_members(internal, "guard_gpu", " now end clears ns ");
	has_members(internal, "reservation", " ");
	has_members("src/guard/demand.h", "demand_life", " ");
	has_members("src/guard/eviction_rate.h", "rate_user", " ");
	/* The listed members have no row of their own: their parts have rows, they are computed
	 * from other members, or they are empty when a recording begins. */
	has_members(internal, "guard",
		    " p scene verdict others demand gpu order worker workers "
		    " reservation rate queue ");
}

/* A key that is declared but not read would be accepted without effect. */
TEST(every_key_of_a_worker_is_read)
{
	char *def = whole("src/daemon/guard_config.def"),
	     *text = whole("src/daemon/guard_config.c");
	unsigned keys = 0;

	for (const char *p = def; (p = strstr(p, "\nG(")); keys++) {
		char name[64];
		const char *at = text;
		size_t n;

		p += strlen("\nG(");
		snprintf(name, sizeof(name), "GUARD_KEY_%.*s", (int)strcspn(p, ","), p);
		n = strlen(name);
		while ((at = strstr(at, name)) && (is_word(at[n]) || at[n] == '_'))
			at += n;
		if (!at)
			fail_msg("guard_config.c does not read %s", name);
	}
	assert_true(keys > 20);
	free(text);
	free(def);
}

/* Only an adapter depends on its kind. Other code must use a trait. */
TEST(only_adapters_compare_the_worker_kind)
{
	static const char *const folder[] = { "src/guard", "src/serve", "src/daemon",
					      "src/cli" };
	const char *top = getenv("GPUWARD_TEST_SOURCE");
	char path[4096];
	unsigned files = 0;

	for (unsigned i = 0; i < COUNT_OF(folder); i++) {
		const struct dirent *e;
		DIR *d;

		snprintf(path, sizeof(path), "%s/%s", top ? top : ".", folder[i]);
		d = opendir(path);
		assert_non_null(d);
		while ((e = readdir(d))) {
			size_t n = strlen(e->d_name);

			if (n < 3 || strcmp(e->d_name + n - 2, ".c") != 0)
				continue;
			snprintf(path, sizeof(path), "%s/%s", folder[i], e->d_name);
			asks_for_no_kind(path);
			files++;
		}
		closedir(d);
	}
	assert_true(files > 50);
}

/* True if a word is in the first column of a table, alone or next to another word. */
static bool has_row(const char *text, const char *word)
{
	static const char *const around[][2] = { { "\n| ", " |" },
						 { "\n| ", ", " },
						 { ", ", " |" } };
	char row[64];

	for (unsigned i = 0; i < COUNT_OF(around); i++) {
		snprintf(row, sizeof(row), "%s%s%s", around[i][0], word, around[i][1]);
		if (strstr(text, row))
			return true;
	}
	return false;
}

TEST(every_state_and_reason_has_its_row)
{
	char *guard = whole("docs/GUARD.md");

	for (unsigned i = 0; i < GUARD_STATES; i++)
		if (!has_row(guard, guard_state_name(i)))
			fail_msg("the table of docs/GUARD.md lacks %s", guard_state_name(i));
	for (unsigned i = 0; i < GUARD_REASONS; i++)
		if (!has_row(guard, guard_reason_name(i)))
			fail_msg("the table of docs/GUARD.md lacks %s", guard_reason_name(i));
	free(guard);
}

static void machine_has(const char *text, const char *(*name)(unsigned), unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (!has_row(text, name(i)))
			fail_msg("docs/GUARD-MACHINE.md lacks a row of %s", name(i));
}

TEST(guard_machine_md_lists_every_state_reason_block_and_demand)
{
	char *text = whole("docs/GUARD-MACHINE.md");

	machine_has(text, guard_state_name, GUARD_STATES);
	machine_has(text, guard_reason_name, GUARD_REASONS);
	machine_has(text, guard_block_name, GUARD_BLOCKS);
	for (unsigned i = 1; i < DEMAND_KINDS; i++)
		if (!has_row(text, demand_kind_name(i)))
			fail_msg("docs/GUARD-MACHINE.md lacks a row of %s",
				 demand_kind_name(i));
	free(text);
}

/* Checks the row numbers, because code and tests refer to them. */
TEST(the_table_has_every_row_once_and_in_order)
{
	char *text = whole("docs/GUARD-MACHINE.md"), *at = strstr(text, "\n## The table\n"),
	     row[16];

	assert_non_null(at);
	assert_in(at, "\n## Eviction levels\n");
	*strstr(at, "\n## Eviction levels\n") = '\0';
	for (unsigned i = 1; i <= 52; i++) {
		snprintf(row, sizeof(row), "\n| %u | ", i);
		at = strstr(at, row);
		if (!at || strstr(at + 1, row))
			fail_msg("row %u is missing or occurs twice", i);
	}
	free(text);
}

/* Reads "#define NAME (30 * NS_PER_S)" as 30 s, and a define without a number before NS_PER_S
 * as 1 s. */
static void defined(const char *source, const char *name, char *out, size_t size)
{
	char define[64];
	const char *at;
	bool seconds;

	snprintf(define, sizeof(define), "\n#define %s ", name);
	at = strstr(source, define);
	if (!at)
		fail_msg("the header has no %s", name);
	at += strlen(define);
	at += strspn(at, " (");
	seconds = strstr(at, "NS_PER_S") && strstr(at, "NS_PER_S") < strchr(at, '\n');
	snprintf(out, size, "%.*s%s", *at == 'N' ? 1 : (int)strspn(at, "0123456789"),
		 *at == 'N' ? "1" : at, seconds ? " s" : "");
}

TEST(numbers_are_those_of_the_code)
{
	char *text = whole("docs/GUARD-MACHINE.md"),
	     *source = whole("src/guard/guard_internal.h"), *scene = whole("src/guard/scene.h");
	char name[32], documented[32], is[32];
	unsigned rows = 0;

	for (const char *at = strstr(text, "\n| `"); at; at = strstr(at + 1, "\n| `")) {
		assert_int_equal(sscanf(at, "\n| `%31[A-Z_]` | %31[^|]", name, documented), 2);
		documented[strcspn(documented, "|") - 1] = '\0';
		defined(strncmp(name, "SCENE_", 6) == 0 ? scene : source, name, is, sizeof(is));
		assert_string_equal(documented, is);
		rows++;
	}
	assert_int_equal(rows, 16);
	free(scene);
	free(source);
	free(text);
}

TEST_MAIN(NULL, NULL)
