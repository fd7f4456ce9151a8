#ifndef GW_GUARD_EVICTION_RATE_H
#define GW_GUARD_EVICTION_RATE_H

#include <stdint.h>

/* Counts the evictions that each user caused, by a process or by a request. Their number per
 * hour is limited, so that a program that restarts all the time cannot make workers unload and
 * load all day. Root and unknown users are not limited. */
#define RATE_USERS 64
#define RATE_MOST  64 /* the largest possible limit per hour */

struct rate_user {
	int64_t uid;
	uint64_t at_ns[RATE_MOST]; /* times of the latest evictions, as a ring */
	unsigned count;
};

struct rate { /* begins zeroed */
	struct rate_user user[RATE_USERS];
	unsigned users;
};

/* Returns the time until this user may cause an eviction, if `most` per hour are allowed; 0:
 * now. most 0: no limit. */
uint64_t rate_wait_ns(const struct rate *r, int64_t uid, unsigned most, uint64_t now_ns);
/* Counts one eviction caused by this user. */
void rate_take(struct rate *r, int64_t uid, uint64_t now_ns);

#endif
