/* config_read: what the parts of the reader share.
 *
 * config.c goes through the layers and keeps what was found; config_file.c knows files and where
 * they lie, config_given.c the environment and flags; config_value.c and config_number.c know types,
 * config_check.c what values mean together; config_print.c goes the way back.  guard_config*.c do all
 * that for the guard's tables. */
#ifndef GW_DAEMON_CONFIG_READ_H
#define GW_DAEMON_CONFIG_READ_H

#include "config.h"

#include "base/toml.h"

enum config_id {
#define O(section, key, type, standard, least, most, choices, flag, help) \
	CONFIG_ID_##section##_##key,
#include "config.def"
#undef O
	CONFIG_ROWS,
};

#define CONFIG_DEFAULTS "guard.defaults"

struct config_row {
	const char *section, *key;
	enum config_type type;
	const char *standard;
	double least, most; /* seconds, bytes or what it counts */
	const char *choices, *flag, *help;
	size_t offset; /* in struct config */
};
extern const struct config_row config_rows[CONFIG_ROWS];

/* What struct config.memory is. */
#define CONFIG_FILES_MAX 64
struct config_memory {
	struct config_text *texts;
	struct config_place place[CONFIG_ROWS];
	const char *file[CONFIG_FILES_MAX + 1];
	unsigned files;
	const char *joined;
	struct guard_entry
		*entries; /* [[worker]], [[rule]], [[schedule]]; guard_config_read.h */
};

/* One reading under way. */
struct config_reader {
	struct config *c;
	struct config_memory *m;
	struct config_faults *faults;
	struct config_place given[CONFIG_ROWS]; /* in the file or the flags at hand */
	bool bad[CONFIG_ROWS]; /* was refused: what it stands at means nothing */
};

/* A copy that lives as long as the configuration; NULL, having complained, without memory. */
const char *config_keep(struct config_reader *r, const char *s, size_t n);

void config_complain(struct config_reader *r, const struct config_place *at, const char *fmt,
		     ...) __attribute__((format(printf, 3, 4)));
void config_warn(struct config_reader *r, const struct config_place *at, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Without a place, or with a code of its own. */
void config_fail(struct config_reader *r, int err, const struct config_place *at,
		 const char *sentence);

/* "; did you mean \"word\"?", or "" where word is NULL. */
#define CONFIG_MEANT_MAX 100
const char *config_meant(const char *word, char out[static CONFIG_MEANT_MAX]);

/* As config_read(), of one file's text alone: no environment, no flags.  name outlives c. */
int config_read_text(struct config *c, const char *name, const char *text, size_t size,
		     struct config_faults *faults);

/* ---- config_value.c ---- */
struct config_value {
	bool yes;
	uint64_t count; /* COUNT, DURATION (ns), BYTES */
	double number;
	const char *text;
	struct config_list list;
};

/* false having complained. */
bool config_value_node(struct config_reader *r, const struct config_row *row,
		       const struct config_place *at, const struct toml_node *n,
		       struct config_value *ret);
bool config_value_text(struct config_reader *r, const struct config_row *row,
		       const struct config_place *at, const char *text,
		       struct config_value *ret);
bool config_value_standard(struct config_reader *r, const struct config_row *row,
			   struct config_value *ret);

/* ---- config_number.c ---- */
/* In the unit of least and most; false: it is none. */
bool config_number_read(const struct config_row *row, const char *text, double *ret);
/* Likewise, as a person would write it. */
void config_number_show(const struct config_row *row, double v, char *out, size_t size);
/* Nanoseconds or bytes as a whole number of the largest unit. */
void config_number_print(struct buf *out, const struct config_row *row, uint64_t v);

/* ---- config_print.c ---- */
void config_value_set(struct config *c, const struct config_row *row,
		      const struct config_value *v);
void config_value_get(const struct config *c, const struct config_row *row,
		      struct config_value *ret);
bool config_value_same(const struct config_row *row, const struct config_value *a,
		       const struct config_value *b);

void config_value_json(struct json *j, const char *key, const struct config_row *row,
		       const struct config_value *v);
/* "  # file:line:column" */
void config_origin_print(struct buf *out, const struct config_place *p);
void config_origin_json(struct json *j, const char *key, const struct config_place *p);

/* As TOML that reads back to the same. */
void config_value_print(struct buf *out, const struct config_row *row,
			const struct config_value *v);

/* ---- config_file.c ---- */
/* The usual places, or path alone. */
void config_files_read(struct config_reader *r, const char *path);
/* A key as it may be shown, cut. */
#define CONFIG_SHOWN_MAX 64
const char *config_key_shown(const struct toml_node *n, char out[static CONFIG_SHOWN_MAX]);
/* Where a key would be right: "[manage], [health] or [capacity]"; false: nowhere. */
#define CONFIG_SECTIONS_MAX 200
bool config_sections(const struct toml_node *n, char out[static CONFIG_SECTIONS_MAX]);
/* The text of a file; name for the faults, and lives as long as the configuration. */
void config_file_text(struct config_reader *r, const char *name, const char *text, size_t size);

/* ---- config_given.c ---- */
/* GPUWARD_LISTEN, GPUWARD_LOG_LEVEL. */
#define CONFIG_NAME_MAX 80
void config_variable(const struct config_row *row, char out[static CONFIG_NAME_MAX]);
void config_variables_read(struct config_reader *r);
void config_flags_read(struct config_reader *r, const struct config_flag *flags, unsigned n);

/* ---- guard_config*.c ---- */
/* Is it one of the guard's arrays?  Then all of it is read. */
bool guard_config_array(struct config_reader *r, const char *file, const struct toml_node *n);
/* As config_meant(), of the nearest of these arrays. */
const char *guard_config_meant(const char *name, char out[static CONFIG_MEANT_MAX]);
/* What the profile says, where nobody said anything. */
void guard_config_profile(struct config_reader *r);
void guard_config_check(struct config_reader *r);
void guard_config_print(struct buf *out, const struct config_memory *m, bool origin);
void guard_config_json(struct json *j, const struct config_memory *m);
void guard_config_free(struct config_memory *m);

/* ---- config_check.c ---- */
/* What the values mean together. */
void config_check(struct config_reader *r);
/* The files that they name. */
void config_check_files(struct config_reader *r);
void guard_config_check_files(struct config_reader *r);
/* Is it HOST:PORT, [IPV6]:PORT or unix:PATH?  NULL, or what is wrong with it. */
const char *config_check_address(const char *text);

#endif
