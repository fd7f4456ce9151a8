/* cuda: runs a load that keeps a whole GPU busy with arithmetic for a given time.
 *
 * It opens libcuda.so.1 at run time and loads a kernel as PTX, so no toolkit is needed. The
 * kernel reads the clock of the GPU and ends by itself, so that no load keeps running if the
 * program is killed. */
#ifndef GW_MEASURE_CUDA_H
#define GW_MEASURE_CUDA_H

#include "sensor.h"

#include "base/clock.h"

#include <stddef.h>
#include <stdint.h>

struct cuda_load;

/* Creates a context on the GPU with this PCI id. Returns 0, and the caller owns *ret. Otherwise
 * writes a message and returns -GW_E_NOSUPPORT (no libcuda, or libcuda does not see this GPU),
 * -GW_E_IO (a call failed) or -GW_E_NOMEM. */
int cuda_load_open(const char *pci, const struct clock *clock, struct cuda_load **ret,
		   char *message, size_t size);
void cuda_load_close(struct cuda_load *c);

/* Waits until an earlier load has ended, then starts a load that runs for for_ns, and returns
 * without waiting for its end. *ret_begin_ns is the time of the start, on the clock that was
 * passed to cuda_load_open(). Returns 0 or -GW_E_IO. */
int cuda_load_on(struct cuda_load *c, uint64_t for_ns, uint64_t *ret_begin_ns);

/* Waits until no load runs. Returns 0 or -GW_E_IO. */
int cuda_load_idle(struct cuda_load *c);

/* A sensor_drive that runs this load, for sensor_learn(). */
struct cuda_drive {
	struct sensor_drive drive;
	const struct clock *clock;
	struct cuda_load *load;
};

/* Prepares d. libcuda is not opened until drive.open() is called. `clock` is the clock of the
 * context with the measured GPU. */
void cuda_drive_init(struct cuda_drive *d, const struct clock *clock);

#endif
