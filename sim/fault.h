/* fault: what goes wrong with a call: a code, a delay, a hang, a sentinel. */
#ifndef SIM_FAULT_H
#define SIM_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fault {
	int call;                   /* -1: every call but init and shutdown */
	int device;                 /* -1: all                              */
	unsigned field;             /* of nvmlDeviceGetFieldValues; 0: the call itself */
	uint64_t from_ns, until_ns; /* until 0: for ever      */
	char file[256];             /* only while it is there; "": always   */
	bool has_code, hang, has_value;
	bool by_hand; /* by gpuward_sim_fault() or gpuward_sim_hang() */
	int code;
	uint64_t delay_ns;
	uint64_t value; /* what outputs hold instead          */
};

/* True where f concerns that call of that device at t (field 0: the call itself). */
bool fault_applies(const struct fault *f, int call, bool lifecycle, int device, unsigned field,
		   uint64_t t_ns);

/* The strongest faults of a call put together: the first that hangs, the longest delay, the
 * first code, the first value. */
struct fault fault_find(const struct fault *faults, size_t n, int call, bool lifecycle,
			int device, unsigned field, uint64_t t_ns);

#endif
