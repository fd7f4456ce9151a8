/* abi: what the files with the exported NVML functions share.
 *
 * Every function is defined with one of the ..._CALL macros below. The defined function counts
 * the call, applies the scenario's faults, resolves the handle and holds the lock while the
 * body runs. The lock is never held while a call waits, sleeps or hangs. */
#ifndef SIM_ABI_H
#define SIM_ABI_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/nvml_abi.h"
#include "world.h"

#define SIM_EXPORT __attribute__((visibility("default")))

struct abi_violation {
	uint64_t reference_us, violation_ns;
};

/* Calls that other NVML programs use and gpuward does not. The simulator has them in addition
 * to NVML_CALLS. */
#define SIM_CALLS(N)                                                                        \
	N(_, nvmlInit, (void))                                                              \
	N(_, nvmlInitWithFlags, (uint32_t))                                                 \
	N(_, nvmlSystemGetCudaDriverVersion_v2, (int *))                                    \
	N(_, nvmlDeviceGetCount, (uint32_t *))                                              \
	N(_, nvmlDeviceGetHandleByIndex, (uint32_t, abi_device *))                          \
	N(_, nvmlDeviceGetHandleBySerial, (const char *, abi_device *))                     \
	N(_, nvmlDeviceGetHandleByPciBusId_v2, (const char *, abi_device *))                \
	N(_, nvmlDeviceGetHandleByPciBusId, (const char *, abi_device *))                   \
	N(_, nvmlDeviceGetIndex, (abi_device, uint32_t *))                                  \
	N(_, nvmlDeviceGetBrand, (abi_device, uint32_t *))                                  \
	N(_, nvmlDeviceGetPciInfo_v2, (abi_device, struct abi_pci_v2 *))                    \
	N(_, nvmlDeviceGetPciInfo, (abi_device, struct abi_pci_v2 *))                       \
	N(_, nvmlDeviceGetPciInfoExt, (abi_device, struct abi_pci_ext *))                   \
	N(_, nvmlDeviceGetDisplayMode, (abi_device, uint32_t *))                            \
	N(_, nvmlDeviceGetPowerManagementMode, (abi_device, uint32_t *))                    \
	N(_, nvmlDeviceGetPowerState, (abi_device, uint32_t *))                             \
	N(_, nvmlDeviceGetSupportedClocksEventReasons, (abi_device, uint64_t *))            \
	N(_, nvmlDeviceGetSupportedClocksThrottleReasons, (abi_device, uint64_t *))         \
	N(_, nvmlDeviceGetViolationStatus, (abi_device, uint32_t, struct abi_violation *))  \
	N(_, nvmlDeviceIsMigDeviceHandle, (abi_device, uint32_t *))                         \
	N(_, nvmlDeviceGetDeviceHandleFromMigDeviceHandle, (abi_device, abi_device *))      \
	N(_, nvmlDeviceGetAttributes_v2, (abi_device, struct abi_mig_attributes *))         \
	N(_, nvmlEventSetWait, (abi_set, void *, uint32_t))                                 \
	N(_, nvmlGpmMigSampleGet, (abi_device, uint32_t, abi_gpm_sample))                   \
	N(_, nvmlDeviceGetDriverModel, (abi_device, uint32_t *, uint32_t *))                \
	N(_, nvmlDeviceGetDriverModel_v2, (abi_device, uint32_t *, uint32_t *))             \
	N(_, nvmlDeviceGetSupportedMemoryClocks, (abi_device, uint32_t *, uint32_t *))      \
	N(_, nvmlDeviceGetSupportedGraphicsClocks,                                          \
	  (abi_device, uint32_t, uint32_t *, uint32_t *))                                   \
	N(_, nvmlDeviceGetAccountingMode, (abi_device, uint32_t *))                         \
	N(_, nvmlDeviceSetAccountingMode, (abi_device, uint32_t))                           \
	N(_, nvmlDeviceClearAccountingPids, (abi_device))                                   \
	N(_, nvmlDeviceGetAccountingBufferSize, (abi_device, uint32_t *))                   \
	N(_, nvmlDeviceGetAccountingPids, (abi_device, uint32_t *, uint32_t *))             \
	N(_, nvmlDeviceGetAccountingStats, (abi_device, uint32_t, struct abi_accounting *)) \
	N(_, nvmlUnitGetCount, (uint32_t *))                                                \
	N(_, nvmlGetExcludedDeviceCount, (uint32_t *))                                      \
	N(_, nvmlSystemGetHicVersion, (uint32_t *, void *))                                 \
	N(_, nvmlDeviceGetBoardId, (abi_device, uint32_t *))                                \
	N(_, nvmlDeviceGetMultiGpuBoard, (abi_device, uint32_t *))                          \
	N(_, nvmlDeviceGetBusType, (abi_device, uint32_t *))                                \
	N(_, nvmlDeviceGetPowerSource, (abi_device, uint32_t *))                            \
	N(_, nvmlDeviceGetDefaultEccMode, (abi_device, uint32_t *))                         \
	N(_, nvmlDeviceGetGpuMaxPcieLinkGeneration, (abi_device, uint32_t *))               \
	N(_, nvmlDeviceGetPcieLinkMaxSpeed, (abi_device, uint32_t *))                       \
	N(_, nvmlDeviceGetPcieSpeed, (abi_device, uint32_t *))                              \
	N(_, nvmlDeviceGetClock, (abi_device, uint32_t, uint32_t, uint32_t *))              \
	N(_, nvmlDeviceGetDefaultApplicationsClock, (abi_device, uint32_t, uint32_t *))     \
	N(_, nvmlDeviceGetMaxCustomerBoostClock, (abi_device, uint32_t, uint32_t *))        \
	N(_, nvmlDeviceGetTargetFanSpeed, (abi_device, uint32_t, uint32_t *))               \
	N(_, nvmlDeviceGetMinMaxFanSpeed, (abi_device, uint32_t *, uint32_t *))             \
	N(_, nvmlDeviceGetEncoderCapacity, (abi_device, uint32_t, uint32_t *))              \
	N(_, nvmlDeviceGetEncoderStats, (abi_device, uint32_t *, uint32_t *, uint32_t *))   \
	N(_, nvmlDeviceGetEncoderSessions, (abi_device, uint32_t *, void *))                \
	N(_, nvmlDeviceGetFBCStats, (abi_device, struct abi_capture *))                     \
	N(_, nvmlDeviceGetFBCSessions, (abi_device, uint32_t *, void *))                    \
	N(_, nvmlDeviceGetGspFirmwareMode, (abi_device, uint32_t *, uint32_t *))            \
	N(_, nvmlDeviceGetGspFirmwareVersion, (abi_device, char *))                         \
	N(_, nvmlDeviceGetMemoryErrorCounter,                                               \
	  (abi_device, uint32_t, uint32_t, uint32_t, uint64_t *))                           \
	N(_, nvmlDeviceGetRetiredPages, (abi_device, uint32_t, uint32_t *, uint64_t *))     \
	N(_, nvmlDeviceGetRetiredPages_v2,                                                  \
	  (abi_device, uint32_t, uint32_t *, uint64_t *, uint64_t *))                       \
	N(_, nvmlDeviceGetConfComputeProtectedMemoryUsage, (abi_device, struct abi_memory *))

/* Calls about features that no simulated GPU has: vGPU, NVLink, info ROM, clock offsets and
 * more. These calls return code 3 (not supported), as a driver does. The real calls may have
 * more parameters than these declarations; the parameters are not read. */
#define SIM_ABSENT_CALLS(N)                                                   \
	N(_, nvmlDeviceGetAdaptiveClockInfoStatus, (abi_device, void *))      \
	N(_, nvmlDeviceGetAutoBoostedClocksEnabled, (abi_device, void *))     \
	N(_, nvmlDeviceGetBridgeChipInfo, (abi_device, void *))               \
	N(_, nvmlDeviceGetC2cModeInfoV, (abi_device, void *))                 \
	N(_, nvmlDeviceGetClkMonStatus, (abi_device, void *))                 \
	N(_, nvmlDeviceGetConfComputeGpuCertificate, (abi_device, void *))    \
	N(_, nvmlDeviceGetDynamicPstatesInfo, (abi_device, void *))           \
	N(_, nvmlDeviceGetGpcClkVfOffset, (abi_device, void *))               \
	N(_, nvmlDeviceGetMemClkVfOffset, (abi_device, void *))               \
	N(_, nvmlDeviceGetGpcClkMinMaxVfOffset, (abi_device, void *))         \
	N(_, nvmlDeviceGetMemClkMinMaxVfOffset, (abi_device, void *))         \
	N(_, nvmlDeviceGetGpuFabricInfo, (abi_device, void *))                \
	N(_, nvmlDeviceGetGpuFabricInfoV, (abi_device, void *))               \
	N(_, nvmlDeviceGetGpuOperationMode, (abi_device, void *))             \
	N(_, nvmlDeviceGetGridLicensableFeatures_v4, (abi_device, void *))    \
	N(_, nvmlDeviceGetInforomConfigurationChecksum, (abi_device, void *)) \
	N(_, nvmlDeviceGetInforomImageVersion, (abi_device, void *))          \
	N(_, nvmlDeviceGetInforomVersion, (abi_device, void *))               \
	N(_, nvmlDeviceGetIrqNum, (abi_device, void *))                       \
	N(_, nvmlDeviceGetLastBBXFlushTime, (abi_device, void *))             \
	N(_, nvmlDeviceGetMemoryBusWidth, (abi_device, void *))               \
	N(_, nvmlDeviceGetModuleId, (abi_device, void *))                     \
	N(_, nvmlDeviceGetNumaNodeId, (abi_device, void *))                   \
	N(_, nvmlDeviceGetNvLinkState, (abi_device, void *))                  \
	N(_, nvmlDeviceGetNvLinkVersion, (abi_device, void *))                \
	N(_, nvmlDeviceGetNvLinkCapability, (abi_device, void *))             \
	N(_, nvmlDeviceGetNvLinkRemoteDeviceType, (abi_device, void *))       \
	N(_, nvmlDeviceGetNvLinkRemotePciInfo_v2, (abi_device, void *))       \
	N(_, nvmlDeviceGetNvLinkErrorCounter, (abi_device, void *))           \
	N(_, nvmlDeviceGetPgpuMetadataString, (abi_device, void *))           \
	N(_, nvmlDeviceGetSupportedPerformanceStates, (abi_device, void *))   \
	N(_, nvmlDeviceGetThermalSettings, (abi_device, void *))              \
	N(_, nvmlDeviceGetActiveVgpus, (abi_device, void *))                  \
	N(_, nvmlDeviceGetCreatableVgpus, (abi_device, void *))               \
	N(_, nvmlDeviceGetHostVgpuMode, (abi_device, void *))                 \
	N(_, nvmlDeviceGetSupportedVgpus, (abi_device, void *))               \
	N(_, nvmlDeviceGetVgpuHeterogeneousMode, (abi_device, void *))        \
	N(_, nvmlDeviceGetVgpuMetadata, (abi_device, void *))                 \
	N(_, nvmlDeviceGetVgpuSchedulerCapabilities, (abi_device, void *))    \
	N(_, nvmlDeviceGetVgpuSchedulerLog, (abi_device, void *))             \
	N(_, nvmlDeviceGetVgpuSchedulerState, (abi_device, void *))           \
	N(_, nvmlDeviceValidateInforom, (abi_device, void *))                 \
	N(_, nvmlGpmQueryIfStreamingEnabled, (abi_device, void *))
#define SIM_ABSENT_SYSTEM_CALLS(N)                                       \
	N(_, nvmlSystemGetConfComputeCapabilities, (void *))             \
	N(_, nvmlSystemGetConfComputeState, (void *))                    \
	N(_, nvmlSystemGetConfComputeSettings, (void *))                 \
	N(_, nvmlSystemGetConfComputeGpusReadyState, (void *))           \
	N(_, nvmlSystemGetConfComputeKeyRotationThresholdInfo, (void *)) \
	N(_, nvmlSystemGetNvlinkBwMode, (void *))

#define SIM_ALL_CALLS(N) \
	NVML_CALLS(N) SIM_CALLS(N) SIM_ABSENT_CALLS(N) SIM_ABSENT_SYSTEM_CALLS(N)

#define SIM_ENUM(name, symbol, args) CALL_##symbol,
enum call { SIM_ALL_CALLS(SIM_ENUM) N_CALLS };
#undef SIM_ENUM

#define SIM_PROTOTYPE(name, symbol, args) SIM_EXPORT abi_return symbol args;
SIM_ALL_CALLS(SIM_PROTOTYPE)
SIM_EXPORT const char *nvmlErrorString(abi_return code);

/* The data of one NVML call while it runs. */
struct ctx {
	enum call call;
	struct world *w;
	struct device *d; /* device of the handle; NULL: the call is not about one device */
	struct mig *mig;  /* MIG instance of the handle; NULL: the handle is the whole board */
	uint64_t now_ns;  /* time of the world */
	struct fault fault; /* the faults of the scenario that apply to this call */
};

/* call_symbols has the symbol of each call. call_find() returns the number (enum call) of the
 * call with this symbol, or -1 if there is none. */
extern const char *const call_symbols[N_CALLS];
int call_find(const char *symbol);

/* An enter function that succeeds returns 0 and holds the lock. An enter function that fails
 * returns an error and does not hold the lock; the caller must then return this error.
 * abi_leave() releases the lock and returns code. */
abi_return abi_enter(struct ctx *c, enum call call);
abi_return abi_enter_init(struct ctx *c, enum call call);
abi_return abi_enter_device(struct ctx *c, enum call call, abi_device handle);
abi_return abi_enter_setter(struct ctx *c, enum call call, abi_device handle);
abi_return abi_leave(abi_return code);

/* Defines the exported function `symbol`. The block after the macro is the function's body. It
 * runs with the lock held; c has the world, the device and the time. The body returns the code
 * of the call. params are the parameters after the handle, in parentheses, followed by their
 * names. */
/* clang-format off */
#define SIM_UNPACK(...) __VA_ARGS__
#define SIM_CALL(enter, symbol, outer, inner, ...)                                            \
	static abi_return symbol##_locked inner;                                              \
	abi_return symbol outer                                                               \
	{                                                                                     \
		struct ctx c;                                                                 \
		abi_return code = enter;                                                      \
                                                                                              \
		return code == ABI_SUCCESS ? abi_leave(symbol##_locked(__VA_ARGS__))          \
					   : code;                                            \
	}                                                                                     \
	static abi_return symbol##_locked inner
#define SIM_CTX __attribute__((unused)) struct ctx *c
#define DEVICE_CALL(symbol, params, ...)                                                      \
	SIM_CALL(abi_enter_device(&c, CALL_##symbol, h), symbol,                              \
		 (abi_device h, SIM_UNPACK params), (SIM_CTX, SIM_UNPACK params), &c, __VA_ARGS__)
#define SET_CALL(symbol, params, ...)                                                         \
	SIM_CALL(abi_enter_setter(&c, CALL_##symbol, h), symbol,                              \
		 (abi_device h, SIM_UNPACK params), (SIM_CTX, SIM_UNPACK params), &c, __VA_ARGS__)
#define RESET_CALL(symbol) /* like SET_CALL, for a call without further parameters */           \
	SIM_CALL(abi_enter_setter(&c, CALL_##symbol, h), symbol, (abi_device h), (SIM_CTX), &c)
#define SYSTEM_CALL(symbol, params, ...)                                                      \
	SIM_CALL(abi_enter(&c, CALL_##symbol), symbol, params,                                \
		 (SIM_CTX, SIM_UNPACK params), &c, __VA_ARGS__)
#define INIT_CALL(symbol, params, ...) /* for a call that works without nvmlInit */           \
	SIM_CALL(abi_enter_init(&c, CALL_##symbol), symbol, params,                           \
		 (SIM_CTX, SIM_UNPACK params), &c, __VA_ARGS__)
/* clang-format on */

/* Defines a call that returns two numbers, or code 3 if `can` is false. */
#define PAIR_CALL(symbol, type, can, first_value, second_value)           \
	DEVICE_CALL(symbol, (type * first, type * second), first, second) \
	{                                                                 \
		if (first == NULL || second == NULL)                      \
			return ABI_INVALID_ARGUMENT;                      \
		if (!(can))                                               \
			return ABI_NOT_SUPPORTED;                         \
		*first = (type)abi_u32(c, first_value);                   \
		*second = (type)abi_u32(c, second_value);                 \
		return ABI_SUCCESS;                                       \
	}

/* Defines a call that returns one value, or code 3 if `can` is false. */
#define VALUE_CALL(symbol, type, can, ...)           \
	DEVICE_CALL(symbol, (type * out), out)       \
	{                                            \
		if (out == NULL)                     \
			return ABI_INVALID_ARGUMENT; \
		if (!(can))                          \
			return ABI_NOT_SUPPORTED;    \
		*out = __VA_ARGS__;                  \
		return ABI_SUCCESS;                  \
	}
#define U32_CALL(symbol, can, value) VALUE_CALL(symbol, uint32_t, can, abi_u32(c, value))
#define U64_CALL(symbol, can, value) VALUE_CALL(symbol, uint64_t, can, abi_u64(c, value))
/* Defines a call that fills a struct; the arguments after `can` are its members. */
#define STRUCT_CALL(symbol, type, can, ...) VALUE_CALL(symbol, type, can, (type){ __VA_ARGS__ })

/* Returns 0, or the error code that every call returns now, because the library is not
 * initialised or the driver is not loaded. The caller must hold the lock. */
abi_return abi_ready(const struct ctx *c);

/* Count the calls of nvmlInit and nvmlShutdown. abi_init_drop() returns ABI_UNINITIALIZED if
 * there was no nvmlInit. The caller must hold the lock. */
abi_return abi_init_add(struct ctx *c);
abi_return abi_init_drop(void);

/* Returns a handle. A handle is a number, not a pointer, and contains the generation, the
 * device and the MIG instance. mig_plus_1 is 0 for the whole board. */
abi_device abi_handle(const struct ctx *c, unsigned device, unsigned mig_plus_1);

/* Return v, or the value that a fault of the scenario sets instead. */
uint32_t abi_u32(const struct ctx *c, double v);
uint64_t abi_u64(const struct ctx *c, uint64_t v);

/* Copies text with its NUL. Returns success (0), invalid argument (2), not supported (3, if
 * text is NULL) or insufficient size (7). */
abi_return abi_string(const char *text, char *out, uint32_t size);

/* Returns the fault of one field of nvmlDeviceGetFieldValues. */
struct fault abi_field_fault(const struct ctx *c, unsigned field);

/* Waits until the time of the world reaches t_ns or sim.moved is signalled. May return earlier,
 * so the caller must check its condition again. The caller must hold the lock; the function
 * releases it during the wait. */
void abi_wait(uint64_t t_ns);

/* The state that control.c changes. */
struct sim {
	pthread_mutex_t lock;
	/* Signalled when time was stepped, a world was loaded, or a hang ended. */
	pthread_cond_t moved;
	struct world *world;
	unsigned generation;      /* generation of handles; changes with each load */
	unsigned inits;           /* number of nvmlInit calls without an nvmlShutdown */
	unsigned init_generation; /* generation at the first of these nvmlInit calls */
	uint64_t hang_round;      /* changes with each gpuward_sim_unhang() */
	uint64_t calls[N_CALLS];  /* number of calls of each function */
	/* The file that GPUWARD_SIM_CALLS names; the name of each call is written to it. -1: no
	 * file. */
	int calls_fd;
	char error[512]; /* why the scenario in GPUWARD_SIM could not be loaded, or "" */
};
extern struct sim sim;

/* Converts world time to the wall clock, in microseconds. */
static inline uint64_t abi_us(const struct ctx *c, uint64_t t_ns)
{
	return world_wall_ns(c->w, t_ns) / 1000;
}

#endif
