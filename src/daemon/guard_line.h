/* guard_line: a decision of the guard as pairs of a line of the log. */
#ifndef GW_DAEMON_GUARD_LINE_H
#define GW_DAEMON_GUARD_LINE_H

#include "base/log.h"
#include "guard/guard.h"

struct guard_line {
	struct log_pair pair[16];
	unsigned pairs;
	char reasons[160]; /* what the pair "reason" points to */
};

/* Borrows the decision and the name.  threshold_c: where the heat of the GPU moves workers; NAN: unknown.
 * What is not known is left out. */
void guard_line(struct guard_line *ret, const struct guard_decision *d, const char *worker,
		double threshold_c);

#endif
