/* fleet: shows the GPUs of many machines, from the metrics in the user's Prometheus. */
#include "cli.h"
#include "output.h"
#include "remote.h"
#include "table.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/number.h"
#include "base/utf8.h"
#include "daemon/config.h"
#include "daemon/fleet_ask.h"
#include "serve/fleet.h"
#include "serve/timespec_parse.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEFT_MAX 34 /* width of the names of nodes and GPUs in the list of faults */

/* Writes the name of a node as "cluster/instance". Removes control characters, because other
 * machines choose these labels. */
static const char *node_name(char out[static TABLE_CELL], const char *cluster,
			     const char *instance)
{
	char joined[TABLE_CELL];

	snprintf(joined, sizeof(joined), "%s%s%s", cluster, *cluster ? "/" : "",
		 *instance ? instance : "(no instance)");
	utf8_clean(out, TABLE_CELL, joined);
	return out;
}

static void print_title(const char *title)
{
	printf("\n%s%s%s\n", term_on(TERM_BOLD), title, term_off());
}

static const char *range_text(char out[static 32], const struct fleet *f)
{
	uint64_t s = f->question.range_s;

	if (s == 86400)
		snprintf(out, 32, "day");
	else if (s % 86400 == 0)
		snprintf(out, 32, "%llu days", (unsigned long long)(s / 86400));
	else if (s == 60)
		snprintf(out, 32, "minute");
	else if (s == 3600)
		snprintf(out, 32, "hour");
	else if (s % 3600 == 0)
		snprintf(out, 32, "%llu h", (unsigned long long)(s / 3600));
	else if (s % 60 == 0)
		snprintf(out, 32, "%llu min", (unsigned long long)(s / 60));
	else
		snprintf(out, 32, "%llu s", (unsigned long long)s);
	return out;
}

/* If Prometheus did not answer query q, prints that `part` is unknown, and why. Returns false
 * if Prometheus answered. */
static bool print_problem(const struct fleet *f, enum fleet_query q, const char *part)
{
	char line[600];

	if (f->answer[q].doc)
		return false;
	snprintf(line, sizeof(line), "%s unknown: %s", part, f->answer[q].problem);
	term_wrap("", 0, line, term_width());
	return true;
}

static void add_count(struct buf *line, double n, const char *one, const char *more)
{
	if (isnan(n))
		buf_addf(line, "an unknown number of %s", more);
	else
		buf_addf(line, "%.0f %s", n, n == 1 ? one : more);
}

/* Adds how many nodes are in each state, with the same words as the table of nodes. */
static void add_states(struct buf *line, const struct fleet_total *t)
{
	const struct {
		enum fleet_node_state state;
		unsigned n;
	} bad[] = {
		{ FLEET_NODE_DOWN, t->nodes_down - t->nodes_gone - t->nodes_stale },
		{ FLEET_NODE_GONE, t->nodes_gone },
		{ FLEET_NODE_STALE, t->nodes_stale },
	};

	buf_addf(line, " (%u up", t->nodes_up);
	for (size_t i = 0; i < COUNT(bad); i++)
		if (bad[i].n)
			buf_addf(line, ", %u %s", bad[i].n,
				 fleet_node_state_word(bad[i].state));
	buf_adds(line, ")");
}

/* Adds " (of N nodes)" if the sum at the end of the line covers only N of the nodes. */
static void add_of(struct buf *line, const struct fleet_total *t, unsigned nodes)
{
	if (nodes < t->nodes)
		buf_addf(line, " (of %u node%s)", nodes, nodes == 1 ? "" : "s");
}

static void print_counts(const struct fleet *f)
{
	const struct fleet_total *t = &f->total;
	const double other = t->gpus - t->gpus_up - t->gpus_down;
	char text[400];
	struct buf line;

	buf_init_fixed(&line, text, sizeof(text));
	add_count(&line, t->nodes, "node", "nodes");
	if (t->nodes_down)
		add_states(&line, t);
	buf_adds(&line, ", ");
	add_count(&line, t->gpus, "GPU", "GPUs");
	if (t->nodes_down && !isnan(t->gpus))
		buf_adds(&line, " on nodes that are up");
	if ((t->gpus_down > 0 && !isnan(t->gpus_up)) || other > 0) {
		buf_addf(&line, " (%.0f up, %.0f down", t->gpus_up, t->gpus_down);
		if (other > 0)
			buf_addf(&line, ", %.0f asleep or released", other);
		buf_adds(&line, ")");
	}
	printf("%s%s%s\n", term_on(TERM_BOLD), text, term_off());
}

static void print_figures(const struct fleet *f)
{
	const struct fleet_total *t = &f->total;
	char text[600], a[32], b[32], used[16], all[16], range[32];
	struct buf line;

	buf_init_fixed(&line, text, sizeof(text));
	if (isnan(t->power_w)) {
		buf_adds(&line, "power now unknown");
	} else {
		buf_addf(&line, "%s now", term_quantity(a, t->power_w, "W"));
		add_of(&line, t, t->power_nodes);
	}
	if (!isnan(t->energy_j)) {
		buf_addf(&line, ", %s = %s in the last %s", term_quantity(a, t->energy_j, "J"),
			 term_quantity(b, t->energy_j / 3600, "Wh"), range_text(range, f));
		add_of(&line, t, t->energy_nodes);
	}
	term_wrap("", 0, text, term_width());
	buf_clear(&line);
	if (!isnan(t->utilization))
		buf_addf(&line, "utilisation %.0f %%, ", 100 * t->utilization);
	if (!isnan(t->memory_used))
		buf_addf(&line, "memory %s of %s", figure_bytes(used, t->memory_used),
			 figure_bytes(all, t->memory_total));
	if (line.len)
		term_wrap("", 0, text, term_width());
	if (t->idle_gpus > 0) {
		snprintf(text, sizeof(text),
			 "%.0f GPU%s processes but did no work for 30 minutes; %s %s",
			 t->idle_gpus, t->idle_gpus == 1 ? " has" : "s have",
			 t->idle_gpus == 1 ? "it draws" : "they draw",
			 term_quantity(a, t->idle_w, "W"));
		term_wrap("", 0, text, term_width());
	}
}

static void print_simulated(const struct fleet *f)
{
	if (f->gpus_simulated > 0 && f->gpus_real > 0)
		printf("%s SIMULATED %s some of these GPUs are not real\n", term_on(TERM_MARK),
		       term_off());
	else if (f->gpus_simulated > 0)
		term_print_simulated(stdout);
}

static void print_summary(const struct fleet *f)
{
	char text[600];

	print_simulated(f);
	print_counts(f);
	if (!print_problem(f, FLEET_Q_NOW, "Power and memory"))
		print_figures(f);
	print_problem(f, FLEET_Q_ENERGY, "Energy");
	print_problem(f, FLEET_Q_UTILIZATION, "Utilisation");
	if (!print_problem(f, FLEET_Q_IDLE, "GPUs that are idle but held"))
		print_problem(f, FLEET_Q_IDLE_WATTS, "Power of idle GPUs");
	print_problem(f, FLEET_Q_TARGETS, "Nodes that do not answer");
	print_problem(f, FLEET_Q_AGE, "Age of the readings");
	for (unsigned i = 0; fleet_remark(f, i, text, sizeof(text)); i++)
		term_wrap("", 0, text, term_width());
}

static void attention_left(const struct fleet_attention *a, char out[static TABLE_CELL])
{
	char name[TABLE_CELL], gpu[64], joined[2 * TABLE_CELL];

	node_name(name, a->cluster, a->instance);
	utf8_clean(gpu, sizeof(gpu), *a->gpu ? a->gpu : a->uuid);
	snprintf(joined, sizeof(joined), "%s%s%s", name, *gpu ? " GPU " : "", gpu);
	snprintf(out, TABLE_CELL, "%.*s",
		 (int)term_fit(joined, strlen(joined), LEFT_MAX - 4, &(size_t){ 0 }), joined);
}

static void print_attention_row(const struct fleet_attention *a, unsigned indent)
{
	char left[TABLE_CELL], styled[TABLE_CELL + 80], state[64], text[700], age[16];
	struct buf line;

	attention_left(a, left);
	snprintf(styled, sizeof(styled), "  %s%s%s",
		 term_on(a->rank >= 5 ? TERM_BAD : TERM_WARN), left, term_off());
	buf_init_fixed(&line, text, sizeof(text));
	buf_adds(&line, a->what);
	if (*a->state) {
		utf8_clean(state, sizeof(state), a->state);
		buf_addf(&line, " (%s)", state);
	}
	if (a->age_s > 120 || (a->age_s > 0 && strcmp(a->reason, "gone") == 0))
		buf_addf(&line, " (last reading %s ago)", figure_run_time(age, a->age_s));
	else if (a->age_s < 0)
		buf_addf(&line, " (%.0f s)", -a->age_s);
	if (a->more)
		buf_addf(&line, ", and %u more fault%s", a->more, a->more == 1 ? "" : "s");
	buf_addf(&line, "; %s", a->remedy);
	term_wrap(styled, indent, text, term_width());
}

static void print_attention(const struct fleet *f, unsigned top)
{
	unsigned indent = 0, shown = f->attentions < top ? f->attentions : top;
	char left[TABLE_CELL];

	print_title("NEEDS ATTENTION");
	for (unsigned i = 0; i < shown; i++) {
		unsigned n;

		attention_left(&f->attention[i], left);
		n = (unsigned)utf8_columns(left) + 4;
		indent = n > indent ? n : indent;
	}
	for (unsigned i = 0; i < shown; i++)
		print_attention_row(&f->attention[i], indent);
	if (f->attentions > shown || f->attention_cut)
		printf("  more faults are not shown; a larger --top shows them\n");
	if (!print_problem(f, FLEET_Q_ATTENTION, "Faults of GPUs") && !shown)
		printf("  no fault\n");
	print_problem(f, FLEET_Q_DOWN, "GPUs that do not answer");
}

static const struct table_column node_columns[] = {
	{ "NODE", 0, false, true },   { "STATE", 0, false, false },
	{ "GPUS", 0, true, false },   { "POWER", 0, true, false },
	{ "ENERGY", 0, true, false }, { "UTIL", 1, true, false },
	{ "MEMORY", 2, true, false }, { "IDLE, HELD", 3, true, false },
	{ "AGE", 4, true, false },    { NULL, 0, false, false },
};

static int compare_energy(const void *a, const void *b)
{
	const struct fleet_node *x = *(const struct fleet_node *const *)a,
				*y = *(const struct fleet_node *const *)b;
	const bool bad_x = fleet_node_state(x) != FLEET_NODE_OK,
		   bad_y = fleet_node_state(y) != FLEET_NODE_OK;
	const double ex = isnan(x->energy_j) ? -1 : x->energy_j,
		     ey = isnan(y->energy_j) ? -1 : y->energy_j;

	if (bad_x != bad_y)
		return bad_x ? -1 : 1;
	if (ex != ey)
		return ex < ey ? 1 : -1;
	return x < y ? -1 : x > y; /* the array is sorted by name */
}

static void add_node(struct table *t, const struct fleet_node *n)
{
	const enum fleet_node_state state = fleet_node_state(n);
	char name[TABLE_CELL], text[32], used[16], all[16];

	table_row(t);
	table_set(t, 0, TERM_PLAIN, "%s", node_name(name, n->cluster, n->instance));
	table_set(t, 1,
		  state == FLEET_NODE_OK      ? TERM_GOOD
		  : state == FLEET_NODE_AHEAD ? TERM_WARN
					      : TERM_BAD,
		  "%s", fleet_node_state_word(state));
	if (n->gpus_down > 0 && !isnan(n->gpus_up) && !isnan(n->gpus))
		table_set(t, 2, TERM_BAD, "%.0f of %.0f", n->gpus_up, n->gpus);
	else if (!isnan(n->gpus))
		table_set(t, 2, TERM_PLAIN, "%.0f", n->gpus);
	if (!isnan(n->power_w))
		table_set(t, 3, TERM_PLAIN, "%s", term_quantity(text, n->power_w, "W"));
	if (!isnan(n->energy_j))
		table_set(t, 4, TERM_PLAIN, "%s", term_quantity(text, n->energy_j, "J"));
	if (!isnan(n->utilization))
		table_set(t, 5, TERM_PLAIN, "%.0f %%", 100 * n->utilization);
	if (!isnan(n->memory_used))
		table_set(t, 6, TERM_PLAIN, "%s of %s", figure_bytes(used, n->memory_used),
			  figure_bytes(all, n->memory_total));
	if (n->idle_gpus > 0)
		table_set(t, 7, TERM_WARN, "%.0f, %s", n->idle_gpus,
			  term_quantity(text, n->idle_w, "W"));
	if (!isnan(n->age_s))
		table_set(t, 8, n->age_s > 120 || n->age_s < -5 ? TERM_WARN : TERM_PLAIN,
			  "%.0f s", n->age_s);
}

static void print_nodes(const struct fleet *f, unsigned top)
{
	const struct fleet_node **order = calloc(f->nodes + 1, sizeof(*order));
	char title[80], range[32];
	struct table t;

	if (!order) {
		cli_error("%s", gw_strerror(-GW_E_NOMEM));
		return;
	}
	for (unsigned i = 0; i < f->nodes; i++)
		order[i] = &f->node[i];
	qsort(order, f->nodes, sizeof(*order), compare_energy);
	snprintf(title, sizeof(title), "NODES, by energy in the last %s", range_text(range, f));
	print_title(title);
	table_init(&t, node_columns);
	for (unsigned i = 0; i < f->nodes && i < top; i++)
		add_node(&t, order[i]);
	table_end(&t, term_table_width());
	if (f->nodes > top)
		printf("%u more nodes are not shown; a larger --top shows them\n",
		       f->nodes - top);
	free(order);
}

static const struct table_column workload_columns[] = {
	{ "WORKLOAD", 0, false, true }, { "KIND", 1, false, false },
	{ "ENERGY", 0, true, false },   { "SHARE", 2, true, false },
	{ NULL, 0, false, false },
};

static void add_workload(struct table *t, const struct fleet_workload *w)
{
	char joined[TABLE_CELL], clean[TABLE_CELL], kind[64], text[32];

	snprintf(joined, sizeof(joined), "%s%s%s", w->space, *w->space ? "/" : "", w->name);
	utf8_clean(clean, sizeof(clean), joined);
	utf8_clean(kind, sizeof(kind), w->kind);
	table_row(t);
	if (*clean)
		table_set(t, 0, TERM_PLAIN, "%s", clean);
	else
		table_set(t, 0, TERM_DIM, "%s", fleet_rest_text(w->kind));
	table_set(t, 1, TERM_PLAIN, "%s", kind);
	table_set(t, 2, TERM_PLAIN, "%s", term_quantity(text, w->energy_j, "J"));
	if (!isnan(w->share))
		table_set(t, 3, TERM_PLAIN, "%.1f %%", 100 * w->share);
}

/* If a workload's share of the energy is unknown, prints why. */
static void print_share_problem(const struct fleet *f)
{
	if (print_problem(f, FLEET_Q_WORKLOAD_SUM, "Shares"))
		return;
	for (unsigned i = 0; i < f->workloads; i++)
		if (isnan(f->workload[i].share)) {
			term_wrap("", 0,
				  "The shares are unknown, because Prometheus returned more "
				  "energy for one workload than for all workloads; run the "
				  "command again.",
				  term_width());
			return;
		}
}

static void print_workloads(const struct fleet *f)
{
	struct table t;

	print_title("WORKLOADS, by energy");
	if (print_problem(f, FLEET_Q_WORKLOADS, "Workloads"))
		return;
	if (!f->workloads) {
		term_wrap("", 0,
			  "Prometheus has no gpuward_workload_energy_joules_total in this time "
			  "range.",
			  term_width());
		return;
	}
	table_init(&t, workload_columns);
	for (unsigned i = 0; i < f->workloads; i++)
		add_workload(&t, &f->workload[i]);
	table_end(&t, term_table_width());
	print_share_problem(f);
}

static const struct table_column model_columns[] = {
	{ "MODEL", 0, false, true },       { "ENERGY", 1, true, false },
	{ "GENERATED", 2, true, false },   { "PROMPT", 3, true, false },
	{ "J PER TOKEN", 0, true, false }, { NULL, 0, false, false },
};

static void print_models(const struct fleet *f, unsigned top)
{
	char clean[TABLE_CELL], text[32];
	struct table t;

	print_title("MODELS, joules per generated token");
	if (print_problem(f, FLEET_Q_MODEL_ENERGY, "Models") ||
	    print_problem(f, FLEET_Q_MODEL_TOKENS, "Tokens"))
		return;
	if (!f->models) {
		term_wrap("", 0,
			  "Prometheus has no gpuward_model_energy_joules_total in this time "
			  "range. gpuward counts tokens only of servers that are configured as "
			  "[[worker]].",
			  term_width());
		return;
	}
	table_init(&t, model_columns);
	for (unsigned i = 0; i < f->models && i < top; i++) {
		const struct fleet_model *m = &f->model[i];

		utf8_clean(clean, sizeof(clean), *m->model ? m->model : "(no model)");
		table_row(&t);
		table_set(&t, 0, TERM_PLAIN, "%s", clean);
		table_set(&t, 1, TERM_PLAIN, "%s", term_quantity(text, m->energy_j, "J"));
		if (!isnan(m->tokens_generated))
			table_set(&t, 2, TERM_PLAIN, "%.0f", m->tokens_generated);
		if (!isnan(m->tokens_prompt))
			table_set(&t, 3, TERM_PLAIN, "%.0f", m->tokens_prompt);
		if (!isnan(m->joules_per_token))
			table_set(&t, 4, TERM_PLAIN, "%.3g", m->joules_per_token);
	}
	table_end(&t, term_table_width());
}

static void fleet_text_print(const struct fleet *f, unsigned top)
{
	print_summary(f);
	print_attention(f, top);
	print_nodes(f, top);
	print_workloads(f);
	print_models(f, top);
}

static const struct table_column place_columns[] = {
	{ "NODE", 0, false, true },      { "GPUS TO USE", 0, false, true },
	{ "AVAILABLE", 0, true, false }, { "WITH ROOM", 1, true, false },
	{ NULL, 0, false, false },
};

static void add_place(struct table *t, const struct fleet *f, const struct fleet_place *p)
{
	char name[TABLE_CELL], gpus[TABLE_CELL], least[16], gpu[32];
	struct buf list;

	buf_init_fixed(&list, gpus, sizeof(gpus));
	for (unsigned i = 0; i < p->count; i++) {
		const struct fleet_gpu *g = &f->gpu[p->first + i];

		utf8_clean(gpu, sizeof(gpu), *g->gpu ? g->gpu : g->uuid);
		buf_addf(&list, "%s%s", i ? ", " : "", gpu);
	}
	table_row(t);
	table_set(t, 0, TERM_PLAIN, "%s", node_name(name, p->cluster, p->instance));
	table_set(t, 1, TERM_PLAIN, "%s", gpus);
	table_set(t, 2, TERM_PLAIN, "%s",
		  figure_bytes(least, f->gpu[p->first].available_bytes));
	table_set(t, 3, TERM_PLAIN, "%u", p->gpus);
}

static void fleet_text_fit(const struct fleet *f, double bytes, unsigned gpus, unsigned top)
{
	char title[120], size[16];
	struct table t;

	figure_bytes(size, bytes);
	if (gpus == 1)
		snprintf(title, sizeof(title), "NODES WITH %s AVAILABLE ON A GPU", size);
	else
		snprintf(title, sizeof(title), "NODES WITH %s AVAILABLE ON EACH OF %u GPUS",
			 size, gpus);
	print_title(title);
	if (print_problem(f, FLEET_Q_CAPACITY, "Available memory"))
		return;
	if (!f->places) {
		printf("No node has %s available on %u GPU%s.\n", size, gpus,
		       gpus == 1 ? "" : "s");
		return;
	}
	table_init(&t, place_columns);
	for (unsigned i = 0; i < f->places && i < top; i++)
		add_place(&t, f, &f->place[i]);
	table_end(&t, term_table_width());
	if (f->places > top)
		printf("%u more nodes are not shown; a larger --top shows them\n",
		       f->places - top);
}

#define TIMEOUT_NS (20 * NS_PER_S)

struct given {
	const char *prometheus, *token_file, *ca_file, *job, *node, *range, *fits;
	double top, gpus;
	uint64_t timeout_ns;
};

#define AT(member) offsetof(struct given, member)
static const struct option options[] = {
	OPTION_ROW(TEXT, 0, "prometheus", AT(prometheus), "URL",
		   "URL of Prometheus, or of a server with the same API, up to the part before "
		   "/api/v1 (default: prometheus in [fleet] of the configuration)"),
	OPTION_ROW(TEXT, 0, "token-file", AT(token_file), "FILE",
		   "file with the token that Prometheus requires (default: token_file in "
		   "[fleet])"),
	OPTION_ROW(TEXT, 0, "ca-file", AT(ca_file), "FILE",
		   "PEM file with the certificates that are trusted for HTTPS (default: "
		   "ca_file in [fleet], else the certificates of the system)"),
	OPTION_ROW(TEXT, 0, "job", AT(job), "REGEX",
		   "only Prometheus jobs with a name that matches REGEX (default: job in "
		   "[fleet], else the job gpuward and all jobs with a name that ends with "
		   "/gpuward)"),
	OPTION_ROW(TEXT, 0, "node", AT(node), "REGEX",
		   "only nodes with a match for REGEX in the label \"instance\""),
	OPTION_ROW(TEXT, 0, "range", AT(range), "TIME",
		   "how far back energy and tokens are counted, from 1m to 31d (default: 1d)"),
	OPTION_ROW(TEXT, 0, "fits", AT(fits), "SIZE",
		   "list only nodes with room for a job that needs this much memory per GPU, "
		   "such as 40G"),
	OPTION_COUNT_ROW("gpus", AT(gpus), "number of GPUs that the job needs on one node", 1,
			 64, 1),
	OPTION_COUNT_ROW("top", AT(top), "rows per table", 1, 1000, 20),
	OPTION_ROW(DURATION, 0, "deadline", AT(timeout_ns), "TIME",
		   "time limit for all queries together (default: 20s)"),
	OPTION_END,
};

/* Writes the value of the option if it was given, else the value in the configuration. */
static void choose(char *out, size_t size, const char *given, const char *configured)
{
	snprintf(out, size, "%s", given ? given : configured ? configured : "");
}

static int read_server(const struct given *g, struct fleet_server *s, char *job, size_t size)
{
	struct config c;
	bool mistake;
	const char *why;
	int code = remote_config(&c, &mistake, false);

	if (code != EXIT_OK)
		return code;
	choose(s->url, sizeof(s->url), g->prometheus, c.fleet_prometheus);
	choose(s->token_file, sizeof(s->token_file), g->token_file, c.fleet_token_file);
	choose(s->ca_file, sizeof(s->ca_file), g->ca_file, c.fleet_ca_file);
	choose(job, size, g->job, c.fleet_job);
	config_done(&c);
	if (!*s->url)
		return cli_usage("the address of Prometheus is missing: give --prometheus "
				 "http://HOST:9090, or set prometheus in the section [fleet] "
				 "of the configuration");
	why = config_check_prometheus(g->prometheus ? g->prometheus : s->url);
	if (why)
		return cli_usage("%s: %s",
				 g->prometheus ? "--prometheus"
					       : "fleet.prometheus of the configuration",
				 why);
	return EXIT_OK;
}

static int read_question(const struct given *g, const char *job, struct fleet_question *ret)
{
	uint64_t range_ns = FLEET_RANGE_S * NS_PER_S;
	double bytes = 0;

	if (g->range && (timespec_parse_span(g->range, &range_ns) != 0 ||
			 range_ns < 60 * NS_PER_S || range_ns > FLEET_RANGE_MAX * NS_PER_S))
		return cli_usage(
			"--range takes a time from 1m to 31d, such as 1h or 7d, not '%s'",
			g->range);
	if (g->fits && (!unit_parse(g->fits, unit_sizes, &bytes) || bytes < 1 << 20 ||
			isdigit((unsigned char)g->fits[strlen(g->fits) - 1])))
		return cli_usage(
			"--fits takes a size with its unit, such as 40G or 512M, not '%s'",
			g->fits);
	if (g->gpus > 1 && !g->fits)
		return cli_usage(
			"--gpus needs --fits SIZE, the memory that the job needs on each GPU");
	if (strlen(job) > 500 || (g->node && strlen(g->node) > 500))
		return cli_usage("the values of --job and --node can have at most 500 bytes");
	*ret = (struct fleet_question){ .job = *job ? job : NULL,
					.node = g->node,
					.range_s = range_ns / NS_PER_S,
					.top = (unsigned)g->top,
					.fits_bytes = bytes };
	return EXIT_OK;
}

static int print_json(const struct fleet *f, const struct given *g)
{
	struct cli_document doc;

	cli_document_begin(&doc, false);
	json_object(&doc.json, NULL);
	json_int(&doc.json, "schema_version", RENDER_SCHEMA_VERSION);
	json_time(&doc.json, "time_utc", clock_wall_ns(clock_real()));
	json_bool(&doc.json, "simulated", f->gpus_simulated > 0);
	fleet_render(&doc.json, f, (unsigned)g->top);
	if (g->fits)
		fleet_render_fit(&doc.json, f, f->question.fits_bytes, (unsigned)g->gpus,
				 (unsigned)g->top);
	json_object_end(&doc.json);
	return cli_document_end(&doc);
}

/* Returns the exit code. EXIT_NO_ROOM is returned only if Prometheus answered all queries: with
 * an incomplete answer, the job may still fit somewhere. */
static int exit_code(const struct fleet *f, const struct given *g)
{
	for (unsigned q = 0; q < FLEET_QUERIES; q++)
		if (!f->answer[q].doc)
			return EXIT_PARTIAL;
	return g->fits && !f->places ? EXIT_NO_ROOM : EXIT_OK;
}

static int show(const struct cli *c, struct fleet *f, const struct given *g)
{
	char why[1600];
	int code = EXIT_OK;

	if (g->fits && fleet_fit(f, f->question.fits_bytes, (unsigned)g->gpus) != 0)
		return cli_no_memory();
	if (fleet_is_empty(f, why, sizeof(why)))
		return cli_fail("%s", why);
	if (c->json)
		code = print_json(f, g);
	else if (g->fits) {
		print_simulated(f);
		fleet_text_fit(f, f->question.fits_bytes, (unsigned)g->gpus, (unsigned)g->top);
	} else
		fleet_text_print(f, (unsigned)g->top);
	return code == EXIT_OK ? exit_code(f, g) : code;
}

static int fleet_run(struct cli *c)
{
	const struct given *g = c->own;
	struct fleet_server server = { .url = "" };
	struct fleet_question question;
	struct fleet *f = NULL;
	char job[600];
	int code = read_server(g, &server, job, sizeof(job));

	if (code == EXIT_OK)
		code = read_question(g, job, &question);
	if (code != EXIT_OK)
		return code;
	if (fleet_ask(&server, &question, g->timeout_ns ? g->timeout_ns : TIMEOUT_NS, NULL,
		      &f) != 0)
		return cli_no_memory();
	code = show(c, f, g);
	fleet_free(f);
	return code;
}

const struct command command_fleet = {
	.name = "fleet",
	.summary = "show the GPUs of many machines, from the data in Prometheus",
	.description =
		"Asks your Prometheus, or a server with its API (VictoriaMetrics, Mimir, "
		"Thanos), about all machines that run gpuward. Shows first what needs "
		"attention, then the nodes with power, energy and utilisation, the workloads "
		"by energy, and the models by joules per token. With --fits, shows only where "
		"a job fits. Stores nothing and needs no recording rules.",
	.examples = "  gpuward fleet --prometheus http://prometheus:9090\n"
		    "  gpuward fleet --node 'rack7-' --range 7d\n"
		    "  gpuward fleet --fits 40G --gpus 2\n"
		    "  gpuward fleet --json | jq '.nodes[] | [.node, .power_watts]'\n",
	.options = options,
	.options_size = sizeof(struct given),
	.offline = true,
	.run = fleet_run,
};
