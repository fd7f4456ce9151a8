/* build: what the readers of a scenario share. */
#ifndef SIM_BUILD_H
#define SIM_BUILD_H

#include "rows.h"
#include "world.h"

#define N_ROWS(array) (sizeof(array) / sizeof((array)[0]))

struct build {
	struct world *w;
	struct device *d;  /* the device being read */
	uint32_t next_pid; /* pid of the next process without a given one */
	const char *path;  /* of the scenario, or its name */
};

static inline struct build *building(struct rows *r)
{
	return r->context;
}

/* Adds one zeroed element to the array that `array` points to; NULL: out of memory. */
void *build_grow(void *array, size_t *n, size_t size);

/* Calls `one` for each table of an array of tables. */
int build_each(struct rows *r, const struct toml_node *list,
	       int (*one)(struct rows *r, const struct toml_node *table));
int build_no_memory(struct rows *r, const struct toml_node *node);

/* [[gpu.load]], [[gpu.process]], [[gpu.mig]] of the current device; [[gpu]]. */
int build_loads(struct rows *r, const struct toml_node *node, void *target);
int build_processes(struct rows *r, const struct toml_node *node, void *target);
int build_migs(struct rows *r, const struct toml_node *node, void *target);
int build_gpus(struct rows *r, const struct toml_node *node, void *target);

#endif
