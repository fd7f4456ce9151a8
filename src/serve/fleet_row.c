/* Makes the nodes and totals of a fleet from the answers of Prometheus, and finds GPUs with
 * enough memory (fleet_fit()). */
#include "fleet_parts.h"

#include "base/text.h"

#include <gpuward.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NODES_MAX 100000
#define STALE_S   120 /* seconds; a reading that is older than this is not current */
#define AHEAD_S   5
/* The energy of a node is refused if it is more than this factor times the energy that the
 * power limits allow. The factor is above 1 because boards exceed their limit for short
 * times. */
#define LIMIT_SLACK 1.5

/* A hash table that finds a node by cluster and instance. It uses open addressing and has at
 * least twice as many slots as nodes. */
struct node_index {
	unsigned *slot; /* index of the node plus 1; 0: empty slot */
	unsigned mask;
};

static struct fleet_node *find_node(struct fleet *f, struct node_index *x,
				    const struct fleet_row *r, bool add)
{
	const char *cluster = fleet_row_label(r, "cluster"),
		   *instance = fleet_row_label(r, "instance");
	uint64_t hash = text_hash(TEXT_HASH_START, cluster, strlen(cluster) + 1);
	unsigned h = (unsigned)text_hash(hash, instance, strlen(instance)) & x->mask;

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

/* Reads row i of an answer and returns its node. If `add` is true, adds a node that is not
 * known yet. Returns NULL if the row has no value, if the node is not known, or if there is no
 * space to add the node. */
static struct fleet_node *row_node(struct fleet *f, struct node_index *x, enum fleet_query q,
				   size_t i, bool add, struct fleet_row *r)
{
	return fleet_row_read(f, q, i, r) ? find_node(f, x, r, add) : NULL;
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
		struct fleet_node *n = row_node(f, x, FLEET_Q_TARGETS, i, true, &r);

		if (n)
			n->target = fmax(n->target, r.value);
	}
}

static void add_ages(struct fleet *f, struct node_index *x)
{
	struct fleet_row r;

	for (size_t i = 0; i < fleet_rows(f, FLEET_Q_AGE); i++) {
		struct fleet_node *n = row_node(f, x, FLEET_Q_AGE, i, true, &r);

		if (!n)
			continue;
		/* If two jobs scrape the node, the younger reading is used. */
		n->age_s = fmin(n->age_s, r.value);
		n->pushed = f->answer[FLEET_Q_TARGETS].doc && isnan(n->target);
	}
}

/* The member of struct fleet_node for each row of the query "now". */
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
		struct fleet_node *n = row_node(f, x, FLEET_Q_NOW, i, true, &r);

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
		struct fleet_node *n = row_node(f, x, q, i, false, &r);

		if (n)
			memcpy((char *)n + offset, &r.value, sizeof(r.value));
	}
}

/* If the count is missing but the node has other metrics, sets the count to 0, because PromQL
 * returns no row for a count of 0. */
static void fill_zero(double *count, bool known, bool answered)
{
	if (isnan(*count) && known && answered)
		*count = 0;
}

/* Removes the current figures of a node that is gone, because Prometheus returns its last
 * sample for some minutes. */
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
	/* A service that stops marks its series as stale; then there is no sample. If a service
	 * is killed, its last sample stays, with gpuward_up 1, and becomes old. A service with
	 * a hanging driver call is not gone: it still pushes, with gpuward_up 0. */
	if (n->pushed && (n->silent || (n->age_s > STALE_S && n->up != 0)))
		return FLEET_NODE_GONE;
	/* gpuward_up is also 0 if a GPU does not respond. In this case, report the GPU and not
	 * the node. */
	if (n->age_s > STALE_S || (n->up == 0 && !(n->gpus_down > 0)))
		return FLEET_NODE_STALE;
	if (n->age_s < -AHEAD_S)
		return FLEET_NODE_AHEAD;
	return FLEET_NODE_OK;
}

/* True if the figures of the node are current. */
static bool fleet_node_is_current(const struct fleet_node *n)
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

/* Finds a node; call it after fleet_make_nodes(). NULL: not found. */
static const struct fleet_node *fleet_find_node(const struct fleet *f, const char *cluster,
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

static const struct fleet_cause *find_cause(const char *word)
{
	for (size_t i = 0; i < FLEET_CAUSES; i++)
		if (strcmp(fleet_causes[i].word, word) == 0)
			return &fleet_causes[i];
	return NULL;
}

static int compare_attention(const void *a, const void *b)
{
	const struct fleet_attention *x = a, *y = b;
	int c = (y->rank > x->rank) - (y->rank < x->rank);

	c = c ? c : strverscmp(x->cluster, y->cluster);
	c = c ? c : strverscmp(x->instance, y->instance);
	c = c ? c : strverscmp(x->gpu, y->gpu);
	return c ? c : strcmp(x->uuid, y->uuid);
}

static const struct {
	int rank;
	const char *what, *remedy;
} node_causes[] = {
	[FLEET_NODE_DOWN] = { 20, "cannot be scraped: its GPUs are not monitored",
			      "type on the node: systemctl status gpuward; if it runs, check "
			      "the network and the address" },
	[FLEET_NODE_GONE] = { 19, "has stopped pushing its metrics",
			      "is the node on, and does the service run? type on it: "
			      "systemctl status gpuward" },
	[FLEET_NODE_STALE] = { 18, "serves old figures",
			       "a driver call may hang, or the clock of the node is wrong; "
			       "type on the node: curl -s http://127.0.0.1:9490/readyz" },
	[FLEET_NODE_AHEAD] = { 1, "has a clock that is ahead of the clock of Prometheus",
			       "type on the node: timedatectl" },
};

static void add_node_attention(struct fleet *f)
{
	for (unsigned i = 0; i < f->nodes; i++) {
		const struct fleet_node *n = &f->node[i];
		enum fleet_node_state s = fleet_node_state(n);

		if (s == FLEET_NODE_OK)
			continue;
		f->attention[f->attentions++] = (struct fleet_attention){
			.cluster = n->cluster,
			.instance = n->instance,
			.uuid = "",
			.gpu = "",
			.state = "",
			.reason = fleet_node_state_word(s),
			.what = node_causes[s].what,
			.remedy = node_causes[s].remedy,
			.rank = node_causes[s].rank,
			.age_s = n->age_s,
		};
	}
}

/* Adds a reason for attention to the row of the GPU. If the GPU has no row yet, adds a row. */
static void add_gpu_attention(struct fleet *f, unsigned first, const struct fleet_row *r)
{
	const struct fleet_cause *c = find_cause(fleet_row_label(r, "reason"));
	struct fleet_attention fresh = {
		.cluster = fleet_row_label(r, "cluster"),
		.instance = fleet_row_label(r, "instance"),
		.uuid = fleet_row_label(r, "uuid"),
		.gpu = fleet_row_label(r, "gpu"),
		.state = fleet_row_label(r, "state"),
		.age_s = NAN,
	};

	if (!c)
		return;
	fresh.reason = c->word;
	fresh.what = c->what;
	fresh.remedy = c->remedy;
	fresh.rank = c->rank;
	for (unsigned i = first; i < f->attentions; i++) {
		struct fleet_attention *a = &f->attention[i];

		if (strcmp(a->uuid, fresh.uuid) != 0 ||
		    strcmp(a->instance, fresh.instance) != 0 ||
		    strcmp(a->cluster, fresh.cluster) != 0)
			continue;
		fresh.more = a->more + 1;
		if (fresh.rank > a->rank)
			*a = fresh;
		else
			a->more = fresh.more;
		return;
	}
	f->attention[f->attentions++] = fresh;
}

int fleet_make_attention(struct fleet *f)
{
	size_t rows = fleet_rows(f, FLEET_Q_ATTENTION);
	unsigned first;
	struct fleet_row r;

	f->attention = calloc(f->nodes + rows + 1, sizeof(*f->attention));
	if (!f->attention)
		return -GW_E_NOMEM;
	add_node_attention(f);
	first = f->attentions;
	f->attention_cut = rows > f->question.top;
	for (size_t i = 0; i < rows; i++)
		if (fleet_row_read(f, FLEET_Q_ATTENTION, i, &r))
			add_gpu_attention(f, first, &r);
	qsort(f->attention, f->attentions, sizeof(*f->attention), compare_attention);
	return 0;
}

static int compare_workloads(const void *a, const void *b)
{
	const struct fleet_workload *x = a, *y = b;
	int c = (y->energy_j > x->energy_j) - (y->energy_j < x->energy_j);

	return c ? c : strcmp(x->name, y->name);
}

/* Returns the energy of all workloads in the range; NAN: not known. */
static double read_workload_sum(const struct fleet *f)
{
	struct fleet_row r;

	if (!fleet_rows(f, FLEET_Q_WORKLOAD_SUM) ||
	    !fleet_row_read(f, FLEET_Q_WORKLOAD_SUM, 0, &r) || !(r.value > 0))
		return NAN;
	return r.value;
}

/* Returns the share of a workload in the energy of all workloads. The sum comes from a later
 * query than the list of workloads, so a share can be slightly above 1. A share far above 1
 * must have another cause and counts as unknown. */
static double share_of(double energy_j, double sum_j)
{
	const double share = energy_j / sum_j;

	if (!(share <= 1.01))
		return NAN;
	return share < 1 ? share : 1;
}

int fleet_make_workloads(struct fleet *f)
{
	const double sum_j = read_workload_sum(f);
	struct fleet_row r;

	f->workload = calloc(fleet_rows(f, FLEET_Q_WORKLOADS) + 1, sizeof(*f->workload));
	if (!f->workload)
		return -GW_E_NOMEM;
	for (size_t i = 0; i < fleet_rows(f, FLEET_Q_WORKLOADS); i++)
		if (fleet_row_read(f, FLEET_Q_WORKLOADS, i, &r))
			f->workload[f->workloads++] = (struct fleet_workload){
				fleet_row_label(&r, "kind"), fleet_row_label(&r, "namespace"),
				fleet_row_label(&r, "name"), r.value, share_of(r.value, sum_j)
			};
	qsort(f->workload, f->workloads, sizeof(*f->workload), compare_workloads);
	return 0;
}

static int compare_models(const void *a, const void *b)
{
	const struct fleet_model *x = a, *y = b;

	return (y->energy_j > x->energy_j) - (y->energy_j < x->energy_j);
}

static void add_tokens(struct fleet *f, const struct fleet_row *r)
{
	bool prompt = strcmp(fleet_row_label(r, "direction"), "prompt") == 0;

	for (unsigned i = 0; i < f->models; i++) {
		struct fleet_model *m = &f->model[i];

		if (strcmp(m->model, fleet_row_label(r, "model")) != 0)
			continue;
		if (prompt)
			m->tokens_prompt = r->value;
		else
			m->tokens_generated = r->value;
	}
}

int fleet_make_models(struct fleet *f)
{
	struct fleet_row r;

	f->model = calloc(fleet_rows(f, FLEET_Q_MODEL_ENERGY) + 1, sizeof(*f->model));
	if (!f->model)
		return -GW_E_NOMEM;
	for (size_t i = 0; i < fleet_rows(f, FLEET_Q_MODEL_ENERGY); i++)
		if (fleet_row_read(f, FLEET_Q_MODEL_ENERGY, i, &r))
			f->model[f->models++] = (struct fleet_model){
				.model = fleet_row_label(&r, "model"),
				.energy_j = r.value,
				.tokens_prompt = NAN,
				.tokens_generated = NAN,
			};
	for (size_t i = 0; i < fleet_rows(f, FLEET_Q_MODEL_TOKENS); i++)
		if (fleet_row_read(f, FLEET_Q_MODEL_TOKENS, i, &r))
			add_tokens(f, &r);
	for (unsigned i = 0; i < f->models; i++) {
		struct fleet_model *m = &f->model[i];

		m->joules_per_token = m->tokens_generated >= 1
					      ? m->energy_j / m->tokens_generated
					      : (double)NAN;
	}
	qsort(f->model, f->models, sizeof(*f->model), compare_models);
	return 0;
}

static int compare_gpus(const void *a, const void *b)
{
	const struct fleet_gpu *x = a, *y = b;
	int c = strcmp(x->cluster, y->cluster);

	c = c ? c : strcmp(x->instance, y->instance);
	c = c ? c
	      : (x->available_bytes > y->available_bytes) -
			    (x->available_bytes < y->available_bytes);
	return c ? c : strverscmp(x->gpu, y->gpu);
}

static int compare_uuids(const void *a, const void *b)
{
	const struct fleet_gpu *x = *(const struct fleet_gpu *const *)a,
			       *y = *(const struct fleet_gpu *const *)b;

	return strcmp(x->uuid, y->uuid);
}

/* Returns the number of UUIDs that more than one node reports. */
static int count_doubled(struct fleet *f)
{
	const struct fleet_gpu **by_uuid = calloc(f->gpus + 1, sizeof(*by_uuid));

	if (!by_uuid)
		return -GW_E_NOMEM;
	for (unsigned i = 0; i < f->gpus; i++)
		by_uuid[i] = &f->gpu[i];
	qsort(by_uuid, f->gpus, sizeof(*by_uuid), compare_uuids);
	for (unsigned i = 1; i < f->gpus; i++)
		f->doubled += strcmp(by_uuid[i]->uuid, by_uuid[i - 1]->uuid) == 0;
	free(by_uuid);
	return 0;
}

/* True if the GPU's node is up, so that its memory figures are current. */
static bool is_current(const struct fleet *f, const struct fleet_gpu *g)
{
	const struct fleet_node *n = fleet_find_node(f, g->cluster, g->instance);

	return !n || fleet_node_is_current(n);
}

int fleet_make_gpus(struct fleet *f)
{
	struct fleet_row r;

	f->gpu = calloc(fleet_rows(f, FLEET_Q_CAPACITY) + 1, sizeof(*f->gpu));
	if (!f->gpu)
		return -GW_E_NOMEM;
	for (size_t i = 0; i < fleet_rows(f, FLEET_Q_CAPACITY); i++) {
		struct fleet_gpu *g = &f->gpu[f->gpus];

		if (!fleet_row_read(f, FLEET_Q_CAPACITY, i, &r))
			continue;
		*g = (struct fleet_gpu){ fleet_row_label(&r, "cluster"),
					 fleet_row_label(&r, "instance"),
					 fleet_row_label(&r, "uuid"),
					 fleet_row_label(&r, "gpu"), r.value };
		f->gpus += is_current(f, g);
	}
	qsort(f->gpu, f->gpus, sizeof(*f->gpu), compare_gpus);
	return count_doubled(f);
}

/* Compares two places. The place that would have the least memory left comes first. */
static int compare_places(const void *a, const void *b)
{
	const struct fleet_place *x = a, *y = b;
	int c = (x->bytes > y->bytes) - (x->bytes < y->bytes);

	return c ? c : strverscmp(x->instance, y->instance);
}

static double add_available(const struct fleet *f, unsigned first, unsigned count)
{
	double sum = 0;

	for (unsigned i = 0; i < count; i++)
		sum += f->gpu[first + i].available_bytes;
	return sum;
}

static bool same_node(const struct fleet_gpu *a, const struct fleet_gpu *b)
{
	return strcmp(a->instance, b->instance) == 0 && strcmp(a->cluster, b->cluster) == 0;
}

int fleet_fit(struct fleet *f, double bytes, unsigned gpus)
{
	unsigned end;

	free(f->place);
	f->places = 0;
	f->place = calloc(f->gpus + 1, sizeof(*f->place));
	if (!f->place)
		return -GW_E_NOMEM;
	for (unsigned first = 0; first < f->gpus; first = end) {
		unsigned at = first;

		for (end = first; end < f->gpus && same_node(&f->gpu[end], &f->gpu[first]);)
			end++;
		while (at < end && f->gpu[at].available_bytes < bytes)
			at++;
		if (end - at < gpus)
			continue;
		f->place[f->places++] = (struct fleet_place){
			f->gpu[first].cluster,      f->gpu[first].instance, end - at, at, gpus,
			add_available(f, at, gpus),
		};
	}
	qsort(f->place, f->places, sizeof(*f->place), compare_places);
	return 0;
}
