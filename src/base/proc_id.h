/* proc_id: identifies a process. A pid alone can be reused; a pid with its start time
 * cannot. */
#ifndef GW_BASE_PROC_ID_H
#define GW_BASE_PROC_ID_H

#include <stdbool.h>
#include <stdint.h>

struct proc_id {
	int64_t pid;
	/* Start time in clock ticks since boot (/proc/PID/stat). 0: unknown. */
	uint64_t start_ticks;
};

static inline bool proc_id_equal(struct proc_id a, struct proc_id b)
{
	return a.pid == b.pid && a.start_ticks == b.start_ticks;
}

#endif
