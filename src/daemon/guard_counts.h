/* guard_counts: the guard's tally in the store, so that no count falls over a restart. */
#ifndef GW_DAEMON_GUARD_COUNTS_H
#define GW_DAEMON_GUARD_COUNTS_H

#include "store.h"

#include "guard/guard_counters.h"

/* What was counted so far of all, and of the workers of a policy; again after the policy changed. */
void guard_counts_load(struct guard_counters *t, struct store *s, const struct policy *p);
/* ... and of the Xids of a GPU; once for each. */
void guard_counts_load_xids(struct guard_counters *t, struct store *s, const char *uuid);

/* Count and keep. */
void guard_counts_add(struct guard_counters *t, struct store *s, const char *worker,
		      const struct guard_decision *d);
void guard_counts_add_xid(struct guard_counters *t, struct store *s, const char *uuid,
			  unsigned xid);

#endif
