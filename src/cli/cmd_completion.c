/* completion: prints a completion script for bash, zsh or fish.
 *
 * The script is made from the option tables that the parser uses. The type and the metavar of
 * an option decide how its value is completed. The usage line of the command, or of the
 * subcommand of `guard`, decides how arguments are completed; in this line, a word in lower
 * case is a word that the user can type. */
#include "cli.h"
#include "guard_subcommand.h"

#include "base/array.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define UUIDS "list --json 2>/dev/null | sed -n 's/^ *\"uuid\": \"\\(GPU-[^\"]*\\)\".*/\\1/p'"
#define SCENARIOS \
	"list --simulate=help 2>/dev/null | sed -n 's/^  \\([a-z0-9-]\\{1,\\}\\) .*/\\1/p'"

/* A shell command that prints the names of the workers. It works because the service writes its
 * document in one line, and each worker's object begins with the name. */
#define WORKERS                                                                        \
	"guard status --json 2>/dev/null | grep -o '{\"name\":\"[^\"]*\",\"kind\"' | " \
	"cut -d'\"' -f4"

/* How the value of an option is completed. */
enum value {
	NOTHING,  /* the option has no value */
	ANYTHING, /* the value is not completed */
	WORDS,    /* one of option.choices */
	LISTED,   /* a list of the words that option.word() returns */
	FILES,
	FOLDERS,
	GPUS,
	SCENARIO
};

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
	if (o->word)
		return LISTED;
	for (size_t i = 0; o->metavar && i < COUNT(rows); i++)
		if (strcmp(o->metavar, rows[i].metavar) == 0)
			return rows[i].value;
	return ANYTHING;
}

/* Text of the script that is printed before and after the allowed words of an option. */
struct around {
	const char *before, *after;
};

/* Prints the part of a script that completes the value of an option. If the allowed words are
 * known, prints them between two texts: those of `list` if the value is a list of words, else
 * those of `one`. If the words are not known, prints texts[] for the kind of value. */
static void print_value(const struct option *o, struct around one, struct around list,
			const char *const texts[])
{
	enum value v = value_of(o);

	if (v != WORDS && v != LISTED) {
		fputs(texts[v], stdout);
		return;
	}
	fputs(v == LISTED ? list.before : one.before, stdout);
	for (unsigned i = 0;; i++) {
		const char *word = v == LISTED ? o->word(i) : o->choices[i];

		if (!word)
			break;
		printf("%s%s", i ? " " : "", word);
	}
	fputs(v == LISTED ? list.after : one.after, stdout);
}

/* Which arguments a command or subcommand allows. */
struct arguments {
	char words[128];    /* allowed words, separated by blanks */
	bool workers, gpus; /* the name of a worker or a GPU is allowed */
	bool files;         /* a file may follow one of the words */
};

/* Reads the usage line of a command, such as "evicted|active WORKER|all --for TIME". */
static struct arguments arguments_of(const char *usage)
{
	struct arguments a = { .words = "" };

	for (const char *p = usage ? usage : ""; *p;) {
		size_t n = strcspn(p, " []|");
		bool plain = n > 0;

		for (size_t i = 0; i < n; i++)
			plain = plain && (islower((unsigned char)p[i]) || (i && p[i] == '-'));
		if (plain && strlen(a.words) + n + 2 < sizeof(a.words)) {
			strcat(a.words, *a.words ? " " : "");
			strncat(a.words, p, n);
		}
		a.workers |= n == 6 && strncmp(p, "WORKER", n) == 0;
		a.gpus |= n == 3 && strncmp(p, "GPU", n) == 0;
		a.files |= n == 4 && strncmp(p, "FILE", n) == 0;
		p += n + (p[n] != '\0');
	}
	return a;
}

static void print_subcommand_names(void)
{
	for (size_t i = 0; guard_subcommand_at(i); i++)
		printf("%s%s", i ? " " : "", guard_subcommand_at(i)->name);
}

/* Prints the beginning of a help text, up to the first ";" or "(". Leaves out the characters in
 * shell_eats, which are special in the shell. */
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
	print_value(o, (struct around){ "compgen -W \"", "\" -- \"$cur\"" },
		    (struct around){ "compgen -P \"${cur%\"${cur##*,}\"}\" -W \"",
				     "\" -- \"${cur##*,}\"" },
		    texts);
	printf(")\n\t\treturn ;;\n");
}

static void bash_values(const struct option *t)
{
	for (; t && t->name; t++)
		bash_value(t);
}

/* Prints a branch of the bash script. The branch sets the variable `words` to the words that
 * are allowed as an argument. */
static void bash_arguments(const char *name, const char *usage, const char *indent)
{
	struct arguments a = arguments_of(usage);

	if (!*a.words && !a.workers && !a.gpus)
		return;
	printf("%s%s) ", indent, name);
	if (a.files)
		printf("[[ \" %s \" == *\" $prev \"* ]] || ", a.words);
	printf("words=\"%s", a.words);
	if (a.workers)
		printf(" $(\"${COMP_WORDS[0]}\" " WORKERS ")");
	if (a.gpus)
		printf(" $(\"${COMP_WORDS[0]}\" " UUIDS ")");
	printf("\" ;;\n");
}

static void bash_all_arguments(void)
{
	printf("\tlocal words=\"\" verb=\"\" verbs=\"");
	print_subcommand_names();
	printf("\"\n\tcase $command in\n");
	for (unsigned i = 0; cli_commands[i]; i++)
		bash_arguments(cli_commands[i]->name, cli_commands[i]->arguments, "\t");
	printf("\tguard)\n\t\tfor ((i = 1; i < COMP_CWORD; i++)); do\n"
	       "\t\t\t[[ -z $verb && \" $verbs \" == *\" ${COMP_WORDS[i]} \"* ]] && "
	       "verb=${COMP_WORDS[i]}\n\t\tdone\n"
	       "\t\tcase $verb in\n\t\t\"\") words=$verbs ;;\n");
	for (size_t i = 0; guard_subcommand_at(i); i++)
		bash_arguments(guard_subcommand_at(i)->name, guard_subcommand_at(i)->usage,
			       "\t\t");
	printf("\t\tesac ;;\n\tesac\n");
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
	       "\t\treturn\n\tfi\n");
	bash_all_arguments();
	printf("\tif [[ -n $words ]]; then\n"
	       "\t\tmapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
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
		if (t->letter && t->type != OPTION_LIST)
			printf("(-%c --%s)", t->letter, t->name);
		if (t->letter)
			printf("'{-%c,--%s}'", t->letter, t->name);
		else
			printf("--%s", t->name);
		printf("%s[", t->type == OPTION_OPTIONAL ? "=-" : "");
		print_brief(t->help, "'[]:");
		printf("]");
		if (value_of(t) != NOTHING)
			printf("%s:%s:", t->type == OPTION_OPTIONAL ? ":" : "",
			       t->metavar ? t->metavar : "value");
		print_value(t, (struct around){ "(", ")" },
			    (struct around){ "_values -s , word ", "" }, texts);
		printf("'\n");
	}
}

/* Prints a branch of the zsh script that offers the words that are allowed as an argument. */
static void zsh_arguments(const char *name, const char *usage, const char *indent)
{
	struct arguments a = arguments_of(usage);

	if (!*a.words && !a.workers && !a.gpus)
		return;
	printf("%s%s)", indent, name);
	if (a.files)
		printf(" (( CURRENT > 1 )) && _default ||");
	if (*a.words)
		printf(" compadd %s", a.words);
	if (a.workers)
		printf("%s compadd -- ${(f)\"$(gpuward " WORKERS ")\"}", *a.words ? ";" : "");
	if (a.gpus)
		printf("%s compadd -- ${(f)\"$(gpuward " UUIDS ")\"}",
		       *a.words || a.workers ? ";" : "");
	printf(" ;;\n");
}

static void zsh_all_arguments(void)
{
	printf("_gpuward_argument() {\n\tcase $gpuward_command in\n");
	for (unsigned i = 0; cli_commands[i]; i++)
		zsh_arguments(cli_commands[i]->name, cli_commands[i]->arguments, "\t");
	printf("\tguard)\n\t\tif (( CURRENT == 1 )); then\n\t\t\tcompadd ");
	print_subcommand_names();
	printf("\n\t\t\treturn\n\t\tfi\n\t\tcase ${words[1]} in\n");
	for (size_t i = 0; guard_subcommand_at(i); i++)
		zsh_arguments(guard_subcommand_at(i)->name, guard_subcommand_at(i)->usage,
			      "\t\t");
	printf("\t\t*) _default ;;\n\t\tesac ;;\n\t*) _default ;;\n\tesac\n}\n");
}

static void print_zsh(void)
{
	printf("#compdef gpuward\n# zsh completion, printed by `gpuward completion zsh`\n"
	       "_gpuward_gpus() {\n\tcompadd visible ${(f)\"$(gpuward %s)\"}\n}\n"
	       "_gpuward_scenarios() {\n\tcompadd help ${(f)\"$(gpuward %s)\"}\n"
	       "\t_files -g '*.toml'\n}\n",
	       UUIDS, SCENARIOS);
	zsh_all_arguments();
	printf("_gpuward() {\n\tlocal -a options\n\tlocal gpuward_command\n\toptions=(\n");
	zsh_options(cli_common_options);
	printf("\t)\n\tgpuward_command=${words[(r)(");
	for (unsigned i = 0; cli_commands[i]; i++)
		printf("%s%s", i ? "|" : "", cli_commands[i]->name);
	printf(")]}\n\tcase $gpuward_command in\n");
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
	printf("help\\:\"the help\"))' '*:::argument:_gpuward_argument'\n}\n_gpuward "
	       "\"$@\"\n");
}

/* Prints a fish condition that is false for the commands without this common option. */
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
			print_value(t, (struct around){ " -x -a '", "'" },
				    (struct around){ " -x -a '(__fish_append , ", ")'" },
				    texts);
		printf(" -d '");
		print_brief(t->help, "'\\");
		printf("'\n");
	}
}

/* Prints a fish command that offers the words that are allowed as an argument. `when` is the
 * beginning of its condition. */
static void fish_arguments(const char *when, const char *name, const char *usage)
{
	struct arguments a = arguments_of(usage);

	if (!*a.words && !a.workers && !a.gpus)
		return;
	printf("complete -c gpuward -f -n '%s__fish_seen_subcommand_from %s%s%s' -a "
	       "\"%s%s%s\"\n",
	       when, name, a.files ? "; and not __fish_seen_subcommand_from " : "",
	       a.files ? a.words : "", a.words, a.workers ? " ($workers)" : "",
	       a.gpus ? " ($uuids)" : "");
}

static void fish_all_arguments(void)
{
	static const char guard[] = "__fish_seen_subcommand_from guard; and ";

	for (unsigned i = 0; cli_commands[i]; i++)
		fish_arguments("", cli_commands[i]->name, cli_commands[i]->arguments);
	printf("complete -c gpuward -f -n '%snot __fish_seen_subcommand_from ", guard);
	print_subcommand_names();
	printf("' -a '");
	print_subcommand_names();
	printf("'\n");
	for (size_t i = 0; guard_subcommand_at(i); i++)
		fish_arguments(guard, guard_subcommand_at(i)->name,
			       guard_subcommand_at(i)->usage);
}

static void print_fish(void)
{
	printf("# fish completion for gpuward, printed by `gpuward completion fish`\n"
	       "set -l uuids \"gpuward list --json 2>/dev/null | sed -n 's/^ *\\\"uuid\\\": "
	       "\\\"\\(GPU-[^\\\"]*\\)\\\".*/\\1/p'\"\n"
	       "set -l scenarios \"gpuward " SCENARIOS "\"\n"
	       "set -l workers \"gpuward guard status --json 2>/dev/null | grep -o "
	       "'{\\\"name\\\":\\\"[^\\\"]*\\\",\\\"kind\\\"' | cut -d'\\\"' -f4\"\n"
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
	fish_all_arguments();
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
	return cli_usage(
		"completion needs the name of a shell: gpuward completion bash, zsh or fish");
}

const struct command command_completion = {
	.name = "completion",
	.summary = "print a completion script for a shell",
	.description = "Prints a completion script for bash, zsh or fish. The installation of "
		       "gpuward already contains these scripts; you need this command only if "
		       "you run gpuward from a build folder.",
	.examples = "  source <(gpuward completion bash)\n"
		    "  gpuward completion fish >~/.config/fish/completions/gpuward.fish\n",
	.arguments = "bash|zsh|fish",
	.offline = true,
	.one_form = true,
	.run = completion_run,
};
