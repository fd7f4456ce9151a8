#include "guard/worker/recheck.h"

#include "guard/classify.h"
#include "guard/pidfile.h"
#include "guard/port_owner.h"
#include "guard/process_cache.h"

#include "device/proc.h"

#include <stdlib.h>
#include <string.h>

enum recheck_identity recheck_identity(const struct root *root, struct proc_id id)
{
	uint64_t ticks;

	if (proc_start_ticks(root, id.pid, &ticks) != 0)
		return IDENTITY_ENDED;
	return ticks == id.start_ticks ? IDENTITY_SAME : IDENTITY_OTHER;
}

/* True if the process fits all other parts of the match (not pidfile and port), or if there are
 * no other parts. */
static bool rest_fits(const struct worker_call *c, const struct guard_target *t)
{
	struct scene_process p;
	struct policy *policy;
	struct classifier *k = NULL;
	bool fits = false;

	if (process_cache_read(c->root, t->id.pid, &p) != 0 || p.id.pid != t->id.pid ||
	    p.id.start_ticks != t->id.start_ticks)
		return false;
	policy = calloc(1, sizeof(*policy));
	if (policy) {
		policy->worker[0] = *c->worker;
		policy->workers = 1;
		fits = classifier_new(policy, &k) == 0 &&
		       classifier_fits(k, NULL, 0, &p, false);
	}
	classifier_free(k);
	free(policy);
	return fits;
}

bool recheck_matches(const struct worker_call *c, const struct guard_target *t)
{
	const struct policy_match *m = &c->worker->match;

	return (m->name || m->exe || m->command || m->cgroup || m->container || m->unit) &&
	       !m->pidfile && !m->port && rest_fits(c, t);
}

static bool is_same_program(const struct worker_call *c, const struct guard_target *t)
{
	uint64_t print;

	return t->print && process_cache_fingerprint(c->root, t->id.pid, &print) == 0 &&
	       print == t->print;
}

/* True if the pidfile is trusted and still allows the process. A pidfile that is just being
 * written is empty; then the process that it named before still belongs to the worker. */
static bool pidfile_allows(const struct worker_call *c, const struct guard_target *t)
{
	struct pidfile file;
	uint64_t start;

	if (pidfile_read(c->root, c->worker->match.pidfile, &file) == 0) {
		if (file.pid == t->id.pid)
			return true;
		if (proc_start_ticks(c->root, file.pid, &start) == 0 &&
		    proc_lives(c->root, file.pid, start) != 0)
			return false;
	}
	return !file.fault && is_same_program(c, t);
}

bool recheck_belongs(const struct worker_call *c, const struct guard_target *t)
{
	const struct policy_match *m = &c->worker->match;

	if (!t->itself)
		return true;
	if (m->pidfile && !pidfile_allows(c, t))
		return false;
	if (!m->pidfile && m->port && !port_owner_is(c->root, m->port, t->id.pid) &&
	    !is_same_program(c, t))
		return false;
	return rest_fits(c, t);
}
