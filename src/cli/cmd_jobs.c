/* jobs: lists the workloads that used the GPUs, with their energy. The service knows the
 * workloads that have ended and those that still run. */
#include "cli.h"
#include "output.h"
#include "remote.h"
#include "table.h"

#include "base/clock.h"
#include "base/http_message.h"
#include "base/json_doc.h"
#include "base/number.h"
#include "base/utf8.h"
#include "serve/render.h"
#include "serve/timespec_parse.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct given {
	struct remote_flags remote;
	const char *kind, *name, *since;
	bool running;
	double limit;
};

static const char *const kinds[] = {
#define WORKLOAD(symbol, word, name) word,
#include "device/workload.def"
#undef WORKLOAD
	"none", NULL
};

#define AT(member) offsetof(struct given, member)
static const struct option options[] = {
	{ "kind", 0, OPTION_CHOICE, AT(kind), "KIND",
	  "only workloads of this kind: "
#define WORKLOAD(symbol, word, name) word ", "
#include "device/workload.def"
#undef WORKLOAD
	  "or none (processes without a workload)",
	  /* This row does not use OPTION_ROW(), because the arguments of a macro cannot contain
	   * #include. */
	  kinds, NULL, 0, 0, 0, NULL },
	OPTION_ROW(TEXT, 0, "name", AT(name), "NAME",
		   "only workloads with this name; * and ? match any characters"),
	OPTION_ROW(TEXT, 0, "since", AT(since), "TIME",
		   "only workloads that still run or ended after this time: a time before now "
		   "such as 2h or 7d, or 2026-01-31T12:00:00Z"),
	OPTION_ROW(FLAG, 0, "running", AT(running), NULL, "only workloads that still run"),
	OPTION_COUNT_ROW("limit", AT(limit), "list only the latest N workloads, at most 5000",
			 1, 5000, 1000),
	REMOTE_OPTIONS(remote),
	OPTION_END,
};

#define COLUMNS(X)                              \
	X(KIND, "KIND", 0, false, false)        \
	X(WORKLOAD, "WORKLOAD", 0, false, true) \
	X(PART, "PART", 4, false, true)         \
	X(USER, "USER", 6, false, true)         \
	X(GPUS, "GPUS", 3, false, true)         \
	X(BEGIN, "BEGIN", 7, false, false)      \
	X(END, "END", 0, false, false)          \
	X(TIME, "GPU TIME", 0, true, false)     \
	X(ENERGY, "ENERGY", 0, true, false)     \
	X(MEAN, "MEAN", 1, true, false)         \
	X(MEMORY, "MEMORY", 2, true, false)     \
	X(SM, "SM", 5, true, false)             \
	X(HOW, "HOW", 8, false, false)

enum { COLUMNS(TABLE_SYMBOL) };
static const struct table_column columns[] = { COLUMNS(TABLE_COLUMN) TABLE_END };

/* Adds "&key=value" to the path, with an escaped value. Does nothing if value is NULL. */
static void add_parameter(struct buf *path, const char *key, const char *value)
{
	if (!value)
		return;
	buf_addf(path, "&%s=", key);
	url_escape(path, value);
}

/* Adds the time of --since in the format of the service. A duration such as 2h becomes "-2h",
 * which means 2 hours before now. */
static void add_since(struct buf *path, const char *since)
{
	char text[80];
	uint64_t ns;

	if (!since)
		return;
	snprintf(text, sizeof(text), "%s%s", timespec_parse_span(since, &ns) == 0 ? "-" : "",
		 since);
	add_parameter(path, "since", text);
}

static int request_jobs(struct remote *r, const struct given *g)
{
	struct buf path;
	int code;

	buf_init(&path, 4096);
	buf_addf(&path, "/api/v1/workloads/history?running=%s&limit=%.0f",
		 g->running ? "only" : "with", g->limit);
	add_parameter(&path, "kind", g->kind);
	add_parameter(&path, "name", g->name);
	add_since(&path, g->since);
	code = path.err ? cli_usage("the values of --name and --since are too long")
			: remote_request_ok(r, "GET", path.p, NULL);
	buf_done(&path);
	return code;
}

static void set_name(struct table *t, const struct json_doc *w)
{
	const char *space = json_doc_string(w, "namespace"), *name = json_doc_string(w, "name");

	if (!name) {
		table_set(t, WORKLOAD, TERM_DIM, "no workload");
		return;
	}
	table_set(t, WORKLOAD, TERM_PLAIN, "%s%s%s", space ? space : "", space ? "/" : "",
		  name);
}

static void set_gpus(struct table *t, const struct json_doc *w)
{
	const size_t n = json_doc_count(w, "devices");
	char text[TABLE_CELL] = "";
	size_t len = 0;

	for (size_t i = 0; i < n && len < sizeof(text); i++)
		len += (size_t)snprintf(
			text + len, sizeof(text) - len, "%s%.0f", i ? "," : "",
			json_doc_number(json_doc_at(w, "devices", i), "device_index"));
	table_set(t, GPUS, TERM_PLAIN, "%s", text);
}

/* Sets a cell to the local time, without the year. */
static void set_time(struct table *t, unsigned column, const char *utc)
{
	uint64_t ns;
	struct tm tm;
	char text[32];
	time_t s;

	if (!utc || timespec_parse(utc, 0, &ns) != 0)
		return;
	s = (time_t)(ns / NS_PER_S);
	if (localtime_r(&s, &tm) && strftime(text, sizeof(text), "%m-%d %H:%M:%S", &tm))
		table_set(t, column, TERM_PLAIN, "%s", text);
}

/* Sets a cell to a duration in the format of Slurm's sacct: 03:04:05, or 2-03:04:05 with
 * days. */
static void set_duration(struct table *t, unsigned column, double seconds)
{
	const unsigned long s = (unsigned long)(seconds + 0.5), d = s / 86400;
	char days[24] = "";

	if (d)
		snprintf(days, sizeof(days), "%lu-", d);
	table_set(t, column, TERM_PLAIN, "%s%02lu:%02lu:%02lu", days, s / 3600 % 24,
		  s / 60 % 60, s % 60);
}

static void set_quantity(struct table *t, unsigned column, const struct json_doc *w,
			 const char *key, const char *unit)
{
	char text[32];

	if (json_doc_is_number(w, key))
		table_set(t, column, TERM_PLAIN, "%s",
			  term_quantity(text, json_doc_number(w, key), unit));
}

static void add_job(struct table *t, const struct json_doc *w)
{
	char bytes[16];

	table_row(t);
	table_text(t, KIND, TERM_PLAIN, json_doc_string(w, "kind"));
	set_name(t, w);
	table_text(t, PART, TERM_PLAIN, json_doc_string(w, "part"));
	table_text(t, USER, TERM_PLAIN, json_doc_string(w, "user"));
	set_gpus(t, w);
	set_time(t, BEGIN, json_doc_string(w, "begin_utc"));
	if (reply_is(w, "state", "running"))
		table_set(t, END, TERM_GOOD, "running");
	else
		set_time(t, END, json_doc_string(w, "end_utc"));
	set_duration(t, TIME, json_doc_number(w, "gpu_seconds"));
	set_quantity(t, ENERGY, w, "energy_joules", "J");
	set_quantity(t, MEAN, w, "power_mean_watts", "W");
	table_set(t, MEMORY, TERM_PLAIN, "%s",
		  figure_bytes(bytes, json_doc_figure(w, "memory_peak_bytes")));
	if (json_doc_is_number(w, "utilization_sm_mean_ratio"))
		table_set(t, SM, TERM_PLAIN, "%.0f %%",
			  100 * json_doc_number(w, "utilization_sm_mean_ratio"));
	table_text(t, HOW, TERM_PLAIN, json_doc_string(w, "energy_method"));
}

struct total {
	double joules, gpu_seconds;
	size_t unknown; /* workloads without a known energy */
};

static struct total add_up(const struct json_doc *reply)
{
	struct total sum = { 0, 0, 0 };

	for (size_t i = 0; i < json_doc_count(reply, "workloads"); i++) {
		const struct json_doc *w = json_doc_at(reply, "workloads", i);

		sum.gpu_seconds += json_doc_number(w, "gpu_seconds");
		sum.unknown += !json_doc_is_number(w, "energy_joules");
		sum.joules += json_doc_number(w, "energy_joules");
	}
	return sum;
}

static void read_cost(const struct json_doc *reply, struct energy_cost *ret)
{
	*ret = (struct energy_cost){
		.price_per_kwh = json_doc_number(reply, "energy_cost.price_per_kwh"),
		.gco2_per_kwh = json_doc_number(reply, "energy_cost.gco2_per_kwh"),
	};
	utf8_clean(ret->currency, sizeof(ret->currency),
		   reply_text(reply, "energy_cost.price_currency", ""));
}

/* Returns the sum of a figure over all GPUs. */
static double sum_devices(const struct json_doc *reply, const char *key)
{
	double sum = 0;

	for (size_t i = 0; i < json_doc_count(reply, "devices"); i++)
		sum += json_doc_number(json_doc_at(reply, "devices", i), key);
	return sum;
}

/* Prints which share of the energy of the GPUs the listed workloads used, and what used the
 * remaining energy. */
static void print_cover(const struct json_doc *reply, const struct total *sum)
{
	const double counter = sum_devices(reply, "energy_joules_total");
	const double other = counter - sum->joules - sum_devices(reply, "idle_joules") -
			     sum_devices(reply, "unattributed_joules") -
			     sum_devices(reply, "earlier_joules");
	char text[32], line[400];

	if (!(counter > 0))
		return;
	snprintf(line, sizeof(line),
		 "The listed workloads used %.1f %% of the GPUs' energy of %s. The other "
		 "shares: idle %.1f %%, unattributed %.1f %%, energy from before the "
		 "accounting began %.1f %%, workloads that are not listed %.1f %%.",
		 100 * sum->joules / counter, term_quantity(text, counter, "J"),
		 100 * sum_devices(reply, "idle_joules") / counter,
		 number_without_minus_zero(
			 100 * sum_devices(reply, "unattributed_joules") / counter, 1),
		 number_without_minus_zero(100 * sum_devices(reply, "earlier_joules") / counter,
					   1),
		 100 * fmax(0, other) / counter);
	term_wrap("", 0, line, term_width());
}

static void print_left_out(const struct json_doc *reply)
{
	const double left_out = json_doc_number(reply, "left_out");

	if (left_out > 0)
		printf("%.0f older workloads are not listed; a larger --limit lists more, at "
		       "most 5000.\n",
		       left_out);
	if (json_doc_true(reply, "truncated"))
		printf("Older workloads may be missing, because the service searched only its "
		       "latest workloads. Give a later --since, or --kind.\n");
}

static void print_total(const struct json_doc *reply)
{
	const size_t n = json_doc_count(reply, "workloads");
	const struct total sum = add_up(reply);
	char joules[32], cost[ENERGY_COST_TEXT];
	struct energy_cost rates;

	read_cost(reply, &rates);
	energy_cost_text(&rates, sum.joules, cost);
	printf("\n%zu workload%s: %s%s%s in %.2f GPU hours\n", n, n == 1 ? "" : "s",
	       term_quantity(joules, sum.joules, "J"), *cost ? " = " : "", cost,
	       sum.gpu_seconds / 3600);
	if (sum.unknown)
		printf("The energy of %zu of them is unknown; --json has the reasons.\n",
		       sum.unknown);
	print_left_out(reply);
	print_cover(reply, &sum);
}

static int print_jobs(const struct cli *c, const struct json_doc *reply)
{
	struct table t;

	if (json_doc_true(reply, "simulated"))
		term_print_simulated(stdout);
	if (json_doc_count(reply, "workloads") == 0) {
		printf("No workload matches the options. The service knows the workloads that "
		       "used a GPU since its accounting began.\n");
		print_left_out(reply);
		return EXIT_OK;
	}
	table_init(&t, columns);
	for (size_t i = 0; i < json_doc_count(reply, "workloads"); i++)
		add_job(&t, json_doc_at(reply, "workloads", i));
	table_end(&t, term_table_width());
	if (!c->quiet)
		print_total(reply);
	return EXIT_OK;
}

static int jobs_run(struct cli *c)
{
	const struct given *g = c->own;
	struct remote r;
	int code = remote_open(&r, &g->remote);

	if (code == EXIT_OK)
		code = request_jobs(&r, g);
	if (code == EXIT_OK)
		code = c->json ? remote_print(&r) : print_jobs(c, r.reply);
	remote_close(&r);
	return code;
}

const struct command command_jobs = {
	.name = "jobs",
	.summary = "list workloads with their GPU time and energy",
	.description = "Lists the pods, jobs, containers, units and sessions that used the "
		       "GPUs, oldest first, with GPU time, energy, mean power and peak memory, "
		       "and their share of the energy of the GPUs. Needs a running service.",
	.examples = "  gpuward jobs --since 1d\n"
		    "  gpuward jobs --kind slurm --name '4711*'\n"
		    "  gpuward jobs --running\n"
		    "  gpuward jobs --json | jq '.workloads[] | [.name, .energy_joules]'\n",
	.options = options,
	.options_size = sizeof(struct given),
	.offline = true,
	.run = jobs_run,
};
