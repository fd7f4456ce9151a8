/* metrics_text: families and samples as Prometheus text 0.0.4 or OpenMetrics 1.0.0.
 *
 * Hides what the two forms differ in, escaping, and how a number becomes text.  A family that has
 * no sample is not written at all.  A sample is put together beside and added in one piece, for
 * there are thousands and they are made every tick. */
#ifndef GW_SERVE_METRICS_TEXT_H
#define GW_SERVE_METRICS_TEXT_H

#include "metrics.h"

#include <stdint.h>

enum metric_type { METRIC_GAUGE, METRIC_COUNTER, METRIC_INFO, METRIC_UNKNOWN };

struct metric {
	const char *name; /* without _total and _info */
	const char *help;
	const char *labels; /* their names, joined by commas */
	enum metric_type type;
};

/* Label pairs, escaped, without braces: uuid="GPU-...",gpu="0".  What does not fit is cut between
 * characters. */
#define METRIC_LABELS_SIZE 2048
struct labels {
	unsigned len;
	char text[METRIC_LABELS_SIZE];
};

void labels_clear(struct labels *l);
/* value NULL: as "", which is no label to Prometheus. */
void labels_add(struct labels *l, const char *name, const char *value);
void labels_add_number(struct labels *l, const char *name, uint64_t value);

struct metrics_text {
	struct buf *out;
	enum metrics_form form;
	const struct metric *family;
	bool begun; /* the head of the family was written */
};

/* Begins a family (borrowed); the one before must not come again. */
void metrics_family(struct metrics_text *t, const struct metric *m);

/* A sample of it.  base and more: pairs as of struct labels, NULL or "" for none.  A value that is
 * not finite is not known: no sample. */
void metrics_sample(struct metrics_text *t, const char *base, const char *more, double value);

/* Ends the document. */
void metrics_end(struct metrics_text *t);

/* Every family there is, by number; false past the end. */
bool metrics_table(unsigned i, struct metric *ret);

/* Memory of the programs on one GPU: the `top` that hold most, by name and user, and what all others
 * hold together as name="other", so that the sum is that of the list.  Nothing where the list of the
 * GPU could not be read. */
void metrics_processes(struct metrics_text *t, const char *base,
		       const struct gw_process_list *list, unsigned device, unsigned top);

/* The unit that ends a name, "" where none does. */
const char *metric_unit(const char *name);

/* "_total", "_info" or "". */
const char *metric_suffix(enum metric_type type);

/* "gauge", ...; Prometheus and OpenMetrics have different words for some. */
const char *metric_type_name(enum metric_type type, enum metrics_form form);

#endif
