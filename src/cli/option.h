/* option: one row an option gives parsing, help and the "did you mean".
 *
 * Several tables can be parsed at once, each into its own struct: the options common to all
 * commands and those of the command. */
#ifndef GW_CLI_OPTION_H
#define GW_CLI_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum option_type {
	OPTION_FLAG,     /* bool                                                        */
	OPTION_TEXT,     /* const char *                                                */
	OPTION_OPTIONAL, /* const char *: the value only after '=', else `fallback`     */
	OPTION_DURATION, /* uint64_t ns: "100ms", "5s", "2m", "1h", a number is seconds */
	OPTION_CHOICE,   /* const char *: one of `choices`                              */
	OPTION_LIST,     /* struct option_list: may be given again, or with commas      */
};

#define OPTION_LIST_MAX 64
struct option_list {
	const char *item[OPTION_LIST_MAX];
	unsigned count;
	char text[4096];
	size_t used;
};

struct option {
	const char *name; /* without the dashes; NULL ends a table */
	char letter;      /* 0: none                               */
	enum option_type type;
	size_t offset; /* of the target in the struct           */
	const char *metavar;
	const char *help;
	const char *const *choices; /* NULL-terminated             */
	const char *fallback;
};

/* A table and the struct that its offsets are of. */
struct option_table {
	const struct option *options; /* NULL ends an array of tables */
	void *target;
};

/* Parses argv[1..] into the targets.  Words that are no options, and all that stand after "--",
 * are left in argv[1..], counted by *argc.  ahead: the first word that is no option ends them
 * too, and what follows it is left as it is: it is a command's.  0, or -1 with a sentence in
 * error. */
int option_parse(int *argc, char **argv, const struct option_table *tables, bool ahead,
		 char *error, size_t size);

/* Was it given?  target is the struct that its offset is of. */
bool option_given(const struct option *o, const void *target);

/* The first OPTION_OPTIONAL that was given without a value, else NULL: a word that nobody
 * expects was perhaps meant for it. */
const struct option *option_without_value(const struct option_table *tables);

/* " -i, --interval TIME text", wrapped at width, for one table. */
void option_help(const struct option *table, unsigned width);

/* "100ms", "1.5s", "2m", "1h", "3" (seconds).  0 or -1. */
int option_duration(const char *text, uint64_t *ret_ns);

#endif
