/* bare: the least C program that asks NVML what our FAST tier asks, and nothing else.
 *
 * It is what the library is measured against: no tables, no reasons, no clock, one GPU, answers
 * into a struct.  What the GPU refuses at the first round is not asked again, as anybody would
 * do it. */
#ifndef GW_BENCH_BARE_H
#define GW_BENCH_BARE_H

#include "device/nvml.h"

struct bare {
	void *lib;
	struct nvml nvml; /* the same pointers as the library has, filled by dlsym */
	abi_device device;
	unsigned refused; /* bit of a call that is not asked again */
	/* answers */
	uint32_t power, temperature, clock[3], pstate;
	struct abi_field_value field[2];
	struct abi_memory_v2 memory;
	struct abi_utilization utilization;
	uint64_t reasons;
};

/* dlopen (path NULL: by its usual name), nvmlInit_v2 and the handle of GPU 0.  0, or -1 with a
 * sentence on stderr. */
int bare_open(struct bare *b, const char *path);
void bare_close(struct bare *b);

/* The calls of the FAST tier, once. */
void bare_read(struct bare *b);

/* The three process lists, once; returns how many processes they have. */
unsigned bare_processes(struct bare *b);

#endif
