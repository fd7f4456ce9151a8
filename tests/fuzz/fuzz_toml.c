/* Any bytes: no crash and no leak, and either a tree or an error with a place. */
#include "base/toml.h"

#include <gpuward.h>

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_node(const struct toml_node *n, unsigned depth)
{
	size_t count = 0;

	if (depth > 64 || n->line == 0 || n->column == 0)
		abort();
	for (const struct toml_node *c = n->child; c; c = c->next, count++) {
		if ((n->type == TOML_TABLE) != (c->key != NULL))
			abort();
		check_node(c, depth + 1);
	}
	if (n->type <= TOML_ARRAY && count != n->count)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct toml_error err = { 0 };
	struct toml *doc;
	int rc = toml_parse((const char *)data, size, &doc, &err);

	if (rc == 0) {
		check_node(toml_top(doc), 0);
		toml_free(doc);
	} else if (rc != -GW_E_PARSE || err.line == 0 || err.column == 0 || !err.text[0]) {
		abort();
	}
	return 0;
}
