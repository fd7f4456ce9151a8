/* nvsmi: what the parts of the nvidia-smi backend share.
 *
 * nvsmi.c runs the program and keeps its answers; nvsmi_stream.c keeps one running for power
 * samples; nvsmi_text.c knows what it prints and has no state, so that it can be tested and
 * fuzzed by text alone. */
#ifndef GW_DEVICE_NVSMI_H
#define GW_DEVICE_NVSMI_H

#include "device.h"
#include "nvsmi_stream.h"

/* Each row is asked under its name; where a driver refuses that, under the older one; where it
 * refuses both, not at all. */
#define NVSMI_COLUMNS 56
enum nvsmi_name { NVSMI_NEW, NVSMI_OLD, NVSMI_NONE };

/* Asked in front of the columns, in this order: they say whose row it is. */
enum { NVSMI_INDEX, NVSMI_UUID, NVSMI_PCI, NVSMI_IDS };
#define NVSMI_FIELDS (NVSMI_IDS + NVSMI_COLUMNS)

unsigned nvsmi_column_count(void);

/* Name of column c, NULL where there is none (any more). */
const char *nvsmi_column_name(unsigned c, enum nvsmi_name which);
unsigned nvsmi_column_tiers(unsigned c); /* with which of them it is asked */

/* Cuts a line of CSV in place: blanks around fields go, quotes too.  Fills at most cap,
 * returns how many there are. */
unsigned nvsmi_split(char *line, char **fields, unsigned cap);

/* Puts what a field says into the report: the value, or why there is none. */
void nvsmi_apply(struct report *r, unsigned c, const char *field);

/* GW_HAVE where a field holds something, or what its "[N/A]" or "[...]" means. */
enum gw_absence nvsmi_absence(const char *field);

/* Why an answer is no answer, from its words; GW_CAUSE_NONE where they say nothing. */
enum gw_cause nvsmi_cause(const char *text);

/* The field that a driver does not know, copied from its complaint.  false: none. */
bool nvsmi_refused(const char *text, char *out, size_t size);

/* What became of the power samples of an open nvidia-smi backend so far.  Thread-safe. */
struct backend;
void nvsmi_facts(struct backend *b, struct nvsmi_facts *ret);

#endif
