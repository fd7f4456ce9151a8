/* log_text: writes the texts of `gpuward log`: a line per GPU and tick as CSV or JSON, and the
 * summary at the end.
 *
 * An unknown value is empty in CSV and null in JSON.  If it is known that nothing reduces the
 * clocks, the field for the reasons is "none" in CSV and [] in JSON. */
#ifndef GW_CLI_LOG_TEXT_H
#define GW_CLI_LOG_TEXT_H

#include "option.h"

#include "base/buf.h"
#include "base/json.h"
#include "measure/event.h"
#include "measure/stat.h"
#include "serve/render.h"

#include <stdint.h>

#define LOG_FIELDS 24

struct log_line {
	uint64_t wall_ns;
	double elapsed_s;
	unsigned index;
	const char *uuid;       /* UUID of the GPU. NULL: unknown. */
	const char *provenance; /* Source of the values: "driver", "simulated" and others. */
	double figure[FIGURES]; /* One value per figure. NAN: unknown. */
	uint64_t missed; /* Number of ticks directly before this tick that have no line. */
};

struct log_format {
	bool json;
	unsigned count;
	unsigned field[LOG_FIELDS]; /* Numbers of the fields, as in log_line_field_name(). */
};

/* Selects the named fields in this order.  If no field is named, selects the default fields;
 * CSV has no UUID by default.  Prints an error if there is no such field, or if a field is
 * named twice.  Returns EXIT_OK or EXIT_USAGE. */
int log_line_choose(struct log_format *f, bool json, const struct option_list *fields);

/* Returns the name of field number i, or NULL after the last field. */
const char *log_line_field_name(unsigned i);

/* log_line_heading() appends the heading; JSON has no heading. log_line_write() appends one
 * line. Both append a newline. */
void log_line_heading(const struct log_format *f, struct buf *out);
void log_line_write(const struct log_format *f, const struct log_line *l, struct buf *out);

/* What the summary at the end of a log says about one GPU. */
struct log_gpu {
	const struct gw_device *device;
	/* Number of ticks. `collected` is at most `expected`. */
	unsigned long expected, collected;
	/* Number of ticks without a line, because the reader was too slow. */
	unsigned long dropped;
	/* Longest time between two ticks, or from the last tick to the end. NAN if there are
	 * fewer than two ticks. */
	double longest_s;
	struct moments power;    /* The power at the ticks, weighted by time. */
	struct histogram spread; /* How long the power had each value. */
	struct gw_energy energy; /* Energy of the window around the whole log. */
};

/* log_gpu_print() prints the summary of a GPU on standard error.  log_gpu_render() writes the
 * summary as a JSON object. */
void log_gpu_print(const struct log_gpu *g, const struct energy_cost *cost);
void log_gpu_render(struct json *j, const struct log_gpu *g, const struct energy_cost *cost);

#endif
