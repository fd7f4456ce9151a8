/* backend: the interface of one way to reach GPUs, such as NVML or the kernel's files.
 *
 * A backend finds its GPUs, keeps their handles, reads values and lists processes. It never
 * logs and never exits. If a value is missing, it reports the reason, not a zero. To add a
 * vendor, add one file and one row of backend.def. */
#ifndef GW_DEVICE_BACKEND_H
#define GW_DEVICE_BACKEND_H

#include "manage.h"

#include "base/clock.h"
#include "base/root.h"

#include <gpuward.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DEVICE_TEXT_SIZE 96
#define DEVICE_MIG_MAX   8 /* more than the 7 instances that a board can have */
#define TIER_COUNT       8

/* The readings of one GPU, as plain data. The thread that reads the hardware fills a report;
 * other code gets a copy. A missing value has an absence reason instead. */
struct report {
	unsigned index; /* the driver's number of the GPU */
	enum gw_vendor vendor;
	enum gw_provenance provenance;
	enum gw_device_state state;
	enum gw_cause cause; /* why the state is not GW_DEVICE_OK */
	char message[256];   /* the cause as a sentence; "" if the state is GW_DEVICE_OK */
	uint64_t begin_ns, end_ns; /* monotonic time before and after the FAST tier was read */
	uint64_t
		tier_ns[TIER_COUNT]; /* monotonic time when each tier was last read; 0: never */
	char text[GW_TEXTS][DEVICE_TEXT_SIZE];
	uint8_t text_why[GW_TEXTS]; /* enum gw_absence of each text */
	double v[GW_QUANTITIES];    /* valid if `why` is GW_HAVE */
	uint8_t why[GW_QUANTITIES]; /* enum gw_absence of each quantity */
	/* Temperature of the GPU, in degrees Celsius, when its thermal margin was read. NAN:
	 * unknown. */
	double margin_at_c;
	unsigned mig_count;
	struct gw_mig mig[DEVICE_MIG_MAX];
};

struct backend;

/* One GPU of a backend. */
struct device {
	struct backend *backend; /* borrowed */
	struct report r;         /* written only by the thread that reads the hardware */
	/* *call is the name of the vendor call that is running; NULL: none. The name is stored
	 * in own_call or, while the backend opens, in the backend's `call`. */
	_Atomic(const char *) *call;
	_Atomic(const char *) own_call;
	_Atomic(uint64_t) began_ns; /* start of the last vendor call; 0: not recorded */
	/* When the previous vendor call ended. If calls follow one another without other work,
	 * this time is also the start of the next call, which saves one clock reading per call.
	 * 0: the next call reads the clock. */
	uint64_t series_ns;
	bool fresh; /* The GPU was opened, and read() must still get the GPU's name. */
	void *priv; /* private data of the backend; backend_ops.close frees it */
};

/* Makes an empty report: every value is absent with reason not_read. */
void report_init(struct report *r, enum gw_vendor vendor, enum gw_provenance provenance);

/* Marks every value of these tiers as absent for this reason. */
void report_absent(struct report *r, unsigned tiers, enum gw_absence why);

/* Sets the state of the device and its message: the sentence of cause, followed by " (detail)"
 * if `detail` is not "". GW_DEVICE_OK clears both. */
void report_state(struct report *r, enum gw_device_state state, enum gw_cause cause,
		  const char *detail);

/* Stores text without control characters. If text is NULL or blank, the string is absent with
 * reason `why`. */
void report_text(struct report *r, enum gw_text t, const char *text, enum gw_absence why);

/* Returns why a device in this state has no values; GW_HAVE if the device answers. */
enum gw_absence device_absence(enum gw_device_state state, enum gw_cause cause);

static inline void report_set(struct report *r, unsigned q, double v)
{
	r->v[q] = v;
	r->why[q] = GW_HAVE;
}

static inline void report_miss(struct report *r, unsigned q, enum gw_absence why)
{
	r->why[q] = (uint8_t)why;
}

static inline bool report_has(const struct report *r, unsigned q)
{
	return r->why[q] == GW_HAVE;
}

/* Returns which of the requested tiers must be read now, because their values are older than
 * the interval of the tier. */
unsigned report_due(const struct report *r, unsigned tiers, uint64_t now_ns);

/* Records that tiers were read at now_ns. */
void report_stamp(struct report *r, unsigned tiers, uint64_t now_ns);

struct call_cost_table;

/* Data that all backends of a context use. It outlives the backends. */
struct backend_env {
	const struct clock *clock;
	const struct root *root;
	const char *
		nvml_library; /* Path of the NVML library. NULL: the backend searches for it. */
	unsigned flags;       /* enum gw_open_flag */
	uint64_t deadline_ns; /* gw_options.deadline_ns; 0: no limit */
	/* The process is about to end. The backend need not clean up, because the kernel cleans
	 * up. */
	bool process_ends;
	struct call_cost_table *cost; /* cost of NVML calls; NULL: it is not recorded */
	atomic_ulong *init_failures;  /* counts failed attempts to load and initialise NVML */
};

/* One process on one device as the driver lists it. */
struct usage {
	int64_t pid;
	unsigned type;         /* enum gw_process_type */
	int gpu_instance;      /* MIG GPU instance; -1: none */
	uint64_t memory_bytes; /* valid if memory_why is GW_HAVE */
	enum gw_absence memory_why;
	char name[32]; /* Name of a simulated process, which is not in /proc. Otherwise "". */
};

struct usage_list {
	struct usage *p;
	unsigned count, cap;
	/* Why the driver does not list all compute processes. GW_HAVE: it lists all of them. */
	enum gw_absence partial;
};

/* Adds a row, or merges it into the row with the same pid and instance: types are united, and
 * memory is the larger value, because the driver lists the same bytes several times. Returns 0
 * or -GW_E_NOMEM. */
int usage_add(struct usage_list *l, const struct usage *u);
void usage_done(struct usage_list *l);

/* One entry of the driver's power ring buffer. */
struct power_sample {
	uint64_t wall_us; /* the driver's timestamp, on the wall clock */
	double power_w;
};

/* The utilisation of a device by one process. */
struct process_use {
	int64_t pid;      /* pid that the driver reports; the process lists may lack it */
	uint64_t wall_us; /* timestamp of the newest sample of the process */
	double sm_ratio;
};

struct device_event {
	struct device *device; /* NULL: the event is about the whole driver */
	uint64_t type;         /* for NVML: one bit of enum abi_event */
	uint64_t data;         /* for an Xid event: the Xid number */
	int gpu_instance;      /* MIG GPU instance of the event; -1: none */
};

struct backend_ops {
	const char *name;
	enum gw_vendor vendor;
	/* Tables for code that several backends share. A backend that uses drm.c has a struct
	 * drm_vendor here; other backends have NULL. */
	const void *tables;

	/* Checks quickly, on the caller's thread, whether open() can succeed. Does not open a
	 * device, start a program or wake a GPU. If open() cannot succeed, sets the cause and
	 * returns false. NULL: always call open(). */
	bool (*present)(struct backend *b);

	/* Finds and opens the GPUs. Calls backend_slot() for each GPU, in the driver's order,
	 * and sets UUID and PCI id. Also sets name and memory, or sets d->fresh if read() must
	 * get them. If opening fails or there is no GPU, open() sets the cause with
	 * backend_fail() and returns 0. The only error that it returns is -GW_E_NOMEM. open()
	 * may be called again after close(): a GPU with a known UUID keeps its slot. */
	int (*open)(struct backend *b);

	/* Closes every handle and frees every priv; the slots stay. Safe after a failed
	 * open. */
	void (*close)(struct backend *b);

	/* Reads the tiers into d->r, records the time and sets the state. Blocks only in the
	 * driver. Sets b->reopen if the whole driver went away. */
	void (*read)(struct device *d, unsigned tiers);

	/* Appends the processes on d. Returns GW_HAVE, or why there is no list. *ret_error is 0
	 * or -GW_E_NOMEM. */
	enum gw_absence (*processes)(struct device *d, struct usage_list *l, int *ret_error);

	/* The functions below are optional (NULL: not supported). */

	/* Reads only memory (total, reserved, used, free) into d->r, for callers that ask ten
	 * times per second. Call it only while d->r.state is OK. NULL: memory comes with the
	 * FAST tier. */
	void (*memory)(struct device *d);

	/* Reads the driver's power ring buffer: entries newer than since_us, oldest first, at
	 * most cap. For a backend that gets the entries from a program, the first call starts
	 * the program and returns no entry. Never waits for an entry. However, if that program
	 * keeps failing, each call runs the program once and waits for its output. Returns the
	 * number of entries, or -GW_E_NOSUPPORT, -GW_E_LOST, -GW_E_NOMEM. */
	int (*power_samples)(struct device *d, uint64_t since_us, struct power_sample *out,
			     unsigned cap);

	/* Reads the mean utilisation per process from since_us until now. since_us and the
	 * driver's timestamps are wall-clock microseconds. Fills at most cap rows, one per pid,
	 * each with the time of the newest sample of that pid. Ignores samples with a value
	 * over 100 % or an old timestamp, and counts repeated samples once.
	 *
	 * The mean covers only samples that name the process: the driver reports no sample in
	 * which the process was idle. Two processes that had the same pid are in one row. With
	 * since_us 0, the mean covers the whole history that the driver keeps. If the wall
	 * clock was set back after since_us, no sample is newer than since_us. Returns the
	 * number of rows, or -GW_E_NOSUPPORT, -GW_E_LOST, -GW_E_NOMEM, -GW_E_PERM. */
	int (*process_use)(struct device *d, uint64_t since_us, struct process_use *out,
			   unsigned cap);

	/* Events. Only event_watch.c uses these functions. event_watch.c keeps the backend open
	 * during each call (context.h) and closes the set before the backend closes.
	 *
	 * has_events: true if the library has the event calls; makes no call.
	 * open: creates an empty set. Returns 0, -GW_E_NOSUPPORT, -GW_E_LOST or -GW_E_NOMEM.
	 * add: the caller must have exclusive use of d. Returns 1 if events of d arrive, 0 if
	 * that is not possible now, -GW_E_STATE if d was lost and then found again: the set
	 * must then be opened again.
	 * wait: blocks in the driver. Returns 1 and *ret, 0 at the timeout (perhaps early), or
	 * -GW_E_LOST if the driver or a GPU went away; then close the set. */
	bool (*has_events)(const struct backend *b);
	int (*events_open)(struct backend *b, void **ret_events);
	int (*events_add)(struct device *d, void *events);
	int (*events_wait)(struct backend *b, void *events, unsigned timeout_ms,
			   struct device_event *ret);
	void (*events_close)(struct backend *b, void *events);

	/* Settings. Only manage.c uses these functions, after it has checked the value.
	 *
	 * can_set: true if the call exists.
	 * get: reads the current value, NAN if the driver does not report it.
	 * set: sets the value; NULL restores the driver's default.
	 * get and set return 0, or -GW_E_NOSUPPORT, -GW_E_PERM, -GW_E_ARG, -GW_E_STATE,
	 * -GW_E_TIMEOUT, -GW_E_LOST, -GW_E_IO, with the driver's answer in `detail`, such as
	 * "nvmlDevice...: NO_PERMISSION". */
	bool (*can_set)(struct device *d, enum manage_what what);
	int (*get)(struct device *d, enum manage_what what, double ret[2], char *detail,
		   size_t size);
	int (*set)(struct device *d, enum manage_what what, const double value[2], char *detail,
		   size_t size);
};

struct backend {
	const struct backend_ops *ops;
	const struct backend_env *env;
	struct device *
		*slot; /* the devices, in the order in which they were found; never removed */
	unsigned count, cap;
	enum gw_cause cause; /* why there are no devices; GW_CAUSE_NONE if there are devices */
	char message[400];
	char library_path[256];
	char driver_version[80], nvml_version[80], cuda_version[16];
	char missing[1024];    /* optional symbols that the library lacks */
	atomic_bool simulated; /* may be set before open() returns */
	bool open;             /* The driver is open and its devices can be read. */
	/* How often the backend was opened. A thread that uses one of the devices exclusively
	 * (slot.in_use) may read this member without the lock of the context. */
	unsigned opened;
	atomic_bool reopen;         /* The driver went away: the context must open it again. */
	_Atomic(const char *) call; /* name of the vendor call that open or close is making */
	uint64_t began_ns;          /* start of that call; only the calling thread uses it */
	void *priv;
};

/* backend_table has one entry per row of backend.def and ends with NULL. */
enum {
#define GW_BACKEND(symbol, name, modules, help) BACKEND_##symbol,
#include <gpuward/backend.def>
	BACKENDS
};
extern const struct backend_ops *const backend_table[BACKENDS + 1];

/* Returns the device with this uuid, or NULL. If the device or the caller has no uuid, the PCI
 * ids are compared. */
struct device *backend_find(const struct backend *b, const char *uuid, const char *pci);

/* Returns the device with this uuid or, if uuid is NULL, with this PCI id. Creates the device
 * if it is missing. Returns NULL if out of memory. */
struct device *backend_slot(struct backend *b, const char *uuid, const char *pci);

/* Returns how long to wait before the next attempt to open something: 1 s at first (last_ns 0),
 * then twice the last time, at most a minute. */
static inline uint64_t backend_backoff_ns(uint64_t last_ns)
{
	const uint64_t next = last_ns ? 2 * last_ns : NS_PER_S, most = 60 * NS_PER_S;

	return next < most ? next : most;
}

/* Sets the cause and its message: the sentence of the cause, followed by ": detail" if fmt is
 * not NULL. */
void backend_fail(struct backend *b, enum gw_cause cause, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Frees the slots. Call ops->close() first. */
void backend_done(struct backend *b);

#define GW_BACKEND(symbol, name, modules, help) \
	extern const struct backend_ops backend_##symbol;
#include <gpuward/backend.def>

/* Converts "00000000:01:00.0", "0000:01:00.0" or "01:00.0", in any case, to "0000:01:00.0".
 * Returns false if text is not a PCI id. */
bool pci_normalise(const char *text, char out[static 16]);

#endif
