/* workload_doc: writes workloads as JSON for replies, for the history and for the state that
 * survives a restart. */
#ifndef GW_SERVE_WORKLOAD_DOC_H
#define GW_SERVE_WORKLOAD_DOC_H

#include "view.h"

#include "base/json.h"
#include "measure/workload_energy.h"

/* Kind of the stored documents of ended workloads. */
#define WORKLOAD_DOC_ENDED "workload"

/* Writes an object with the workload of a row and its figures on all its GPUs. Replies and the
 * history have the same object. */
void workload_doc_write(struct json *j, const struct view *v, const struct workload_energy *e,
			unsigned row);

/* True if no earlier row belongs to the same workload. Used to list each workload once. */
bool workload_doc_is_first(const struct workload_energy *e, unsigned row);

/* Writes an object with the parts of the energy of GPU i. The parts add up to the total. */
void workload_doc_device(struct json *j, const struct view *v, unsigned i);

/* Writes the id of the stored document of an ended workload. The id begins with the end time in
 * ms and the kind, so that a query need not parse every document. If a workload is stored again
 * after a crash, it has the same id. */
#define WORKLOAD_DOC_ID 80
void workload_doc_id(const struct workload_energy *e, unsigned row,
		     char out[static WORKLOAD_DOC_ID]);
/* For struct view_find: writes the smallest id of workloads that ended at or after since_ms,
 * and the pattern of the ids of a kind (NULL: all kinds). */
void workload_doc_ids(uint64_t since_ms, const char *kind, char from[static WORKLOAD_DOC_ID],
		      char glob[static WORKLOAD_DOC_ID]);
/* Reads the name from a stored document without parsing the whole document. Writes "" if the
 * document has no name. */
void workload_doc_name(const char *json, char *out, size_t size);

/* Writes the rows of GPU i, its energy that belongs to no row, and the energy counter to which
 * both add up. */
void workload_doc_save(struct buf *out, const struct workload_energy *e, unsigned i);
/* Adds a document of workload_doc_save() to GPU i. For counter_j, see
 * workload_energy_restore(). Returns 0, or -GW_E_PARSE if nothing was added. */
int workload_doc_load(struct workload_energy *e, unsigned i, const char *text, size_t size,
		      double counter_j);

#endif
