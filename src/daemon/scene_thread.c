#include "scene_thread.h"

#include "base/clock.h"
#include "base/mailbox.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>

#define FIRST_NS (100 * NS_PER_MS)

struct scene_thread {
	struct scene_builder *builder;
	struct scene *scene[2];
	uint64_t (*ready)(void *arg, const struct scene *s, bool *ret_utilisation);
	void *arg;
	struct loop_source *source;
	struct mailbox box;
	/* The lock of the mailbox protects these members. */
	struct scene *empty, *full;
	uint64_t due_ns;
	bool utilisation, paused;
	bool missed; /* A scene was due while no buffer was free. */
	uint64_t triggered;
	struct scene_builder_stats stats; /* Statistics of the builder at the last scene. */
	const struct policy *policy;
	struct scene_builder_formers formers; /* For scene_builder_recall(). */
	/* Sequence numbers of `policy` and of the policy that the builder uses. */
	uint64_t wanted, taken;
	/* Used by the scene thread only. */
	uint64_t often_until_ns;
	/* Used by the main thread only. */
	struct scene *shown;
};

/* If a process opened or closed a GPU, makes the next scene due now. If the policy has a
 * worker, more scenes then follow at short intervals for some time. */
static void take_trigger(struct scene_thread *k)
{
	if (!scene_builder_triggered(k->builder))
		return;
	if (scene_builder_has_workers(k->builder))
		k->often_until_ns = clock_mono_ns(clock_real()) + SCENE_BUILDER_AFTER_OPEN_NS;
	mailbox_lock(&k->box);
	k->triggered++;
	k->due_ns = 0;
	mailbox_unlock(&k->box);
}

/* Waits until due_ns. The wait ends earlier if a process opens a GPU, or if the main thread
 * wakes this thread. */
static void wait_for(struct scene_thread *k, uint64_t due_ns)
{
	uint64_t now = clock_mono_ns(clock_real()),
		 waits = scene_builder_trigger_due_ns(k->builder), ns;
	struct pollfd fd[2] = { { k->box.wake_fd, POLLIN, 0 },
				{ scene_builder_watch_fd(k->builder), POLLIN, 0 } };
	struct timespec t;

	if (waits && waits < due_ns)
		due_ns = waits;
	ns = due_ns > now ? due_ns - now : 0;
	t = clock_timespec(ns);
	if (ppoll(fd, fd[1].fd >= 0 ? 2 : 1, due_ns == UINT64_MAX ? NULL : &t, NULL) > 0 &&
	    fd[0].revents)
		mailbox_clear(k->box.wake_fd);
	if (fd[1].fd >= 0 && (fd[1].revents || waits))
		take_trigger(k);
}

static struct scene *take_empty(struct scene_thread *k, bool *ret_utilisation)
{
	struct scene *s;

	mailbox_lock(&k->box);
	s = k->paused ? NULL : k->empty;
	if (s)
		k->empty = NULL;
	k->missed = !s && !k->paused;
	*ret_utilisation = k->utilisation;
	k->due_ns = UINT64_MAX; /* Nothing is due until the main thread sets a time. */
	mailbox_unlock(&k->box);
	return s;
}

static void build_scene(struct scene_thread *k)
{
	bool utilisation, fresh;
	struct scene_builder_stats stats;
	struct scene *s = take_empty(k, &utilisation);

	if (!s)
		return;
	if (scene_builder_take(k->builder, s, utilisation) != 0) {
		mailbox_lock(&k->box);
		k->empty = s;
		k->due_ns = clock_mono_ns(clock_real()) + NS_PER_S;
		mailbox_unlock(&k->box);
		return;
	}
	scene_builder_stats(k->builder, &stats);
	mailbox_lock(&k->box);
	k->stats = stats;
	fresh = k->taken == k->wanted;
	*(fresh ? &k->full : &k->empty) = s;
	if (!fresh)
		k->due_ns = 0;
	mailbox_unlock(&k->box);
	if (fresh)
		mailbox_notify(&k->box);
}

/* Passes a new policy to the scene builder. Returns false if out of memory; the builder then
 * keeps the old policy, and scenes of the old policy are not delivered. */
static bool take_policy(struct scene_thread *k)
{
	struct scene_builder_formers formers;
	const struct policy *p;
	uint64_t turn, taken;

	mailbox_lock(&k->box);
	p = k->policy;
	formers = k->formers;
	turn = k->wanted;
	taken = k->taken;
	mailbox_unlock(&k->box);
	if (turn == taken)
		return true;
	if (scene_builder_policy(k->builder, p) != 0)
		return false;
	scene_builder_recall(k->builder, &formers);
	mailbox_lock(&k->box);
	k->taken = turn;
	mailbox_unlock(&k->box);
	return true;
}

static uint64_t next_due(struct scene_thread *k, bool *ret_stop)
{
	uint64_t due, now = clock_mono_ns(clock_real());

	mailbox_lock(&k->box);
	due = k->paused ? UINT64_MAX : k->due_ns;
	*ret_stop = k->box.stop;
	mailbox_unlock(&k->box);
	if (now < k->often_until_ns && due > now + SCENE_BUILDER_OFTEN_NS && due != 0)
		due = now + SCENE_BUILDER_OFTEN_NS;
	return due;
}

static void scene_thread_run(void *arg)
{
	struct scene_thread *k = arg;
	bool stop = false;

	while (!stop) {
		uint64_t due = next_due(k, &stop);

		if (stop)
			break;
		if (!take_policy(k))
			wait_for(k, clock_mono_ns(clock_real()) + NS_PER_S);
		else if (clock_mono_ns(clock_real()) >= due)
			build_scene(k);
		else
			wait_for(k, due);
	}
}

static void scene_arrived(void *arg, int fd, uint32_t events)
{
	struct scene_thread *k = arg;
	struct scene *s;
	uint64_t due;
	bool utilisation = false;

	(void)events;
	if (!mailbox_clear(fd))
		return;
	mailbox_lock(&k->box);
	s = k->full;
	k->full = NULL;
	mailbox_unlock(&k->box);
	if (!s)
		return;
	due = k->ready(k->arg, s, &utilisation);
	mailbox_lock(&k->box);
	k->empty = k->shown;
	k->utilisation = utilisation;
	if (due < k->due_ns)
		k->due_ns = due;
	if (k->missed)
		k->due_ns = 0;
	mailbox_unlock(&k->box);
	k->shown = s;
	mailbox_wake(&k->box);
}

void scene_thread_take(struct scene_thread *k)
{
	scene_arrived(k, k->box.news_fd, EPOLLIN);
}

static void scene_thread_release(struct scene_thread *k)
{
	loop_remove(k->source);
	scene_builder_free(k->builder);
	free(k->scene[0]);
	free(k->scene[1]);
	mailbox_done(&k->box);
	free(k);
}

int scene_thread_new(struct loop *l, struct gw_ctx *ctx, const struct policy *p,
		     const struct scene_builder_formers *f,
		     uint64_t (*ready)(void *arg, const struct scene *s, bool *ret_utilisation),
		     void *arg, struct scene_thread **ret)
{
	struct scene_thread *k = calloc(1, sizeof(*k));
	int err;

	if (!k)
		return -GW_E_NOMEM;
	k->ready = ready;
	k->arg = arg;
	k->due_ns = clock_mono_ns(clock_real()) + FIRST_NS;
	err = mailbox_init(&k->box, MAILBOX_WAKE_FD | MAILBOX_NEWS_FD);
	for (unsigned i = 0; i < 2; i++)
		k->scene[i] = calloc(1, sizeof(*k->scene[i]));
	k->empty = k->scene[0];
	k->shown = k->scene[1];
	if (!k->scene[0] || !k->scene[1])
		err = -GW_E_NOMEM;
	if (!err)
		err = scene_builder_new(ctx, p, &k->builder);
	if (!err)
		scene_builder_recall(k->builder, f);
	if (!err)
		err = loop_add_fd(l, k->box.news_fd, EPOLLIN, scene_arrived, k, &k->source);
	if (!err)
		err = mailbox_start(&k->box, 0, scene_thread_run, NULL, k);
	if (err) {
		scene_thread_release(k);
		return err;
	}
	*ret = k;
	return 0;
}

int scene_thread_free(struct scene_thread *k, uint64_t timeout_ns)
{
	int err;

	if (!k)
		return 0;
	err = mailbox_stop(&k->box, timeout_ns);
	if (err) {
		loop_remove(k->source);
		k->source = NULL;
	} else {
		scene_thread_release(k);
	}
	return err;
}

void scene_thread_look(struct scene_thread *k)
{
	mailbox_lock(&k->box);
	k->utilisation = true;
	mailbox_unlock(&k->box);
	scene_thread_trigger(k);
}

void scene_thread_trigger(struct scene_thread *k)
{
	mailbox_lock(&k->box);
	k->due_ns = 0;
	mailbox_unlock(&k->box);
	mailbox_wake(&k->box);
}

void scene_thread_policy(struct scene_thread *k, const struct policy *p,
			 const struct scene_builder_formers *f)
{
	mailbox_lock(&k->box);
	k->policy = p;
	k->formers = *f;
	k->wanted++;
	if (k->full) {
		k->empty = k->full;
		k->full = NULL;
	}
	k->due_ns = 0;
	mailbox_unlock(&k->box);
	mailbox_wake(&k->box);
}

bool scene_thread_settled(struct scene_thread *k)
{
	bool is;

	mailbox_lock(&k->box);
	is = k->taken == k->wanted;
	mailbox_unlock(&k->box);
	return is;
}

void scene_thread_pause(struct scene_thread *k, bool on)
{
	mailbox_lock(&k->box);
	if (k->paused && !on)
		k->due_ns = 0;
	k->paused = on;
	mailbox_unlock(&k->box);
	mailbox_wake(&k->box);
}

void scene_thread_stats(struct scene_thread *k, struct scene_builder_stats *ret,
			uint64_t *ret_triggered)
{
	mailbox_lock(&k->box);
	*ret = k->stats;
	*ret_triggered = k->triggered;
	mailbox_unlock(&k->box);
}
