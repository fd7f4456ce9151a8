/* xid_log: Xids from the kernel's log, beside those that drivers tell.
 *
 * What the log holds at the first tick is the past, from the last time that the driver was loaded on; what
 * comes later is followed, for drivers that tell no events.  One that both tell is told once. */
#ifndef GW_DAEMON_XID_LOG_H
#define GW_DAEMON_XID_LOG_H

#include "device/event_watch.h"
#include "serve/view.h"

#include <stdbool.h>

struct xid_log;

/* Of the root of ctx, which is borrowed.  A log that cannot be read is no error: it is empty, and
 * xid_log_state() says why.  0 or -GW_E_NOMEM. */
int xid_log_new(struct gw_ctx *ctx, struct xid_log **ret);
void xid_log_free(struct xid_log *l);

/* "ok", or a sentence. */
const char *xid_log_state(const struct xid_log *l);

/* Reads on and calls found for each Xid of a device of the view.  Simulated GPUs have no Xids in the log of
 * the real kernel. */
void xid_log_tick(struct xid_log *l, const struct view *v, uint64_t now_ns,
		  void (*found)(void *arg, const struct driver_event *e, bool past), void *arg);

/* A driver told of an Xid: false, if the log already did. */
bool xid_log_heard(struct xid_log *l, const struct driver_event *e);

#endif
