/* event_watch: receives driver events (Xids, ECC errors, recovery actions) on its own thread,
 * because waiting for events blocks in the driver.
 *
 * It hides the driver's event set, which must be closed before the driver is released or
 * reloaded, and opened again afterwards; a wait for events may end early or never. P-state and
 * clock events are not requested, because they occur all the time. Past events are not
 * reported; recovery actions and remapped rows are read with the HEALTH tier. */
#ifndef GW_DEVICE_EVENT_WATCH_H
#define GW_DEVICE_EVENT_WATCH_H

#include "base/mailbox.h"

#include <gpuward.h>

#include <stddef.h>
#include <stdint.h>

struct driver_event {
	/* UUID of the GPU. "": the event is about the whole driver, or the GPU has no UUID. */
	char uuid[96];
	uint64_t type;    /* one bit of enum abi_event */
	uint64_t data;    /* the Xid number if the event is an Xid; else 0 */
	int gpu_instance; /* MIG GPU instance of the event; -1: none */
	uint64_t mono_ns,
		wall_ns; /* when the event was received, on the clocks of the context */
};

struct event_watch;

/* Starts to watch the GPUs of ctx, which is borrowed and must outlive the watch. fn is called
 * on the watch's thread, one call at a time, and never after event_watch_free(). fn must be
 * short and must not call gpuward functions. If the driver is missing, the watch waits for it;
 * suspended GPUs are not woken. Returns 0; -GW_E_NOSUPPORT if neither the backends nor the
 * library have events (then no thread is started); -GW_E_ARG; -GW_E_NOMEM. */
int event_watch_new(struct gw_ctx *ctx, void (*fn)(void *arg, const struct driver_event *e),
		    void *arg, struct event_watch **ret_watch);

/* Ends the thread; w may be NULL. Returns 0, or -GW_E_STATE if a driver call has not returned.
 * In that case the thread continues until the call returns and reports nothing more. ctx may be
 * closed even then: the memory that the call still uses is not freed. */
int event_watch_free(struct event_watch *w);

/* Returns the number of watched GPUs. *ret_why is a static string: the cause if no GPU is
 * watched; "" if a GPU is watched, if the watch has just started, or if the driver has no
 * GPU. */
unsigned event_watch_status(struct event_watch *w, const char **ret_why);

/* Passes driver events from the watch thread to another thread. The queue is bounded, so that a
 * driver that sends events without end cannot use up memory. Events that do not fit are
 * counted, so that a lost Xid is visible. */
#define EVENT_QUEUE 64

struct event_queue {
	struct mailbox box; /* box.news_fd is readable after an event was added */
	struct driver_event event[EVENT_QUEUE];
	unsigned events;
	/* number of events that did not fit since the last event_queue_take() */
	unsigned lost;
	unsigned lost_xids; /* how many of the lost events were Xids */
};

struct event_batch {
	struct driver_event event[EVENT_QUEUE]; /* oldest first */
	unsigned events, lost, lost_xids;
};

/* Returns 0 or -GW_E_IO. Call event_queue_done() in both cases. */
int event_queue_init(struct event_queue *q);
void event_queue_done(struct event_queue *q);

/* Adds an event. Any thread may call this. */
void event_queue_add(struct event_queue *q, const struct driver_event *e);
/* Moves all queued events to *ret. */
void event_queue_take(struct event_queue *q, struct event_batch *ret);

#endif
