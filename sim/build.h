/* build: data and functions that the readers of a scenario share. */
#ifndef SIM_BUILD_H
#define SIM_BUILD_H

#include "base/array.h"
#include "rows.h"
#include "world.h"

struct build {
	struct world *w;
	struct device *d;  /* the device being read */
	uint32_t next_pid; /* pid for the next process that has no pid in the scenario */
	const char *path;  /* path of the scenario, or its name */
};

static inline struct build *building(struct rows *r)
{
	return r->context;
}

/* Adds one element with all bytes 0 to an array on the heap and returns the element. `array` is
 * the address of the pointer to the array. Returns NULL if there is no memory. */
void *build_grow(void *array, size_t *n, size_t size);

int build_no_memory(struct rows *r, const struct toml_node *node);

/* Reads one [[gpu]] with its loads, processes and MIG instances. */
int build_gpu(struct rows *r, const struct toml_node *table);

#endif
