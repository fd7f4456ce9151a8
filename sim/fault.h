/* fault: what goes wrong with a call: a return code, a delay, a hang, a placeholder value. */
#ifndef SIM_FAULT_H
#define SIM_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fault {
	int call;                   /* -1: every call except init and shutdown */
	int device;                 /* -1: all                              */
	unsigned field;             /* of nvmlDeviceGetFieldValues; 0: the call itself */
	uint64_t from_ns, until_ns; /* until 0: no end */
	char file[256];             /* only while this file exists; "": always */
	bool has_code, hang, has_value;
	bool by_hand; /* set by gpuward_sim_fault() or gpuward_sim_hang() */
	int code;
	uint64_t delay_ns;
	uint64_t value; /* written to the outputs instead */
};

/* Does f apply to this call of this device at t (field 0: the call itself)? */
bool fault_applies(const struct fault *f, int call, bool lifecycle, int device, unsigned field,
		   uint64_t t_ns);

/* Combines all faults of a call: any hang, the longest delay, the first code, the first value.
 */
struct fault fault_find(const struct fault *faults, size_t n, int call, bool lifecycle,
			int device, unsigned field, uint64_t t_ns);

#endif
