/* kinds: the adapter of each row of kind.def, worker_NAME. */
#ifndef GW_GUARD_WORKER_KINDS_H
#define GW_GUARD_WORKER_KINDS_H

#include "guard/worker.h"

#define K(symbol, name, url, level, traits, help) extern const struct worker_ops worker_##name;
#include "guard/kind.def"

/* Levels 5 (SIGTERM) and 6 (SIGTERM, after a grace period SIGKILL) for every kind: with
 * allow_kill only, else -GW_E_PERM.  In signal.c. */
int worker_kill(const struct worker_call *c);

#endif
