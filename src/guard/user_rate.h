/* guard_rate: how often one user's processes and wishes moved workers.  Pure, in a fixed amount of memory.
 *
 * A program that comes and goes, or a script that asks again and again, must not let workers unload and
 * load all day.  Root is not limited, and neither is whose user is not known. */
#ifndef GW_GUARD_USER_RATE_H
#define GW_GUARD_USER_RATE_H

#include <stdint.h>

#define RATE_USERS 64
#define RATE_MOST  64 /* a higher limit counts as this */

struct rate_user {
	int64_t uid;
	uint64_t at_ns[RATE_MOST]; /* the latest, a ring */
	unsigned count;
};

struct rate { /* begins zeroed */
	struct rate_user user[RATE_USERS];
	unsigned users;
};

/* Until this user may move a worker again, if `most` an hour are allowed; 0: now.  most 0: no limit. */
uint64_t rate_wait_ns(const struct rate *r, int64_t uid, unsigned most, uint64_t now_ns);
/* He did. */
void rate_take(struct rate *r, int64_t uid, uint64_t now_ns);

#endif
