/* scenario: creates a world from TOML. Strict: an unknown key is an error, with its position
 * and the likely spelling. docs/SIMULATOR.md lists the keys. */
#ifndef SIM_SCENARIO_H
#define SIM_SCENARIO_H

#include <stddef.h>

#include "world.h"

/* NULL with "NAME:LINE:COLUMN: sentence" in error. Trace files are searched next to `name` if
 * it is a path. */
struct world *scenario_parse(const char *name, const char *text, size_t size, char *error,
			     size_t error_size);

/* The built-in scenarios: the text of a name, NULL if unknown; all names, NULL-terminated. */
const char *scenario_text(const char *name, size_t *size);
extern const char *const scenario_names[];

#endif
