/* config: every setting of the service.
 *
 * config.def has one row per setting: section, key, type, default, flag, help. The rows
 * generate the struct below, the file reader (errors have file:line:column and a suggestion),
 * the environment variables, the flags of `gpuward serve`, `config print` and the table of
 * gpuward.toml(5). Later sources override earlier ones: defaults, /etc/gpuward/gpuward.toml,
 * /etc/gpuward/gpuward.d, the user's file, environment, flags. --config replaces all these
 * files. */
#ifndef GW_DAEMON_CONFIG_H
#define GW_DAEMON_CONFIG_H

#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONFIG_LIST_MAX 16

struct config_list {
	const char *item[CONFIG_LIST_MAX + 1]; /* The element after the last item is NULL. */
	unsigned count;
};

enum config_type {
	CONFIG_BOOL,   /* A bool. */
	CONFIG_COUNT,  /* A uint64_t in the range from least to most. */
	CONFIG_NUMBER, /* A double in the range from least to most. */
	/* A uint64_t in nanoseconds, written "1s" or as a number of seconds. */
	CONFIG_DURATION,
	CONFIG_BYTES,  /* A uint64_t in bytes, written "512MiB" or as a number. */
	CONFIG_TEXT,   /* A const char *, which is NULL if the text is empty. */
	CONFIG_CHOICE, /* A const char *, one of the words in the column choices. */
	CONFIG_LIST,   /* A struct config_list. */
};

/* The values of all settings. config.def generates the members; each is named section_key. */
struct config {
#define CONFIG_C_BOOL     bool
#define CONFIG_C_COUNT    uint64_t
#define CONFIG_C_NUMBER   double
#define CONFIG_C_DURATION uint64_t
#define CONFIG_C_BYTES    uint64_t
#define CONFIG_C_TEXT     const char *
#define CONFIG_C_CHOICE   const char *
#define CONFIG_C_LIST     struct config_list
#define O(section, key, type, standard, least, most, choices, flag, help) \
	CONFIG_C_##type section##_##key;
#include "config.def"
#undef O
	/* A struct config_memory with the strings and the origin of each value.
	 * config_done() frees it. */
	void *memory;
};

/* One flag of the command line. name is the flag in config.def, or "section.key" for a setting
 * that has no flag. value is the text that the user typed; for a BOOL, NULL means true. The
 * flag of a list may be given several times. */
struct config_flag {
	const char *name, *value;
};

/* Where a value or an error comes from. */
enum config_source { CONFIG_STANDARD, CONFIG_FILE, CONFIG_VARIABLE, CONFIG_FLAG };

struct config_place {
	enum config_source from;
	/* Name of the file, of the variable, or of the flag with its dashes. NULL if the
	 * value is a default. */
	const char *name;
	/* Position in the file, counted from 1. line is 0 if the place is the whole file. */
	unsigned line, column;
};

struct config_fault {
	struct config_place at;
	bool warning;
	char *text; /* A sentence without a full stop. */
};

/* Up to CONFIG_FAULTS errors and warnings. `more` is the number of those that did not fit. */
#define CONFIG_FAULTS 100
struct config_faults {
	struct config_fault fault[CONFIG_FAULTS];
	unsigned count, more, errors;
	int err; /* The code of the first error. config_read() returns it. */
};
void config_faults_done(struct config_faults *f);

/* Writes "file:line:column: sentence", "GPUWARD_LISTEN: sentence" or "--listen: sentence". */
void config_fault_text(struct buf *out, const struct config_fault *f);

/* Returns NULL if url is a valid address of a Prometheus server, or else a sentence that says
 * why url is invalid. */
const char *config_check_prometheus(const char *url);

/* Reads the whole configuration. path is the argument of --config; if path is NULL, the usual
 * files are read. faults gets every error and warning, sorted by file and line. The caller sets
 * faults to zero before the call and frees it with config_faults_done(). Call config_done()
 * even after an error. Returns 0, -GW_E_NOENT (path does not exist), -GW_E_PARSE (error in a
 * file), -GW_E_ARG (error in environment or flags), -GW_E_PERM, -GW_E_IO, -GW_E_SIZE or
 * -GW_E_NOMEM. */
int config_read(struct config *c, const char *path, const struct config_flag *flags, unsigned n,
		struct config_faults *faults);

/* Checks the files that the configuration names (token, certificates), and adds errors and
 * warnings to the faults that config_read() has found. May be called after config_read()
 * failed. A file that the service would refuse at its start is an error. A fault in a file that
 * is used only later, such as a hook, is a warning. Returns the same codes as config_read(). */
int config_read_files(const struct config *c, struct config_faults *faults);

/* Works like config_read(), but writes lines of text to message: the errors, or on success the
 * warnings or "". Example: "gpuward.toml:3:1: no such key \"lisen\"; did you mean \"listen\"?".
 * On failure c is empty and needs no config_done(). */
int config_load(struct config *c, const char *path, const struct config_flag *flags, unsigned n,
		char *message, size_t size);
/* Works like config_load(), but reads one text instead of all files. name appears in the
 * messages. */
int config_load_text(struct config *c, const char *name, const char *text, size_t n,
		     char *message, size_t size);
/* Reads the usual files as far as possible, for a command that needs only a part of the
 * configuration, such as the listen addresses. c gets the valid settings, even after an error;
 * only after -GW_E_NOMEM is c empty. Returns 0 or the first error. After an error, message has
 * the text of that error and the number of further errors. */
int config_load_rest(struct config *c, char *message, size_t size);
void config_done(struct config *c);

/* Writes the directory for the state of the service. This is guard.state_dir if it is set, else
 * the state directory that systemd sets, else the state directory of the user. Returns out, or
 * NULL if there is no such directory. */
const char *config_state_dir(const struct config *c, char *out, size_t size);
/* Writes the path of the database to out. Returns out, or NULL if the history is kept in
 * memory only. */
const char *config_store_path(const struct config *c, bool simulated, char *out, size_t size);
/* True if a and b differ in a setting that takes effect only when the service starts. */
bool config_needs_restart(const struct config *a, const struct config *b);

/* Writes a commented TOML file that gives the same values when it is read. If origin is true, a
 * comment says where each value comes from. */
void config_print(struct buf *out, const struct config *c, bool origin);
/* Works like config_print(), but writes defaults as comments, so that a user can start from
 * this file. If a default were written as a value, a profile could not change it. */
void config_print_example(struct buf *out, const struct config *c);

/* Writes the values (durations in seconds) and their origins as members of the open object. */
void config_json(struct json *j, const struct config *c);

/* Returns the names of the files that were read, joined by ", ", for a log line. Returns ""
 * if there are none. */
const char *config_files(const struct config *c);
/* Returns the name of file i, or NULL after the last file. */
const char *config_file(const struct config *c, unsigned i);

#endif
