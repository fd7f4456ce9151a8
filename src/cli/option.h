/* option: parses options, prints their help and suggests similar names ("did you mean"), all
 * from one table row per option.
 *
 * Several tables can be parsed at once, each into its own struct: one has the options common to
 * all commands, another those of the command. */
#ifndef GW_CLI_OPTION_H
#define GW_CLI_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum option_type {
	OPTION_FLAG,     /* bool                                                        */
	OPTION_TEXT,     /* const char *                                                */
	OPTION_OPTIONAL, /* const char *: value only after '='; without a value: `fallback` */
	OPTION_DURATION, /* uint64_t ns: "100ms", "5s", "2m", "1h", a number is seconds */
	OPTION_CHOICE,   /* const char *: one of `choices`                              */
	OPTION_LIST, /* struct option_list: repeated option, or values separated by commas */
	/* double: a whole number from `least` to `most`; `otherwise` if the option is not
	 * given */
	OPTION_COUNT,
	/* double: degrees Celsius from 0 to 120; NAN if the option is not given */
	OPTION_CELSIUS,
};

#define OPTION_LIST_MAX 64
struct option_list {
	const char *item[OPTION_LIST_MAX + 1]; /* ends with NULL */
	unsigned count;
	char text[4096];
	size_t used;
};

struct option {
	const char *name; /* without the dashes; NULL ends a table */
	char letter;      /* the short option, such as 'j' for -j; 0: there is none */
	enum option_type type;
	size_t offset; /* offset of the value in the target struct */
	const char
		*metavar; /* word for the value in the help, such as "FILE"; NULL: no value */
	const char *help; /* description, without full stop */
	const char *const *choices;    /* allowed words of an OPTION_CHOICE; ends with NULL */
	const char *fallback;          /* value of an OPTION_OPTIONAL that has no "=VALUE" */
	double least, most, otherwise; /* for OPTION_COUNT; otherwise NAN: no default */
	/* Returns word i of the words that an OPTION_LIST may contain, or NULL after the last;
	 * used for completion. word NULL: the words are unknown. */
	const char *(*word)(unsigned i);
};

/* One row of a table of options.  The macros below are for types that need more data. */
#define OPTION_ROW(type, letter, name, offset, metavar, help)                                 \
	{                                                                                     \
		name, letter, OPTION_##type, offset, metavar, help, NULL, NULL, 0, 0, 0, NULL \
	}
#define OPTION_CHOICE_ROW(letter, name, offset, metavar, help, choices)                     \
	{                                                                                   \
		name, letter, OPTION_CHOICE, offset, metavar, help, choices, NULL, 0, 0, 0, \
			NULL                                                                \
	}
#define OPTION_OPTIONAL_ROW(letter, name, offset, metavar, help, fallback)                     \
	{                                                                                      \
		name, letter, OPTION_OPTIONAL, offset, metavar, help, NULL, fallback, 0, 0, 0, \
			NULL                                                                   \
	}
/* A row for an OPTION_LIST. word has the same meaning as in struct option. */
#define OPTION_WORDS_ROW(letter, name, offset, metavar, help, word)                         \
	{                                                                                   \
		name, letter, OPTION_LIST, offset, metavar, help, NULL, NULL, 0, 0, 0, word \
	}
/* A row for an OPTION_COUNT.  option_help() adds the default (`otherwise`) to the help text. */
#define OPTION_COUNT_ROW(name, offset, help, least, most, otherwise)                          \
	{                                                                                     \
		name, 0, OPTION_COUNT, offset, "N", help, NULL, NULL, least, most, otherwise, \
			NULL                                                                  \
	}
#define OPTION_END           \
	{                    \
		.name = NULL \
	}

/* A table, and the struct that its offsets refer to. */
struct option_table {
	const struct option *options; /* NULL ends an array of tables */
	void *target;
};

/* Writes the default values that are not zero into target. */
void option_defaults(const struct option *table, void *target);

/* Parses argv[1..] into the targets. Afterwards argv[1..] has only the arguments and everything
 * after "--", and *argc is their count. ahead: parsing stops at the first argument, because the
 * rest belongs to another command. Returns 0, or -1 with a sentence in error. */
int option_parse(int *argc, char **argv, const struct option_table *tables, bool ahead,
		 char *error, size_t size);

/* Returns true if the option was given.  target is the struct that its offset refers to. */
bool option_given(const struct option *o, const void *target);

/* Writes the given options for config_load(), at most max, and returns their number.  The options
 * must be flags, texts or lists; a list has one entry per item.  The values point into
 * target. */
struct config_flag;
unsigned option_config_flags(const struct option *table, const void *target,
			     struct config_flag *out, unsigned max);

/* Returns the first OPTION_OPTIONAL that was given without a value, or NULL. If there is an
 * unexpected argument, it was perhaps meant as the value of this option. */
const struct option *option_without_value(const struct option_table *tables);

/* Prints the options of one table, wrapped at width. */
void option_help(const struct option *table, unsigned width);

/* Parses "100ms", "1.5s", "2m", "1h" or "3" (seconds).  Returns 0 or -1. */
int option_duration(const char *text, uint64_t *ret_ns);

#endif
