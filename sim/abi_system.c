/* The NVML calls about the library, the driver, handles and the identity of a device. */
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

/* The message of the toolkit's stub library. It appears if the library search path is wrong;
 * the driver may be fine. */
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
	return abi_leave(abi_init_add(&c));
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

	return code != ABI_SUCCESS ? code : abi_leave(abi_init_drop());
}

SYSTEM_CALL(nvmlSystemGetDriverVersion, (char *out, uint32_t size), out, size)
{
	return abi_string(world_driver(c->w, c->now_ns, false), out, size);
}

/* The library returns its own version even without a driver. */
INIT_CALL(nvmlSystemGetNVMLVersion, (char *out, uint32_t size), out, size)
{
	return abi_string(world_driver(c->w, c->now_ns, true), out, size);
}

/* Defines a call that returns one number about the system. */
#define SYSTEM_NUMBER(symbol, type, value)           \
	SYSTEM_CALL(symbol, (type * out), out)       \
	{                                            \
		if (out == NULL)                     \
			return ABI_INVALID_ARGUMENT; \
		*out = (type)abi_u32(c, value);      \
		return ABI_SUCCESS;                  \
	}
SYSTEM_NUMBER(nvmlSystemGetCudaDriverVersion, int, c->w->cuda)
SYSTEM_NUMBER(nvmlSystemGetCudaDriverVersion_v2, int, c->w->cuda)
SYSTEM_NUMBER(nvmlDeviceGetCount_v2, uint32_t, c->w->n_devices)
SYSTEM_NUMBER(nvmlDeviceGetCount, uint32_t, c->w->n_devices)

SYSTEM_NUMBER(nvmlUnitGetCount, uint32_t, 0)
SYSTEM_NUMBER(nvmlGetExcludedDeviceCount, uint32_t, 0)

SYSTEM_CALL(nvmlSystemGetHicVersion, (uint32_t * count, void *entries), count, entries)
{
	(void)entries;
	if (count == NULL)
		return ABI_INVALID_ARGUMENT;
	*count = 0;
	return ABI_SUCCESS;
}

#define ABSENT_SYSTEM_CALL(name, symbol, args) \
	SYSTEM_CALL(symbol, (void *out), out)  \
	{                                      \
		(void)out;                     \
		return ABI_NOT_SUPPORTED;      \
	}
SIM_ABSENT_SYSTEM_CALLS(ABSENT_SYSTEM_CALL)

#define ABSENT_CALL(name, symbol, args)       \
	DEVICE_CALL(symbol, (void *out), out) \
	{                                     \
		(void)out;                    \
		return ABI_NOT_SUPPORTED;     \
	}
SIM_ABSENT_CALLS(ABSENT_CALL)

SYSTEM_CALL(nvmlSystemGetProcessName, (uint32_t pid, char *out, uint32_t size), pid, out, size)
{
	for (unsigned i = 0; i < c->w->n_devices; i++) {
		const struct device *d = &c->w->devices[i];

		for (size_t k = 0; k < d->n_processes; k++)
			if (d->processes[k].pid == pid)
				return abi_string(d->processes[k].name, out, size);
	}
	return ABI_NOT_FOUND;
}

/* Returns a handle, even for a lost GPU. The next call with the handle then returns that the
 * GPU is lost. */
static abi_return return_handle(struct ctx *c, unsigned device, unsigned mig, abi_device *out)
{
	struct fault f = world_fault(c->w, (int)c->call, false, (int)device, 0, c->now_ns);

	if (out == NULL)
		return ABI_INVALID_ARGUMENT;
	if (f.has_code)
		return f.code;
	*out = abi_handle(c, device, mig);
	return ABI_SUCCESS;
}

#define HANDLE_BY_INDEX(symbol)                                                  \
	SYSTEM_CALL(symbol, (uint32_t index, abi_device * out), index, out)      \
	{                                                                        \
		return index < c->w->n_devices ? return_handle(c, index, 0, out) \
					       : ABI_INVALID_ARGUMENT;           \
	}
HANDLE_BY_INDEX(nvmlDeviceGetHandleByIndex_v2)
HANDLE_BY_INDEX(nvmlDeviceGetHandleByIndex)

/* True if the PCI ids are equal; the width of the domain and the case of letters do not
 * matter. */
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

static bool same_uuid(const struct device *d, const char *text)
{
	return strcmp(d->id.uuid, text) == 0;
}

static bool same_serial(const struct device *d, const char *text)
{
	return strcmp(d->id.serial, text) == 0;
}

static abi_return by_text(struct ctx *c, const char *text, abi_device *out,
			  bool (*same)(const struct device *d, const char *text))
{
	if (text == NULL)
		return ABI_INVALID_ARGUMENT;
	for (unsigned i = 0; i < c->w->n_devices; i++) {
		struct device *d = &c->w->devices[i];

		device_advance(c->w, d, c->now_ns);
		if (same(d, text))
			return return_handle(c, i, 0, out);
		for (unsigned k = 0; d->mig_enabled && k < d->n_migs; k++)
			if (strcmp(d->migs[k].uuid, text) == 0)
				return return_handle(c, i, k + 1, out);
	}
	return ABI_NOT_FOUND;
}

#define HANDLE_BY_TEXT(symbol, same)                                        \
	SYSTEM_CALL(symbol, (const char *text, abi_device *out), text, out) \
	{                                                                   \
		return by_text(c, text, out, same);                         \
	}
HANDLE_BY_TEXT(nvmlDeviceGetHandleByUUID, same_uuid)
HANDLE_BY_TEXT(nvmlDeviceGetHandleBySerial, same_serial)
HANDLE_BY_TEXT(nvmlDeviceGetHandleByPciBusId_v2, same_bus)
HANDLE_BY_TEXT(nvmlDeviceGetHandleByPciBusId, same_bus)

/* Defines a call that returns a string of a device. */
#define STRING_CALL(symbol, text)                                  \
	DEVICE_CALL(symbol, (char *out, uint32_t size), out, size) \
	{                                                          \
		return abi_string(text, out, size);                \
	}

static const char *device_name(const struct ctx *c, char full[static 128])
{
	if (c->mig == NULL)
		return c->d->id.name;
	snprintf(full, 128, "%s MIG %s", c->d->id.name, c->mig->profile);
	return full;
}

STRING_CALL(nvmlDeviceGetName, device_name(c, (char[128]){ 0 }))
STRING_CALL(nvmlDeviceGetUUID, c->mig != NULL ? c->mig->uuid : c->d->id.uuid)
STRING_CALL(nvmlDeviceGetSerial, c->d->p.traits &TRAIT_ECC ? c->d->id.serial : NULL)
STRING_CALL(nvmlDeviceGetVbiosVersion, c->d->p.vbios)
STRING_CALL(nvmlDeviceGetBoardPartNumber, c->d->p.part)

static abi_return get_pci(const struct device *d, struct abi_pci *out)
{
	if (out == NULL)
		return ABI_INVALID_ARGUMENT;
	*out = (struct abi_pci){ .domain = d->id.domain,
				 .bus = d->id.bus,
				 .device = d->id.slot,
				 .device_id = d->p.device_id,
				 .subsystem_id = d->p.subsystem_id };
	snprintf(out->bus_id, sizeof(out->bus_id), "%08X:%02X:%02X.0", d->id.domain, d->id.bus,
		 d->id.slot);
	snprintf(out->bus_id_legacy, sizeof(out->bus_id_legacy), "%04X:%02X:%02X.0",
		 d->id.domain & 0xffff, d->id.bus & 0xff, d->id.slot & 0x1f);
	return ABI_SUCCESS;
}

DEVICE_CALL(nvmlDeviceGetPciInfo_v3, (struct abi_pci * out), out)
{
	return get_pci(c->d, out);
}

/* Versions 1 and 2 of the struct end before the long bus id. */
#define SHORT_PCI_CALL(symbol)                                        \
	DEVICE_CALL(symbol, (struct abi_pci_v2 * out), out)           \
	{                                                             \
		struct abi_pci full;                                  \
                                                                      \
		if (out == NULL)                                      \
			return ABI_INVALID_ARGUMENT;                  \
		get_pci(c->d, &full);                                 \
		memset(out, 0, sizeof(*out));                         \
		memcpy(out, &full, offsetof(struct abi_pci, bus_id)); \
		return ABI_SUCCESS;                                   \
	}
SHORT_PCI_CALL(nvmlDeviceGetPciInfo_v2)
SHORT_PCI_CALL(nvmlDeviceGetPciInfo)

DEVICE_CALL(nvmlDeviceGetPciInfoExt, (struct abi_pci_ext * out), out)
{
	struct abi_pci full;

	if (out == NULL)
		return ABI_INVALID_ARGUMENT;
	if (out->version != ABI_TAG(struct abi_pci_ext, 1))
		return ABI_ARGUMENT_VERSION_MISMATCH;
	get_pci(c->d, &full);
	memcpy(&out->domain, &full.domain, 5 * sizeof(uint32_t));
	memcpy(out->bus_id, full.bus_id, sizeof(out->bus_id));
	/* Base class 3 is a display controller. Subclass 0 is VGA, subclass 2 has no
	 * display. */
	out->base_class = 3;
	out->sub_class = c->d->p.traits & TRAIT_DISPLAY ? 0 : 2;
	return ABI_SUCCESS;
}

/* From Turing on, a processor on the board (GSP) runs a part of the driver. Its firmware has
 * the version of the driver. */
#define GSP_ARCHITECTURE 6
PAIR_CALL(nvmlDeviceGetGspFirmwareMode, uint32_t, true,
	  c->d->p.chip.architecture >= GSP_ARCHITECTURE,
	  c->d->p.chip.architecture >= GSP_ARCHITECTURE)

DEVICE_CALL(nvmlDeviceGetGspFirmwareVersion, (char *out), out)
{
	bool runs = c->d->p.chip.architecture >= GSP_ARCHITECTURE;

	return abi_string(runs ? world_driver(c->w, c->now_ns, false) : NULL, out, 80);
}

PAIR_CALL(nvmlDeviceGetCudaComputeCapability, int, true, c->d->p.chip.major, c->d->p.chip.minor)

PAIR_CALL(nvmlDeviceGetMigMode, uint32_t, c->d->p.traits &TRAIT_MIG, c->d->mig_enabled,
	  c->d->mig_enabled)

DEVICE_CALL(nvmlDeviceGetMigDeviceHandleByIndex, (uint32_t index, abi_device *out), index, out)
{
	if (!c->d->mig_enabled)
		return c->d->p.traits & TRAIT_MIG ? ABI_NOT_FOUND : ABI_NOT_SUPPORTED;
	for (unsigned i = 0; i < c->d->n_migs; i++)
		if (c->d->migs[i].index == index)
			return return_handle(c, c->d->id.index, i + 1, out);
	return ABI_NOT_FOUND;
}

DEVICE_CALL(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, (abi_device * out), out)
{
	if (c->mig == NULL)
		return ABI_INVALID_ARGUMENT;
	return return_handle(c, c->d->id.index, 0, out);
}

DEVICE_CALL(nvmlDeviceGetAttributes_v2, (struct abi_mig_attributes * out), out)
{
	uint32_t slices, none;

	if (out == NULL || c->mig == NULL)
		return out == NULL ? ABI_INVALID_ARGUMENT : ABI_NOT_SUPPORTED;
	slices = abi_u32(c, c->mig->slices);
	none = abi_u32(c, 0);
	*out = (struct abi_mig_attributes){ .multiprocessors = abi_u32(c, c->mig->slices * 16),
					    .copy_engines = slices,
					    .decoders = none,
					    .encoders = none,
					    .jpeg = none,
					    .ofa = none,
					    .gpu_instance_slices = slices,
					    .compute_instance_slices = slices,
					    .memory_mb = abi_u64(c, c->mig->bytes >> 20) };
	return ABI_SUCCESS;
}
