/* fleet: describes the state of many machines. The data are the metrics that Prometheus has
 * about the machines. In the files fleet*.c, Prometheus stands for every server with its API
 * (VictoriaMetrics, Mimir, Thanos).
 *
 * The functions are pure: they write the queries (fleet_query.def) and make one document from
 * the answers; daemon/fleet_ask.h sends the queries. `gpuward fleet` and GET /api/v1/fleet use
 * these functions. */
#ifndef GW_SERVE_FLEET_H
#define GW_SERVE_FLEET_H

#include "base/clock.h"
#include "base/json.h"

#include <stdbool.h>
#include <stdint.h>

struct json_doc;

#define FLEET_DOWN                                                                      \
	"(gpuward_gpu_up{$S} == 0) unless ignoring (state) (gpuward_gpu_state{$Sstate=" \
	"\"asleep\"} == 1) unless on (cluster, job, instance) (gpuward_let_go{$S} == 1)"
#define FLEET_IDLE                                                                        \
	"(gpuward_gpu_memory_used_bytes{$S} > 2^30 or gpuward_gpu_memory_used_bytes{$S} " \
	"> 0.05 * gpuward_gpu_memory_total_bytes{$S}) and "                               \
	"(min_over_time(gpuward_gpu_processes{$S}[30m]) > 0) and "                        \
	"(avg_over_time(gpuward_gpu_utilization_gpu_ratio{$S}[30m]) < 0.01) and "         \
	"(gpuward_gpu_up{$S} offset 30m == 1)"

enum fleet_query {
#define Q(symbol, ...) FLEET_Q_##symbol,
#include "fleet_query.def"
#undef Q
	FLEET_QUERIES
};
struct fleet_query_info {
	const char *key, *promql, *text;
};
extern const struct fleet_query_info fleet_queries[FLEET_QUERIES];

/* What the client wants to know. */
struct fleet_question {
	const char *job; /* regular expression for the label job; NULL: FLEET_JOB */
	/* regular expression that matches a part of the label instance; NULL: all nodes */
	const char *node;
	uint64_t range_s;  /* time range for energy and tokens */
	unsigned top;      /* maximum number of rows for attention, workloads and models */
	double fits_bytes; /* memory that a GPU must have available; 0: any */
};
#define FLEET_RANGE_S   86400
#define FLEET_RANGE_MAX (31 * 86400)
/* The name of the job in packaging/prometheus, with or without a namespace before the name. */
#define FLEET_JOB "(.+/)?gpuward"

/* Writes the PromQL of a query. If the text does not fit, sets out->err. */
void fleet_query_write(struct buf *out, enum fleet_query q, const struct fleet_question *x);

/* The answer of Prometheus to one query. */
struct fleet_answer {
	struct json_doc *doc; /* The reply, with status "success". NULL: there is none. */
	char problem[400];    /* why doc is NULL */
};

/* One machine. A figure is NAN if Prometheus has no sample for it. */
struct fleet_node {
	const char *cluster,
		*instance; /* Labels of the node. cluster is "" if there is no such label. */
	double target;     /* 1: the last scrape of the node succeeded; 0: it failed */
	double age_s;      /* age of the last reading, by the clock of Prometheus */
	double up;         /* value of gpuward_up: 1 if the readings are current */
	double gpus, gpus_up, gpus_down;
	double power_w, limit_w, utilization, memory_used, memory_total;
	/* Number and power of the GPUs that do no work although processes hold memory on
	 * them. */
	double idle_gpus, idle_w;
	double energy_j; /* energy of the GPUs in the time range */
	/* The energy is not shown, because it is more than the power limits of the node
	 * allow. */
	bool energy_refused;
	bool pushed; /* The node pushes its metrics; Prometheus does not scrape it. */
	bool silent; /* Prometheus has no current sample of the node */
};

enum fleet_node_state {
	FLEET_NODE_OK,
	FLEET_NODE_DOWN,  /* Prometheus cannot scrape the node. */
	FLEET_NODE_GONE,  /* The node has stopped pushing its metrics. */
	FLEET_NODE_STALE, /* The service on the node serves old readings. */
	FLEET_NODE_AHEAD, /* The node's clock is ahead of the clock of Prometheus. */
};

/* A GPU or a node that a person should look at. */
struct fleet_attention {
	const char *cluster, *instance, *uuid, *gpu; /* uuid "": the row is about the node */
	const char *state; /* state of a GPU that is down; "": not known */
	/* The most urgent reason: its key, what is wrong, and what to do. */
	const char *reason, *what, *remedy;
	/* Number of less urgent reasons of the same GPU. */
	unsigned more;
	int rank;
	double age_s; /* age of the readings of a stale node */
};

struct fleet_workload {
	const char *kind, *space, *name;
	double energy_j;
	/* share of the energy of all workloads in the time range; NAN: not known */
	double share;
};

struct fleet_model {
	const char *model;
	double energy_j, tokens_prompt, tokens_generated;
	double joules_per_token; /* joules per generated token */
};

struct fleet_gpu {
	const char *cluster, *instance, *uuid, *gpu;
	double available_bytes;
};

/* A place for a job: a node with enough GPUs that have enough memory. */
struct fleet_place {
	const char *cluster, *instance;
	unsigned gpus; /* number of GPUs of this node with enough memory */
	unsigned first,
		count; /* The GPUs to use: `count` entries of fleet.gpu, from `first` on. */
	double bytes;  /* memory available on these GPUs */
};

struct fleet_total {
	/* nodes_down includes the nodes that are gone or stale. */
	unsigned nodes, nodes_up, nodes_down;
	unsigned nodes_gone, nodes_stale;
	/* Sums over the nodes that are up. */
	double gpus, gpus_up, gpus_down, power_w, energy_j, utilization;
	double memory_used, memory_total, idle_gpus, idle_w;
	unsigned power_nodes, energy_nodes; /* number of nodes with a known power / energy */
};

struct fleet {
	struct fleet_question question;
	char job[512], node_filter[512],
		url[1024]; /* Copies of the strings; `question` points to them. */
	struct fleet_answer answer[FLEET_QUERIES];
	uint64_t wall_ns;     /* our wall time when the queries were sent */
	double clock_ahead_s; /* clock of Prometheus minus our clock; NAN: not known */
	double gpus_simulated, gpus_real;
	unsigned doubled; /* number of UUIDs that more than one node reports */
	/* number of refused values: they cannot be right and count as unknown */
	unsigned refused;
	bool attention_cut; /* There are more rows than question.top. */
	struct fleet_total total;
	struct fleet_node *node;
	struct fleet_attention *attention;
	struct fleet_workload *workload;
	struct fleet_model *model;
	struct fleet_gpu *gpu; /* sorted by node, then by available memory, least first */
	struct fleet_place *place;
	unsigned nodes, attentions, workloads, models, gpus, places;
};

/* Makes a fleet without answers. Messages name `url`, the address of Prometheus. Returns NULL
 * if out of memory. */
struct fleet *fleet_new(const char *url, const struct fleet_question *x);
void fleet_free(struct fleet *f);

/* Parses the reply to a query and keeps it. If the reply cannot be used, keeps the reason in
 * answer[q].problem. */
void fleet_take(struct fleet *f, enum fleet_query q, const char *text, size_t n);
void fleet_fail(struct fleet *f, enum fleet_query q, const char *problem);

/* Makes the rows from the answers. wall_ns is our wall time when the queries were sent. Returns
 * 0 or -GW_E_NOMEM. */
int fleet_make(struct fleet *f, uint64_t wall_ns);

/* Finds the nodes that have `gpus` GPUs with `bytes` of available memory on each. Sets
 * f->place. The node that would have the least memory left comes first. Returns 0 or
 * -GW_E_NOMEM. */
int fleet_fit(struct fleet *f, double bytes, unsigned gpus);

enum fleet_node_state fleet_node_state(const struct fleet_node *n);

const char *fleet_node_state_word(enum fleet_node_state s);

/* The kinds "idle", "unattributed" and "none" have no name. Returns the text that a table shows
 * for them. */
const char *fleet_rest_text(const char *kind);

/* Returns true, and writes the reason, if the fleet has nothing to show. */
bool fleet_is_empty(const struct fleet *f, char *why, size_t size);

/* Writes remark i, about clocks, duplicate UUIDs or simulated GPUs. Returns false if there is
 * no remark i. */
bool fleet_remark(const struct fleet *f, unsigned i, char *out, size_t size);

/* Writes the fleet as members of the open object. */
void fleet_render(struct json *j, const struct fleet *f, unsigned top);
void fleet_render_fit(struct json *j, const struct fleet *f, double bytes, unsigned gpus,
		      unsigned top);

/* The fleet that the service keeps between requests. */
struct fleet_state {
	struct fleet
		*fleet;    /* The fleet from the last queries that succeeded. NULL: none yet. */
	uint64_t mono_ns;  /* monotonic time at which the queries of `fleet` were sent */
	bool asking;       /* Queries were sent and are not answered yet. */
	char problem[500]; /* why the last queries failed; "": they succeeded */
};
struct fleet_source {
	void *arg;
	const char *url;
	/* Gets the state. Also sends new queries to Prometheus, unless the last queries are
	 * younger than FLEET_FRESH_NS or are not answered yet. Called on the loop's thread;
	 * *ret is valid until the thread returns to the loop. */
	void (*look)(void *arg, struct fleet_state *ret);
};
#define FLEET_FRESH_NS (10 * NS_PER_S)

#endif
