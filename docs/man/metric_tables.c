/* Prints gpuward-metrics(7) from serve/metric.def and the tables in include/gpuward. */
#include <gpuward.h>

#include <stdio.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Escapes the characters that scdoc treats as markup. */
static void text(const char *s)
{
	for (; *s; s++) {
		if (*s == '_' || *s == '*' || *s == '\\' || *s == '#' || *s == '[')
			putchar('\\');
		putchar(*s);
	}
}

static const char *const words[] = {
#define G(symbol, word, help) word,
#include "serve/metric.def"
#undef G
};

enum {
#define G(symbol, word, help) GROUP_##symbol,
#include "serve/metric.def"
#undef G
};

/* Where a metric belongs, and when it is served. */
struct place {
	unsigned group;
	const char *when;
};

static void group(const char *word, const char *help)
{
	printf("*");
	text(word);
	printf("*\n\t");
	text(help);
	printf(".\n\n");
}

static void entry(const char *prefix, const char *name, const char *kind, const char *labels,
		  struct place at, const char *help)
{
	const char *when = strcmp(at.when, "ASKED") == 0     ? ", off"
			   : strcmp(at.when, "WORKERS") == 0 ? ", workers"
							     : "";
	int counter = strcmp(kind, "COUNTER") == 0;

	printf("*");
	text(prefix);
	text(name);
	text(counter ? "_total" : strcmp(kind, "INFO") == 0 ? "_info" : "");
	printf("* (%s%s", counter || strcmp(kind, "TALLY") == 0 ? "counter" : "gauge",
	       *labels ? "; " : "");
	text(labels);
	printf("; ");
	text(words[at.group]);
	printf("%s)\n\t", when);
	text(help);
	printf(".\n\n");
}

static const struct {
	unsigned quantity;
	const char *name;
} departures[] = {
#define N(symbol, name, how) { GW_Q_##symbol, name },
#include "serve/metric.def"
#undef N
};

static const struct place places[] = {
#define Q(symbol, group, when) { GROUP_##group, #when },
#include "serve/metric.def"
#undef Q
};

static void quantity(unsigned q, const char *key, const char *kind, const char *help)
{
	const char *labels = strcmp(kind, "ENUM") == 0   ? "uuid,gpu,state"
			     : strcmp(kind, "MASK") == 0 ? "uuid,gpu,reason"
							 : "uuid,gpu";

	for (size_t i = 0; i < COUNT(departures); i++) {
		if (departures[i].quantity != q)
			continue;
		if (departures[i].name)
			entry("", departures[i].name, kind,
			      q == GW_Q_PERFORMANCE_STATE ? "uuid,gpu" : labels, places[q],
			      help);
		return;
	}
	entry("gpuward_gpu_", key, kind, labels, places[q], help);
}

int main(void)
{
	printf("gpuward-metrics(7)\n\n# NAME\n\ngpuward-metrics - metrics of gpuward for "
	       "Prometheus\n\n# DESCRIPTION\n\n*gpuward-serve*(8) answers GET /metrics "
	       "in the Prometheus text format, or in OpenMetrics if the client "
	       "requests it. The type and the labels are in brackets. An unknown value "
	       "has no sample; a GPU that does not answer has only its state and its "
	       "counters.\n\nBy default, the metrics are those that dashboards and alerts "
	       "need: at most 60 series per GPU and 60 per machine. The settings "
	       "metrics.include and metrics.exclude of *gpuward.toml*(5) change that. Both "
	       "are lists of groups, names, and names with \\*. A name has priority over a "
	       "group, and a group over a name with \\*. Each metric below has its group in "
	       "brackets; a metric that is not in the default set has the word \"off\", and "
	       "one that is served only while the guard has a worker has \"workers\".\n\n"
	       "```\n[metrics]\ninclude = [\"ecc\", \"gpuward_gpu_pcie_*\"]\n"
	       "exclude = [\"host\", \"compat\"]\n```\n\n# GROUPS\n\n");
#define G(symbol, word, help) group(word, help);
#include "serve/metric.def"
#undef G
	printf("# THE SERVICE\n\n");
#define M(symbol, group, when, name, type, labels, help) \
	entry("", name, #type, labels, (struct place){ GROUP_##group, #when }, help);
#include "serve/metric.def"
#undef M
	printf("# FIGURES OF A GPU\n\nThe figures of *gpuward-quantities*(7).\n\n");
#define Q(symbol, key, kind, tier, help) quantity(GW_Q_##symbol, key, #kind, help);
#include <gpuward/quantity.def>
#undef Q
	printf("# FIGURES OF THE MACHINE\n\n");
#define H(symbol, key, kind, help) \
	entry("gpuward_host_", key, #kind, "", (struct place){ GROUP_HOST, "" }, help);
#include <gpuward/host.def>
#undef H
	printf("# NAMES OF DCGM-EXPORTER\n\nThe setting metrics.dcgm adds them.\n\n");
#define DCGM(name, type, source, factor, help)                          \
	entry("", name, #type,                                          \
	      "gpu,UUID,pci_bus_id,device,modelName,Hostname,hostname," \
	      "DCGM_FI_DRIVER_VERSION",                                 \
	      (struct place){ GROUP_DCGM, "" }, help);
#include "serve/dcgm.def"
#undef DCGM
	printf("# SEE ALSO\n\n*gpuward-serve*(8), *gpuward-quantities*(7)\n");
	return 0;
}
