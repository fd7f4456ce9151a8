/* view: what the service knows, as plain data, for whoever answers a question.
 *
 * The engine makes a new one every tick; between ticks nothing in it changes, so that what was
 * rendered once serves everybody until the next.  Only the main thread sees it.  Nobody who
 * answers asks a driver: what costs time is asked of the engine, through the operations below. */
#ifndef GW_SERVE_VIEW_H
#define GW_SERVE_VIEW_H

#include <gpuward.h>

#include <stdbool.h>
#include <stdint.h>

/* What is kept of the past, in the order of the columns: rows of quantity.def. */
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
extern const unsigned view_history_quantity[VIEW_HISTORIES]; /* enum gw_quantity of each */

/* Beside what the snapshot says of a device; position as in the snapshot. */
struct view_device {
	int meter;        /* its number in view.meter; -1: not measured          */
	uint64_t seen_ns; /* monotonic time of its last answer; 0: never         */
	/* Counts that grow for ever, over restarts too. */
	double energy_joules;         /* measured by us; NAN: it has no power figure      */
	double energy_seconds;        /* time over which that was measured                */
	uint64_t errors[GW_ABSENCES]; /* readings that failed, by reason; see view_is_error() */
	uint64_t state_changes;
};

/* Is this absence a failure to be counted, or just how the device is? */
bool view_is_error(unsigned absence);

/* Our own cost. */
struct view_self {
	uint64_t start_wall_ns;
	double cpu_seconds; /* user and system, all threads                  */
	uint64_t rss_bytes, rss_peak_bytes;
	uint64_t wakeups;             /* rounds of the main loop                       */
	uint64_t ticks, ticks_missed; /* readings done; those that were left out       */
	double tick_seconds;          /* how long the last reading of all GPUs took    */
	double tick_max_seconds;
	unsigned threads, descriptors;
	uint64_t store_bytes;    /* of the database; 0: none                      */
	uint64_t store_dropped;  /* batches that could not be kept                */
	const char *store_state; /* "ok", or the sentence why nothing is kept     */
	bool counts_known;       /* false: counts lack those of earlier runs      */
};

struct log_pair;

/* Something that happened.  Ids grow for ever, over restarts too. */
struct view_event {
	uint64_t id;
	uint64_t wall_ns;
	const char *kind;     /* "device-state", "driver", "window", "config", "service", ... */
	const char *uuid;     /* of the GPU, NULL: the machine */
	const char *severity; /* "info", "warning", "error" */
	const char *text;     /* one sentence */
	const struct log_pair *pair; /* the same in pairs, for the log alone */
	unsigned pairs;
};

struct view_point { /* of the past; wall time, because it outlives a boot */
	uint64_t begin_wall_ns, span_ns;
	double mean, min, max;
	unsigned count;
};

/* Bytes of a document that is kept or streamed. */
#define VIEW_DOCUMENT_MAX (1u << 20)

enum view_request { VIEW_LET_GO, VIEW_RESUME };

struct view;
struct guard_view;
struct guard_view_ops;
struct manage_order;
struct manage_result;
struct view_ops {
	/* Points of a figure of a GPU, oldest first: as series_query(), in wall time, from memory or
	 * the database.  Number of points, -GW_E_NODEV, -GW_E_ARG, -GW_E_NOSUPPORT (no history of this
	 * quantity) or -GW_E_SIZE.  *ret_step_ns: distance of the points given. */
	int (*history)(void *engine, const char *uuid, unsigned quantity, uint64_t from_wall_ns,
		       uint64_t to_wall_ns, uint64_t step_ns, struct view_point *out,
		       unsigned max, uint64_t *ret_step_ns);
	/* Events with an id above `after` (UINT64_MAX: the latest there are), oldest first, at most
	 * max; each is good during its call. */
	int (*events)(void *engine, uint64_t after, unsigned max,
		      void (*each)(void *arg, const struct view_event *e), void *arg);
	/* Tells of something that happened: logged, kept, streamed.  id and wall_ns are set by it; gives
	 * the id. */
	uint64_t (*tell)(void *engine, const struct view_event *e);
	/* Documents that outlive us: energy windows.  kind and id are words; one with the same id
	 * takes its place.  0 or -GW_E_SIZE: it is above VIEW_DOCUMENT_MAX, or too much waits to be
	 * written already; then nothing was kept. */
	int (*keep)(void *engine, const char *kind, const char *id, const char *json,
		    size_t size);
	int (*kept)(void *engine, const char *kind, unsigned max,
		    void (*each)(void *arg, const char *id, const char *json), void *arg);
	void (*forget)(void *engine, const char *kind, const char *id);
	/* Asks for something that takes time; its outcome is in the view whose `asks` has come to the number that this gives
	 * (view_asked()), or -GW_E_STATE: too much is asked already. */
	int (*ask)(void *engine, enum view_request what);
	/* Changes a setting of a GPU (device/manage.h), on the thread that reads it.  A ticket above 0,
	 * or -GW_E_NOSUPPORT (management is off), -GW_E_STATE (too many under way). */
	int (*manage)(void *engine, const struct manage_order *order);
	/* 1 and *ret when it is done, 0 not yet, -GW_E_NOENT no such ticket.  Asked until 1. */
	int (*managed)(void *engine, int ticket, struct manage_result *ret);
};

struct view {
	uint64_t tick; /* 0: nothing was read yet, and snap is NULL */
	const struct gw_snapshot *snap;
	const struct gw_process_list *processes; /* NULL: not read yet */
	const struct gw_environment *env;        /* NULL likewise      */
	struct gw_meter *meter; /* for windows; NULL: none now.  When it is another one than
				   before, windows opened on the one before are gone */
	struct gw_ctx *ctx;     /* for device/call_cost.h alone; NULL before it is open */
	const struct view_device *device; /* one a device of snap */
	unsigned devices;
	uint64_t interval_ns; /* between ticks */
	bool let_go;          /* the drivers were let go on request */
	int ask_error;        /* of the last view_ops.ask: 0, or why not */
	unsigned asks;        /* how many were done */
	unsigned asked; /* and how many were asked for: as many, where none is under way */
	uint64_t init_failures; /* drivers that could not be opened; grows for ever */
	bool opening;           /* the drivers are being opened for the first time */
	struct view_self self;
	const struct view_ops *ops;
	void *engine;
	const struct guard_view *guard; /* NULL: there is none, and nothing else of it is */
	const struct guard_view_ops *guard_ops;
	void *guarding; /* their engine */
};

/* Is what was asked for by that number done? */
static inline bool view_asked(const struct view *v, int number)
{
	return (int)(v->asks - (unsigned)number) >= 0;
}

/* Is what it says of now?  NULL: yes; else the sentence why not, which names the driver call that
 * hangs, if one does.  now_ns: monotonic. */
const char *view_stale(const struct view *v, uint64_t now_ns, char *out, size_t size);

/* As view_stale(), and where no driver answers that counts too: /readyz.  A machine that has a
 * driver and no GPU, or was told to use none, is ready. */
const char *view_unready(const struct view *v, uint64_t now_ns, char *out, size_t size);

/* Is there a GPU?  One that sleeps or hangs is there; one that was lost or whose driver went away is
 * not.  Of a view that has a snapshot. */
bool view_answers(const struct view *v);

#endif
