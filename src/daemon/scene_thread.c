#include "scene_thread.h"

#include "base/clock.h"
#include "base/thread.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* A process opens a GPU 0.1 to 0.3 s before it appears in the driver's list: build scenes
 * often for a second. */
#define AFTER_OPEN_NS NS_PER_S
#define OFTEN_NS      (50 * NS_PER_MS)
#define FIRST_NS      (100 * NS_PER_MS)

struct scene_thread {
	struct scene_builder *builder;
	struct scene *scene[2];
	uint64_t (*ready)(void *arg, const struct scene *s, bool *ret_utilisation);
	void *arg;
	int news_fd; /* to the main thread */
	int wake_fd; /* to ours            */
	struct loop_source *source;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t end;
	/* Under the lock. */
	struct scene *empty, *full;
	uint64_t due_ns;
	bool utilisation, stop, gone, paused;
	bool missed; /* a scene was due while no buffer was free */
	uint64_t triggered;
	struct scene_builder_stats stats; /* as of the last scene */
	const struct policy *policy;
	struct scene_builder_formers formers; /* of it */
	/* policy numbers: of `policy`, and of the one the builder uses */
	uint64_t wanted, taken;
	/* The thread's own. */
	uint64_t often_until_ns;
	/* The main thread's. */
	struct scene *shown;
};

/* ---- the thread ---- */

/* A process opened or closed a GPU: build a scene now, and often for a while. */
static void take_trigger(struct scene_thread *k)
{
	if (!scene_builder_triggered(k->builder))
		return;
	k->often_until_ns = clock_mono_ns(clock_real()) + AFTER_OPEN_NS;
	pthread_mutex_lock(&k->lock);
	k->triggered++;
	k->due_ns = 0;
	pthread_mutex_unlock(&k->lock);
}

/* Waits until the given time, until a process opens a GPU, or until woken. */
static void wait_for(struct scene_thread *k, uint64_t due_ns)
{
	uint64_t now = clock_mono_ns(clock_real()),
		 waits = scene_builder_trigger_due_ns(k->builder), ns;
	struct pollfd fd[2] = { { k->wake_fd, POLLIN, 0 },
				{ scene_builder_watch_fd(k->builder), POLLIN, 0 } };
	struct timespec t;
	eventfd_t n;

	if (waits && waits < due_ns)
		due_ns = waits;
	ns = due_ns > now ? due_ns - now : 0;
	t = clock_timespec(ns);
	if (ppoll(fd, fd[1].fd >= 0 ? 2 : 1, due_ns == UINT64_MAX ? NULL : &t, NULL) > 0 &&
	    fd[0].revents)
		eventfd_read(k->wake_fd, &n);
	if (fd[1].fd >= 0 && (fd[1].revents || waits))
		take_trigger(k);
}

static struct scene *take_empty(struct scene_thread *k, bool *ret_utilisation)
{
	struct scene *s;

	pthread_mutex_lock(&k->lock);
	s = k->paused ? NULL : k->empty;
	if (s)
		k->empty = NULL;
	k->missed = !s && !k->paused;
	*ret_utilisation = k->utilisation;
	k->due_ns = UINT64_MAX; /* until the main thread sets a time */
	pthread_mutex_unlock(&k->lock);
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
		pthread_mutex_lock(&k->lock);
		k->empty = s;
		k->due_ns = clock_mono_ns(clock_real()) + NS_PER_S;
		pthread_mutex_unlock(&k->lock);
		return;
	}
	scene_builder_stats(k->builder, &stats);
	pthread_mutex_lock(&k->lock);
	k->stats = stats;
	fresh = k->taken == k->wanted;
	*(fresh ? &k->full : &k->empty) = s;
	if (!fresh)
		k->due_ns = 0;
	pthread_mutex_unlock(&k->lock);
	if (fresh)
		eventfd_write(k->news_fd, 1);
}

/* false: out of memory; the old policy stays, and its scenes are not delivered. */
static bool take_policy(struct scene_thread *k)
{
	struct scene_builder_formers formers;
	const struct policy *p;
	uint64_t turn, taken;

	pthread_mutex_lock(&k->lock);
	p = k->policy;
	formers = k->formers;
	turn = k->wanted;
	taken = k->taken;
	pthread_mutex_unlock(&k->lock);
	if (turn == taken)
		return true;
	if (scene_builder_policy(k->builder, p) != 0)
		return false;
	scene_builder_recall(k->builder, &formers);
	pthread_mutex_lock(&k->lock);
	k->taken = turn;
	pthread_mutex_unlock(&k->lock);
	return true;
}

static uint64_t next_due(struct scene_thread *k, bool *ret_stop)
{
	uint64_t due, now = clock_mono_ns(clock_real());

	pthread_mutex_lock(&k->lock);
	due = k->paused ? UINT64_MAX : k->due_ns;
	*ret_stop = k->stop;
	pthread_mutex_unlock(&k->lock);
	if (now < k->often_until_ns && due > now + OFTEN_NS && due != 0)
		due = now + OFTEN_NS;
	return due;
}

static void *scene_thread_run(void *arg)
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
	pthread_mutex_lock(&k->lock);
	k->gone = true;
	pthread_cond_broadcast(&k->end);
	pthread_mutex_unlock(&k->lock);
	return NULL;
}

/* ---- the main thread ---- */

static void scene_arrived(void *arg, int fd, uint32_t events)
{
	struct scene_thread *k = arg;
	struct scene *s;
	uint64_t due;
	bool utilisation = false;
	eventfd_t n;

	(void)events;
	if (eventfd_read(fd, &n) != 0)
		return;
	pthread_mutex_lock(&k->lock);
	s = k->full;
	k->full = NULL;
	pthread_mutex_unlock(&k->lock);
	if (!s)
		return;
	due = k->ready(k->arg, s, &utilisation);
	pthread_mutex_lock(&k->lock);
	k->empty = k->shown;
	k->utilisation = utilisation;
	if (due < k->due_ns)
		k->due_ns = due;
	if (k->missed)
		k->due_ns = 0;
	pthread_mutex_unlock(&k->lock);
	k->shown = s;
	eventfd_write(k->wake_fd, 1);
}

void scene_thread_take(struct scene_thread *k)
{
	scene_arrived(k, k->news_fd, EPOLLIN);
}

static void scene_thread_release(struct scene_thread *k)
{
	loop_remove(k->source);
	scene_builder_free(k->builder);
	free(k->scene[0]);
	free(k->scene[1]);
	if (k->news_fd >= 0)
		close(k->news_fd);
	if (k->wake_fd >= 0)
		close(k->wake_fd);
	pthread_cond_destroy(&k->end);
	pthread_mutex_destroy(&k->lock);
	free(k);
}

int scene_thread_new(struct loop *l, struct gw_ctx *ctx, const struct policy *p,
		     const struct scene_builder_formers *f,
		     uint64_t (*ready)(void *arg, const struct scene *s, bool *ret_utilisation),
		     void *arg, struct scene_thread **ret)
{
	struct scene_thread *k = calloc(1, sizeof(*k));
	int err = 0;

	if (!k)
		return -GW_E_NOMEM;
	k->ready = ready;
	k->arg = arg;
	k->due_ns = clock_mono_ns(clock_real()) + FIRST_NS;
	pthread_mutex_init(&k->lock, NULL);
	pthread_cond_init(&k->end, NULL);
	k->news_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	k->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	for (unsigned i = 0; i < 2; i++)
		k->scene[i] = calloc(1, sizeof(*k->scene[i]));
	k->empty = k->scene[0];
	k->shown = k->scene[1];
	if (!k->scene[0] || !k->scene[1])
		err = -GW_E_NOMEM;
	else if (k->news_fd < 0 || k->wake_fd < 0)
		err = -GW_E_IO;
	if (!err)
		err = scene_builder_new(ctx, p, &k->builder);
	if (!err)
		scene_builder_recall(k->builder, f);
	if (!err)
		err = loop_add_fd(l, k->news_fd, EPOLLIN, scene_arrived, k, &k->source);
	if (!err)
		err = thread_start(&k->thread, 0, scene_thread_run, k);
	if (err) {
		scene_thread_release(k);
		return err;
	}
	*ret = k;
	return 0;
}

int scene_thread_free(struct scene_thread *k, uint64_t timeout_ns)
{
	uint64_t until_ns = clock_mono_ns(clock_real()) + timeout_ns;
	struct timespec until = clock_timespec(until_ns);
	bool gone;

	if (!k)
		return 0;
	pthread_mutex_lock(&k->lock);
	k->stop = true;
	pthread_mutex_unlock(&k->lock);
	eventfd_write(k->wake_fd, 1);
	pthread_mutex_lock(&k->lock);
	while (!k->gone &&
	       pthread_cond_clockwait(&k->end, &k->lock, CLOCK_MONOTONIC, &until) == 0)
		;
	gone = k->gone;
	pthread_mutex_unlock(&k->lock);
	if (!gone) {
		loop_remove(k->source);
		k->source = NULL;
		pthread_detach(k->thread);
		return -GW_E_STATE;
	}
	pthread_join(k->thread, NULL);
	scene_thread_release(k);
	return 0;
}

void scene_thread_trigger(struct scene_thread *k)
{
	pthread_mutex_lock(&k->lock);
	k->due_ns = 0;
	pthread_mutex_unlock(&k->lock);
	eventfd_write(k->wake_fd, 1);
}

void scene_thread_policy(struct scene_thread *k, const struct policy *p,
			 const struct scene_builder_formers *f)
{
	pthread_mutex_lock(&k->lock);
	k->policy = p;
	k->formers = *f;
	k->wanted++;
	if (k->full) {
		k->empty = k->full;
		k->full = NULL;
	}
	k->due_ns = 0;
	pthread_mutex_unlock(&k->lock);
	eventfd_write(k->wake_fd, 1);
}

bool scene_thread_settled(struct scene_thread *k)
{
	bool is;

	pthread_mutex_lock(&k->lock);
	is = k->taken == k->wanted;
	pthread_mutex_unlock(&k->lock);
	return is;
}

void scene_thread_pause(struct scene_thread *k, bool on)
{
	pthread_mutex_lock(&k->lock);
	if (k->paused && !on)
		k->due_ns = 0;
	k->paused = on;
	pthread_mutex_unlock(&k->lock);
	eventfd_write(k->wake_fd, 1);
}

void scene_thread_stats(struct scene_thread *k, struct scene_builder_stats *ret,
			uint64_t *ret_triggered)
{
	pthread_mutex_lock(&k->lock);
	*ret = k->stats;
	*ret_triggered = k->triggered;
	pthread_mutex_unlock(&k->lock);
}
