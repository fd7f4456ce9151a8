/* guard_counts: stores the guard's counters, so that they continue after a restart. */
#ifndef GW_DAEMON_GUARD_COUNTS_H
#define GW_DAEMON_GUARD_COUNTS_H

#include "store.h"

#include "guard/guard_counters.h"

/* Loads the sums and the counts of the policy's workers; call again after a reload. */
void guard_counts_load(struct guard_counters *t, struct store *s, const struct policy *p);
/* Loads the Xid counts of a GPU; only the first call per GPU reads the store. */
void guard_counts_load_xids(struct guard_counters *t, struct store *s, const char *uuid);

/* Counts and stores. */
void guard_counts_add(struct guard_counters *t, struct store *s, const char *worker,
		      const struct guard_decision *d);
void guard_counts_add_xid(struct guard_counters *t, struct store *s, const char *uuid,
			  unsigned xid);

#endif
