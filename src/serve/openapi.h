/* openapi: /openapi.json, made of the table that dispatches.
 *
 * routes.def says what there is; docs/schema what bodies look like (the same files that the tests
 * hold the documents against), packed in by tools/openapi. */
#ifndef GW_SERVE_OPENAPI_H
#define GW_SERVE_OPENAPI_H

#include "base/buf.h"

struct openapi_text {
	const char *name, *json; /* NULL ends a table */
};
extern const struct openapi_text openapi_schemas[];
extern const struct openapi_text openapi_examples[];

/* The whole document. */
void openapi_render(struct buf *out);

#endif
