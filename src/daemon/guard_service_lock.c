/* guard_service_lock: for which GPUs this service acts, and for which another one does (guard_lock.h).
 *
 * Only who enforces has locks.  Simulated GPUs of different runs share their names: they are locked only where a
 * runtime folder was given. */
#include "guard_service_parts.h"

#include "guard_lock.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RETRY_NS (5 * NS_PER_S)

static struct guard_service_lock *place_of(struct guard_service *g, const char *uuid)
{
	struct guard_service_lock *l;

	for (unsigned i = 0; i < g->locks; i++)
		if (strcmp(g->lock_of[i].uuid, uuid) == 0)
			return &g->lock_of[i];
	if (g->locks == GUARD_SERVICE_DEVICES)
		return NULL;
	l = &g->lock_of[g->locks++];
	*l = (struct guard_service_lock){ .fd = -1 };
	snprintf(l->uuid, sizeof(l->uuid), "%s", uuid);
	return l;
}

static void let_go(struct guard_service_lock *l)
{
	if (l->fd >= 0)
		close(l->fd);
	l->fd = -1;
}

static void observe(struct guard_service *g, struct guard_service_lock *l, int64_t pid,
		    const char *why)
{
	char who[64] = "another gpuward";

	if (l->foreign)
		return;
	if (pid)
		snprintf(who, sizeof(who), "another gpuward (process %lld)", (long long)pid);
	l->foreign = true;
	guard_service_foreign(g, l->uuid, who);
	guard_service_log(
		g, "warning",
		"%s guards %s (%s): this one only observes its workers; stop one of the "
		"two",
		who, l->uuid, why);
}

static void act(struct guard_service *g, struct guard_service_lock *l)
{
	if (!l->foreign)
		return;
	l->foreign = false;
	guard_service_foreign(g, l->uuid, NULL);
	guard_service_log(g, "info", "nobody else guards %s any more: this one does", l->uuid);
}

static void try_lock(struct guard_service *g, struct guard_service_lock *l, uint64_t now_ns)
{
	char why[300] = "";
	int64_t pid = 0;
	int err;

	if (l->fd >= 0 || now_ns < l->retry_ns)
		return;
	l->retry_ns = now_ns + RETRY_NS;
	err = guard_lock_take(l->uuid, &l->fd, &pid, why, sizeof(why));
	if (err == -GW_E_STATE) {
		observe(g, l, pid, why);
		return;
	}
	act(g, l);
	if (err && !g->unlocked_told) {
		g->unlocked_told = true;
		guard_service_log(g, "warning",
				  "no lock can be made for a GPU (%s): a second gpuward that "
				  "enforces would not be noticed",
				  why);
	}
}

void guard_service_lock_look(struct guard_service *g, const struct scene *s)
{
	bool enforces = g->settings->policy.mode == GUARD_ENFORCE;
	bool given = getenv("RUNTIME_DIRECTORY") != NULL;

	for (unsigned i = 0; i < s->gpus; i++) {
		struct guard_service_lock *l =
			s->gpu[i].simulated && !given ? NULL : place_of(g, s->gpu[i].uuid);

		if (l && enforces)
			try_lock(g, l, guarding_time_ns(g));
		else if (l)
			let_go(l);
	}
}

void guard_service_lock_close(struct guard_service *g)
{
	for (unsigned i = 0; i < g->locks; i++)
		let_go(&g->lock_of[i]);
}
