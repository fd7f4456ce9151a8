/* scene_builder: builds the scenes from which the guard decides. It reads the GPUs, /proc and
 * /sys.
 *
 * For each scene it reads the memory and the process lists of the GPUs. Slow values come from a
 * snapshot once per second, and names from /proc. All memory is allocated at the start, for any
 * number of processes. If the process list of a GPU cannot be read, the GPU has errors > 0 and
 * no processes in that scene, because its processes are unknown. */
#ifndef GW_GUARD_SCENE_BUILDER_H
#define GW_GUARD_SCENE_BUILDER_H

#include "classify.h"

#include "base/clock.h"
#include "base/proc_id.h"

struct gw_ctx;
struct scene_builder;

/* The driver lists a process 0.1 to 0.3 s after the process opened a GPU. So scenes are built
 * often for a while after an event of scene_builder_triggered(). */
#define SCENE_BUILDER_AFTER_OPEN_NS NS_PER_S
#define SCENE_BUILDER_OFTEN_NS      (50 * NS_PER_MS) /* time between these scenes */

/* Borrows ctx and p. ctx should have a deadline: without one, a hanging driver blocks
 * scene_builder_take(). Returns 0 or -GW_E_NOMEM. */
int scene_builder_new(struct gw_ctx *ctx, const struct policy *p, struct scene_builder **ret);
void scene_builder_free(struct scene_builder *b);

/* Replaces the policy; the old one must still exist. Workers with an unchanged match keep their
 * roots. Roots that the new policy does not find become former roots in scenes. Returns 0; on
 * -GW_E_NOMEM nothing changes. */
int scene_builder_policy(struct scene_builder *b, const struct policy *p);

/* Root processes that the workers had in an earlier run. While such a process lives and no
 * match finds it, scenes contain it as a former root. Call scene_builder_recall() before the
 * first scene that must contain it. */
#define SCENE_BUILDER_FORMERS (POLICY_WORKERS * 8)
struct scene_builder_formers {
	struct {
		unsigned worker;
		struct proc_id id;
	} of[SCENE_BUILDER_FORMERS];
	unsigned count;
};
void scene_builder_recall(struct scene_builder *b, const struct scene_builder_formers *f);

/* Builds a scene. If `utilisation` is true, sm_ratio says how busy each process was over the
 * last three seconds; otherwise it is NAN. The driver is queried for utilisation at most twice
 * per second; a query takes 2 ms on an H200. Only one thread at a time may call this function.
 * Returns 0 or -GW_E_NOMEM. */
int scene_builder_take(struct scene_builder *b, struct scene *ret, bool utilisation);

struct scene_builder_stats {
	uint64_t scenes;
	/* processes that the driver listed, but that were no longer in /proc */
	uint64_t vanished;
	uint64_t left_out; /* number of processes that did not fit into a scene */
	uint64_t searches; /* searches of /proc for workers */
	unsigned nodes;    /* device nodes that are watched */
	uint64_t events;   /* opens and closes of the watched device nodes */
};
void scene_builder_stats(const struct scene_builder *b, struct scene_builder_stats *ret);

/* scene_builder_watch_fd() returns a descriptor that is readable when a program opens or closes
 * a GPU; -1: not available, so build scenes at intervals. When the descriptor is readable, call
 * scene_builder_triggered(), on one thread and not during scene_builder_take(). It reads all
 * events and returns whether to build a scene now. Events that follow within 20 to 100 ms wait
 * until scene_builder_trigger_due_ns() (monotonic; 0: none waits). After an event, build a
 * scene every SCENE_BUILDER_OFTEN_NS until SCENE_BUILDER_AFTER_OPEN_NS has passed. */
int scene_builder_watch_fd(const struct scene_builder *b);
/* True if the policy has a worker. Without a worker, no scene is urgent. */
bool scene_builder_has_workers(const struct scene_builder *b);
bool scene_builder_triggered(struct scene_builder *b);
uint64_t scene_builder_trigger_due_ns(const struct scene_builder *b);

#endif
