/* user_rate: how often each user caused an eviction, by processes and requests.  Pure, in a fixed amount of memory.
 *
 * A program that comes and goes, or a script that repeats its request, must not make workers unload and load all day.
 * Root is not limited, nor is an unknown user. */
#ifndef GW_GUARD_USER_RATE_H
#define GW_GUARD_USER_RATE_H

#include <stdint.h>

#define RATE_USERS 64
#define RATE_MOST  64 /* a higher limit counts as this */

struct rate_user {
	int64_t uid;
	uint64_t at_ns[RATE_MOST]; /* a ring of the latest */
	unsigned count;
};

struct rate { /* begins zeroed */
	struct rate_user user[RATE_USERS];
	unsigned users;
};

/* Until this user may cause an eviction, if `most` per hour are allowed; 0: now.  most 0: no limit. */
uint64_t rate_wait_ns(const struct rate *r, int64_t uid, unsigned most, uint64_t now_ns);
/* It caused one. */
void rate_take(struct rate *r, int64_t uid, uint64_t now_ns);

#endif
