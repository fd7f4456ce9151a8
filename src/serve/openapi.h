/* openapi: makes /openapi.json from the table of routes.
 *
 * routes.def has the routes, docs/schema has the bodies (tests check the documents against the
 * same files). tools/openapi compiles these files into the program. */
#ifndef GW_SERVE_OPENAPI_H
#define GW_SERVE_OPENAPI_H

#include "base/buf.h"

struct openapi_text {
	const char *name, *json; /* NULL ends a table */
};
extern const struct openapi_text openapi_schemas[];
extern const struct openapi_text openapi_examples[];

/* Writes the whole document. */
void openapi_render(struct buf *out);

#endif
