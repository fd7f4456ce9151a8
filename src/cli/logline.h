/* logline: one tick of one GPU as a line of a log, CSV or JSON.
 *
 * A table names every field that a line may have.  What is not known is empty in CSV and null
 * in JSON; reasons that are known to be none are "none" and []. */
#ifndef GW_CLI_LOGLINE_H
#define GW_CLI_LOGLINE_H

#include "base/buf.h"
#include "measure/event.h"

#include <stdint.h>

#define LOGLINE_FIELDS 24

/* What is known of a tick. */
struct logline {
	uint64_t wall_ns;
	double elapsed_s;
	unsigned index;         /* of the GPU              */
	const char *uuid;       /* NULL: unknown           */
	const char *provenance; /* "driver", "simulated", ... */
	double figure[FIGURES]; /* NAN: unknown           */
	uint64_t missed;        /* ticks before this one that have no line */
};

/* Which fields, in which order, and how. */
struct logline_format {
	bool json;
	unsigned count;
	unsigned field[LOGLINE_FIELDS]; /* numbers of the table */
};

/* All that are of use by default: CSV leaves the UUID out. */
void logline_defaults(struct logline_format *f, bool json);

/* Adds a field by its name.  0, -GW_E_NOENT, or -GW_E_ARG: it is there already. */
int logline_add_field(struct logline_format *f, const char *name);

/* Name of field number i of the table, NULL past its end. */
const char *logline_field_name(unsigned i);

/* Each with its newline.  The heading is that of CSV; JSON has none. */
void logline_heading(const struct logline_format *f, struct buf *out);
void logline_write(const struct logline_format *f, const struct logline *l, struct buf *out);

#endif
