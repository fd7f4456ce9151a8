/* look: makes a scene out of a context, of /proc and /sys: what the guard decides on.
 *
 * Memory and who is there come from the driver at each look (lists merged, bytes once), what changes slowly
 * from a snapshot once a second, who that is from /proc.  Takes its memory at the start and works within it, however many processes
 * there are.  A GPU whose list could not be read has no processes in that scene and errors > 0: nothing
 * is known of it then, which is not the same as nobody. */
#ifndef GW_GUARD_SCENE_BUILDER_H
#define GW_GUARD_SCENE_BUILDER_H

#include "classify.h"

struct gw_ctx;
struct scene_builder;

#define SCENE_BUILDER_FORMERS (POLICY_WORKERS * 8)

#define SCENE_BUILDER_BLIND 10 /* more errors in a row than this: the GPU is blind */

/* Borrows both; ctx should have a deadline, or a driver that hangs hangs the look.  0 or -GW_E_NOMEM. */
int scene_builder_new(struct gw_ctx *ctx, const struct policy *p, struct scene_builder **ret);
void scene_builder_free(struct scene_builder *l);

/* Another policy, while the old one is still there; what was found by it is forgotten, but for who wrote
 * which pidfile, and for roots that the new one does not find: scenes have them as former ones.  0 or -GW_E_NOMEM: the old one stays. */
int scene_builder_policy(struct scene_builder *l, const struct policy *p);

/* Processes that workers of its policy were known by in an earlier run: those that live and are not found are told as
 * former ones.  Before the first look that shall know them. */
struct scene_builder_formers {
	struct {
		unsigned worker;
		int64_t pid;
		uint64_t start_ticks;
	} of[SCENE_BUILDER_FORMERS];
	unsigned count;
};
void scene_builder_recall(struct scene_builder *l, const struct scene_builder_formers *f);

/* Looks.  utilisation: how busy each process was over the last three seconds is told too, else sm_ratio is
 * NAN; it is asked twice a second at most (2 ms on an H200).  One thread at a time.  0 or -GW_E_NOMEM. */
int scene_builder_take(struct scene_builder *l, struct scene *ret, bool utilisation);

struct scene_builder_stats {
	uint64_t looks;
	uint64_t vanished; /* listed processes that were gone when /proc was asked */
	uint64_t left_out; /* that did not fit */
	uint64_t searches; /* of /proc, for workers */
	unsigned nodes;    /* that are watched */
	uint64_t events;   /* of them */
};
void scene_builder_stats(const struct scene_builder *l, struct scene_builder_stats *ret);

/* Readable when somebody opens or closes a GPU; -1: the kernel gives none, poll.  Then, on one thread, not
 * during a look: scene_builder_triggered() takes all that waits and says whether to look now.  What follows sooner than
 * 20 to 100 ms after the last waits until scene_builder_trigger_due_ns() (monotonic; 0: nothing waits).  An open
 * comes before its process is in the driver's list (0.1 to 0.3 s): look often for a second after it. */
int scene_builder_watch_fd(const struct scene_builder *l);
bool scene_builder_triggered(struct scene_builder *l);
uint64_t scene_builder_trigger_due_ns(const struct scene_builder *l);

#endif
