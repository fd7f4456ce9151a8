/* scene_thread: the thread that builds the guard's scenes.
 *
 * To make a process list, the thread calls the driver and reads /proc. This can block, so the
 * main thread never does it. The thread builds a scene at a given time, or at once when a
 * process opens a GPU, and passes the scene to the main thread. */
#ifndef GW_DAEMON_SCENE_THREAD_H
#define GW_DAEMON_SCENE_THREAD_H

#include "base/loop.h"
#include "guard/scene_builder.h"

struct scene_thread;

/* Starts the thread. Borrows ctx and p; f has the same meaning as in scene_builder_recall().
 * ready() is called on the main thread with a scene that is valid until the next call of
 * ready(). ready() returns the monotonic time at which the next scene is due, or UINT64_MAX to
 * wait until a process opens a GPU. ready() also sets *ret_utilisation: whether the next scene
 * has utilisation. Returns 0, -GW_E_NOMEM or -GW_E_IO. */
int scene_thread_new(struct loop *l, struct gw_ctx *ctx, const struct policy *p,
		     const struct scene_builder_formers *f,
		     uint64_t (*ready)(void *arg, const struct scene *s, bool *ret_utilisation),
		     void *arg, struct scene_thread **ret);
/* Stops the thread. Returns 0, or -GW_E_STATE if the thread hangs in a driver. The thread
 * and everything that it uses then stay in memory. */
int scene_thread_free(struct scene_thread *k, uint64_t timeout_ns);

/* Sets a new policy (borrowed); f has the same meaning as in scene_builder_recall(). No more
 * scenes of the old policy arrive, and a new scene is built at once. The thread may use the old
 * policy until scene_thread_settled() is true, because a driver can hang. */
void scene_thread_policy(struct scene_thread *k, const struct policy *p,
			 const struct scene_builder_formers *f);
bool scene_thread_settled(struct scene_thread *k);

/* Delivers a finished scene as the loop would, for a caller that waits without a running
 * loop. */
void scene_thread_take(struct scene_thread *k);

/* scene_thread_trigger() makes the thread build a scene now, after a request. After
 * scene_thread_pause() with true, the thread builds no scene until the call with false, because
 * the drivers are released. */
void scene_thread_trigger(struct scene_thread *k);
/* Makes the thread build a scene with utilisation now, for a client. */
void scene_thread_look(struct scene_thread *k);
void scene_thread_pause(struct scene_thread *k, bool on);

void scene_thread_stats(struct scene_thread *k, struct scene_builder_stats *ret,
			uint64_t *ret_triggered);

#endif
