#include "ab_plan.h"

#include "cli.h"

#include "base/clock.h"
#include "base/number.h"
#include "measure/stat.h"
#include "base/buf.h"
#include "measure/meter.h"

#include <math.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#define WARMUP   1    /* each of A and B: fills caches, and finds a B that fails */
#define TARGET   0.01 /* without a gate to decide */
#define SEED_MAX 9007199254740992.0 /* exact in every JSON reader */

#define AT(member) offsetof(struct ab_options, member)
const struct option ab_plan_options[] = {
	OPTION_ROW(TEXT, 0, "pairs-max", AT(pairs_max), "N",
		   "largest number of pairs (default: 40)"),
	OPTION_ROW(TEXT, 0, "target", AT(target), "PERCENT",
		   "stop when the ratio is known within PERCENT (default: 1%; with --fail-if: "
		   "none)"),
	OPTION_ROW(TEXT, 0, "fail-if", AT(fail_if), "RULE",
		   "such as 'energy > +2%': exit status 10 if this is true for B, 0 if not, 11 "
		   "if undecided; energy, time, power or edp"),
	OPTION_ROW(TEXT, 0, "aa-pairs", AT(aa_pairs), "N",
		   "first compare A with itself N times, to measure the noise (default: 4; 0: "
		   "none)"),
	OPTION_ROW(TEXT, 0, "iterations", AT(iterations), "N",
		   "iterations per run, for energy and time per iteration"),
	OPTION_ROW(TEXT, 0, "part", AT(part), "NAME",
		   "compare this part, which both commands mark, instead of the whole run"),
	OPTION_ROW(TEXT, 0, "warmup", AT(warmup), "N",
		   "runs of each command before the measured ones (default: 1)"),
	OPTION_ROW(TEXT, 0, "cooldown-to", AT(cooldown_to), "CELSIUS",
		   "before each run, wait up to a minute until no GPU is warmer (default: 2 "
		   "degrees above the first start)"),
	OPTION_ROW(FLAG, 0, "no-cooldown", AT(no_cooldown), NULL,
		   "do not wait until the GPUs are cool"),
	OPTION_ROW(FLAG, 0, "require-exclusive", AT(require_exclusive), NULL,
		   "another process on a GPU ends the comparison with exit status 13"),
	CLEAN_ROOM_OPTIONS(struct ab_options, room),
	OPTION_ROW(TEXT, 0, "seed", AT(seed), "N",
		   "seed for the order and the bootstrap (default: a different one each time)"),
	OPTION_ROW(FLAG, 0, "show-output", AT(show_output), NULL,
		   "show the output of the commands, which is discarded by default"),
	OPTION_ROW(TEXT, 'o', "output", AT(output), "FILE",
		   "write the result to FILE; -: print it"),
	OPTION_ROW(FLAG, 0, "keep-command", AT(keep_command), NULL,
		   "store the whole command lines in the result, not only the program names"),
	OPTION_ROW(FLAG, 0, "progress", AT(progress), NULL,
		   "print one line per pair even if standard error is not a terminal"),
	{ .name = NULL },
};

static int parse_target(const char *text, double *ret)
{
	const char *end;
	double v = number_parse(text, &end);

	if (end == text || strcmp(end, "%") != 0 || !(v > 0 && v <= 100))
		return cli_usage(
			"--target takes a percentage above 0 such as 1%% or 0.5%%, not '%s'",
			text);
	*ret = v / 100;
	return EXIT_OK;
}

static int parse_gate(const char *text, struct ab_config *config)
{
	char error[256];

	if (ab_gate_parse(text, &config->gate, error, sizeof(error)) != 0)
		return cli_usage("--fail-if '%s': %s", text, error);
	config->gated = true;
	return EXIT_OK;
}

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
	if (code == EXIT_OK && o->cooldown_to && o->no_cooldown)
		code = cli_usage(
			"--cooldown-to and --no-cooldown exclude each other: give one of them");
	if (code == EXIT_OK)
		code = clean_room_check(&o->room);
	if (code == EXIT_OK && o->part && !*o->part)
		code = cli_usage("--part: the name is empty");
	return code;
}

#define FORM "gpuward ab [OPTIONS] -- A... -- B..."

int ab_plan_split(char **argv, int argc, char **ret[2])
{
	int part = 0;

	while (part < argc && strcmp(argv[part], "--") != 0)
		part++;
	if (argc == 0)
		return cli_usage("two commands are missing: " FORM);
	if (part == argc)
		return cli_usage(
			"the second command is missing: put -- and B after '%s': " FORM,
			argv[part - 1]);
	ret[AB_ARM_A] = argv;
	ret[AB_ARM_B] = argv + part + 1;
	argv[part] = NULL;
	for (unsigned i = 0; i < 2; i++)
		if (!ret[i][0] || !*ret[i][0])
			return cli_usage("command %c is empty: " FORM, i ? 'B' : 'A');
	for (char **word = ret[AB_ARM_B]; *word; word++)
		if (strcmp(*word, "--") == 0)
			return cli_usage(
				"there is a third -- after '%s', but ab compares two commands; "
				"wrap a command that needs a -- in sh -c '...'",
				word[-1]);
	return EXIT_OK;
}

struct sum {
	double best, variance, below, above; /* J, J^2 */
	double counter_j, samples_j, warmest_c;
	bool alone; /* some GPU had no second meter */
	enum gw_validity validity;
	uint64_t codes;
};

static void add_energy(struct sum *s, const struct gw_energy *e)
{
	double below = e->relative.best - e->relative.low;
	double above = e->relative.high - e->relative.best;

	s->best += e->relative.best;
	s->variance += e->u_relative * e->u_relative;
	s->below += below * below;
	s->above += above * above;
	s->counter_j += e->counter_joules;
	s->samples_j += e->samples_joules;
	s->alone = s->alone || isnan(e->residual_ratio);
	s->warmest_c = fmax(s->warmest_c, e->temperature_begin);
	s->validity = e->validity > s->validity ? e->validity : s->validity;
	s->codes |= e->codes;
}

static void finish_sum(const struct sum *s, struct ab_record *r)
{
	r->energy = (struct gw_interval){ s->best - sqrt(s->below), s->best,
					  s->best + sqrt(s->above) };
	r->u_j = sqrt(s->variance);
	r->power_w = s->best / r->seconds;
	r->residual_ratio = s->alone ? NAN : s->samples_j / s->counter_j - 1;
	r->temperature_c = s->warmest_c;
	r->validity = s->validity;
	r->codes = s->codes;
}

static void add_whole_run(struct gw_meter *meter, const struct runner_run *run, struct sum *s,
			  double *ret_seconds)
{
	for (unsigned i = 0; i < gw_meter_device_count(meter); i++)
		add_energy(s, gw_window_energy(run->window, i));
	*ret_seconds = run->seconds;
}

static void add_part(struct gw_meter *meter, const struct progress_marks_window *w,
		     struct sum *s, double *ret_seconds)
{
	*ret_seconds = (double)(w->end_ns - w->begin_ns) * 1e-9;
	for (unsigned i = 0; i < gw_meter_device_count(meter); i++)
		add_energy(s, &w->energy[i]);
}

int ab_record_fill(struct gw_meter *meter, const char *part, const struct runner_run *run,
		   struct ab_record *r)
{
	struct sum s = { .warmest_c = NAN };
	const struct progress_marks_window *w;
	unsigned found = 1;

	if (!part) {
		add_whole_run(meter, run, &s, &r->seconds);
	} else {
		w = progress_marks_find(&run->marks, part, &found);
		if (!w)
			return -GW_E_NOENT;
		add_part(meter, w, &s, &r->seconds);
	}
	finish_sum(&s, r);
	return (int)found;
}

void ab_record_reason(struct gw_meter *meter, const char *part, const struct gw_snapshot *snap,
		      const struct runner_run *run, char *out, size_t size)
{
	unsigned found;
	const struct progress_marks_window *w =
		part ? progress_marks_find(&run->marks, part, &found) : NULL;
	char evidence[200];
	struct buf b;

	buf_init_fixed(&b, out, size);
	for (unsigned i = 0; i < gw_meter_device_count(meter); i++) {
		const struct gw_energy *e =
			w ? &w->energy[i] : gw_window_energy(run->window, i);

		for (unsigned c = 0; c < GW_CODES; c++) {
			const struct gw_code_info *info = gw_code_info(c);

			if (!(e->codes & UINT64_C(1) << c) || info->level == GW_VALID)
				continue;
			window_evidence(run->window, i, e, c, evidence, sizeof(evidence));
			buf_addf(&b, "%sGPU %u: %s%s%s", b.len ? "; " : "",
				 gw_snapshot_device(snap, gw_meter_device(meter, i))->index,
				 info->sentence, *evidence ? ", " : "", evidence);
		}
	}
	if (b.len == 0)
		buf_adds(&b, "its energy is unknown");
}
