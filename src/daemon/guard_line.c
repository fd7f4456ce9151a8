#include "guard_line.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void add(struct guard_line *l, struct log_pair pair)
{
	if (l->pairs < sizeof(l->pair) / sizeof(l->pair[0]))
		l->pair[l->pairs++] = pair;
}

static void add_place(struct guard_line *l, const struct guard_decision *d, double threshold_c)
{
	add(l, LOG_I("gpu", d->index));
	add(l, LOG_I("other_processes", d->others));
	if (!isnan(d->temperature_c))
		add(l, LOG_D("temperature", d->temperature_c));
	if (!isnan(threshold_c))
		add(l, LOG_D("threshold", threshold_c));
}

static void add_end(struct guard_line *l, const struct guard_decision *d)
{
	if (d->result == RESULT_NONE)
		return;
	add(l, LOG_S("result", guard_result_name(d->result)));
	add(l, LOG_I("level", d->level));
	if (d->result == RESULT_FREED)
		add(l, LOG_I("freed_bytes", (int64_t)d->freed_bytes));
}

void guard_line(struct guard_line *ret, const struct guard_decision *d, const char *worker,
		double threshold_c)
{
	ret->pairs = 0;
	guard_mask_text(d->mask, ",", ret->reasons, sizeof(ret->reasons));
	add(ret, LOG_S("worker", worker));
	add(ret, LOG_S("from", guard_state_name(d->from)));
	add(ret, LOG_S("state", guard_state_name(d->to)));
	add(ret, LOG_S("reason", *ret->reasons ? ret->reasons : "none"));
	if (*d->rule)
		add(ret, LOG_S("rule", d->rule));
	if (*d->gpu)
		add_place(ret, d, threshold_c);
	add_end(ret, d);
	if (d->dry)
		add(ret, LOG_B("dry_run", true));
}
