/* scenario: a world out of TOML.  Strict: what it does not know it refuses, with the place and
 * the likely spelling.  docs/SIMULATOR.md lists the keys. */
#ifndef SIM_SCENARIO_H
#define SIM_SCENARIO_H

#include <stddef.h>

#include "world.h"

/* NULL with "NAME:LINE:COLUMN: sentence" in error.  Trace files are looked up beside `name`
 * where it is a path. */
struct world *scenario_parse(const char *name, const char *text, size_t size, char *error,
			     size_t error_size);

/* The built-in ones: name, text, NULL where there is none; names of all, NULL-terminated. */
const char *scenario_text(const char *name, size_t *size);
extern const char *const scenario_names[];

#endif
