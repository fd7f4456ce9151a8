/* measure_plan: the options of `gpuward measure`, parsed and checked.
 *
 * It hides the syntax and range of each option, and which options exclude or need each
 * other. */
#ifndef GW_CLI_MEASURE_PLAN_H
#define GW_CLI_MEASURE_PLAN_H

#include "output.h"
#include "counter.h"
#include "run_result.h"
#include "session.h"

#include <stdbool.h>
#include <stdint.h>

struct measure_options {
	struct session_options session;
	const char *label, *model_size, *baseline, *bundle, *count;
	const char *count_by[COUNTER_KINDS];
	const char *calibrate, *calibrate_accuracy;
	struct option_list tag;
	struct cost_options cost;
	double trial, trials, tokens; /* tokens is NAN if --tokens is not given. */
	uint64_t interval_ns;
	bool calibrate_keep, service;
};

extern const struct option measure_plan_options[];

/* The checked options in the form that the measurement needs. */
struct measure_plan {
	double model_bytes; /* Size of the model in bytes. NAN: not given. */
	enum run_baseline_mode baseline;
	/* How the counter of a server is read. NULL: no counter is given. */
	const struct counter_kind *count;
	const char *count_by; /* The command or URL that gives the count. */
	/* True: the counter counts iterations. False: it counts tokens. */
	bool counts_iterations;
	/* Accuracy of the external power meter as a ratio, with 95 % confidence. */
	double accuracy;
	struct energy_cost cost;
};

/* Parses the options and arguments of c.  Checks everything that can be checked before a GPU is
 * opened, including whether the result can be written.  Returns an exit code. */
int measure_plan_make(const struct cli *c, struct measure_plan *ret);

#endif
