/* Three ways to find a worker: its pidfile, its port, or a search of /proc; each with its own patience. */
#include "worker_finder.h"

#include "port_owner.h"
#include "dir_iter.h"
#include "process_cache.h"

#include "base/clock.h"
#include "device/proc.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A file's time and a process's may differ so much, though one came before the other. */
#define CLOCKS_APART_NS NS_PER_S

/* How long an answer is good for: where somebody was found, and where nobody was. */
#define FILE_KEPT_NS   NS_PER_S
#define ROOT_KEPT_NS   NS_PER_S          /* one that was searched for: three files are read */
#define PORT_KEPT_NS   NS_PER_S          /* one link is read */
#define PORT_GONE_NS   (5 * NS_PER_S)    /* the kernel takes 3 ms to tell who listens */
#define PORT_NEWS_NS   (200 * NS_PER_MS) /* somebody new is on a GPU: it may be the worker */
#define HOLDER_GONE_NS (30 * NS_PER_S)   /* it listens, but we may not see who */
#define SEARCH_KEPT_NS (30 * NS_PER_S)
#define SEARCH_GONE_NS (5 * NS_PER_S)

struct known {
	int64_t pid;
	uint64_t start_ticks;
	uint64_t print; /* of the program that it was when it was found; 0: unknown */
};

struct target { /* one worker */
	struct known root[WORKER_FINDER_ROOTS];
	unsigned roots;
	struct known former[WORKER_FINDER_ROOTS]; /* that live, and are not found any more */
	unsigned formers;
	uint64_t asked_ns;   /* 0: never */
	uint64_t checked_ns; /* that roots are still who they were; 0: never */
	/* of a pidfile: when it was written, and by whom */
	struct timespec written;
	struct known writer;
	/* of a port */
	struct port_owners at;
	uint64_t held_ns;           /* when its holders were looked for; 0: never */
	char held[PORT_OWNER_FILE]; /* the open file of a root that is one of them */
};

struct worker_finder {
	const struct root *root;
	const struct classifier *classifier;
	const struct policy *policy;
	const struct scene *scene; /* of the look under way */
	struct pidfd_set *alive;
	int64_t self;
	struct target target[POLICY_WORKERS];
	bool news; /* of the look under way: somebody new is on a GPU */
	uint64_t now_ns, searched_ns, searches;
	int64_t cursor; /* the last process of a search that was cut short */
};

int worker_finder_new(const struct root *root, const struct classifier *c,
		      const struct policy *p, struct pidfd_set *alive, int64_t self,
		      struct worker_finder **ret)
{
	struct worker_finder *f = calloc(1, sizeof(*f));

	if (!f)
		return -GW_E_NOMEM;
	f->root = root;
	f->classifier = c;
	f->policy = p;
	f->alive = alive;
	f->self = self;
	*ret = f;
	return 0;
}

void worker_finder_free(struct worker_finder *f)
{
	free(f);
}

static void add_former(struct target *t, const struct known *k)
{
	if (t->formers == WORKER_FINDER_ROOTS) {
		memmove(&t->former[0], &t->former[1], (WORKER_FINDER_ROOTS - 1) * sizeof(*k));
		t->formers--;
	}
	t->former[t->formers++] = *k;
}

bool worker_finder_seeks_alike(const struct policy_worker *a, const struct policy_worker *b)
{
	return strcmp(a->name, b->name) == 0 && policy_match_same(&a->match, &b->match) &&
	       policy_kind_is(a->kind, KIND_SELF) == policy_kind_is(b->kind, KIND_SELF);
}

/* Those that were found by the same stay found: a pidfile may be gone just now, or a port closed. */
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

/* A worker is who it is by its name. */
static void inherit_roots(struct worker_finder *f, const struct worker_finder *old)
{
	for (unsigned i = 0; i < f->policy->workers; i++)
		for (unsigned k = 0; k < old->policy->workers; k++) {
			const struct policy_worker *now = &f->policy->worker[i];
			const struct policy_worker *was = &old->policy->worker[k];

			if (strcmp(now->name, was->name) == 0)
				inherit_target(&f->target[i], &old->target[k],
					       worker_finder_seeks_alike(now, was));
		}
}

/* Who wrote a pidfile is known to whoever saw it alive. */
void worker_finder_inherit(struct worker_finder *f, const struct worker_finder *old)
{
	if (old)
		inherit_roots(f, old);
	for (unsigned i = 0; i < f->policy->workers; i++) {
		const char *file = f->policy->worker[i].match.pidfile;

		for (unsigned k = 0; file && old && k < old->policy->workers; k++) {
			const char *before = old->policy->worker[k].match.pidfile;

			if (!before || strcmp(before, file) != 0)
				continue;
			f->target[i].written = old->target[k].written;
			f->target[i].writer = old->target[k].writer;
		}
	}
}

void worker_finder_recall(struct worker_finder *f, unsigned worker, int64_t pid,
			  uint64_t start_ticks)
{
	if (worker < f->policy->workers)
		add_former(&f->target[worker], &(struct known){ pid, start_ticks, 0 });
}

uint64_t worker_finder_searches(const struct worker_finder *f)
{
	return f->searches;
}

/* ---- roots ---- */

/* What cannot be read says nothing of who was there. */
static bool lives(const struct worker_finder *f, const struct known *k)
{
	int is;

	if (pidfd_set_knows(f->alive, k->pid, k->start_ticks))
		return true;
	is = proc_lives(f->root, k->pid, k->start_ticks);
	if (is > 0)
		pidfd_set_keep(f->alive, k->pid, k->start_ticks);
	return is != 0;
}

static void drop_dead(const struct worker_finder *f, struct target *t)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < t->roots; i++)
		if (lives(f, &t->root[i]))
			t->root[kept++] = t->root[i];
	if (t->roots && !kept)
		t->asked_ns = t->held_ns = 0; /* it may have been started anew: at once */
	t->roots = kept;
}

/* One that is below another is of the same tree: it needs no place of its own. */
static bool is_covered(const struct target *t, const struct scene_process *p)
{
	for (unsigned i = 0; i < t->roots; i++) {
		if (t->root[i].pid == p->pid)
			return true;
		for (unsigned k = 0; k < SCENE_ANCESTORS && p->ancestor[k]; k++)
			if (p->ancestor[k] == t->root[i].pid)
				return true;
	}
	return false;
}

static void add_root(const struct worker_finder *f, struct target *t,
		     const struct scene_process *p)
{
	struct known k = { p->pid, p->start_ticks, 0 };

	if (t->roots == WORKER_FINDER_ROOTS || is_covered(t, p))
		return;
	(void)process_cache_fingerprint(f->root, k.pid, &k.print);
	t->root[t->roots++] = k;
}

/* It lives, and is the worker's no longer. */
static void let_go(struct target *t, unsigned i)
{
	add_former(t, &t->root[i]);
	memmove(&t->root[i], &t->root[i + 1], (--t->roots - i) * sizeof(t->root[0]));
}

static bool is_root(const struct target *t, const struct known *k)
{
	for (unsigned i = 0; i < t->roots; i++)
		if (t->root[i].pid == k->pid && t->root[i].start_ticks == k->start_ticks)
			return true;
	return false;
}

static void forget_formers(const struct worker_finder *f, struct target *t)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < t->formers; i++)
		if (!is_root(t, &t->former[i]) && lives(f, &t->former[i]))
			t->former[kept++] = t->former[i];
	t->formers = kept;
}

/* Below the first process is everybody, and below one that started us are we: a pidfile or a socket (systemd
 * holds those that it hands out) makes no worker of these.  One whose program is named may be: it is
 * the first process of a container, and all below it are its own.  Of the machine, never. */
static bool is_above_us(const struct worker_finder *f, unsigned worker, int64_t pid)
{
	const struct policy_match *m = &f->policy->worker[worker].match;

	if (pid <= 0 || (pid == 1 && proc_in_child_namespace(f->root) == 0))
		return true;
	if (m->name || m->exe || m->command)
		return false;
	return pid == 1 || (f->self > 0 && proc_in_tree(f->root, f->self, pid));
}

/* Is pid what the rest of the match says?  1, 0, or -GW_E_IO: it could not be read. */
static int fits(const struct worker_finder *f, unsigned worker, int64_t pid,
		struct scene_process *p)
{
	int err =
		is_above_us(f, worker, pid) ? -GW_E_NOENT : process_cache_read(f->root, pid, p);

	if (err)
		return err == -GW_E_IO ? err : 0;
	return classifier_fits(f->classifier, f->scene, worker, p, false);
}

static void consider(struct worker_finder *f, unsigned worker, int64_t pid)
{
	struct scene_process p;

	if (fits(f, worker, pid, &p) > 0)
		add_root(f, &f->target[worker], &p);
}

/* Is it the program that it was?  Its identity stays over an exec. */
static bool is_same_program(const struct worker_finder *f, const struct known *k)
{
	uint64_t print;

	return process_cache_fingerprint(f->root, k->pid, &print) != 0 || print == k->print;
}

/* Another program, or another name: does the match hold for that, too? */
static bool is_still(const struct worker_finder *f, unsigned worker, struct known *k)
{
	struct scene_process p;
	uint64_t print;
	int is;

	if (process_cache_fingerprint(f->root, k->pid, &print) != 0 || print == k->print)
		return true;
	is = fits(f, worker, k->pid, &p);
	if (is > 0)
		k->print = print;
	return is != 0;
}

/* Nobody is named instead: they stay while they are who they were. */
static void keep_same(const struct worker_finder *f, struct target *t)
{
	for (unsigned i = t->roots; i-- > 0;)
		if (!is_same_program(f, &t->root[i]))
			let_go(t, i);
}

static bool is_due(const struct worker_finder *f, uint64_t last_ns, uint64_t every_ns)
{
	return !last_ns || f->now_ns - last_ns >= every_ns;
}

/* ---- by pidfile ---- */

/* Programs write their number after they start: who began later than the file was written has the number
 * of one that ended.  What cannot be told says nothing. */
static bool is_younger(const struct worker_finder *f, const struct stat *st,
		       const struct known *now)
{
	const uint64_t written_ns =
		(uint64_t)st->st_mtim.tv_sec * NS_PER_S + (uint64_t)st->st_mtim.tv_nsec;
	uint64_t began_ns;

	return proc_began_ns(f->root, now->start_ticks, &began_ns) == 0 &&
	       began_ns > written_ns + CLOCKS_APART_NS;
}

/* A number that has another owner while the file is as it was, was given away: the file is stale. */
static bool is_stale(const struct worker_finder *f, struct target *t, const struct stat *st,
		     const struct known *now)
{
	const bool same_file = t->written.tv_sec == st->st_mtim.tv_sec &&
			       t->written.tv_nsec == st->st_mtim.tv_nsec;

	if (same_file && t->writer.pid == now->pid)
		return t->writer.start_ticks != now->start_ticks;
	if (is_younger(f, st, now))
		return true;
	t->written = st->st_mtim;
	t->writer = *now;
	return false;
}

/* Whom the file names; false: nobody who lives. */
static bool names(const struct worker_finder *f, struct target *t, const char *path,
		  struct known *ret)
{
	struct stat st;

	path += strspn(path, "/");
	return fstatat(f->root->fd, path, &st, 0) == 0 &&
	       root_read_i64(f->root, path, &ret->pid) == 0 &&
	       proc_start_ticks(f->root, ret->pid, &ret->start_ticks) == 0 &&
	       proc_lives(f->root, ret->pid, ret->start_ticks) != 0 &&
	       !is_stale(f, t, &st, ret);
}

/* A file that names another is obeyed.  One that is empty while it is written, or gone, names nobody. */
static void by_pidfile(struct worker_finder *f, unsigned worker)
{
	struct target *t = &f->target[worker];
	struct known now = { 0 };
	struct scene_process p;
	int is;

	if (t->roots && !is_due(f, t->asked_ns, FILE_KEPT_NS))
		return;
	t->asked_ns = f->now_ns;
	if (!names(f, t, f->policy->worker[worker].match.pidfile, &now)) {
		keep_same(f, t);
		return;
	}
	is = fits(f, worker, now.pid, &p);
	if (is < 0)
		return;
	while (t->roots)
		let_go(t, t->roots - 1);
	if (is)
		add_root(f, t, &p);
}

/* ---- by port ---- */

struct holders { /* a search for who has a socket open */
	struct worker_finder *f;
	unsigned worker, processes;
	bool torn; /* somebody could not be looked at who can be another time */
};

static bool try_holder(void *arg, const char *name)
{
	struct holders *h = arg;
	struct target *t = &h->f->target[h->worker];
	const unsigned before = t->roots;
	const int64_t pid = dir_iter_number(name);
	char file[PORT_OWNER_FILE];
	int has;

	if (!pid)
		return true;
	/* One that we may not see is passed over. */
	has = port_owner_file(h->f->root, &t->at, pid, file);
	h->torn |= has == -GW_E_IO;
	if (has > 0)
		consider(h->f, h->worker, pid);
	if (t->roots > before)
		memcpy(t->held, file, sizeof(t->held));
	return ++h->processes < WORKER_FINDER_PROCESSES && t->roots < WORKER_FINDER_ROOTS;
}

/* Those that were found before are let go, but where nobody could be found for a reason that says nothing. */
static void find_holders(struct worker_finder *f, unsigned worker)
{
	struct target *t = &f->target[worker];
	struct holders h = { .f = f, .worker = worker };
	struct known was[WORKER_FINDER_ROOTS];
	const unsigned before = t->roots;

	memcpy(was, t->root, sizeof(was));
	t->held_ns = f->now_ns;
	t->roots = 0;
	f->searches++;
	h.torn |= walk(f->root, "proc", try_holder, &h) == -GW_E_IO;
	if (h.torn && !t->roots) {
		memcpy(t->root, was, sizeof(was));
		t->roots = before;
		t->held_ns = 0;
		keep_same(f, t);
		return;
	}
	for (unsigned i = 0; i < before; i++)
		add_former(t, &was[i]);
}

static bool is_holder(const struct target *t, const struct known *k)
{
	char folder[32];

	return strncmp(t->held, folder,
		       (size_t)snprintf(folder, sizeof(folder), "proc/%lld/",
					(long long)k->pid)) == 0;
}

static bool are_holders(const struct worker_finder *f, unsigned worker, struct target *t)
{
	bool are = port_owner_known(f->root, &t->at, t->held);

	for (unsigned i = 0; are && i < t->roots; i++)
		are = is_holder(t, &t->root[i]) ? is_still(f, worker, &t->root[i])
						: is_same_program(f, &t->root[i]);
	return are;
}

/* Is it time to ask who listens?  While one that was found has the socket open, nothing has changed. */
static bool port_is_due(const struct worker_finder *f, unsigned worker, struct target *t)
{
	if (!t->roots || !t->at.count)
		return is_due(f, t->asked_ns, f->news ? PORT_NEWS_NS : PORT_GONE_NS);
	if (!is_due(f, t->asked_ns, PORT_KEPT_NS))
		return false;
	t->asked_ns = f->now_ns;
	if (are_holders(f, worker, t))
		return false;
	t->held_ns = 0;
	return true;
}

/* One that closed its port may still have work to end, and its memory. */
static void check_closed(struct worker_finder *f, struct target *t)
{
	if (!t->roots || t->at.count || !is_due(f, t->checked_ns, ROOT_KEPT_NS))
		return;
	t->checked_ns = f->now_ns;
	keep_same(f, t);
}

static void by_port(struct worker_finder *f, unsigned worker)
{
	struct target *t = &f->target[worker];
	struct port_owners now = { 0 };
	bool same;

	if (port_is_due(f, worker, t)) {
		t->asked_ns = f->now_ns;
		if (port_owner_read(f->root, f->policy->worker[worker].match.port, &now) != 0)
			return;
		same = now.count == t->at.count &&
		       memcmp(now.inode, t->at.inode, sizeof(now.inode)) == 0;
		t->at = now;
		if (now.count && (!same || is_due(f, t->held_ns, HOLDER_GONE_NS)))
			find_holders(f, worker);
	}
	check_closed(f, t);
}

/* ---- by name, program, unit ... ---- */

static bool is_searched_for(const struct policy_match *m)
{
	return !m->pidfile && !m->port &&
	       (m->name || m->exe || m->command || m->cgroup || m->container || m->unit);
}

struct search { /* the kernel tells processes in the order of their numbers */
	struct worker_finder *f;
	int64_t after, last;
	unsigned processes;
	bool whole;
};

/* What a match can be refused by with one file instead of eight: most of a machine's processes are neither
 * of that name nor of that program, have no arguments (the kernel's own) or are in no such group. */
static bool may_be(const struct worker_finder *f, unsigned worker, int64_t pid)
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
	int64_t pid = dir_iter_number(name);

	if (pid <= s->after) /* names that are no number, too */
		return true;
	if (s->processes++ == WORKER_FINDER_PROCESSES) {
		s->whole = false;
		return false;
	}
	for (unsigned i = 0; i < s->f->policy->workers; i++)
		if (is_searched_for(&s->f->policy->worker[i].match) &&
		    s->f->target[i].roots < WORKER_FINDER_ROOTS && may_be(s->f, i, pid))
			consider(s->f, i, pid);
	s->last = pid;
	return true;
}

static void by_search(struct worker_finder *f)
{
	struct search s = { .f = f, .after = f->cursor, .whole = true };
	bool wanted = false, missing = false;

	for (unsigned i = 0; i < f->policy->workers; i++) {
		bool searched = is_searched_for(&f->policy->worker[i].match);

		wanted |= searched;
		missing |= searched && !f->target[i].roots;
	}
	if (!wanted || !is_due(f, f->searched_ns, missing ? SEARCH_GONE_NS : SEARCH_KEPT_NS))
		return;
	f->searched_ns = f->now_ns;
	f->searches++;
	(void)walk(f->root, "proc", try_process, &s);
	f->cursor = s.whole ? 0 : s.last;
}

/* ---- a look ---- */

static void by_itself(struct worker_finder *f, unsigned worker)
{
	struct scene_process p;

	if (f->self && !f->target[worker].roots &&
	    process_cache_read(f->root, f->self, &p) == 0)
		add_root(f, &f->target[worker], &p);
}

/* Of those that were searched for. */
static void check_roots(struct worker_finder *f, unsigned worker)
{
	struct target *t = &f->target[worker];

	if (!t->roots || !is_due(f, t->checked_ns, ROOT_KEPT_NS))
		return;
	t->checked_ns = f->now_ns;
	for (unsigned i = t->roots; i-- > 0;)
		if (!is_still(f, worker, &t->root[i]))
			let_go(t, i);
}

static void find(struct worker_finder *f, unsigned worker)
{
	const struct policy_worker *w = &f->policy->worker[worker];

	drop_dead(f, &f->target[worker]);
	if (policy_kind_is(w->kind, KIND_SELF))
		by_itself(f, worker);
	else if (w->match.pidfile)
		by_pidfile(f, worker);
	else if (w->match.port)
		by_port(f, worker);
	else
		check_roots(f, worker);
}

/* Somebody listens on the worker's port, and a guard without rights is not told which process of that user: any whose
 * program it may not see either can be the worker, or below it. */
static void veil(const struct target *t, struct scene *s)
{
	if (!t->at.count || t->roots)
		return;
	for (unsigned i = 0; i < s->processes; i++)
		s->process[i].veiled |=
			!s->process[i].exe[0] && !s->process[i].orphan &&
			(s->process[i].uid == t->at.uid || s->process[i].uid < 0);
}

static void tell(struct scene *s, unsigned worker, enum scene_how how, const struct known *k)
{
	if (s->roots < SCENE_ROOTS)
		s->root[s->roots++] = (struct scene_root){ .worker = worker,
							   .how = how,
							   .pid = k->pid,
							   .start_ticks = k->start_ticks,
							   .print = k->print };
}

void worker_finder_take(struct worker_finder *f, struct scene *s, bool news)
{
	f->scene = s;
	f->news = news;
	f->now_ns = s->mono_ns;
	for (unsigned i = 0; i < f->policy->workers; i++)
		find(f, i);
	by_search(f);
	for (unsigned i = 0; i < f->policy->workers; i++) {
		veil(&f->target[i], s);
		for (unsigned k = 0; k < f->target[i].roots; k++)
			tell(s, i, ROOT_FOUND, &f->target[i].root[k]);
	}
	for (unsigned i = 0; i < f->policy->workers; i++) {
		forget_formers(f, &f->target[i]);
		for (unsigned k = 0; k < f->target[i].formers; k++)
			tell(s, i, ROOT_FORMER, &f->target[i].former[k]);
	}
	f->scene = NULL;
}
