/* jsonpath: reads values of a JSON text. It is a separate file because jansson and our
 * writer share names. */
#ifndef TESTS_JSONPATH_H
#define TESTS_JSONPATH_H

/* The value at a path like "devices.0.index" as compact JSON, or NULL. The caller frees it. */
char *json_at(const char *text, const char *path);

#endif
