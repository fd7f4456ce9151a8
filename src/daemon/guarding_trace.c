/* guarding_trace: all that the guard is told is told here, and written down where it is recorded. */
#include "guarding_parts.h"

#include "guard_trace.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Adds what is in g->line; a recording that cannot be written ends, the guard goes on. */
void guarding_record(struct guarding *g)
{
	if (g->record_fd >= 0 &&
	    (g->line.err || file_write_all(g->record_fd, g->line.p, g->line.len) != 0)) {
		guarding_tell(g, "warning", "%.400s cannot be written (%s): recording ends",
			      g->settings->record, g->line.err ? "no memory" : strerror(errno));
		guarding_record_close(g);
	}
	buf_clear(&g->line);
}

/* Of a worker that was never looked at the guard knows what the journal said. */
static const struct guard_record *record_of(struct guarding *g, unsigned worker,
					    const struct guarding_records *kept,
					    struct guard_record *now)
{
	const char *name = g->settings->policy.worker[worker].name;

	if (guard_record_of(g->guard, worker, now) == 0)
		return now;
	for (unsigned i = 0; kept && i < kept->count; i++)
		if (strcmp(kept->record[i].worker, name) == 0)
			return &kept->record[i];
	return NULL;
}

/* A run begins with who the workers are and what was known of them. */
static void write_begin(struct guarding *g)
{
	const struct policy *p = &g->settings->policy;
	struct guarding_records *kept = NULL;

	if (guarding_records_read(g, &kept) != 0)
		guarding_tell(g, "warning", "no memory: the recording begins without records");
	guard_trace_begin(&g->line, guard_last_id(g->guard));
	for (unsigned i = 0; i < p->workers; i++) {
		struct guard_record now;

		guard_trace_worker(&g->line, i, p->worker[i].name, record_of(g, i, kept, &now));
	}
	free(kept);
}

void guarding_record_open(struct guarding *g)
{
	if (!g->settings->record)
		return;
	/* It tells who runs what on this machine: for its owner alone. */
	g->record_fd =
		open(g->settings->record, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (g->record_fd < 0) {
		guarding_tell(g, "warning", "%.400s cannot be opened (%s): nothing is recorded",
			      g->settings->record, strerror(errno));
		return;
	}
	write_begin(g);
	guarding_record(g);
}

void guarding_record_close(struct guarding *g)
{
	if (g->record_fd >= 0)
		close(g->record_fd);
	g->record_fd = -1;
}

/* -1: nobody waits for it any more. */
static int worker_of(const struct guarding *g, uint64_t order)
{
	for (unsigned i = 0; i < g->settings->policy.workers; i++)
		if (order && guard_pending(g->guard, i) == order)
			return (int)i;
	return -1;
}

void guarding_outcome(struct guarding *g, const struct guard_outcome *o)
{
	uint64_t now = guarding_now_ns();

	if (g->record_fd >= 0) {
		guard_trace_outcome(&g->line, o, worker_of(g, o->order), now);
		guarding_record(g);
	}
	guard_outcome(g->guard, o, now);
}

void guarding_stop(struct guarding *g)
{
	uint64_t now = guarding_now_ns();

	if (g->record_fd >= 0) {
		guard_trace_stop(&g->line, now);
		guarding_record(g);
	}
	guard_stop(g->guard, now);
}

void guarding_reason(struct guarding *g, const char *uuid, enum guard_reason r, bool on,
		     const char *why, uint64_t now)
{
	if (g->record_fd >= 0) {
		guard_trace_reason(&g->line, uuid, r, on, why, now);
		guarding_record(g);
	}
	guard_reason_set(g->guard, uuid, r, on, why, now);
}

void guarding_heat(struct guarding *g, const char *uuid, unsigned heat, const char *why,
		   uint64_t now)
{
	if (g->record_fd >= 0) {
		guard_trace_heat(&g->line, uuid, heat, why, now);
		guarding_record(g);
	}
	guard_heat(g->guard, uuid, heat, why);
}

int guarding_trust(struct guarding *g, const char *uuid, uint64_t now)
{
	if (g->record_fd >= 0) {
		guard_trace_trust(&g->line, uuid, now);
		guarding_record(g);
	}
	return guard_trust(g->guard, uuid, now);
}

void guarding_reason_ends(struct guarding *g, const char *uuid, enum guard_reason r,
			  const char *clears, uint64_t clears_ns)
{
	guard_reason_ends(g->guard, uuid, r, clears, clears_ns);
}
