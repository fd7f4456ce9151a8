/* xid_log: Xids from the kernel log, in addition to those that drivers report.
 *
 * Entries that are in the log at the first tick count as past; only entries since the driver
 * was last loaded are used. Later entries are read at each tick, for drivers that report no
 * events. An Xid that both the kernel log and the driver report is passed on once. */
#ifndef GW_DAEMON_XID_LOG_H
#define GW_DAEMON_XID_LOG_H

#include "device/event_watch.h"
#include "serve/view.h"

#include <stdbool.h>

struct xid_log;

/* Opens the log under the root of ctx, which is borrowed. An unreadable log is not an error: it
 * counts as empty, and xid_log_state() says why. Returns 0 or -GW_E_NOMEM. */
int xid_log_new(struct gw_ctx *ctx, struct xid_log **ret);
void xid_log_free(struct xid_log *l);

/* Returns "ok", or a sentence that says why the log cannot be read. */
const char *xid_log_state(const struct xid_log *l);

/* Reads new entries and calls found for each Xid of a device in the view. Entries in the log of
 * the real kernel are never about simulated GPUs. */
void xid_log_tick(struct xid_log *l, const struct view *v, uint64_t now_ns,
		  void (*found)(void *arg, const struct driver_event *e, bool past), void *arg);

/* Call it when a driver reports an Xid. Returns false if the kernel log already had it. */
bool xid_log_is_new(struct xid_log *l, const struct driver_event *e);

#endif
