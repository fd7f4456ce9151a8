#include "action.h"

#include "guard/worker/common.h"

#include "base/clock.h"
#include "base/mailbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum slot_state {
	FREE,    /* there is no order */
	QUEUED,  /* the order waits for a thread */
	RUNNING, /* a thread carries out the order */
	LEARNT,  /* the order waits until its notes are in the journal */
	DONE,    /* the outcome waits to be fetched */
};

/* The order of one worker, from action_order() to action_next_outcome(). */
struct slot {
	enum slot_state state;
	uint64_t turn; /* serial number of the order; the lowest number runs first */
	struct guard_order order;
	bool kept; /* the notes of this order were written to the journal */
	struct guard_outcome outcome;
	char notes[WORKER_NOTES_SIZE];
	struct worker_callbacks callbacks;
	bool has_callbacks;
	atomic_bool cancelled; /* action_cancel() was called for this order */
};

struct action {
	const struct policy *policy;
	const struct worker_set *set;
	int notify_fd;
	struct root root;
	/* The threads, and the lock that protects the members below. The lock is not held while
	 * a worker is called. */
	struct mailbox box;
	unsigned idle; /* number of threads that wait for an order */
	uint64_t turn; /* slot.turn of the order that was queued last */
	struct worker_facts facts;
	struct slot slot[POLICY_WORKERS];
};

/* The functions from here to learn_and_do() run on a thread of the action, without the lock. */

static int unsupported(const struct worker_call *c, const char *what)
{
	return worker_fail(c, -GW_E_NOSUPPORT, "this kind of worker cannot %s", what);
}

static const struct worker_ops *adapter_of(const struct worker_call *c)
{
	return c->set->of(c->worker->kind);
}

/* Calls the adapter's function for this verb, or sends the adapter's fixed requests. Returns 0
 * if the adapter has neither. */
static int call_adapter(struct worker_call *c, int (*fn)(struct worker_call *c),
			enum guard_verb verb)
{
	const struct worker_post *posts = adapter_of(c)->posts[verb];

	return fn ? fn(c) : posts ? c->set->post_all(c, posts) : 0;
}

static int do_close(struct worker_call *c, struct guard_outcome *out)
{
	(void)out;
	return call_adapter(c, adapter_of(c)->close, ORDER_CLOSE);
}

static int do_open(struct worker_call *c, struct guard_outcome *out)
{
	(void)out;
	return call_adapter(c, adapter_of(c)->open, ORDER_OPEN);
}

static int do_drain(struct worker_call *c, struct guard_outcome *out)
{
	const struct worker_ops *ops = adapter_of(c);
	bool busy = false;
	int rc = ops->drain  ? ops->drain(c, &busy)
		 : ops->busy ? c->set->busy(c, ops, &busy)
			     : 0;

	if (!rc && busy)
		out->ending = ENDING_IN_FLIGHT;
	return rc;
}

/* Notes the state that the eviction will destroy and that the resume order must restore.
 * ops->learn is called only at the level of the worker's kind. This level is tried first, so at
 * higher levels the notes already exist. */
static int learn(struct worker_call *c)
{
	const struct worker_ops *ops = adapter_of(c);
	unsigned level = c->order->level, own = policy_kind_level(c->worker->kind);

	if (level == LEVEL_STOP && level != own)
		worker_note(c, "stopped", "1");
	return level == own && ops->learn ? ops->learn(c) : 0;
}

/* Evicts at the level of the order. At level 4 (LEVEL_STOP), the stopper stops the worker's
 * unit or container, whatever the worker's kind is. The resume order starts the unit or
 * container again. */
static int do_evict(struct worker_call *c, struct guard_outcome *out)
{
	const struct worker_ops *ops = adapter_of(c), *stopper;
	unsigned level = c->order->level;

	if (level > LEVEL_STOP)
		return c->set->kill ? c->set->kill(c) : unsupported(c, "be killed");
	if (level < LEVEL_UNLOAD)
		return level == LEVEL_CLOSE ? do_close(c, out) : 0;
	if ((ops->evict || ops->posts[ORDER_EVICT]) &&
	    level == policy_kind_level(c->worker->kind))
		return call_adapter(c, ops->evict, ORDER_EVICT);
	if (level == LEVEL_STOP) {
		stopper = c->set->stopper(c->worker);
		return stopper ? stopper->evict(c)
			       : unsupported(c, "be stopped: neither match.unit nor "
						"match.container names it");
	}
	return worker_fail(c, -GW_E_NOSUPPORT,
			   "this kind of worker cannot be evicted at level %u", level);
}

static int check_alive(struct worker_call *c)
{
	const struct worker_ops *ops = adapter_of(c);

	if (ops->alive)
		return ops->alive(c);
	return ops->alive_path ? c->set->get(c, ops->alive_path) : 0;
}

/* Waits until the worker answers, because a server that was just started does not answer at
 * once. */
static int wait_alive(struct worker_call *c)
{
	int rc = check_alive(c);

	while ((rc == -GW_E_IO || rc == -GW_E_STATE) && worker_pause(c))
		rc = check_alive(c);
	return rc;
}

/* True if the worker's unit or container must be started first: the order says so, or the last
 * eviction was at level 4. The level is checked in addition to the note "stopped", because the
 * note is lost if the journal cannot be written. Starting a unit that already runs does
 * nothing. */
static bool must_start(const struct worker_call *c)
{
	const struct worker_ops *stopper = c->set->stopper(c->worker);
	char unused[8];

	return stopper && stopper != adapter_of(c) &&
	       (c->order->start || c->order->level == LEVEL_STOP ||
		worker_noted(c, "stopped", 0, unused, sizeof(unused)));
}

/* If `start` is true, starts the worker and waits until it answers. Otherwise checks that the
 * worker answers. The check is skipped for a kind of worker with a process that an eviction may
 * end. */
static int make_ready(struct worker_call *c, bool start, struct guard_outcome *out)
{
	int rc = 0;

	if (start) {
		rc = c->set->stopper(c->worker)->resume(c);
		if (c->set->started)
			c->set->started(c);
		return rc ? rc : wait_alive(c);
	}
	if (!policy_kind_is(c->worker->kind, KIND_STOPS_PROCESS))
		rc = check_alive(c);
	if (rc)
		out->ending = ENDING_NO_ANSWER;
	return rc;
}

static int do_resume(struct worker_call *c, struct guard_outcome *out)
{
	const struct worker_ops *ops = adapter_of(c);
	const bool start = must_start(c);
	int rc;

	if (!ops->resume && !ops->load && !ops->posts[ORDER_RESUME])
		return unsupported(c, "be resumed");
	rc = make_ready(c, start, out);
	if (rc)
		return rc;
	c->message[0] = '\0';
	/* A new process with resume = "lazy" loads its model with the next request. A process
	 * that ran before this order may be asleep or refuse new work, so it is resumed. */
	if (!start || !c->order->start || c->worker->resume != RESUME_LAZY)
		rc = ops->load ? c->set->load_noted(c, ops->load)
			       : call_adapter(c, ops->resume, ORDER_RESUME);
	if (!rc)
		c->notes[0] = '\0';
	return rc;
}

static int (*const verbs[])(struct worker_call *c, struct guard_outcome *out) = {
	[ORDER_CLOSE] = do_close, [ORDER_DRAIN] = do_drain,   [ORDER_EVICT] = do_evict,
	[ORDER_OPEN] = do_open,   [ORDER_RESUME] = do_resume,
};

/* Returns how the order ended. If the function in verbs[] knows more than rc says, it has
 * already set `ending`. */
static enum guard_ending ending_of(const struct worker_call *c, int rc,
				   enum guard_ending ending)
{
	if (ending == ENDING_NO_ANSWER)
		return ending;
	switch (rc) {
	case 0:
		return ending == ENDING_IN_FLIGHT ? ending
		       : c->listed                ? ENDING_LISTED
						  : ENDING_DONE;
	case -GW_E_STATE: return ENDING_BUSY;
	case -GW_E_PERM:
	case -GW_E_NOSUPPORT: return ENDING_REFUSED;
	default: return ENDING_FAILED;
	}
}

/* Carries out an order. An eviction first notes what it will unload. kept: the notes of earlier
 * orders, which the journal has; NULL: the journal already has the notes of this order. Returns
 * true if the notes changed. Then the order was not carried out: the caller must write the
 * notes to the journal and call this function again. */
static bool learn_and_do(struct worker_call *c, const char *kept, struct guard_outcome *out)
{
	bool learns = kept && c->order->verb == ORDER_EVICT, more;
	int rc = c->set->begin ? c->set->begin(c) : 0;

	if (!rc && learns)
		rc = learn(c);
	more = !rc && learns && strcmp(c->notes, kept) != 0;
	if (!rc && !more)
		rc = verbs[c->order->verb](c, out);
	if (rc == -GW_E_NOMEM)
		worker_fail(c, rc, "out of memory");
	if (c->set->end)
		c->set->end(c);
	out->ending = ending_of(c, rc, out->ending);
	return more;
}

static bool carry_out(const struct action *a, struct worker_call *c, const char *kept,
		      struct guard_outcome *out)
{
	*out = (struct guard_outcome){ .order = c->order->id };
	c->message = out->message;
	c->message_size = sizeof(out->message);
	if (a->policy->mode != GUARD_ENFORCE) {
		worker_fail(c, 0, "nothing was done, because the mode is not enforce");
		return false;
	}
	/* the deadline may have passed while the journal was written */
	if (!kept && clock_mono_ns(clock_real()) >= c->deadline_ns) {
		worker_fail(c, 0,
			    "nothing was done, because the journal was not written in time");
		return false;
	}
	return learn_and_do(c, kept, out);
}

/* Wakes the owner of the action through notify_fd. Needs the lock. Call it after the outcome
 * was stored in the slot. */
static void notify(const struct action *a)
{
	uint64_t one = 1;

	/* A full eventfd is already readable. */
	if (a->notify_fd >= 0 && write(a->notify_fd, &one, sizeof(one)) < 0)
		return;
}

static struct slot *oldest_queued(struct action *a)
{
	struct slot *found = NULL;

	for (unsigned i = 0; i < POLICY_WORKERS; i++)
		if (a->slot[i].state == QUEUED && (!found || a->slot[i].turn < found->turn))
			found = &a->slot[i];
	return found;
}

/* Carries out one order. Needs the lock, and releases it while the worker is called. The order
 * of a RUNNING slot does not change. */
static void run_order(struct action *a, struct slot *s)
{
	char notes[WORKER_NOTES_SIZE], kept[WORKER_NOTES_SIZE];
	struct worker_callbacks callbacks = s->callbacks;
	struct guard_outcome outcome;
	bool is_kept = s->kept, more;
	struct worker_call call = {
		.worker = &a->policy->worker[s->order.worker],
		.order = &s->order,
		.deadline_ns = s->order.deadline_ns,
		.notes = notes,
		.notes_size = sizeof(notes),
		.callbacks = s->has_callbacks ? &callbacks : NULL,
		.facts = a->facts,
		.root = &a->root,
		.set = a->set,
		.companion = a->policy->companion,
		.cancelled = &s->cancelled,
	};

	memcpy(notes, s->notes, sizeof(notes));
	memcpy(kept, s->notes, sizeof(kept));
	s->state = RUNNING;
	mailbox_unlock(&a->box);
	more = carry_out(a, &call, is_kept ? NULL : kept, &outcome);
	mailbox_lock(&a->box);
	memcpy(s->notes, notes, sizeof(notes));
	s->outcome = outcome;
	s->state = more ? LEARNT : DONE;
	notify(a);
}

static void action_run(void *arg)
{
	struct action *a = arg;
	struct slot *s;

	mailbox_lock(&a->box);
	while (!a->box.stop) {
		s = oldest_queued(a);
		if (s) {
			run_order(a, s);
			continue;
		}
		a->idle++;
		mailbox_wait(&a->box, UINT64_MAX);
		a->idle--;
	}
	mailbox_unlock(&a->box);
}

static unsigned count_queued(const struct action *a)
{
	unsigned n = 0;

	for (unsigned i = 0; i < POLICY_WORKERS; i++)
		n += a->slot[i].state == QUEUED;
	return n;
}

/* Adds the order to the end of the queue. Starts a thread, up to a limit, if the queue already
 * has an order for every idle thread. Fails only if no thread exists. */
static int enqueue(struct action *a, struct slot *s)
{
	int rc = 0;

	if (a->idle <= count_queued(a) && a->box.started < MAILBOX_THREADS)
		rc = mailbox_start(&a->box, 0, action_run, NULL, a);
	if (rc && a->box.started == 0)
		return rc;
	s->turn = ++a->turn;
	s->state = QUEUED;
	mailbox_wake(&a->box);
	return 0;
}

static int queue_order(struct action *a, const struct guard_order *o)
{
	struct slot *s = &a->slot[o->worker];

	if (s->state != FREE)
		return -GW_E_STATE;
	s->order = *o;
	s->kept = false;
	atomic_store(&s->cancelled, false);
	return enqueue(a, s);
}

int action_order(struct action *a, const struct guard_order *o)
{
	int rc;

	if (o->worker >= a->policy->workers || o->verb >= ORDER_VERBS)
		return -GW_E_ARG;
	mailbox_lock(&a->box);
	rc = queue_order(a, o);
	mailbox_unlock(&a->box);
	return rc;
}

void action_cancel(struct action *a, unsigned worker)
{
	if (worker < POLICY_WORKERS)
		atomic_store(&a->slot[worker].cancelled, true);
}

bool action_next_outcome(struct action *a, struct guard_outcome *ret)
{
	bool found = false;

	mailbox_lock(&a->box);
	for (unsigned i = 0; i < POLICY_WORKERS && !found; i++) {
		if (a->slot[i].state != DONE)
			continue;
		*ret = a->slot[i].outcome;
		a->slot[i].state = FREE;
		found = true;
	}
	mailbox_unlock(&a->box);
	return found;
}

bool action_learnt(struct action *a, unsigned worker, struct guard_order *ret)
{
	bool is;

	mailbox_lock(&a->box);
	is = worker < POLICY_WORKERS && a->slot[worker].state == LEARNT;
	if (is)
		*ret = a->slot[worker].order;
	mailbox_unlock(&a->box);
	return is;
}

void action_go_on(struct action *a, unsigned worker, const char *why_not)
{
	struct slot *s = &a->slot[worker];

	mailbox_lock(&a->box);
	s->kept = true;
	if (why_not) {
		s->outcome.ending = ENDING_FAILED;
		snprintf(s->outcome.message, sizeof(s->outcome.message), "%s", why_not);
		s->state = DONE;
		notify(a);
	} else {
		/* this cannot fail, because the thread that made the notes still exists */
		enqueue(a, s);
	}
	mailbox_unlock(&a->box);
}

void action_notes(struct action *a, unsigned worker, char *out, size_t size)
{
	mailbox_lock(&a->box);
	snprintf(out, size, "%s", worker < POLICY_WORKERS ? a->slot[worker].notes : "");
	mailbox_unlock(&a->box);
}

void action_set_notes(struct action *a, unsigned worker, const char *notes)
{
	mailbox_lock(&a->box);
	if (worker < POLICY_WORKERS)
		snprintf(a->slot[worker].notes, sizeof(a->slot[worker].notes), "%s", notes);
	mailbox_unlock(&a->box);
}

int action_set_callbacks(struct action *a, unsigned worker, const struct worker_callbacks *c)
{
	struct slot *s = &a->slot[worker < POLICY_WORKERS ? worker : 0];
	int rc = worker < POLICY_WORKERS ? 0 : -GW_E_ARG;

	mailbox_lock(&a->box);
	if (!rc && s->state == RUNNING)
		rc = -GW_E_STATE;
	if (!rc) {
		s->has_callbacks = c != NULL;
		if (c)
			s->callbacks = *c;
	}
	mailbox_unlock(&a->box);
	return rc;
}

void action_set_facts(struct action *a, const struct worker_facts *f)
{
	mailbox_lock(&a->box);
	a->facts = *f;
	mailbox_unlock(&a->box);
}

static bool all_free(const struct action *a)
{
	for (unsigned i = 0; i < POLICY_WORKERS; i++)
		if (a->slot[i].state != FREE)
			return false;
	return true;
}

/* Finds the slot that must move to position `at`, and returns its present position, which is
 * `at` or higher. is[k]: the original position of the slot that is at k now. For a new worker,
 * returns a slot that no worker needs. */
static unsigned find_slot(const int *is, const int *from, unsigned workers, unsigned at)
{
	for (unsigned k = at; k < POLICY_WORKERS; k++) {
		bool wanted = false;

		if (from[at] >= 0 && is[k] == from[at])
			return k;
		for (unsigned i = at; i < workers; i++)
			wanted = wanted || is[k] == from[i];
		if (from[at] < 0 && !wanted)
			return k;
	}
	return at;
}

/* Sorts in place, because a slot is large and the sort must not fail. */
static void sort_slots(struct action *a, const int *from, unsigned workers)
{
	int is[POLICY_WORKERS];

	for (unsigned i = 0; i < POLICY_WORKERS; i++)
		is[i] = (int)i;
	for (unsigned i = 0; i < workers; i++) {
		unsigned k = find_slot(is, from, workers, i);
		struct slot other = a->slot[i];
		int was = is[i];

		a->slot[i] = a->slot[k];
		a->slot[k] = other;
		is[i] = is[k];
		is[k] = was;
		if (from[i] < 0)
			memset(&a->slot[i], 0, sizeof(a->slot[i]));
	}
	for (unsigned i = workers; i < POLICY_WORKERS; i++)
		memset(&a->slot[i], 0, sizeof(a->slot[i]));
}

bool action_idle(struct action *a)
{
	bool is;

	mailbox_lock(&a->box);
	is = all_free(a);
	mailbox_unlock(&a->box);
	return is;
}

int action_policy(struct action *a, const struct policy *p, const int *from)
{
	int rc = -GW_E_STATE;

	mailbox_lock(&a->box);
	if (all_free(a)) {
		sort_slots(a, from, p->workers);
		a->policy = p;
		rc = 0;
	}
	mailbox_unlock(&a->box);
	return rc;
}

int action_new(const struct policy *p, const struct worker_set *set, int notify_fd,
	       struct action **ret)
{
	struct action *a = calloc(1, sizeof(*a));
	int rc = a ? root_open(&a->root, NULL) : -GW_E_NOMEM;

	if (rc) {
		free(a);
		return rc;
	}
	(void)mailbox_init(&a->box, 0);
	a->policy = p;
	a->set = set;
	a->notify_fd = notify_fd;
	a->facts = (struct worker_facts){ -1, -1, -1 };
	*ret = a;
	return 0;
}

/* True if a running order must not be interrupted. An interrupted checkpoint would break its
 * process. */
static bool must_wait(const struct action *a)
{
	for (unsigned i = 0; i < POLICY_WORKERS; i++) {
		const struct slot *s = &a->slot[i];

		if (s->state == RUNNING &&
		    policy_kind_is(a->policy->worker[s->order.worker].kind, KIND_ATOMIC))
			return true;
	}
	return false;
}

int action_free(struct action *a, uint64_t timeout_ns)
{
	uint64_t until_ns = clock_mono_ns(clock_real()) + timeout_ns;

	if (!a)
		return 0;
	mailbox_request_stop(&a->box);
	mailbox_lock(&a->box);
	while (a->box.running &&
	       mailbox_wait_news(&a->box, must_wait(a) ? UINT64_MAX : until_ns))
		;
	a->notify_fd = -1; /* the caller may close the descriptor after this function */
	/* Join the threads, because libraries that a thread used clean up when the thread
	 * ends. */
	if (mailbox_join(&a->box) != 0)
		return -GW_E_STATE;
	mailbox_done(&a->box);
	root_close(&a->root);
	free(a);
	return 0;
}
