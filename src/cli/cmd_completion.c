/* completion: prints a completion script for a shell.
 *
 * The script is made from the same option tables that the parser uses.  The type and the
 * metavar of an option decide how its value is completed: choices, files, folders, GPUs,
 * scenarios. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

#define UUIDS "list --json 2>/dev/null | sed -n 's/^ *\"uuid\": \"\\(GPU-[^\"]*\\)\".*/\\1/p'"
#define SCENARIOS \
	"list --simulate=help 2>/dev/null | sed -n 's/^  \\([a-z0-9-]\\{1,\\}\\) .*/\\1/p'"

enum value { NOTHING, ANYTHING, WORDS, FILES, FOLDERS, GPUS, SCENARIO };

static enum value value_of(const struct option *o)
{
	static const struct {
		const char *metavar;
		enum value value;
	} rows[] = { { "SEL", GPUS },
		     { "SCENARIO", SCENARIO },
		     { "DIR", FOLDERS },
		     { "FILE", FILES },
		     { "PATH", FILES } };

	if (o->type == OPTION_FLAG || o->choices)
		return o->choices ? WORDS : NOTHING;
	for (size_t i = 0; o->metavar && i < sizeof(rows) / sizeof(rows[0]); i++)
		if (strcmp(o->metavar, rows[i].metavar) == 0)
			return rows[i].value;
	return ANYTHING;
}

/* Prints `before`, the choices of the option and `after`.  If the option has no choices, prints
 * the text for its type of value. */
static void print_value(const struct option *o, const char *before, const char *after,
			const char *const texts[])
{
	if (!o->choices) {
		fputs(texts[value_of(o)], stdout);
		return;
	}
	fputs(before, stdout);
	for (unsigned i = 0; o->choices[i]; i++)
		printf("%s%s", i ? " " : "", o->choices[i]);
	fputs(after, stdout);
}

/* Prints the first clause of a help text without characters that are special to the shell. */
static void print_brief(const char *help, const char *shell_eats)
{
	size_t n = strcspn(help, ";(");

	while (n && help[n - 1] == ' ')
		n--;
	for (size_t i = 0; i < n; i++)
		if (!strchr(shell_eats, help[i]))
			putchar(help[i]);
}

static void bash_names(const struct option *t)
{
	for (; t && t->name; t++)
		printf(" --%s", t->name);
}

static void bash_value(const struct option *o)
{
	static const char *const texts[] = {
		[ANYTHING] = ":",
		[FILES] = "compgen -f -- \"$cur\"",
		[FOLDERS] = "compgen -d -- \"$cur\"",
		[GPUS] = "compgen -W \"visible $(\"${COMP_WORDS[0]}\" " UUIDS ")\" -- \"$cur\"",
		[SCENARIO] = "compgen -W \"help $(\"${COMP_WORDS[0]}\" " SCENARIOS
			     ")\" -- \"$cur\"; compgen -f -X '!*.toml' -- \"$cur\"",
	};

	if (value_of(o) == NOTHING)
		return;
	printf("\t--%s)\n\t\tmapfile -t COMPREPLY < <(", o->name);
	print_value(o, "compgen -W \"", "\" -- \"$cur\"", texts);
	printf(")\n\t\treturn ;;\n");
}

static void bash_values(const struct option *t)
{
	for (; t && t->name; t++)
		bash_value(t);
}

static void print_bash(void)
{
	printf("# bash completion for gpuward, printed by `gpuward completion bash`\n"
	       "_gpuward() {\n\tlocal cur=${COMP_WORDS[COMP_CWORD]} "
	       "prev=${COMP_WORDS[COMP_CWORD - 1]}\n\tlocal commands=\"");
	for (unsigned i = 0; cli_commands[i]; i++)
		printf("%s ", cli_commands[i]->name);
	printf("help\"\n\tlocal options=\"");
	bash_names(cli_common_options);
	printf("\"\n\tlocal command=\"\" i\n\n"
	       "\t# bash splits \"--simulate=NAME\" into three words at '='.\n"
	       "\tif [[ $cur == \"=\" ]]; then\n\t\tcur=\"\"\n"
	       "\telif [[ $prev == \"=\" ]]; then\n\t\tprev=${COMP_WORDS[COMP_CWORD - "
	       "2]}\n\tfi\n"
	       "\tfor ((i = 1; i < COMP_CWORD; i++)); do\n"
	       "\t\t[[ ${COMP_WORDS[i]} == -- ]] && { compopt -o default; return; }\n"
	       "\t\t[[ -z $command && \" $commands \" == *\" ${COMP_WORDS[i]} \"* ]] && "
	       "command=${COMP_WORDS[i]}\n\tdone\n\tcase $command in\n");
	for (unsigned i = 0; cli_commands[i]; i++) {
		struct option common[CLI_COMMON_MAX];

		cli_options_of(cli_commands[i], common);
		printf("\t%s) options=\"", cli_commands[i]->name);
		bash_names(common);
		bash_names(cli_commands[i]->options);
		printf("\" ;;\n");
	}
	printf("\tesac\n\tcase $prev in\n");
	bash_values(cli_common_options);
	printf("\tesac\n");
	for (unsigned i = 0; cli_commands[i]; i++) {
		if (!cli_commands[i]->options)
			continue;
		printf("\tif [[ $command == %s ]]; then case $prev in\n",
		       cli_commands[i]->name);
		bash_values(cli_commands[i]->options);
		printf("\tesac; fi\n");
	}
	printf("\tif [[ $cur == -* ]]; then\n"
	       "\t\tmapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$cur\")\n"
	       "\telif [[ -n $command ]]; then\n"
	       "\t\tmapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n\telse\n"
	       "\t\tmapfile -t COMPREPLY < <(compgen -W \"$commands\" -- \"$cur\")\n\tfi\n}\n"
	       "complete -F _gpuward gpuward\n");
}

static void zsh_options(const struct option *t)
{
	static const char *const texts[] = {
		[NOTHING] = "",           [ANYTHING] = "",
		[FILES] = "_files",       [FOLDERS] = "_files -/",
		[GPUS] = "_gpuward_gpus", [SCENARIO] = "_gpuward_scenarios",
	};

	for (; t && t->name; t++) {
		printf("\t\t'%s", t->type == OPTION_LIST ? "*" : "");
		if (t->letter)
			printf("(-%c --%s)'{-%c,--%s}'", t->letter, t->name, t->letter,
			       t->name);
		else
			printf("--%s", t->name);
		printf("%s[", t->type == OPTION_OPTIONAL ? "=-" : "");
		print_brief(t->help, "'[]:");
		printf("]");
		if (value_of(t) != NOTHING)
			printf("%s:%s:", t->type == OPTION_OPTIONAL ? ":" : "",
			       t->metavar ? t->metavar : "value");
		print_value(t, "(", ")", texts);
		printf("'\n");
	}
}

static void print_zsh(void)
{
	printf("#compdef gpuward\n# zsh completion, printed by `gpuward completion zsh`\n"
	       "_gpuward_gpus() {\n\tcompadd visible ${(f)\"$(gpuward %s)\"}\n}\n"
	       "_gpuward_scenarios() {\n\tcompadd help ${(f)\"$(gpuward %s)\"}\n"
	       "\t_files -g '*.toml'\n}\n_gpuward() {\n\tlocal -a options\n\toptions=(\n",
	       UUIDS, SCENARIOS);
	zsh_options(cli_common_options);
	printf("\t)\n\tcase ${words[(R)(");
	for (unsigned i = 0; cli_commands[i]; i++)
		printf("%s%s", i ? "|" : "", cli_commands[i]->name);
	printf(")]} in\n");
	for (unsigned i = 0; cli_commands[i]; i++) {
		struct option common[CLI_COMMON_MAX];

		cli_options_of(cli_commands[i], common);
		printf("\t%s) options=(\n", cli_commands[i]->name);
		zsh_options(common);
		zsh_options(cli_commands[i]->options);
		printf("\t\t) ;;\n");
	}
	printf("\tesac\n\t_arguments -S $options '1:command:((");
	for (unsigned i = 0; cli_commands[i]; i++) {
		printf("%s\\:\"", cli_commands[i]->name);
		print_brief(cli_commands[i]->summary, "'\":()");
		printf("\" ");
	}
	printf("help\\:\"the help\"))' '*::argument:_default'\n}\n_gpuward \"$@\"\n");
}

/* Prints a condition that excludes the commands on which a common option has no effect. */
static void fish_unless(const struct option *o)
{
	bool any = false;

	for (unsigned i = 0; cli_commands[i]; i++) {
		if (cli_option_fits(cli_commands[i], o))
			continue;
		printf("%s %s", any ? "" : " -n 'not __fish_seen_subcommand_from",
		       cli_commands[i]->name);
		any = true;
	}
	if (any)
		putchar('\'');
}

static void fish_options(const struct option *t, const char *command)
{
	static const char *const texts[] = {
		[NOTHING] = "",
		[ANYTHING] = " -x",
		[FILES] = " -r -F",
		[FOLDERS] = " -x -a '(__fish_complete_directories)'",
		[GPUS] = " -x -a \"visible ($uuids)\"",
		[SCENARIO] = " -a \"help ($scenarios)\"",
	};

	for (; t && t->name; t++) {
		printf("complete -c gpuward");
		if (command)
			printf(" -n '__fish_seen_subcommand_from %s'", command);
		else
			fish_unless(t);
		if (t->letter)
			printf(" -s %c", t->letter);
		printf(" -l %s", t->name);
		if (value_of(t) != ANYTHING || t->type != OPTION_OPTIONAL)
			print_value(t, " -x -a '", "'", texts);
		printf(" -d '");
		print_brief(t->help, "'\\");
		printf("'\n");
	}
}

static void print_fish(void)
{
	printf("# fish completion for gpuward, printed by `gpuward completion fish`\n"
	       "set -l uuids \"gpuward list --json 2>/dev/null | sed -n 's/^ *\\\"uuid\\\": "
	       "\\\"\\(GPU-[^\\\"]*\\)\\\".*/\\1/p'\"\n"
	       "set -l scenarios \"gpuward " SCENARIOS "\"\n"
	       "set -l commands");
	for (unsigned i = 0; cli_commands[i]; i++)
		printf(" %s", cli_commands[i]->name);
	printf(" help\n");
	for (unsigned i = 0; cli_commands[i]; i++) {
		printf("complete -c gpuward -f -n \"not __fish_seen_subcommand_from "
		       "$commands\" -a %s -d '",
		       cli_commands[i]->name);
		print_brief(cli_commands[i]->summary, "'\\");
		printf("'\n");
	}
	fish_options(cli_common_options, NULL);
	for (unsigned i = 0; cli_commands[i]; i++)
		fish_options(cli_commands[i]->options, cli_commands[i]->name);
}

static int completion_run(struct cli *c)
{
	static const struct {
		const char *name;
		void (*print)(void);
	} shells[] = { { "bash", print_bash }, { "zsh", print_zsh }, { "fish", print_fish } };

	for (unsigned i = 0; c->argc == 1 && i < 3; i++)
		if (strcmp(c->argv[0], shells[i].name) == 0) {
			shells[i].print();
			return EXIT_OK;
		}
	return cli_usage("name a shell: gpuward completion bash, zsh or fish");
}

const struct command command_completion = {
	.name = "completion",
	.summary = "print a completion script for a shell",
	.description = "Prints a completion script for bash, zsh or fish. An installed gpuward "
		       "already has these scripts where the shells look; you need this command "
		       "only if you run gpuward from a build folder.",
	.examples = "  source <(gpuward completion bash)\n"
		    "  gpuward completion fish >~/.config/fish/completions/gpuward.fish\n",
	.arguments = "bash|zsh|fish",
	.offline = true,
	.one_form = true,
	.run = completion_run,
};
