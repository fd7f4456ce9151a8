/* nvml_set: reads and writes the settings of one device; the calls that write need root.
 *
 * Code that measures never calls these functions. A power limit and locked clocks last until
 * the driver is unloaded, the modes until the next boot. A clock lock can be set and removed
 * but not read. */
#include "nvml.h"

#include <math.h>
#include <stdio.h>

#define VOLATILE 0 /* ECC counters since the driver was loaded */

/* The calls for each setting. CALL_COUNT means that there is no such call. */
static const struct {
	enum nvml_call set, older, reset;
} calls[MANAGE_WHATS] = {
	[MANAGE_PERSISTENCE] = { CALL_set_persistence, CALL_COUNT, CALL_COUNT },
	[MANAGE_POWER_LIMIT] = { CALL_set_power_limit_v2, CALL_set_power_limit, CALL_COUNT },
	[MANAGE_COMPUTE_MODE] = { CALL_set_compute_mode, CALL_COUNT, CALL_COUNT },
	[MANAGE_GPU_CLOCKS] = { CALL_set_gpu_clocks, CALL_COUNT, CALL_reset_gpu_clocks },
	[MANAGE_MEMORY_CLOCKS] = { CALL_set_memory_clocks, CALL_COUNT,
				   CALL_reset_memory_clocks },
	[MANAGE_CLEAR_ECC] = { CALL_clear_ecc, CALL_COUNT, CALL_COUNT },
};

static bool has_call(const struct nvml *n, enum nvml_call call)
{
	return call != CALL_COUNT && n->any[call];
}

bool nvml_can_set(struct device *d, enum manage_what what)
{
	const struct nvml *n = nvml_of(d);

	return (has_call(n, calls[what].set) || has_call(n, calls[what].older)) &&
	       (calls[what].reset == CALL_COUNT || has_call(n, calls[what].reset));
}

static int error_of(abi_return code)
{
	switch (code) {
	case ABI_SUCCESS: return 0;
	case ABI_INVALID_ARGUMENT:
	case ABI_FREQ_NOT_SUPPORTED: return -GW_E_ARG;
	case ABI_NOT_SUPPORTED:
	case ABI_FUNCTION_NOT_FOUND:
	case ABI_VGPU_ECC_NOT_SUPPORTED:
	case ABI_ARGUMENT_VERSION_MISMATCH:
	case ABI_DEPRECATED: return -GW_E_NOSUPPORT;
	case ABI_NO_PERMISSION: return -GW_E_PERM;
	case ABI_IN_USE:
	case ABI_INVALID_STATE: return -GW_E_STATE;
	case ABI_TIMEOUT:
	case ABI_NOT_READY: return -GW_E_TIMEOUT;
	default: break;
	}
	switch (nvml_meaning(code)->reaction) {
	case REACT_LOST:
	case REACT_REOPEN: return -GW_E_LOST;
	default: return -GW_E_IO;
	}
}

/* Converts a return code to an error and writes its message. Marks the device if it is lost. */
static int finish_call(struct device *d, enum nvml_call call, abi_return code, char *detail,
		       size_t size)
{
	char name[24];

	detail[0] = '\0';
	if (code != ABI_SUCCESS)
		snprintf(detail, size, "%s: %s", nvml_symbol[call], nvml_code_name(code, name));
	nvml_react(d, code);
	return error_of(code);
}

static int get_u32(struct device *d, enum nvml_call call, double *ret, char *detail,
		   size_t size)
{
	uint32_t v = ABI_NO_U32;
	abi_return code = ABI_FUNCTION_NOT_FOUND;

	if (has_call(nvml_of(d), call))
		code = NVML_ANY(nvml_u32_fn, d, call, &v);
	if (code == ABI_SUCCESS && v == ABI_NO_U32)
		code = ABI_NO_DATA;
	if (code == ABI_SUCCESS)
		*ret = v;
	return finish_call(d, call, code, detail, size);
}

static int get_ecc(struct device *d, double ret[2], char *detail, size_t size)
{
	abi_return code = ABI_FUNCTION_NOT_FOUND;

	if (nvml_of(d)->call.ecc_errors)
		code = ABI_SUCCESS;
	for (uint32_t kind = 0; kind < 2 && code == ABI_SUCCESS; kind++) {
		uint64_t v = ABI_NO_U64;

		code = NVML(d, ecc_errors, nvml_device_of(d)->handle, kind, VOLATILE, &v);
		if (code == ABI_SUCCESS && v == ABI_NO_U64)
			code = ABI_NO_DATA;
		if (code == ABI_SUCCESS)
			ret[kind] = (double)v;
	}
	return finish_call(d, CALL_ecc_errors, code, detail, size);
}

int nvml_get(struct device *d, enum manage_what what, double ret[2], char *detail, size_t size)
{
	int err = 0;

	ret[0] = ret[1] = NAN;
	detail[0] = '\0';
	if (!d->priv || !nvml_device_of(d)->handle)
		return -GW_E_LOST;
	switch (what) {
	case MANAGE_PERSISTENCE: return get_u32(d, CALL_persistence, ret, detail, size);
	case MANAGE_COMPUTE_MODE: return get_u32(d, CALL_compute_mode, ret, detail, size);
	case MANAGE_POWER_LIMIT:
		/* Reads the requested limit. The enforced limit may be lower, because of the
		 * board. */
		err = get_u32(d, CALL_power_limit, ret, detail, size);
		ret[0] /= 1e3;
		return err;
	case MANAGE_CLEAR_ECC: return get_ecc(d, ret, detail, size);
	default: return 0; /* NVML has no call that reads a clock lock. */
	}
}

static abi_return set_power_limit(struct device *d, double watts, enum nvml_call *call)
{
	abi_device h = nvml_device_of(d)->handle;
	uint32_t mw = (uint32_t)lround(watts * 1e3);
	struct abi_power_value_v2 v = { ABI_TAG(struct abi_power_value_v2, 2), ABI_SCOPE_GPU,
					mw };
	abi_return code = ABI_FUNCTION_NOT_FOUND;

	if (nvml_of(d)->call.set_power_limit_v2)
		code = NVML(d, set_power_limit_v2, h, &v);
	if (error_of(code) != -GW_E_NOSUPPORT || !nvml_of(d)->call.set_power_limit)
		return code;
	*call = CALL_set_power_limit;
	return NVML(d, set_power_limit, h, mw);
}

static uint32_t nvml_mhz(double hertz)
{
	return (uint32_t)lround(hertz / MANAGE_HZ_PER_MHZ);
}

static abi_return set_value(struct device *d, enum manage_what what, const double v[2],
			    enum nvml_call *call)
{
	abi_device h = nvml_device_of(d)->handle;

	switch (what) {
	case MANAGE_PERSISTENCE: return NVML(d, set_persistence, h, v[0] != 0);
	case MANAGE_POWER_LIMIT: return set_power_limit(d, v[0], call);
	case MANAGE_COMPUTE_MODE: return NVML(d, set_compute_mode, h, (uint32_t)v[0]);
	case MANAGE_GPU_CLOCKS:
		return NVML(d, set_gpu_clocks, h, nvml_mhz(v[0]), nvml_mhz(v[1]));
	case MANAGE_MEMORY_CLOCKS:
		return NVML(d, set_memory_clocks, h, nvml_mhz(v[0]), nvml_mhz(v[1]));
	default: return NVML(d, clear_ecc, h, VOLATILE);
	}
}

static abi_return reset_value(struct device *d, enum manage_what what)
{
	abi_device h = nvml_device_of(d)->handle;

	if (what == MANAGE_GPU_CLOCKS)
		return NVML(d, reset_gpu_clocks, h);
	if (what == MANAGE_MEMORY_CLOCKS)
		return NVML(d, reset_memory_clocks, h);
	/* The other settings have a default value and need no call that resets them. */
	return ABI_NOT_SUPPORTED;
}

int nvml_set(struct device *d, enum manage_what what, const double value[2], char *detail,
	     size_t size)
{
	enum nvml_call call = value ? calls[what].set : calls[what].reset;

	detail[0] = '\0';
	if (!d->priv || !nvml_device_of(d)->handle)
		return -GW_E_LOST;
	if (!nvml_can_set(d, what) || call == CALL_COUNT)
		return -GW_E_NOSUPPORT;
	if (value) {
		abi_return code = set_value(d, what, value, &call);

		return finish_call(d, call, code, detail, size);
	}
	return finish_call(d, call, reset_value(d, what), detail, size);
}
