/* identity: is a process still who it was?  Numbers of processes are used again, start times are not. */
#ifndef GW_GUARD_WORKER_IDENTITY_H
#define GW_GUARD_WORKER_IDENTITY_H

#include "base/root.h"

#include <stdint.h>

enum identity { IDENTITY_SAME, IDENTITY_ENDED, IDENTITY_OTHER };

enum identity identity_of(const struct root *root, int64_t pid, uint64_t start_ticks);

#endif
