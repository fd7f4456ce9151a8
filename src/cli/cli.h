/* cli: what the commands share: options, opening the GPUs, choosing among them, and ending.
 *
 * The command line is the library's first customer: it sees GPUs through gpuward.h alone. */
#ifndef GW_CLI_CLI_H
#define GW_CLI_CLI_H

#include "option.h"
#include "term.h"
#include "serve/render.h"

#include <gpuward.h>

enum exit_code {
	EXIT_OK = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = 2,
	EXIT_NO_GPU = 3,   /* none where one was needed, or its driver is broken */
	EXIT_PARTIAL = 4,  /* some GPU failed                                    */
	EXIT_SHARED = 13,  /* somebody else was on a GPU that had to be ours     */
	EXIT_NO_ROOM = 14, /* not as much memory of a GPU as was asked for      */
};

struct command;

struct cli {
	const struct command *command;
	bool help, version, json, quiet, verbose, wake;
	const char *color, *backend, *nvml_library, *simulate, *root;
	uint64_t timeout_ns;
	struct option_list gpu;
	bool pipe_ignored; /* SIGPIPE was when the program was started */
	void *own; /* the command's own options: `options_size` bytes, zero where not given */
	char **words; /* the command line as it came; ends with NULL */
	int argc;     /* the words that are no options, when the command takes any */
	char **argv;
	/* filled by cli_open() */
	struct gw_ctx *ctx;
	struct gw_snapshot *snap;
	struct render_filter filter;
};

struct command {
	const char *name;
	const char *summary;          /* for the list of commands, one line       */
	const char *description;      /* for its --help                           */
	const char *examples;         /* lines, indented                          */
	const char *arguments;        /* for the usage line, "RESULT..."; NULL: takes none */
	const struct option *options; /* offsets into the command's own struct ... */
	size_t options_size;          /* ... of this size, reached through cli.own */
	bool offline;                 /* asks no GPU: what is about GPUs means nothing to it */
	bool names_gpu;               /* it is, but --gpu names the one that it is about */
	bool lasts;    /* it runs for long: memory counts more than a quick start */
	bool one_form; /* its output has one form: --json means nothing to it */
	unsigned runs; /* its arguments are so many commands: our options end
					 where one begins */
	/* For --help, of a command whose first word says what it does; NULL: it has none.
	 * Prints the list of such words, or what is to be said of one; false where there is no
	 * such word. */
	bool (*help)(const char *word);
	int (*run)(struct cli *c); /* returns an exit code                   */
};

#define CLI_COMMON_MAX 16
extern const struct option cli_common_options[];
/* Does the option, one of those above, mean anything to the command? */
bool cli_option_fits(const struct command *cmd, const struct option *o);
/* A table of those that do. */
void cli_options_of(const struct command *cmd, struct option ret[static CLI_COMMON_MAX]);
extern const struct command *const cli_commands[]; /* all of them, ending with NULL */
#define C(name) extern const struct command command_##name;
#include "commands.def"
#undef C

/* Prints "gpuward: sentence" to standard error. */
void cli_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* What the options that all commands have mean for opening the GPUs; deadline_ns 0: not given.
 * EXIT_OK or an exit code, having said why (-1: a list was asked for and printed). */
int cli_how(const struct cli *c, struct gw_options *ret);

/* Opens the context and takes a snapshot of the tiers.  EXIT_OK or an exit code, having said
 * why.  cli_close() in any case. */
int cli_open(struct cli *c, unsigned tiers);
void cli_close(struct cli *c);

/* Does a driver call still hang?  Then the program must end without asking the driver again. */
bool cli_stalled(const struct cli *c);

/* Matches --gpu against the snapshot.  EXIT_OK, EXIT_USAGE or EXIT_NO_GPU, having said why. */
int cli_select(struct cli *c);

/* What the state of the selected devices means for the exit code. */
int cli_outcome(const struct cli *c);

/* Prints what a person must know before the figures: that they are simulated, or why there are
 * none. */
void cli_preface(const struct cli *c);

/* A JSON document: begin, render onto doc.json, end.  end writes it to standard output: EXIT_OK
 * or EXIT_FAILED, having said why. */
struct cli_document {
	struct buf buf;
	struct json json;
};
void cli_document_begin(struct cli_document *doc, bool pretty);
int cli_document_end(struct cli_document *doc);

/* Sizes and states as people read them. */
void cli_bytes(char out[static 16], double bytes); /* "140.4 GiB" */
enum term_style cli_state_style(enum gw_device_state state);

/* Values of options.  A count: text NULL (not given) leaves *ret alone.  EXIT_OK, or EXIT_USAGE
 * having said what --name takes. */
int cli_count(const char *name, const char *text, double least, double most, double *ret);
int cli_celsius(const char *name, const char *text, double *ret);

/* The words of a command parted by blanks, cut at size. */
void cli_join(char *out, size_t size, char *const *argv);

#endif
