/* config: every setting of the service, once.
 *
 * config.def has a row for each: section, key, type, default, what it is called in the environment
 * and on the command line, help.  Made of it: the struct below, the reader of the file (which refuses
 * with file:line:column and a suggestion), the environment, the flags of `gpuward serve`, `config
 * print`, and the table of gpuward.toml(5).  Later wins: defaults, /etc/gpuward/gpuward.toml, the
 * user's file, --config (in place of both), environment, flags. */
#ifndef GW_DAEMON_CONFIG_H
#define GW_DAEMON_CONFIG_H

#include "base/buf.h"

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
#define CONFIG_C_BOOL bool
#define CONFIG_C_COUNT uint64_t
#define CONFIG_C_NUMBER double
#define CONFIG_C_DURATION uint64_t
#define CONFIG_C_BYTES uint64_t
#define CONFIG_C_TEXT const char *
#define CONFIG_C_CHOICE const char *
#define CONFIG_C_LIST struct config_list
#define O(section, key, type, standard, least, most, choices, flag, help) \
	CONFIG_C_##type section##_##key;
#include "config.def"
#undef O
	void *memory; /* all texts; config_done() */
};

/* A flag of the command line: name as in the table, value as typed. */
struct config_flag {
	const char *name, *value;
};

/* Reads everything.  path: of --config, NULL: the usual places.  0, -GW_E_NOENT (path is not there),
 * -GW_E_PARSE, -GW_E_ARG or -GW_E_NOMEM; then message holds one or several lines
 * ("gpuward.toml:3:1: no such key \"lisen\"; did you mean \"listen\"?").  On success message holds
 * warnings, or "". */
int config_load(struct config *c, const char *path, const struct config_flag *flags, unsigned n,
		char *message, size_t size);
void config_done(struct config *c);

/* As a commented TOML file; origin: beside each value where it came from. */
void config_print(struct buf *out, const struct config *c, bool origin);

/* Files that were read, for a log line: joined by ", ", or "". */
const char *config_files(const struct config *c);

#endif
