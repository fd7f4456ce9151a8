#include "eviction_rate.h"

#include "base/clock.h"

#include <stddef.h>
#include <string.h>

#define HOUR_NS (3600 * NS_PER_S)

static struct rate_user *rate_find(const struct rate *r, int64_t uid)
{
	for (unsigned i = 0; i < r->users; i++)
		if (r->user[i].uid == uid)
			return (struct rate_user *)&r->user[i];
	return NULL;
}

static uint64_t last_ns(const struct rate_user *u)
{
	return u->at_ns[(u->count - 1) % RATE_MOST];
}

uint64_t rate_wait_ns(const struct rate *r, int64_t uid, unsigned most, uint64_t now_ns)
{
	const struct rate_user *u = uid > 0 && most ? rate_find(r, uid) : NULL;
	uint64_t first;

	most = most < RATE_MOST ? most : RATE_MOST;
	if (!u || u->count < most || last_ns(u) == now_ns)
		return 0;
	first = u->at_ns[(u->count - most) % RATE_MOST];
	return now_ns - first < HOUR_NS ? HOUR_NS - (now_ns - first) : 0;
}

/* Adds a user. If the table is full, drops the user whose last eviction is the longest ago. */
static struct rate_user *rate_add(struct rate *r)
{
	struct rate_user *u = &r->user[0];

	if (r->users < RATE_USERS)
		return &r->user[r->users++];
	for (unsigned i = 1; i < RATE_USERS; i++)
		if (last_ns(&r->user[i]) < last_ns(u))
			u = &r->user[i];
	return u;
}

void rate_take(struct rate *r, int64_t uid, uint64_t now_ns)
{
	struct rate_user *u = rate_find(r, uid);

	if (uid <= 0)
		return;
	if (!u) {
		u = rate_add(r);
		memset(u, 0, sizeof(*u));
		u->uid = uid;
	}
	if (!u->count || last_ns(u) != now_ns)
		u->at_ns[u->count++ % RATE_MOST] = now_ns;
}
