#include "measure_plan.h"

#include "calibration.h"
#include "measured.h"
#include "output.h"

#include "base/clock.h"
#include "base/number.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static const char *const count_choices[] = { "tokens", "iterations", NULL };

#define AT(member) offsetof(struct measure_options, member)
const struct option measure_plan_options[] = {
	{ "label", 0, OPTION_TEXT, AT(label), "NAME", "what is measured: fp16, batch-8, ...",
	  NULL, NULL },
	{ "trial", 0, OPTION_TEXT, AT(trial), "N", "number of the (first) run (default: 1)",
	  NULL, NULL },
	{ "trials", 0, OPTION_TEXT, AT(trials), "N", "run it so many times (default: 1)", NULL,
	  NULL },
	{ "iterations", 0, OPTION_TEXT, AT(iterations), "N",
	  "iterations that a run makes, for latency and energy of each", NULL, NULL },
	{ "tokens", 0, OPTION_TEXT, AT(tokens), "N", "tokens that a run makes", NULL, NULL },
	{ "count-cmd", 0, OPTION_TEXT, AT(count_by[COUNTER_CMD]), "COMMAND",
	  "a shell command that prints how many there are so far, asked before and after each "
	  "run",
	  NULL, NULL },
	{ "count-url", 0, OPTION_TEXT, AT(count_by[COUNTER_URL]), "URL",
	  "a server's own counter, read before and after each run: "
	  "http://HOST:PORT/metrics#NAME; NAME may have labels, and vLLM, llama.cpp, SGLang "
	  "and TGI need none",
	  NULL, NULL },
	{ "count", 0, OPTION_CHOICE, AT(count), "WHAT",
	  "what these count: tokens (the default) or iterations", count_choices, NULL },
	{ "model-size", 0, OPTION_TEXT, AT(model_size), "SIZE",
	  "for the result: 128MB (10^6), 128MiB (2^20), ...", NULL, NULL },
	{ "part", 0, OPTION_TEXT, AT(part), "NAME",
	  "the figures are of this part, which the command marks (its first, when it marks "
	  "several of that name), not of the whole run with its loading",
	  NULL, NULL },
	{ "tag", 0, OPTION_LIST, AT(tag), "KEY=VALUE", "for the result; may repeat", NULL,
	  NULL },
	{ "interval", 'i', OPTION_DURATION, AT(interval_ns), "TIME",
	  "between readings of clocks, heat, memory (default: 100ms); power comes as fast as "
	  "the sensor tells it",
	  NULL, NULL },
	{ "baseline", 0, OPTION_OPTIONAL, AT(baseline), "WHICH",
	  "energy above idle: auto takes the idle power first (up to 30 s) unless it is known, "
	  "new takes it anyhow, kept uses what is known even when it is old or of another "
	  "temperature, which is told, none; default: what is known, if it fits",
	  NULL, "auto" },
	{ "require-exclusive", 0, OPTION_FLAG, AT(require_exclusive), NULL,
	  "somebody else on a GPU makes the result invalid, and the exit status 13", NULL,
	  NULL },
	{ "service", 0, OPTION_FLAG, AT(service), NULL,
	  "the service that runs already measures: no driver is opened here", NULL, NULL },
	CLEAN_ROOM_OPTIONS(struct measure_options, room),
	{ "warmup", 0, OPTION_TEXT, AT(warmup), "N", "runs before it that do not count", NULL,
	  NULL },
	{ "cooldown-to", 0, OPTION_TEXT, AT(cooldown_to), "CELSIUS",
	  "before each run wait until no GPU is warmer, a minute at most (default with "
	  "--trials: as at the first start)",
	  NULL, NULL },
	{ "no-cooldown", 0, OPTION_FLAG, AT(no_cooldown), NULL, "do not wait for it", NULL,
	  NULL },
	{ "output", 'o', OPTION_TEXT, AT(output), "FILE", "write the result there; -: print it",
	  NULL, NULL },
	{ "bundle", 0, OPTION_TEXT, AT(bundle), "DIR", "keep every reading there", NULL, NULL },
	{ "keep-command", 0, OPTION_FLAG, AT(keep_command), NULL,
	  "the result holds the whole command line, not its name alone", NULL, NULL },
	{ "calibrate", 0, OPTION_TEXT, AT(calibrate), "TRACE",
	  "gain and offset of the GPU's sensor by an outside meter: a CSV of time and watts "
	  "over the same span, read when the last run has ended",
	  NULL, NULL },
	{ "calibrate-accuracy", 0, OPTION_TEXT, AT(calibrate_accuracy), "PERCENT",
	  "of that meter, 95 % (default: 1)", NULL, NULL },
	{ "calibrate-keep", 0, OPTION_FLAG, AT(calibrate_keep), NULL,
	  "use it for this GPU from now on", NULL, NULL },
	{ "progress", 0, OPTION_FLAG, AT(progress), NULL,
	  "tell how far it is even where that is no terminal", NULL, NULL },
	{ NULL, 0, 0, 0, NULL, NULL, NULL, NULL },
};

static int parse_size(const char *text, double *ret)
{
	static const struct {
		const char *unit;
		double bytes;
	} units[] = { { "", 1 },         { "B", 1 },        { "KB", 1e3 },    { "kB", 1e3 },
		      { "K", 1e3 },      { "MB", 1e6 },     { "M", 1e6 },     { "GB", 1e9 },
		      { "G", 1e9 },      { "TB", 1e12 },    { "T", 1e12 },    { "KiB", 1024 },
		      { "MiB", 0x1p20 }, { "GiB", 0x1p30 }, { "TiB", 0x1p40 } };
	const char *end;
	double v = number_parse(text, &end);

	if (end != text && v >= 0 && v < 1e15) {
		end += strspn(end, " ");
		for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
			if (strcmp(end, units[i].unit) == 0) {
				*ret = v * units[i].bytes;
				return EXIT_OK;
			}
	}
	cli_error("--model-size takes a size such as 128MB or 1.5GiB, not '%s'", text);
	return EXIT_USAGE;
}

static int parse_baseline(const char *text, enum run_baseline_mode *ret)
{
	/* Who says "kept" wants one in any case; who says nothing wants one that fits. */
	static const char *const words[] = { [RUN_BASELINE_OLD] = "kept",
					     [RUN_BASELINE_AUTO] = "auto",
					     [RUN_BASELINE_NEW] = "new",
					     [RUN_BASELINE_NONE] = "none" };

	for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (words[i] && strcmp(text, words[i]) == 0) {
			*ret = (enum run_baseline_mode)i;
			return EXIT_OK;
		}
	cli_error("--baseline takes auto, new, kept or none, not '%s'", text);
	return EXIT_USAGE;
}

static int check_tags(const struct option_list *tags)
{
	for (unsigned i = 0; i < tags->count; i++) {
		size_t key = strcspn(tags->item[i], "=");

		if (key == 0 || key > 60 || !tags->item[i][key]) {
			cli_error("--tag takes KEY=VALUE, not '%s'", tags->item[i]);
			return EXIT_USAGE;
		}
	}
	return EXIT_OK;
}

/* The first way to count that was given, of those from `from` on; COUNTER_KINDS: none. */
static unsigned count_given(const struct measure_options *o, unsigned from)
{
	while (from < COUNTER_KINDS && !o->count_by[from])
		from++;
	return from;
}

/* One count of a thing, and of the whole run. */
static int check_count(const struct measure_options *o, struct measure_plan *p)
{
	unsigned first = count_given(o, 0), second = count_given(o, first + 1);
	const char *url = o->count_by[COUNTER_URL], *name;
	char why[COUNTER_WHY];

	if (first < COUNTER_KINDS) {
		p->count = &counter_kinds[first];
		p->count_by = o->count_by[first];
	}
	p->counts_iterations = o->count && strcmp(o->count, "iterations") == 0;
	name = p->counts_iterations ? "iterations" : "tokens";
	if (!p->count && !o->count)
		return EXIT_OK;
	if (!p->count)
		cli_error("--count says what --count-cmd or --count-url counts, and that is "
			  "missing");
	else if (o->part)
		cli_error("--%s counts over a whole run, and --part is about a part of it: the "
			  "command can mark tokens instead",
			  p->count->option);
	else if (second < COUNTER_KINDS)
		cli_error("--%s and --%s are two counts of one thing: give one of them",
			  p->count->option, counter_kinds[second].option);
	else if (p->counts_iterations ? o->iterations : o->tokens)
		cli_error("--%s and --%s are two counts of one thing: give one of them",
			  p->count->option, name);
	else if (p->counts_iterations && url && !strchr(url, '#'))
		cli_error("--count-url: the counters that need no name count tokens: name the "
			  "one of the iterations, as URL#COUNTER");
	else if (p->count->check(p->count_by, why, sizeof(why)) != 0)
		cli_error("--%s: %s", p->count->option, why);
	else
		return EXIT_OK;
	return EXIT_USAGE;
}

static int parse_plan(const struct measure_options *o, struct measure_plan *p)
{
	double first = 1, trials = 1, warmup = 0;
	const struct {
		const char *name, *text;
		double least, most, *ret;
	} counts[] = {
		{ "trial", o->trial, 1, 1e6, &first },
		{ "trials", o->trials, 1, MEASURED_TRIALS, &trials },
		{ "warmup", o->warmup, 0, MEASURED_TRIALS, &warmup },
		{ "iterations", o->iterations, 1, 1e15, &p->iterations },
		{ "tokens", o->tokens, 1, 1e15, &p->tokens },
	};
	int code = check_tags(&o->tag);

	*p = (struct measure_plan){ .iterations = NAN,
				    .tokens = NAN,
				    .model_bytes = NAN,
				    .cool_c = NAN,
				    .baseline = RUN_BASELINE_KEPT };
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]) && code == EXIT_OK; i++)
		if (counts[i].text)
			code = cli_count(counts[i].name, counts[i].text, counts[i].least,
					 counts[i].most, counts[i].ret);
	if (code == EXIT_OK && o->model_size)
		code = parse_size(o->model_size, &p->model_bytes);
	if (code == EXIT_OK && o->cooldown_to)
		code = cli_celsius("cooldown-to", o->cooldown_to, &p->cool_c);
	if (code == EXIT_OK && o->cooldown_to && o->no_cooldown) {
		cli_error(
			"--cooldown-to and --no-cooldown exclude each other: give one of them");
		code = EXIT_USAGE;
	}
	if (code == EXIT_OK)
		code = check_count(o, p);
	if (code == EXIT_OK)
		code = calibration_accuracy(o->calibrate_accuracy, &p->accuracy);
	if (code == EXIT_OK && !o->calibrate && (o->calibrate_accuracy || o->calibrate_keep)) {
		cli_error(
			"--calibrate-%s is about the trace of --calibrate, and that is missing",
			o->calibrate_keep ? "keep" : "accuracy");
		code = EXIT_USAGE;
	}
	if (code == EXIT_OK && o->baseline)
		code = parse_baseline(o->baseline, &p->baseline);
	if (code == EXIT_OK && o->interval_ns && o->interval_ns < NS_PER_MS) {
		cli_error("--interval is a millisecond or more");
		code = EXIT_USAGE;
	}
	p->first = (unsigned)first;
	p->trials = (unsigned)trials;
	p->warmup = (unsigned)warmup;
	return code;
}

/* What --service cannot do, as the GPUs are not ours then. */
static int check_service(const struct cli *c, const struct measure_options *o,
			 const struct measure_plan *p)
{
	static const char opens[] = "is about GPUs that gpuward opens itself";
	static const char readings[] = "needs every reading, which the service keeps to itself";
	const struct {
		const char *name;
		bool given;
		const char *why, *instead;
	} refused[] = {
		{ "simulate", c->simulate != NULL, opens, "" },
		{ "backend", c->backend != NULL, opens, "" },
		{ "nvml-library", c->nvml_library != NULL, opens, "" },
		{ "wake", c->wake, opens, "" },
		{ "timeout", c->timeout_ns != 0, opens, "" },
		{ "root", c->root != NULL, opens, "" },
		{ "bundle", o->bundle != NULL, readings, "" },
		{ "calibrate", o->calibrate != NULL, readings, "" },
		{ "part", o->part != NULL, readings, "" },
		{ "progress", o->progress, readings, "" },
		{ "interval", o->interval_ns != 0, "is the service's own", "" },
		{ "baseline", o->baseline && p->baseline != RUN_BASELINE_NONE,
		  "looks at the state of the GPU", "" },
		{ "require-exclusive", o->require_exclusive,
		  "needs to know whose process is whose, and to a service nobody is a stranger",
		  "" },
		{ "clean-room", o->room.wait != NULL, opens,
		  "hold the workers with gpuward guard hold, or " },
	};

	for (size_t i = 0; o->service && i < sizeof(refused) / sizeof(refused[0]); i++)
		if (refused[i].given) {
			cli_error("--%s %s: %sleave out --service", refused[i].name,
				  refused[i].why, refused[i].instead);
			return EXIT_USAGE;
		}
	return EXIT_OK;
}

/* Whom --address and --token-file are about. */
static int check_remote(const struct measure_options *o)
{
	const struct remote_flags *f = &o->room.remote;

	if (o->service)
		return EXIT_OK;
	if (!o->room.wait && (f->address || f->token_file)) {
		cli_error("--%s is about the service that --service or --clean-room asks, and "
			  "neither is given",
			  f->address ? "address" : "token-file");
		return EXIT_USAGE;
	}
	return clean_room_check(&o->room);
}

static int check(const struct cli *c, const struct measure_options *o,
		 const struct measure_plan *p)
{
	char why[4600];

	if (c->argc == 0) {
		cli_error("a command is missing: gpuward measure [OPTIONS] -- COMMAND");
		return EXIT_USAGE;
	}
	if ((o->output && !*o->output) || (o->bundle && !*o->bundle)) {
		cli_error("--%s wants a name, and '' is none",
			  o->output && !*o->output ? "output" : "bundle");
		return EXIT_USAGE;
	}
	if (check_service(c, o, p) != EXIT_OK || check_remote(o) != EXIT_OK)
		return EXIT_USAGE;
	if (o->calibrate && trace_check(o->calibrate, why, sizeof(why)) != 0) {
		cli_error("--calibrate: %s; nothing was measured", why);
		return EXIT_FAILED;
	}
	return output_possible(o->output);
}

int measure_plan_make(const struct cli *c, struct measure_plan *ret)
{
	const struct measure_options *o = c->own;
	int code = parse_plan(o, ret);

	return code == EXIT_OK ? check(c, o, ret) : code;
}
