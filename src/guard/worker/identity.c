#include "guard/worker/identity.h"

#include "device/proc.h"

enum identity identity_of(const struct root *root, int64_t pid, uint64_t start_ticks)
{
	uint64_t ticks;

	if (proc_start_ticks(root, pid, &ticks) != 0)
		return IDENTITY_ENDED;
	return ticks == start_ticks ? IDENTITY_SAME : IDENTITY_OTHER;
}
