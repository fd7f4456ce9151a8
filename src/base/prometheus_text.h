/* prometheus_text: reads Prometheus text and OpenMetrics, line by line. Pure.
 *
 * `gpuward measure --count-url` and the service use this module to read the counters of a
 * server. Nothing is copied or allocated: a struct prometheus_line points into the text. */
#ifndef GW_BASE_PROMETHEUS_TEXT_H
#define GW_BASE_PROMETHEUS_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct prometheus_label {
	char key[128], value[512];
};

/* A line with a sample. */
struct prometheus_line {
	const char *name; /* not NUL-terminated */
	size_t name_len;
	/* The labels with their braces, as in the text. labels_len is 0 if the line has no
	 * labels or malformed labels. */
	const char *labels;
	size_t labels_len;
	double value; /* NAN if `valid` is false */
	bool valid;   /* Both the labels and the value are well-formed. */
};

/* Reads the next sample at *text and moves *text past its line; skips comments and empty lines.
 * The text ends with NUL. Returns false at the end. */
bool prometheus_text_next(const char **text, struct prometheus_line *ret);

/* True if the line is a sample of this metric. */
bool prometheus_line_is(const struct prometheus_line *l, const char *name);

/* Reads the next key="value" at *p, which is after the opening brace or after an earlier label.
 * Returns 1. Returns 0 at the closing brace, and moves *p past the brace. Returns -1 if the
 * label is malformed or too long. */
int prometheus_label_next(const char **p, struct prometheus_label *ret);

/* Copies the value of a label of the line. Returns false and writes "" if the line does not
 * have the label, or if the value does not fit. */
bool prometheus_line_label(const struct prometheus_line *l, const char *key, char *out,
			   size_t size);

#endif
