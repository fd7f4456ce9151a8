/* looker: the thread that looks who is on the GPUs, as often as the guard wants.
 *
 * Lists cost a driver call and /proc, so the main thread never does it.  Looks at a time that it is
 * told, or at once when somebody opens a GPU; hands the scene over as the reader does its readings. */
#ifndef GW_DAEMON_SCENE_THREAD_H
#define GW_DAEMON_SCENE_THREAD_H

#include "base/loop.h"
#include "guard/scene_builder.h"

struct scene_thread;

/* ctx and policy are borrowed.  f: as of scene_builder_recall().  came: a scene, on the main thread; it is good until the next; returns when
 * to look again (monotonic; UINT64_MAX: when somebody opens a GPU) and whether with utilisation.  0,
 * -GW_E_NOMEM or -GW_E_IO. */
int scene_thread_new(struct loop *l, struct gw_ctx *ctx, const struct policy *p,
		     const struct scene_builder_formers *f,
		     uint64_t (*came)(void *arg, const struct scene *s, bool *ret_utilisation),
		     void *arg, struct scene_thread **ret);
/* 0, or -GW_E_STATE: it hangs in a driver and is left behind with all that it uses. */
int scene_thread_free(struct scene_thread *k, uint64_t timeout_ns);

/* Another policy, borrowed, and of workers that are new with it whom they were: no scene of the old one comes any more, and a look is made at once.  The thread may
 * use the old one until scene_thread_settled(): a driver that hangs can hold it. */
void scene_thread_policy(struct scene_thread *k, const struct policy *p,
			 const struct scene_builder_formers *f);
bool scene_thread_settled(struct scene_thread *k);

/* Hands over what has come, as the loop would: for who waits for a look where no loop runs. */
void scene_thread_take(struct scene_thread *k);

/* Look now (somebody asked for something); or not at all for a while (drivers were let go). */
void scene_thread_trigger(struct scene_thread *k);
void scene_thread_pause(struct scene_thread *k, bool on);

void scene_thread_stats(struct scene_thread *k, struct scene_builder_stats *ret,
			uint64_t *ret_triggered);

#endif
