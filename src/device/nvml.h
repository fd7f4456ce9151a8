/* nvml: declarations that the files of the NVML backend share.
 *
 * nvml_library.c loads the library; nvml.c opens and closes it. nvml_read.c reads values with
 * the table nvml_readers.def, power samples and events; nvml_shape.c makes the calls of the
 * table. nvml_process.c lists processes, and nvml_set.c changes settings. */
#ifndef GW_DEVICE_NVML_H
#define GW_DEVICE_NVML_H

#include "backend.h"
#include "driver_call.h"
#include "nvml_abi.h"

enum nvml_call {
#define N(name, symbol, args) CALL_##name,
	NVML_CALLS(N)
#undef N
		CALL_COUNT
};

/* The library. A pointer is NULL if the library lacks this symbol. */
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
	abi_device handle; /* NULL: not available */
	/* How often a handle was obtained. If the number has changed, events that were
	 * registered with an older handle do not arrive any more. */
	unsigned attached;
	/* The rows of the reader table that are still read, per tier. If the driver refuses a
	 * row permanently, the row is removed until the driver is opened again. */
	uint8_t plan[TIER_COUNT][NVML_READERS_MAX];
	uint8_t planned[TIER_COUNT];
	/* Code of the hardware fault that the driver reported when the tier was last read.
	 * ABI_SUCCESS: none. */
	abi_return fault[TIER_COUNT];
	/* If the device is lost: when to search for it again, and the delay between two
	 * searches. */
	uint64_t retry_ns, backoff_ns;
	abi_device mig[DEVICE_MIG_MAX];
	abi_gpm_sample gpm[2];
	uint64_t gpm_ns;          /* when gpm[0] was filled; 0: never */
	unsigned char *processes; /* scratch memory for process lists */
	unsigned processes_cap;   /* size of `processes`, in entries of 32 bytes */
};

/* The symbols of the calls. They are arrays and not pointers, because each pointer would add a
 * relocation of 24 bytes to the library. */
#define NVML_SYMBOL_SIZE 48
extern const char nvml_symbol[CALL_COUNT][NVML_SYMBOL_SIZE];

/* Returns the name of a return code ("GPU_IS_LOST"). For an unknown code, writes "code N" to
 * out and returns out. */
const char *nvml_code_name(abi_return code, char out[static 24]);

/* What to do about a return code. */
enum nvml_reaction {
	REACT_NONE,   /* Do nothing: the value is absent this time. */
	REACT_FORGET, /* Do not read the value again: the device never has it. */
	REACT_LOST,   /* The device is gone: search for it again later. */
	REACT_FAULT,  /* Report that the device has a hardware fault. */
	REACT_REOPEN, /* The driver is gone: open it again. */
};
struct nvml_meaning {
	abi_return code;
	const char *name;
	enum gw_absence absence;
	enum nvml_reaction reaction;
	enum gw_cause cause; /* cause to report if the code concerns the device or the driver */
};
const struct nvml_meaning *nvml_meaning(abi_return code); /* never NULL */

/* Loads the library that the options name. Without such an option, searches the folders in
 * which drivers and container runtimes put the library, and loads the first one that is not a
 * stub. Returns its handle and sets b->library_path, or returns NULL and sets the cause. */
void *nvml_library_open(struct backend *b);

/* For a container without the library, writes which setting of the container runtime is missing
 * and what to do. Writes "" outside containers. `container` is the string that
 * environment_container() writes. `visible` and `capabilities` are the values of
 * NVIDIA_VISIBLE_DEVICES and NVIDIA_DRIVER_CAPABILITIES, or NULL. */
void nvml_runtime_setting(const char *container, const char *visible, const char *capabilities,
			  char *out, size_t size);

static inline struct nvml *nvml_of(struct device *d)
{
	return d->backend->priv;
}

static inline struct nvml_device *nvml_device_of(struct device *d)
{
	return d->priv;
}

/* These functions are called before and after every library call. In between, d->call holds the
 * name of the call, so that messages can name a call that hangs. After the call its cost is
 * recorded. */
static inline void nvml_calling(struct device *d, enum nvml_call call)
{
	atomic_store_explicit(d->call, nvml_symbol[call], memory_order_relaxed);
	atomic_store_explicit(&d->began_ns, d->series_ns ? d->series_ns : call_cost_now_ns(),
			      memory_order_relaxed);
}

static inline abi_return nvml_called(struct device *d, enum nvml_call call, abi_return code)
{
	uint64_t now = call_cost_add(d->backend->env->cost, call, code,
				     atomic_load_explicit(&d->began_ns, memory_order_relaxed));

	if (d->series_ns)
		d->series_ns = now;
	atomic_store_explicit(d->call, NULL, memory_order_relaxed);
	return code;
}

/* Calls the library. The function pointer must not be NULL. */
#define NVML(d, fn, ...)             \
	(nvml_calling(d, CALL_##fn), \
	 nvml_called(d, CALL_##fn, nvml_of(d)->call.fn(__VA_ARGS__)))

/* Works like NVML(), for a call that is selected at run time. Its first argument is the handle
 * of d. `type` is the type of the function. */
#define NVML_ANY(type, d, which, ...)                                          \
	(nvml_calling(d, which), nvml_called(d, which,                         \
					     ((type *)nvml_of(d)->any[which])( \
						     nvml_device_of(d)->handle, __VA_ARGS__)))

typedef abi_return nvml_u32_fn(abi_device, uint32_t *);

void nvml_plan(struct device *d); /* makes nvml_read() try all rows again */
void nvml_read(struct device *d, unsigned tiers);
/* Reads the row of one quantity, even if its tier is not due. Returns false if the device is
 * gone. */
bool nvml_read_one(struct device *d, unsigned quantity);
void nvml_read_memory(struct device *d);
/* Reads the memory of MIG instances. Returns false if an instance has changed. */
bool nvml_mig_memory(struct device *d);
/* Writes the names of the symbols that the library lacks and that a value needs, separated by
 * blanks. */
void nvml_missing(const struct nvml *n, char *out, size_t size);
/* Handles an error code that concerns the device or the driver. Returns true if the device must
 * not be read further. */
bool nvml_react(struct device *d, abi_return code);

enum gw_absence nvml_processes(struct device *d, struct usage_list *l, int *ret_error);
int nvml_process_use(struct device *d, uint64_t since_us, struct process_use *out,
		     unsigned cap);

/* Searches for a lost device and opens it if it is back. */
void nvml_find_again(struct device *d);
void nvml_instances(struct device *d);  /* lists the MIG instances again */
void nvml_identify(struct device *d);   /* reads name, memory and instances after opening */
void nvml_read_texts(struct device *d); /* reads the texts of the STATIC tier that are absent */
/* True if a text is absent because a call failed that may work later. */
bool nvml_lacks_texts(const struct device *d);

/* Functions of nvml_read.c; backend.h describes them. */
int nvml_power_samples(struct device *d, uint64_t since_us, struct power_sample *out,
		       unsigned cap);
bool nvml_has_events(const struct backend *b);
int nvml_events_open(struct backend *b, void **ret_events);
int nvml_events_add(struct device *d, void *events);
int nvml_events_wait(struct backend *b, void *events, unsigned timeout_ms,
		     struct device_event *ret);
void nvml_events_close(struct backend *b, void *events);

/* Functions of nvml_set.c; backend.h describes them. */
bool nvml_can_set(struct device *d, enum manage_what what);
int nvml_get(struct device *d, enum manage_what what, double ret[2], char *detail, size_t size);
int nvml_set(struct device *d, enum manage_what what, const double value[2], char *detail,
	     size_t size);

#endif
