/* Reads the configuration files.
 *
 * The first version of the guard had its keys at the top level, in [guard] or in [gpu]. Such
 * files are still accepted. */
#include "config_read.h"

#include "base/array.h"
#include "base/file.h"

#include "base/suggest.h"

#include <gpuward.h>

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Keys of the first version, and the tables in which an old file may have these keys. */
static const enum config_id legacy_keys[] = {
	CONFIG_ID_device_enable_nvml,
	CONFIG_ID_device_require_nvml,
};
static const char *const legacy_tables[] = { "", "guard", "gpu", "worker" };

/* Keys that were renamed, and how the old value is converted for the new setting. */
static const struct renamed {
	struct config_row old;
	enum config_id now;
	enum { SAME, TRUE_ENFORCES, SECONDS_TO_MS } how;
} renamed[] = {
#define R(section, key, type, least, most, now, how)                                       \
	{                                                                                  \
		{ #section, #key, CONFIG_##type, NULL, least, most, NULL, NULL, NULL, 0 }, \
			CONFIG_ID_##section##_##now, how                                   \
	}
	R(guard, auto_evict_for_user_apps, BOOL, 0, 0, mode, TRUE_ENFORCES),
	R(guard, process_check_interval_secs, NUMBER, 0.01, 3600, poll_ms, SECONDS_TO_MS),
	R(health, enable_health_monitoring, BOOL, 0, 0, enabled, SAME),
	R(health, health_check_interval_secs, NUMBER, 0.1, 3600, interval_s, SAME),
	R(health, temperature_threshold_celsius, NUMBER, 30, 120, temp_override_c, SAME),
	R(capacity, enable_capacity_tracking, BOOL, 0, 0, enabled, SAME),
#undef R
};

/* Writes the key for an error message: control characters and NUL become '?', long keys are
 * truncated. */
const char *config_key_shown(const struct toml_node *n, char out[static CONFIG_SHOWN_MAX])
{
	size_t len = n->key_len < CONFIG_SHOWN_MAX - 1 ? n->key_len : CONFIG_SHOWN_MAX - 1;

	for (size_t i = 0; i < len; i++)
		out[i] = (unsigned char)n->key[i] < 0x20 || n->key[i] == 0x7f ? '?' : n->key[i];
	/* Do not cut inside a UTF-8 character. */
	while (len && len < n->key_len && ((unsigned char)n->key[len] & 0xc0) == 0x80)
		len--;
	out[len] = '\0';
	return out;
}

static bool is_legacy(unsigned id)
{
	for (size_t i = 0; i < COUNT(legacy_keys); i++)
		if (legacy_keys[i] == id)
			return true;
	return false;
}

static bool is_legacy_table(const char *table)
{
	for (size_t i = 0; i < COUNT(legacy_tables); i++)
		if (strcmp(legacy_tables[i], table) == 0)
			return true;
	return false;
}

/* True if the table may have this setting. The top level of the file is the table "". */
static bool has_row(const char *table, unsigned id)
{
	return strcmp(config_rows[id].section, table) == 0 ||
	       (is_legacy_table(table) && is_legacy(id));
}

static const struct renamed *find_renamed(const char *table, const struct toml_node *n)
{
	for (size_t i = 0; i < COUNT(renamed); i++)
		if (toml_is_key(n, renamed[i].old.key) &&
		    (is_legacy_table(table) || strcmp(renamed[i].old.section, table) == 0))
			return &renamed[i];
	return NULL;
}

static const struct config_row *find_row(const char *table, const struct toml_node *n)
{
	for (unsigned i = 0; i < CONFIG_ROWS; i++)
		if (has_row(table, i) && toml_is_key(n, config_rows[i].key))
			return &config_rows[i];
	return NULL;
}

struct file {
	struct config_reader *r;
	const char *name;
};

static struct config_place key_place(const struct file *f, const struct toml_node *n)
{
	return (struct config_place){ CONFIG_FILE, f->name, n->key_line, n->key_column };
}

/* Reads the value of an old key and converts it for the new setting. */
static bool read_renamed(const struct file *f, const struct renamed *old,
			 const struct config_place *at, const struct toml_node *n,
			 struct config_value *ret)
{
	const struct config_row *now = &config_rows[old->now];

	if (!config_value_node(f->r, &old->old, at, n, ret))
		return false;
	if (old->how == TRUE_ENFORCES)
		return config_value_text(f->r, now, at, ret->yes ? "enforce" : "observe", ret);
	if (old->how == SECONDS_TO_MS)
		ret->number *= 1000;
	return true;
}

/* Assigns a value. A file may have the same setting twice: at its new place and at its old
 * place, or under its new name and its old name. If the two values differ, this is an error. */
static void assign(const struct file *f, const struct config_row *row,
		   const struct renamed *old, const struct toml_node *n)
{
	const unsigned id = (unsigned)(row - config_rows);
	const struct config_place at = { CONFIG_FILE, f->name, n->line, n->column };
	struct config_place *given = &f->r->given[id];
	struct config_value v, before;

	if (old ? !read_renamed(f, old, &at, n, &v) : !config_value_node(f->r, row, &at, n, &v))
		return;
	config_value_get(f->r->c, row, &before);
	if (given->line && !config_value_same(row, &v, &before)) {
		const struct config_place here = key_place(f, n);

		config_complain(f->r, &here,
				"%s has one value in line %u and another in line %u; keep one "
				"of them",
				old ? old->old.key : row->key, given->line, n->key_line);
		return;
	}
	config_value_set(f->r->c, row, &v);
	*given = f->r->m->place[id] = key_place(f, n);
}

static bool assign_any(const struct file *f, const char *table, const struct toml_node *n)
{
	const struct config_row *row = find_row(table, n);
	const struct renamed *old = find_renamed(table, n);

	if (row)
		assign(f, row, NULL, n);
	else if (old)
		assign(f, &config_rows[old->now], old, n);
	return row || old;
}

/* Suggests the key of the table that is most similar to name. If no key of the table is
 * similar, suggests the most similar key of all sections. */
static const char *nearest(const char *table, const char *name,
			   char out[static CONFIG_MEANT_MAX])
{
	const char *keys[CONFIG_ROWS + COUNT(renamed)], *near;
	unsigned count = 0;

	for (unsigned i = 0; i < CONFIG_ROWS; i++)
		if (has_row(table, i))
			keys[count++] = config_rows[i].key;
	for (size_t i = 0; i < COUNT(renamed); i++)
		if (is_legacy_table(table) || strcmp(renamed[i].old.section, table) == 0)
			keys[count++] = renamed[i].old.key;
	near = suggest(name, keys, count, sizeof(keys[0]));
	if (near)
		return config_meant(near, out);
	near = suggest(name, &config_rows[0].key, CONFIG_ROWS, sizeof(config_rows[0]));
	config_meant(NULL, out);
	for (unsigned i = 0; near && i < CONFIG_ROWS; i++)
		if (config_rows[i].key == near)
			snprintf(out, CONFIG_MEANT_MAX, "; did you mean \"%s\" in [%s]?", near,
				 config_rows[i].section);
	return out;
}

/* True if the section has this key, under its current or an old name. */
static bool has_key(const char *section, const struct toml_node *n)
{
	for (unsigned i = 0; i < CONFIG_ROWS; i++)
		if (strcmp(config_rows[i].section, section) == 0 &&
		    toml_is_key(n, config_rows[i].key))
			return true;
	for (size_t i = 0; i < COUNT(renamed); i++)
		if (strcmp(renamed[i].old.section, section) == 0 &&
		    toml_is_key(n, renamed[i].old.key))
			return true;
	return false;
}

bool config_sections(const struct toml_node *n, char out[static CONFIG_SECTIONS_MAX])
{
	const char *found[CONFIG_ROWS];
	unsigned count = 0;
	struct buf b;

	for (unsigned i = 0; i < CONFIG_ROWS; i++)
		if ((i == 0 ||
		     strcmp(config_rows[i].section, config_rows[i - 1].section) != 0) &&
		    /* The rows of a section are contiguous, so the comparison with the previous
		     * row ensures that each section is checked only once. */
		    has_key(config_rows[i].section, n))
			found[count++] = config_rows[i].section;
	buf_init_fixed(&b, out, CONFIG_SECTIONS_MAX);
	for (unsigned i = 0; i < count; i++)
		buf_addf(&b, "%s[%s]", i == 0 ? "" : i + 1 < count ? ", " : " or ", found[i]);
	return count > 0;
}

/* Keys that people expect but that do not exist, and what to use instead. */
static const struct {
	const char *table, *key, *instead;
} instead[] = {
	{ "guard", "enabled", "use mode = \"observe\", \"dry-run\" or \"enforce\" instead" },
};

static const char *find_instead(const char *table, const struct toml_node *n)
{
	for (size_t i = 0; i < COUNT(instead); i++)
		if (strcmp(instead[i].table, table) == 0 && toml_is_key(n, instead[i].key))
			return instead[i].instead;
	return NULL;
}

static void unknown_key(const struct file *f, const char *table, const struct toml_node *n)
{
	const struct config_place at = key_place(f, n);
	const char *other = find_instead(table, n);
	char meant[CONFIG_MEANT_MAX], name[CONFIG_SHOWN_MAX], sections[CONFIG_SECTIONS_MAX];

	config_key_shown(n, name);
	if (other)
		config_complain(f->r, &at, "no such key \"%s\" in [%s]; %s", name, table,
				other);
	else if (config_sections(n, sections))
		config_complain(f->r, &at, "\"%s\" belongs in %s", name, sections);
	else
		config_complain(f->r, &at, "no such key \"%s\"%s%s%s%s", name,
				*table ? " in [" : "", table, *table ? "]" : "",
				nearest(table, name, meant));
}

static void not_a_table(const struct file *f, const char *table, const struct toml_node *n)
{
	const struct config_place at = key_place(f, n);
	bool array = n->type == TOML_ARRAY;

	config_complain(f->r, &at, "\"%.*s\" must be a table ([%s]), not %s", (int)n->key_len,
			n->key, table, array ? "an array" : "a value");
}

static void read_table(const struct file *f, const char *table, const struct toml_node *top)
{
	for (const struct toml_node *n = top->child; n; n = n->next) {
		bool defaults = strcmp(table, "guard") == 0 && toml_is_key(n, "defaults");

		if (defaults && n->type == TOML_TABLE)
			read_table(f, CONFIG_DEFAULTS, n);
		else if (defaults)
			not_a_table(f, CONFIG_DEFAULTS, n);
		else if (!assign_any(f, table, n))
			unknown_key(f, table, n);
	}
}

static const char *find_section(const struct toml_node *n)
{
	for (unsigned i = 0; i < CONFIG_ROWS; i++)
		if (toml_is_key(n, config_rows[i].section))
			return config_rows[i].section;
	return toml_is_key(n, "gpu") ? "gpu" : NULL;
}

static void unknown_section(const struct file *f, const struct toml_node *n)
{
	const struct config_place at = key_place(f, n);
	char meant[CONFIG_MEANT_MAX], name[CONFIG_SHOWN_MAX];

	config_key_shown(n, name);
	config_meant(
		suggest(name, &config_rows[0].section, CONFIG_ROWS, sizeof(config_rows[0])),
		meant);
	config_complain(f->r, &at, "no such section \"%s\"%s", name,
			*meant ? meant : guard_config_meant(name, meant));
}

/* True if n is a [worker] table with settings of the guard, as in the first version. Today
 * [[worker]] describes a server that the guard moves off the GPU. */
static bool is_legacy_worker(const struct toml_node *n)
{
	bool known = n->type == TOML_TABLE && toml_is_key(n, "worker") && n->child;

	for (const struct toml_node *k = known ? n->child : NULL; k; k = k->next)
		known = known && (find_renamed("worker", k) || find_row("worker", k));
	return known;
}

static void read_member(const struct file *f, const struct toml_node *n)
{
	const char *section = find_section(n);

	if (is_legacy_worker(n)) {
		read_table(f, "worker", n);
		return;
	}
	if (guard_config_array(f->r, f->name, n))
		return;
	if (section && n->type == TOML_TABLE)
		read_table(f, section, n);
	else if (section)
		not_a_table(f, section, n);
	else if (assign_any(f, "", n))
		return;
	else if (n->type == TOML_TABLE ||
		 (n->type == TOML_ARRAY && n->child && n->child->type == TOML_TABLE))
		unknown_section(f, n);
	else
		unknown_key(f, "", n);
}

static void read_document(const struct file *f, const struct toml *doc)
{
	memset(f->r->given, 0, sizeof(f->r->given));
	for (const struct toml_node *n = toml_top(doc)->child; n; n = n->next)
		read_member(f, n);
}

static void parse_failed(const struct file *f, int rc, const struct toml_error *err)
{
	const struct config_place at = { CONFIG_FILE, f->name, err->line, err->column };

	config_fail(f->r, rc, &at, err->text);
}

void config_file_text(struct config_reader *r, const char *name, const char *text, size_t size)
{
	const struct file f = { r, name };
	struct toml_error err = { 0 };
	struct toml *doc;
	int rc = toml_parse(text, size, &doc, &err);

	if (rc) {
		parse_failed(&f, rc, &err);
		return;
	}
	read_document(&f, doc);
	toml_free(doc);
}

/* Warns if other users can change the file, because then they control the service. */
static void check_permissions(const struct file *f)
{
	const struct config_place at = { CONFIG_FILE, f->name, 0, 0 };
	struct stat st;

	if (stat(f->name, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & S_IWOTH))
		config_warn(f->r, &at, "every user can write this file; run chmod o-w on it");
	else if (file_is_unsafe_for_root(f->name))
		config_warn(
			f->r, &at,
			"other users can change this file or its folder and so control what "
			"gpuward does as root; move it to a folder that only root can "
			"write");
}

static void read_file(struct config_reader *r, const char *path)
{
	struct file f = { r, config_keep(r, path, strlen(path)) };
	struct toml_error err = { 0 };
	struct toml *doc;
	int rc;

	if (!f.name)
		return;
	rc = toml_parse_file(f.name, &doc, &err);
	if (rc) {
		parse_failed(&f, rc, &err);
		return;
	}
	if (r->m->files < CONFIG_FILES_MAX)
		r->m->file[r->m->files++] = f.name;
	check_permissions(&f);
	read_document(&f, doc);
	toml_free(doc);
}

/* Reads a file at a usual location, if it exists and is accessible. */
static void read_usual(struct config_reader *r, const char *path)
{
	if (access(path, F_OK) == 0)
		read_file(r, path);
}

static int is_drop_in(const struct dirent *d)
{
	size_t n = strlen(d->d_name);

	return d->d_name[0] != '.' && n > 5 && strcmp(d->d_name + n - 5, ".toml") == 0;
}

/* Compares bytes, so that the order does not depend on the locale. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static void read_drop_ins(struct config_reader *r, const char *root)
{
	char dir[PATH_MAX], path[PATH_MAX + 256];
	struct dirent **entry;
	int n;

	snprintf(dir, sizeof(dir), "%s/etc/gpuward/gpuward.d", root);
	n = scandir(dir, &entry, is_drop_in, by_name);
	for (int i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, entry[i]->d_name);
		read_usual(r, path);
		free(entry[i]);
	}
	if (n >= 0)
		free(entry);
}

static void read_user_file(struct config_reader *r)
{
	char path[PATH_MAX];

	if (file_user_config("gpuward.toml", path, sizeof(path)) == 0)
		read_usual(r, path);
}

void config_files_read(struct config_reader *r, const char *path)
{
	const char *root = getenv("GPUWARD_CONFIG_ROOT");
	char etc[PATH_MAX];

	if (path) {
		read_file(r, path);
		return;
	}
	snprintf(etc, sizeof(etc), "%s/etc/gpuward/gpuward.toml", root ? root : "");
	read_usual(r, etc);
	read_drop_ins(r, root ? root : "");
	read_user_file(r);
}
