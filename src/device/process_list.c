/* The processes on the GPUs. gw_process_list_*() adds names from /proc; gpu_usage_read() is for
 * callers that ask often. A call thread may still write to the memory of a list after the
 * deadline, so this memory belongs to the slot and not to the caller. */
#include "process_list.h"

#include "context.h"
#include "workload.h"

#include "base/array.h"
#include "base/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Maximum number of processes with utilisation. The driver keeps samples of fewer processes. */
#define USES_MAX 1024
#define LIST_NS  (500 * NS_PER_MS) /* maximum age of a list */
/* For this long after a change of the memory in use, every call reads a new list. */
#define CHANGED_NS NS_PER_S
/* Utilisation is the mean since the list was last taken, over a time between these two limits.
 * A shorter time may contain no sample, because the driver publishes samples late, and only for
 * busy processes. */
#define SM_WINDOW_NS     (3 * NS_PER_S)
#define SM_WINDOW_MAX_NS (60 * NS_PER_S)
/* For this long, other callers get the same utilisation again. */
#define USE_SHARED_NS (800 * NS_PER_MS)
/* If the driver does not report utilisation (as with MIG), we ask again after this time. */
#define USE_REFUSED_NS (10 * NS_PER_S)
#define CPU_SPAN_NS    (20 * NS_PER_MS) /* minimum time between two readings of CPU time */

struct entry {
	struct gw_process pub;
	struct proc proc;
	char name[64], command[256], user[40];
	char cgroup[sizeof(((struct proc *)0)->cgroup)];
	char container[sizeof(((struct proc *)0)->container)];
	char unit[128];
};

/* The CPU time of a process when the list was last taken. */
struct cpu_mark {
	struct proc_id id;
	uint64_t cpu_ns;
};

struct cpu_marks {
	uint64_t mono_ns; /* when the list was last taken; 0: never */
	struct cpu_mark *mark;
	unsigned count, cap;
};

struct gw_process_list {
	struct gw_ctx *ctx;
	unsigned want; /* enum gw_process_want */
	struct cpu_marks cpu;
	/* CPU use is the mean since the list `follows` was last taken; NULL: since this list
	 * was last taken. */
	const struct gw_process_list *follows;
	struct entry *entry;
	unsigned count, cap;
	uint8_t *absence; /* for each device, enum gw_absence of its list */
	unsigned devices, devices_cap;
};

int gw_process_list_new(struct gw_ctx *ctx, struct gw_process_list **ret_list)
{
	struct gw_process_list *l;

	if (!ctx || !ret_list)
		return context_fail_null(ctx, ctx ? "ret_list" : "ctx");
	l = calloc(1, sizeof(*l));
	if (!l)
		return context_fail(ctx, -GW_E_NOMEM, NULL);
	l->ctx = ctx;
	*ret_list = l;
	return 0;
}

void gw_process_list_free(struct gw_process_list *list)
{
	if (!list)
		return;
	free(list->entry);
	free(list->absence);
	free(list->cpu.mark);
	free(list);
}

/* Reads /proc for each process. This runs on the call thread, because reading the command line
 * of a hung process can hang. */
static int identify_processes(struct slot *s)
{
	if (array_reserve(&s->proc, &s->proc_cap, s->usage.count, sizeof(*s->proc)) != 0)
		return -GW_E_NOMEM;
	for (unsigned i = 0; i < s->usage.count; i++)
		if (proc_read(s->d->backend->env->root, s->usage.p[i].pid, &s->proc[i]) != 0)
			memset(&s->proc[i], 0, sizeof(s->proc[i]));
	return 0;
}

static void query_use(struct slot *s, uint64_t since_us)
{
	struct device *d = s->d;

	s->uses = -GW_E_NOSUPPORT;
	if (!d->backend->ops->process_use)
		return;
	if (!s->process_use)
		s->process_use = calloc(USES_MAX, sizeof(*s->process_use));
	s->uses = s->process_use
			  ? d->backend->ops->process_use(d, since_us, s->process_use, USES_MAX)
			  : -GW_E_NOMEM;
	s->used = s->uses;
	s->used_ns = clock_mono_ns(d->backend->env->clock);
}

/* Uses the utilisation that another caller has read, if it is recent. The guard, for example,
 * reads it often. */
static void query_use_or_share(struct slot *s)
{
	const uint64_t now_ns = clock_mono_ns(s->d->backend->env->clock);
	const uint64_t lasts_ns = s->used == -GW_E_NOSUPPORT ? USE_REFUSED_NS : USE_SHARED_NS;

	if (s->used_ns && now_ns - s->used_ns < lasts_ns)
		s->uses = s->used;
	else
		query_use(s, s->now_ns);
}

static bool wants_use(const struct slot *s)
{
	return (s->tiers & GW_PROCESS_SM && s->usage.count > 0) ||
	       (s->tiers & GW_PROCESS_SM_SHARED && s->usage.count > 1);
}

/* Lists the processes on the GPU of one slot. Here `tiers` of the slot is a set of enum
 * gw_process_want, and now_ns is the wall time, in microseconds, from which on utilisation is
 * read. */
static void list_slot(void *arg)
{
	struct slot *s = arg;
	struct device *d = s->d;

	s->usage.count = 0;
	s->usage_error = 0;
	if (!d->backend->open)
		s->usage_why = device_absence(d->r.state, d->r.cause);
	else
		s->usage_why = d->backend->ops->processes(d, &s->usage, &s->usage_error);
	s->uses = -GW_E_STATE;
	if (s->usage_why == GW_HAVE && wants_use(s))
		query_use_or_share(s);
	if (!s->usage_error)
		s->usage_error = identify_processes(s);
}

static const char *text_or_null(const char *text)
{
	return *text ? text : NULL;
}

/* Sets the public pointers of an entry. Call it after the last realloc(), which may move the
 * entries. */
static void set_pointers(struct entry *e)
{
	e->pub.name = text_or_null(e->name);
	e->pub.command = text_or_null(e->command);
	e->pub.user = text_or_null(e->user);
	e->pub.cgroup = text_or_null(e->cgroup);
	e->pub.container = text_or_null(e->container);
	e->pub.unit = text_or_null(e->unit);
}

/* The data that collect_entries() needs in addition to the rows of the slots. */
struct take {
	const struct root *root;
	uint64_t mono_ns, wall_ns;
	uint64_t boot_ns;             /* wall time of the boot; 0: unknown */
	const struct cpu_marks *last; /* the CPU times when the list was last taken */
};

static void set_use(const struct slot *s, int64_t pid, struct gw_process *p)
{
	p->sm_ratio = NAN;
	switch (s->uses) {
	case -GW_E_STATE: p->sm_absence = GW_ABSENT_NOT_READ; return;
	case -GW_E_NOSUPPORT: p->sm_absence = GW_ABSENT_NOT_SUPPORTED; return;
	case -GW_E_PERM: p->sm_absence = GW_ABSENT_NO_PERMISSION; return;
	case -GW_E_LOST: p->sm_absence = GW_ABSENT_LOST; return;
	}
	p->sm_absence = s->uses < 0 ? GW_ABSENT_ERROR : GW_HAVE;
	if (s->uses < 0)
		return;
	/* The driver reports utilisation only for busy processes, so a process without a row is
	 * idle. */
	p->sm_ratio = 0;
	for (int i = 0; i < s->uses; i++)
		if (s->process_use[i].pid == pid)
			p->sm_ratio = s->process_use[i].sm_ratio;
}

/* Finds the CPU time that was stored for a process. Lists keep their order, so the search
 * begins at `near`, the present position of the process. */
static const struct cpu_mark *find_mark(const struct cpu_marks *m, struct proc_id id,
					unsigned near)
{
	for (unsigned n = 0, i = near; n < m->count; n++, i++) {
		if (i >= m->count)
			i = 0;
		if (proc_id_equal(m->mark[i].id, id))
			return &m->mark[i];
	}
	return NULL;
}

static void set_times(const struct take *t, unsigned position, const struct proc *p,
		      struct gw_process *pub)
{
	const struct proc_id id = { .pid = p->pid, .start_ticks = p->start_ticks };
	const struct cpu_mark *m = find_mark(t->last, id, position);
	const double seconds = (double)(t->mono_ns - t->last->mono_ns) * 1e-9;
	const double hz = (double)sysconf(_SC_CLK_TCK);
	const double run =
		((double)t->wall_ns - (double)t->boot_ns) * 1e-9 - (double)p->start_ticks / hz;

	if (p->start_ticks && t->boot_ns && run >= 0)
		pub->run_seconds = run;
	pub->cpu_absence = GW_ABSENT_FIRST_READING;
	if (!m || t->mono_ns - t->last->mono_ns < CPU_SPAN_NS)
		return;
	pub->cpu_absence = GW_HAVE;
	pub->cpu_cores =
		p->cpu_ns > m->cpu_ns ? (double)(p->cpu_ns - m->cpu_ns) * 1e-9 / seconds : 0;
}

static void fill_entry(const struct take *t, struct entry *e, unsigned position,
		       const struct slot *s, unsigned row)
{
	const struct usage *u = &s->usage.p[row];
	const struct proc *p = &s->proc[row];

	memset(e, 0, sizeof(*e));
	e->proc = *p;
	e->pub = (struct gw_process){ .type = u->type,
				      .pid = u->pid,
				      .parent = -1,
				      .uid = -1,
				      .mig_gpu_instance = u->gpu_instance,
				      .memory_absence = u->memory_why,
				      .memory_bytes = u->memory_why == GW_HAVE
							      ? (int64_t)u->memory_bytes
							      : -1,
				      .run_seconds = NAN,
				      .cpu_absence = GW_ABSENT_NO_DATA,
				      .cpu_cores = NAN };
	set_use(s, u->pid, &e->pub);
	if (p->pid == 0) {
		e->pub.orphan = 1;
		utf8_clean(e->name, sizeof(e->name), u->name);
		return;
	}
	e->pub.pid = p->pid;
	e->pub.parent = p->parent > 0 ? p->parent : -1;
	e->pub.start_ticks = p->start_ticks;
	e->pub.uid = p->uid;
	utf8_clean(e->name, sizeof(e->name), p->name);
	utf8_clean(e->command, sizeof(e->command), p->command);
	utf8_clean(e->cgroup, sizeof(e->cgroup), p->cgroup);
	utf8_clean(e->container, sizeof(e->container), p->container);
	if (strlen(p->cgroup) + 1 == sizeof(p->cgroup)) {
		char *last = strrchr(e->cgroup, '/');

		/* The path may have been cut. Show only whole components, so that job_123 does
		 * not become job_12. The unit is unknown. */
		*(last ? last : e->cgroup) = '\0';
	} else {
		char unit[sizeof(e->unit)];

		cgroup_unit_name(p->cgroup, unit, sizeof(unit));
		utf8_clean(e->unit, sizeof(e->unit), unit);
	}
	set_times(t, position, p, &e->pub);
	if (p->uid >= 0) {
		char user[sizeof(e->user)];

		proc_user(t->root, p->uid, user, sizeof(user));
		utf8_clean(e->user, sizeof(e->user), user);
	}
}

/* Merges entries of the same process, as the driver does: two pids of one list can be threads
 * of one process. */
static bool merge_same(struct gw_process_list *l, unsigned from, const struct entry *e)
{
	for (unsigned i = from; i < l->count; i++) {
		struct gw_process *p = &l->entry[i].pub;

		if (p->device != e->pub.device || p->pid != e->pub.pid ||
		    p->mig_gpu_instance != e->pub.mig_gpu_instance)
			continue;
		p->type |= e->pub.type;
		if (e->pub.memory_absence == GW_HAVE && p->memory_bytes < e->pub.memory_bytes) {
			p->memory_absence = GW_HAVE;
			p->memory_bytes = e->pub.memory_bytes;
		}
		return true;
	}
	return false;
}

/* Stores the CPU times for the next gw_process_list_take(). */
static int keep_marks(struct gw_process_list *l, uint64_t mono_ns)
{
	int err = array_reserve(&l->cpu.mark, &l->cpu.cap, l->count, sizeof(*l->cpu.mark));

	l->cpu.count = 0;
	l->cpu.mono_ns = mono_ns;
	for (unsigned i = 0; i < l->count && !err; i++) {
		const struct proc *p = &l->entry[i].proc;

		if (p->pid)
			l->cpu.mark[l->cpu.count++] = (struct cpu_mark){
				{ .pid = p->pid, .start_ticks = p->start_ticks }, p->cpu_ns
			};
	}
	return err;
}

static int collect_entries(struct gw_process_list *l, const struct take *t)
{
	struct gw_ctx *ctx = l->ctx;
	unsigned total = 0;
	int err = 0;

	for (unsigned i = 0; i < ctx->slots; i++) {
		if (ctx->slot[i]->reading != SLOT_READ)
			continue;
		total += ctx->slot[i]->usage.count;
		if (ctx->slot[i]->usage_error)
			err = ctx->slot[i]->usage_error;
	}
	l->count = 0; /* The old entries become invalid, because their memory may move now. */
	if (!err)
		err = array_reserve(&l->entry, &l->cap, total, sizeof(*l->entry));
	if (!err)
		err = array_reserve(&l->absence, &l->devices_cap, ctx->slots, 1);
	if (err)
		return err;
	l->devices = ctx->slots;
	for (unsigned i = 0; i < ctx->slots; i++) {
		const struct slot *s = ctx->slot[i];
		const unsigned from = l->count;

		l->absence[i] = (uint8_t)(s->reading != SLOT_READ   ? GW_ABSENT_STALLED
					  : s->usage_why != GW_HAVE ? s->usage_why
								    : s->usage.partial);
		if (s->reading != SLOT_READ)
			continue; /* A running call still writes to the members of the slot. */
		for (unsigned k = 0; k < s->usage.count; k++) {
			fill_entry(t, &l->entry[l->count], l->count, s, k);
			l->entry[l->count].pub.device = i;
			if (!merge_same(l, from, &l->entry[l->count]))
				l->count++;
		}
	}
	for (unsigned i = 0; i < l->count; i++)
		set_pointers(&l->entry[i]);
	return keep_marks(l, t->mono_ns);
}

/* Returns the wall time, in microseconds, from which on utilisation is read. */
static uint64_t use_since_us(const struct take *t)
{
	uint64_t span = SM_WINDOW_NS;

	if (t->last->mono_ns && t->mono_ns - t->last->mono_ns > span)
		span = t->mono_ns - t->last->mono_ns;
	if (span > SM_WINDOW_MAX_NS)
		span = SM_WINDOW_MAX_NS;
	return t->wall_ns > span ? (t->wall_ns - span) / NS_PER_US : 1;
}

int gw_process_list_take(struct gw_process_list *list)
{
	struct gw_ctx *ctx;
	struct take t;
	int err;

	if (!list)
		return context_fail_null(NULL, "list");
	ctx = list->ctx;
	t = (struct take){ .root = &ctx->root,
			   .mono_ns = clock_mono_ns(ctx->clock),
			   .wall_ns = clock_wall_ns(ctx->clock),
			   .last = list->follows ? &list->follows->cpu : &list->cpu };
	pthread_mutex_lock(&ctx->lock);
	err = context_refresh(ctx);
	if (!err) {
		context_each(ctx, list_slot, list->want, use_since_us(&t));
		/* Read the clocks again, because the calls may have taken long. */
		t.mono_ns = clock_mono_ns(ctx->clock);
		t.wall_ns = clock_wall_ns(ctx->clock);
		(void)proc_began_ns(t.root, 0, &t.boot_ns);
		err = collect_entries(list, &t);
	}
	pthread_mutex_unlock(&ctx->lock);
	return err ? context_fail(ctx, err, NULL) : 0;
}

int gw_process_list_want(struct gw_process_list *list, unsigned want)
{
	const unsigned unknown = want & ~(unsigned)(GW_PROCESS_SM | GW_PROCESS_SM_SHARED);

	if (!list)
		return context_fail_null(NULL, "list");
	if (unknown)
		return context_fail(list->ctx, -GW_E_ARG,
				    "gw_process_list_want(): unknown bits 0x%x; use values of "
				    "enum gw_process_want",
				    unknown);
	list->want = want;
	return 0;
}

void process_list_follow(struct gw_process_list *list, const struct gw_process_list *other)
{
	list->follows = other;
}

unsigned gw_process_list_count(const struct gw_process_list *list)
{
	return list->count;
}

const struct gw_process *gw_process_list_get(const struct gw_process_list *list, unsigned i)
{
	return i < list->count ? &list->entry[i].pub : NULL;
}

enum gw_absence gw_process_list_absence(const struct gw_process_list *list, unsigned device)
{
	return device < list->devices ? (enum gw_absence)list->absence[device]
				      : GW_ABSENT_NOT_READ;
}

static void query_memory(struct device *d)
{
	if (d->r.state != GW_DEVICE_OK || d->fresh)
		return;
	if (d->backend->ops->memory)
		d->backend->ops->memory(d);
	else
		d->backend->ops->read(d, GW_TIER_FAST);
}

static double memory_used(const struct device *d)
{
	return report_has(&d->r, GW_Q_MEMORY_USED) ? d->r.v[GW_Q_MEMORY_USED] : NAN;
}

/* True if the previous list can be used instead of a new one. */
static bool list_is_current(const struct slot *s, uint64_t now_ns)
{
	return s->tiers == GPU_USAGE_MEMORY && s->listed_ns && s->usage_why == GW_HAVE &&
	       s->usage_error == 0 && s->d->r.state == GW_DEVICE_OK &&
	       memory_used(s->d) == s->listed_used_bytes && now_ns - s->listed_ns < LIST_NS &&
	       now_ns - s->changed_ns >= CHANGED_NS;
}

static void query_list(struct slot *s, uint64_t now_ns)
{
	const double used = memory_used(s->d);
	const unsigned count = s->usage.count;

	s->usage.count = 0;
	s->usage_error = 0;
	s->usage_why = s->d->backend->ops->processes(s->d, &s->usage, &s->usage_error);
	if (used != s->listed_used_bytes || count != s->usage.count || !s->listed_ns)
		s->changed_ns = now_ns;
	s->listed_used_bytes = used;
	s->listed_ns = now_ns;
}

/* Queries one slot. For this call, the slot's now_ns holds since_us, and its tiers holds the
 * flags. */
static void query_slot(void *arg)
{
	struct slot *s = arg;
	struct device *d = s->d;
	const uint64_t now_ns = clock_mono_ns(d->backend->env->clock);

	s->uses = -GW_E_STATE;
	if (!d->backend->open) {
		s->usage.count = 0;
		s->usage_error = 0;
		s->usage_why = device_absence(d->r.state, d->r.cause);
		s->listed_ns = s->used_ns = 0;
		return;
	}
	if (s->tiers & GPU_USAGE_MEMORY)
		query_memory(d);
	if (!list_is_current(s, now_ns))
		query_list(s, now_ns);
	if (s->now_ns && s->usage_why == GW_HAVE)
		query_use(s, s->now_ns);
}

static struct gpu_usage slot_usage(const struct gw_ctx *ctx, unsigned device)
{
	const struct slot *s = ctx->slot[device];

	if (s->reading != SLOT_READ)
		return (struct gpu_usage){ .device = device,
					   .hung = true,
					   .why = GW_ABSENT_STALLED,
					   .generation = ctx->generation,
					   .uses = -GW_E_STATE };
	return (struct gpu_usage){ .device = device,
				   .why = s->usage_why,
				   .partial = s->usage.partial != GW_HAVE,
				   .generation = ctx->generation,
				   .report = slot_report(s),
				   .usage = s->usage.p,
				   .count = s->usage_why == GW_HAVE ? s->usage.count : 0,
				   .use = s->process_use,
				   .uses = s->uses };
}

int gpu_usage_read(struct gw_ctx *ctx, unsigned flags, uint64_t since_us,
		   void (*fn)(void *arg, const struct gpu_usage *u), void *arg)
{
	int err;

	pthread_mutex_lock(&ctx->lock);
	err = context_refresh(ctx);
	if (!err)
		context_each(ctx, query_slot, flags, since_us);
	for (unsigned i = 0; i < ctx->slots && !err; i++)
		if (ctx->slot[i]->reading == SLOT_READ)
			err = ctx->slot[i]->usage_error;
	for (unsigned i = 0; i < ctx->slots && !err; i++) {
		const struct gpu_usage u = slot_usage(ctx, i);

		fn(arg, &u);
	}
	pthread_mutex_unlock(&ctx->lock);
	return err;
}
