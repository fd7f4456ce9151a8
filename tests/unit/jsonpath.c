#include "jsonpath.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *step(json_t *v, const char *word)
{
	if (json_is_array(v))
		return json_array_get(v, (size_t)atoi(word));
	return json_object_get(v, word);
}

char *json_at(const char *text, const char *path)
{
	json_error_t e;
	json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &e), *v = root;
	char words[256], *word, *rest = words, *out;

	if (!root) {
		fprintf(stderr, "no JSON: %s\n%s\n", e.text, text);
		return NULL;
	}
	snprintf(words, sizeof(words), "%s", path);
	while (v && (word = strsep(&rest, ".")))
		v = *word ? step(v, word) : v;
	out = v ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
	json_decref(root);
	return out;
}
