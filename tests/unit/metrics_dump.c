/* Prints the metrics of a simulated scenario as the service would serve them.
 *
 *         metrics_dump [-t TOP] [-n ROUNDS] [-i WORD]... [-x WORD]... [-D] SIMULATOR SCENARIO
 *         metrics_dump -l     name, type and labels of every family, for the golden list
 *         metrics_dump -d     name and group of every family of the default set
 *         metrics_dump -m     name, type, labels, group and help, as the table of docs/METRICS.md
 *         metrics_dump -g     the groups, as the table of docs/METRICS.md
 *
 * -i, -x: words of metrics.include and metrics.exclude. Without them: the default set.
 * -D: metrics.dcgm.
 * Prints the Prometheus text, a form feed, and the OpenMetrics text of the same view.
 * -n ROUNDS: renders this many times and prints the time of one rendering to stderr. */
#include "serve/metrics_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(a)  (sizeof(a) / sizeof((a)[0]))
#define GPUS      256
#define WORDS_MAX 16

static struct view_device known[GPUS];
static struct gw_snapshot *snap;
static struct gw_process_list *list;

static int fail(const char *what)
{
	fprintf(stderr, "metrics_dump: %s\n", what);
	return 1;
}

static void fill(struct api *a)
{
	struct view *v = &a->view;

	v->devices = gw_snapshot_device_count(v->snap);
	v->device = known;
	for (unsigned i = 0; i < v->devices && i < GPUS; i++) {
		const struct gw_device *d = gw_snapshot_device(v->snap, i);

		known[i].seen_ns = d->state == GW_DEVICE_OK ? d->end_ns : 0;
		known[i].energy_joules = NAN;
		if (gw_device_value(d, GW_Q_ENERGY, &known[i].energy_joules) == GW_HAVE)
			known[i].energy_seconds = 12.5;
	}
	v->tick = 1;
	v->interval_ns = NS_PER_S;
	v->init_failures = 2;
	v->self = (struct view_self){ .start_wall_ns = gw_snapshot_wall_ns(v->snap),
				      .cpu_seconds = 0.123456,
				      .rss_bytes = 6 << 20,
				      .rss_peak_bytes = 7 << 20,
				      .wakeups = 12,
				      .ticks = 1,
				      .tick_seconds = 0.000731245,
				      .tick_max_seconds = 0.0015,
				      .threads = 3,
				      .descriptors = 11,
				      .store_bytes = 4096,
				      .counts_known = true };
}

static int look(struct api *a, const char *library, const char *scenario)
{
	struct gw_options o = { .size = sizeof(o),
				.backend = "nvml",
				.nvml_library = library,
				.deadline_ns = 500 * NS_PER_MS };

	setenv("GPUWARD_SIM", scenario, 1);
	if (gw_open(&o, &a->view.ctx) != 0 || gw_snapshot_new(a->view.ctx, &snap) != 0 ||
	    gw_process_list_new(a->view.ctx, &list) != 0)
		return fail("the simulator cannot be opened");
	gw_snapshot_take(snap, GW_TIERS_COMMON | GW_TIER_ENERGY);
	gw_process_list_take(list);
	gw_snapshot_take(snap, GW_TIERS_COMMON | GW_TIER_ENERGY);
	a->view.snap = snap;
	a->view.processes = list;
	fill(a);
	return 0;
}

enum listing { LIST_NAMES, LIST_DEFAULT, LIST_MARKDOWN };

static const char *const when_words[] = {
	[METRIC_ALWAYS] = "yes",
	[METRIC_ASKED] = "no",
	[METRIC_WORKERS] = "with workers",
	[METRIC_DCGM] = "with dcgm",
};

static int list_names(enum listing how)
{
	struct metric m;

	for (unsigned i = 0; metrics_table(i, &m); i++) {
		const char *type = metric_type_name(m.type, METRICS_PROMETHEUS);
		const char *end = metric_suffix(m.type), *group = metric_group_word(m.group);

		if (!m.name)
			continue;
		if (how == LIST_MARKDOWN)
			printf("| `%s%s` | %s | %s | %s | %s | %s |\n", m.name, end, type,
			       m.labels, group, when_words[m.when], m.help);
		else if (how == LIST_NAMES)
			printf("%s%s %s {%s}\n", m.name, end, type, m.labels);
		else if (m.when == METRIC_ALWAYS || m.when == METRIC_WORKERS)
			printf("%s%s %s%s\n", m.name, end, group,
			       m.when == METRIC_WORKERS ? " with workers" : "");
	}
	return 0;
}

static int list_groups(void)
{
	static const char *const helps[METRIC_GROUPS] = {
#define G(symbol, word, help) help,
#include "serve/metric.def"
#undef G
	};

	for (unsigned g = 0; g < METRIC_GROUPS; g++) {
		unsigned n[COUNT(when_words)] = { 0 };
		struct metric m;

		for (unsigned i = 0; metrics_table(i, &m); i++)
			n[m.when] += m.name && m.group == g;
		printf("| `%s` | %s | %u | %u%s |\n", metric_group_word(g), helps[g],
		       n[METRIC_ALWAYS] + n[METRIC_ASKED] + n[METRIC_WORKERS] + n[METRIC_DCGM],
		       n[METRIC_ALWAYS] + n[METRIC_WORKERS],
		       n[METRIC_WORKERS] ? ", with workers" : "");
	}
	return 0;
}

static int show(const struct api *a, enum metrics_form form, unsigned n)
{
	uint64_t begin = clock_mono_ns(clock_real());
	struct buf out;

	buf_init(&out, 16 << 20);
	for (unsigned i = 0; i < n; i++) {
		buf_clear(&out);
		metrics_render(&out, a, form);
	}
	if (n > 1)
		fprintf(stderr, "%.1f us each, %zu bytes\n",
			(double)(clock_mono_ns(clock_real()) - begin) / 1e3 / n, out.len);
	fwrite(out.p, 1, out.len, stdout);
	if (out.err)
		return fail("the page is too large");
	buf_done(&out);
	return 0;
}

int main(int argc, char **argv)
{
	struct api a = { .clock = clock_real() };
	const char *include[WORDS_MAX + 1] = { 0 }, *exclude[WORDS_MAX + 1] = { 0 };
	bool dcgm = false;
	unsigned rounds = 1, included = 0, excluded = 0;
	int opt;

	while ((opt = getopt(argc, argv, "ldmgt:n:i:x:D")) != -1) {
		switch (opt) {
		case 'l': return list_names(LIST_NAMES);
		case 'd': return list_names(LIST_DEFAULT);
		case 'm': return list_names(LIST_MARKDOWN);
		case 'g': return list_groups();
		case 'D': dcgm = true; break;
		case 'i': include[included++ % WORDS_MAX] = optarg; break;
		case 'x': exclude[excluded++ % WORDS_MAX] = optarg; break;
		case 't': a.top = (unsigned)atoi(optarg); break;
		case 'n': rounds = (unsigned)atoi(optarg); break;
		default: return 2;
		}
	}
	if (argc - optind != 2)
		return fail("see the first comment of metrics_dump.c for the arguments");
	metrics_choose(&a.metrics, include, exclude, dcgm);
	if (look(&a, argv[optind], argv[optind + 1]) != 0)
		return 1;
	/* metrics_stub.c gives the counts; the pointer is not used */
	a.http = (struct http *)&a;
	if (show(&a, METRICS_PROMETHEUS, rounds) != 0)
		return 1;
	putchar('\f');
	if (show(&a, METRICS_OPENMETRICS, rounds) != 0)
		return 1;
	gw_process_list_free(list);
	gw_snapshot_free(snap);
	gw_close(a.view.ctx);
	return fflush(stdout) == 0 ? 0 : 1;
}
