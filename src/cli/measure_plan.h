/* measure_plan: the options of measure, and what they say is to be done.
 *
 * Hides how each is written, what it may be, and which of them exclude each other or need
 * another: whoever has a plan has options that fit together. */
#ifndef GW_CLI_MEASURE_PLAN_H
#define GW_CLI_MEASURE_PLAN_H

#include "clean_room.h"
#include "cli.h"
#include "counter.h"
#include "option.h"
#include "run_baseline.h"

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

/* The options as numbers. */
struct measure_plan {
	unsigned first, trials, warmup;
	double iterations, tokens, model_bytes, cool_c; /* NAN: not given */
	enum run_baseline_mode baseline;
	const struct counter_kind *count; /* how what a run makes is counted; NULL: it is not */
	const char *count_by;             /* what it is asked by */
	bool counts_iterations;           /* and no tokens */
	double accuracy;                  /* of the outside meter */
};

/* The options of c and the words after them.  Finds out all that can be before a GPU is asked,
 * also whether the result can be written.  EXIT_OK, or an exit code having said why. */
int measure_plan_make(const struct cli *c, struct measure_plan *ret);

#endif
