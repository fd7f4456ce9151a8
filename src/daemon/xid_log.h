/* xid_log: Xids from the kernel log, in addition to those that drivers report.
 *
 * What the log holds at the first tick is the past, since the driver was last loaded. Later
 * entries are followed, for drivers that report no events. An Xid in both sources is reported
 * once. */
#ifndef GW_DAEMON_XID_LOG_H
#define GW_DAEMON_XID_LOG_H

#include "device/event_watch.h"
#include "serve/view.h"

#include <stdbool.h>

struct xid_log;

/* Uses the root of ctx, which is borrowed. An unreadable log is no error: it counts as empty,
 * and xid_log_state() says why. 0 or -GW_E_NOMEM. */
int xid_log_new(struct gw_ctx *ctx, struct xid_log **ret);
void xid_log_free(struct xid_log *l);

/* "ok", or a sentence. */
const char *xid_log_state(const struct xid_log *l);

/* Reads new entries and calls found for each Xid of a device in the view. Simulated GPUs have
 * no Xids in the log of the real kernel. */
void xid_log_tick(struct xid_log *l, const struct view *v, uint64_t now_ns,
		  void (*found)(void *arg, const struct driver_event *e, bool past), void *arg);

/* A driver reported an Xid. false: the kernel log already had it. */
bool xid_log_is_new(struct xid_log *l, const struct driver_event *e);

#endif
