#include "measure_plan.h"

#include "calibrate.h"
#include "run_result.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/number.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static const char *const count_choices[] = { "tokens", "iterations", NULL };

#define AT(member) offsetof(struct measure_options, member)
const struct option measure_plan_options[] = {
	OPTION_ROW(TEXT, 0, "label", AT(label), "NAME",
		   "name of the result: fp16, batch-8, ..."),
	OPTION_COUNT_ROW("trial", AT(trial), "number of the first run", 1, 1e6, 1),
	OPTION_COUNT_ROW("trials", AT(trials), "run the command N times", 1, RUN_RESULT_TRIALS,
			 1),
	SESSION_ITERATIONS(struct measure_options, session),
	OPTION_COUNT_ROW("tokens", AT(tokens),
			 "number of tokens in a run, for energy per token", 1, 1e15, NAN),
	OPTION_ROW(TEXT, 0, "count-cmd", AT(count_by[COUNTER_CMD]), "COMMAND",
		   "a shell command that prints the current count; it runs before and after "
		   "each run"),
	OPTION_ROW(TEXT, 0, "count-url", AT(count_by[COUNTER_URL]), "URL",
		   "a counter of a server, read before and after each run: "
		   "http://HOST:PORT/metrics#NAME; NAME may have labels; vLLM, llama.cpp, "
		   "SGLang and TGI need no NAME"),
	OPTION_CHOICE_ROW(
		0, "count", AT(count), "WHAT",
		"what --count-cmd or --count-url counts: tokens (the default) or iterations",
		count_choices),
	OPTION_ROW(TEXT, 0, "model-size", AT(model_size), "SIZE",
		   "size of the model, for the result: 128MB (10^6), 128MiB (2^20), ..."),
	SESSION_PART(struct measure_options, session),
	OPTION_ROW(LIST, 0, "tag", AT(tag), "KEY=VALUE", "add a tag to the result; repeatable"),
	OPTION_ROW(DURATION, 'i', "interval", AT(interval_ns), "TIME",
		   "time between readings of clocks, temperature, memory (default: 100ms); "
		   "power is read as fast as the sensor updates"),
	OPTION_OPTIONAL_ROW(0, "baseline", AT(baseline), "WHICH",
			    "which idle power to subtract, for the energy above idle. auto: a "
			    "stored value if it fits, else measure it first (up to 30 s); new: "
			    "always measure it; kept: a stored value even if it is old or was "
			    "measured at another temperature, with a warning; none: nothing "
			    "is subtracted. Without this option, a stored value is used if it "
			    "fits",
			    "auto"),
	SESSION_EXCLUSIVE(struct measure_options, session),
	OPTION_ROW(FLAG, 0, "service", AT(service), NULL,
		   "let the running service measure; this command does not open the driver"),
	CLEAN_ROOM_OPTIONS(struct measure_options, session.room),
	SESSION_COOLDOWN(struct measure_options, session, 0),
	SESSION_OUTPUT(struct measure_options, session),
	OPTION_ROW(TEXT, 0, "bundle", AT(bundle), "DIR", "keep all raw samples in this folder"),
	SESSION_KEEP_COMMAND(struct measure_options, session),
	CALIBRATION_OPTIONS(AT(calibrate), AT(calibrate_accuracy), "; read after the last run"),
	OPTION_ROW(FLAG, 0, "calibrate-keep", AT(calibrate_keep), NULL,
		   "also use this calibration for later measurements of this GPU"),
	COST_OPTIONS(struct measure_options, cost),
	SESSION_PROGRESS(struct measure_options, session),
	OPTION_END,
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
		for (size_t i = 0; i < COUNT(units); i++)
			if (strcmp(end, units[i].unit) == 0) {
				*ret = v * units[i].bytes;
				return EXIT_OK;
			}
	}
	return cli_usage("--model-size takes a size such as 128MB or 1.5GiB, not '%s'", text);
}

static int parse_baseline(const char *text, enum run_baseline_mode *ret)
{
	/* With "kept", a stored baseline is used even if it does not fit. Without --baseline,
	 * it is used only if it fits. */
	static const char *const words[] = { [RUN_BASELINE_OLD] = "kept",
					     [RUN_BASELINE_AUTO] = "auto",
					     [RUN_BASELINE_NEW] = "new",
					     [RUN_BASELINE_NONE] = "none" };

	for (unsigned i = 0; i < COUNT(words); i++)
		if (words[i] && strcmp(text, words[i]) == 0) {
			*ret = (enum run_baseline_mode)i;
			return EXIT_OK;
		}
	return cli_usage("--baseline takes auto, new, kept or none, not '%s'", text);
}

static int check_tags(const struct option_list *tags)
{
	for (unsigned i = 0; i < tags->count; i++) {
		size_t key = strcspn(tags->item[i], "=");

		if (key == 0 || key > 60 || !tags->item[i][key])
			return cli_usage("--tag takes KEY=VALUE, not '%s'", tags->item[i]);
	}
	return EXIT_OK;
}

/* Returns the index of the first counter option that was given, from the index `from` on.
 * Returns COUNTER_KINDS if there is none. */
static unsigned count_given(const struct measure_options *o, unsigned from)
{
	while (from < COUNTER_KINDS && !o->count_by[from])
		from++;
	return from;
}

/* Checks that at most one counter is given, and that no option conflicts with it. */
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
		cli_error("--count needs --count-cmd or --count-url");
	else if (o->session.part)
		cli_error("--%s counts over the whole run and cannot be used with --part; let "
			  "the command mark tokens instead",
			  p->count->option);
	else if (second < COUNTER_KINDS)
		cli_error("--%s and --%s exclude each other: give one of them",
			  p->count->option, counter_kinds[second].option);
	else if (!isnan(p->counts_iterations ? o->session.iterations : o->tokens))
		cli_error("--%s and --%s exclude each other: give one of them",
			  p->count->option, name);
	else if (p->counts_iterations && url && !strchr(url, '#'))
		cli_error("--count-url: to count iterations, give the name of the counter: "
			  "URL#NAME");
	else if (p->count->check(p->count_by, why, sizeof(why)) != 0)
		cli_error("--%s: %s", p->count->option, why);
	else
		return EXIT_OK;
	return EXIT_USAGE;
}

static int parse_plan(const struct measure_options *o, struct measure_plan *p)
{
	int code = check_tags(&o->tag);

	*p = (struct measure_plan){ .model_bytes = NAN, .baseline = RUN_BASELINE_KEPT };
	if (code == EXIT_OK && o->model_size)
		code = parse_size(o->model_size, &p->model_bytes);
	if (code == EXIT_OK)
		code = session_check(&o->session);
	if (code == EXIT_OK)
		code = check_count(o, p);
	if (code == EXIT_OK)
		code = calibration_accuracy(o->calibrate_accuracy, &p->accuracy);
	if (code == EXIT_OK && !o->calibrate && (o->calibrate_accuracy || o->calibrate_keep))
		code = cli_usage("--calibrate-%s needs --calibrate",
				 o->calibrate_keep ? "keep" : "accuracy");
	if (code == EXIT_OK)
		code = cost_options_read(&o->cost, &p->cost);
	if (code == EXIT_OK && o->baseline)
		code = parse_baseline(o->baseline, &p->baseline);
	if (code == EXIT_OK && o->interval_ns && o->interval_ns < NS_PER_MS)
		code = cli_usage("--interval must be at least 1ms");
	return code;
}

/* Rejects options that do not work with --service, because the service opens the GPUs and this
 * command does not. */
static int check_service(const struct cli *c, const struct measure_options *o,
			 const struct measure_plan *p)
{
	static const char opens[] = "works only if this command opens the GPUs";
	static const char readings[] = "needs raw samples, which the service does not provide";
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
		{ "part", o->session.part != NULL, readings, "" },
		{ "progress", o->session.progress, readings, "" },
		{ "interval", o->interval_ns != 0, "is a setting of the service", "" },
		{ "baseline", o->baseline && p->baseline != RUN_BASELINE_NONE,
		  "needs the state of the GPU, which the service does not provide", "" },
		{ "require-exclusive", o->session.require_exclusive,
		  "needs to know which processes belong to the command, which the service does "
		  "not know",
		  "" },
		{ "clean-room", o->session.room.wait != NULL, opens,
		  "hold the workers with gpuward guard hold, or " },
	};

	for (size_t i = 0; o->service && i < COUNT(refused); i++)
		if (refused[i].given)
			return cli_usage("--%s %s: %sleave out --service", refused[i].name,
					 refused[i].why, refused[i].instead);
	return EXIT_OK;
}

/* Rejects --address and --token-file if no option sends requests to the service. Also checks
 * the options of --clean-room. */
static int check_remote(const struct measure_options *o)
{
	const struct remote_flags *f = &o->session.room.remote;

	if (o->service)
		return EXIT_OK;
	if (!o->session.room.wait && (f->address || f->token_file))
		return cli_usage("--%s needs --service or --clean-room",
				 f->address ? "address" : "token-file");
	return clean_room_check(&o->session.room);
}

/* Refuses an output that is the bundle or a file in it: at the end it could not be written, or
 * would replace a file of the bundle. */
static int check_bundle(const struct measure_options *o)
{
	if (!o->bundle || !o->session.output)
		return EXIT_OK;
	if (output_is_same(o->session.output, o->bundle))
		return cli_usage("--bundle: %s is also the file of --output; give the bundle "
				 "another name",
				 o->bundle);
	return output_spares_input(o->session.output, o->bundle);
}

static int check_options(const struct cli *c, const struct measure_options *o,
			 const struct measure_plan *p)
{
	char why[4600];

	if (c->argc == 0)
		return cli_usage("a command is missing: gpuward measure [OPTIONS] -- COMMAND");
	if ((o->session.output && !*o->session.output) || (o->bundle && !*o->bundle))
		return cli_usage("--%s: the name is empty",
				 o->session.output && !*o->session.output ? "output"
									  : "bundle");
	if (check_service(c, o, p) != EXIT_OK || check_remote(o) != EXIT_OK)
		return EXIT_USAGE;
	if (check_bundle(o) != EXIT_OK)
		return EXIT_USAGE;
	if (o->calibrate && trace_check(o->calibrate, why, sizeof(why)) != 0)
		return cli_fail("--calibrate: %s; nothing was measured", why);
	return output_possible(o->session.output);
}

int measure_plan_make(const struct cli *c, struct measure_plan *ret)
{
	const struct measure_options *o = c->own;
	int code = parse_plan(o, ret);

	return code == EXIT_OK ? check_options(c, o, ret) : code;
}
