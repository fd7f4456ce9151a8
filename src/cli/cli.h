/* cli: what every command uses: the common options, functions that open and select GPUs, error
 * messages and exit codes.
 *
 * Commands read GPUs only through the public interface, gpuward.h.  In this folder, a function
 * that returns an exit code other than EXIT_OK has printed the error. */
#ifndef GW_CLI_CLI_H
#define GW_CLI_CLI_H

#include "option.h"
#include "term.h"
#include "serve/render.h"

#include <gpuward.h>
#include <stdbool.h>

enum exit_code {
	EXIT_OK = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = 2,
	/* the command needs a GPU, and there is none or the driver is broken */
	EXIT_NO_GPU = 3,
	EXIT_PARTIAL = 4,  /* at least one GPU failed */
	EXIT_SHARED = 13,  /* another process used a GPU that had to be exclusive       */
	EXIT_NO_ROOM = 14, /* the GPU has less free memory than requested               */
};

struct command;

struct cli {
	const struct command *command;
	bool help, version, json, quiet, verbose, wake;
	const char *color, *backend, *nvml_library, *simulate, *root;
	uint64_t timeout_ns;
	struct option_list gpu;
	bool pipe_ignored; /* SIGPIPE was ignored when the program started */
	/* Values of the command's own options, command->options_size bytes. NULL: the command
	 * has no options of its own. */
	void *own;
	char **words; /* copy of the command line, with all options; ends with NULL */
	int argc;     /* number of arguments that are not options */
	char **argv;
	/* cli_open() fills the following members. */
	struct gw_ctx *ctx;
	struct gw_snapshot *snap;
	struct render_filter filter;
};

struct command {
	const char *name;
	const char *summary;     /* one line, shown in the list of commands */
	const char *description; /* text for --help of the command */
	const char *examples;    /* examples for --help; the lines are already indented */
	/* The arguments as the usage line shows them, such as "RESULT...". NULL: the command
	 * takes no argument. */
	const char *arguments;
	const char *verbose; /* help of --verbose. NULL: the option has no effect, so the help
			      * of the command does not show it. */
	/* Table of the command's own options. Offsets are relative to cli.own. NULL: none. */
	const struct option *options;
	size_t options_size; /* size of the command's own struct */
	bool offline;        /* the command reads no GPU and rejects options about GPUs */
	bool names_gpu;      /* the command is offline, but accepts --gpu */
	bool one_form;       /* the output has only one format: --json is rejected */
	/* Number of programs that the arguments name: 1 for `run`, 2 for `ab`, 0 for most
	 * commands. If it is not 0, the first argument ends the options of gpuward. */
	unsigned runs;
	/* Prints the help of the subcommand `word`, or the list of subcommands if word is NULL.
	 * Returns false if there is no such subcommand. `help` itself is NULL if the command
	 * has no subcommands. */
	bool (*help)(const char *word);
	int (*run)(struct cli *c); /* returns an exit code */
};

#define CLI_COMMON_MAX 16
extern const struct option cli_common_options[];
/* Returns true if the command accepts this common option. */
bool cli_option_fits(const struct command *cmd, const struct option *o);
/* Fills ret with the common options that have an effect on the command, and ends the table. */
void cli_options_of(const struct command *cmd, struct option ret[static CLI_COMMON_MAX]);
extern const struct command *const cli_commands[]; /* all commands; ends with NULL */
#define C(name) extern const struct command command_##name;
#include "commands.def"
#undef C

/* Prints "gpuward: " and an error or a note to standard error, with term_error_line(). */
void cli_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Print an error like cli_error(); the value of the expression is an exit code. */
#define cli_usage(...)  (cli_error(__VA_ARGS__), EXIT_USAGE)
#define cli_fail(...)   (cli_error(__VA_ARGS__), EXIT_FAILED)
#define cli_no_memory() cli_fail("%s", gw_strerror(-GW_E_NOMEM))

/* Translates the common options into options for gw_open().  deadline_ns is 0 if no deadline
 * was given.  Returns an exit code, or -1 if the list of scenarios was printed. */
int cli_open_options(const struct cli *c, struct gw_options *ret);

/* Returns true if the user gave an option that concerns only the driver, such as --backend. The
 * command then reads the driver itself, even if a service runs. */
bool cli_names_driver(const struct cli *c);

/* Opens the context and takes a snapshot of these tiers. Returns an exit code. Call cli_close()
 * even after an error. */
int cli_open(struct cli *c, unsigned tiers);
void cli_close(struct cli *c);

/* Returns true if a driver call still hangs.  The program must then end without calling the
 * driver. */
bool cli_hung(const struct cli *c);

/* Matches --gpu against the snapshot.  Returns EXIT_OK, EXIT_USAGE or EXIT_NO_GPU. */
int cli_select(struct cli *c);

/* Returns the next selected device, or NULL after the last one. Set *at to 0 before the first
 * call. After each call, *at - 1 is the position of the returned device in the snapshot. */
const struct gw_device *cli_next_device(const struct cli *c, unsigned *at);

/* Returns the exit code for the state of the selected devices: EXIT_OK, EXIT_PARTIAL or
 * EXIT_NO_GPU. */
int cli_device_exit_code(const struct cli *c);

/* Prints a note if the GPUs are simulated. If something is wrong, also prints what it is and
 * what to do about it. */
void cli_print_status(const struct cli *c);
/* On a machine without a GPU, prints how to use simulated ones. Prints nothing with --quiet,
 * --simulate or --root. cli_print_status() calls this function. */
void cli_print_try(const struct cli *c);

/* A JSON document for standard output. Call cli_document_begin(), write into doc.json, then
 * call cli_document_end(), which prints the document and returns an exit code. */
struct cli_document {
	struct buf buf;
	struct json json;
};
void cli_document_begin(struct cli_document *doc, bool pretty);
int cli_document_end(struct cli_document *doc);

enum term_style cli_state_style(enum gw_device_state state);

/* Finds a file that is installed with this program. Tries the path `built` in the folder of the
 * program (build tree), then the path `installed` below two prefixes: the one in which the
 * program lies, and the one that was configured at build time. Returns false if no file exists;
 * out then contains the last path that was tried. */
bool cli_find_part(char *out, size_t size, const char *built, const char *installed);

/* False if the path of this program is unknown because /proc is not mounted. cli_find_part()
 * then searches only below the configured prefix. */
bool cli_knows_own_path(void);

/* Joins the words of a command with blanks. The result is cut at size. */
void cli_join(char *out, size_t size, char *const *argv);

/* Loads the simulator and a scenario. The scenario is a built-in name or a path. Returns
 * EXIT_OK and the path of the simulator's library, which is in static memory, or an exit code.
 * The scenario "help" prints the list of scenarios and returns -1. */
int simulate_prepare(const char *scenario, const char **ret_library);

/* Returns true if there is a built-in scenario of that name. */
bool simulate_known(const char *name);

#endif
