/* profile: the GPUs that a scenario can use. Numbers without a measured or published source
 * are plausible guesses. */
#ifndef SIM_PROFILE_H
#define SIM_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "sensor.h"

enum profile_trait {
	TRAIT_ECC = 1u << 0,
	/* The GPU can remap rows of its memory (data-centre GPUs from Ampere on). */
	TRAIT_ROWS = 1u << 1,
	TRAIT_MIG = 1u << 2,
	TRAIT_GPM = 1u << 3, /* The driver reports GPM metrics (Hopper and later). */
	/* The driver reports fields 193-196 and the temperature margin (Ada and later). */
	TRAIT_TLIMIT = 1u << 4,
	TRAIT_DISPLAY = 1u << 5, /* A display is attached. */
	/* Instant power and the energy counter include the whole module. */
	TRAIT_MODULE = 1u << 6,
	TRAIT_SHARED_MEMORY = 1u << 7,  /* CPU and GPU share the memory. */
	TRAIT_NO_LIMIT = 1u << 8,       /* The power limit cannot be read or set (laptops). */
	TRAIT_MEMORY_SENSOR = 1u << 9,  /* The driver reports the temperature of the memory. */
	TRAIT_MEMORY_POWER = 1u << 10,  /* The driver reports the power of the memory. */
	TRAIT_PCIE_COUNTERS = 1u << 11, /* The driver reports fields 197 and 198. */
};

struct profile {
	const char *key, *name, *part, *vbios;
	unsigned traits;
	struct {
		unsigned architecture, major, minor, cores;
	} chip;
	uint32_t device_id, subsystem_id;
	uint64_t memory_mib, reserved_kib, bar1_mib;
	/* Power in three cases: the GPU is idle; a context is open; the GPU is fully busy. */
	double idle_w, context_w, max_w;
	struct {
		double min_w, max_w, default_w;
	} limit;
	struct {
		double idle_sm, sm, memory, video;
	} mhz;
	unsigned fans, pcie_generation, pcie_width, idle_pstate, virtualization;
	struct {
		double ambient_c, c_per_w, constant_s;
		int shutdown_c, slowdown_c, memory_max_c, gpu_max_c;
	} heat;
	struct sensor_params sensor;
};

/* Returns the profile with this key, or NULL if there is none. */
const struct profile *profile_find(const char *key);

extern const struct profile profiles[];
extern const unsigned n_profiles;

#endif
