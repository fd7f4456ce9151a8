#include "unattributed_use.h"

#include "base/clock.h"

#include <stdio.h>

/* A condition must last this long, because an ending process leaves the list before its work on
 * the GPU has ended. */
#define LASTS_NS   (10 * NS_PER_S)
#define BUSY_RATIO 0.99
#define BYTES      (512. * 1048576) /* drivers and consoles use less than this */

static bool has_lasted(uint64_t *since_ns, bool now, uint64_t now_ns)
{
	if (!now)
		*since_ns = 0;
	else if (!*since_ns)
		*since_ns = now_ns;
	return now && now_ns - *since_ns >= LASTS_NS;
}

void unattributed_use_update(struct unattributed_use *g, const struct unattributed_use_facts *f,
			     uint64_t now_ns, char *why, size_t size)
{
	bool busy =
		has_lasted(&g->busy_ns,
			   !f->hidden && !f->processes && f->busy_ratio >= BUSY_RATIO, now_ns);
	bool memory =
		has_lasted(&g->memory_ns, !f->hidden && f->unattributed_bytes >= BYTES, now_ns);

	why[0] = '\0';
	if (busy && memory)
		snprintf(why, size,
			 "The GPU is busy without a process, and %.0f MiB have no owner.",
			 f->unattributed_bytes / 1048576);
	else if (busy)
		snprintf(why, size, "The GPU is busy without a process.");
	else if (memory)
		snprintf(why, size, "%.0f MiB of its memory belong to no listed process.",
			 f->unattributed_bytes / 1048576);
}
