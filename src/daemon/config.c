/* Reads the configuration: defaults, files, environment, flags; collects the errors. */
#include "config_read.h"

#include <gpuward.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- faults ---- */

/* Error texts quote values: control characters would start new lines or reach the terminal. */
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
	char text[600];
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

void config_fault_text(struct buf *out, const struct config_fault *f)
{
	if (f->at.name)
		buf_adds(out, f->at.name);
	if (f->at.line)
		buf_addf(out, ":%u:%u", f->at.line, f->at.column);
	buf_addf(out, "%s%s%s", f->at.name ? ": " : "", f->warning ? "warning: " : "", f->text);
}

/* ---- memory ---- */

const char *config_keep(struct config_reader *r, const char *s, size_t n)
{
	const struct config_place nowhere = { CONFIG_STANDARD, NULL, 0, 0 };
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
	const struct config_place nowhere = { CONFIG_STANDARD, NULL, 0, 0 };
	struct buf b;

	buf_init(&b, (size_t)1 << 20);
	for (unsigned i = 0; i < r->m->files; i++)
		buf_addf(&b, "%s%s", i ? ", " : "", r->m->file[i]);
	if (b.err)
		config_fail(r, b.err, &nowhere, CONFIG_NO_MEMORY);
	r->m->joined = config_keep(r, b.p, b.len);
	buf_done(&b);
}

/* ---- reading ---- */

static void set_defaults(struct config_reader *r)
{
	struct config_value v;

	for (unsigned i = 0; i < CONFIG_ROWS; i++)
		if (config_value_standard(r, &config_rows[i], &v))
			config_value_set(r->c, &config_rows[i], &v);
}

static int config_begin(struct config_reader *r, struct config *c, struct config_faults *faults)
{
	const struct config_place nowhere = { CONFIG_STANDARD, NULL, 0, 0 };

	*c = (struct config){ .memory = calloc(1, sizeof(struct config_memory)) };
	*r = (struct config_reader){ .c = c, .m = c->memory, .faults = faults };
	if (!r->m)
		config_fail(r, -GW_E_NOMEM, &nowhere, CONFIG_NO_MEMORY);
	else
		set_defaults(r);
	return r->m ? 0 : -GW_E_NOMEM;
}

int config_read(struct config *c, const char *path, const struct config_flag *flags, unsigned n,
		struct config_faults *faults)
{
	struct config_reader r;

	if (config_begin(&r, c, faults) != 0)
		return faults->err;
	config_files_read(&r, path);
	config_variables_read(&r);
	config_flags_read(&r, flags, n);
	guard_config_profile(&r);
	config_check(&r);
	join_files(&r);
	return faults->err;
}

int config_read_files(const struct config *c, struct config_faults *faults)
{
	struct config_reader r = { .c = (struct config *)(uintptr_t)c,
				   .m = c->memory,
				   .faults = faults };

	config_check_files(&r);
	return faults->err;
}

int config_read_text(struct config *c, const char *name, const char *text, size_t size,
		     struct config_faults *faults)
{
	struct config_reader r;

	if (config_begin(&r, c, faults) == 0) {
		config_file_text(&r, name, text, size);
		guard_config_profile(&r);
		config_check(&r);
	}
	return faults->err;
}

/* Writes whole lines; counts those that do not fit. */
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

int config_load(struct config *c, const char *path, const struct config_flag *flags, unsigned n,
		char *message, size_t size)
{
	struct config_faults *f = calloc(1, sizeof(*f));
	int err;

	if (!f) {
		*c = (struct config){ 0 };
		snprintf(message, size, CONFIG_NO_MEMORY);
		return -GW_E_NOMEM;
	}
	err = config_read(c, path, flags, n, f);
	if (err)
		config_done(c);
	faults_to_lines(f, err == 0, message, size);
	config_faults_done(f);
	free(f);
	return err;
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
	int err = -GW_E_NOMEM;

	*c = (struct config){ 0 };
	snprintf(message, size, CONFIG_NO_MEMORY);
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
