/* Finds a worker in three ways: by its pidfile, by its port, or by a search of /proc. Each way
 * has its own interval. */
#include "worker_finder.h"

#include "pid_lookup.h"
#include "process_cache.h"

#include "base/clock.h"
#include "device/proc.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Largest difference between the clock of a file system and the clock of process start
 * times. */
#define CLOCK_DIFFERENCE_NS NS_PER_S

/* Time between two readings of each fact. FOUND: the worker has a root. MISSING: it has
 * none. */
#define PIDFILE_NS NS_PER_S
/* whether a root still runs the same program; a check reads three files */
#define RECHECK_NS    NS_PER_S
#define PORT_FOUND_NS NS_PER_S /* whether a root still has the port; a check reads one link */
/* which sockets listen on the port; reading the kernel's list takes 3 ms */
#define PORT_MISSING_NS (5 * NS_PER_S)
/* used instead of PORT_MISSING_NS if a process is new on a GPU: it may be the worker */
#define PORT_APPEARED_NS (200 * NS_PER_MS)
/* used if a socket listens on the port, but its process is not visible */
#define OWNER_MISSING_NS  (30 * NS_PER_S)
#define SEARCH_FOUND_NS   (30 * NS_PER_S)
#define SEARCH_MISSING_NS (5 * NS_PER_S)

struct found {
	struct proc_id id;
	uint64_t print; /* process_cache_fingerprint() when the process was found; 0: unknown */
};

struct target { /* one worker */
	struct found root[WORKER_FINDER_ROOTS];
	unsigned roots;
	/* processes that live, but that the match no longer finds */
	struct found former[WORKER_FINDER_ROOTS];
	unsigned formers;
	uint64_t asked_ns; /* when the pidfile or the port was last read; 0: never */
	/* when it was last checked that the roots run the same program; 0: never */
	uint64_t checked_ns;
	/* For a pidfile: when the file was written, and the process that it named then. */
	struct timespec written;
	struct proc_id writer;
	struct port_owners at; /* for a port: the sockets that listen on it */
	uint64_t owners_ns;    /* when the owners of the port were last searched; 0: never */
	char owner_file[PORT_OWNER_FILE]; /* the open socket of a root */
};

struct worker_finder {
	const struct root *root;
	const struct classifier *classifier;
	const struct policy *policy;
	struct pidfd_set *pidfds;
	int64_t self;
	struct target target[POLICY_WORKERS];
	const struct scene *scene; /* the scene that is being built */
	bool appeared;             /* a process is new on a GPU in this scene */
	uint64_t now_ns, searched_ns, searches;
	int64_t cursor; /* pid where the next search continues; 0: a new search */
};

int worker_finder_new(const struct root *root, const struct classifier *c,
		      const struct policy *p, struct pidfd_set *pidfds, int64_t self,
		      struct worker_finder **ret)
{
	struct worker_finder *f = calloc(1, sizeof(*f));

	if (!f)
		return -GW_E_NOMEM;
	f->root = root;
	f->classifier = c;
	f->policy = p;
	f->pidfds = pidfds;
	f->self = self;
	*ret = f;
	return 0;
}

void worker_finder_free(struct worker_finder *f)
{
	free(f);
}

static void add_former(struct target *t, const struct found *k)
{
	if (t->formers == WORKER_FINDER_ROOTS) {
		memmove(&t->former[0], &t->former[1], (WORKER_FINDER_ROOTS - 1) * sizeof(*k));
		t->formers--;
	}
	t->former[t->formers++] = *k;
}

bool worker_finder_same_match(const struct policy_worker *a, const struct policy_worker *b)
{
	return strcmp(a->name, b->name) == 0 && policy_match_same(&a->match, &b->match) &&
	       policy_kind_is(a->kind, KIND_SELF) == policy_kind_is(b->kind, KIND_SELF);
}

/* Copies the roots of a worker from the old finder. If the match is the same, they stay roots,
 * even if the pidfile is missing or the port is closed at this moment. */
static void inherit_target(struct target *t, const struct target *old, bool same)
{
	for (unsigned i = 0; i < old->formers; i++)
		add_former(t, &old->former[i]);
	for (unsigned i = 0; i < old->roots; i++)
		if (same && t->roots < WORKER_FINDER_ROOTS)
			t->root[t->roots++] = old->root[i];
		else
			add_former(t, &old->root[i]);
}

static void inherit_worker(struct worker_finder *f, unsigned worker,
			   const struct worker_finder *old, unsigned old_worker)
{
	const struct policy_worker *now = &f->policy->worker[worker];
	const struct policy_worker *was = &old->policy->worker[old_worker];
	const struct target *from = &old->target[old_worker];
	struct target *t = &f->target[worker];

	if (strcmp(now->name, was->name) == 0)
		inherit_target(t, from, worker_finder_same_match(now, was));
	/* Copy which process the pidfile named, because the new finder cannot find that out if
	 * the process has ended. */
	if (now->match.pidfile && was->match.pidfile &&
	    strcmp(now->match.pidfile, was->match.pidfile) == 0) {
		t->written = from->written;
		t->writer = from->writer;
	}
}

void worker_finder_inherit(struct worker_finder *f, const struct worker_finder *old)
{
	for (unsigned i = 0; old && i < f->policy->workers; i++)
		for (unsigned k = 0; k < old->policy->workers; k++)
			inherit_worker(f, i, old, k);
}

void worker_finder_recall(struct worker_finder *f, unsigned worker, struct proc_id id)
{
	if (worker < f->policy->workers)
		add_former(&f->target[worker], &(struct found){ id, 0 });
}

uint64_t worker_finder_searches(const struct worker_finder *f)
{
	return f->searches;
}

/* True if the process lives. True also if /proc cannot be read now. */
static bool lives(const struct worker_finder *f, const struct found *k)
{
	int alive;

	if (pidfd_set_keep(f->pidfds, k->id))
		return true;
	alive = proc_lives(f->root, k->id.pid, k->id.start_ticks);
	if (alive > 0)
		pidfd_set_add(f->pidfds, k->id);
	return alive != 0;
}

static void remove_ended(const struct worker_finder *f, struct target *t)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < t->roots; i++)
		if (lives(f, &t->root[i]))
			t->root[kept++] = t->root[i];
	if (t->roots && !kept)
		/* the worker may be restarting: search at once */
		t->asked_ns = t->owners_ns = 0;
	t->roots = kept;
}

/* True if p is a root or a descendant of a root. A descendant does not have to be a root
 * itself. */
static bool is_covered(const struct target *t, const struct scene_process *p)
{
	for (unsigned i = 0; i < t->roots; i++)
		if (scene_generations(p, t->root[i].id.pid) != SCENE_FAR)
			return true;
	return false;
}

static void add_root(const struct worker_finder *f, struct target *t,
		     const struct scene_process *p)
{
	struct found k = { p->id, 0 };

	if (t->roots == WORKER_FINDER_ROOTS || is_covered(t, p))
		return;
	(void)process_cache_fingerprint(f->root, k.id.pid, &k.print);
	t->root[t->roots++] = k;
}

/* Turns a root into a former root: the process lives, but no longer belongs to the worker. */
static void demote_root(struct target *t, unsigned i)
{
	add_former(t, &t->root[i]);
	memmove(&t->root[i], &t->root[i + 1], (--t->roots - i) * sizeof(t->root[0]));
}

static bool is_root(const struct target *t, const struct found *k)
{
	for (unsigned i = 0; i < t->roots; i++)
		if (proc_id_equal(t->root[i].id, k->id))
			return true;
	return false;
}

static void remove_formers(const struct worker_finder *f, struct target *t)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < t->formers; i++)
		if (!is_root(t, &t->former[i]) && lives(f, &t->former[i]))
			t->former[kept++] = t->former[i];
	t->formers = kept;
}

/* True if pid must not become a root. The init process of the machine is never a root. If the
 * match names a program, every other process may be a root, even the init process of a
 * container. If the match has only a pidfile or a port, pid 1 and the ancestors of the calling
 * process must not become roots, because systemd opens sockets and passes them to other
 * programs. */
static bool is_above_us(const struct worker_finder *f, unsigned worker, int64_t pid)
{
	const struct policy_match *m = &f->policy->worker[worker].match;

	if (pid <= 0 || (pid == 1 && proc_in_child_namespace(f->root) == 0))
		return true;
	if (m->name || m->exe || m->command)
		return false;
	return pid == 1 || (f->self > 0 && proc_in_tree(f->root, f->self, pid));
}

/* Returns 1 if the match, apart from pidfile and port, holds for pid; 0 if not; -GW_E_IO: pid
 * cannot be read. */
static int fits_match(const struct worker_finder *f, unsigned worker, int64_t pid,
		      struct scene_process *p)
{
	int err =
		is_above_us(f, worker, pid) ? -GW_E_NOENT : process_cache_read(f->root, pid, p);

	if (err)
		return err == -GW_E_IO ? err : 0;
	return classifier_fits(f->classifier, f->scene, worker, p, false);
}

static void add_if_fits(struct worker_finder *f, unsigned worker, int64_t pid)
{
	struct scene_process p;

	if (fits_match(f, worker, pid, &p) > 0)
		add_root(f, &f->target[worker], &p);
}

/* True if the process still runs the same program, or cannot be read now. Equal pids and start
 * times do not show this, because an exec does not change them. */
static bool is_same_program(const struct worker_finder *f, const struct found *k)
{
	uint64_t print;

	return process_cache_fingerprint(f->root, k->id.pid, &print) != 0 || print == k->print;
}

/* Returns true if the process still runs the same program, or if the match also fits its new
 * program or name; then notes the new program. Also true if the process cannot be read now. */
static bool accept_program(const struct worker_finder *f, unsigned worker, struct found *k)
{
	struct scene_process p;
	uint64_t print;
	int fits;

	if (process_cache_fingerprint(f->root, k->id.pid, &print) != 0 || print == k->print)
		return true;
	fits = fits_match(f, worker, k->id.pid, &p);
	if (fits > 0)
		k->print = print;
	return fits != 0;
}

/* Turns each root that now runs another program into a former root. Called if no other process
 * was found instead. */
static void keep_same_programs(const struct worker_finder *f, struct target *t)
{
	for (unsigned i = t->roots; i-- > 0;)
		if (!is_same_program(f, &t->root[i]))
			demote_root(t, i);
}

static bool is_due(const struct worker_finder *f, uint64_t last_ns, uint64_t every_ns)
{
	return !last_ns || f->now_ns - last_ns >= every_ns;
}

/* True if the process is younger than the pidfile. A program writes its pidfile after it
 * starts. So if the process is younger than the file, its pid was reused. False if the start is
 * unknown. */
static bool is_younger(const struct worker_finder *f, struct timespec written,
		       struct proc_id now)
{
	const uint64_t written_ns =
		(uint64_t)written.tv_sec * NS_PER_S + (uint64_t)written.tv_nsec;
	uint64_t began_ns;

	return proc_began_ns(f->root, now.start_ticks, &began_ns) == 0 &&
	       began_ns > written_ns + CLOCK_DIFFERENCE_NS;
}

/* True if the pidfile is stale, because the pid was reused: another process has the pid
 * although the file is unchanged, or the process is younger than the file. Otherwise notes the
 * file and the process. */
static bool is_stale(const struct worker_finder *f, struct target *t, struct timespec written,
		     struct proc_id now)
{
	const bool same_file =
		t->written.tv_sec == written.tv_sec && t->written.tv_nsec == written.tv_nsec;

	if (same_file && t->writer.pid == now.pid)
		return t->writer.start_ticks != now.start_ticks;
	if (is_younger(f, written, now))
		return true;
	t->written = written;
	t->writer = now;
	return false;
}

/* Reads which process the pidfile names. Returns false if the file names no living process, or
 * if it is stale or not trusted. */
static bool read_pidfile(const struct worker_finder *f, struct target *t, const char *path,
			 struct proc_id *ret)
{
	struct pidfile file;

	if (pidfile_read(f->root, path, &file) != 0)
		return false;
	ret->pid = file.pid;
	return proc_start_ticks(f->root, ret->pid, &ret->start_ticks) == 0 &&
	       proc_lives(f->root, ret->pid, ret->start_ticks) != 0 &&
	       !is_stale(f, t, file.written, *ret);
}

/* Finds the worker by its pidfile. If the file names another process, the named process
 * replaces the root. If the file is missing, or still empty because it is being written, the
 * root stays. */
static void find_by_pidfile(struct worker_finder *f, unsigned worker)
{
	struct target *t = &f->target[worker];
	struct proc_id now = { 0 };
	struct scene_process p;
	int fits;

	if (t->roots && !is_due(f, t->asked_ns, PIDFILE_NS))
		return;
	t->asked_ns = f->now_ns;
	if (!read_pidfile(f, t, f->policy->worker[worker].match.pidfile, &now)) {
		keep_same_programs(f, t);
		return;
	}
	fits = fits_match(f, worker, now.pid, &p);
	if (fits < 0)
		return;
	while (t->roots)
		demote_root(t, t->roots - 1);
	if (fits)
		add_root(f, t, &p);
}

struct owner_search { /* searches for processes that have a socket open */
	struct worker_finder *f;
	unsigned worker, processes;
	bool failed; /* a process could not be read now */
};

/* Returns the highest ancestor of pid that runs the same program with the same arguments. It is
 * a manager that forks its server process. */
static int64_t find_manager(const struct worker_finder *f, int64_t pid)
{
	int64_t above[SCENE_ANCESTORS] = { 0 };
	uint64_t own, print;

	if (process_cache_fingerprint(f->root, pid, &own) != 0)
		return pid;
	proc_ancestors(f->root, pid, above, SCENE_ANCESTORS);
	for (unsigned i = 0; i < SCENE_ANCESTORS && above[i]; i++) {
		if (process_cache_fingerprint(f->root, above[i], &print) != 0 || print != own)
			break;
		pid = above[i];
	}
	return pid;
}

/* Adds the process that has the port open, or the manager process that starts it again. */
static void add_owner(struct worker_finder *f, unsigned worker, int64_t pid)
{
	const unsigned before = f->target[worker].roots;

	if (policy_kind_is(f->policy->worker[worker].kind, KIND_REPLACES_PROCESS))
		add_if_fits(f, worker, find_manager(f, pid));
	if (f->target[worker].roots == before)
		add_if_fits(f, worker, pid);
}

static bool try_owner(void *arg, const char *name)
{
	struct owner_search *h = arg;
	struct target *t = &h->f->target[h->worker];
	const unsigned before = t->roots;
	const int64_t pid = root_name_number(name);
	char file[PORT_OWNER_FILE];
	int has;

	if (!pid)
		return true;
	has = port_owner_file(h->f->root, &t->at, pid, file);
	h->failed |= has == -GW_E_IO;
	if (has > 0)
		add_owner(h->f, h->worker, pid);
	if (t->roots > before)
		memcpy(t->owner_file, file, sizeof(t->owner_file));
	return ++h->processes < WORKER_FINDER_PROCESSES && t->roots < WORKER_FINDER_ROOTS;
}

static bool same_sockets(const struct port_owners *a, const struct port_owners *b)
{
	return a->count == b->count && memcmp(a->inode, b->inode, sizeof(a->inode)) == 0;
}

/* True if the sockets of the port have changed since the socket tables were read. */
static bool sockets_changed(const struct worker_finder *f, unsigned worker)
{
	struct port_owners now = { 0 };

	return port_owner_read(f->root, f->policy->worker[worker].match.port, &now) != 0 ||
	       !same_sockets(&now, &f->target[worker].at);
}

/* Finds the processes that own the port. These processes replace the earlier roots. The earlier
 * roots stay if no owner was found because a reading failed, or because the owner closed its
 * socket meanwhile. */
static void find_owners(struct worker_finder *f, unsigned worker)
{
	struct target *t = &f->target[worker];
	struct owner_search h = { .f = f, .worker = worker };
	struct found was[WORKER_FINDER_ROOTS];
	const unsigned before = t->roots;

	memcpy(was, t->root, sizeof(was));
	t->owners_ns = f->now_ns;
	t->roots = 0;
	f->searches++;
	h.failed |= root_each_name(f->root, "proc", try_owner, &h) == -GW_E_IO;
	if (!t->roots && (h.failed || (before && sockets_changed(f, worker)))) {
		memcpy(t->root, was, sizeof(was));
		t->roots = before;
		t->owners_ns = 0;
		keep_same_programs(f, t);
		return;
	}
	for (unsigned i = 0; i < before; i++)
		add_former(t, &was[i]);
}

static bool has_owner_file(const struct target *t, const struct found *k)
{
	char folder[32];
	int n = snprintf(folder, sizeof(folder), "proc/%lld/", (long long)k->id.pid);

	return strncmp(t->owner_file, folder, (size_t)n) == 0;
}

static bool owners_unchanged(const struct worker_finder *f, unsigned worker, struct target *t)
{
	bool same = port_owner_known(f->root, &t->at, t->owner_file);

	for (unsigned i = 0; same && i < t->roots; i++)
		same = has_owner_file(t, &t->root[i]) ? accept_program(f, worker, &t->root[i])
						      : is_same_program(f, &t->root[i]);
	return same;
}

/* True if the socket tables must be read. The tables need not be read while a root still has
 * the socket open. */
static bool port_is_due(const struct worker_finder *f, unsigned worker, struct target *t)
{
	if (!t->roots || !t->at.count)
		return is_due(f, t->asked_ns, f->appeared ? PORT_APPEARED_NS : PORT_MISSING_NS);
	if (!is_due(f, t->asked_ns, PORT_FOUND_NS))
		return false;
	t->asked_ns = f->now_ns;
	if (owners_unchanged(f, worker, t))
		return false;
	t->owners_ns = 0;
	return true;
}

/* Checks the roots of a worker that closed its port. They stay roots while they run the same
 * program, because they may still hold memory. */
static void check_closed(struct worker_finder *f, struct target *t)
{
	if (!t->roots || t->at.count || !is_due(f, t->checked_ns, RECHECK_NS))
		return;
	t->checked_ns = f->now_ns;
	keep_same_programs(f, t);
}

static void find_by_port(struct worker_finder *f, unsigned worker)
{
	struct target *t = &f->target[worker];
	struct port_owners now = { 0 };
	bool same;

	if (port_is_due(f, worker, t)) {
		t->asked_ns = f->now_ns;
		if (port_owner_read(f->root, f->policy->worker[worker].match.port, &now) != 0)
			return;
		same = same_sockets(&now, &t->at);
		t->at = now;
		if (now.count && (!same || is_due(f, t->owners_ns, OWNER_MISSING_NS)))
			find_owners(f, worker);
	}
	check_closed(f, t);
}

struct search { /* a search of /proc, which lists processes in the order of their pids */
	struct worker_finder *f;
	int64_t after, last;
	unsigned processes;
	bool complete;
};

/* True if the process may fit. This quick test reads only the files that the match needs,
 * instead of eight files. It excludes most processes: they have another name or program, no
 * arguments (kernel threads), or are in another control group. */
static bool may_fit(const struct worker_finder *f, unsigned worker, int64_t pid)
{
	const struct policy_match *m = &f->policy->worker[worker].match;
	struct scene_process p = { 0 };
	char path[64], text[4096];

	root_path(path, sizeof(path), "proc/%lld/comm", (long long)pid);
	if (m->name && (root_read_line(f->root, path, p.name, sizeof(p.name)) <= 0 ||
			!classify_name_fits(m->name, p.name)))
		return false;
	root_path(path, sizeof(path), "proc/%lld/exe", (long long)pid);
	if (m->exe && (root_readlink(f->root, path, p.exe, sizeof(p.exe)) <= 0 ||
		       !classify_exe_fits(m->exe, p.exe)))
		return false;
	root_path(path, sizeof(path), "proc/%lld/cmdline", (long long)pid);
	if (m->command && root_read(f->root, path, text, sizeof(text)) <= 0)
		return false;
	root_path(path, sizeof(path), "proc/%lld/cgroup", (long long)pid);
	return !m->unit ||
	       (root_read(f->root, path, text, sizeof(text)) > 0 && strstr(text, m->unit));
}

static bool try_process(void *arg, const char *name)
{
	struct search *s = arg;
	int64_t pid = root_name_number(name);

	if (pid <= s->after) /* true also for names that are not a number */
		return true;
	if (s->processes++ == WORKER_FINDER_PROCESSES) {
		s->complete = false;
		return false;
	}
	for (unsigned i = 0; i < s->f->policy->workers; i++)
		if (policy_match_searches(&s->f->policy->worker[i].match) &&
		    s->f->target[i].roots < WORKER_FINDER_ROOTS && may_fit(s->f, i, pid))
			add_if_fits(s->f, i, pid);
	s->last = pid;
	return true;
}

static void search_proc(struct worker_finder *f)
{
	struct search s = { .f = f, .after = f->cursor, .complete = true };
	bool wanted = false, missing = false;

	for (unsigned i = 0; i < f->policy->workers; i++) {
		bool searched = policy_match_searches(&f->policy->worker[i].match);

		wanted |= searched;
		missing |= searched && !f->target[i].roots;
	}
	if (!wanted ||
	    !is_due(f, f->searched_ns, missing ? SEARCH_MISSING_NS : SEARCH_FOUND_NS))
		return;
	f->searched_ns = f->now_ns;
	f->searches++;
	(void)root_each_name(f->root, "proc", try_process, &s);
	f->cursor = s.complete ? 0 : s.last;
}

static void find_self(struct worker_finder *f, unsigned worker)
{
	struct scene_process p;

	if (f->self && !f->target[worker].roots &&
	    process_cache_read(f->root, f->self, &p) == 0)
		add_root(f, &f->target[worker], &p);
}

/* Checks the roots of a worker that is found by a search. */
static void check_roots(struct worker_finder *f, unsigned worker)
{
	struct target *t = &f->target[worker];

	if (!t->roots || !is_due(f, t->checked_ns, RECHECK_NS))
		return;
	t->checked_ns = f->now_ns;
	for (unsigned i = t->roots; i-- > 0;)
		if (!accept_program(f, worker, &t->root[i]))
			demote_root(t, i);
}

static void find_worker(struct worker_finder *f, unsigned worker)
{
	const struct policy_worker *w = &f->policy->worker[worker];

	remove_ended(f, &f->target[worker]);
	if (policy_kind_is(w->kind, KIND_SELF))
		find_self(f, worker);
	else if (w->match.pidfile)
		find_by_pidfile(f, worker);
	else if (w->match.port)
		find_by_port(f, worker);
	else
		check_roots(f, worker);
}

/* Marks processes that may be the worker, if a socket listens on the worker's port but the
 * process of the socket is not visible. Each process with a hidden program may be the worker or
 * a descendant of the worker, if the process belongs to the socket's user or to an unknown
 * user. */
static void mark_veiled(const struct target *t, struct scene *s)
{
	if (!t->at.count || t->roots)
		return;
	for (unsigned i = 0; i < s->processes; i++)
		s->process[i].veiled |=
			!s->process[i].exe[0] && !s->process[i].orphan &&
			(s->process[i].uid == t->at.uid || s->process[i].uid < 0);
}

static void add_scene_root(struct scene *s, unsigned worker, enum scene_how how,
			   const struct found *k)
{
	if (s->roots < SCENE_ROOTS)
		s->root[s->roots++] = (struct scene_root){
			.worker = worker, .how = how, .id = k->id, .print = k->print
		};
}

void worker_finder_add_roots(struct worker_finder *f, struct scene *s, bool appeared)
{
	f->scene = s;
	f->appeared = appeared;
	f->now_ns = s->mono_ns;
	for (unsigned i = 0; i < f->policy->workers; i++)
		find_worker(f, i);
	search_proc(f);
	for (unsigned i = 0; i < f->policy->workers; i++) {
		mark_veiled(&f->target[i], s);
		for (unsigned k = 0; k < f->target[i].roots; k++)
			add_scene_root(s, i, ROOT_FOUND, &f->target[i].root[k]);
	}
	for (unsigned i = 0; i < f->policy->workers; i++) {
		remove_formers(f, &f->target[i]);
		for (unsigned k = 0; k < f->target[i].formers; k++)
			add_scene_root(s, i, ROOT_FORMER, &f->target[i].former[k]);
	}
	f->scene = NULL;
}
