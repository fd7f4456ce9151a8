/* bare: the least C code that makes the NVML calls of our FAST tier. The benchmarks compare the
 * library with it.
 *
 * It has no tables, no absence reasons and no clock. It reads one GPU into a struct. A call
 * that the GPU refuses in the first round is not repeated. */
#ifndef GW_BENCH_BARE_H
#define GW_BENCH_BARE_H

#include "device/nvml.h"

struct bare {
	void *lib;
	struct nvml nvml; /* the same pointers as in the library, filled by dlsym */
	abi_device device;
	unsigned refused; /* one bit per call that failed and is not repeated */
	/* the values that the last calls returned */
	uint32_t power, temperature, clock[3], pstate;
	struct abi_field_value field[2];
	struct abi_memory_v2 memory;
	struct abi_utilization utilization;
	uint64_t reasons;
};

/* Loads the library at path (NULL: by its usual name), calls nvmlInit_v2 and gets the handle of
 * GPU 0. Returns 0, or -1 after a message on stderr. */
int bare_open(struct bare *b, const char *path);
void bare_close(struct bare *b);

/* Makes the calls of the FAST tier once. */
void bare_read(struct bare *b);

/* Reads the three process lists once; returns the number of processes. */
unsigned bare_processes(struct bare *b);

#endif
