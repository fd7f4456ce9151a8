/* Reads the configuration from defaults, files, environment and flags, and collects the
 * errors. */
#include "config_read.h"

#include "base/suggest.h"
#include "base/text.h"

#include <gpuward.h>

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct config_row config_rows[CONFIG_ROWS] = {
#define ROW(name, section, key, type, standard, least, most, choices, flag, help) \
	{ name, #key,    CONFIG_##type, standard, least,                          \
	  most, choices, flag,          help,     offsetof(struct config, section##_##key) },
#define O(section, ...) ROW(#section, section, __VA_ARGS__)
#define D(...)          ROW(CONFIG_DEFAULTS, guard_defaults, __VA_ARGS__)
#include "config.def"
#undef O
};

#define CONFIG_NO_MEMORY "out of memory while reading the configuration"

/* The place of an error that is not about a file, a variable or an option, such as "out of
 * memory". */
static const struct config_place nowhere = { CONFIG_STANDARD, NULL, 0, 0 };

struct config_text {
	struct config_text *next;
	char text[];
};

const char *config_meant(const char *word, char out[static CONFIG_MEANT_MAX])
{
	out[0] = '\0';
	if (word)
		snprintf(out, CONFIG_MEANT_MAX, "; did you mean \"%s\"?", word);
	return out;
}

/* Replaces control characters with '?'. Error messages quote values, and control characters
 * would start new lines or reach the terminal. */
static void one_line(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			*text = '?';
}

static void add_fault(struct config_reader *r, const struct config_place *at, bool warning,
		      const char *text)
{
	struct config_faults *f = r->faults;
	struct config_fault *fault = &f->fault[f->count];

	f->errors += !warning;
	if (f->count == CONFIG_FAULTS) {
		f->more++;
		return;
	}
	*fault = (struct config_fault){ .at = *at, .warning = warning, .text = strdup(text) };
	fault->at.name = at->name ? strdup(at->name) : NULL;
	if (fault->text && (fault->at.name || !at->name)) {
		one_line(fault->text);
		f->count++;
		return;
	}
	free(fault->text);
	free((char *)(uintptr_t)fault->at.name);
	f->more++;
	f->err = f->err ? f->err : -GW_E_NOMEM;
}

void config_fail(struct config_reader *r, int err, const struct config_place *at,
		 const char *sentence)
{
	if (!r->faults->err)
		r->faults->err = err;
	add_fault(r, at, false, sentence);
}

void config_complain(struct config_reader *r, const struct config_place *at, const char *fmt,
		     ...)
{
	char text[600];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	config_fail(r, at->from == CONFIG_FILE ? -GW_E_PARSE : -GW_E_ARG, at, text);
}

void config_warn(struct config_reader *r, const struct config_place *at, const char *fmt, ...)
{
	char text[900];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	add_fault(r, at, true, text);
}

void config_faults_done(struct config_faults *f)
{
	for (unsigned i = 0; i < f->count; i++) {
		free((char *)(uintptr_t)f->fault[i].at.name);
		free(f->fault[i].text);
	}
	*f = (struct config_faults){ 0 };
}

/* Returns the text of the fault. If the place is an option and the text begins with the name of
 * the same setting, the name is skipped: Otherwise the message would contain the name twice:
 * "--listen: listen: ...". */
static const char *text_after_name(const struct config_fault *f)
{
	const char *name = f->at.name, *text = f->text;

	if (f->at.from != CONFIG_FLAG || !name || strncmp(name, "--", 2) != 0)
		return text;
	for (name += 2; *name && (*name == *text || (*name == '-' && *text == '_')); name++)
		text++;
	return !*name && strncmp(text, ": ", 2) == 0 ? text + 2 : f->text;
}

void config_fault_text(struct buf *out, const struct config_fault *f)
{
	if (f->at.name)
		buf_adds(out, f->at.name);
	if (f->at.line)
		buf_addf(out, ":%u:%u", f->at.line, f->at.column);
	buf_addf(out, "%s%s%s", f->at.name ? ": " : "", f->warning ? "warning: " : "",
		 text_after_name(f));
}

const char *config_keep(struct config_reader *r, const char *s, size_t n)
{
	struct config_text *t = malloc(sizeof(*t) + n + 1);

	if (!t) {
		config_fail(r, -GW_E_NOMEM, &nowhere, CONFIG_NO_MEMORY);
		return NULL;
	}
	memcpy(t->text, s, n);
	t->text[n] = '\0';
	t->next = r->m->texts;
	r->m->texts = t;
	return t->text;
}

void config_done(struct config *c)
{
	struct config_memory *m = c->memory;

	while (m && m->texts) {
		struct config_text *next = m->texts->next;

		free(m->texts);
		m->texts = next;
	}
	if (m)
		guard_config_free(m);
	free(m);
	*c = (struct config){ 0 };
}

const char *config_file(const struct config *c, unsigned i)
{
	const struct config_memory *m = c->memory;

	return m && i < m->files ? m->file[i] : NULL;
}

const char *config_files(const struct config *c)
{
	const struct config_memory *m = c->memory;

	return m && m->joined ? m->joined : "";
}

static void join_files(struct config_reader *r)
{
	struct buf b;

	buf_init(&b, (size_t)1 << 20);
	for (unsigned i = 0; i < r->m->files; i++)
		buf_addf(&b, "%s%s", i ? ", " : "", r->m->file[i]);
	if (b.err)
		config_fail(r, b.err, &nowhere, CONFIG_NO_MEMORY);
	r->m->joined = config_keep(r, b.p, b.len);
	buf_done(&b);
}

#define CONFIG_NAME_MAX 80

/* Writes the name of the setting's variable, such as GPUWARD_LISTEN or GPUWARD_LOG_LEVEL. */
static void config_variable(const struct config_row *row, char out[static CONFIG_NAME_MAX])
{
	bool bare = strcmp(row->section, "service") == 0;

	snprintf(out, CONFIG_NAME_MAX, "GPUWARD_%s%s%s", bare ? "" : row->section,
		 bare ? "" : "_", row->key);
	for (char *p = out; *p; p++)
		*p = *p == '.' ? '_' : (char)toupper((unsigned char)*p);
}

/* Variables that other parts of the program read. */
static const char *const other_variables[] = {
	"GPUWARD_SIM",         "GPUWARD_SIM_LIBRARY", "GPUWARD_MARK_FD",
	"GPUWARD_LIBRARY",     "GPUWARD_BUILD",       "GPUWARD_GOLDEN",
	"GPUWARD_CONFIG_ROOT", "GPUWARD_ADDRESS",     "GPUWARD_GPU",
};
#define OTHERS (sizeof(other_variables) / sizeof(other_variables[0]))

static void unknown_variable(struct config_reader *r, const char *word)
{
	char names[CONFIG_ROWS][CONFIG_NAME_MAX], meant[CONFIG_MEANT_MAX];
	const struct config_place at = { CONFIG_VARIABLE, word, 0, 0 };
	const char *known[CONFIG_ROWS + OTHERS];

	if (strncmp(word, "GPUWARD_TEST_", 13) == 0)
		return;
	for (unsigned i = 0; i < CONFIG_ROWS; i++) {
		config_variable(&config_rows[i], names[i]);
		known[i] = names[i];
	}
	memcpy(known + CONFIG_ROWS, other_variables, sizeof(other_variables));
	for (unsigned i = 0; i < CONFIG_ROWS + OTHERS; i++)
		if (strcmp(known[i], word) == 0)
			return;
	config_warn(r, &at, "unknown setting, ignored%s",
		    config_meant(suggest(word, known, CONFIG_ROWS + OTHERS, sizeof(known[0])),
				 meant));
}

static void unknown_variables(struct config_reader *r)
{
	for (char **e = environ; e && *e; e++) {
		char word[CONFIG_NAME_MAX];

		if (strncmp(*e, "GPUWARD_", 8) != 0)
			continue;
		snprintf(word, sizeof(word), "%.*s", (int)strcspn(*e, "="), *e);
		unknown_variable(r, word);
	}
}

static void config_variables_read(struct config_reader *r)
{
	for (unsigned i = 0; i < CONFIG_ROWS; i++) {
		char name[CONFIG_NAME_MAX];
		struct config_place at = { CONFIG_VARIABLE, name, 0, 0 };
		struct config_value v;
		const char *text;

		config_variable(&config_rows[i], name);
		text = getenv(name);
		/* An empty variable counts as not set, because container files often set empty
		 * variables. */
		if (!text || !*text || !config_value_text(r, &config_rows[i], &at, text, &v))
			continue;
		config_value_set(r->c, &config_rows[i], &v);
		r->m->place[i] = at;
		r->m->place[i].name = config_keep(r, name, strlen(name));
	}
	unknown_variables(r);
}

/* Finds a row by its flag or by "section.key". */
static const struct config_row *find_flag(const char *name)
{
	for (unsigned i = 0; i < CONFIG_ROWS; i++) {
		const struct config_row *row = &config_rows[i];
		size_t n = strlen(row->section);

		if (row->flag && strcmp(row->flag, name) == 0)
			return row;
		if (strncmp(row->section, name, n) == 0 && name[n] == '.' &&
		    strcmp(row->key, name + n + 1) == 0)
			return row;
	}
	return NULL;
}

/* If the flag of a list was already given, puts the items of the earlier flags before those in
 * *v. Reports an error if there are too many items. */
static void append_to_list(struct config_reader *r, const struct config_row *row,
			   const struct config_place *at, struct config_value *v)
{
	struct config_value before;
	const unsigned id = (unsigned)(row - config_rows);

	if (row->type != CONFIG_LIST || r->given[id].from != CONFIG_FLAG)
		return;
	config_value_get(r->c, row, &before);
	if (before.list.count + v->list.count > CONFIG_LIST_MAX) {
		config_complain(r, at, "must be a list of at most %d items", CONFIG_LIST_MAX);
		return;
	}
	memcpy(before.list.item + before.list.count, v->list.item,
	       v->list.count * sizeof(v->list.item[0]));
	before.list.count += v->list.count;
	*v = before;
}

static void read_flag(struct config_reader *r, const struct config_flag *f)
{
	const struct config_row *row = find_flag(f->name);
	struct config_place at = { CONFIG_FLAG, NULL, 0, 0 };
	struct config_value v;
	char name[CONFIG_NAME_MAX];

	snprintf(name, sizeof(name), "%s%s", row && !row->flag ? "" : "--", f->name);
	at.name = name;
	if (!row) {
		config_complain(r, &at, "no such setting");
		return;
	}
	if (!config_value_text(r, row, &at, f->value ? f->value : "true", &v))
		return;
	append_to_list(r, row, &at, &v);
	config_value_set(r->c, row, &v);
	at.name = config_keep(r, name, strlen(name));
	r->given[row - config_rows] = at;
	r->m->place[row - config_rows] = at;
}

static void set_defaults(struct config_reader *r)
{
	struct config_value v;

	for (unsigned i = 0; i < CONFIG_ROWS; i++)
		if (config_value_standard(r, &config_rows[i], &v))
			config_value_set(r->c, &config_rows[i], &v);
}

static int config_begin(struct config_reader *r, struct config *c, struct config_faults *faults)
{
	*c = (struct config){ .memory = calloc(1, sizeof(struct config_memory)) };
	*r = (struct config_reader){ .c = c, .m = c->memory, .faults = faults };
	if (!r->m)
		config_fail(r, -GW_E_NOMEM, &nowhere, CONFIG_NO_MEMORY);
	else
		set_defaults(r);
	return r->m ? 0 : -GW_E_NOMEM;
}

/* Returns the position of the fault's file among the files that were read. A fault in the
 * environment, in an option or in a file that could not be read gets a position after all these
 * files. */
static unsigned fault_file(const struct config_memory *m, const struct config_fault *f)
{
	unsigned i = 0;

	while (i < m->files &&
	       (f->at.from != CONFIG_FILE || strcmp(m->file[i], f->at.name) != 0))
		i++;
	return i;
}

static bool fault_is_earlier(const struct config_memory *m, const struct config_fault *a,
			     const struct config_fault *b)
{
	const unsigned file = fault_file(m, a), other = fault_file(m, b);

	if (file != other || file == m->files)
		return file < other;
	if (a->at.line != b->at.line)
		return a->at.line < b->at.line;
	return a->at.column < b->at.column;
}

/* Sorts the faults by file, line and column, because the checks find them in another order.
 * Faults at the same place keep their order. */
static void sort_faults(const struct config_memory *m, struct config_faults *f)
{
	for (unsigned i = 1; i < f->count; i++)
		for (unsigned k = i; k && fault_is_earlier(m, &f->fault[k], &f->fault[k - 1]);
		     k--) {
			const struct config_fault later = f->fault[k - 1];

			f->fault[k - 1] = f->fault[k];
			f->fault[k] = later;
		}
}

int config_read(struct config *c, const char *path, const struct config_flag *flags, unsigned n,
		struct config_faults *faults)
{
	struct config_reader r;

	if (config_begin(&r, c, faults) != 0)
		return faults->err;
	config_files_read(&r, path);
	config_variables_read(&r);
	memset(r.given, 0, sizeof(r.given));
	for (unsigned i = 0; i < n; i++)
		read_flag(&r, &flags[i]);
	guard_config_profile(&r);
	config_check(&r);
	join_files(&r);
	sort_faults(r.m, faults);
	return faults->err;
}

int config_read_files(const struct config *c, struct config_faults *faults)
{
	struct config_reader r = { .c = (struct config *)(uintptr_t)c,
				   .m = c->memory,
				   .faults = faults };

	if (!r.m)
		return faults->err;
	config_check_files(&r);
	sort_faults(r.m, faults);
	return faults->err;
}

int config_read_text(struct config *c, const char *name, const char *text, size_t size,
		     struct config_faults *faults)
{
	struct config_reader r;

	if (config_begin(&r, c, faults) == 0) {
		config_file_text(&r, name, text, size);
		config_variables_read(&r);
		guard_config_profile(&r);
		config_check(&r);
	}
	return faults->err;
}

/* Writes the errors, or the warnings, one per line. If some lines do not fit, a last line
 * says how many. */
static void faults_to_lines(const struct config_faults *f, bool warnings, char *message,
			    size_t size)
{
	char text[8192], last[64];
	unsigned left = f->more;
	struct buf out, line;

	buf_init_fixed(&out, message, size);
	for (unsigned i = 0; i < f->count; i++) {
		if (f->fault[i].warning != warnings)
			continue;
		buf_init_fixed(&line, text, sizeof(text));
		config_fault_text(&line, &f->fault[i]);
		if (out.len + line.len + 2 + sizeof(last) < size)
			buf_addf(&out, "%s%s", out.len ? "\n" : "", line.p);
		else
			left++;
	}
	if (left) {
		snprintf(last, sizeof(last), "%sand %u more", out.len ? "\n" : "", left);
		buf_adds(&out, last);
	}
}

/* Writes the errors, or on success the warnings, as lines of text. Frees f, and after an error
 * also the contents of c. Returns the first error, or 0. */
static int end_load(struct config *c, struct config_faults *f, char *message, size_t size)
{
	int err = f->err;

	if (err)
		config_done(c);
	faults_to_lines(f, err == 0, message, size);
	config_faults_done(f);
	free(f);
	return err;
}

static int no_memory(struct config *c, char *message, size_t size)
{
	*c = (struct config){ 0 };
	snprintf(message, size, CONFIG_NO_MEMORY);
	return -GW_E_NOMEM;
}

int config_load(struct config *c, const char *path, const struct config_flag *flags, unsigned n,
		char *message, size_t size)
{
	struct config_faults *f = calloc(1, sizeof(*f));

	if (!f)
		return no_memory(c, message, size);
	config_read(c, path, flags, n, f);
	return end_load(c, f, message, size);
}

int config_load_text(struct config *c, const char *name, const char *text, size_t n,
		     char *message, size_t size)
{
	struct config_faults *f = calloc(1, sizeof(*f));

	if (!f)
		return no_memory(c, message, size);
	config_read_text(c, name, text, n, f);
	return end_load(c, f, message, size);
}

static void first_error(const struct config_faults *f, char *message, size_t size)
{
	struct buf b;
	unsigned i = 0;

	buf_init_fixed(&b, message, size);
	while (i < f->count && f->fault[i].warning)
		i++;
	if (i < f->count)
		config_fault_text(&b, &f->fault[i]);
	if (f->errors > 1)
		buf_addf(&b, " (and %u more)", f->errors - 1);
}

int config_load_rest(struct config *c, char *message, size_t size)
{
	struct config_faults *f = calloc(1, sizeof(*f));
	int err = no_memory(c, message, size);

	if (!f)
		return err;
	err = config_read(c, NULL, NULL, 0, f);
	if (err != -GW_E_NOMEM)
		first_error(f, message, size);
	else
		config_done(c);
	config_faults_done(f);
	free(f);
	return err;
}

const char *config_state_dir(const struct config *c, char *out, size_t size)
{
	const char *state = getenv("STATE_DIRECTORY"), *xdg = getenv("XDG_STATE_HOME"),
		   *home = getenv("HOME");

	if (c->guard_state_dir && *c->guard_state_dir)
		snprintf(out, size, "%s", c->guard_state_dir);
	else if (state && *state)
		snprintf(out, size, "%.*s", (int)strcspn(state, ":"), state);
	else if (xdg && *xdg == '/')
		snprintf(out, size, "%s/gpuward", xdg);
	else if (geteuid() == 0)
		snprintf(out, size, "/var/lib/gpuward");
	else if (home && *home == '/')
		snprintf(out, size, "%s/.local/state/gpuward", home);
	else
		return NULL;
	return out;
}

const char *config_store_path(const struct config *c, bool simulated, char *out, size_t size)
{
	char dir[4000];

	if (strcmp(c->history_path, "none") == 0)
		return NULL;
	if (strcmp(c->history_path, "auto") != 0) {
		snprintf(out, size, "%s", c->history_path);
		return out;
	}
	if (simulated && !(c->guard_state_dir && *c->guard_state_dir))
		return NULL; /* Simulated data must not be mixed with real data. */
	if (!config_state_dir(c, dir, sizeof(dir)))
		return NULL;
	snprintf(out, size, "%s/gpuward.db", dir);
	return out;
}

bool config_needs_restart(const struct config *a, const struct config *b)
{
	bool same =
		a->service_listen.count == b->service_listen.count &&
		strcmp(a->device_backend, b->device_backend) == 0 &&
		strcmp(a->history_path, b->history_path) == 0 &&
		text_same(a->guard_state_dir, b->guard_state_dir) &&
		a->history_limit == b->history_limit &&
		a->device_timeout == b->device_timeout &&
		a->device_enable_nvml == b->device_enable_nvml &&
		a->device_require_nvml == b->device_require_nvml &&
		text_same(a->device_nvml_library, b->device_nvml_library) &&
		text_same(a->workloads_hpc_job_mapping_dir, b->workloads_hpc_job_mapping_dir) &&
		text_same(a->service_unix_mode, b->service_unix_mode);

	for (unsigned i = 0; same && i < a->service_listen.count; i++)
		same = strcmp(a->service_listen.item[i], b->service_listen.item[i]) == 0;
	return !same;
}
