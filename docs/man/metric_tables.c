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

static void entry(const char *prefix, const char *name, const char *kind, const char *labels,
		  const char *help)
{
	int counter = strcmp(kind, "COUNTER") == 0;

	printf("*");
	text(prefix);
	text(name);
	text(counter ? "_total" : strcmp(kind, "INFO") == 0 ? "_info" : "");
	printf("* (%s%s", counter ? "counter" : "gauge", *labels ? "; " : "");
	text(labels);
	printf(")\n\t");
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

static void quantity(unsigned q, const char *key, const char *kind, const char *help)
{
	const char *words = strcmp(kind, "ENUM") == 0   ? "uuid,gpu,state"
			    : strcmp(kind, "MASK") == 0 ? "uuid,gpu,reason"
							: "uuid,gpu";

	for (size_t i = 0; i < COUNT(departures); i++) {
		if (departures[i].quantity != q)
			continue;
		if (departures[i].name)
			entry("", departures[i].name, kind,
			      q == GW_Q_PERFORMANCE_STATE ? "uuid,gpu" : words, help);
		return;
	}
	entry("gpuward_gpu_", key, kind, words, help);
}

int main(void)
{
	printf("gpuward-metrics(7)\n\n# NAME\n\ngpuward-metrics - metrics of gpuward for "
	       "Prometheus\n\n# DESCRIPTION\n\n*gpuward-serve*(8) answers GET /metrics "
	       "in the Prometheus text format, or in OpenMetrics if the client "
	       "requests it. The type and the labels are in brackets. An unknown value "
	       "has no sample; a GPU that does not answer has only its state and its "
	       "counts.\n\n# THE SERVICE\n\n");
#define M(symbol, group, when, name, type, labels, help) entry("", name, #type, labels, help);
#include "serve/metric.def"
#undef M
	printf("# FIGURES OF A GPU\n\nThe figures of *gpuward-quantities*(7).\n\n");
#define Q(symbol, key, kind, tier, help) quantity(GW_Q_##symbol, key, #kind, help);
#include <gpuward/quantity.def>
#undef Q
	printf("# FIGURES OF THE MACHINE\n\n");
#define H(symbol, key, kind, help) entry("gpuward_host_", key, #kind, "", help);
#include <gpuward/host.def>
#undef H
	printf("# SEE ALSO\n\n*gpuward-serve*(8), *gpuward-quantities*(7)\n");
	return 0;
}
