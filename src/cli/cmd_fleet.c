/* fleet: shows the GPUs of many machines, from the metrics in the user's Prometheus. */
#include "cli.h"
#include "fleet_text.h"
#include "output.h"
#include "remote.h"

#include "base/clock.h"
#include "base/number.h"
#include "daemon/config.h"
#include "daemon/fleet_ask.h"
#include "serve/timespec_parse.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define TIMEOUT_NS (20 * NS_PER_S)

struct given {
	const char *prometheus, *token_file, *ca_file, *job, *node, *range, *fits;
	double top, gpus;
	uint64_t timeout_ns;
};

#define AT(member) offsetof(struct given, member)
static const struct option options[] = {
	OPTION_ROW(TEXT, 0, "prometheus", AT(prometheus), "URL",
		   "address of Prometheus, or of a server with its API, with the path before "
		   "/api/v1 (default: prometheus in [fleet] of the configuration)"),
	OPTION_ROW(TEXT, 0, "token-file", AT(token_file), "FILE",
		   "file with the token that Prometheus requires (default: token_file in "
		   "[fleet])"),
	OPTION_ROW(
		TEXT, 0, "ca-file", AT(ca_file), "FILE",
		"certificates (PEM) that must have signed the server's certificate (default: "
		"ca_file in [fleet], else those of the system)"),
	OPTION_ROW(TEXT, 0, "job", AT(job), "REGEX",
		   "only this job of Prometheus (default: job in [fleet], else every job whose "
		   "name ends with gpuward)"),
	OPTION_ROW(TEXT, 0, "node", AT(node), "REGEX",
		   "only nodes whose label instance contains this"),
	OPTION_ROW(TEXT, 0, "range", AT(range), "TIME",
		   "time range for energy and tokens, up to now: 1h, 1d, 7d (default: 1d)"),
	OPTION_ROW(
		TEXT, 0, "fits", AT(fits), "SIZE",
		"list where a job fits that needs this much memory on each GPU, such as 40G"),
	OPTION_COUNT_ROW("gpus", AT(gpus), "number of GPUs of that job, on one node", 1, 64, 1),
	OPTION_COUNT_ROW("top", AT(top), "rows per table", 1, 1000, 20),
	OPTION_ROW(DURATION, 0, "deadline", AT(timeout_ns), "TIME",
		   "time limit for all queries together (default: 20s)"),
	OPTION_END,
};

/* Writes a setting: the value of the option, or else the value in the configuration. */
static void choose(char *out, size_t size, const char *given, const char *configured)
{
	snprintf(out, size, "%s", given ? given : configured ? configured : "");
}

static int read_server(const struct given *g, struct fleet_server *s, char *job, size_t size)
{
	struct config c;
	bool mistake;
	const char *why;
	int code = remote_config(&c, &mistake);

	if (code != EXIT_OK)
		return code;
	choose(s->url, sizeof(s->url), g->prometheus, c.fleet_prometheus);
	choose(s->token_file, sizeof(s->token_file), g->token_file, c.fleet_token_file);
	choose(s->ca_file, sizeof(s->ca_file), g->ca_file, c.fleet_ca_file);
	choose(job, size, g->job, c.fleet_job);
	config_done(&c);
	if (!*s->url)
		return cli_usage(
			"no Prometheus is named: give --prometheus http://HOST:9090, or "
			"set prometheus in the section [fleet] of the configuration");
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
		return cli_usage("--range '%s': write a time from 1m to 31d, such as 1h or 7d",
				 g->range);
	if (g->fits && (!unit_parse(g->fits, unit_sizes, &bytes) || bytes < 1 << 20 ||
			isdigit((unsigned char)g->fits[strlen(g->fits) - 1])))
		return cli_usage("--fits '%s': write a size with its unit, such as 40G or 512M",
				 g->fits);
	if (g->gpus > 1 && !g->fits)
		return cli_usage("--gpus needs --fits SIZE, the memory on each GPU");
	if (strlen(job) > 500 || (g->node && strlen(g->node) > 500))
		return cli_usage("the expressions of --job and --node have at most 500 bytes");
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

/* If Prometheus did not answer a query, the result is incomplete. If a job fits nowhere, the
 * answer is no. */
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
		if (f->gpus_simulated > 0)
			term_print_simulated(stdout);
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
	.summary = "show many machines, from Prometheus",
	.description =
		"Asks your Prometheus, or a server with its API (VictoriaMetrics, Mimir, "
		"Thanos), "
		"about all machines that run gpuward: what needs attention first, then nodes "
		"with "
		"power, energy and utilisation, workloads by energy, and models by joules per "
		"token; or where a job fits. Stores nothing and needs no recording rules.",
	.examples = "  gpuward fleet --prometheus http://prometheus:9090\n"
		    "  gpuward fleet --node 'rack7-' --range 7d\n"
		    "  gpuward fleet --fits 40G --gpus 2\n"
		    "  gpuward fleet --json | jq '.nodes[] | [.node, .power_watts]'\n",
	.options = options,
	.options_size = sizeof(struct given),
	.offline = true,
	.run = fleet_run,
};
