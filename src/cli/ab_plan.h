/* ab_plan: the options of ab, and what they say is to be done. */
#ifndef GW_CLI_AB_PLAN_H
#define GW_CLI_AB_PLAN_H

#include "clean_room.h"
#include "option.h"

#include "measure/ab.h"

#include <stdbool.h>

struct ab_options {
	const char *pairs_max, *aa_pairs, *target, *fail_if, *iterations, *part, *warmup, *seed;
	const char *cooldown_to, *output;
	struct clean_room_flags room;
	bool no_cooldown, require_exclusive, show_output, keep_command, progress;
};

extern const struct option ab_plan_options[];

/* The options as numbers. */
struct ab_plan {
	struct ab_config config;
	double iterations; /* of a run, NAN: not given           */
	unsigned warmup;
	bool cooled;
	double cool_to_c; /* NAN: as at the first start         */
};

/* All of these: EXIT_OK or an exit code, having said why. */
int ab_plan_parse(const struct ab_options *o, struct ab_plan *ret);

/* The two commands, parted by "--", each ended by NULL; argv is changed. */
int ab_plan_split(char **argv, int argc, char **ret[2]);

#endif
