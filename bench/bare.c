#include "bare.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const char *const symbols[CALL_COUNT] = {
#define N(name, symbol, args) #symbol,
	NVML_CALLS(N)
#undef N
};

static int fail(const char *what, const char *why)
{
	fprintf(stderr, "bare: %s: %s\n", what, why);
	return -1;
}

static void *load(const char *path)
{
	void *lib = dlopen(path ? path : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!lib && !path)
		lib = dlopen("/usr/local/nvidia/lib64/libnvidia-ml.so.1",
			     RTLD_NOW | RTLD_LOCAL);
	return lib;
}

int bare_open(struct bare *b, const char *path)
{
	memset(b, 0, sizeof(*b));
	b->lib = load(path);
	if (!b->lib)
		return fail("dlopen", dlerror());
	for (unsigned i = 0; i < CALL_COUNT; i++) {
		void *sym = dlsym(b->lib, symbols[i]);

		memcpy(&b->nvml.any[i], &sym, sizeof(sym));
	}
	if (!b->nvml.call.init || !b->nvml.call.by_index || !b->nvml.call.shutdown)
		return fail("dlsym", "symbols are missing");
	if (b->nvml.call.init() != ABI_SUCCESS)
		return fail("nvmlInit_v2", "refused");
	if (b->nvml.call.by_index(0, &b->device) != ABI_SUCCESS) {
		b->nvml.call.shutdown();
		return fail("nvmlDeviceGetHandleByIndex_v2", "refused");
	}
	return 0;
}

void bare_close(struct bare *b)
{
	b->nvml.call.shutdown();
	dlclose(b->lib);
}

/* Calls a function unless it failed before or does not exist. */
#define CALL_ONCE(bit, fn, ...)                                               \
	do {                                                                  \
		if (!(b->refused & 1u << (bit)) &&                            \
		    (!b->nvml.call.fn ||                                      \
		     b->nvml.call.fn(b->device, __VA_ARGS__) != ABI_SUCCESS)) \
			b->refused |= 1u << (bit);                            \
	} while (0)

static void read_fields(struct bare *b)
{
	memset(b->field, 0, sizeof(b->field));
	b->field[0].field = ABI_FIELD_POWER_AVERAGE;
	b->field[1].field = ABI_FIELD_POWER_INSTANT;
	CALL_ONCE(1, fields, 2, b->field);
}

void bare_read(struct bare *b)
{
	struct abi_temperature t = { .version = ABI_TAG(struct abi_temperature, 1) };

	CALL_ONCE(0, power, &b->power);
	read_fields(b);
	b->memory.version = ABI_TAG(struct abi_memory_v2, 2);
	CALL_ONCE(2, memory_v2, &b->memory);
	CALL_ONCE(3, utilization, &b->utilization);
	CALL_ONCE(4, temperature_v, &t);
	b->temperature = (uint32_t)t.celsius;
	CALL_ONCE(5, clock, ABI_CLOCK_GRAPHICS, &b->clock[0]);
	CALL_ONCE(6, clock, ABI_CLOCK_SM, &b->clock[1]);
	CALL_ONCE(7, clock, ABI_CLOCK_MEMORY, &b->clock[2]);
	CALL_ONCE(8, pstate, &b->pstate);
	CALL_ONCE(9, reasons, &b->reasons);
}

unsigned bare_processes(struct bare *b)
{
	static struct abi_process_v2 list[256];
	uint32_t n, sum = 0;

	n = 256;
	if (b->nvml.call.compute_v3 &&
	    b->nvml.call.compute_v3(b->device, &n, list) == ABI_SUCCESS)
		sum += n;
	n = 256;
	if (b->nvml.call.graphics_v3 &&
	    b->nvml.call.graphics_v3(b->device, &n, list) == ABI_SUCCESS)
		sum += n;
	n = 256;
	if (b->nvml.call.mps_v3 && b->nvml.call.mps_v3(b->device, &n, list) == ABI_SUCCESS)
		sum += n;
	return sum;
}
