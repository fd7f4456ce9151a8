/* openapi: makes /openapi.json.
 *
 * openapi.c includes the routes (routes.def). tools/openapi writes the schemas of the bodies
 * (docs/schema) and their examples as the C tables below. The tests check all documents against
 * these schemas. */
#ifndef GW_SERVE_OPENAPI_H
#define GW_SERVE_OPENAPI_H

#include "base/buf.h"

struct openapi_text {
	const char *name, *json; /* The last row of a table has name NULL. */
};
extern const struct openapi_text openapi_schemas[];
extern const struct openapi_text openapi_examples[];

/* Writes the whole document. */
void openapi_render(struct buf *out);

#endif
