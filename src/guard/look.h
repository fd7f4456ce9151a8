/* look: makes a scene out of a context, of /proc and /sys: what the guard decides on.
 *
 * Memory and who is there come from the driver at each look (lists merged, bytes once), what changes slowly
 * from a snapshot once a second, who that is from /proc.  Takes its memory at the start and works within it, however many processes
 * there are.  A GPU whose list could not be read has no processes in that scene and errors > 0: nothing
 * is known of it then, which is not the same as nobody. */
#ifndef GW_GUARD_LOOK_H
#define GW_GUARD_LOOK_H

#include "classify.h"

struct gw_ctx;
struct look;

#define LOOK_FORMERS (POLICY_WORKERS * 8)

#define LOOK_BLIND 10 /* more errors in a row than this: the GPU is blind */

/* Borrows both; ctx should have a deadline, or a driver that hangs hangs the look.  0 or -GW_E_NOMEM. */
int look_new(struct gw_ctx *ctx, const struct policy *p, struct look **ret);
void look_free(struct look *l);

/* Another policy, while the old one is still there; what was found by it is forgotten, but for who wrote
 * which pidfile, and for roots that the new one does not find: scenes have them as former ones.  0 or -GW_E_NOMEM: the old one stays. */
int look_policy(struct look *l, const struct policy *p);

/* Processes that workers of its policy were known by in an earlier run: those that live and are not found are told as
 * former ones.  Before the first look that shall know them. */
struct look_formers {
	struct {
		unsigned worker;
		int64_t pid;
		uint64_t start_ticks;
	} of[LOOK_FORMERS];
	unsigned count;
};
void look_recall(struct look *l, const struct look_formers *f);

/* Looks.  utilisation: how busy each process was over the last three seconds is told too, else sm_ratio is
 * NAN; it is asked twice a second at most (2 ms on an H200).  One thread at a time.  0 or -GW_E_NOMEM. */
int look_take(struct look *l, struct scene *ret, bool utilisation);

struct look_stats {
	uint64_t looks;
	uint64_t vanished; /* listed processes that were gone when /proc was asked */
	uint64_t left_out; /* that did not fit */
	uint64_t searches; /* of /proc, for workers */
	unsigned nodes;    /* that are watched */
	uint64_t events;   /* of them */
};
void look_stats(const struct look *l, struct look_stats *ret);

/* Readable when somebody opens or closes a GPU; -1: the kernel gives none, poll.  Then, on one thread, not
 * during a look: look_triggered() takes all that waits and says whether to look now.  What follows sooner than
 * 20 to 100 ms after the last waits until look_trigger_due_ns() (monotonic; 0: nothing waits).  An open
 * comes before its process is in the driver's list (0.1 to 0.3 s): look often for a second after it. */
int look_watch_fd(const struct look *l);
bool look_triggered(struct look *l);
uint64_t look_trigger_due_ns(const struct look *l);

#endif
