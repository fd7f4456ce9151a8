#include "xid_log.h"

#include "base/clock.h"
#include "device/context.h"
#include "device/nvml_abi.h"
#include "guard/kernel_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAST 256 /* maximum number of Xids kept from before the start */
/* number of recent Xids that are kept, to notice if the other source (kernel log or driver)
 * reports the same Xid */
#define RECENT 16
/* reports of the same Xid by both sources within this time count as one */
#define SAME_NS (5 * NS_PER_S)

struct recent_xid {
	char uuid[96];
	unsigned xid;
	uint64_t ns; /* 0: free */
	bool by_log;
};

struct xid_log {
	struct kernel_log *log;
	bool real, begun;
	char state[200];
	struct kernel_log_record past[PAST];
	unsigned pasts;
	struct recent_xid recent[RECENT];
	unsigned next;
};

int xid_log_new(struct gw_ctx *ctx, struct xid_log **ret)
{
	struct xid_log *l = calloc(1, sizeof(*l));

	if (!l)
		return -GW_E_NOMEM;
	l->real = ctx->root.real;
	snprintf(l->state, sizeof(l->state), "ok");
	kernel_log_open(&ctx->root, &l->log, l->state, sizeof(l->state));
	*ret = l;
	return 0;
}

void xid_log_free(struct xid_log *l)
{
	if (l)
		kernel_log_close(l->log);
	free(l);
}

const char *xid_log_state(const struct xid_log *l)
{
	return l->state;
}

/* True if the other source (kernel log or driver) has not reported this Xid yet. Each report
 * pairs with at most one report of the other source, so two Xids in a row count as two. */
static bool is_new(struct xid_log *l, const char *uuid, unsigned xid, bool by_log, uint64_t ns)
{
	for (unsigned i = 0; i < RECENT; i++) {
		struct recent_xid *t = &l->recent[i];
		uint64_t apart = t->ns > ns ? t->ns - ns : ns - t->ns;

		if (t->ns && t->by_log != by_log && t->xid == xid && apart <= SAME_NS &&
		    strcmp(t->uuid, uuid) == 0) {
			t->ns = 0;
			return false;
		}
	}

	struct recent_xid *t = &l->recent[l->next++ % RECENT];

	snprintf(t->uuid, sizeof(t->uuid), "%s", uuid);
	t->xid = xid;
	t->ns = ns;
	t->by_log = by_log;
	return true;
}

bool xid_log_is_new(struct xid_log *l, const struct driver_event *e)
{
	return is_new(l, e->uuid, (unsigned)e->data, false, e->mono_ns);
}

static const char *uuid_of(const struct xid_log *l, const struct view *v, const char *pci)
{
	for (unsigned i = 0; i < v->devices; i++) {
		const struct gw_device *d = gw_snapshot_device(v->snap, i);
		const char *own = gw_device_text(d, GW_T_PCI);

		if (own && kernel_log_same_pci(pci, own) &&
		    !(l->real && d->provenance == GW_FROM_SIMULATOR))
			return gw_device_text(d, GW_T_UUID);
	}
	return NULL;
}

static void remember(struct xid_log *l, enum kernel_log_kind kind,
		     const struct kernel_log_record *r)
{
	if (kind == KERNEL_LOG_LOADED)
		l->pasts = 0;
	else
		l->past[l->pasts++ % PAST] = *r;
}

static bool make_event(const struct xid_log *l, const struct view *v,
		       const struct kernel_log_record *r, uint64_t now_ns,
		       struct driver_event *ret)
{
	const char *uuid = uuid_of(l, v, r->pci);

	if (!uuid)
		return false;
	*ret = (struct driver_event){ .type = ABI_EVENT_XID,
				      .data = r->xid,
				      .gpu_instance = -1,
				      .mono_ns = r->mono_ns < now_ns ? r->mono_ns : now_ns };
	snprintf(ret->uuid, sizeof(ret->uuid), "%s", uuid);
	return true;
}

static void report_past(struct xid_log *l, const struct view *v, uint64_t now_ns,
			void (*found)(void *arg, const struct driver_event *e, bool past),
			void *arg)
{
	unsigned first = l->pasts > PAST ? l->pasts - PAST : 0;
	struct driver_event e;

	for (unsigned i = first; i < l->pasts; i++)
		if (make_event(l, v, &l->past[i % PAST], now_ns, &e))
			found(arg, &e, true);
	l->begun = true;
}

void xid_log_tick(struct xid_log *l, const struct view *v, uint64_t now_ns,
		  void (*found)(void *arg, const struct driver_event *e, bool past), void *arg)
{
	struct kernel_log_record r;
	enum kernel_log_kind kind;
	struct driver_event e;

	if (!l->log || !v->snap || !v->devices)
		return;
	while (kernel_log_next(l->log, &kind, &r)) {
		if (!l->begun) {
			remember(l, kind, &r);
		} else if (kind == KERNEL_LOG_XID && make_event(l, v, &r, now_ns, &e)) {
			e.mono_ns = now_ns;
			if (is_new(l, e.uuid, r.xid, true, now_ns))
				found(arg, &e, false);
		}
	}
	if (!l->begun)
		report_past(l, v, now_ns, found, arg);
}
