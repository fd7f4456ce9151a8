/* config: every setting of the service, once.
 *
 * config.def has a row for each: section, key, type, default, what it is called in the environment
 * and on the command line, help.  Made of it: the struct below, the reader of the file (which refuses
 * with file:line:column and a suggestion), the environment, the flags of `gpuward serve`, `config
 * print`, and the table of gpuward.toml(5).  Later wins: defaults, /etc/gpuward/gpuward.toml, what
 * is in /etc/gpuward/gpuward.d, the user's file (--config stands in place of all these files),
 * environment, flags. */
#ifndef GW_DAEMON_CONFIG_H
#define GW_DAEMON_CONFIG_H

#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONFIG_LIST_MAX 16

struct config_list {
	const char *item[CONFIG_LIST_MAX + 1]; /* ends with NULL */
	unsigned count;
};

enum config_type {
	CONFIG_BOOL,     /* bool */
	CONFIG_COUNT,    /* uint64_t, with least and most */
	CONFIG_NUMBER,   /* double, likewise */
	CONFIG_DURATION, /* uint64_t ns: "1s", or a number of seconds */
	CONFIG_BYTES,    /* uint64_t: "512MiB", or a number */
	CONFIG_TEXT,     /* const char *, NULL when empty */
	CONFIG_CHOICE,   /* const char *, one of a list */
	CONFIG_LIST,     /* struct config_list */
};

/* Members are named section_key; generated from config.def. */
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
	void *memory; /* all texts, and where each value came from; config_done() */
};

/* A flag of the command line: name as in the table, value as typed (a BOOL: NULL is true).  A list
 * may be given again.  A name "section.key" is a setting without a flag of its own. */
struct config_flag {
	const char *name, *value;
};

/* Something wrong, or worth a warning, and where it stands. */
enum config_source { CONFIG_STANDARD, CONFIG_FILE, CONFIG_VARIABLE, CONFIG_FLAG };

struct config_place {
	enum config_source from;
	const char *name; /* the file, the variable, the flag with its dashes; NULL: standard */
	unsigned line, column; /* of a file, from 1; 0: the whole file */
};

struct config_fault {
	struct config_place at;
	bool warning;
	char *text; /* a sentence without full stop */
};

/* All that was found, up to CONFIG_FAULTS; the rest is counted. */
#define CONFIG_FAULTS 100
struct config_faults {
	struct config_fault fault[CONFIG_FAULTS];
	unsigned count, more, errors;
	int err; /* of the first error: what config_read() returns */
};
void config_faults_done(struct config_faults *f);

/* "file:line:column: sentence", "GPUWARD_LISTEN: sentence", "--listen: sentence". */
void config_fault_text(struct buf *out, const struct config_fault *f);

/* Reads everything.  path: of --config, NULL: the usual places.  0, -GW_E_NOENT (path is not there),
 * -GW_E_PARSE (a file), -GW_E_ARG (environment, flags), -GW_E_PERM, -GW_E_IO, -GW_E_SIZE or
 * -GW_E_NOMEM; faults (zeroed by the caller, ended with config_faults_done()) hold every error, and
 * warnings on success too.  config_done() in any case: a failure leaves the files that were read. */
int config_read(struct config *c, const char *path, const struct config_flag *flags, unsigned n,
		struct config_faults *faults);

/* Are the files that a configuration names there, and can they be used?  Of one that was read without error; what the service
 * would refuse is an error, what it finds out later a warning.  As config_read(). */
int config_read_files(const struct config *c, struct config_faults *faults);

/* The same with the faults as lines of text: the errors, or on success the warnings or ""
 * ("gpuward.toml:3:1: no such key \"lisen\"; did you mean \"listen\"?").  On failure c is empty and
 * needs no config_done(). */
int config_load(struct config *c, const char *path, const struct config_flag *flags, unsigned n,
		char *message, size_t size);
/* For a command that wants a part of it, such as where the service listens, while the service runs on with what it read
 * before: files in their usual places, each as far as it can be read.  0, or the error of the first mistake with its
 * place and sentence, and how many more there are; c has the rest then, and is empty after -GW_E_NOMEM alone. */
int config_load_rest(struct config *c, char *message, size_t size);
void config_done(struct config *c);

/* As a commented TOML file, which reads back to the same values; origin: beside each value where
 * it came from. */
void config_print(struct buf *out, const struct config *c, bool origin);
/* Likewise, with what nobody set as a comment: a file to begin with.  A default that is written down would
 * keep a profile from setting it. */
void config_print_example(struct buf *out, const struct config *c);

/* As members of the object that is open: values (durations in seconds) and origins. */
void config_json(struct json *j, const struct config *c);

/* Files that were read, for a log line: joined by ", ", or "". */
const char *config_files(const struct config *c);
/* One by one; NULL past the last. */
const char *config_file(const struct config *c, unsigned i);

#endif
