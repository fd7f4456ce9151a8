/* NVML calls that change the device. All need a privileged caller (scenario). A fault with a
 * `value` simulates a driver that reports success but sets that value instead. */
#include <string.h>

#include "abi.h"

static abi_return enter_privileged(struct ctx *c, enum call call, abi_device h)
{
	abi_return code = abi_enter_device(c, call, h);

	if (code == ABI_SUCCESS && !c->w->privileged)
		return abi_leave(c, ABI_NO_PERMISSION);
	return code;
}

static abi_return finish_change(struct ctx *c)
{
	device_changed(c->d);
	device_advance(c->w, c->d, c->now_ns);
	return abi_leave(c, ABI_SUCCESS);
}

static abi_return set_limit(struct ctx *c, uint32_t milliwatts)
{
	double watts = milliwatts * 1e-3;

	if (c->d->p.traits & TRAIT_NO_LIMIT)
		return abi_leave(c, ABI_NOT_SUPPORTED);
	if (watts < c->d->p.limit.min_w || watts > c->d->p.limit.max_w)
		return abi_leave(c, ABI_INVALID_ARGUMENT);
	c->d->set.limit_w = abi_u32(c, milliwatts) * 1e-3;
	return finish_change(c);
}

abi_return nvmlDeviceSetPowerManagementLimit(abi_device h, uint32_t milliwatts)
{
	struct ctx c;
	abi_return code = enter_privileged(&c, CALL_nvmlDeviceSetPowerManagementLimit, h);

	return code != ABI_SUCCESS ? code : set_limit(&c, milliwatts);
}

abi_return nvmlDeviceSetPowerManagementLimit_v2(abi_device h, struct abi_power_value_v2 *value)
{
	struct ctx c;
	abi_return code = enter_privileged(&c, CALL_nvmlDeviceSetPowerManagementLimit_v2, h);

	if (code != ABI_SUCCESS)
		return code;
	if (value == NULL)
		return abi_leave(&c, ABI_INVALID_ARGUMENT);
	if (value->version != ABI_TAG(struct abi_power_value_v2, 2))
		return abi_leave(&c, ABI_ARGUMENT_VERSION_MISMATCH);
	if (value->scope != ABI_SCOPE_GPU)
		return abi_leave(&c, ABI_NOT_SUPPORTED);
	return set_limit(&c, value->milliwatts);
}

abi_return nvmlDeviceSetPersistenceMode(abi_device h, uint32_t mode)
{
	struct ctx c;
	abi_return code = enter_privileged(&c, CALL_nvmlDeviceSetPersistenceMode, h);

	if (code != ABI_SUCCESS)
		return code;
	if (mode > 1)
		return abi_leave(&c, ABI_INVALID_ARGUMENT);
	c.d->set.persistence = abi_u32(&c, mode) != 0;
	return finish_change(&c);
}

abi_return nvmlDeviceSetComputeMode(abi_device h, uint32_t mode)
{
	struct ctx c;
	abi_return code = enter_privileged(&c, CALL_nvmlDeviceSetComputeMode, h);

	if (code != ABI_SUCCESS)
		return code;
	if (mode == 1 || mode > 3)
		return abi_leave(&c, ABI_INVALID_ARGUMENT);
	if (c.d->mig_enabled)
		return abi_leave(&c, ABI_NOT_SUPPORTED);
	c.d->set.compute_mode = abi_u32(&c, mode);
	return finish_change(&c);
}

abi_return nvmlDeviceClearEccErrorCounts(abi_device h, uint32_t counter)
{
	struct ctx c;
	abi_return code = enter_privileged(&c, CALL_nvmlDeviceClearEccErrorCounts, h);

	if (code != ABI_SUCCESS)
		return code;
	if (counter > 1)
		return abi_leave(&c, ABI_INVALID_ARGUMENT);
	if (!(c.d->p.traits & TRAIT_ECC))
		return abi_leave(&c, ABI_NOT_SUPPORTED);
	if (!c.fault.has_value) {
		c.d->errors.ecc_cleared[counter][0] = c.d->errors.ecc_corrected;
		c.d->errors.ecc_cleared[counter][1] = c.d->errors.ecc_uncorrected;
	}
	return finish_change(&c);
}

static abi_return lock_clocks(struct ctx *c, double lock[2], uint32_t min, uint32_t max,
			      double highest)
{
	if (min > max)
		return abi_leave(c, ABI_INVALID_ARGUMENT);
	if (max > highest)
		return abi_leave(c, ABI_FREQ_NOT_SUPPORTED);
	lock[0] = min;
	lock[1] = max;
	return finish_change(c);
}

abi_return nvmlDeviceSetGpuLockedClocks(abi_device h, uint32_t min, uint32_t max)
{
	struct ctx c;
	abi_return code = enter_privileged(&c, CALL_nvmlDeviceSetGpuLockedClocks, h);

	if (code != ABI_SUCCESS)
		return code;
	if (c.d->p.chip.architecture < 5)
		return abi_leave(&c, ABI_NOT_SUPPORTED);
	return lock_clocks(&c, c.d->set.lock_sm_mhz, min, max, c.d->p.mhz.sm);
}

abi_return nvmlDeviceSetMemoryLockedClocks(abi_device h, uint32_t min, uint32_t max)
{
	struct ctx c;
	abi_return code = enter_privileged(&c, CALL_nvmlDeviceSetMemoryLockedClocks, h);

	if (code != ABI_SUCCESS)
		return code;
	if (c.d->p.chip.architecture < 7)
		return abi_leave(&c, ABI_NOT_SUPPORTED);
	return lock_clocks(&c, c.d->set.lock_memory_mhz, min, max, c.d->p.mhz.memory);
}

abi_return nvmlDeviceResetGpuLockedClocks(abi_device h)
{
	struct ctx c;
	abi_return code = enter_privileged(&c, CALL_nvmlDeviceResetGpuLockedClocks, h);

	if (code != ABI_SUCCESS)
		return code;
	memset(c.d->set.lock_sm_mhz, 0, sizeof(c.d->set.lock_sm_mhz));
	return finish_change(&c);
}

abi_return nvmlDeviceResetMemoryLockedClocks(abi_device h)
{
	struct ctx c;
	abi_return code = enter_privileged(&c, CALL_nvmlDeviceResetMemoryLockedClocks, h);

	if (code != ABI_SUCCESS)
		return code;
	memset(c.d->set.lock_memory_mhz, 0, sizeof(c.d->set.lock_memory_mhz));
	return finish_change(&c);
}
