/* A look: the lists and the memory of each GPU, then /proc for each number that is new, then whose each
 * process is.  Everything a look needs is in struct scene_builder, taken once.
 *
 * Ten looks a second must cost little, so most are light: one round of the driver for lists and memory.
 * What changes slowly (names, health, heat, the machine) comes from a whole look, with a snapshot: once a
 * second, and whenever something is not as it was. */
#include "scene_builder_parts.h"

#include "dir_iter.h"

#include "device/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BUSY_NS  (3 * NS_PER_S)    /* over which a process's utilisation is told */
#define WHOLE_NS NS_PER_S          /* between two whole looks */
#define USE_NS   (500 * NS_PER_MS) /* between two askings for utilisation: 2 ms each on an H200 */
#define POWER_NS (5 * NS_PER_S)    /* a battery is asked this often */

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

static void know_ourselves(struct scene_builder *l)
{
	const struct root *root = &l->ctx->root;
	char link[32];
	struct proc p;

	if (root_readlink(root, "proc/self", link, sizeof(link)) > 0)
		l->self = dir_iter_number(link);
	if (l->self && proc_read(root, l->self, &p) == 0 && is_a_services(p.cgroup))
		snprintf(l->cgroup, sizeof(l->cgroup), "%s", p.cgroup);
	l->hidden = proc_in_child_namespace(root) == 1 || environment_is_wsl(root);
}

/* ---- new and free ---- */

/* Where p has it; -1: nowhere, or sought by something else. */
static int place_of(const struct policy *p, const struct policy_worker *w)
{
	for (unsigned i = 0; i < p->workers; i++)
		if (worker_finder_seeks_alike(&p->worker[i], w))
			return (int)i;
	return -1;
}

/* Whoever was a worker's though its parents died is that one's as long as it is sought by the same. */
static void keep_workers(struct scene_builder *l, const struct policy *p)
{
	int now[POLICY_WORKERS];

	if (!l->policy)
		return;
	for (unsigned i = 0; i < POLICY_WORKERS; i++)
		now[i] = i < l->policy->workers ? place_of(p, &l->policy->worker[i]) : -1;
	process_cache_rename_workers(l->who, now);
}

int scene_builder_policy(struct scene_builder *l, const struct policy *p)
{
	struct classifier *c = NULL;
	struct worker_finder *f = NULL;
	int err = classifier_new(p, &c);

	if (!err)
		err = worker_finder_new(&l->ctx->root, c, p, &l->alive, l->self, &f);
	if (err) {
		classifier_free(c);
		return err;
	}
	worker_finder_inherit(f, l->finder);
	keep_workers(l, p);
	worker_finder_free(l->finder);
	classifier_free(l->classifier);
	l->classifier = c;
	l->finder = f;
	l->whole_ns = 0;
	l->policy = p;
	return 0;
}

void scene_builder_recall(struct scene_builder *l, const struct scene_builder_formers *f)
{
	for (unsigned i = 0; i < f->count; i++)
		worker_finder_recall(l->finder, f->of[i].worker, f->of[i].pid,
				     f->of[i].start_ticks);
}

int scene_builder_new(struct gw_ctx *ctx, const struct policy *p, struct scene_builder **ret)
{
	struct scene_builder *l = calloc(1, sizeof(*l));
	int err;

	if (!l)
		return -GW_E_NOMEM;
	l->ctx = ctx;
	device_node_watch_init(&l->watch, &ctx->root);
	pidfd_set_init(&l->alive, &ctx->root);
	know_ourselves(l);
	err = gw_snapshot_new(ctx, &l->snap);
	if (!err)
		err = process_cache_new(&ctx->root, &l->alive, &l->who);
	if (!err)
		err = scene_builder_policy(l, p);
	if (err) {
		scene_builder_free(l);
		return err;
	}
	*ret = l;
	return 0;
}

void scene_builder_free(struct scene_builder *l)
{
	if (!l)
		return;
	worker_finder_free(l->finder);
	classifier_free(l->classifier);
	process_cache_free(l->who);
	gw_snapshot_free(l->snap);
	device_node_watch_done(&l->watch);
	pidfd_set_done(&l->alive);
	free(l);
}

void scene_builder_stats(const struct scene_builder *l, struct scene_builder_stats *ret)
{
	*ret = (struct scene_builder_stats){ .looks = l->looks,
					     .vanished = l->vanished,
					     .left_out = l->all_left_out,
					     .searches = worker_finder_searches(l->finder),
					     .nodes = l->watch.nodes,
					     .events = l->watch.events };
}

int scene_builder_watch_fd(const struct scene_builder *l)
{
	return l->watch.fd;
}

bool scene_builder_triggered(struct scene_builder *l)
{
	bool triggered = device_node_watch_ask(&l->watch, clock_mono_ns(l->ctx->clock));

	l->afresh |= triggered;
	return triggered;
}

uint64_t scene_builder_trigger_due_ns(const struct scene_builder *l)
{
	return device_node_watch_due_ns(&l->watch);
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

static bool on_battery(struct scene_builder *l, uint64_t now_ns)
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

static void ask_machine(struct scene_builder *l, uint64_t mono_ns, uint64_t wall_ns)
{
	double bytes = 0;

	l->utc_offset_s = utc_offset(wall_ns);
	l->on_battery = on_battery(l, mono_ns);
	l->host_free_bytes = gw_snapshot_host(l->snap, GW_H_RAM_AVAILABLE, &bytes) == GW_HAVE
				     ? (uint64_t)bytes
				     : 0;
}

/* ---- a look ---- */

static void begin_scene(struct scene_builder *l, uint64_t mono_ns, uint64_t wall_ns)
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

static uint64_t since(struct scene_builder *l, bool utilisation)
{
	const struct scene *s = l->scene;

	l->ask_use = utilisation && (!l->use_ns || s->mono_ns - l->use_ns >= USE_NS);
	l->reuse = utilisation && !l->ask_use;
	if (!l->ask_use)
		return 0;
	return s->wall_ns > BUSY_NS ? (s->wall_ns - BUSY_NS) / NS_PER_US : 1;
}

/* 1: something is not as it was, and a whole one is due. */
static int look_lightly(struct scene_builder *l, bool utilisation)
{
	const struct clock *clock = l->ctx->clock;
	uint64_t now = clock_mono_ns(clock);
	int err;

	if (!l->whole_ns || now - l->whole_ns >= WHOLE_NS)
		return 1;
	begin_scene(l, now, clock_wall_ns(clock));
	l->odd = false;
	err = gpu_usage_read(l->ctx, GPU_USAGE_MEMORY | (l->afresh ? GPU_USAGE_LISTS : 0),
			     since(l, utilisation), scene_builder_take_light, l);
	l->afresh = false;
	return err ? err : l->odd;
}

static int look_wholly(struct scene_builder *l, bool utilisation)
{
	int err = gw_snapshot_take(l->snap, GW_TIER_STATIC | GW_TIER_FAST | GW_TIER_HEALTH);
	uint64_t mono_ns;

	if (err)
		return err;
	mono_ns = gw_snapshot_mono_ns(l->snap);
	l->whole_ns = mono_ns;
	l->foreign = scene_builder_tells_foreign(l);
	scene_builder_gpus(l);
	ask_machine(l, mono_ns, gw_snapshot_wall_ns(l->snap));
	begin_scene(l, mono_ns, gw_snapshot_wall_ns(l->snap));
	return gpu_usage_read(l->ctx, 0, since(l, utilisation), scene_builder_take_list, l);
}

int scene_builder_take(struct scene_builder *l, struct scene *ret, bool utilisation)
{
	int err;

	l->scene = ret;
	err = look_lightly(l, utilisation);
	if (err > 0)
		err = look_wholly(l, utilisation);
	if (!err) {
		if (l->ask_use)
			scene_builder_keep_uses(l);
		pidfd_set_poll(&l->alive);
		scene_builder_name_rows(l);
		worker_finder_take(l->finder, ret, process_cache_changes(l->who));
		scene_builder_mark_ours(l);
		process_cache_forget(l->who, ret->mono_ns);
		l->looks++;
	}
	l->scene = NULL;
	return err;
}
