#include "ab_plan.h"

#include "base/clock.h"
#include "base/number.h"
#include "measure/stat.h"
#include "base/buf.h"
#include "measure/meter.h"

#include <math.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#define TARGET 0.01 /* the default of --target if no --fail-if is given */
/* 2^53: every JSON reader represents integers up to this value exactly */
#define SEED_MAX 9007199254740992.0

#define AT(member) offsetof(struct ab_options, member)
const struct option ab_plan_options[] = {
	OPTION_COUNT_ROW("pairs-max", AT(pairs_max), "largest number of pairs", 2,
			 AB_PAIRS_LIMIT, 40),
	OPTION_ROW(TEXT, 0, "target", AT(target), "PERCENT",
		   "stop when the ratio is known within PERCENT (default: 1%; no target with "
		   "--fail-if)"),
	OPTION_ROW(TEXT, 0, "fail-if", AT(fail_if), "RULE",
		   "condition on B relative to A such as 'energy > +2%' (energy, time, power "
		   "or edp): exit status 10 if it is true, 0 if not, 11 if undecided"),
	OPTION_COUNT_ROW("aa-pairs", AT(aa_pairs),
			 "first compare A with itself N times, to measure the noise", 0,
			 AB_PAIRS_LIMIT, 4),
	SESSION_ITERATIONS(struct ab_options, session),
	SESSION_PART(struct ab_options, session),
	/* One warm-up run is the default: it fills caches, and shows early whether B fails. */
	SESSION_COOLDOWN(struct ab_options, session, 1),
	SESSION_EXCLUSIVE(struct ab_options, session),
	CLEAN_ROOM_OPTIONS(struct ab_options, session.room),
	OPTION_COUNT_ROW("seed", AT(seed),
			 "seed for the order and the bootstrap (default: a different one each "
			 "time)",
			 0, SEED_MAX, NAN),
	OPTION_ROW(FLAG, 0, "show-output", AT(show_output), NULL,
		   "show the output of the commands, which is discarded by default"),
	SESSION_OUTPUT(struct ab_options, session),
	SESSION_KEEP_COMMAND(struct ab_options, session),
	SESSION_PROGRESS(struct ab_options, session),
	OPTION_END,
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

int ab_plan_parse(const struct ab_options *o, struct ab_config *c)
{
	int code = EXIT_OK;

	ab_config_init(c);
	c->pairs_max = (unsigned)o->pairs_max;
	c->aa_pairs = (unsigned)o->aa_pairs;
	c->seed = (uint64_t)(isnan(o->seed) ? fresh_seed() : o->seed);
	c->require_exclusive = o->session.require_exclusive;
	if (o->fail_if)
		code = parse_gate(o->fail_if, c);
	c->target_ratio = c->gated ? 0 : TARGET;
	if (code == EXIT_OK && o->target)
		code = parse_target(o->target, &c->target_ratio);
	if (code == EXIT_OK)
		code = session_check(&o->session);
	if (code == EXIT_OK)
		code = clean_room_check(&o->session.room);
	if (code == EXIT_OK && o->session.part && !*o->session.part)
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
		return cli_usage("the second command is missing: write -- and the second "
				 "command after '%s': " FORM,
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
	double best, variance, below, above; /* best in J, the other three in J^2 */
	double counter_j, samples_j, warmest_c;
	/* at least one GPU has only one energy source, so residual_ratio is unknown */
	bool alone;
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

/* Returns the energy of device i in part w of the run; w NULL: in the whole run. */
static const struct gw_energy *energy_of(const struct runner_run *run,
					 const struct progress_marks_window *w, unsigned i)
{
	return w ? &w->energy[i] : gw_window_energy(run->window, i);
}

int ab_record_fill(struct gw_meter *meter, const char *part, const struct runner_run *run,
		   struct ab_record *r)
{
	struct sum s = { .warmest_c = NAN };
	unsigned found = 1;
	const struct progress_marks_window *w =
		part ? progress_marks_find(&run->marks, part, &found) : NULL;

	if (part && !w)
		return -GW_E_NOENT;
	for (unsigned i = 0; i < gw_meter_device_count(meter); i++)
		add_energy(&s, energy_of(run, w, i));
	r->seconds = w ? (double)(w->end_ns - w->begin_ns) * 1e-9 : run->seconds;
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
		const struct gw_energy *e = energy_of(run, w, i);

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
		buf_adds(&b, "the energy of the run is unknown");
}
