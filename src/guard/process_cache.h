/* who: the processes behind the driver's numbers, remembered from one look to the next.
 *
 * Reading all of a process takes eight files of /proc; that it is still the same one takes one, or none
 * (pidfd_set.h).  A number that /proc does not know is at first taken for a process that has just gone (the
 * driver lists one for 0.12 to 0.17 s after its end), and only after a second for an orphan. */
#ifndef GW_GUARD_PROCESS_CACHE_H
#define GW_GUARD_PROCESS_CACHE_H

#include "pidfd_set.h"
#include "scene.h"

#include "base/root.h"

#define PROCESS_CACHE_ORPHAN_NS UINT64_C(1000000000)
#define PROCESS_CACHE_REFRESH_NS \
	UINT64_C(2000000000) /* a process may become another program ...    */
#define PROCESS_CACHE_YOUNG_NS \
	UINT64_C(10000000000) /* ... but not often after this, so that then  */
#define PROCESS_CACHE_SETTLED_NS \
	UINT64_C(10000000000) /* it is read again more rarely                */
#define PROCESS_CACHE_FORGET_NS \
	UINT64_C(10000000000) /* a list may fail for a while           */

enum who_state { PROCESS_FOUND, PROCESS_VANISHED, PROCESS_ORPHAN };

struct process_cache {
	int64_t listed; /* the driver's number: of the process or of one of its threads */
	uint64_t listed_start; /* when that began */
	enum who_state state;
	struct scene_process is; /* what /proc says; nothing of any GPU */
	uint64_t read_ns, seen_ns, missing_ns;
	uint64_t met_ns; /* when it was first seen */
	int worker; /* whose it was found to be, -1: nobody's; stays when its parents die */
	int next;   /* in its chain, -1 ends */
};

struct who_table;

/* Borrows both.  alive, which may be NULL, was asked before each look.  0 or -GW_E_NOMEM. */
int process_cache_new(const struct root *root, struct pidfd_set *alive, struct who_table **ret);
void process_cache_free(struct who_table *t);

/* Who has this number now.  NULL: more than SCENE_PROCESSES at once.  Lives until process_cache_forget(). */
struct process_cache *process_cache_find(struct who_table *t, int64_t listed, uint64_t now_ns);

/* Was somebody met for the first time since this was last asked? */
bool process_cache_changes(struct who_table *t);

/* Lets go of those that were not asked for lately. */
void process_cache_forget(struct who_table *t, uint64_t now_ns);

/* The policy changed: now[i] is the worker that was i; -1: whose it was is nobody's. */
void process_cache_rename_workers(struct who_table *t, const int *now);

/* All that /proc says of pid, as a process of a scene on no GPU.  0, -GW_E_NOENT: there is none, or it ended and
 * is not reaped yet; or -GW_E_IO: it could not be read, which says nothing of it. */
int process_cache_read(const struct root *root, int64_t pid, struct scene_process *ret);

/* A number for the program that pid runs, by its name, path, arguments and group: another one after an exec,
 * and when it gives itself another name.  Three files and a link.  0, -GW_E_NOENT, or -GW_E_IO: nothing can be
 * said of it (it could not be read, or it is about to end). */
int process_cache_fingerprint(const struct root *root, int64_t pid, uint64_t *ret);

#endif
