/* kinds: what each kind of worker can do, by its row of kind.def: worker_NAME, in NAME.c. */
#ifndef GW_GUARD_WORKER_KINDS_H
#define GW_GUARD_WORKER_KINDS_H

#include "guard/worker.h"

#define K(symbol, name, url, level, traits, help) extern const struct worker_ops worker_##name;
#include "guard/kind.def"

#endif
