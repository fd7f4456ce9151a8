/* watch: events of the driver (Xids, ECC errors, recovery actions), on a thread of their own.
 *
 * Waiting for events blocks in the driver, so nobody else does it.  Hidden here: the driver's event set
 * and whose GPUs are in it, that it must be closed before the driver is let go or reloaded and
 * opened anew after, that GPUs come and go, that a wait may end early or never.  P-states and
 * clocks, which change all the time, are not asked for.  Nothing from before is told: what a GPU
 * says of itself (recovery action, remapped rows) is read beside it. */
#ifndef GW_DEVICE_EVENT_WATCH_H
#define GW_DEVICE_EVENT_WATCH_H

#include "base/mailbox.h"

#include <gpuward.h>

#include <stddef.h>
#include <stdint.h>

struct driver_event {
	char uuid[96];    /* "": of the driver as a whole, or of a GPU that does not tell */
	uint64_t type;    /* one bit of enum abi_event                     */
	uint64_t data;    /* of an Xid: its number; else 0                 */
	int gpu_instance; /* -1: none                                      */
	uint64_t mono_ns, wall_ns; /* when it was heard, on the clocks of the context */
};

struct event_watch;

/* Starts to listen to the GPUs of ctx, which is borrowed and must be closed later than the watch is
 * freed.  fn is called on the watch's thread, one call at a time, not after event_watch_free(); it is brief
 * and calls nothing of gpuward.  A driver that is not there yet is waited for; GPUs that sleep
 * are left asleep.  0; -GW_E_NOSUPPORT: neither the backends nor the library can tell events, there is
 * no thread; -GW_E_ARG; -GW_E_NOMEM. */
int event_watch_new(struct gw_ctx *ctx, void (*fn)(void *arg, const struct driver_event *e),
		    void *arg, struct event_watch **ret_watch);

/* Ends the thread.  NULL is fine.  0, or -GW_E_STATE: a driver call has not returned; the thread is left
 * behind, ends itself when it returns, and tells nothing more.  ctx may then be closed too: it leaves
 * behind what the call still uses. */
int event_watch_free(struct event_watch *w);

/* How many GPUs are listened to now, and where none is, why in a sentence of at most size bytes
 * (else ""). */
unsigned event_watch_status(struct event_watch *w, char *why, size_t size);

/* ---- a queue of events ----
 *
 * Passes driver events from the watch thread to another one.  It is bounded, so that a driver that
 * sends events without end cannot use up memory; events that do not fit are counted, so that a lost
 * Xid is visible. */
#define EVENT_QUEUE 64

struct event_queue {
	struct mailbox box; /* its news_fd is readable when events wait */
	struct driver_event event[EVENT_QUEUE];
	unsigned events;
	unsigned lost, lost_xids; /* since the last event_queue_take() */
};

struct event_batch {
	struct driver_event event[EVENT_QUEUE]; /* oldest first */
	unsigned events, lost, lost_xids;
};

int event_queue_init(struct event_queue *q); /* 0 or -GW_E_IO; event_queue_done() in any case */
void event_queue_done(struct event_queue *q);

/* From any thread. */
void event_queue_add(struct event_queue *q, const struct driver_event *e);
/* Moves all queued events to *ret. */
void event_queue_take(struct event_queue *q, struct event_batch *ret);

#endif
