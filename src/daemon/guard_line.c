#include "guard_line.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void line_add(struct guard_line *l, struct log_pair pair)
{
	if (l->pairs < sizeof(l->pair) / sizeof(l->pair[0]))
		l->pair[l->pairs++] = pair;
}

static void line_add_gpu(struct guard_line *l, const struct guard_decision *d,
			 double threshold_c)
{
	line_add(l, LOG_I("gpu", d->index));
	line_add(l, LOG_I("other_processes", d->others));
	if (!isnan(d->temperature_c))
		line_add(l, LOG_D("temperature", d->temperature_c));
	if (!isnan(threshold_c))
		line_add(l, LOG_D("threshold", threshold_c));
}

static void line_add_result(struct guard_line *l, const struct guard_decision *d)
{
	if (d->result == RESULT_NONE)
		return;
	line_add(l, LOG_S("result", guard_result_name(d->result)));
	line_add(l, LOG_I("level", d->level));
	if (d->result == RESULT_FREED)
		line_add(l, LOG_I("freed_bytes", (int64_t)d->freed_bytes));
}

void guard_line(struct guard_line *ret, const struct guard_decision *d, const char *worker,
		double threshold_c)
{
	ret->pairs = 0;
	guard_mask_text(d->mask, ",", ret->reasons, sizeof(ret->reasons));
	line_add(ret, LOG_S("worker", worker));
	line_add(ret, LOG_S("from", guard_state_name(d->from)));
	line_add(ret, LOG_S("state", guard_state_name(d->to)));
	line_add(ret, LOG_S("reason", *ret->reasons ? ret->reasons : "none"));
	if (*d->rule)
		line_add(ret, LOG_S("rule", d->rule));
	if (*d->gpu)
		line_add_gpu(ret, d, threshold_c);
	line_add_result(ret, d);
	if (d->dry)
		line_add(ret, LOG_B("dry_run", true));
}
