/* measure_plan: the options of `gpuward measure`, parsed and checked.
 *
 * It hides the syntax and range of each option, and which options exclude or need each
 * other. */
#ifndef GW_CLI_MEASURE_PLAN_H
#define GW_CLI_MEASURE_PLAN_H

#include "clean_room.h"
#include "cli.h"
#include "counter.h"
#include "option.h"
#include "run_result.h"

#include <stdbool.h>
#include <stdint.h>

struct measure_options {
	const char *label, *trial, *trials, *iterations, *tokens, *model_size, *baseline;
	const char *warmup, *cooldown_to, *output, *bundle, *part, *count;
	const char *count_by[COUNTER_KINDS];
	struct clean_room_flags room;
	const char *calibrate, *calibrate_accuracy;
	struct option_list tag;
	uint64_t interval_ns;
	bool require_exclusive, progress, keep_command, no_cooldown, calibrate_keep, service;
};

extern const struct option measure_plan_options[];

/* The parsed options. */
struct measure_plan {
	unsigned first, trials, warmup;
	double iterations, tokens, model_bytes, cool_c; /* NAN: not given */
	enum run_baseline_mode baseline;
	const struct counter_kind *count; /* how tokens or iterations are counted; NULL: not */
	const char *count_by;             /* its command or URL */
	bool counts_iterations;           /* it counts iterations, not tokens */
	double accuracy;                  /* of the external power meter */
};

/* Parses the options and arguments of c, and checks everything that can be checked before a GPU
 * is opened, also whether the result can be written.  Returns an exit code. */
int measure_plan_make(const struct cli *c, struct measure_plan *ret);

#endif
