/* openapi: /openapi.json, generated from the table of routes.
 *
 * routes.def has the routes, docs/schema the bodies (the tests check documents against the
 * same files); tools/openapi packs them in. */
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
