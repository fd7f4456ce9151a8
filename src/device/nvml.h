/* nvml: the NVML backend's own view of the library and of a device behind it.
 *
 * nvml.c loads, opens and closes; nvml_read.c reads figures by the table nvml_readers.def, with
 * nvml_shape.c and nvml_gpm.c making the calls; nvml_process.c lists
 * processes in whatever layout the driver writes; nvml_event.c waits for events and drains
 * the driver's sample ring; nvml_set.c changes settings.  Nothing outside these includes this header but tests. */
#ifndef GW_DEVICE_NVML_H
#define GW_DEVICE_NVML_H

#include "backend.h"
#include "call_cost.h"
#include "nvml_abi.h"

enum nvml_call {
#define N(name, symbol, args) CALL_##name,
	NVML_CALLS(N)
#undef N
		CALL_COUNT
};

/* The library.  A pointer is NULL where the library lacks the symbol: each on its own. */
struct nvml {
	void *lib;
	const char *(*error_string)(abi_return);
	union {
		struct {
#define N(name, symbol, args) abi_return(*name) args;
			NVML_CALLS(N)
#undef N
		} call;
		void (*any[CALL_COUNT])(void);
	};
	bool initialised;
};

#define NVML_READERS_MAX 96

struct nvml_device {
	abi_device handle; /* NULL: not to be had                                          */
	unsigned attached; /* times that a handle was had: what was registered with one of
			      before is no more                                            */
	/* Rows of the reader table still worth asking, tier after tier; a refusal that will not
	 * change until the driver is opened again takes its row out. */
	uint8_t plan[TIER_COUNT][NVML_READERS_MAX];
	uint8_t planned[TIER_COUNT];
	abi_return fault[TIER_COUNT]; /* hardware fault that the tier's last reading named */
	uint64_t retry_ns,
		backoff_ns; /* lost device: when to look again, and how long after  */
	abi_device mig[DEVICE_MIG_MAX];
	abi_gpm_sample gpm[2];
	uint64_t gpm_ns; /* when gpm[0] was filled, 0: never                               */
	unsigned char *processes; /* scratch of process lists                             */
	unsigned processes_cap;   /* entries of 32 bytes                                  */
};

extern const char *const nvml_symbol[CALL_COUNT];

/* Name of a return code ("GPU_IS_LOST"), "code N" into out where there is none. */
const char *nvml_code_name(abi_return code, char out[static 24]);

/* What a return code means to us. */
enum nvml_reaction {
	REACT_NONE,   /* this value is absent this time                  */
	REACT_FORGET, /* it is absent for good: do not ask again         */
	REACT_LOST,   /* the device is gone                              */
	REACT_FAULT,  /* the device has a hardware fault                 */
	REACT_REOPEN, /* the driver is gone                              */
};
struct nvml_meaning {
	abi_return code;
	const char *name;
	enum gw_absence absence;
	enum nvml_reaction reaction;
	enum gw_cause cause; /* when it concerns the device or the driver */
};
const struct nvml_meaning *nvml_meaning(abi_return code); /* never NULL */

static inline struct nvml *nvml_of(struct device *d)
{
	return d->backend->priv;
}

static inline struct nvml_device *nvml_device_of(struct device *d)
{
	return d->priv;
}

/* Around every call: its name stands in d->call meanwhile, so that one that never returns can be
 * named, and what it cost is added up when it does. */
static inline void nvml_calling(struct device *d, enum nvml_call call)
{
	atomic_store_explicit(d->call, nvml_symbol[call], memory_order_relaxed);
	d->began_ns = call_cost_now_ns();
}

static inline abi_return nvml_called(struct device *d, enum nvml_call call, abi_return code)
{
	call_cost_add(d->backend->env->cost, call, code, d->began_ns);
	atomic_store_explicit(d->call, NULL, memory_order_relaxed);
	return code;
}

/* Calls the library.  The pointer must not be NULL. */
#define NVML(d, fn, ...)             \
	(nvml_calling(d, CALL_##fn), \
	 nvml_called(d, CALL_##fn, nvml_of(d)->call.fn(__VA_ARGS__)))

/* nvml_read.c */
void nvml_plan(struct device *d); /* every row is worth asking again */
void nvml_read(struct device *d, unsigned tiers);
/* Reads the row of one quantity ahead of its tier.  False: the device is gone. */
bool nvml_read_one(struct device *d, unsigned quantity);
void nvml_read_memory(struct device *d);
bool nvml_mig_memory(struct device *d); /* false: an instance is no longer what it was */
/* Symbols whose absence costs a figure, joined by blanks. */
void nvml_missing(const struct nvml *n, char *out, size_t size);
/* The device or the driver as a whole answered with an error.  True: stop reading it. */
bool nvml_react(struct device *d, abi_return code);

/* nvml_process.c */
enum gw_absence nvml_processes(struct device *d, struct usage_list *l, int *ret_error);
int nvml_process_use(struct device *d, uint64_t since_us, struct process_use *out,
		     unsigned cap);

/* nvml.c */
void nvml_find_again(struct device *d); /* a lost device: has it come back? */
void nvml_instances(struct device *d);  /* lists them anew */
void nvml_identify(struct device *d);   /* name, memory, instances: once after it was opened */
void nvml_read_texts(struct device *d); /* those of the STATIC tier */

/* nvml_event.c: see backend.h */
int nvml_power_samples(struct device *d, uint64_t since_us, struct power_sample *out,
		       unsigned cap);
bool nvml_has_events(const struct backend *b);
int nvml_events_open(struct backend *b, void **ret_events);
int nvml_events_add(struct device *d, void *events);
int nvml_events_wait(struct backend *b, void *events, unsigned timeout_ms,
		     struct device_event *ret);
void nvml_events_close(struct backend *b, void *events);

/* nvml_set.c: see backend.h */
bool nvml_can_set(struct device *d, enum manage_what what);
int nvml_get(struct device *d, enum manage_what what, double ret[2], char *said, size_t size);
int nvml_set(struct device *d, enum manage_what what, const double value[2], char *said,
	     size_t size);

#endif
