/* A table of fixed size, chained by number: nothing is allocated after process_cache_new(). */
#include "process_cache.h"

#include "base/utf8.h"
#include "device/proc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CHAINS 1024 /* a power of two */

struct who_table {
	const struct root *root;
	struct pidfd_set *alive;
	uint64_t now_ns, before_ns; /* of this look and of the one before */
	int chain[CHAINS];
	bool news;
	int unused; /* the first of those given back, chained like the others; -1: none */
	int fresh;  /* those from here on were never used, nor touched */
	struct process_cache who[SCENE_PROCESSES];
};

int process_cache_new(const struct root *root, struct pidfd_set *alive, struct who_table **ret)
{
	struct who_table *t = calloc(1, sizeof(*t));

	if (!t)
		return -GW_E_NOMEM;
	t->root = root;
	t->alive = alive;
	for (int i = 0; i < CHAINS; i++)
		t->chain[i] = -1;
	t->unused = -1;
	*ret = t;
	return 0;
}

void process_cache_free(struct who_table *t)
{
	free(t);
}

int process_cache_read(const struct root *root, int64_t pid, struct scene_process *ret)
{
	struct proc p;

	if (proc_read(root, pid, &p) != 0 || (p.ended && !p.incomplete))
		return -GW_E_NOENT;
	if (p.incomplete)
		return -GW_E_IO;
	memset(ret, 0, sizeof(*ret));
	ret->pid = p.pid;
	ret->start_ticks = p.start_ticks;
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

/* FNV-1a */
#define PRINT_START UINT64_C(14695981039346656037)
#define PRINT_TIMES UINT64_C(1099511628211)

static uint64_t mix(uint64_t print, const char *text, long n)
{
	for (long i = 0; i < n; i++)
		print = (print ^ (unsigned char)text[i]) * PRINT_TIMES;
	return (print ^ 0x100) * PRINT_TIMES; /* where one text ends and the next begins */
}

/* One that ends has lost its arguments while it still gives its memory back: seconds, where that is much. */
int process_cache_fingerprint(const struct root *root, int64_t pid, uint64_t *ret)
{
	static const char *const files[] = { "comm", "cgroup", "cmdline" };
	uint64_t print = PRINT_START;
	char path[64], text[4096];
	long n = 0, linked;

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		root_path(path, sizeof(path), "proc/%lld/%s", (long long)pid, files[i]);
		n = root_read(root, path, text, sizeof(text));
		if (n == -GW_E_NOENT || n == -GW_E_IO)
			return (int)n;
		print = mix(print, text, n);
	}
	root_path(path, sizeof(path), "proc/%lld/exe", (long long)pid);
	linked = root_readlink(root, path, text, sizeof(text));
	if (n == 0 && linked < 0)
		return -GW_E_IO;
	*ret = mix(print, text, linked);
	return 0;
}

/* ---- the table ---- */

static int *chain_of(struct who_table *t, int64_t listed)
{
	return &t->chain[(uint64_t)listed & (CHAINS - 1)];
}

static struct process_cache *add(struct who_table *t, int64_t listed)
{
	int *head = chain_of(t, listed), i = t->unused;
	struct process_cache *w;

	if (i >= 0)
		t->unused = t->who[i].next;
	else if (t->fresh < SCENE_PROCESSES)
		i = t->fresh++;
	else
		return NULL;
	w = &t->who[i];
	memset(w, 0, sizeof(*w));
	w->listed = listed;
	w->worker = -1;
	w->next = *head;
	*head = i;
	return w;
}

static struct process_cache *look_up(struct who_table *t, int64_t listed)
{
	for (int i = *chain_of(t, listed); i >= 0; i = t->who[i].next)
		if (t->who[i].listed == listed)
			return &t->who[i];
	return NULL;
}

/* Those that were last seen before then. */
static void forget_chain(struct who_table *t, int *at, uint64_t before_ns)
{
	while (*at >= 0) {
		struct process_cache *w = &t->who[*at];
		int i = *at;

		if (w->seen_ns >= before_ns) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		w->next = t->unused;
		t->unused = i;
	}
}

static void forget_before(struct who_table *t, uint64_t before_ns)
{
	for (unsigned i = 0; i < CHAINS; i++)
		forget_chain(t, &t->chain[i], before_ns);
}

void process_cache_forget(struct who_table *t, uint64_t now_ns)
{
	if (now_ns > PROCESS_CACHE_FORGET_NS)
		forget_before(t, now_ns - PROCESS_CACHE_FORGET_NS);
}

bool process_cache_changes(struct who_table *t)
{
	bool news = t->news;

	t->news = false;
	return news;
}

void process_cache_rename_workers(struct who_table *t, const int *now)
{
	for (unsigned c = 0; c < CHAINS; c++)
		for (int i = t->chain[c]; i >= 0; i = t->who[i].next)
			if (t->who[i].worker >= 0)
				t->who[i].worker = now[t->who[i].worker];
}

/* ---- asking /proc ---- */

static void missing(struct process_cache *w, uint64_t now_ns)
{
	if (!w->missing_ns)
		w->missing_ns = now_ns;
	w->state = now_ns - w->missing_ns >= PROCESS_CACHE_ORPHAN_NS ? PROCESS_ORPHAN
								     : PROCESS_VANISHED;
	w->read_ns = 0;
}

/* Of whom nothing can be read now what was read last still holds; who was never read has no name yet. */
static void stay(struct process_cache *w)
{
	if (w->read_ns)
		return;
	memset(&w->is, 0, sizeof(w->is));
	w->is.pid = w->listed;
	w->is.uid = -1;
	w->is.sm_ratio = NAN;
	w->state = PROCESS_FOUND;
}

/* One that ends loses program and arguments before its memory on the GPU: until then it is who it was. */
static void keep_program(const struct process_cache *w, uint64_t start,
			 struct scene_process *now)
{
	if (!w->read_ns || start != w->listed_start || now->command[0] || now->exe[0])
		return;
	memcpy(now->command, w->is.command, sizeof(now->command));
	memcpy(now->exe, w->is.exe, sizeof(now->exe));
}

static void read_anew(struct who_table *t, struct process_cache *w, uint64_t start,
		      uint64_t now_ns)
{
	struct scene_process now;
	int err = process_cache_read(t->root, w->listed, &now);

	if (err == -GW_E_IO) {
		stay(w);
		return;
	}
	if (err) {
		missing(w, now_ns);
		return;
	}
	keep_program(w, start, &now);
	w->is = now;
	if (start != w->listed_start) { /* somebody else has the number now */
		w->worker = -1;
		w->met_ns = now_ns;
		t->news = true;
	}
	w->listed_start = start;
	if (t->alive)
		pidfd_set_keep(t->alive, w->listed, start);
	w->missing_ns = 0;
	w->read_ns = now_ns;
	w->state = PROCESS_FOUND;
}

/* Is it worth all its files?  One that was off the GPU for a while may be another program by now. */
static bool is_old(const struct who_table *t, const struct process_cache *w, uint64_t seen_ns)
{
	const uint64_t age_ns = t->now_ns - w->read_ns;

	if (!w->read_ns || seen_ns < t->before_ns)
		return true;
	return age_ns >= (t->now_ns - w->met_ns < PROCESS_CACHE_YOUNG_NS
				  ? PROCESS_CACHE_REFRESH_NS
				  : PROCESS_CACHE_SETTLED_NS);
}

static bool is_same(const struct who_table *t, const struct process_cache *w)
{
	return (t->alive && pidfd_set_knows(t->alive, w->listed, w->listed_start)) ||
	       proc_lives(t->root, w->listed, w->listed_start) > 0;
}

static void ask(struct who_table *t, struct process_cache *w, uint64_t seen_ns)
{
	uint64_t start = w->listed_start;
	const bool lives = w->read_ns && is_same(t, w);

	if (!lives && proc_start_ticks(t->root, w->listed, &start) == -GW_E_NOENT)
		missing(w, t->now_ns);
	else if (!lives || is_old(t, w, seen_ns))
		read_anew(t, w, start, t->now_ns);
}

struct process_cache *process_cache_find(struct who_table *t, int64_t listed, uint64_t now_ns)
{
	struct process_cache *w = look_up(t, listed);
	uint64_t seen_ns;

	if (now_ns != t->now_ns) {
		t->before_ns = t->now_ns;
		t->now_ns = now_ns;
	}
	if (!w)
		w = add(t, listed);
	if (!w) { /* those of this look need the room more than those of the last ten seconds */
		forget_before(t, now_ns);
		w = add(t, listed);
	}
	if (!w)
		return NULL;
	seen_ns = w->seen_ns;
	w->seen_ns = now_ns;
	ask(t, w, seen_ns);
	return w;
}
