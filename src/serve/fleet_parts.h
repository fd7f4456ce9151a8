/* fleet_parts: declarations shared by fleet*.c; no other file includes it. */
#ifndef GW_SERVE_FLEET_PARTS_H
#define GW_SERVE_FLEET_PARTS_H

#include "fleet.h"

#define FLEET_GPUS_MAX 5000

/* A reason why a GPU needs attention: a row A of fleet_query.def. */
struct fleet_cause {
	const char *word;
	int rank;
	const char *promql, *what, *remedy;
};
enum {
#define A(word, ...) FLEET_CAUSE_##word,
#include "fleet_query.def"
#undef A
	FLEET_CAUSES
};
extern const struct fleet_cause fleet_causes[FLEET_CAUSES];

/* One row of an answer: its labels and its value. */
struct fleet_row {
	const struct json_doc *labels;
	double value, time_s;
};

/* Returns the number of rows of an answer; 0 if there is no answer. */
size_t fleet_rows(const struct fleet *f, enum fleet_query q);

/* Reads row i. Returns false if the row has no value that can be right. */
bool fleet_row_read(const struct fleet *f, enum fleet_query q, size_t i, struct fleet_row *ret);

/* Returns a label; "" if the row does not have it. */
const char *fleet_row_label(const struct fleet_row *r, const char *key);

/* These functions make the rows from the answers. Call fleet_make_nodes() before the others.
 * They return 0 or -GW_E_NOMEM. */
int fleet_make_nodes(struct fleet *f);
int fleet_make_attention(struct fleet *f);
int fleet_make_workloads(struct fleet *f);
int fleet_make_models(struct fleet *f);
int fleet_make_gpus(struct fleet *f);

#endif
