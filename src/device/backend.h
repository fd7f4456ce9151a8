/* backend: the seam between the ways to reach a GPU and everything above.
 *
 * A backend is one row of the table in backend.c.  It finds its GPUs, keeps its handles, reads
 * figures and lists processes; it never logs, never exits, and gives reasons instead of
 * zeros.  Adding a vendor is one file and one row. */
#ifndef GW_DEVICE_BACKEND_H
#define GW_DEVICE_BACKEND_H

#include "device.h"
#include "manage.h"

#include "base/clock.h"
#include "base/root.h"

struct call_cost_table;

struct backend_env { /* what every backend of a context is given; outlives them */
	const struct clock *clock;
	const struct root *root;
	const char *nvml_library;     /* NULL: search */
	unsigned flags;               /* enum gw_open_flag */
	uint64_t deadline_ns;         /* as of gw_options; 0: none */
	bool parting;                 /* the process ends: a driver may be left to the kernel */
	struct call_cost_table *cost; /* where calls are counted (call_cost.h); NULL: nowhere */
};

/* One process on one device as the driver lists it. */
struct usage {
	int64_t pid;
	unsigned type;    /* enum gw_process_type */
	int gpu_instance; /* -1: none */
	uint64_t memory_bytes;
	enum gw_absence memory_why;
	char name[32]; /* of a simulated process, which /proc does not know; else "" */
};

struct usage_list {
	struct usage *p;
	unsigned count, cap;
	bool partial; /* the driver keeps some of those who compute to itself */
};

/* Adds a row, or joins it to the row of the same pid and instance (types are united, memory
 * is the larger of the two: the driver tells the same bytes in several lists).  0 or
 * -GW_E_NOMEM. */
int usage_add(struct usage_list *l, const struct usage *u);
void usage_done(struct usage_list *l);

/* One reading of the driver's own power ring. */
struct power_sample {
	uint64_t wall_us; /* the driver's stamp, on the wall clock */
	double power_w;
};

/* How busy one process kept a device. */
struct process_use {
	int64_t pid;      /* as the driver names it, perhaps one that nobody lists     */
	uint64_t wall_us; /* stamp of its newest sample                                */
	double sm_ratio, memory_ratio;
};

struct device_event {
	struct device *device; /* NULL: the driver as a whole              */
	uint64_t type;         /* one bit of enum abi_event, for NVML      */
	uint64_t data;         /* the XID, for that type                   */
	int gpu_instance;      /* -1: none                                 */
};

struct backend_ops {
	const char *name;
	enum gw_vendor vendor;

	/* A quick look, on the caller's thread, whether open is worth its while: nothing is opened,
	 * started or woken.  False: no, and the cause is set.  NULL: always worth it. */
	bool (*present)(struct backend *b);

	/* Looks for its GPUs and opens them: a slot for each through backend_slot(), in the driver's
	 * order, with UUID and PCI id; name and memory too, or else d->fresh.  Where it cannot, or finds none, sets the cause with
	 * backend_fail() and returns 0.  Only -GW_E_NOMEM is an error.  May be called again after
	 * close: slots whose UUID is found again keep their place. */
	int (*open)(struct backend *b);

	/* Closes every handle and frees every priv; the slots stay.  Safe after a failed open. */
	void (*close)(struct backend *b);

	/* Reads the tiers into d->r, stamps them, sets the state.  Never blocks but in the driver.
	 * When the driver as a whole went away it sets b->reopen. */
	void (*read)(struct device *d, unsigned tiers);

	/* Appends who is on d.  GW_HAVE, or why the list cannot be had.  *ret_error is 0 or
	 * -GW_E_NOMEM. */
	enum gw_absence (*processes)(struct device *d, struct usage_list *l, int *ret_error);

	/* The rest is optional (NULL: the backend cannot). */

	/* Reads memory (total, reserved, used, free) into d->r and nothing else: for whoever asks ten
	 * times a second.  Only while d->r.state is OK; NULL: it comes with the FAST tier. */
	void (*memory)(struct device *d);

	/* Drains the driver's power ring: readings newer than since_us, oldest first, at most cap.
	 * Where a program prints them, the first call starts it and finds nothing yet.  Never waits
	 * for a reading; only while that program does not work it runs one for each round.
	 * Returns how many, or -GW_E_NOSUPPORT, -GW_E_LOST, -GW_E_NOMEM. */
	int (*power_samples)(struct device *d, uint64_t since_us, struct power_sample *out,
			     unsigned cap);

	/* Mean utilisation per process since since_us (driver stamps, wall-clock microseconds):
	 * fills at most cap rows, one per pid, stamped with its newest sample; values over 100 %,
	 * stale stamps and repeated rows are dropped.  The mean is over the samples that name the
	 * process: the driver tells nothing of samples in which it did nothing.  A number that two
	 * processes had within the time is one row.  since_us 0 brings old history; after a step
	 * back of the wall clock nothing is newer than what was seen.  Returns how many, or
	 * -GW_E_NOSUPPORT, -GW_E_LOST, -GW_E_NOMEM, -GW_E_PERM. */
	int (*process_use)(struct device *d, uint64_t since_us, struct process_use *out,
			   unsigned cap);

	/* Events, for event_watch.c alone, which holds the backend open meanwhile (context.h) and closes
	 * the set before the backend is closed.  has_events: does the library have the calls?  It
	 * makes none.  open, an empty set: 0, -GW_E_NOSUPPORT, -GW_E_LOST or -GW_E_NOMEM.
	 * add, by whoever has the use of d: 1 it is listened to, 0 it cannot be now,
	 * -GW_E_STATE it was lost and is back: the set must be opened anew.  wait blocks in the
	 * driver: 1 and *ret, 0 when the time passed (perhaps early), -GW_E_LOST when the driver or a GPU of the
	 * set went away: close it. */
	bool (*has_events)(const struct backend *b);
	int (*events_open)(struct backend *b, void **ret_events);
	int (*events_add)(struct device *d, void *events);
	int (*events_wait)(struct backend *b, void *events, unsigned timeout_ms,
			   struct device_event *ret);
	void (*events_close)(struct backend *b, void *events);

	/* Settings, for manage.c alone: it has checked the value.  Whether the call exists; what is
	 * set now (NAN where the driver does not tell); sets it, value NULL: as the driver itself
	 * would.  0, or -GW_E_NOSUPPORT, -GW_E_PERM, -GW_E_ARG, -GW_E_STATE, -GW_E_TIMEOUT, -GW_E_LOST,
	 * -GW_E_IO with what the driver said in said ("nvmlDevice...: NO_PERMISSION"). */
	bool (*can_set)(struct device *d, enum manage_what what);
	int (*get)(struct device *d, enum manage_what what, double ret[2], char *said,
		   size_t size);
	int (*set)(struct device *d, enum manage_what what, const double value[2], char *said,
		   size_t size);
};

struct backend {
	const struct backend_ops *ops;
	const struct backend_env *env;
	struct device **slot; /* in order of first sight; a slot never goes away */
	unsigned count, cap;
	enum gw_cause cause; /* NONE when it has devices */
	char message[400];
	char library_path[256];
	char driver_version[80], nvml_version[80], cuda_version[16];
	char missing[1024];    /* optional symbols that the library lacks */
	atomic_bool simulated; /* nothing of it is real; told even while open is stuck */
	bool open;
	unsigned opened;            /* times it was opened; whoever holds a device may look */
	atomic_bool reopen;         /* the driver went away under us */
	_Atomic(const char *) call; /* the vendor call of open or close under way */
	uint64_t began_ns;          /* when it was made; of the thread that makes it */
	void *priv;
};

/* The rows, in the order of preference; ends with NULL. */
#define BACKENDS_MAX 4
extern const struct backend_ops *const backend_table[BACKENDS_MAX + 1];

/* Slot of the device with this uuid (or, where either does not know it, this PCI id), or NULL. */
struct device *backend_find(const struct backend *b, const char *uuid, const char *pci);

/* Slot of the device with this uuid (or, where uuid is NULL, this PCI id), made where there is
 * none.  NULL: no memory. */
struct device *backend_slot(struct backend *b, const char *uuid, const char *pci);

/* Sets the cause and its message: the cause's sentence, with ": detail" where fmt is not NULL. */
void backend_fail(struct backend *b, enum gw_cause cause, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Frees the slots and what they hold; ops->close() has been called. */
void backend_done(struct backend *b);

extern const struct backend_ops backend_nvml, backend_nvsmi, backend_amdgpu, backend_intel;

/* PCI ids: "00000000:01:00.0", "0000:01:00.0" or "01:00.0", any case, to "0000:01:00.0".  false: no
 * id. */
bool pci_normalise(const char *text, char out[static 16]);

#endif
