/* manage_journal: what was changed on GPUs and is to be put back.
 *
 * Before a setting is changed its old value is kept where a crash does not reach it; it is put
 * back when the service ends, or, after a crash, when it starts again.  Hides when an entry begins,
 * what becomes of it when a setting is changed twice or by somebody else, and how it is written.
 * The rules are functions over one entry (below), and ask nobody.
 *
 * What main has to call, with `j` made by manage_journal_new():
 *
 *   at the start   for each document of kind MANAGE_DOC_KIND of the store:
 *                          manage_journal_load(j, id, json);
 *                  once the GPUs were read for the first time, whether or not [manage] is enabled:
 *                          n = manage_journal_orders(j, orders, max);
 *                  and on the thread that reads the GPUs, for each of them:
 *                          manage_run(ctx, &order, NULL, &result);
 *                          manage_journal_done(j, &order, &result);
 *   view_ops.manage(order)
 *                  -GW_E_NOSUPPORT unless [manage] enabled; else, on the thread that reads the GPUs:
 *                          manage_journal_fill(j, &order);
 *                          keeper = manage_journal_keeper(j);
 *                          manage_run(ctx, &order, &keeper, &result);
 *                          manage_journal_done(j, &order, &result);
 *                  and result is what view_ops.managed() gives.
 *   at the end     (SIGTERM, SIGINT), before the context is closed and the store too: as at the start.
 *                  What cannot be put back stays in the store, for the next start.
 *
 * All but new and free may be called from any thread; the operations are called on that thread,
 * without a lock of ours but one at a time. */
#ifndef GW_DAEMON_MANAGE_JOURNAL_H
#define GW_DAEMON_MANAGE_JOURNAL_H

#include "serve/manage_doc.h"

#include "base/clock.h"

struct manage_journal_ops {
	/* 0 only when the document would survive kill -9 now (written and committed); else a negative
	 * enum gw_error, and the setting is not changed. */
	int (*keep)(void *arg, const char *id, const char *json, size_t size);
	void (*forget)(void *arg, const char *id);
	/* The audit: each outcome, whoever asked for it; severity as in struct view_event. */
	void (*tell)(void *arg, const char *uuid, const char *severity, const char *text);
};

struct manage_journal;

/* ops and clock are borrowed.  0 or -GW_E_NOMEM. */
int manage_journal_new(const struct manage_journal_ops *ops, void *arg,
		       const struct clock *clock, struct manage_journal **ret);
void manage_journal_free(struct manage_journal *j);

/* A document that the store has.  0, -GW_E_NOMEM, or -GW_E_PARSE: it is told and left where it is. */
int manage_journal_load(struct manage_journal *j, const char *id, const char *json);

unsigned manage_journal_count(struct manage_journal *j);

/* The orders that put everything back, latest change first; how many, at most max. */
unsigned manage_journal_orders(struct manage_journal *j, struct manage_order *out,
			       unsigned max);

/* Says to an order that puts back what to put back, where we know; leaves others alone. */
void manage_journal_fill(struct manage_journal *j, struct manage_order *o);

/* For manage_run(). */
struct manage_keeper manage_journal_keeper(struct manage_journal *j);

/* An order was carried out or was not: entries end or stay, the outcome is told, and
 * r->restored_on_exit is set. */
void manage_journal_done(struct manage_journal *j, const struct manage_order *o,
			 struct manage_result *r);

/* ---- the rules ---- */

/* The entry once o is about to change what is `before` now; old NULL: there was none. */
struct manage_entry manage_entry_begin(const struct manage_entry *old,
				       const struct manage_order *o, const double before[2],
				       uint64_t wall_ns);

enum manage_fate {
	MANAGE_FATE_NONE,   /* there is no entry                                   */
	MANAGE_FATE_STAYS,  /* it is still to be put back                          */
	MANAGE_FATE_ENDS,   /* nothing is to be put back                           */
	MANAGE_FATE_UNDONE, /* as it was before the order: that was not carried out */
};
enum manage_fate manage_entry_fate(const struct manage_order *o, const struct manage_result *r);

/* The order that puts an entry back. */
struct manage_order manage_entry_order(const struct manage_entry *e);

#endif
