/* metrics: writes the view as Prometheus text or OpenMetrics.
 *
 * Names, types and help come from the rows of metric.def, and for GPU quantities from
 * quantity.def. A value that is unknown has no sample. A GPU that does not respond has only its
 * up metric and its counters. */
#ifndef GW_SERVE_METRICS_H
#define GW_SERVE_METRICS_H

#include "api.h"

enum metrics_form { METRICS_PROMETHEUS, METRICS_OPENMETRICS };

/* Returns the format that an Accept header selects. */
enum metrics_form metrics_negotiate(const char *accept);
const char *metrics_type(enum metrics_form form);

struct metric;

/* Receives the samples of a page, one call per sample, in order. base and more are label pairs
 * as in metrics_text.h, or NULL. The arguments are valid only during the call. */
struct metrics_sink {
	void (*sample)(void *arg, const struct metric *m, const char *base, const char *more,
		       double value);
	void *arg;
};

/* Passes the samples that metrics_render() would write to sink. */
void metrics_each(const struct api *a, const struct metrics_sink *sink);

void metrics_render(struct buf *out, const struct api *a, enum metrics_form form);

#endif
