/* watch: events of the driver (Xids, ECC errors, recovery actions), on a thread of their own.
 *
 * Waiting for events blocks in the driver, so nobody else does it.  Hidden here: the driver's event set
 * and whose GPUs are in it, that it must be closed before the driver is let go or reloaded and
 * opened anew after, that GPUs come and go, that a wait may end early or never.  P-states and
 * clocks, which change all the time, are not asked for.  Nothing from before is told: what a GPU
 * says of itself (recovery action, remapped rows) is read beside it. */
#ifndef GW_DEVICE_EVENT_WATCH_H
#define GW_DEVICE_EVENT_WATCH_H

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

#endif
