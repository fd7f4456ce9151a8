/* guard_service_lock: decides on which GPUs this service acts, and on which another service
 * acts (guard_lock.h).
 *
 * Only mode "enforce" takes locks. Simulated GPUs of different runs have the same names, so
 * they are only locked if RUNTIME_DIRECTORY is set. */
#include "guard_service_parts.h"

#include "guard_lock.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RETRY_NS (5 * NS_PER_S)

static struct guard_service_lock *find_lock(struct guard_service *g, const char *uuid)
{
	struct guard_service_lock *l;

	for (unsigned i = 0; i < g->lock.count; i++)
		if (strcmp(g->lock.of[i].uuid, uuid) == 0)
			return &g->lock.of[i];
	if (g->lock.count == GUARD_SERVICE_DEVICES)
		return NULL;
	l = &g->lock.of[g->lock.count++];
	*l = (struct guard_service_lock){ .fd = -1 };
	snprintf(l->uuid, sizeof(l->uuid), "%s", uuid);
	return l;
}

static void release_lock(struct guard_service_lock *l)
{
	if (l->fd >= 0)
		close(l->fd);
	l->fd = -1;
}

static void become_observer(struct guard_service *g, struct guard_service_lock *l, int64_t pid,
			    const char *why)
{
	char who[64] = "another gpuward";

	if (l->foreign)
		return;
	if (pid)
		snprintf(who, sizeof(who), "another gpuward (process %lld)", (long long)pid);
	l->foreign = true;
	guard_service_foreign(g, l->uuid, who);
	guard_service_log(g, "warning",
			  "%s already guards %s (%s): this one only observes its workers; stop "
			  "one of the two",
			  who, l->uuid, why);
}

static void become_actor(struct guard_service *g, struct guard_service_lock *l)
{
	if (!l->foreign)
		return;
	l->foreign = false;
	guard_service_foreign(g, l->uuid, NULL);
	guard_service_log(g, "info", "no other gpuward guards %s any more; this one takes over",
			  l->uuid);
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
		become_observer(g, l, pid, why);
		return;
	}
	become_actor(g, l);
	if (err && !g->lock.unlocked_logged) {
		g->lock.unlocked_logged = true;
		guard_service_log(g, "warning",
				  "cannot create a lock for a GPU (%s): a second enforcing "
				  "gpuward would not be noticed",
				  why);
	}
}

void guard_service_lock_look(struct guard_service *g, const struct scene *s)
{
	bool enforces = g->settings->policy.mode == GUARD_ENFORCE;
	bool given = getenv("RUNTIME_DIRECTORY") != NULL;

	for (unsigned i = 0; i < s->gpus; i++) {
		struct guard_service_lock *l =
			s->gpu[i].simulated && !given ? NULL : find_lock(g, s->gpu[i].uuid);

		if (l && enforces)
			try_lock(g, l, guard_service_time_ns(g));
		else if (l)
			release_lock(l);
	}
}

void guard_service_lock_close(struct guard_service *g)
{
	for (unsigned i = 0; i < g->lock.count; i++)
		release_lock(&g->lock.of[i]);
}
