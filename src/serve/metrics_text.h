/* metrics_text: families and samples as Prometheus text 0.0.4 or OpenMetrics 1.0.0.
 *
 * Hides the differences of the two formats, escaping and number formatting. A family without
 * samples is not written. A sample is built in a local buffer and added at once, because there
 * are thousands per tick. */
#ifndef GW_SERVE_METRICS_TEXT_H
#define GW_SERVE_METRICS_TEXT_H

#include "metrics.h"

#include <stdint.h>

/* Label pairs, escaped, without braces: uuid="GPU-...",gpu="0". Truncated between characters
 * if too long. */
#define METRIC_LABELS_SIZE 2048
struct labels {
	unsigned len;
	char text[METRIC_LABELS_SIZE];
};

void labels_clear(struct labels *l);
/* Adds a pair. value NULL: written as "", which Prometheus treats as no label. */
void labels_add(struct labels *l, const char *name, const char *value);
void labels_add_number(struct labels *l, const char *name, uint64_t value);

struct metrics_text {
	struct buf *out;
	const struct metrics_sink *sink; /* gets the samples instead of out; NULL: none */
	enum metrics_form form;
	const struct metric *family;
	bool begun; /* the header of the family is written */
};

/* Begins a family; m is borrowed. A family must not be begun twice. */
void metrics_family(struct metrics_text *t, const struct metric *m);

/* Adds a sample. base and more: label pairs, NULL or "" for none. A non-finite value means
 * unknown: no sample is written. */
void metrics_sample(struct metrics_text *t, const char *base, const char *more, double value);

/* Ends the document. */
void metrics_end(struct metrics_text *t);

enum metrics_process_figure {
	METRICS_PROCESS_MEMORY,
	METRICS_PROCESS_SM,
	METRICS_PROCESS_POWER,
	METRICS_PROCESS_ENERGY,
	METRICS_PROCESS_FIGURES
};

/* Writes one figure of the programs on one GPU: the `top` programs with the most memory, by
 * name and user, and all other programs as name="other", so that the samples add up to the
 * total of the list. Writes nothing if the process list of the GPU is unknown. */
void metrics_processes(struct metrics_text *t, const char *base, const struct view *v,
		       unsigned device, unsigned top, enum metrics_process_figure figure);

/* Returns the unit at the end of a name; "": none. */
const char *metric_unit(const char *name);

/* Returns "gauge", ...; some words differ between Prometheus and OpenMetrics. */
const char *metric_type_name(enum metric_type type, enum metrics_form form);

#endif
