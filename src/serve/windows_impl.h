/* windows_impl: declarations shared by windows*.c and their test; no other file includes it.
 *
 *   windows.c      opening, marking, ending, removing
 *   windows_doc.c  documents, sums over GPUs, storing, loading, events */
#ifndef GW_SERVE_WINDOWS_IMPL_H
#define GW_SERVE_WINDOWS_IMPL_H

#include "windows.h"

#include "measure/sensor.h"

enum windows_state { WINDOWS_IS_OPEN, WINDOWS_IS_ENDING, WINDOWS_HAS_ENDED };

/* A measured GPU, as it was when the window began. */
struct windows_device {
	unsigned number; /* index in the meter */
	unsigned index;
	char uuid[96], name[96], driver[96];
	enum gw_provenance provenance;
	double power_limit_w; /* power limit when the window began; NAN: unknown */
	/* What is known about the sensor: for an open window, at its begin; for an ended
	 * window, at its end. */
	struct sensor sensor;
};

struct windows_part {
	struct windows_part *next;
	char label[WINDOWS_LABEL];
	bool labelled; /* False: the part is before the first mark. */
	uint64_t begin_ns, end_ns;
	struct gw_window *window; /* window of the meter; NULL: the part is complete */
	struct buf devices;       /* the JSON array of devices, when the part is complete */
};

/* Sums over the devices. A sum is NAN if the value of one device is unknown. */
struct windows_sum {
	struct gw_interval joules, relative;
	double power_w;
	/* Seconds that the energy covers. This is the mean over the devices, because each
	 * device has its own last sample. 0: the energy is unknown. */
	double seconds;
	uint64_t codes;
	enum gw_validity validity;
};

/* Times and durations of a window; monotonic clock except begin_wall_ns. */
struct windows_times {
	uint64_t begin_ns, begin_wall_ns, end_ns, limit_ns, wait_until_ns;
	/* lease_ns 0: no lease. asked_ns: time of the last request for the window. */
	uint64_t lease_ns, asked_ns;
};

struct windows_entry {
	struct windows_entry *next;
	char id[20], label[WINDOWS_LABEL];
	char key[65], request[65]; /* hashes of Idempotency-Key and request; "": none */
	enum windows_state state;
	/* cause of the end: "request", "limit", "lease", "meter", "crash"; NULL: open */
	const char *ended_by;
	struct windows_times time;
	/* The last change is in the queue of the store. Whether it will be stored is not known
	 * yet. */
	bool queued;
	bool simulated;
	char *tags; /* the tags of the request as JSON */
	struct windows_device *device;
	unsigned devices;
	unsigned marks;

	/* The objects of the meter for this window and for its parts. Used only until this
	 * window ends. */
	struct gw_window *window;
	struct windows_part *parts, *last;

	/* The next members are used after the window has ended. */
	struct windows_sum sum;
	/* The document of the window. It contains the data of all members above except id and
	 * hashes. NULL: out of memory. */
	char *document;
	size_t head_bytes; /* bytes of the document before its parts; 0: unknown */
	bool cut;          /* The document has parts; a short document omits them. */
};

struct windows {
	struct windows_entry *first; /* list of all windows, latest first */
	struct gw_meter *meter;      /* meter of the open windows */
	unsigned parts;              /* number of parts of all open windows */
	bool loaded;                 /* The stored windows were loaded. */
	struct stream *stream;
};

/* Sums over the devices of w, the meter's window for the entry or for one of its parts. */
void windows_sum_up(const struct windows_entry *e, struct gw_window *w,
		    struct windows_sum *ret);

/* Writes the final result of a part (the time between two marks) of a window as JSON, and frees
 * the window that the meter has for this part. */
void windows_settle_part(const struct windows_entry *e, struct windows_part *p);

/* Makes the document of an ended window. Returns 0, or the error of the buf. */
int windows_make_document(struct windows_entry *e);

/* Stores the document of an ended window, or a record of an open window. Returns 0 or an error.
 * After -GW_E_IO, the document or record is lost if the service ends before the store can be
 * written again. */
int windows_keep(const struct view *v, const struct windows_entry *e);
void windows_unkeep(const struct view *v, const struct windows_entry *e);

/* Emits the event that the window began or ended. err is the result of windows_keep(). If it is
 * an error, the event says that the window could not be stored. */
void windows_announce(struct windows *w, const struct view *v, struct windows_entry *e,
		      int err);

/* Loads stored windows once, and reports those that were open at a crash. */
void windows_load(struct windows *w, const struct view *v);

#endif
