/* jsonpath: reads values of a JSON text. It is a separate file because names of jansson and of
 * our JSON writer conflict. */
#ifndef TESTS_JSONPATH_H
#define TESTS_JSONPATH_H

/* Returns the value at a path such as "devices.0.index" as compact JSON, or NULL. The caller
 * frees it. */
char *json_at(const char *text, const char *path);

#endif
