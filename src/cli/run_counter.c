#include "run_counter.h"

#include "cli.h"

#include <math.h>
#include <stdio.h>

static bool is_interrupted(void *arg)
{
	return runner_sleep(arg, 0);
}

int run_count_before(struct run_count *c, bool more)
{
	if (!c->kind)
		return EXIT_OK;
	if (c->kind->place)
		c->kind->place(c->by, c->place, sizeof(c->place));
	c->stop = (struct deadline_stop){ is_interrupted, c->runner, c->runner->signal_fd };
	counter_read(c->kind, c->by, &c->stop, &c->first);
	if (*c->first.why)
		cli_error("--%s: %s; %s", c->kind->option, c->first.why,
			  more ? "this run was not started" : "nothing was measured");
	/* Even if the counter was read, nothing more is started after a signal. */
	if (is_interrupted(c->runner))
		return 128 + c->runner->interrupted;
	return *c->first.why ? EXIT_FAILED : EXIT_OK;
}

void run_count_after(struct run_count *c)
{
	if (c->kind)
		counter_read(c->kind, c->by, &c->stop, &c->last);
}

static void warn_fresh(const struct run_count *c, const struct counter *n)
{
	if (!n->fresh_assumed)
		return;
	cli_error("--%s: %u of %u series appeared during the run; all of %s %.0f %s are "
		  "counted, assuming that they started at 0",
		  c->kind->option, n->fresh, c->last.n, n->fresh == 1 ? "its" : "their",
		  n->fresh_number, c->iterations ? "iterations" : "tokens");
}

bool run_count_take(struct run_count *c, const struct runner_run *run,
		    struct measured_count *ret)
{
	struct counter n;

	if (!c->kind)
		return true;
	counter_between(&c->first, &c->last, run->begin_ns, run->end_ns, &n);
	*ret = (struct measured_count){ .source = c->kind->option,
					.iterations = c->iterations,
					.number = n.number,
					.edge = n.edge,
					.fresh = n.fresh,
					.fresh_number = n.fresh_number,
					.fresh_assumed = n.fresh_assumed };
	if (c->kind->place) {
		ret->place = c->place;
		ret->series = c->last.n ? c->last.n : c->first.n;
		snprintf(ret->name, sizeof(ret->name), "%s", c->first.name);
	}
	if (!isnan(n.number)) {
		warn_fresh(c, &n);
		return true;
	}
	snprintf(ret->why, sizeof(ret->why), "%s", n.why);
	cli_error("--%s: %s; the count is unknown", c->kind->option, n.why);
	return false;
}
