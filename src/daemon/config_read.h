/* config_read: shared by the files of the configuration reader.
 *
 * config.c reads the sources one after the other and stores strings and errors. config_file.c
 * reads files, config_value.c converts values, config_check.c checks the values together,
 * config_print.c writes them. guard_config*.c do the same for the guard's tables. */
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
	/* The allowed range, in seconds (DURATION), in bytes (BYTES) or without a unit. */
	double least, most;
	const char *choices, *flag, *help;
	size_t offset; /* Offset of the member in struct config. */
};
extern const struct config_row config_rows[CONFIG_ROWS];

/* The object to which struct config.memory points. */
#define CONFIG_FILES_MAX 64
struct config_memory {
	struct config_text *texts;
	struct config_place place[CONFIG_ROWS];
	const char *file[CONFIG_FILES_MAX + 1];
	unsigned files;
	const char *joined; /* The names of all files in one string, for config_files(). */
	/* The entries of [[worker]], [[rule]] and [[schedule]]; see guard_config_read.h. */
	struct guard_entry *entries;
};

/* State of one config_read(). */
struct config_reader {
	struct config *c;
	struct config_memory *m;
	struct config_faults *faults;
	/* For each setting, the place in the current file, or the flag, that set the
	 * setting. */
	struct config_place given[CONFIG_ROWS];
	/* True if the last value of the setting was refused. struct config then still has the
	 * value that the setting had before, and a check must not use it. */
	bool bad[CONFIG_ROWS];
};

/* True if the last values of both settings were valid. If a value was refused, struct config
 * still has the previous value of the setting, and a check of that value would report a
 * misleading error. */
static inline bool config_both_valid(const struct config_reader *r, enum config_id a,
				     enum config_id b)
{
	return !r->bad[a] && !r->bad[b];
}

/* Copies a string for the lifetime of the configuration. Returns NULL and reports an error if
 * out of memory. */
const char *config_keep(struct config_reader *r, const char *s, size_t n);

void config_complain(struct config_reader *r, const struct config_place *at, const char *fmt,
		     ...) __attribute__((format(printf, 3, 4)));
void config_warn(struct config_reader *r, const struct config_place *at, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Works like config_complain(), with the given error code. */
void config_fail(struct config_reader *r, int err, const struct config_place *at,
		 const char *sentence);

/* Writes "; did you mean \"word\"?", or "" if word is NULL. */
#define CONFIG_MEANT_MAX 100
const char *config_meant(const char *word, char out[static CONFIG_MEANT_MAX]);

/* Works like config_read(), but reads the text of one file instead of all files, and no flags.
 * name must outlive c. */
int config_read_text(struct config *c, const char *name, const char *text, size_t size,
		     struct config_faults *faults);

struct config_value {
	bool yes;
	uint64_t count; /* Value of a COUNT, a DURATION (in nanoseconds) or BYTES. */
	double number;
	const char *text;
	struct config_list list;
};

/* These functions convert a TOML value, a string, or the row's default. If the value is
 * invalid, they report an error and return false. */
bool config_value_node(struct config_reader *r, const struct config_row *row,
		       const struct config_place *at, const struct toml_node *n,
		       struct config_value *ret);
bool config_value_text(struct config_reader *r, const struct config_row *row,
		       const struct config_place *at, const char *text,
		       struct config_value *ret);
bool config_value_standard(struct config_reader *r, const struct config_row *row,
			   struct config_value *ret);

/* Writes nanoseconds or bytes in the largest unit that gives a whole number. */
void config_number_print(struct buf *out, const struct config_row *row, uint64_t v);

void config_value_set(struct config *c, const struct config_row *row,
		      const struct config_value *v);
void config_value_get(const struct config *c, const struct config_row *row,
		      struct config_value *ret);
bool config_value_same(const struct config_row *row, const struct config_value *a,
		       const struct config_value *b);

/* Writes the value as TOML that gives the same value when it is read. */
void config_value_print(struct buf *out, const struct config_row *row,
			const struct config_value *v);

/* Reads the usual files. If path is not NULL, reads only the file at path. */
void config_files_read(struct config_reader *r, const char *path);
/* Writes a key for an error message, truncated and without control characters. */
#define CONFIG_SHOWN_MAX 64
const char *config_key_shown(const struct toml_node *n, char out[static CONFIG_SHOWN_MAX]);
/* Writes the sections that have this key: "[manage], [health] or [capacity]". Returns false if
 * there is none. */
#define CONFIG_SECTIONS_MAX 200
bool config_sections(const struct toml_node *n, char out[static CONFIG_SECTIONS_MAX]);
/* Reads the text of a file. name is for error messages and must outlive the configuration. */
void config_file_text(struct config_reader *r, const char *name, const char *text, size_t size);

/* Reads n if it is one of the guard's arrays; otherwise returns false. */
bool guard_config_array(struct config_reader *r, const char *file, const struct toml_node *n);
/* Suggests the most similar name of the guard's arrays, in the format of config_meant(). */
const char *guard_config_meant(const char *name, char out[static CONFIG_MEANT_MAX]);
/* Applies the profile to the settings that no source sets. */
void guard_config_profile(struct config_reader *r);
void guard_config_check(struct config_reader *r);
void guard_config_free(struct config_memory *m);

/* Checks values that depend on each other. */
void config_check(struct config_reader *r);
/* Checks the files that the settings name. */
void config_check_files(struct config_reader *r);
void guard_config_check_files(struct config_reader *r);
/* Checks an address of the form HOST:PORT, [IPV6]:PORT or unix:PATH. Returns NULL if the
 * address is valid, or else a text that says what is wrong. */
const char *config_check_address(const char *text);

#endif
