/* top_documents: fills the model of `gpuward top` from documents of the service.  Pure.
 *
 * A key that is missing or has another type is an unknown value: the service may be older or
 * newer than this program. */
#ifndef GW_CLI_TOP_DOCUMENTS_H
#define GW_CLI_TOP_DOCUMENTS_H

#include "top_model.h"

struct json_doc;

/* Each takes the document of one route and returns 0 or -GW_E_NOMEM. */
int top_read_devices(struct top_model *m, const struct json_doc *doc);   /* /api/v1/devices */
int top_read_processes(struct top_model *m, const struct json_doc *doc); /* /api/v1/processes */
int top_read_guard(struct top_model *m, const struct json_doc *doc);     /* /api/v1/guard */

/* Reads the machine from /api/v1/snapshot. */
void top_read_host(struct top_model *m, const struct json_doc *doc);

/* Adds the class of each process from /api/v1/guard/gpus/{uuid}.  Call it after
 * top_read_processes() and top_read_guard(). */
void top_read_guard_gpu(struct top_model *m, const struct json_doc *doc);

/* Replaces the history by that of /api/v1/series. */
void top_read_series(struct top_model *m, const struct json_doc *doc);

#endif
