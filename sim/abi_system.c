/* NVML: library, driver, handles and identity. */
#include <stdio.h>
#include <string.h>

#include "abi.h"

static const struct {
	abi_return code;
	const char *text;
} errors[] = {
	{ ABI_SUCCESS, "Success" },
	{ ABI_UNINITIALIZED, "Uninitialized" },
	{ ABI_INVALID_ARGUMENT, "Invalid Argument" },
	{ ABI_NOT_SUPPORTED, "Not Supported" },
	{ ABI_NO_PERMISSION, "Insufficient Permissions" },
	{ ABI_ALREADY_INITIALIZED, "Already Initialized" },
	{ ABI_NOT_FOUND, "Not Found" },
	{ ABI_INSUFFICIENT_SIZE, "Insufficient Size" },
	{ ABI_INSUFFICIENT_POWER, "Insufficient External Power" },
	{ ABI_DRIVER_NOT_LOADED, "Driver Not Loaded" },
	{ ABI_TIMEOUT, "Timeout" },
	{ ABI_IRQ_ISSUE, "Interrupt Request Issue" },
	{ ABI_LIBRARY_NOT_FOUND, "NVML Shared Library Not Found" },
	{ ABI_FUNCTION_NOT_FOUND, "Function Not Found" },
	{ ABI_CORRUPTED_INFOROM, "Corrupted infoROM" },
	{ ABI_GPU_IS_LOST, "GPU is lost" },
	{ ABI_RESET_REQUIRED, "GPU requires reset" },
	{ ABI_OPERATING_SYSTEM, "GPU access blocked by the operating system" },
	{ ABI_VERSION_MISMATCH, "Driver/library version mismatch" },
	{ ABI_IN_USE, "In use by another client" },
	{ ABI_MEMORY, "Insufficient Memory" },
	{ ABI_NO_DATA, "No data" },
	{ ABI_VGPU_ECC_NOT_SUPPORTED, "ECC is enabled but vGPU does not support it" },
	{ ABI_INSUFFICIENT_RESOURCES, "Insufficient resources" },
	{ ABI_FREQ_NOT_SUPPORTED, "Requested frequency not supported" },
	{ ABI_ARGUMENT_VERSION_MISMATCH, "Argument version mismatch" },
	{ ABI_DEPRECATED, "Deprecated" },
	{ ABI_NOT_READY, "System is not ready" },
	{ ABI_GPU_NOT_FOUND, "GPU not found" },
	{ ABI_INVALID_STATE, "Invalid State" },
	{ ABI_RESET_TYPE_NOT_SUPPORTED, "Reset type not supported" },
	{ ABI_UNKNOWN, "Unknown Error" },
};

/* The text of the toolkit's stub: the search path is wrong, not the driver. */
static const char stub_text[] =
	"WARNING:\n\n"
	"You should always run with libnvidia-ml.so that is installed with your\n"
	"NVIDIA Display Driver. By default it's installed in /usr/lib and /usr/lib64.\n"
	"libnvidia-ml.so in GDK package is a stub library that is attached only for\n"
	"build purposes.";

static bool is_stub(void)
{
	bool stub;

	pthread_mutex_lock(&sim.lock);
	stub = sim.world->stub;
	pthread_mutex_unlock(&sim.lock);
	return stub;
}

const char *nvmlErrorString(abi_return code)
{
	if (is_stub())
		return stub_text;
	if (code == ABI_UNKNOWN && sim.error[0] != 0)
		return sim.error;
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (errors[i].code == code)
			return errors[i].text;
	return "unknown error";
}

static abi_return add_client(enum call call)
{
	struct ctx c;
	abi_return code = abi_enter_init(&c, call);

	if (code != ABI_SUCCESS)
		return code;
	if (c.w->stub)
		fprintf(stderr, "%s\n", stub_text);
	return abi_leave(&c, abi_init_add(&c));
}

abi_return nvmlInit_v2(void)
{
	return add_client(CALL_nvmlInit_v2);
}

abi_return nvmlInit(void)
{
	return add_client(CALL_nvmlInit);
}

abi_return nvmlInitWithFlags(uint32_t flags)
{
	(void)flags;
	return add_client(CALL_nvmlInitWithFlags);
}

abi_return nvmlShutdown(void)
{
	struct ctx c;
	abi_return code = abi_enter_init(&c, CALL_nvmlShutdown);

	return code != ABI_SUCCESS ? code : abi_leave(&c, abi_init_drop());
}

static abi_return get_version(enum call call, char *out, uint32_t size)
{
	struct ctx c;
	bool nvml = call == CALL_nvmlSystemGetNVMLVersion;
	/* The library knows its version without a driver. */
	abi_return code = nvml ? abi_enter_init(&c, call) : abi_enter(&c, call);

	if (code != ABI_SUCCESS)
		return code;
	return abi_leave(&c, abi_string(world_driver(c.w, c.now_ns, nvml), out, size));
}

abi_return nvmlSystemGetDriverVersion(char *out, uint32_t size)
{
	return get_version(CALL_nvmlSystemGetDriverVersion, out, size);
}

abi_return nvmlSystemGetNVMLVersion(char *out, uint32_t size)
{
	return get_version(CALL_nvmlSystemGetNVMLVersion, out, size);
}

/* One u32 of the system. */
static abi_return get_number(enum call call, uint32_t *out)
{
	struct ctx c;
	abi_return code = abi_enter(&c, call);

	if (code != ABI_SUCCESS)
		return code;
	if (out == NULL)
		return abi_leave(&c, ABI_INVALID_ARGUMENT);
	if (call == CALL_nvmlDeviceGetCount_v2 || call == CALL_nvmlDeviceGetCount)
		*out = abi_u32(&c, c.w->n_devices);
	else
		*out = abi_u32(&c, c.w->cuda);
	return abi_leave(&c, ABI_SUCCESS);
}

abi_return nvmlSystemGetCudaDriverVersion(int *out)
{
	return get_number(CALL_nvmlSystemGetCudaDriverVersion, (uint32_t *)out);
}

abi_return nvmlSystemGetCudaDriverVersion_v2(int *out)
{
	return get_number(CALL_nvmlSystemGetCudaDriverVersion_v2, (uint32_t *)out);
}

abi_return nvmlDeviceGetCount_v2(uint32_t *out)
{
	return get_number(CALL_nvmlDeviceGetCount_v2, out);
}

abi_return nvmlDeviceGetCount(uint32_t *out)
{
	return get_number(CALL_nvmlDeviceGetCount, out);
}

abi_return nvmlSystemGetProcessName(uint32_t pid, char *out, uint32_t size)
{
	struct ctx c;
	abi_return code = abi_enter(&c, CALL_nvmlSystemGetProcessName);

	if (code != ABI_SUCCESS)
		return code;
	for (unsigned i = 0; i < c.w->n_devices; i++) {
		const struct device *d = &c.w->devices[i];

		for (size_t k = 0; k < d->n_processes; k++)
			if (d->processes[k].pid == pid)
				return abi_leave(&c,
						 abi_string(d->processes[k].name, out, size));
	}
	return abi_leave(&c, ABI_NOT_FOUND);
}

/* Handles. A lost GPU can still be found; the next call reports that it is lost. */
static abi_return return_handle(struct ctx *c, unsigned device, unsigned mig, abi_device *out)
{
	struct fault f = fault_find(c->w->faults, c->w->n_faults, (int)c->call, false,
				    (int)device, 0, c->now_ns);

	if (out == NULL)
		return abi_leave(c, ABI_INVALID_ARGUMENT);
	if (f.has_code)
		return abi_leave(c, f.code);
	*out = abi_handle(c, device, mig);
	return abi_leave(c, ABI_SUCCESS);
}

static abi_return by_index(enum call call, uint32_t index, abi_device *out)
{
	struct ctx c;
	abi_return code = abi_enter(&c, call);

	if (code != ABI_SUCCESS)
		return code;
	if (index >= c.w->n_devices)
		return abi_leave(&c, ABI_INVALID_ARGUMENT);
	return return_handle(&c, index, 0, out);
}

abi_return nvmlDeviceGetHandleByIndex_v2(uint32_t index, abi_device *out)
{
	return by_index(CALL_nvmlDeviceGetHandleByIndex_v2, index, out);
}

abi_return nvmlDeviceGetHandleByIndex(uint32_t index, abi_device *out)
{
	return by_index(CALL_nvmlDeviceGetHandleByIndex, index, out);
}

static void bus_id(const struct device *d, char out[static 32])
{
	snprintf(out, 32, "%08X:%02X:%02X.0", d->id.domain, d->id.bus, d->id.slot);
}

/* Two PCI ids are equal regardless of the width of the domain and the case of letters. */
static bool same_bus(const struct device *d, const char *text)
{
	unsigned domain = 0, bus, slot, function;

	if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4) {
		domain = 0;
		if (sscanf(text, "%x:%x.%x", &bus, &slot, &function) != 3)
			return false;
	}
	return domain == d->id.domain && bus == d->id.bus && slot == d->id.slot;
}

static abi_return by_text(enum call call, const char *text, abi_device *out)
{
	struct ctx c;
	abi_return code = abi_enter(&c, call);

	if (code != ABI_SUCCESS)
		return code;
	if (text == NULL)
		return abi_leave(&c, ABI_INVALID_ARGUMENT);
	for (unsigned i = 0; i < c.w->n_devices; i++) {
		struct device *d = &c.w->devices[i];

		device_advance(c.w, d, c.now_ns);
		if (call == CALL_nvmlDeviceGetHandleByUUID && strcmp(d->id.uuid, text) == 0)
			return return_handle(&c, i, 0, out);
		if (call == CALL_nvmlDeviceGetHandleBySerial && strcmp(d->id.serial, text) == 0)
			return return_handle(&c, i, 0, out);
		if (call == CALL_nvmlDeviceGetHandleByPciBusId_v2 && same_bus(d, text))
			return return_handle(&c, i, 0, out);
		for (unsigned k = 0; d->mig_enabled && k < d->n_migs; k++)
			if (strcmp(d->migs[k].uuid, text) == 0)
				return return_handle(&c, i, k + 1, out);
	}
	return abi_leave(&c, ABI_NOT_FOUND);
}

abi_return nvmlDeviceGetHandleByUUID(const char *text, abi_device *out)
{
	return by_text(CALL_nvmlDeviceGetHandleByUUID, text, out);
}

abi_return nvmlDeviceGetHandleBySerial(const char *text, abi_device *out)
{
	return by_text(CALL_nvmlDeviceGetHandleBySerial, text, out);
}

abi_return nvmlDeviceGetHandleByPciBusId_v2(const char *text, abi_device *out)
{
	return by_text(CALL_nvmlDeviceGetHandleByPciBusId_v2, text, out);
}

abi_return nvmlDeviceGetHandleByPciBusId(const char *text, abi_device *out)
{
	return by_text(CALL_nvmlDeviceGetHandleByPciBusId_v2, text, out);
}

/* Texts of a device. */
#define STRING_CALL(symbol, text)                                         \
	abi_return symbol(abi_device h, char *out, uint32_t size)         \
	{                                                                 \
		struct ctx c;                                             \
		abi_return code = abi_enter_device(&c, CALL_##symbol, h); \
                                                                          \
		if (code != ABI_SUCCESS)                                  \
			return code;                                      \
		return abi_leave(&c, abi_string(text, out, size));        \
	}

static const char *device_name(const struct ctx *c, char full[static 128])
{
	if (c->mig == NULL)
		return c->d->id.name;
	snprintf(full, 128, "%s MIG %s", c->d->id.name, c->mig->profile);
	return full;
}

STRING_CALL(nvmlDeviceGetName, device_name(&c, (char[128]){ 0 }))
STRING_CALL(nvmlDeviceGetUUID, c.mig != NULL ? c.mig->uuid : c.d->id.uuid)
STRING_CALL(nvmlDeviceGetSerial, c.d->p.traits &TRAIT_ECC ? c.d->id.serial : NULL)
STRING_CALL(nvmlDeviceGetVbiosVersion, c.d->p.vbios)
STRING_CALL(nvmlDeviceGetBoardPartNumber, c.d->p.part)

static abi_return get_pci(enum call call, abi_device h, struct abi_pci *out)
{
	struct ctx c;
	abi_return code = abi_enter_device(&c, call, h);

	if (code != ABI_SUCCESS)
		return code;
	if (out == NULL)
		return abi_leave(&c, ABI_INVALID_ARGUMENT);
	*out = (struct abi_pci){ .domain = c.d->id.domain,
				 .bus = c.d->id.bus,
				 .device = c.d->id.slot,
				 .device_id = c.d->p.device_id,
				 .subsystem_id = c.d->p.subsystem_id };
	bus_id(c.d, out->bus_id);
	snprintf(out->bus_id_legacy, sizeof(out->bus_id_legacy), "%04X:%02X:%02X.0",
		 c.d->id.domain & 0xffff, c.d->id.bus & 0xff, c.d->id.slot & 0x1f);
	return abi_leave(&c, ABI_SUCCESS);
}

abi_return nvmlDeviceGetPciInfo_v3(abi_device h, struct abi_pci *out)
{
	return get_pci(CALL_nvmlDeviceGetPciInfo_v3, h, out);
}

abi_return nvmlDeviceGetPciInfo_v2(abi_device h, struct abi_pci *out)
{
	return get_pci(CALL_nvmlDeviceGetPciInfo_v2, h, out);
}

abi_return nvmlDeviceGetCudaComputeCapability(abi_device h, int *major, int *minor)
{
	struct ctx c;
	abi_return code = abi_enter_device(&c, CALL_nvmlDeviceGetCudaComputeCapability, h);

	if (code != ABI_SUCCESS)
		return code;
	if (major == NULL || minor == NULL)
		return abi_leave(&c, ABI_INVALID_ARGUMENT);
	*major = (int)c.d->p.chip.major;
	*minor = (int)c.d->p.chip.minor;
	return abi_leave(&c, ABI_SUCCESS);
}

/* MIG. */
abi_return nvmlDeviceGetMigMode(abi_device h, uint32_t *current, uint32_t *pending)
{
	struct ctx c;
	abi_return code = abi_enter_device(&c, CALL_nvmlDeviceGetMigMode, h);

	if (code != ABI_SUCCESS)
		return code;
	if (current == NULL || pending == NULL)
		return abi_leave(&c, ABI_INVALID_ARGUMENT);
	if (!(c.d->p.traits & TRAIT_MIG))
		return abi_leave(&c, ABI_NOT_SUPPORTED);
	*current = *pending = c.d->mig_enabled;
	return abi_leave(&c, ABI_SUCCESS);
}

abi_return nvmlDeviceGetMigDeviceHandleByIndex(abi_device h, uint32_t index, abi_device *out)
{
	struct ctx c;
	abi_return code = abi_enter_device(&c, CALL_nvmlDeviceGetMigDeviceHandleByIndex, h);

	if (code != ABI_SUCCESS)
		return code;
	if (!c.d->mig_enabled)
		return abi_leave(&c,
				 c.d->p.traits & TRAIT_MIG ? ABI_NOT_FOUND : ABI_NOT_SUPPORTED);
	for (unsigned i = 0; i < c.d->n_migs; i++)
		if (c.d->migs[i].index == index)
			return return_handle(&c, c.d->id.index, i + 1, out);
	return abi_leave(&c, ABI_NOT_FOUND);
}

abi_return nvmlDeviceGetDeviceHandleFromMigDeviceHandle(abi_device h, abi_device *out)
{
	struct ctx c;
	abi_return code =
		abi_enter_device(&c, CALL_nvmlDeviceGetDeviceHandleFromMigDeviceHandle, h);

	if (code != ABI_SUCCESS)
		return code;
	if (c.mig == NULL)
		return abi_leave(&c, ABI_INVALID_ARGUMENT);
	return return_handle(&c, c.d->id.index, 0, out);
}

abi_return nvmlDeviceGetAttributes_v2(abi_device h, struct abi_mig_attributes *out)
{
	struct ctx c;
	abi_return code = abi_enter_device(&c, CALL_nvmlDeviceGetAttributes_v2, h);

	if (code != ABI_SUCCESS)
		return code;
	if (out == NULL || c.mig == NULL)
		return abi_leave(&c, out == NULL ? ABI_INVALID_ARGUMENT : ABI_NOT_SUPPORTED);
	*out = (struct abi_mig_attributes){ .multiprocessors = c.mig->slices * 16,
					    .copy_engines = c.mig->slices,
					    .gpu_instance_slices = c.mig->slices,
					    .compute_instance_slices = c.mig->slices,
					    .memory_mb = c.mig->bytes >> 20 };
	return abi_leave(&c, ABI_SUCCESS);
}
