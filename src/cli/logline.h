/* logline: formats one tick of one GPU as a line of a log, CSV or JSON.
 *
 * An unknown value is empty in CSV and null in JSON.  If it is known that nothing reduces the
 * clocks, the field for clock reasons is "none" in CSV and [] in JSON. */
#ifndef GW_CLI_LOGLINE_H
#define GW_CLI_LOGLINE_H

#include "base/buf.h"
#include "measure/event.h"

#include <stdint.h>

#define LOGLINE_FIELDS 24

struct logline {
	uint64_t wall_ns;
	double elapsed_s;
	unsigned index;
	const char *uuid;       /* NULL: unknown           */
	const char *provenance; /* "driver", "simulated", ... */
	double figure[FIGURES]; /* one value per figure; NAN: unknown */
	uint64_t missed;        /* number of ticks directly before this one that have no line */
};

struct logline_format {
	bool json;
	unsigned count;
	unsigned field[LOGLINE_FIELDS]; /* field numbers, as for logline_field_name() */
};

/* Selects the default fields; CSV leaves out the UUID. */
void logline_defaults(struct logline_format *f, bool json);

/* Adds a field by its name.  Returns 0, -GW_E_NOENT if there is no such field, or -GW_E_ARG if
 * it is already selected. */
int logline_add_field(struct logline_format *f, const char *name);

/* Returns the name of field number i, or NULL after the last field. */
const char *logline_field_name(unsigned i);

/* Append the heading or a line, with a newline.  JSON has no heading. */
void logline_heading(const struct logline_format *f, struct buf *out);
void logline_write(const struct logline_format *f, const struct logline *l, struct buf *out);

#endif
