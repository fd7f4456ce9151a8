/* process_cache: remembers from one scene to the next what /proc says about the pids that a
 * driver lists.
 *
 * To read a process, eight files of /proc are read. To check that a pid still belongs to the
 * same process, one file is read, or none if there is a pidfd. A listed pid that is not in
 * /proc counts at first as a process that has just ended, because a driver still lists a
 * process for 0.12 to 0.17 s after the end of the process. After a second, the process counts
 * as an orphan. */
#ifndef GW_GUARD_PROCESS_CACHE_H
#define GW_GUARD_PROCESS_CACHE_H

#include "scene.h"

#include "base/clock.h"
#include "base/proc_id.h"
#include "base/root.h"

#include <poll.h>

/* pidfd_set: checks with one system call which processes of earlier scenes still live.
 *
 * Reading the start time of one process from /proc takes 10 to 20 us. For every process on a
 * GPU, ten times per second, this would take longer than the rest of a scene. While the pidfd
 * of a process is not readable, the process lives, so its pid cannot be reused. A process
 * without a pidfd (old kernels, threads, test trees, more processes than fit) is not in the
 * set, and its start time is read from /proc. */
/* maximum number of pidfds; the limit of open files of a service is at least 1024 */
#define PIDFD_SET_MAX 192

struct pidfd_set {
	const struct root *root;
	struct pollfd fd[PIDFD_SET_MAX];
	struct {
		struct proc_id id;
		/* pidfd_set_keep() was called for this process since the last
		 * pidfd_set_poll() */
		bool wanted;
	} of[PIDFD_SET_MAX];
	unsigned count;
	unsigned at; /* position where pidfd_set_keep() begins to search */
};

/* Borrows root. */
void pidfd_set_init(struct pidfd_set *a, const struct root *root);
void pidfd_set_done(struct pidfd_set *a);

/* Removes processes that have ended, and processes for which pidfd_set_keep() was not called
 * since the last call of this function. */
void pidfd_set_poll(struct pidfd_set *a);

/* Keeps the process in the set at the next pidfd_set_poll(). Returns true if the process lived
 * at the last pidfd_set_poll(); false also if the process is not in the set. */
bool pidfd_set_keep(struct pidfd_set *a, struct proc_id id);

/* Adds a process, if possible. */
void pidfd_set_add(struct pidfd_set *a, struct proc_id id);

/* A process that the driver lists, but that is not in /proc, is an orphan after this time. */
#define PROCESS_CACHE_ORPHAN_NS NS_PER_S
/* A process stays in the cache for this time after the driver last listed it, because reading
 * the driver's list may fail for a while. */
#define PROCESS_CACHE_FORGET_NS (10 * NS_PER_S)
/* A process that is younger than YOUNG_NS is read again more often than an older one, because
 * it may soon execute another program. REFRESH_..._NS is the time between two readings. */
#define PROCESS_CACHE_YOUNG_NS         (10 * NS_PER_S)
#define PROCESS_CACHE_REFRESH_YOUNG_NS (2 * NS_PER_S)
#define PROCESS_CACHE_REFRESH_OLD_NS   (10 * NS_PER_S)

enum process_state {
	PROCESS_FOUND,
	PROCESS_VANISHED, /* not in /proc: the process has probably just ended */
	PROCESS_ORPHAN,   /* not in /proc for PROCESS_CACHE_ORPHAN_NS */
};

struct cached_process {
	struct proc_id listed; /* the id in the driver's list, of a process or a thread */
	enum process_state state;
	struct scene_process process; /* from /proc; the members about the GPU are not set */
	uint64_t read_ns;             /* when the process was last read; 0: never */
	uint64_t missing_ns; /* since when the process is not in /proc; 0: it is there */
	/* when the driver first and last listed the process */
	uint64_t first_seen_ns, last_seen_ns;
	/* the worker that the process descends from, even if its parents have ended; -1:
	 * none */
	int worker;
	int next; /* next entry in the hash chain; -1: the end */
};

struct process_cache;

/* Borrows root and pidfds. pidfds may be NULL; else call pidfd_set_poll() before each scene.
 * Returns 0 or -GW_E_NOMEM. */
int process_cache_new(const struct root *root, struct pidfd_set *pidfds,
		      struct process_cache **ret);
void process_cache_free(struct process_cache *c);

/* Returns the process that has this pid now. NULL: there are more than SCENE_PROCESSES
 * processes. The result is valid until process_cache_forget(). */
struct cached_process *process_cache_find(struct process_cache *c, int64_t listed_pid,
					  uint64_t now_ns);

/* True if a process appeared since the last call. */
bool process_cache_appeared(struct process_cache *c);

/* Removes processes that were not found for PROCESS_CACHE_FORGET_NS. */
void process_cache_forget(struct process_cache *c, uint64_t now_ns);

/* Applies a new policy: worker i becomes worker now[i]; -1: the worker was removed. */
void process_cache_renumber_workers(struct process_cache *c, const int *now);

/* Reads the process with this pid from /proc; the members about a GPU are not set. Returns 0;
 * -GW_E_NOENT: the process has ended, even if it is not reaped yet; -GW_E_IO: the process
 * cannot be read now. */
int process_cache_read(const struct root *root, int64_t pid, struct scene_process *ret);

/* Computes a hash of name, path, arguments and control group of the program that pid runs. The
 * hash changes with an exec, and when the process renames itself. Reads three files and a link.
 * Returns 0, -GW_E_NOENT, or -GW_E_IO: nothing is known, because the process cannot be read or
 * is ending. */
int process_cache_fingerprint(const struct root *root, int64_t pid, uint64_t *ret);

/* Returns whether the process with this pid and start time still exists, has ended, or has
 * ended and another process has its pid. */
enum process_identity { IDENTITY_SAME, IDENTITY_ENDED, IDENTITY_OTHER };
enum process_identity process_identity(const struct root *root, struct proc_id id);

/* proc_visibility: finds which facts about other users' processes the calling process can read,
 * and which parts of a policy need more privileges.
 *
 * Name, arguments and control group are visible to everyone. Reading the program needs
 * CAP_SYS_PTRACE; finding the owner of a port (by open files) needs CAP_DAC_READ_SEARCH in
 * addition. A hidden value never matches: a worker that would be found by the value is absent,
 * and a rule that uses the value never applies. */

enum proc_visibility {
	PROC_VISIBILITY_PROGRAMS = 1,
	PROC_VISIBILITY_PORTS = 2,
	PROC_VISIBILITY_ALL = 3
};

/* Returns a set of enum proc_visibility, computed from the current capabilities. */
unsigned proc_visibility_now(void);

/* Returns which part of the worker's match is not visible: "port" or "program"; NULL: all
 * needed parts are visible. */
const char *proc_visibility_lacks(const struct policy *p, unsigned worker, unsigned visible);

/* Writes a sentence without full stop that names the workers and rules that need more
 * privileges, and what to do. False: there are no such workers or rules. */
#define PROC_VISIBILITY_TEXT 600
bool proc_visibility_missing(const struct policy *p, unsigned visible,
			     char out[static PROC_VISIBILITY_TEXT]);

/* The advice in the sentence of proc_visibility_missing(), for other messages. */
extern const char proc_visibility_remedy[];

#endif
