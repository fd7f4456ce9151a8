/* Builds one scene: first the GPUs with their process lists, then /proc for each new pid, then
 * the workers' roots.
 *
 * Ten scenes per second must be cheap, so most scenes are light: one driver call per GPU reads
 * the process list and the memory. Slow values (names, health, temperature, the machine) are
 * read with a full scene, once per second and whenever something is new. */
#include "scene_builder_internal.h"

#include "device/workload.h"
#include "device/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define USE_WINDOW_NS (3 * NS_PER_S)    /* utilisation is the mean over this time */
#define USE_NS        (500 * NS_PER_MS) /* least time between two queries of utilisation */
#define FULL_NS       NS_PER_S          /* time between two full scenes */
#define BATTERY_NS    (5 * NS_PER_S)    /* time between two readings of the power supplies */

/* True if the control group is a service. Only a service has its own control group; the group
 * of a session or a container also has other programs. */
static bool is_service_cgroup(const char *cgroup)
{
	const char *last = strrchr(cgroup, '/');
	char unit[256], service[256];
	struct cgroup_unit u;

	cgroup_unit_name(cgroup, unit, sizeof(unit)); /* also works in a container */
	return last && strcmp(last + 1, unit) == 0 && cgroup_unit_find(unit, &u) &&
	       cgroup_unit_service(&u, service, sizeof(service));
}

static void find_self(struct scene_builder *b)
{
	const struct root *root = &b->ctx->root;
	char link[32];
	struct proc p;

	if (root_readlink(root, "proc/self", link, sizeof(link)) > 0)
		b->own.pid = root_name_number(link);
	if (b->own.pid && proc_read(root, b->own.pid, &p) == 0 && is_service_cgroup(p.cgroup))
		snprintf(b->own.cgroup, sizeof(b->own.cgroup), "%s", p.cgroup);
	b->own.hidden = proc_in_child_namespace(root) == 1 || environment_is_wsl(root);
}

/* Replaces the worker index of each cached process by the worker's index in the new policy. The
 * index becomes -1 if the worker was removed, or if the worker's match has changed. */
static void renumber_workers(struct scene_builder *b, const struct policy *p)
{
	int now[POLICY_WORKERS];

	for (unsigned i = 0; i < POLICY_WORKERS; i++) {
		now[i] = -1;
		for (unsigned k = 0; i < b->policy->workers && k < p->workers; k++)
			if (now[i] < 0 &&
			    worker_finder_same_match(&p->worker[k], &b->policy->worker[i]))
				now[i] = (int)k;
	}
	process_cache_renumber_workers(b->cache, now);
}

int scene_builder_policy(struct scene_builder *b, const struct policy *p)
{
	struct classifier *c = NULL;
	struct worker_finder *f = NULL;
	int err = classifier_new(p, &c);

	if (!err)
		err = worker_finder_new(&b->ctx->root, c, p, &b->pidfds, b->own.pid, &f);
	if (err) {
		classifier_free(c);
		return err;
	}
	worker_finder_inherit(f, b->finder);
	if (b->policy)
		renumber_workers(b, p);
	worker_finder_free(b->finder);
	classifier_free(b->classifier);
	b->classifier = c;
	b->finder = f;
	b->full.mono_ns = 0;
	b->policy = p;
	return 0;
}

void scene_builder_recall(struct scene_builder *b, const struct scene_builder_formers *f)
{
	for (unsigned i = 0; i < f->count; i++)
		worker_finder_recall(b->finder, f->of[i].worker, f->of[i].id);
}

int scene_builder_new(struct gw_ctx *ctx, const struct policy *p, struct scene_builder **ret)
{
	struct scene_builder *b = calloc(1, sizeof(*b));
	int err;

	if (!b)
		return -GW_E_NOMEM;
	b->ctx = ctx;
	device_node_watch_init(&b->watch, &ctx->root);
	pidfd_set_init(&b->pidfds, &ctx->root);
	find_self(b);
	err = gw_snapshot_new(ctx, &b->snap);
	if (!err)
		err = process_cache_new(&ctx->root, &b->pidfds, &b->cache);
	if (!err)
		err = scene_builder_policy(b, p);
	if (err) {
		scene_builder_free(b);
		return err;
	}
	*ret = b;
	return 0;
}

void scene_builder_free(struct scene_builder *b)
{
	if (!b)
		return;
	worker_finder_free(b->finder);
	classifier_free(b->classifier);
	process_cache_free(b->cache);
	gw_snapshot_free(b->snap);
	device_node_watch_done(&b->watch);
	pidfd_set_done(&b->pidfds);
	free(b);
}

void scene_builder_stats(const struct scene_builder *b, struct scene_builder_stats *ret)
{
	*ret = (struct scene_builder_stats){ .scenes = b->total.scenes,
					     .vanished = b->total.vanished,
					     .left_out = b->total.left_out,
					     .searches = worker_finder_searches(b->finder),
					     .nodes = b->watch.nodes,
					     .events = b->watch.events };
}

int scene_builder_watch_fd(const struct scene_builder *b)
{
	return b->watch.fd;
}

bool scene_builder_has_workers(const struct scene_builder *b)
{
	return b->policy->workers > 0;
}

bool scene_builder_triggered(struct scene_builder *b)
{
	bool triggered = device_node_watch_triggered(&b->watch, clock_mono_ns(b->ctx->clock));

	b->device_opened |= triggered;
	return triggered;
}

uint64_t scene_builder_trigger_due_ns(const struct scene_builder *b)
{
	return device_node_watch_due_ns(&b->watch);
}

struct supplies {
	const struct root *root;
	bool mains, discharging;
};

static bool supply_has(const struct supplies *s, const char *name, const char *file,
		       const char *want)
{
	char path[320], text[32];

	root_path(path, sizeof(path), "sys/class/power_supply/%s/%s", name, file);
	return root_read_line(s->root, path, text, sizeof(text)) > 0 && strcmp(text, want) == 0;
}

/* Reads one power supply. The battery of a mouse (scope Device) does not power the machine. */
static bool read_supply(void *arg, const char *name)
{
	struct supplies *s = arg;

	if (supply_has(s, name, "scope", "Device"))
		return true;
	if (supply_has(s, name, "type", "Battery"))
		s->discharging |= supply_has(s, name, "status", "Discharging");
	else
		s->mains |= supply_has(s, name, "online", "1");
	return true;
}

static void read_battery(struct scene_builder *b, uint64_t now_ns)
{
	struct supplies s = { .root = &b->ctx->root };

	if (b->battery_read_ns && now_ns - b->battery_read_ns < BATTERY_NS)
		return;
	b->battery_read_ns = now_ns;
	(void)root_each_name(s.root, "sys/class/power_supply", read_supply, &s);
	b->full.on_battery = s.discharging && !s.mains;
}

static void read_machine(struct scene_builder *b, uint64_t mono_ns, uint64_t wall_ns)
{
	time_t now = (time_t)(wall_ns / NS_PER_S);
	double bytes = 0;
	struct tm tm;

	b->full.utc_offset_s = localtime_r(&now, &tm) ? (int)tm.tm_gmtoff : 0;
	read_battery(b, mono_ns);
	b->full.host_free_bytes =
		gw_snapshot_host(b->snap, GW_H_RAM_AVAILABLE, &bytes) == GW_HAVE
			? (uint64_t)bytes
			: 0;
}

static void begin_scene(struct scene_builder *b, uint64_t mono_ns, uint64_t wall_ns)
{
	struct scene *s = b->scene;

	s->mono_ns = mono_ns;
	s->wall_ns = wall_ns;
	s->utc_offset_s = b->full.utc_offset_s;
	s->on_battery = b->full.on_battery;
	s->host_free_bytes = b->full.host_free_bytes;
	s->processes = s->roots = s->left_out = s->game_clients = 0;
	s->reading = false;
	s->gpus = b->full.gpus;
	memcpy(s->gpu, b->full.gpu, b->full.gpus * sizeof(b->full.gpu[0]));
	b->draft.rows = b->draft.left_out = 0;
}

/* Returns the start of the time for which the driver reports utilisation, in microseconds of
 * wall time; 0: utilisation is not queried. */
static uint64_t use_since_us(struct scene_builder *b, bool utilisation)
{
	const struct scene *s = b->scene;
	const bool due = !b->last_use.mono_ns || s->mono_ns - b->last_use.mono_ns >= USE_NS;

	b->draft.use_from = !utilisation ? USE_NONE : due ? USE_DRIVER : USE_LAST;
	if (b->draft.use_from != USE_DRIVER)
		return 0;
	return s->wall_ns > USE_WINDOW_NS ? (s->wall_ns - USE_WINDOW_NS) / NS_PER_US : 1;
}

/* Builds a light scene. Returns 0; 1: a full scene is needed instead; or a negative error. */
static int build_light(struct scene_builder *b, bool utilisation)
{
	const struct clock *clock = b->ctx->clock;
	uint64_t now = clock_mono_ns(clock);
	int err;

	if (!b->full.mono_ns || now - b->full.mono_ns >= FULL_NS)
		return 1;
	begin_scene(b, now, clock_wall_ns(clock));
	b->draft.changed = false;
	err = gpu_usage_read(b->ctx,
			     GPU_USAGE_MEMORY | (b->device_opened ? GPU_USAGE_LISTS : 0),
			     use_since_us(b, utilisation), scene_builder_add_light, b);
	b->device_opened = false;
	return err ? err : b->draft.changed;
}

static int build_full(struct scene_builder *b, bool utilisation)
{
	int err = gw_snapshot_take(b->snap, GW_TIER_STATIC | GW_TIER_FAST | GW_TIER_HEALTH);
	uint64_t mono_ns, wall_ns;

	if (err)
		return err;
	mono_ns = gw_snapshot_mono_ns(b->snap);
	wall_ns = gw_snapshot_wall_ns(b->snap);
	b->full.mono_ns = mono_ns;
	b->full.foreign_pids = scene_builder_lists_foreign_pids(b);
	scene_builder_gpus(b);
	read_machine(b, mono_ns, wall_ns);
	begin_scene(b, mono_ns, wall_ns);
	return gpu_usage_read(b->ctx, 0, use_since_us(b, utilisation), scene_builder_add_full,
			      b);
}

int scene_builder_take(struct scene_builder *b, struct scene *ret, bool utilisation)
{
	int err;

	b->scene = ret;
	err = build_light(b, utilisation);
	if (err > 0)
		err = build_full(b, utilisation);
	if (!err) {
		if (b->draft.use_from == USE_DRIVER)
			scene_builder_keep_use(b);
		pidfd_set_poll(&b->pidfds);
		scene_builder_add_processes(b);
		worker_finder_add_roots(b->finder, ret, process_cache_appeared(b->cache));
		scene_builder_mark_own(b);
		process_cache_forget(b->cache, ret->mono_ns);
		b->total.scenes++;
	}
	b->scene = NULL;
	return err;
}
