#include "fleet_parts.h"

#include <gpuward.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NODES_MAX 100000
#define STALE_S   120 /* a reading older than this is not current */
#define AHEAD_S   5
/* The energy cannot be more than the power limits allow. The factor allows for boards that
 * exceed their limit for a moment. */
#define LIMIT_SLACK 1.5

/* Finds nodes by cluster and instance: open addressing, twice as many slots as rows. */
struct node_index {
	unsigned *slot; /* index + 1; 0: empty */
	unsigned mask;
};

static unsigned hash_text(unsigned h, const char *s)
{
	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * 16777619u;
	return (h ^ 0xff) * 16777619u;
}

static struct fleet_node *find_node(struct fleet *f, struct node_index *x,
				    const struct fleet_row *r, bool add)
{
	const char *cluster = fleet_row_label(r, "cluster"),
		   *instance = fleet_row_label(r, "instance");
	unsigned h = hash_text(hash_text(2166136261u, cluster), instance) & x->mask;

	for (; x->slot[h]; h = (h + 1) & x->mask) {
		struct fleet_node *n = &f->node[x->slot[h] - 1];

		if (strcmp(n->instance, instance) == 0 && strcmp(n->cluster, cluster) == 0)
			return n;
	}
	if (!add || f->nodes == (x->mask + 1) / 2)
		return NULL;
	x->slot[h] = ++f->nodes;
	f->node[f->nodes - 1] = (struct fleet_node){
		.cluster = cluster,
		.instance = instance,
		.target = NAN,
		.age_s = NAN,
		.up = NAN,
		.gpus = NAN,
		.gpus_up = NAN,
		.gpus_down = NAN,
		.power_w = NAN,
		.limit_w = NAN,
		.utilization = NAN,
		.memory_used = NAN,
		.memory_total = NAN,
		.idle_gpus = NAN,
		.idle_w = NAN,
		.energy_j = NAN,
	};
	return &f->node[f->nodes - 1];
}

static int index_new(struct fleet *f, struct node_index *x)
{
	size_t most = fleet_rows(f, FLEET_Q_TARGETS) + fleet_rows(f, FLEET_Q_AGE) +
		      fleet_rows(f, FLEET_Q_NOW);
	unsigned slots = 16;

	if (most > NODES_MAX)
		most = NODES_MAX;
	while (slots < 2 * most)
		slots *= 2;
	x->mask = slots - 1;
	x->slot = calloc(slots, sizeof(*x->slot));
	f->node = calloc(slots / 2, sizeof(*f->node));
	return x->slot && f->node ? 0 : -GW_E_NOMEM;
}

static void add_targets(struct fleet *f, struct node_index *x)
{
	struct fleet_row r;

	for (size_t i = 0; i < fleet_rows(f, FLEET_Q_TARGETS); i++) {
		struct fleet_node *n = NULL;

		if (fleet_row_read(f, FLEET_Q_TARGETS, i, &r))
			n = find_node(f, x, &r, true);
		if (n)
			n->target = fmax(n->target, r.value);
	}
}

static void add_ages(struct fleet *f, struct node_index *x)
{
	struct fleet_row r;

	for (size_t i = 0; i < fleet_rows(f, FLEET_Q_AGE); i++) {
		struct fleet_node *n = NULL;

		if (fleet_row_read(f, FLEET_Q_AGE, i, &r))
			n = find_node(f, x, &r, true);
		if (!n)
			continue;
		n->age_s = fmin(n->age_s, r.value); /* the latest, if two jobs scrape it */
		n->pushed = f->answer[FLEET_Q_TARGETS].doc && isnan(n->target);
	}
}

/* The member for each figure of the query "now". */
static const struct {
	const char *metric;
	size_t offset;
} now_figures[] = {
#define FIGURE(metric, member)                              \
	{                                                   \
		metric, offsetof(struct fleet_node, member) \
	}
	FIGURE("gpuward_up", up),
	FIGURE("gpuward_gpus", gpus),
	FIGURE("gpuward_gpu_up", gpus_up),
	FIGURE("gpuward_gpu_power_watts", power_w),
	FIGURE("gpuward_gpu_power_limit_watts", limit_w),
	FIGURE("gpuward_gpu_memory_used_bytes", memory_used),
	FIGURE("gpuward_gpu_memory_total_bytes", memory_total),
#undef FIGURE
};

static void add_now(struct fleet *f, struct node_index *x)
{
	struct fleet_row r;

	for (size_t i = 0; i < fleet_rows(f, FLEET_Q_NOW); i++) {
		struct fleet_node *n = NULL;

		if (fleet_row_read(f, FLEET_Q_NOW, i, &r))
			n = find_node(f, x, &r, true);
		for (size_t k = 0; n && k < sizeof(now_figures) / sizeof(now_figures[0]); k++)
			if (strcmp(fleet_row_label(&r, "__name__"), now_figures[k].metric) == 0)
				memcpy((char *)n + now_figures[k].offset, &r.value,
				       sizeof(r.value));
	}
}

static void add_figure(struct fleet *f, struct node_index *x, enum fleet_query q, size_t offset)
{
	struct fleet_row r;

	for (size_t i = 0; i < fleet_rows(f, q); i++) {
		struct fleet_node *n = NULL;

		if (fleet_row_read(f, q, i, &r))
			n = find_node(f, x, &r, false);
		if (n)
			memcpy((char *)n + offset, &r.value, sizeof(r.value));
	}
}

/* Sets a missing count to 0 if the node has the metrics: PromQL returns no row for a count of 0. */
static void fill_zero(double *count, bool known, bool answered)
{
	if (isnan(*count) && known && answered)
		*count = 0;
}

/* Removes the current figures. For some minutes, Prometheus returns the last sample of a node that
 * is gone. */
static void forget_now(struct fleet_node *n)
{
	n->gpus_up = n->gpus_down = n->power_w = n->utilization = n->memory_used = NAN;
	n->memory_total = n->idle_gpus = n->idle_w = NAN;
}

static void finish_nodes(struct fleet *f)
{
	const bool down = f->answer[FLEET_Q_DOWN].doc, idle = f->answer[FLEET_Q_IDLE].doc,
		   watts = f->answer[FLEET_Q_IDLE_WATTS].doc, now = f->answer[FLEET_Q_NOW].doc;

	for (unsigned i = 0; i < f->nodes; i++) {
		struct fleet_node *n = &f->node[i];

		fill_zero(&n->gpus_down, !isnan(n->gpus_up), down);
		fill_zero(&n->idle_gpus, !isnan(n->utilization), idle);
		fill_zero(&n->idle_w, !isnan(n->utilization), watts);
		if (n->energy_j > LIMIT_SLACK * n->limit_w * (double)f->question.range_s) {
			n->energy_j = NAN;
			n->energy_refused = true;
		}
		n->silent = now && isnan(n->up) && isnan(n->gpus);
		if (fleet_node_state(n) == FLEET_NODE_GONE)
			forget_now(n);
	}
}

enum fleet_node_state fleet_node_state(const struct fleet_node *n)
{
	if (n->target == 0)
		return FLEET_NODE_DOWN;
	/* A service that stops marks its series as stale, so that no sample is left. A service
	 * that is killed leaves its last sample, which says that the readings are current. A
	 * service with a hanging driver call still pushes, and its gpuward_up is 0. */
	if (n->pushed && (n->silent || (n->age_s > STALE_S && n->up != 0)))
		return FLEET_NODE_GONE;
	/* A GPU that does not answer also makes gpuward_up 0. Then the GPU is reported, not the
	 * node. */
	if (n->age_s > STALE_S || (n->up == 0 && !(n->gpus_down > 0)))
		return FLEET_NODE_STALE;
	if (n->age_s < -AHEAD_S)
		return FLEET_NODE_AHEAD;
	return FLEET_NODE_OK;
}

bool fleet_node_is_current(const struct fleet_node *n)
{
	const enum fleet_node_state s = fleet_node_state(n);

	return s == FLEET_NODE_OK || s == FLEET_NODE_AHEAD;
}

static void add_to(double *sum, double v)
{
	if (!isnan(v))
		*sum = isnan(*sum) ? v : *sum + v;
}

static void make_total(struct fleet *f)
{
	struct fleet_total t = { .gpus = NAN,
				 .gpus_up = NAN,
				 .gpus_down = NAN,
				 .power_w = NAN,
				 .energy_j = NAN,
				 .utilization = NAN,
				 .memory_used = NAN,
				 .memory_total = NAN,
				 .idle_gpus = NAN,
				 .idle_w = NAN };
	double busy = NAN, of = 0;

	for (unsigned i = 0; i < f->nodes; i++) {
		const struct fleet_node *n = &f->node[i];
		enum fleet_node_state state = fleet_node_state(n);

		t.nodes++;
		t.nodes_gone += state == FLEET_NODE_GONE;
		t.nodes_stale += state == FLEET_NODE_STALE;
		t.energy_nodes += (unsigned)!isnan(n->energy_j);
		add_to(&t.energy_j, n->energy_j);
		if (!fleet_node_is_current(n)) {
			t.nodes_down++;
			continue;
		}
		t.nodes_up++;
		t.power_nodes += (unsigned)!isnan(n->power_w);
		add_to(&t.gpus, n->gpus);
		add_to(&t.gpus_up, n->gpus_up);
		add_to(&t.gpus_down, n->gpus_down);
		add_to(&t.power_w, n->power_w);
		add_to(&t.memory_used, n->memory_used);
		add_to(&t.memory_total, n->memory_total);
		add_to(&t.idle_gpus, n->idle_gpus);
		add_to(&t.idle_w, n->idle_w);
		add_to(&busy, n->utilization * n->gpus);
		of += isnan(n->utilization * n->gpus) ? 0 : n->gpus;
	}
	t.utilization = of > 0 ? busy / of : (double)NAN;
	f->total = t;
}

static int compare_nodes(const void *a, const void *b)
{
	const struct fleet_node *x = a, *y = b;
	int c = strverscmp(x->cluster, y->cluster);

	return c ? c : strverscmp(x->instance, y->instance);
}

const struct fleet_node *fleet_find_node(const struct fleet *f, const char *cluster,
					 const char *instance)
{
	const struct fleet_node key = { .cluster = cluster, .instance = instance };

	return f->nodes ? bsearch(&key, f->node, f->nodes, sizeof(*f->node), compare_nodes)
			: NULL;
}

int fleet_make_nodes(struct fleet *f)
{
	struct node_index x;
	int err = index_new(f, &x);

	if (!err) {
		add_targets(f, &x);
		add_ages(f, &x);
		add_now(f, &x);
#define FIGURE(query, member) \
	add_figure(f, &x, FLEET_Q_##query, offsetof(struct fleet_node, member))
		FIGURE(DOWN, gpus_down);
		FIGURE(UTILIZATION, utilization);
		FIGURE(IDLE, idle_gpus);
		FIGURE(IDLE_WATTS, idle_w);
		FIGURE(ENERGY, energy_j);
#undef FIGURE
		finish_nodes(f);
		qsort(f->node, f->nodes, sizeof(*f->node), compare_nodes);
		make_total(f);
	}
	free(x.slot);
	return err;
}
