/* kinds: declares worker_NAME, the adapter of each row of kind.def. */
#ifndef GW_GUARD_WORKER_KINDS_H
#define GW_GUARD_WORKER_KINDS_H

#include "guard/worker.h"

#define K(symbol, name, url, level, stop_s, traits, help) \
	extern const struct worker_ops worker_##name;
#include "guard/kind.def"

/* Carries out levels 5 (SIGTERM) and 6 (SIGTERM, then SIGKILL after a grace period) for every
 * kind. Without allow_kill it returns -GW_E_PERM. In signal.c. */
int worker_kill(const struct worker_call *c);

#endif
