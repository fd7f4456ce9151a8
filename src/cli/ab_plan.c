#include "ab_plan.h"

#include "cli.h"

#include "base/clock.h"
#include "base/number.h"
#include "measure/random.h"

#include <math.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#define WARMUP   1    /* of A and B each: caches are filled, and a B that fails is found */
#define TARGET   0.01 /* where there is no gate to decide */
#define SEED_MAX 9007199254740992.0 /* every JSON reader can hold it */

#define AT(member) offsetof(struct ab_options, member)
const struct option ab_plan_options[] = {
	{ "pairs-max", 0, OPTION_TEXT, AT(pairs_max), "N", "pairs at most (default: 40)", NULL,
	  NULL },
	{ "target", 0, OPTION_TEXT, AT(target), "PERCENT",
	  "enough when the ratio is known within this (default: 1%; with --fail-if: none)",
	  NULL, NULL },
	{ "fail-if", 0, OPTION_TEXT, AT(fail_if), "RULE",
	  "such as 'energy > +2%': exit 10 when B is so, 0 when not, 11 when that cannot be "
	  "told; energy, time, power or edp",
	  NULL, NULL },
	{ "aa-pairs", 0, OPTION_TEXT, AT(aa_pairs), "N",
	  "pairs of A against itself first, which show the noise (default: 4; 0: none)", NULL,
	  NULL },
	{ "iterations", 0, OPTION_TEXT, AT(iterations), "N",
	  "iterations that a run makes, for energy and time of each", NULL, NULL },
	{ "part", 0, OPTION_TEXT, AT(part), "NAME",
	  "compare the part that both commands mark so, not the whole run", NULL, NULL },
	{ "warmup", 0, OPTION_TEXT, AT(warmup), "N",
	  "runs of each before it that do not count (default: 1)", NULL, NULL },
	{ "cooldown-to", 0, OPTION_TEXT, AT(cooldown_to), "CELSIUS",
	  "before each run wait until no GPU is warmer, a minute at most (default: 2 degrees "
	  "above the first start)",
	  NULL, NULL },
	{ "no-cooldown", 0, OPTION_FLAG, AT(no_cooldown), NULL, "do not wait for it", NULL,
	  NULL },
	{ "require-exclusive", 0, OPTION_FLAG, AT(require_exclusive), NULL,
	  "somebody else on a GPU ends the comparison with exit status 13", NULL, NULL },
	CLEAN_ROOM_OPTIONS(struct ab_options, room),
	{ "seed", 0, OPTION_TEXT, AT(seed), "N",
	  "of the order and of the bootstrap (default: another each time)", NULL, NULL },
	{ "show-output", 0, OPTION_FLAG, AT(show_output), NULL,
	  "of the commands, which is thrown away otherwise", NULL, NULL },
	{ "output", 'o', OPTION_TEXT, AT(output), "FILE", "write the result there; -: print it",
	  NULL, NULL },
	{ "keep-command", 0, OPTION_FLAG, AT(keep_command), NULL,
	  "the result holds the whole command lines, not their names alone", NULL, NULL },
	{ "progress", 0, OPTION_FLAG, AT(progress), NULL,
	  "a line for each pair even where that is no terminal", NULL, NULL },
	{ NULL, 0, 0, 0, NULL, NULL, NULL, NULL },
};

static int parse_target(const char *text, double *ret)
{
	const char *end;
	double v = number_parse(text, &end);

	if (end == text || strcmp(end, "%") != 0 || !(v > 0 && v <= 100)) {
		cli_error("--target takes a percentage above 0 such as 1%% or 0.5%%, not '%s'",
			  text);
		return EXIT_USAGE;
	}
	*ret = v / 100;
	return EXIT_OK;
}

static int parse_gate(const char *text, struct ab_config *config)
{
	char error[256];

	if (ab_gate_parse(text, &config->gate, error, sizeof(error)) != 0) {
		cli_error("--fail-if '%s': %s", text, error);
		return EXIT_USAGE;
	}
	config->gated = true;
	return EXIT_OK;
}

/* Another one each time. */
static double fresh_seed(void)
{
	uint64_t state = clock_wall_ns(clock_real()) ^ (uint64_t)getpid() << 40;

	return (double)(splitmix64(&state) >> 32);
}

static int parse_counts(const struct ab_options *o, struct ab_plan *p)
{
	double pairs = p->config.pairs_max, aa = p->config.aa_pairs;
	double warmup = WARMUP, seed = fresh_seed();
	const struct {
		const char *name, *text;
		double least, most, *ret;
	} counts[] = {
		{ "pairs-max", o->pairs_max, 2, AB_PAIRS_LIMIT, &pairs },
		{ "aa-pairs", o->aa_pairs, 0, AB_PAIRS_LIMIT, &aa },
		{ "iterations", o->iterations, 1, 1e15, &p->iterations },
		{ "warmup", o->warmup, 0, 1000, &warmup },
		{ "seed", o->seed, 0, SEED_MAX, &seed },
	};
	int code = EXIT_OK;

	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]) && code == EXIT_OK; i++)
		code = cli_count(counts[i].name, counts[i].text, counts[i].least,
				 counts[i].most, counts[i].ret);
	p->config.pairs_max = (unsigned)pairs;
	p->config.aa_pairs = (unsigned)aa;
	p->config.seed = (uint64_t)seed;
	p->warmup = (unsigned)warmup;
	return code;
}

int ab_plan_parse(const struct ab_options *o, struct ab_plan *p)
{
	int code;

	*p = (struct ab_plan){ .iterations = NAN, .cooled = !o->no_cooldown, .cool_to_c = NAN };
	ab_config_init(&p->config);
	code = parse_counts(o, p);
	p->config.require_exclusive = o->require_exclusive;
	if (code == EXIT_OK && o->fail_if)
		code = parse_gate(o->fail_if, &p->config);
	p->config.target_ratio = p->config.gated ? 0 : TARGET;
	if (code == EXIT_OK && o->target)
		code = parse_target(o->target, &p->config.target_ratio);
	if (code == EXIT_OK && o->cooldown_to)
		code = cli_celsius("cooldown-to", o->cooldown_to, &p->cool_to_c);
	if (code == EXIT_OK && o->cooldown_to && o->no_cooldown) {
		cli_error(
			"--cooldown-to and --no-cooldown exclude each other: give one of them");
		code = EXIT_USAGE;
	}
	if (code == EXIT_OK)
		code = clean_room_check(&o->room);
	if (code == EXIT_OK && o->part && !*o->part) {
		cli_error("--part takes the name of a part that the commands mark, not ''");
		code = EXIT_USAGE;
	}
	return code;
}

#define FORM "gpuward ab [OPTIONS] -- A... -- B..."

int ab_plan_split(char **argv, int argc, char **ret[2])
{
	int part = 0;

	while (part < argc && strcmp(argv[part], "--") != 0)
		part++;
	if (argc == 0) {
		cli_error("two commands are missing: " FORM);
		return EXIT_USAGE;
	}
	if (part == argc) {
		cli_error("the second command is missing: put -- and B after '%s': " FORM,
			  argv[part - 1]);
		return EXIT_USAGE;
	}
	ret[AB_ARM_A] = argv;
	ret[AB_ARM_B] = argv + part + 1;
	argv[part] = NULL;
	for (unsigned i = 0; i < 2; i++)
		if (!ret[i][0] || !*ret[i][0]) {
			cli_error("command %c is empty: " FORM, i ? 'B' : 'A');
			return EXIT_USAGE;
		}
	for (char **word = ret[AB_ARM_B]; *word; word++)
		if (strcmp(*word, "--") == 0) {
			cli_error("there is a third -- after '%s', and two commands are "
				  "compared; one that needs a -- of its own goes into sh -c "
				  "'...'",
				  word[-1]);
			return EXIT_USAGE;
		}
	return EXIT_OK;
}
