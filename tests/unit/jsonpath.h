/* jsonpath: looks into a JSON text.  In a file of its own, because jansson's names are those of our
 * writer. */
#ifndef TESTS_JSONPATH_H
#define TESTS_JSONPATH_H

/* The value at "devices.0.index" as compact JSON, or NULL: not there, or no JSON.  free() it. */
char *json_at(const char *text, const char *path);

#endif
