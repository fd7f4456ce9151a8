/* nvsmi: what the parts of the nvidia-smi backend share.
 *
 * nvsmi.c runs the program and stores its output; nvsmi_stream.c keeps one nvidia-smi process
 * running for power samples; nvsmi_text.c parses the output and has no state, so that it can be
 * tested and fuzzed with text alone. */
#ifndef GW_DEVICE_NVSMI_H
#define GW_DEVICE_NVSMI_H

#include "backend.h"
#include "nvsmi_stream.h"

/* Each column is requested by its name. If the driver refuses the name, the older name is used;
 * if the driver refuses that too, the column is not requested. */
#define NVSMI_COLUMNS 56
enum nvsmi_name { NVSMI_NEW, NVSMI_OLD, NVSMI_NONE };

/* These columns identify the GPU of a row. They are requested before all others, in this
 * order. */
enum { NVSMI_INDEX, NVSMI_UUID, NVSMI_PCI, NVSMI_IDS };
#define NVSMI_FIELDS (NVSMI_IDS + NVSMI_COLUMNS)

unsigned nvsmi_column_count(void);

/* Returns the new or the old name of column c; NULL if the column has no such name. */
const char *nvsmi_column_name(unsigned c, enum nvsmi_name which);
unsigned nvsmi_column_tiers(unsigned c); /* the tiers that need column c */

/* Splits a CSV line in place; removes quotes and blanks around fields. Fills at most cap fields
 * and returns how many there are. */
unsigned nvsmi_split(char *line, char **fields, unsigned cap);

/* Stores a field in the report: the value, or why there is none. */
void nvsmi_apply(struct report *r, unsigned c, const char *field);

/* Returns GW_HAVE if a field has a value, otherwise the meaning of its "[N/A]" or "[...]". */
enum gw_absence nvsmi_absence(const char *field);

/* Returns the cause that an error text describes; GW_CAUSE_NONE: unknown. */
enum gw_cause nvsmi_cause(const char *text);

/* Writes the name of the column that the driver does not know, from its error message. Returns
 * false if the text is no such message. */
bool nvsmi_refused(const char *text, char *out, size_t size);

/* Statistics of an open nvidia-smi backend. Thread-safe; never waits: returns false if the
 * program runs right now, or if b is not that backend. */
struct backend;
bool nvsmi_facts(struct backend *b, struct nvsmi_facts *ret);

#endif
