/* openapi: makes /openapi.json.
 *
 * The routes come from routes.def, the schemas of the bodies from docs/schema, against which
 * the tests check all documents. tools/openapi compiles these files into the program. */
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
