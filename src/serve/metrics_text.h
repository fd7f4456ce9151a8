/* metrics_text: writes families and samples as Prometheus text 0.0.4 or OpenMetrics 1.0.0.
 *
 * Hides the differences of the two formats, escaping and number formatting. A family without
 * samples is not written. Each sample is made in a local buffer and then added to the page with
 * one call. This is for speed, because there are thousands of samples per tick. */
#ifndef GW_SERVE_METRICS_TEXT_H
#define GW_SERVE_METRICS_TEXT_H

#include "metrics.h"

#include <stdint.h>

/* Label pairs, escaped and without braces: uuid="GPU-...",gpu="0". A text that is too long is
 * truncated between two characters. */
#define METRIC_LABELS_SIZE 2048
struct labels {
	unsigned len;
	char text[METRIC_LABELS_SIZE];
};

void labels_clear(struct labels *l);
/* Adds a pair. If value is NULL, writes the value "", which Prometheus treats as if the label
 * were absent. */
void labels_add(struct labels *l, const char *name, const char *value);
void labels_add_number(struct labels *l, const char *name, uint64_t value);

struct metrics_text {
	struct buf *out;
	/* If this is not NULL, it receives the samples, and `out` does not. */
	const struct metrics_sink *sink;
	enum metrics_form form;
	const struct metric *family;
	bool begun; /* The header of the family was written. */
};

/* Begins a family. A page has each family only once. m must stay valid until the next family
 * begins. */
void metrics_family(struct metrics_text *t, const struct metric *m);

/* Adds a sample to the family. base and more are label pairs; NULL or "": none. If the value is
 * not finite, it is unknown, and no sample is written. */
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

/* Writes one figure of the programs on one GPU. The `top` programs with the most memory have
 * their own samples, by name and user. All other programs are summed as name="other", so that
 * the samples add up to the total of the list. Writes nothing if the process list of the GPU is
 * unknown. */
void metrics_processes(struct metrics_text *t, const char *base, const struct view *v,
		       unsigned device, unsigned top, enum metrics_process_figure figure);

/* Returns the unit at the end of a metric's name, such as "bytes"; "": none. */
const char *metric_unit(const char *name);

/* Returns the word for a type, such as "gauge". Some words differ between Prometheus and
 * OpenMetrics. */
const char *metric_type_name(enum metric_type type, enum metrics_form form);

#endif
