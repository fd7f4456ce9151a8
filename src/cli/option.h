/* option: parses the command line. A table has one row per option; parsing, help texts,
 * defaults and suggestions ("did you mean") come from this row.
 *
 * Two tables are parsed together: the options of all commands and the options of one command.
 * Each table has its own struct for the values. */
#ifndef GW_CLI_OPTION_H
#define GW_CLI_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum option_type {
	OPTION_FLAG, /* bool: true if the option is given */
	OPTION_TEXT, /* const char *: any text */
	/* const char *: the value is optional and must follow '='; without it, `fallback` */
	OPTION_OPTIONAL,
	/* uint64_t, nanoseconds: "100ms", "5s", "2m", "1h", or a number of seconds */
	OPTION_DURATION,
	OPTION_CHOICE, /* const char *: one of `choices`                              */
	/* struct option_list: the option can be repeated, and commas separate several values */
	OPTION_LIST,
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
	char letter;      /* 'j' for the short option -j; 0: no short option */
	enum option_type type;
	size_t offset; /* offset of the value in the target struct */
	/* Word that stands for the value in the help, such as "FILE". NULL: the option has no
	 * value. */
	const char *metavar;
	const char *help;           /* description, without full stop */
	const char *const *choices; /* allowed words of an OPTION_CHOICE; ends with NULL */
	const char *fallback;       /* value of an OPTION_OPTIONAL that has no "=VALUE" */
	/* For OPTION_COUNT: the allowed range, and the default in `otherwise`. NAN: there is no
	 * default. */
	double least, most, otherwise;
	/* Returns allowed word number i of an OPTION_LIST, or NULL after the last. Only shell
	 * completion calls this function. The member `word` is NULL if every word is
	 * allowed. */
	const char *(*word)(unsigned i);
};

/* One row of a table of options. The macros below are for the types that need more data. */
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
/* A row for an OPTION_LIST; `word` is the function in struct option. */
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

/* A table of options, and the struct that receives the values. */
struct option_table {
	const struct option *options; /* NULL ends an array of tables */
	void *target;
};

/* Writes the defaults of OPTION_COUNT and OPTION_CELSIUS into target. All other options have
 * the default 0, which the caller must have set. */
void option_defaults(const struct option *table, void *target);

/* Parses argv[1] and the following words into the targets, and removes the options from argv.
 * Afterwards argv[1] to argv[*argc - 1] are the arguments, including all words after "--". If
 * `ahead` is set, parsing stops at the first argument, because the options after it belong to
 * another program. Returns 0, or -1 with a sentence in error. */
int option_parse(int *argc, char **argv, const struct option_table *tables, bool ahead,
		 char *error, size_t size);

/* Returns true if the value of the option in target differs from its default. */
bool option_given(const struct option *o, const void *target);

/* Writes the options that the user gave to out, in the form that config_load() needs. Writes at
 * most max entries and returns their number. The options must be flags, texts or lists; a list
 * makes one entry per item. The values point into target. */
struct config_flag;
unsigned option_config_flags(const struct option *table, const void *target,
			     struct config_flag *out, unsigned max);

/* Returns the first OPTION_OPTIONAL that was given without a value, or NULL. This function is
 * for the error message about an unexpected argument: perhaps the user wanted to give the
 * argument as the value of this option. */
const struct option *option_without_value(const struct option_table *tables);

/* Prints the help of all options of a table, wrapped at width. */
void option_help(const struct option *table, unsigned width);

/* Parses "100ms", "1.5s", "2m", "1h" or "3" (seconds).  Returns 0 or -1. */
int option_duration(const char *text, uint64_t *ret_ns);

#endif
