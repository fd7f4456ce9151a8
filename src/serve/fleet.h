/* fleet: describes many machines, from the metrics that Prometheus has about them. In the files
 * fleet*.c, Prometheus stands for every server with its API (VictoriaMetrics, Mimir, Thanos).
 *
 * The functions are pure: they write the queries (fleet_query.def) and make one document from
 * the answers; daemon/fleet_ask.h sends the queries. `gpuward fleet` and GET /api/v1/fleet use
 * it. */
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

/* What a request asks about. */
struct fleet_question {
	const char *job;   /* regular expression for jobs; NULL: FLEET_JOB */
	const char *node;  /* regular expression for a part of the label instance; NULL: all */
	uint64_t range_s;  /* for energy and tokens */
	unsigned top;      /* maximum number of rows for attention, workloads and models */
	double fits_bytes; /* memory that a GPU must have available; 0: any */
};
#define FLEET_RANGE_S   86400
#define FLEET_RANGE_MAX (31 * 86400)
#define FLEET_JOB       "(.+/)?gpuward" /* as in the packaged rules */

/* Writes a query; out->err is set if it does not fit. */
void fleet_query_write(struct buf *out, enum fleet_query q, const struct fleet_question *x);

/* The answer to one query. */
struct fleet_answer {
	struct json_doc *doc; /* the reply of Prometheus with status "success"; NULL: none */
	char problem[400];    /* why there is none */
};

/* A figure is NAN if Prometheus has no sample for it. */
struct fleet_node {
	const char *cluster, *instance; /* cluster "": none */
	double target;                  /* 1: Prometheus can scrape it; 0: it cannot */
	double age_s; /* age of the last reading, by the clock of Prometheus */
	double up;    /* gpuward_up: 1 if the readings are current */
	double gpus, gpus_up, gpus_down;
	double power_w, limit_w, utilization, memory_used, memory_total;
	double idle_gpus, idle_w;
	double energy_j;
	bool energy_refused; /* the energy is more than the power limits allow */
	bool pushed;         /* no job of this node is scraped */
	bool silent;         /* Prometheus has no current sample of the node */
};

enum fleet_node_state {
	FLEET_NODE_OK,
	FLEET_NODE_DOWN,  /* Prometheus cannot scrape it */
	FLEET_NODE_GONE,  /* it pushed its metrics, but does not push them any more */
	FLEET_NODE_STALE, /* the service on it serves old figures */
	FLEET_NODE_AHEAD, /* its clock is ahead of the clock of Prometheus */
};

/* A GPU or a node that needs a person. */
struct fleet_attention {
	const char *cluster, *instance, *uuid, *gpu; /* uuid "": the node */
	const char *state;                  /* state of a GPU that is down; "": not known */
	const char *reason, *what, *remedy; /* the worst reason */
	unsigned more;                      /* number of further reasons of the same GPU */
	int rank;
	double age_s; /* age of the figures, for a stale node */
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

/* Where a job fits: a node with enough GPUs. */
struct fleet_place {
	const char *cluster, *instance;
	unsigned gpus;         /* number of GPUs with enough memory */
	unsigned first, count; /* GPUs to use: in fleet.gpu from first */
	double bytes;          /* available on these GPUs */
};

struct fleet_total {
	unsigned nodes, nodes_up, nodes_down; /* down: includes gone and stale nodes */
	unsigned nodes_gone, nodes_stale;
	/* The current figures are sums over the nodes that are up. */
	double gpus, gpus_up, gpus_down, power_w, energy_j, utilization;
	double memory_used, memory_total, idle_gpus, idle_w;
	unsigned power_nodes, energy_nodes; /* nodes with a known figure */
};

struct fleet {
	struct fleet_question question;
	char job[512], node_filter[512], url[1024]; /* copies; question points to them */
	struct fleet_answer answer[FLEET_QUERIES];
	uint64_t wall_ns;     /* when Prometheus was asked, by our clock */
	double clock_ahead_s; /* clock of Prometheus minus our clock; NAN: not known */
	double gpus_simulated, gpus_real;
	unsigned doubled;   /* number of UUIDs that two nodes report */
	bool attention_cut; /* there are more rows than question.top */
	struct fleet_total total;
	struct fleet_node *node;
	struct fleet_attention *attention;
	struct fleet_workload *workload;
	struct fleet_model *model;
	struct fleet_gpu *gpu; /* by node; the GPU with the least available memory first */
	struct fleet_place *place;
	unsigned nodes, attentions, workloads, models, gpus, places;
};

/* Makes an empty fleet; NULL: out of memory. url is for messages. */
struct fleet *fleet_new(const char *url, const struct fleet_question *x);
void fleet_free(struct fleet *f);

/* Takes the reply to a query: parses text and keeps it, or notes why it cannot be used. */
void fleet_take(struct fleet *f, enum fleet_query q, const char *text, size_t n);
void fleet_fail(struct fleet *f, enum fleet_query q, const char *problem);

/* Makes the rows from the answers. wall_ns: our time at the request. Returns 0 or
 * -GW_E_NOMEM. */
int fleet_make(struct fleet *f, uint64_t wall_ns);

/* Finds the nodes on which a job fits that needs this number of GPUs, each with this much free
 * memory. Sets f->place, sorted so that the node with the least memory left over comes first.
 * Returns 0 or -GW_E_NOMEM. */
int fleet_fit(struct fleet *f, double bytes, unsigned gpus);

enum fleet_node_state fleet_node_state(const struct fleet_node *n);

const char *fleet_node_state_word(enum fleet_node_state s);

/* Returns the text that the table shows instead of a name, for kind "idle", "unattributed" or
 * "none". */
const char *fleet_rest_text(const char *kind);

/* Returns true, and writes the reason, if the fleet has nothing to show. */
bool fleet_is_empty(const struct fleet *f, char *why, size_t size);

/* Writes a remark about clocks, duplicates or simulated GPUs; false: there is no remark i. */
bool fleet_remark(const struct fleet *f, unsigned i, char *out, size_t size);

/* Writes the members of the document into the open object. */
void fleet_render(struct json *j, const struct fleet *f, unsigned top);
void fleet_render_fit(struct json *j, const struct fleet *f, double bytes, unsigned gpus,
		      unsigned top);

/* ---- the fleet of the service ---- */

/* The state that the service keeps: the last fleet, and whether a request to Prometheus
 * runs. */
struct fleet_state {
	struct fleet *fleet; /* made from the last complete request; NULL: none yet */
	uint64_t mono_ns;    /* when that request was sent */
	bool asking;
	char problem[500]; /* why the last request failed; "": it succeeded */
};
struct fleet_source {
	void *arg;
	const char *url;
	/* Reports the state, and asks Prometheus unless the last request is younger than
	 * FLEET_FRESH_NS or still under way. Called on the loop's thread; the state is valid
	 * until the thread returns to the loop. */
	void (*look)(void *arg, struct fleet_state *ret);
};
#define FLEET_FRESH_NS (10 * NS_PER_S)

#endif
