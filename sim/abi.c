#include "abi.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

#define SYMBOL(name, symbol, args) #symbol,
const char *const call_symbols[N_CALLS] = { SIM_ALL_CALLS(SYMBOL) };
#undef SYMBOL

struct sim sim = { .lock = PTHREAD_MUTEX_INITIALIZER, .generation = 1, .calls_fd = -1 };

/* The calls that accept the handle of a MIG instance; all others need the handle of the
 * board. */
static const bool on_instance[N_CALLS] = {
	[CALL_nvmlDeviceGetName] = true,
	[CALL_nvmlDeviceGetUUID] = true,
	[CALL_nvmlDeviceGetMemoryInfo_v2] = true,
	[CALL_nvmlDeviceGetMemoryInfo] = true,
	[CALL_nvmlDeviceGetBAR1MemoryInfo] = true,
	[CALL_nvmlDeviceGetGpuInstanceId] = true,
	[CALL_nvmlDeviceGetComputeInstanceId] = true,
	[CALL_nvmlDeviceIsMigDeviceHandle] = true,
	[CALL_nvmlDeviceGetDeviceHandleFromMigDeviceHandle] = true,
	[CALL_nvmlDeviceGetAttributes_v2] = true,
	[CALL_nvmlDeviceGetComputeRunningProcesses_v3] = true,
	[CALL_nvmlDeviceGetComputeRunningProcesses_v2] = true,
	[CALL_nvmlDeviceGetComputeRunningProcesses] = true,
	[CALL_nvmlDeviceGetGraphicsRunningProcesses_v3] = true,
	[CALL_nvmlDeviceGetMPSComputeRunningProcesses_v3] = true,
};

/* Duration of a call in microseconds, measured on an H200. It is used if the scenario sets
 * measured_latency. */
static const unsigned latency_us[N_CALLS] = {
	[CALL_nvmlInit_v2] = 12000,
	[CALL_nvmlInit] = 12000,
	[CALL_nvmlInitWithFlags] = 12000,
	[CALL_nvmlDeviceGetHandleByIndex_v2] = 6400,
	[CALL_nvmlDeviceGetMemoryInfo_v2] = 5,
	[CALL_nvmlDeviceGetMemoryInfo] = 5,
	[CALL_nvmlDeviceGetPersistenceMode] = 5,
	[CALL_nvmlDeviceGetTotalEnergyConsumption] = 3000,
	[CALL_nvmlDeviceGetNumFans] = 132,
	[CALL_nvmlDeviceGetFanSpeed_v2] = 132,
	[CALL_nvmlDeviceGetFanSpeed] = 132,
	[CALL_nvmlDeviceGetPcieThroughput] = 20700,
	[CALL_nvmlDeviceGetComputeRunningProcesses_v3] = 12,
	[CALL_nvmlDeviceGetGraphicsRunningProcesses_v3] = 8,
	[CALL_nvmlDeviceGetMPSComputeRunningProcesses_v3] = 10,
	[CALL_nvmlDeviceGetProcessUtilization] = 2000,
	[CALL_nvmlDeviceGetSamples] = 260,
	[CALL_nvmlGpmSampleGet] = 51,
};

int call_find(const char *symbol)
{
	for (int i = 0; i < N_CALLS; i++)
		if (strcmp(call_symbols[i], symbol) == 0)
			return i;
	return -1;
}

/* Returns the current generation of handles, which changes with each loaded world and with each
 * start of the driver. *gap says whether the driver is absent now. */
static unsigned abi_generation(uint64_t now_ns, bool *gap)
{
	return (sim.generation + world_boots(sim.world, now_ns, gap)) & 0xffff;
}

abi_device abi_handle(const struct ctx *c, unsigned device, unsigned mig_plus_1)
{
	bool gap;
	uintptr_t g = abi_generation(c->now_ns, &gap);
	uintptr_t instance = 0;

	if (mig_plus_1 != 0)
		instance = (c->w->devices[device].mig_generation & 0xf) << 8 | mig_plus_1;
	return (abi_device)((uintptr_t)0x510000000000u | g << 24 | instance << 12 |
			    (uintptr_t)(device + 1) << 4);
}

static bool resolve_handle(struct ctx *c, abi_device handle)
{
	unsigned device = ((unsigned)(uintptr_t)handle >> 4) & 0xff;
	unsigned mig = ((unsigned)(uintptr_t)handle >> 12) & 0xff;

	if (device == 0 || device > c->w->n_devices)
		return false;
	c->d = &c->w->devices[device - 1];
	c->mig = NULL;
	device_advance(c->w, c->d, c->now_ns);
	device_follow(c->d);
	if (handle != abi_handle(c, device - 1, mig))
		return false;
	if (mig > c->d->n_migs || (mig != 0 && !c->d->mig_enabled))
		return false;
	if (mig != 0)
		c->mig = &c->d->migs[mig - 1];
	return true;
}

static void real_sleep(uint64_t ns)
{
	struct timespec t = clock_timespec(ns);

	/* For delays below 100 us a sleep is too inaccurate, so the thread spins. */
	if (ns < 100 * NS_PER_US) {
		uint64_t end = clock_mono_ns(clock_real()) + ns;

		while (clock_mono_ns(clock_real()) < end)
			;
		return;
	}
	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t) == EINTR)
		;
}

void abi_wait(uint64_t t_ns)
{
	const struct world *w = sim.world;
	struct timespec until;
	uint64_t left_ns, now_ns = world_now_ns(w);

	if (t_ns <= now_ns)
		return;
	if (w->mode == TIME_STEPPED || t_ns == WORLD_NEVER) {
		pthread_cond_wait(&sim.moved, &sim.lock);
		return;
	}
	left_ns = t_ns - now_ns;
	if (w->mode == TIME_SCALED)
		left_ns = (uint64_t)((double)left_ns / w->rate) + 1;
	if (left_ns > 3600 * NS_PER_S)
		left_ns = 3600 * NS_PER_S;
	left_ns += clock_wall_ns(clock_real());
	until = clock_timespec(left_ns);
	pthread_cond_timedwait(&sim.moved, &sim.lock, &until);
}

/* True for init and shutdown. */
static bool is_lifecycle(enum call call)
{
	return call == CALL_nvmlInit_v2 || call == CALL_nvmlInit ||
	       call == CALL_nvmlInitWithFlags || call == CALL_nvmlShutdown;
}

/* Combines the faults of this call. The three versions of nvmlInit count as one call, so a
 * fault of nvmlInit_v2 applies to all of them. */
static struct fault find_fault(const struct ctx *c, unsigned field)
{
	enum call call = c->call;

	if (is_lifecycle(call) && call != CALL_nvmlShutdown)
		call = CALL_nvmlInit_v2;
	return world_fault(c->w, (int)call, is_lifecycle(call),
			   c->d != NULL ? (int)c->d->id.index : -1, field, c->now_ns);
}

/* Returns the time at which to check whether a hang has ended without gpuward_sim_unhang(). A
 * fault that depends on a file is checked every 20 ms. */
static uint64_t hang_until(const struct ctx *c)
{
	uint64_t until = WORLD_NEVER;

	for (size_t i = 0; i < c->w->n_faults; i++) {
		const struct fault *f = &c->w->faults[i];
		uint64_t end = f->file[0] != 0 ? c->now_ns + 20 * NS_PER_MS : f->until_ns;

		if (f->hang && end > c->now_ns && end < until)
			until = end;
	}
	return until;
}

/* Hangs until the fault ends or gpuward_sim_unhang() is called. */
static void abi_hang(struct ctx *c, abi_device handle)
{
	uint64_t round = sim.hang_round;

	while (sim.hang_round == round) {
		c->w = sim.world;
		c->now_ns = world_now_ns(c->w);
		if (handle != NULL && !resolve_handle(c, handle))
			return;
		if (!find_fault(c, 0).hang)
			return;
		abi_wait(hang_until(c));
	}
}

/* Applies the hangs and delays of the scenario to this call. Releases the lock while it
 * waits. */
static void apply_faults(struct ctx *c, abi_device handle)
{
	uint64_t delay_ns = 0;

	if (c->w->n_faults != 0) {
		c->fault = find_fault(c, 0);
		delay_ns = c->fault.delay_ns;
	}
	if (c->w->measured_latency && latency_us[c->call] * NS_PER_US > delay_ns)
		delay_ns = latency_us[c->call] * NS_PER_US;
	if (c->fault.hang)
		abi_hang(c, handle);
	if (delay_ns != 0) {
		if (c->w->mode == TIME_SCALED)
			delay_ns = (uint64_t)((double)delay_ns / c->w->rate);
		pthread_mutex_unlock(&sim.lock);
		real_sleep(delay_ns);
		pthread_mutex_lock(&sim.lock);
	}
	c->w = sim.world;
	c->now_ns = world_now_ns(c->w);
}

static void begin_call(struct ctx *c, enum call call)
{
	*c = (struct ctx){ .call = call };
	pthread_mutex_lock(&sim.lock);
	sim.calls[call]++;
	if (sim.calls_fd >= 0)
		dprintf(sim.calls_fd, "%s\n", call_symbols[call]);
	c->w = sim.world;
	c->now_ns = world_now_ns(c->w);
}

abi_return abi_ready(const struct ctx *c)
{
	bool gap;
	unsigned g = abi_generation(c->now_ns, &gap);

	if (sim.inits == 0)
		return ABI_UNINITIALIZED;
	if (gap)
		return ABI_DRIVER_NOT_LOADED;
	return g == sim.init_generation ? ABI_SUCCESS : ABI_UNINITIALIZED;
}

abi_return abi_leave(abi_return code)
{
	pthread_mutex_unlock(&sim.lock);
	return code;
}

abi_return abi_enter_init(struct ctx *c, enum call call)
{
	begin_call(c, call);
	apply_faults(c, NULL);
	if (c->fault.has_code)
		return abi_leave(c->fault.code);
	return ABI_SUCCESS;
}

abi_return abi_enter(struct ctx *c, enum call call)
{
	abi_return code;

	begin_call(c, call);
	if (sim.inits != 0)
		apply_faults(c, NULL);
	code = abi_ready(c);
	if (code == ABI_SUCCESS && c->fault.has_code)
		code = c->fault.code;
	return code == ABI_SUCCESS ? code : abi_leave(code);
}

abi_return abi_enter_device(struct ctx *c, enum call call, abi_device handle)
{
	abi_return code;

	begin_call(c, call);
	code = abi_ready(c);
	if (code == ABI_SUCCESS && !resolve_handle(c, handle))
		code = ABI_INVALID_ARGUMENT;
	if (code != ABI_SUCCESS)
		return abi_leave(code);
	if (c->w->n_faults != 0 || c->w->measured_latency) {
		apply_faults(c, handle);
		code = abi_ready(c);
		if (code == ABI_SUCCESS && !resolve_handle(c, handle))
			code = ABI_INVALID_ARGUMENT;
	}
	if (code == ABI_SUCCESS) {
		device_advance(c->w, c->d, c->now_ns);
		if (c->d->lost)
			code = ABI_GPU_IS_LOST;
		else if (c->fault.has_code)
			code = c->fault.code;
		else if (c->mig != NULL && !on_instance[call])
			code = ABI_NOT_SUPPORTED;
	}
	return code == ABI_SUCCESS ? code : abi_leave(code);
}

abi_return abi_enter_setter(struct ctx *c, enum call call, abi_device handle)
{
	abi_return code = abi_enter_device(c, call, handle);

	if (code == ABI_SUCCESS && !c->w->privileged)
		return abi_leave(ABI_NO_PERMISSION);
	return code;
}

abi_return abi_init_add(struct ctx *c)
{
	bool gap;
	unsigned g = abi_generation(c->now_ns, &gap);

	if (sim.error[0] != 0)
		return ABI_UNKNOWN;
	if (c->w->stub || gap) /* The stub of CUDA 13.0 also returns this code. */
		return ABI_DRIVER_NOT_LOADED;
	/* Only the first init stores the generation. A client that did not shut down before a
	 * driver reload therefore keeps the old generation, and its calls fail. */
	if (sim.inits++ == 0)
		sim.init_generation = g;
	return ABI_SUCCESS;
}

abi_return abi_init_drop(void)
{
	if (sim.inits == 0)
		return ABI_UNINITIALIZED;
	sim.inits--;
	return ABI_SUCCESS;
}

uint32_t abi_u32(const struct ctx *c, double v)
{
	if (c->fault.has_value)
		return (uint32_t)c->fault.value;
	return v <= 0 ? 0 : (uint32_t)lround(v);
}

uint64_t abi_u64(const struct ctx *c, uint64_t v)
{
	return c->fault.has_value ? c->fault.value : v;
}

struct fault abi_field_fault(const struct ctx *c, unsigned field)
{
	if (c->w->n_faults == 0)
		return (struct fault){ 0 };
	return find_fault(c, field);
}

abi_return abi_string(const char *text, char *out, uint32_t size)
{
	if (text == NULL)
		return ABI_NOT_SUPPORTED;
	if (out == NULL)
		return ABI_INVALID_ARGUMENT;
	if (strlen(text) >= size)
		return ABI_INSUFFICIENT_SIZE;
	memcpy(out, text, strlen(text) + 1);
	return ABI_SUCCESS;
}
