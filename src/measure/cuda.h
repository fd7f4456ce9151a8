/* cuda: arithmetic that keeps a whole GPU busy for a stated time.
 *
 * libcuda.so.1 is opened at run time and a kernel of PTX text is given to it, so neither a toolkit
 * nor a build against one is needed.  The kernel ends by the GPU's own clock: a program that dies
 * leaves nothing running. */
#ifndef GW_MEASURE_CUDA_H
#define GW_MEASURE_CUDA_H

#include "sensor.h"

#include "base/clock.h"

#include <stddef.h>
#include <stdint.h>

struct cuda_load;

/* A context on the GPU with this PCI id.  0 and the caller owns *ret; -GW_E_NOSUPPORT (no libcuda,
 * or it does not have this GPU), -GW_E_IO (a call failed) or -GW_E_NOMEM, with a sentence in
 * message. */
int cuda_load_open(const char *pci, const struct clock *clock, struct cuda_load **ret,
		   char *message, size_t size);
void cuda_load_close(struct cuda_load *c);

/* Starts now, returns at once, ends for_ns later.  *ret_begin_ns: when it began, on the clock.  A
 * load that is still running is waited for.  0 or -GW_E_IO. */
int cuda_load_on(struct cuda_load *c, uint64_t for_ns, uint64_t *ret_begin_ns);

/* Returns when nothing runs.  0 or -GW_E_IO. */
int cuda_load_idle(struct cuda_load *c);

/* The same as what sensor_learn() asks for. */
struct cuda_drive {
	struct sensor_drive drive;
	const struct clock *clock;
	struct cuda_load *load;
};

/* Nothing is opened yet; the clock is that of the context which will be learned on. */
void cuda_drive_init(struct cuda_drive *d, const struct clock *clock);

#endif
