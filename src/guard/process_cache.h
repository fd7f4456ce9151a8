/* process_cache: the processes behind the pids that a driver lists, kept from one scene to the
 * next.
 *
 * To read a process takes eight files of /proc; to check that it is still the same one takes
 * one file, or none with a pidfd.  A listed pid that /proc does not have is at first taken for
 * a process that has just ended (a driver lists one for 0.12 to 0.17 s after its end), and
 * after a second for an orphan. */
#ifndef GW_GUARD_PROCESS_CACHE_H
#define GW_GUARD_PROCESS_CACHE_H

#include "scene.h"

#include "base/proc_id.h"
#include "base/root.h"

#include <poll.h>

/* ---- pidfd_set: which known processes still live, with one system call for all ---- */

/* To read the start time of one process from /proc takes 10 to 20 us; for every process on a
 * GPU ten times a second that would cost more than the rest of a scene.  While the pidfd of a
 * process is not readable, its pid is not reused.  Where there is no pidfd (old kernels,
 * threads, test trees, more than fit) the process is not in the set, and /proc is read. */
#define PIDFD_SET_MAX 192 /* descriptors; a service may open 1024 at least */

struct pidfd_set {
	const struct root *root;
	struct pollfd fd[PIDFD_SET_MAX];
	struct {
		struct proc_id id;
		bool wanted; /* asked for since the last pidfd_set_poll() */
	} of[PIDFD_SET_MAX];
	unsigned count, at; /* at: where the next one asked for probably is */
};

/* Borrows root. */
void pidfd_set_init(struct pidfd_set *a, const struct root *root);
void pidfd_set_done(struct pidfd_set *a);

/* Removes the processes that have ended and those not asked for since the last call. */
void pidfd_set_poll(struct pidfd_set *a);

/* Did the process live at the last pidfd_set_poll()?  False also if it is not in the set. */
bool pidfd_set_has(struct pidfd_set *a, struct proc_id id);

/* Adds a process, if possible. */
void pidfd_set_add(struct pidfd_set *a, struct proc_id id);

/* ---- the cache ---- */

#define PROCESS_CACHE_ORPHAN_NS UINT64_C(1000000000)
#define PROCESS_CACHE_FORGET_NS UINT64_C(10000000000) /* a driver's list may fail for a while */
/* A young process may execute another program, so it is read again more often than an old
 * one. */
#define PROCESS_CACHE_YOUNG_NS         UINT64_C(10000000000)
#define PROCESS_CACHE_REFRESH_YOUNG_NS UINT64_C(2000000000)
#define PROCESS_CACHE_REFRESH_OLD_NS   UINT64_C(10000000000)

enum process_state { PROCESS_FOUND, PROCESS_VANISHED, PROCESS_ORPHAN };

struct cached_process {
	struct proc_id listed; /* as the driver lists it: a process or one of its threads */
	enum process_state state;
	struct scene_process process; /* what /proc says; its GPU members are not set */
	uint64_t read_ns, missing_ns; /* last read; missing from /proc since; 0: never */
	uint64_t first_seen_ns, last_seen_ns;
	int worker; /* whose root it was below, even if its parents died; -1: none */
	int next;   /* in its hash chain; -1: the end */
};

struct process_cache;

/* Borrows both; pidfds may be NULL, else pidfd_set_poll() runs before each scene.  0 or
 * -GW_E_NOMEM. */
int process_cache_new(const struct root *root, struct pidfd_set *pidfds,
		      struct process_cache **ret);
void process_cache_free(struct process_cache *c);

/* The process with this pid now.  NULL: more than SCENE_PROCESSES at once.  Valid until
 * process_cache_forget(). */
struct cached_process *process_cache_find(struct process_cache *c, int64_t listed_pid,
					  uint64_t now_ns);

/* Has a process appeared since the last call? */
bool process_cache_appeared(struct process_cache *c);

/* Removes processes that were not found for PROCESS_CACHE_FORGET_NS. */
void process_cache_forget(struct process_cache *c, uint64_t now_ns);

/* The policy changed: worker i is now number now[i]; -1: it is gone. */
void process_cache_renumber_workers(struct process_cache *c, const int *now);

/* ---- one process ---- */

/* Reads pid from /proc as a process of a scene that is on no GPU.  0; -GW_E_NOENT: it has
 * ended, reaped or not; -GW_E_IO: it cannot be read now, so nothing is known. */
int process_cache_read(const struct root *root, int64_t pid, struct scene_process *ret);

/* A hash of name, path, arguments and control group of the program that pid runs; it changes
 * with an exec and when the process renames itself.  Reads three files and a link.  0,
 * -GW_E_NOENT, or -GW_E_IO: nothing is known (it cannot be read, or the process is ending). */
int process_cache_fingerprint(const struct root *root, int64_t pid, uint64_t *ret);

#endif
