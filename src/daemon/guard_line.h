/* guard_line: a decision of the guard as key-value pairs of a log line. */
#ifndef GW_DAEMON_GUARD_LINE_H
#define GW_DAEMON_GUARD_LINE_H

#include "base/log.h"
#include "guard/guard.h"

struct guard_line {
	struct log_pair pair[16];
	unsigned pairs;
	char reasons[160]; /* text of the pair "reason" */
};

/* Borrows the decision and the name. threshold_c: temperature at which workers are moved;
 * NAN: unknown. Unknown values are omitted. */
void guard_line(struct guard_line *ret, const struct guard_decision *d, const char *worker,
		double threshold_c);

#endif
