/* A look: the lists and the memory of each GPU, then /proc for each number that is new, then whose each
 * process is.  Everything a look needs is in struct look, taken once.
 *
 * Ten looks a second must cost little, so most are light: one round of the driver for lists and memory.
 * What changes slowly (names, health, heat, the machine) comes from a whole look, with a snapshot: once a
 * second, and whenever something is not as it was. */
#include "look.h"

#include "look_watch.h"
#include "look_worker.h"
#include "walk.h"
#include "who.h"

#include "base/utf8.h"
#include "device/census.h"
#include "device/context.h"
#include "device/environment.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BUSY_NS  (3 * NS_PER_S)    /* over which a process's utilisation is told */
#define WHOLE_NS NS_PER_S          /* between two whole looks */
#define USE_NS   (500 * NS_PER_MS) /* between two askings for utilisation: 2 ms each on an H200 */
#define POWER_NS (5 * NS_PER_S)    /* a battery is asked this often */

/* Drivers before it tell the host's numbers, wherever they are asked. */
#define TRANSLATES_MAJOR 535
#define TRANSLATES_MINOR 113

struct row { /* one line of the driver's lists */
	unsigned gpu;
	int64_t listed;
	int instance;
	unsigned type;
	uint64_t bytes;
	bool bytes_known;
	double sm_ratio;
	char name[32]; /* of a simulated process */
};

struct look {
	struct gw_ctx *ctx;
	const struct policy *policy;
	struct classifier *classifier;
	struct finder *finder;
	struct gw_snapshot *snap;
	struct who_table *who;
	struct alive alive;
	struct nodes watch;
	int64_t self;            /* 0: unknown */
	char cgroup[256];        /* ours, where it is ours alone; else "" */
	bool hidden;             /* a namespace, or WSL: others are invisible */
	bool failed[SCENE_GPUS]; /* of this look: memory could not be read */
	bool threads;            /* of this look: a number was a thread's or an instance's */
	unsigned errors[SCENE_GPUS];
	struct row row[SCENE_PROCESSES];
	struct who *of[SCENE_PROCESSES]; /* of each process of the scene; NULL: nobody's */
	int instance[SCENE_PROCESSES];
	unsigned rows, left_out;
	struct scene *scene; /* under way */
	/* How busy each was when that was last asked. */
	struct {
		unsigned gpu;
		int64_t listed;
		double sm_ratio;
	} use[SCENE_PROCESSES];
	unsigned uses;
	uint64_t use_ns;
	bool ask_use, reuse; /* of this look: ask, or say what was said last */
	/* As of the last whole look. */
	uint64_t whole_ns; /* 0: there was none, or something is not as it was */
	unsigned generation;
	bool odd;    /* of this look: a light one is not enough */
	bool afresh; /* somebody opened a GPU since the last look */
	bool foreign;
	struct scene_gpu gpu[SCENE_GPUS];
	unsigned gpus;
	int utc_offset_s;
	uint64_t host_free_bytes;
	uint64_t power_ns;
	bool on_battery;
	uint64_t looks, vanished, all_left_out;
};

/* ---- ourselves ---- */

/* The group of a service holds nobody else; that of a session or a container holds the user's programs
 * as well. */
static bool is_a_services(const char *cgroup)
{
	const char *last = strrchr(cgroup, '/');
	size_t n = strlen(cgroup);

	return last && n > 8 && strcmp(cgroup + n - 8, ".service") == 0 &&
	       strncmp(last, "/user@", 6) != 0;
}

static void know_ourselves(struct look *l)
{
	const struct root *root = &l->ctx->root;
	char link[32];
	struct proc p;

	if (root_readlink(root, "proc/self", link, sizeof(link)) > 0)
		l->self = walk_number(link);
	if (l->self && proc_read(root, l->self, &p) == 0 && is_a_services(p.cgroup))
		snprintf(l->cgroup, sizeof(l->cgroup), "%s", p.cgroup);
	l->hidden = proc_in_child_namespace(root) == 1 || environment_is_wsl(root);
}

/* How far p is below pid; 0: it is that; FAR: it is not. */
#define FAR UINT_MAX

static unsigned generations(const struct scene_process *p, int64_t pid)
{
	if (p->pid == pid)
		return 0;
	for (unsigned i = 0; i < SCENE_ANCESTORS && p->ancestor[i]; i++)
		if (p->ancestor[i] == pid)
			return i + 1;
	return FAR;
}

/* Of a container's first process everybody is a child: that says nothing. */
static unsigned below_us(const struct look *l, const struct scene_process *p)
{
	return l->self > 1 ? generations(p, l->self) : FAR;
}

static bool is_ours(const struct look *l, const struct scene_process *p)
{
	return (l->cgroup[0] && proc_in_cgroup(p->cgroup, l->cgroup)) || below_us(l, p) != FAR;
}

/* ---- new and free ---- */

int look_policy(struct look *l, const struct policy *p)
{
	struct classifier *c = NULL;
	struct finder *f = NULL;
	int err = classifier_new(p, &c);

	if (!err)
		err = finder_new(&l->ctx->root, c, p, &l->alive, l->self, &f);
	if (err) {
		classifier_free(c);
		return err;
	}
	finder_inherit(f, l->finder);
	finder_free(l->finder);
	classifier_free(l->classifier);
	l->classifier = c;
	l->finder = f;
	l->whole_ns = 0;
	l->policy = p;
	who_forget_workers(l->who);
	return 0;
}

int look_new(struct gw_ctx *ctx, const struct policy *p, struct look **ret)
{
	struct look *l = calloc(1, sizeof(*l));
	int err;

	if (!l)
		return -GW_E_NOMEM;
	l->ctx = ctx;
	nodes_init(&l->watch, &ctx->root);
	alive_init(&l->alive, &ctx->root);
	know_ourselves(l);
	err = gw_snapshot_new(ctx, &l->snap);
	if (!err)
		err = who_new(&ctx->root, &l->alive, &l->who);
	if (!err)
		err = look_policy(l, p);
	if (err) {
		look_free(l);
		return err;
	}
	*ret = l;
	return 0;
}

void look_free(struct look *l)
{
	if (!l)
		return;
	finder_free(l->finder);
	classifier_free(l->classifier);
	who_free(l->who);
	gw_snapshot_free(l->snap);
	nodes_done(&l->watch);
	alive_done(&l->alive);
	free(l);
}

void look_stats(const struct look *l, struct look_stats *ret)
{
	*ret = (struct look_stats){ .looks = l->looks,
				    .vanished = l->vanished,
				    .left_out = l->all_left_out,
				    .searches = finder_searches(l->finder),
				    .nodes = l->watch.nodes,
				    .events = l->watch.events };
}

int look_watch_fd(const struct look *l)
{
	return l->watch.fd;
}

bool look_triggered(struct look *l)
{
	bool triggered = nodes_ask(&l->watch, clock_mono_ns(l->ctx->clock));

	l->afresh |= triggered;
	return triggered;
}

uint64_t look_trigger_due_ns(const struct look *l)
{
	return nodes_due_ns(&l->watch);
}

/* ---- GPUs ---- */

static bool bytes_of(const struct gw_device *d, unsigned q, uint64_t *ret)
{
	double v;

	if (gw_device_value(d, q, &v) != GW_HAVE)
		return false;
	*ret = (uint64_t)v;
	return true;
}

static double value_of(const struct gw_device *d, unsigned q)
{
	double v = NAN;

	(void)gw_device_value(d, q, &v);
	return v;
}

static void copy_text(const struct gw_device *d, enum gw_text t, char *out, size_t size)
{
	const char *text = gw_device_text(d, t);

	snprintf(out, size, "%s", text ? text : "");
}

static enum scene_health health_of(const struct gw_device *d)
{
	switch (d->state) {
	case GW_DEVICE_ASLEEP: return SCENE_ASLEEP;
	case GW_DEVICE_LOST: return SCENE_LOST;
	/* A driver that fails without naming the GPU has not lost it (a container whose device nodes are
	 * gone is told 999): readings that fail are counted, and make it blind. */
	case GW_DEVICE_FAULT: return d->cause == GW_CAUSE_DRIVER_ERROR ? SCENE_OK : SCENE_LOST;
	case GW_DEVICE_STALLED: return SCENE_HUNG;
	default: return SCENE_OK;
	}
}

static void fill_gpu(const struct look *l, struct scene_gpu *g, const struct gw_device *d)
{
	memset(g, 0, sizeof(*g));
	copy_text(d, GW_T_UUID, g->uuid, sizeof(g->uuid));
	copy_text(d, GW_T_PCI, g->pci, sizeof(g->pci));
	g->index = d->index;
	g->cuda = d->cuda_ordinal;
	g->health = health_of(d);
	g->simulated = d->provenance == GW_FROM_SIMULATOR;
	g->display = value_of(d, GW_Q_DISPLAY_ACTIVE) == 1;
	g->hidden = l->hidden;
	g->memory_known = bytes_of(d, GW_Q_MEMORY_TOTAL, &g->total_bytes) &&
			  bytes_of(d, GW_Q_MEMORY_USED, &g->used_bytes) &&
			  bytes_of(d, GW_Q_MEMORY_FREE, &g->free_bytes);
	if (!g->memory_known)
		g->total_bytes = g->used_bytes = g->free_bytes = 0;
	g->temperature_c = value_of(d, GW_Q_TEMPERATURE_GPU);
	g->margin_c = value_of(d, GW_Q_TEMPERATURE_MARGIN);
}

static void fill_gpus(struct look *l)
{
	unsigned n = gw_snapshot_device_count(l->snap);

	l->gpus = n < SCENE_GPUS ? n : SCENE_GPUS;
	for (unsigned i = 0; i < l->gpus; i++) {
		const struct gw_device *d = gw_snapshot_device(l->snap, i);
		double unused;

		fill_gpu(l, &l->gpu[i], d);
		l->failed[i] = gw_device_value(d, GW_Q_MEMORY_USED, &unused) == GW_ABSENT_ERROR;
	}
}

static uint64_t bytes_in(const struct report *r, unsigned q)
{
	return (uint64_t)r->v[q];
}

/* Of a light look: what else is known is as it was. */
static void renew_gpu(struct scene_gpu *g, const struct report *r)
{
	g->memory_known = report_has(r, GW_Q_MEMORY_TOTAL) && report_has(r, GW_Q_MEMORY_USED) &&
			  report_has(r, GW_Q_MEMORY_FREE);
	g->total_bytes = g->memory_known ? bytes_in(r, GW_Q_MEMORY_TOTAL) : 0;
	g->used_bytes = g->memory_known ? bytes_in(r, GW_Q_MEMORY_USED) : 0;
	g->free_bytes = g->memory_known ? bytes_in(r, GW_Q_MEMORY_FREE) : 0;
	if (report_has(r, GW_Q_TEMPERATURE_GPU))
		g->temperature_c = r->v[GW_Q_TEMPERATURE_GPU];
}

/* ---- the driver's lists ---- */

/* Some drivers and some rights keep the list from us for good: that is no failure, but others may
 * be there. */
static bool is_withheld(enum gw_absence why)
{
	return why == GW_ABSENT_NOT_SUPPORTED || why == GW_ABSENT_NO_PERMISSION ||
	       why == GW_ABSENT_NO_SYMBOL;
}

static void judge(struct look *l, struct scene_gpu *g, const struct census *c)
{
	unsigned *errors = &l->errors[c->device];
	const bool told = c->why == GW_HAVE || is_withheld(c->why);

	if (c->stalled)
		g->health = SCENE_HUNG;
	else if (c->why == GW_ABSENT_LOST)
		g->health = SCENE_LOST;
	g->hidden |= is_withheld(c->why);
	if ((told && !l->failed[c->device]) || g->health == SCENE_ASLEEP)
		*errors = 0;
	else if (*errors < UINT32_MAX)
		++*errors;
	g->errors = *errors;
	if (*errors > LOOK_BLIND && g->health == SCENE_OK)
		g->health = SCENE_BLIND;
}

/* Room for one more: when there is none, the place of the smallest goes to a larger one.  Who holds
 * much must not be pushed out by many that hold little. */
static struct row *place_for(struct look *l, uint64_t bytes)
{
	struct row *least = &l->row[0];

	if (l->rows < SCENE_PROCESSES)
		return &l->row[l->rows++];
	l->left_out++;
	for (unsigned i = 1; i < l->rows; i++)
		if (l->row[i].bytes < least->bytes)
			least = &l->row[i];
	return least->bytes < bytes ? least : NULL;
}

/* What was said last.  Lists keep their order, so that it is mostly where it was. */
static double use_before(const struct look *l, unsigned gpu, int64_t pid)
{
	for (unsigned n = 0, i = l->rows; n < l->uses; n++, i++) {
		if (i >= l->uses)
			i = 0;
		if (l->use[i].gpu == gpu && l->use[i].listed == pid)
			return l->use[i].sm_ratio;
	}
	return NAN;
}

/* Whom the driver tells nothing of did nothing. */
static double use_of(const struct look *l, const struct census *c, int64_t pid)
{
	if (l->reuse)
		return use_before(l, c->device, pid);
	if (c->uses < 0)
		return NAN;
	for (int i = 0; i < c->uses; i++)
		if (c->use[i].pid == pid)
			return c->use[i].sm_ratio;
	return 0;
}

static void keep_uses(struct look *l)
{
	l->use_ns = l->scene->mono_ns;
	l->uses = l->rows;
	for (unsigned i = 0; i < l->rows; i++) {
		l->use[i].gpu = l->row[i].gpu;
		l->use[i].listed = l->row[i].listed;
		l->use[i].sm_ratio = l->row[i].sm_ratio;
	}
}

static void take_row(struct look *l, const struct census *c, const struct usage *u)
{
	const uint64_t bytes = u->memory_why == GW_HAVE ? u->memory_bytes : 0;
	const double sm_ratio = use_of(l, c, u->pid);
	struct row *r = place_for(l, bytes);

	if (!r)
		return;
	*r = (struct row){ .gpu = c->device,
			   .listed = u->pid,
			   .instance = u->gpu_instance,
			   .type = u->type,
			   .bytes = bytes,
			   .bytes_known = u->memory_why == GW_HAVE,
			   .sm_ratio = sm_ratio };
	memcpy(r->name, u->name, sizeof(r->name));
}

static void take_list(void *arg, const struct census *c)
{
	struct look *l = arg;

	if (c->generation != l->generation)
		l->whole_ns = 0; /* next time */
	l->generation = c->generation;
	if (c->device >= l->scene->gpus) /* it came after the snapshot: next time */
		return;
	judge(l, &l->scene->gpu[c->device], c);
	if (l->scene->gpu[c->device].health != SCENE_OK || l->errors[c->device])
		l->whole_ns = 0;
	for (unsigned i = 0; i < c->count; i++)
		take_row(l, c, &c->usage[i]);
}

/* Is it there, does it answer, and all as at the last whole look? */
static bool is_as_it_was(const struct look *l, const struct census *c)
{
	return c->generation == l->generation && c->device < l->scene->gpus && !c->stalled &&
	       (c->why == GW_HAVE || is_withheld(c->why)) && c->report->state == GW_DEVICE_OK &&
	       c->report->why[GW_Q_MEMORY_USED] != GW_ABSENT_ERROR;
}

/* The same of a light look, which says nothing where anything is new. */
static void take_light(void *arg, const struct census *c)
{
	struct look *l = arg;

	l->odd |= !is_as_it_was(l, c);
	if (l->odd)
		return;
	renew_gpu(&l->scene->gpu[c->device], c->report);
	take_list(l, c);
}

/* ---- processes ---- */

/* In a namespace, numbers of the host mean nothing, and may be somebody else's here. */
static bool tells_foreign_numbers(const struct look *l)
{
	const char *version = gw_snapshot_status(l->snap)->driver_version;
	unsigned major, minor;

	if (!l->hidden || !version || sscanf(version, "%u.%u", &major, &minor) != 2)
		return false;
	return major < TRANSLATES_MAJOR ||
	       (major == TRANSLATES_MAJOR && minor < TRANSLATES_MINOR);
}

static struct scene_process *add_process(struct look *l, const struct row *r,
					 const struct scene_process *is, struct who *who)
{
	struct scene *s = l->scene;
	struct scene_process *p = &s->process[s->processes];

	l->of[s->processes] = who;
	l->instance[s->processes++] = r->instance;
	*p = *is;
	p->gpu = r->gpu;
	p->type = r->type;
	p->bytes = r->bytes;
	p->bytes_known = r->bytes_known;
	p->sm_ratio = r->sm_ratio;
	return p;
}

/* Of whom nothing is known but what the driver says. */
static void add_nameless(struct look *l, const struct row *r, bool orphan)
{
	struct scene_process *p = add_process(
		l, r, &(const struct scene_process){ .pid = r->listed, .uid = -1 }, NULL);

	p->orphan = orphan;
	utf8_clean(p->name, sizeof(p->name), r->name);
}

/* Another line of the same process: a thread of it tells the same bytes, an instance of the board
 * others. */
static bool joined(struct look *l, const struct row *r, int64_t pid)
{
	for (unsigned i = 0; l->threads && i < l->scene->processes; i++) {
		struct scene_process *p = &l->scene->process[i];

		if (p->pid != pid || p->gpu != r->gpu || p->orphan)
			continue;
		p->type |= r->type;
		p->bytes_known |= r->bytes_known;
		if (l->instance[i] != r->instance)
			p->bytes += r->bytes;
		else if (r->bytes > p->bytes)
			p->bytes = r->bytes;
		if (isnan(p->sm_ratio) || r->sm_ratio > p->sm_ratio)
			p->sm_ratio = r->sm_ratio;
		return true;
	}
	return false;
}

/* A process of the simulator's that never was in /proc. */
static bool is_simulated(const struct look *l, const struct row *r, const struct who *w)
{
	return l->scene->gpu[r->gpu].simulated && r->name[0] && !w->listed_start;
}

static void name_row(struct look *l, const struct row *r, bool foreign)
{
	struct who *w;

	if (foreign) {
		add_nameless(l, r, true);
		return;
	}
	w = who_find(l->who, r->listed, l->scene->mono_ns);
	if (!w) {
		l->left_out++;
		return;
	}
	if (w->state == WHO_HERE) {
		l->threads |= w->is.pid != r->listed || r->instance >= 0;
		if (!joined(l, r, w->is.pid))
			add_process(l, r, &w->is, w);
	} else if (is_simulated(l, r, w) || w->state == WHO_ORPHAN) {
		add_nameless(l, r, !is_simulated(l, r, w));
	} else {
		l->vanished++;
	}
}

static unsigned below_root(const struct scene *s, const struct scene_process *p,
			   unsigned worker)
{
	unsigned best = FAR;

	for (unsigned i = 0; i < s->roots; i++) {
		unsigned n = s->root[i].worker == worker ? generations(p, s->root[i].pid) : FAR;

		best = n < best ? n : best;
	}
	return best;
}

/* What was below a worker's root stays the worker's when its parents die: then it is a root itself. */
static int worker_of(struct look *l, const struct scene_process *p, struct who *w)
{
	struct scene *s = l->scene;
	int worker = classifier_worker(l->classifier, s, p);

	if (worker >= 0) {
		if (w && below_root(s, p, (unsigned)worker) != FAR)
			w->worker = worker;
		return worker;
	}
	if (!w || w->worker < 0 || s->roots == SCENE_ROOTS)
		return -1;
	s->root[s->roots++] =
		(struct scene_root){ (unsigned)w->worker, p->pid, p->start_ticks };
	return w->worker;
}

/* A worker that we started is a worker, and we below a worker are we: the nearer counts. */
static bool is_self(const struct look *l, const struct scene_process *p, int worker)
{
	unsigned root;

	if (p->orphan)
		return false;
	if (l->self && p->pid == l->self)
		return worker < 0 || l->policy->worker[worker].kind != WORKER_CALLBACK;
	if (worker < 0)
		return is_ours(l, p);
	root = below_root(l->scene, p, (unsigned)worker);
	return below_us(l, p) < (root == FAR ? 0 : root);
}

static void mark_ours(struct look *l)
{
	struct scene *s = l->scene;

	for (unsigned i = 0; i < s->processes; i++) {
		struct scene_process *p = &s->process[i];

		p->self = is_self(l, p, worker_of(l, p, l->of[i]));
	}
}

static void fill_processes(struct look *l)
{
	l->threads = false;
	for (unsigned i = 0; i < l->rows; i++)
		name_row(l, &l->row[i], l->foreign);
	l->scene->left_out = l->left_out;
	l->all_left_out += l->left_out;
}

/* ---- the machine ---- */

struct supplies {
	const struct root *root;
	bool mains, discharging;
};

static bool says(const struct supplies *s, const char *name, const char *file, const char *want)
{
	char path[320], text[32];

	root_path(path, sizeof(path), "sys/class/power_supply/%s/%s", name, file);
	return root_read_line(s->root, path, text, sizeof(text)) > 0 && strcmp(text, want) == 0;
}

/* The battery of a mouse (scope Device) does not run the machine. */
static bool try_supply(void *arg, const char *name)
{
	struct supplies *s = arg;

	if (says(s, name, "scope", "Device"))
		return true;
	if (says(s, name, "type", "Battery"))
		s->discharging |= says(s, name, "status", "Discharging");
	else
		s->mains |= says(s, name, "online", "1");
	return true;
}

static bool on_battery(struct look *l, uint64_t now_ns)
{
	struct supplies s = { .root = &l->ctx->root };

	if (l->power_ns && now_ns - l->power_ns < POWER_NS)
		return l->on_battery;
	l->power_ns = now_ns;
	(void)walk(s.root, "sys/class/power_supply", try_supply, &s);
	l->on_battery = s.discharging && !s.mains;
	return l->on_battery;
}

static int utc_offset(uint64_t wall_ns)
{
	time_t now = (time_t)(wall_ns / NS_PER_S);
	struct tm tm;

	return localtime_r(&now, &tm) ? (int)tm.tm_gmtoff : 0;
}

static void ask_machine(struct look *l, uint64_t mono_ns, uint64_t wall_ns)
{
	double bytes = 0;

	l->utc_offset_s = utc_offset(wall_ns);
	l->on_battery = on_battery(l, mono_ns);
	l->host_free_bytes = gw_snapshot_host(l->snap, GW_H_RAM_AVAILABLE, &bytes) == GW_HAVE
				     ? (uint64_t)bytes
				     : 0;
}

/* ---- a look ---- */

static void begin_scene(struct look *l, uint64_t mono_ns, uint64_t wall_ns)
{
	struct scene *s = l->scene;

	s->mono_ns = mono_ns;
	s->wall_ns = wall_ns;
	s->utc_offset_s = l->utc_offset_s;
	s->on_battery = l->on_battery;
	s->host_free_bytes = l->host_free_bytes;
	s->processes = s->roots = s->left_out = s->game_clients = 0;
	s->reading = false;
	s->gpus = l->gpus;
	memcpy(s->gpu, l->gpu, l->gpus * sizeof(l->gpu[0]));
	l->rows = l->left_out = 0;
}

static uint64_t since(struct look *l, bool utilisation)
{
	const struct scene *s = l->scene;

	l->ask_use = utilisation && (!l->use_ns || s->mono_ns - l->use_ns >= USE_NS);
	l->reuse = utilisation && !l->ask_use;
	if (!l->ask_use)
		return 0;
	return s->wall_ns > BUSY_NS ? (s->wall_ns - BUSY_NS) / NS_PER_US : 1;
}

/* 1: something is not as it was, and a whole one is due. */
static int look_lightly(struct look *l, bool utilisation)
{
	const struct clock *clock = l->ctx->clock;
	uint64_t now = clock_mono_ns(clock);
	int err;

	if (!l->whole_ns || now - l->whole_ns >= WHOLE_NS)
		return 1;
	begin_scene(l, now, clock_wall_ns(clock));
	l->odd = false;
	err = census_take(l->ctx, CENSUS_MEMORY | (l->afresh ? CENSUS_LISTS : 0),
			  since(l, utilisation), take_light, l);
	l->afresh = false;
	return err ? err : l->odd;
}

static int look_wholly(struct look *l, bool utilisation)
{
	int err = gw_snapshot_take(l->snap, GW_TIER_STATIC | GW_TIER_FAST | GW_TIER_HEALTH);
	uint64_t mono_ns;

	if (err)
		return err;
	mono_ns = gw_snapshot_mono_ns(l->snap);
	l->whole_ns = mono_ns;
	l->foreign = tells_foreign_numbers(l);
	fill_gpus(l);
	ask_machine(l, mono_ns, gw_snapshot_wall_ns(l->snap));
	begin_scene(l, mono_ns, gw_snapshot_wall_ns(l->snap));
	return census_take(l->ctx, 0, since(l, utilisation), take_list, l);
}

int look_take(struct look *l, struct scene *ret, bool utilisation)
{
	int err;

	l->scene = ret;
	err = look_lightly(l, utilisation);
	if (err > 0)
		err = look_wholly(l, utilisation);
	if (!err) {
		if (l->ask_use)
			keep_uses(l);
		alive_ask(&l->alive);
		fill_processes(l);
		finder_take(l->finder, ret, who_news(l->who));
		mark_ours(l);
		who_forget(l->who, ret->mono_ns);
		l->looks++;
	}
	l->scene = NULL;
	return err;
}
