/* view: what the service publishes at one tick, as plain data; every route reads it.
 *
 * The engine makes a new view every tick. A view does not change between ticks, so that one
 * rendered reply can be sent to all clients until the next tick. Only the main thread uses the
 * view. Handlers make no driver calls; work that takes time goes through struct view_ops. */
#ifndef GW_SERVE_VIEW_H
#define GW_SERVE_VIEW_H

#include "measure/process_energy.h"

#include <gpuward.h>

#include <stdbool.h>
#include <stdint.h>

/* The quantities in the history, in the order of the columns: rows of quantity.def. */
/* clang-format off */
#define VIEW_HISTORY(X) \
	X(POWER) \
	X(POWER_LIMIT) \
	X(TEMPERATURE_GPU) \
	X(TEMPERATURE_MEMORY) \
	X(UTILIZATION_GPU) \
	X(UTILIZATION_MEMORY) \
	X(MEMORY_USED) \
	X(CLOCK_SM) \
	X(CLOCK_MEMORY) \
	X(FAN_SPEED)
/* clang-format on */
enum view_history {
#define X(q) VIEW_H_##q,
	VIEW_HISTORY(X)
#undef X
		VIEW_HISTORIES
};
extern const unsigned
	view_history_quantity[VIEW_HISTORIES]; /* the enum gw_quantity of each column */

struct process_history;
struct model_energy;
struct workload;
struct workload_energy;

/* The data that the service has about a device in addition to the snapshot. In the array of
 * these structs, the indices are those of the devices in the snapshot. */
struct view_device {
	int meter;        /* index of the GPU in view.meter; -1: not measured */
	uint64_t seen_ns; /* monotonic time of the GPU's last response; 0: never */
	/* Counters that continue across restarts. */
	/* Energy that the service has measured. NAN: the GPU has no power reading. */
	double energy_joules;
	double energy_seconds;    /* time over which energy_joules was measured */
	uint64_t energy_since_ns; /* wall time of the GPU's first joule; 0: not recorded */
	/* number of failed readings by reason; see view_is_error() */
	uint64_t errors[GW_ABSENCES];
	uint64_t state_changes;
	/* how energy_joules divides among processes and idle time */
	struct process_energy_sums shares;
	const struct process_history *past; /* history of its processes; NULL: not read yet */
};

/* The energy of one process on one GPU since the service first saw the process. */
struct view_process {
	enum gw_absence absence; /* GW_HAVE: the energy is known */
	double energy_joules;
	/* power of the GPU, multiplied by the process's share of the GPU's energy in the last 3
	 * s or more; NAN: unknown */
	double power_w;
	enum attribute_how how; /* valid if absence is GW_HAVE */
	double step_joules;     /* joules that were added at this tick */
};

/* True if this absence is an error; errors are counted in view_device.errors. False if the
 * absence is a property of the device, the machine or the configuration. */
bool view_is_error(unsigned absence);

/* The cost of running nvidia-smi, if nvidia-smi is the source of the values. */
struct view_program {
	/* Number of started nvidia-smi processes. 0: nvidia-smi is not used. */
	uint64_t starts;
	double run_seconds;    /* total duration of the nvidia-smi processes that ended */
	double stream_seconds; /* CPU time of the nvidia-smi process that keeps running */
	/* number of times that this nvidia-smi process stopped writing */
	uint64_t stream_stalls;
};

/* The cost of the service. */
struct view_self {
	/* to show to people; the wall clock may have been set since then */
	uint64_t start_wall_ns;
	uint64_t start_mono_ns; /* for durations */
	double cpu_seconds;     /* user and system time of all threads */
	uint64_t rss_bytes, rss_peak_bytes;
	uint64_t wakeups;             /* number of rounds of the main loop */
	uint64_t ticks, ticks_missed; /* number of completed and of skipped readings */
	double tick_seconds;          /* duration of the last reading of all GPUs */
	double tick_max_seconds;
	unsigned threads, descriptors;
	uint64_t store_bytes;      /* size of the database; 0: none */
	uint64_t store_dropped;    /* number of batches that could not be stored */
	const char *store_problem; /* why nothing is stored; NULL: no problem */
	bool counts_known;         /* False: the counts of earlier runs could not be read. */
	struct view_program program;
};

/* The push of metrics to a server. */
struct view_push {
	uint64_t queue_bytes;     /* bytes on disk that are not sent yet */
	uint64_t sent, dropped;   /* number of samples */
	uint64_t failures;        /* number of failed requests */
	uint64_t success_wall_ns; /* time of the last accepted request; 0: none */
	char problem[400]; /* why nothing can be sent now; "": the last request succeeded */
	char queue_problem[600]; /* why samples do not reach the disk; "": no problem */
};

struct log_pair;

/* An event. Ids increase, also across restarts. */
struct view_event {
	uint64_t id;
	uint64_t wall_ns;
	const char *kind;     /* "device-state", "driver", "window", "config", "service", ... */
	const char *uuid;     /* UUID of the GPU; NULL: the whole machine */
	const char *severity; /* "info", "warning", "error" */
	const char *text;     /* one sentence */
	const struct log_pair *pair; /* key-value pairs for the log only */
	unsigned pairs;
	bool simulated; /* Set by emit(): the GPUs were simulated at that time. */
};

/* A point of the history. Its time is wall time, because the history survives a reboot. */
struct view_point {
	uint64_t begin_wall_ns, span_ns;
	double mean, min, max;
	unsigned count;
};

/* Maximum bytes of a stored or streamed document. */
#define VIEW_DOCUMENT_MAX (1u << 20)

/* Which stored documents a search returns. Of the other documents, only their entries in the
 * index are read. */
struct view_find {
	const char *kind;
	const char *from; /* smallest id to return; NULL: no limit */
	const char *glob; /* pattern of the ids, with *, ? and [...]; NULL: all ids */
	bool ids_only;    /* Pass only the ids: json is NULL, and no document is read. */
};
/* Returns false to end the search. */
typedef bool view_found_fn(void *arg, const char *id, const char *json);

enum view_request { VIEW_LET_GO, VIEW_RESUME };

enum view_watch {
	/* One request. If the readings are old because no client used them, a tick follows at
	 * once and reads every tier. If a second request comes within 5 s, the second request
	 * has the effect of VIEW_WATCH_TICKS. */
	VIEW_WATCH_ONCE,
	/* One request, like VIEW_WATCH_ONCE, with a reply that also shows what the guard
	 * observed. */
	VIEW_WATCH_SCENE,
	VIEW_WATCH_TICKS, /* A client, such as a stream, needs every tick. */
};

struct view;
struct guard_view;
struct guard_view_ops;
struct manage_change;
struct manage_result;
struct view_ops {
	/* Reads points of a quantity of a GPU, oldest first, in wall time, from memory or the
	 * database. Returns the number of points, -GW_E_NODEV, -GW_E_ARG, -GW_E_NOSUPPORT (no
	 * history of this quantity), -GW_E_SIZE, -GW_E_IO or -GW_E_NOMEM. *ret_step_ns is the
	 * time from one point to the next. */
	int (*history)(void *engine, const char *uuid, unsigned quantity, uint64_t from_wall_ns,
		       uint64_t to_wall_ns, uint64_t step_ns, struct view_point *out,
		       unsigned max, uint64_t *ret_step_ns);
	/* Calls each() for at most max events with an id above `after`, oldest first. If
	 * `after` is UINT64_MAX, calls each() for the latest max events. An event is valid only
	 * during the call. */
	int (*events)(void *engine, uint64_t after, unsigned max,
		      void (*each)(void *arg, const struct view_event *e), void *arg);
	/* Emits an event: it is logged, stored and streamed. Sets id, wall_ns and
	 * simulated; returns the id. */
	uint64_t (*emit)(void *engine, const struct view_event *e);
	/* Documents in the store, such as energy windows. kind and id are words. put_document()
	 * replaces a document with the same id; it returns 0, or -GW_E_SIZE if the document is
	 * longer than VIEW_DOCUMENT_MAX or the queue is full: then nothing was stored. */
	int (*put_document)(void *engine, const char *kind, const char *id, const char *json,
			    size_t size);
	int (*each_document)(void *engine, const char *kind, unsigned max,
			     void (*each)(void *arg, const char *id, const char *json),
			     void *arg);
	/* Calls each() with the documents, those with the largest ids first, until each()
	 * returns false. Returns their number, -GW_E_IO or -GW_E_NOMEM. */
	int (*find_documents)(void *engine, const struct view_find *f, view_found_fn *each,
			      void *arg);
	void (*delete_document)(void *engine, const char *kind, const char *id);
	/* Requests something that takes time. Returns the number of the request, or
	 * -GW_E_STATE: too many requests. The view has the outcome as soon as
	 * view_request_done() is true for this number. */
	int (*request)(void *engine, enum view_request what);
	/* Changes a GPU setting (device/manage.h) on the reader thread. Returns a ticket above
	 * 0, or -GW_E_NOSUPPORT (disabled), -GW_E_STATE (too many changes are running). */
	int (*manage)(void *engine, const struct manage_change *change);
	/* If the change is done, sets *ret and returns 1. Returns 0 while the change is still
	 * running, or -GW_E_NOENT if there is no such ticket. Call this function until it
	 * returns 1. */
	int (*managed)(void *engine, int ticket, struct manage_result *ret);
	/* Reports that a client shows the processes. For the next half minute, each tick reads
	 * their SM utilisation, which costs 2 ms per GPU. If `now` is true, the caller waits
	 * for the utilisation. So if the last tick did not read it, a tick follows at once. */
	void (*look)(void *engine, bool now);
	/* Reports that a client uses the readings. While no client uses them, a tick comes only
	 * every few seconds and reads less (view.pace). */
	void (*watch)(void *engine, enum view_watch how);
	/* True if the counters of the view and all changes of documents are in the file, or
	 * cannot be written. While this is false, clients must not see these counters and
	 * changes. After kill -9, such a counter would continue from a lower value, and
	 * Prometheus would assume that it restarted at 0. And a change that a reply has
	 * confirmed would be lost. */
	bool (*stored)(void *engine);
	/* Returns why nothing can be stored now; NULL: there is no problem. During this time,
	 * documents stay in the queue, and they are lost if the service ends. */
	const char *(*store_problem)(void *engine);
};

/* Each member is a sentence about something that the service cannot do because memory or
 * threads are missing. NULL: no problem. The service tries again. */
struct view_problems {
	const char *guard; /* why the guard does not run */
	const char *meter; /* why the energy is not measured */
};

struct view {
	uint64_t tick; /* 0: no reading yet, and snap is NULL */
	const struct gw_snapshot *snap;
	const struct gw_process_list *processes; /* NULL: not read yet */
	/* Each array has one entry per row of `processes`; NULL: not known yet. */
	const struct view_process *process;
	const struct workload *process_workload;
	const struct workload_energy *workloads; /* NULL: not read yet */
	const struct gw_environment *env;        /* NULL: not read yet */
	/* The meter for windows; NULL: no meter. When the meter changes, the windows on the old
	 * meter no longer exist. */
	struct gw_meter *meter;
	/* context of the drivers, only for call_cost_list(); NULL: not open yet */
	struct gw_ctx *ctx;
	const struct view_device *device; /* one entry per device of snap */
	unsigned devices;
	uint64_t interval_ns; /* time between two ticks while a client uses the readings */
	struct view_pace {
		/* Time from this tick to the next one. While no client uses the readings, it is
		 * longer than interval_ns. */
		uint64_t next_ns;
		bool full; /* This tick read every tier that was due. */
	} pace;
	bool let_go; /* The drivers are released for a client or a suspend. */
	struct view_requests {
		int error;     /* result of the last view_ops.request: 0 or an error */
		unsigned done; /* number of finished requests */
		/* number of requests; equal to `done` if no request is running */
		unsigned made;
	} requests;
	/* Number of failed attempts to open a driver, including earlier runs of the service. */
	uint64_t init_failures;
	const char *unopened; /* why there is no reading yet; NULL: there is a reading */
	struct view_problems problems;
	struct view_self self;
	const struct view_ops *ops;
	void *engine;
	/* NULL: there is no guard; then guard_ops and guarding are NULL too. */
	const struct guard_view *guard;
	const struct guard_view_ops *guard_ops;
	void *guarding; /* first argument of the functions in guard_ops */
	/* Tokens and energy of the inference servers. NULL: there is no guard. */
	const struct model_energy *models;
};

/* True if the request with this number is done. */
static inline bool view_request_done(const struct view *v, int number)
{
	return (int)(v->requests.done - (unsigned)number) >= 0;
}

/* Returns NULL if the readings are current, else a sentence that says why they are not. The
 * sentence names a hanging driver call. now_ns: monotonic time. */
const char *view_stale(const struct view *v, uint64_t now_ns, char *out, size_t size);

/* True if a GPU is simulated, or was read from another root directory: its figures are not
 * real. Every document that has figures contains this value. */
bool view_simulated(const struct view *v);

/* True if the latest reading is old or incomplete because no client used the readings. A
 * request then asks for a new one (view_ops.watch) and waits for it. scene: also true if the
 * guard's scene is old for this reason. */
bool view_rests(const struct view *v, uint64_t now_ns, bool scene);

/* True if the latest reading is at most two intervals old. This is normally true after
 * view_ops.watch was called. */
bool view_current(const struct view *v, uint64_t now_ns);

/* Works like view_stale(), but also returns a sentence if no driver responds. Used for /readyz.
 * A machine is ready if it has a driver but no GPU, or if it is configured to use no GPU. */
const char *view_unready(const struct view *v, uint64_t now_ns, char *out, size_t size);

/* True if there is a GPU that is neither lost nor closed. This GPU may be asleep, or a call to
 * it may hang. Needs a snapshot. */
bool view_answers(const struct view *v);

#endif
