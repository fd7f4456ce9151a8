/* main: parses the command line, finds the command in the table and runs it. */
#include "cli.h"
#include "table.h"

#include "base/array.h"
#include "base/suggest.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct command *const cli_commands[] = {
#define C(name) &command_##name,
#include "commands.def"
#undef C
	NULL,
};
#define COMMANDS (COUNT(cli_commands) - 1)

static int print_help(void)
{
	printf("gpuward: monitor, measure and guard the GPUs of a machine\n\nUsage: gpuward "
	       "COMMAND [OPTIONS]\n\nCommands:\n");
	for (size_t i = 0; i < COMMANDS; i++) {
		char left[32];

		snprintf(left, sizeof(left), "  %s", cli_commands[i]->name);
		term_wrap(left, 16, cli_commands[i]->summary, term_width());
	}
	printf("\nCommon options (not every command takes all):\n");
	option_help(cli_common_options, term_width());
	printf("\nExamples:\n  gpuward list\n  gpuward snapshot --json\n  gpuward doctor\n"
	       "  gpuward snapshot --simulate       try it without a GPU\n\n");
	term_wrap("", 0,
		  "For more, see gpuward COMMAND --help and the manual pages gpuward(1) and "
		  "gpuward(3).",
		  term_width());
	return EXIT_OK;
}

static int command_help(const struct command *cmd, const char *word)
{
	struct option common[CLI_COMMON_MAX];
	char title[160];

	if (cmd->help && word && cmd->help(word))
		return EXIT_OK;
	cli_options_of(cmd, common);
	snprintf(title, sizeof(title), "gpuward %s: %s", cmd->name, cmd->summary);
	term_wrap("", 0, title, term_width());
	printf("\nUsage: gpuward %s [OPTIONS]%s%s\n\n", cmd->name, cmd->arguments ? " " : "",
	       cmd->arguments ? cmd->arguments : "");
	term_wrap("", 0, cmd->description, term_width());
	if (cmd->help) {
		printf("\n");
		cmd->help(NULL);
	}
	if (cmd->options) {
		printf("\nOptions:\n");
		option_help(cmd->options, term_width());
	}
	printf("\nCommon options:\n");
	option_help(common, term_width());
	printf("\nExamples:\n%s", cmd->examples);
	return EXIT_OK;
}

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < COMMANDS; i++)
		if (strcmp(cli_commands[i]->name, name) == 0)
			return cli_commands[i];
	return NULL;
}

static int unknown_command(const char *word)
{
	const char *names[COMMANDS], *near;

	for (size_t i = 0; i < COMMANDS; i++)
		names[i] = cli_commands[i]->name;
	near = suggest(word, names, COMMANDS, sizeof(names[0]));
	if (near)
		cli_error("unknown command '%s' (did you mean '%s'?)", word, near);
	else
		cli_error("unknown command '%s'; gpuward --help lists the commands", word);
	return EXIT_USAGE;
}

/* Finds the option for which the user probably meant `word` as the value. This is the
 * OPTION_OPTIONAL directly before the word, or else the first OPTION_OPTIONAL without a value.
 * Returns NULL if there is none. */
static const struct option *
find_option_meant(const struct cli *c, const struct option_table *tables, const char *word)
{
	for (char **w = c->words; w && w[0] && w[1]; w++) {
		if (strcmp(w[1], word) != 0 || strncmp(w[0], "--", 2) != 0)
			continue;
		for (const struct option_table *t = tables; t->options; t++)
			for (const struct option *o = t->options; o->name; o++)
				if (o->type == OPTION_OPTIONAL &&
				    strcmp(o->name, w[0] + 2) == 0)
					return o;
	}
	return option_without_value(tables);
}

static int refuse_argument(const struct command *cmd, const struct cli *c,
			   const struct option_table *tables)
{
	const char *word = c->argv[0];
	const struct option *near = find_option_meant(c, tables, word);

	if (near)
		cli_error("%s takes no argument, but '%s' was given; if it is the value of "
			  "--%s, write it after '='",
			  cmd->name, word, near->name);
	else
		cli_error("%s takes no argument, but '%s' was given", cmd->name, word);
	return EXIT_USAGE;
}

static int refuse_options(const struct command *cmd, const struct cli *c)
{
	for (const struct option *o = cli_common_options; o->name; o++) {
		if (cli_option_fits(cmd, o) || !option_given(o, c))
			continue;
		if (strcmp(o->name, "json") == 0)
			cli_error("%s has no JSON output: leave out --json", cmd->name);
		else
			cli_error("%s does not read GPUs: leave out --%s", cmd->name, o->name);
		return EXIT_USAGE;
	}
	return EXIT_OK;
}

/* Rejects `--simulate h200 -- COMMAND`, which would run the program h200. The user probably
 * wanted to write --simulate=h200. */
static int check_first_word(const struct command *cmd, const struct cli *c,
			    const struct option_table *tables)
{
	const char *word = c->argc > 0 ? c->argv[0] : NULL;
	const struct option *near = word ? find_option_meant(c, tables, word) : NULL;

	if (!near || !((cmd->runs == 1 && c->argc > 1 && strcmp(c->argv[1], "--") == 0) ||
		       (strcmp(near->name, "simulate") == 0 && simulate_known(word))))
		return EXIT_OK;
	return cli_usage(
		"'%s' would be run as the command; if it is the value of --%s, write --%s=%s",
		word, near->name, near->name, word);
}

static int run_command(const struct command *cmd, struct cli *c,
		       const struct option_table *tables)
{
	int code = cmd->runs && !c->help ? check_first_word(cmd, c, tables) : EXIT_OK;

	if (code != EXIT_OK)
		return code;
	if (c->help)
		return command_help(cmd, c->argc > 0 ? c->argv[0] : NULL);
	if (refuse_options(cmd, c) != EXIT_OK)
		return EXIT_USAGE;
	if (c->argc > 0 && !cmd->arguments)
		return refuse_argument(cmd, c, tables);
	c->command = cmd;
	return cmd->run(c);
}

static int output_error; /* errno of the first write that failed */

/* Flushes standard output and stores the first error in output_error. */
static void finish_output(void)
{
	if (output_error == 0 && (fflush(stdout) != 0 || ferror(stdout)))
		output_error = errno;
}

/* Allocates the command's own options with their defaults, unless that is done already.
 * Returns an exit code. */
static int alloc_own_options(struct cli *c, const struct command *cmd)
{
	if (c->own || cmd->options_size == 0)
		return EXIT_OK;
	c->own = calloc(1, cmd->options_size);
	if (!c->own)
		return cli_no_memory();
	option_defaults(cmd->options, c->own);
	return EXIT_OK;
}

static int parse_options(int *argc, char **argv, const struct option_table *tables, bool ahead,
			 const struct command *cmd)
{
	char error[256];

	if (option_parse(argc, argv, tables, ahead, error, sizeof(error)) == 0)
		return EXIT_OK;
	return cli_usage("%s; gpuward%s%s --help lists the options", error, cmd ? " " : "",
			 cmd ? cmd->name : "");
}

static int run_without_command(struct cli *c, const struct option_table *tables)
{
	if (c->help)
		return print_help();
	(void)tables;
#ifndef GPUWARD_SERVICE
	if (c->simulate && strcmp(c->simulate, "help") == 0 &&
	    alloc_own_options(c, &command_list) == EXIT_OK)
		/* The command only prints the scenarios and ends. */
		return run_command(&command_list, c, tables);
#endif
	return cli_usage("a command is missing; gpuward --help lists the commands");
}

static int print_version(void)
{
	printf("gpuward %s\n", gw_version());
	return EXIT_OK;
}

/* Parses the words after `gpuward`, finds the command and runs it.  The caller frees c->own. */
static int dispatch(struct cli *c, int argc, char **argv)
{
	struct option_table tables[3] = { { cli_common_options, c } };
	const struct command *cmd = NULL;
	int code;

	/* The common options before the command are parsed here. */
	code = parse_options(&argc, argv, tables, true, NULL);
	term_init(c->color);
	if (code != EXIT_OK)
		return code;
	if (argc > 1 && strcmp(argv[1], "help") == 0) {
		cmd = argc > 2 ? find_command(argv[2]) : NULL;
		return cmd        ? command_help(cmd, argc > 3 ? argv[3] : NULL)
		       : argc > 2 ? unknown_command(argv[2])
				  : print_help();
	}
	if (c->version)
		return print_version();
	if (argc < 2)
		return run_without_command(c, tables);
	cmd = find_command(argv[1]);
	if (!cmd)
		return unknown_command(argv[1]);
	if (alloc_own_options(c, cmd) != EXIT_OK)
		return EXIT_FAILED;
	tables[1] = (struct option_table){ cmd->options, c->own };
	argv++;
	argc--;
	code = parse_options(&argc, argv, tables, cmd->runs > 0, cmd);
	if (code != EXIT_OK)
		return code;
	term_init(c->color);
	if (c->version)
		return print_version();
	c->argc = argc - 1;
	c->argv = argv + 1;
	return run_command(cmd, c, tables);
}

/* Copies the command line, because the parser of options changes argv. */
static char **copy_words(int argc, char **argv)
{
	char **copy = calloc((size_t)argc + 1, sizeof(*copy));

	if (copy)
		memcpy(copy, argv, (size_t)argc * sizeof(*copy));
	return copy;
}

/* Opens the standard streams that the caller closed. If a stream stayed closed, the next file
 * or pipe would get its number, and the output of the command would go there. Standard input is
 * opened for writing and the others for reading, so that each use of the stream still fails. */
static void open_closed_streams(void)
{
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			(void)!open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv)
{
	static struct cli c; /* static, because it is too large for the stack */
	bool hung;           /* a driver call hangs */
	int code;

	open_closed_streams();
	c.words = copy_words(argc, argv);
	c.pipe_ignored = signal(SIGPIPE, SIG_IGN) == SIG_IGN;
	/* If a file becomes too large, write() fails with EFBIG, and no signal ends the
	 * program. */
	signal(SIGXFSZ, SIG_IGN);
	term_init(NULL);
	code = dispatch(&c, argc, argv);
	finish_output();
	hung = cli_hung(&c);
	if (!hung)
		cli_close(&c);
	free(c.own);
	free(c.words);
	code = code == -1 ? EXIT_OK : code; /* -1: --simulate=help printed its list */
	if (output_error && output_error != EPIPE)
		return cli_fail("cannot write the output: %s", strerror(output_error));
	if (table_was_lost() && code == EXIT_OK)
		code = EXIT_FAILED;
	if (hung) /* exit() would call destructors of the driver's library, which may hang */
		_exit(code);
	return code;
}
