/* scenario: creates a world from TOML. An unknown key is an error; the message contains its
 * position and a similar key that exists. docs/SIMULATOR.md lists the keys. */
#ifndef SIM_SCENARIO_H
#define SIM_SCENARIO_H

#include <stddef.h>

#include "world.h"

/* Creates the world. Returns NULL on failure, with "NAME:LINE:COLUMN: sentence" in error. If
 * `name` is a path, trace files are searched for in its folder. */
struct world *scenario_parse(const char *name, const char *text, size_t size, char *error,
			     size_t error_size);

/* The built-in scenarios. scenario_text() returns the text of one, NULL if the name is unknown.
 * scenario_names has all names, NULL-terminated. */
const char *scenario_text(const char *name, size_t *size);
extern const char *const scenario_names[];

#endif
