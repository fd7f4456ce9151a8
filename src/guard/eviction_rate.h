#ifndef GW_GUARD_EVICTION_RATE_H
#define GW_GUARD_EVICTION_RATE_H

#include <stdint.h>

/* Counts how often each user caused evictions, by a process or by a request. The number per
 * hour is limited, so that a program that restarts all the time cannot make workers unload and
 * load all day. Workers that leave at the same time count as one eviction. Otherwise the limit
 * could let only some of them leave, and a game or a large reservation would not get its
 * memory. Root and unknown users are not limited. */
#define RATE_USERS 64
#define RATE_MOST  64 /* the largest possible limit per hour */

struct rate_user {
	int64_t uid;
	uint64_t at_ns[RATE_MOST]; /* times of the latest evictions, all different, as a ring */
	unsigned count;
};

struct rate { /* begins zeroed */
	struct rate_user user[RATE_USERS];
	unsigned users;
};

/* Returns how long this user must wait before causing another eviction; 0: no wait. most: how
 * many evictions are allowed per hour; 0: no limit. */
uint64_t rate_wait_ns(const struct rate *r, int64_t uid, unsigned most, uint64_t now_ns);
/* Counts an eviction caused by this user, unless an eviction at the same time was already
 * counted. */
void rate_take(struct rate *r, int64_t uid, uint64_t now_ns);

#endif
