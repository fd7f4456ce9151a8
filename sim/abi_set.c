/* NVML calls that change the device. All of them need a privileged caller; the scenario decides
 * whether the caller is privileged. A fault with a `value` simulates a driver that reports
 * success but sets that value instead. */
#include <string.h>

#include "abi.h"

static abi_return finish_change(struct ctx *c)
{
	device_changed(c->d);
	device_advance(c->w, c->d, c->now_ns);
	return ABI_SUCCESS;
}

static abi_return set_limit(struct ctx *c, uint32_t milliwatts)
{
	double watts = milliwatts * 1e-3;

	if (c->d->p.traits & TRAIT_NO_LIMIT)
		return ABI_NOT_SUPPORTED;
	if (watts < c->d->p.limit.min_w || watts > c->d->p.limit.max_w)
		return ABI_INVALID_ARGUMENT;
	c->d->set.limit_w = abi_u32(c, milliwatts) * 1e-3;
	return finish_change(c);
}

SET_CALL(nvmlDeviceSetPowerManagementLimit, (uint32_t milliwatts), milliwatts)
{
	return set_limit(c, milliwatts);
}

SET_CALL(nvmlDeviceSetPowerManagementLimit_v2, (struct abi_power_value_v2 * value), value)
{
	if (value == NULL)
		return ABI_INVALID_ARGUMENT;
	if (value->version != ABI_TAG(struct abi_power_value_v2, 2))
		return ABI_ARGUMENT_VERSION_MISMATCH;
	if (value->scope != ABI_SCOPE_GPU)
		return ABI_NOT_SUPPORTED;
	return set_limit(c, value->milliwatts);
}

SET_CALL(nvmlDeviceSetPersistenceMode, (uint32_t mode), mode)
{
	if (mode > 1)
		return ABI_INVALID_ARGUMENT;
	c->d->set.persistence = abi_u32(c, mode) != 0;
	return finish_change(c);
}

SET_CALL(nvmlDeviceSetComputeMode, (uint32_t mode), mode)
{
	if (mode == 1 || mode > 3)
		return ABI_INVALID_ARGUMENT;
	if (c->d->mig_enabled)
		return ABI_NOT_SUPPORTED;
	c->d->set.compute_mode = abi_u32(c, mode);
	return finish_change(c);
}

SET_CALL(nvmlDeviceClearEccErrorCounts, (uint32_t counter), counter)
{
	if (counter > 1)
		return ABI_INVALID_ARGUMENT;
	if (!(c->d->p.traits & TRAIT_ECC))
		return ABI_NOT_SUPPORTED;
	if (!c->fault.has_value) {
		c->d->errors.ecc_cleared[counter][0] = c->d->errors.ecc_corrected;
		c->d->errors.ecc_cleared[counter][1] = c->d->errors.ecc_uncorrected;
	}
	return finish_change(c);
}

static abi_return lock_clocks(struct ctx *c, double lock[2], uint32_t min, uint32_t max,
			      double highest)
{
	if (min > max)
		return ABI_INVALID_ARGUMENT;
	if (max > highest)
		return ABI_FREQ_NOT_SUPPORTED;
	lock[0] = min;
	lock[1] = max;
	return finish_change(c);
}

SET_CALL(nvmlDeviceSetGpuLockedClocks, (uint32_t min, uint32_t max), min, max)
{
	if (c->d->p.chip.architecture < 5)
		return ABI_NOT_SUPPORTED;
	return lock_clocks(c, c->d->set.lock_sm_mhz, min, max, c->d->p.mhz.sm);
}

SET_CALL(nvmlDeviceSetMemoryLockedClocks, (uint32_t min, uint32_t max), min, max)
{
	if (c->d->p.chip.architecture < 7)
		return ABI_NOT_SUPPORTED;
	return lock_clocks(c, c->d->set.lock_memory_mhz, min, max, c->d->p.mhz.memory);
}

RESET_CALL(nvmlDeviceResetGpuLockedClocks)
{
	memset(c->d->set.lock_sm_mhz, 0, sizeof(c->d->set.lock_sm_mhz));
	return finish_change(c);
}

RESET_CALL(nvmlDeviceResetMemoryLockedClocks)
{
	memset(c->d->set.lock_memory_mhz, 0, sizeof(c->d->set.lock_memory_mhz));
	return finish_change(c);
}
