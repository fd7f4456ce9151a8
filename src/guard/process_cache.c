#include "process_cache.h"

#include "base/buf.h"
#include "base/text.h"
#include "base/utf8.h"
#include "device/proc.h"

#include <linux/capability.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

void pidfd_set_init(struct pidfd_set *a, const struct root *root)
{
	a->root = root;
	a->count = a->at = 0;
}

static void pidfd_set_remove(struct pidfd_set *a, unsigned i)
{
	close(a->fd[i].fd);
	a->count--;
	a->fd[i] = a->fd[a->count];
	a->of[i] = a->of[a->count];
}

void pidfd_set_done(struct pidfd_set *a)
{
	while (a->count)
		pidfd_set_remove(a, a->count - 1);
}

void pidfd_set_poll(struct pidfd_set *a)
{
	bool polled = a->count && poll(a->fd, a->count, 0) >= 0;

	for (unsigned i = a->count; i-- > 0;) {
		bool ended = !polled || a->fd[i].revents;

		if (ended || !a->of[i].wanted)
			pidfd_set_remove(a, i);
		else
			a->of[i].wanted = false;
	}
	a->at = 0;
}

bool pidfd_set_keep(struct pidfd_set *a, struct proc_id id)
{
	for (unsigned n = 0; n < a->count; n++, a->at++) {
		if (a->at >= a->count)
			a->at = 0;
		if (!proc_id_equal(a->of[a->at].id, id))
			continue;
		a->of[a->at++].wanted = true;
		return true;
	}
	return false;
}

void pidfd_set_add(struct pidfd_set *a, struct proc_id id)
{
	int fd;

	if (!a->root->real || a->count == PIDFD_SET_MAX || pidfd_set_keep(a, id))
		return;
	(void)proc_open(a->root, id, &fd);
	if (fd < 0)
		return;
	a->fd[a->count] = (struct pollfd){ fd, POLLIN, 0 };
	a->of[a->count].id = id;
	a->of[a->count++].wanted = true;
}

int process_cache_read(const struct root *root, int64_t pid, struct scene_process *ret)
{
	struct proc p;

	if (proc_read(root, pid, &p) != 0 || (p.ended && !p.incomplete))
		return -GW_E_NOENT;
	if (p.incomplete)
		return -GW_E_IO;
	memset(ret, 0, sizeof(*ret));
	ret->id = (struct proc_id){ p.pid, p.start_ticks };
	ret->uid = p.uid;
	ret->sm_ratio = NAN;
	utf8_clean(ret->name, sizeof(ret->name), p.name);
	utf8_clean(ret->exe, sizeof(ret->exe), p.exe);
	utf8_clean(ret->command, sizeof(ret->command), p.command);
	utf8_clean(ret->cgroup, sizeof(ret->cgroup), p.cgroup);
	utf8_clean(ret->container, sizeof(ret->container), p.container);
	proc_ancestors(root, p.pid, ret->ancestor, SCENE_ANCESTORS);
	return 0;
}

/* Adds n bytes and a separator to a hash. If n is negative, adds only the separator. */
static uint64_t hash_part(uint64_t hash, const char *text, long n)
{
	return (text_hash(hash, text, n < 0 ? 0 : (size_t)n) ^ 0x100) * TEXT_HASH_PRIME;
}

/* Accepts empty arguments only if the path of the program can be read. If both are missing, the
 * process is ending. The end can take some seconds if the process releases a large amount of
 * memory. */
int process_cache_fingerprint(const struct root *root, int64_t pid, uint64_t *ret)
{
	static const char *const files[] = { "comm", "cgroup", "cmdline" };
	uint64_t hash = TEXT_HASH_START;
	char path[64], text[4096];
	long n = 0, linked;

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		root_path(path, sizeof(path), "proc/%lld/%s", (long long)pid, files[i]);
		n = root_read(root, path, text, sizeof(text));
		if (n == -GW_E_NOENT || n == -GW_E_IO)
			return (int)n;
		hash = hash_part(hash, text, n);
	}
	root_path(path, sizeof(path), "proc/%lld/exe", (long long)pid);
	linked = root_readlink(root, path, text, sizeof(text));
	if (n == 0 && linked < 0)
		return -GW_E_IO;
	*ret = hash_part(hash, text, linked);
	return 0;
}

#define CHAINS 1024 /* a power of two */

struct process_cache {
	const struct root *root;
	struct pidfd_set *pidfds;
	uint64_t now_ns, before_ns; /* times of this scene and of the previous scene */
	bool appeared;
	int chain[CHAINS];
	int unused; /* first entry of the list of free entries; -1: the list is empty */
	int fresh;  /* entries from this position on were never used */
	struct cached_process entry[SCENE_PROCESSES];
};

int process_cache_new(const struct root *root, struct pidfd_set *pidfds,
		      struct process_cache **ret)
{
	struct process_cache *c = calloc(1, sizeof(*c));

	if (!c)
		return -GW_E_NOMEM;
	c->root = root;
	c->pidfds = pidfds;
	for (int i = 0; i < CHAINS; i++)
		c->chain[i] = -1;
	c->unused = -1;
	*ret = c;
	return 0;
}

void process_cache_free(struct process_cache *c)
{
	free(c);
}

static int *chain_of(struct process_cache *c, int64_t listed_pid)
{
	return &c->chain[(uint64_t)listed_pid & (CHAINS - 1)];
}

static struct cached_process *add_entry(struct process_cache *c, int64_t listed_pid)
{
	int *head = chain_of(c, listed_pid), i = c->unused;
	struct cached_process *e;

	if (i >= 0)
		c->unused = c->entry[i].next;
	else if (c->fresh < SCENE_PROCESSES)
		i = c->fresh++;
	else
		return NULL;
	e = &c->entry[i];
	memset(e, 0, sizeof(*e));
	e->listed.pid = listed_pid;
	e->worker = -1;
	e->next = *head;
	*head = i;
	return e;
}

static struct cached_process *find_entry(struct process_cache *c, int64_t listed_pid)
{
	for (int i = *chain_of(c, listed_pid); i >= 0; i = c->entry[i].next)
		if (c->entry[i].listed.pid == listed_pid)
			return &c->entry[i];
	return NULL;
}

static void forget_chain(struct process_cache *c, int *at, uint64_t before_ns)
{
	while (*at >= 0) {
		struct cached_process *e = &c->entry[*at];
		int i = *at;

		if (e->last_seen_ns >= before_ns) {
			at = &e->next;
			continue;
		}
		*at = e->next;
		e->next = c->unused;
		c->unused = i;
	}
}

static void forget_before(struct process_cache *c, uint64_t before_ns)
{
	for (unsigned i = 0; i < CHAINS; i++)
		forget_chain(c, &c->chain[i], before_ns);
}

void process_cache_forget(struct process_cache *c, uint64_t now_ns)
{
	if (now_ns > PROCESS_CACHE_FORGET_NS)
		forget_before(c, now_ns - PROCESS_CACHE_FORGET_NS);
}

bool process_cache_appeared(struct process_cache *c)
{
	bool appeared = c->appeared;

	c->appeared = false;
	return appeared;
}

void process_cache_renumber_workers(struct process_cache *c, const int *now)
{
	for (unsigned k = 0; k < CHAINS; k++)
		for (int i = c->chain[k]; i >= 0; i = c->entry[i].next) {
			struct cached_process *e = &c->entry[i];

			e->process.command_match = COMMAND_UNMATCHED;
			if (e->worker >= 0)
				e->worker = now[e->worker];
		}
}

static void set_missing(struct cached_process *e, uint64_t now_ns)
{
	if (!e->missing_ns)
		e->missing_ns = now_ns;
	e->state = now_ns - e->missing_ns >= PROCESS_CACHE_ORPHAN_NS ? PROCESS_ORPHAN
								     : PROCESS_VANISHED;
	e->read_ns = 0;
}

/* Handles a process that cannot be read now. The last values stay. If the process was never
 * read, the entry has only its pid. */
static void set_unreadable(struct cached_process *e)
{
	if (e->read_ns)
		return;
	memset(&e->process, 0, sizeof(e->process));
	e->process.id.pid = e->listed.pid;
	e->process.uid = -1;
	e->process.sm_ratio = NAN;
	e->state = PROCESS_FOUND;
}

/* Keeps the program and the arguments of a process that ends, because /proc loses them before
 * the process's GPU memory is free. */
static void keep_program(const struct cached_process *e, uint64_t start_ticks,
			 struct scene_process *now)
{
	if (!e->read_ns || start_ticks != e->listed.start_ticks || now->command[0] ||
	    now->exe[0])
		return;
	memcpy(now->command, e->process.command, sizeof(now->command));
	memcpy(now->exe, e->process.exe, sizeof(now->exe));
}

static void read_entry(struct process_cache *c, struct cached_process *e, uint64_t start_ticks)
{
	struct scene_process now;
	int err = process_cache_read(c->root, e->listed.pid, &now);

	if (err == -GW_E_IO) {
		set_unreadable(e);
		return;
	}
	if (err) {
		set_missing(e, c->now_ns);
		return;
	}
	keep_program(e, start_ticks, &now);
	e->process = now;
	if (start_ticks != e->listed.start_ticks) { /* the pid was reused */
		e->worker = -1;
		e->first_seen_ns = c->now_ns;
		c->appeared = true;
	}
	e->listed.start_ticks = start_ticks;
	if (c->pidfds)
		pidfd_set_add(c->pidfds, e->listed);
	e->missing_ns = 0;
	e->read_ns = c->now_ns;
	e->state = PROCESS_FOUND;
}

/* True if the process must be read again. A process that was off the GPU for a scene may run
 * another program now. */
static bool is_stale(const struct process_cache *c, const struct cached_process *e,
		     uint64_t last_seen_ns)
{
	if (!e->read_ns || last_seen_ns < c->before_ns)
		return true;
	return c->now_ns - e->read_ns >= (c->now_ns - e->first_seen_ns < PROCESS_CACHE_YOUNG_NS
						  ? PROCESS_CACHE_REFRESH_YOUNG_NS
						  : PROCESS_CACHE_REFRESH_OLD_NS);
}

static bool is_same_process(const struct process_cache *c, const struct cached_process *e)
{
	return (c->pidfds && pidfd_set_keep(c->pidfds, e->listed)) ||
	       proc_lives(c->root, e->listed.pid, e->listed.start_ticks) > 0;
}

static void refresh_entry(struct process_cache *c, struct cached_process *e,
			  uint64_t last_seen_ns)
{
	uint64_t start_ticks = e->listed.start_ticks;
	const bool same = e->read_ns && is_same_process(c, e);

	if (!same && proc_start_ticks(c->root, e->listed.pid, &start_ticks) == -GW_E_NOENT)
		set_missing(e, c->now_ns);
	else if (!same || is_stale(c, e, last_seen_ns))
		read_entry(c, e, start_ticks);
}

struct cached_process *process_cache_find(struct process_cache *c, int64_t listed_pid,
					  uint64_t now_ns)
{
	struct cached_process *e = find_entry(c, listed_pid);
	uint64_t last_seen_ns;

	if (now_ns != c->now_ns) {
		c->before_ns = c->now_ns;
		c->now_ns = now_ns;
	}
	if (!e)
		e = add_entry(c, listed_pid);
	if (!e) { /* the table is full: remove processes that are not in this scene */
		forget_before(c, now_ns);
		e = add_entry(c, listed_pid);
	}
	if (!e)
		return NULL;
	last_seen_ns = e->last_seen_ns;
	e->last_seen_ns = now_ns;
	refresh_entry(c, e, last_seen_ns);
	return e;
}

enum process_identity process_identity(const struct root *root, struct proc_id id)
{
	uint64_t ticks;

	if (proc_start_ticks(root, id.pid, &ticks) != 0)
		return IDENTITY_ENDED;
	return ticks == id.start_ticks ? IDENTITY_SAME : IDENTITY_OTHER;
}

const char proc_visibility_remedy[] =
	"use match.unit, match.cgroup, match.command or match.name, or give "
	"the service CAP_SYS_PTRACE (and CAP_DAC_READ_SEARCH, if it has to find a worker by "
	"its port)";

unsigned proc_visibility_now(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct set[_LINUX_CAPABILITY_U32S_3] = { 0 };
	unsigned have;

	if (syscall(SYS_capget, &head, set) != 0)
		return 0;
	have = set[0].effective;
	if (!(have >> CAP_SYS_PTRACE & 1))
		return 0;
	return have >> CAP_DAC_READ_SEARCH & 1 || have >> CAP_DAC_OVERRIDE & 1
		       ? PROC_VISIBILITY_ALL
		       : PROC_VISIBILITY_PROGRAMS;
}

/* The port counts only if neither a unit nor a pidfile finds the worker. */
const char *proc_visibility_lacks(const struct policy *p, unsigned worker, unsigned visible)
{
	const struct policy_match *m = &p->worker[worker].match;

	if (m->port && !m->unit && !m->pidfile && !(visible & PROC_VISIBILITY_PORTS))
		return "port";
	return m->exe && !(visible & PROC_VISIBILITY_PROGRAMS) ? "program" : NULL;
}

bool proc_visibility_missing(const struct policy *p, unsigned visible,
			     char out[static PROC_VISIBILITY_TEXT])
{
	unsigned n = 0;
	struct buf b;

	buf_init_fixed(&b, out, PROC_VISIBILITY_TEXT);
	buf_adds(&b, "this service cannot see enough of other users' processes for ");
	for (unsigned i = 0; i < p->workers; i++) {
		const char *by = proc_visibility_lacks(p, i, visible);

		if (by && n++ < 4)
			buf_addf(&b, "%sworker %.40s (by %s)", n > 1 ? ", " : "",
				 p->worker[i].name, by);
	}
	for (unsigned i = 0; i < p->rules; i++)
		if (p->rule[i].match.exe && !(visible & PROC_VISIBILITY_PROGRAMS) && n++ < 4)
			buf_addf(&b, "%s%.60s (match.exe)", n > 1 ? ", " : "",
				 p->rule[i].text ? p->rule[i].text : "a rule");
	if (n > 4)
		buf_addf(&b, " and %u more", n - 4);
	buf_addf(&b, ": %s", proc_visibility_remedy);
	return n > 0;
}
