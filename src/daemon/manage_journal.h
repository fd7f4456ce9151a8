/* manage_journal: GPU settings that were changed and must be restored.
 *
 * Before a setting is changed, its old value is stored; it is restored when the service
 * stops, or after a crash when it starts again. The rules in manage_journal.c are pure functions of one
 * entry: when an entry begins and ends, and what happens when a setting is changed twice or
 * by another program.
 *
 * Call order, with `j` from manage_journal_new():
 *
 *   at the start   for each document of kind MANAGE_DOC_KIND in the store:
 *                          manage_journal_load(j, id, json);
 *                  after the first reading of the GPUs, whether or not [manage] is enabled:
 *                          n = manage_journal_orders(j, orders, max);
 *                  then, on the reader thread, for each of them:
 *                          manage_run(ctx, &order, NULL, &result);
 *                          manage_journal_done(j, &order, &result);
 *   view_ops.manage(order)
 *                  -GW_E_NOSUPPORT unless [manage] is enabled; else, on the reader thread:
 *                          manage_journal_fill(j, &order);
 *                          keeper = manage_journal_keeper(j);
 *                          manage_run(ctx, &order, &keeper, &result);
 *                          manage_journal_done(j, &order, &result);
 *                  and view_ops.managed() returns the result.
 *   at the end     before context and store are closed: as at the start.
 *                  What cannot be restored stays in the store for the next start.
 *
 * All functions except new and free may be called from any thread. They call the functions of
 * manage_journal_ops on the caller's thread, one at a time. */
#ifndef GW_DAEMON_MANAGE_JOURNAL_H
#define GW_DAEMON_MANAGE_JOURNAL_H

#include "serve/manage_doc.h"

#include "base/clock.h"

struct manage_journal_ops {
	/* Stores a document. Returns 0 only if the document now survives kill -9 (written and
	 * committed). Otherwise returns a negative enum gw_error, and the setting is not
	 * changed. */
	int (*keep)(void *arg, const char *id, const char *json, size_t size);
	void (*forget)(void *arg, const char *id);
	/* Writes every outcome to the audit log; severity as in struct view_event. */
	void (*log)(void *arg, const char *uuid, const char *severity, const char *text);
};

struct manage_journal;

/* Creates a journal. Borrows ops and clock. Returns 0 or -GW_E_NOMEM. */
int manage_journal_new(const struct manage_journal_ops *ops, void *arg,
		       const struct clock *clock, struct manage_journal **ret);
void manage_journal_free(struct manage_journal *j);

/* Loads a document of the store. Returns 0, -GW_E_NOMEM, or -GW_E_PARSE; the parse error is
 * logged and the document stays in the store. */
int manage_journal_load(struct manage_journal *j, const char *id, const char *json);

unsigned manage_journal_count(struct manage_journal *j);

/* Makes the orders that restore everything, latest change first. Returns their number, at most
 * max. */
unsigned manage_journal_orders(struct manage_journal *j, struct manage_order *out,
			       unsigned max);

/* Fills in the old values of a restore order if they are known; leaves other orders
 * unchanged. */
void manage_journal_fill(struct manage_journal *j, struct manage_order *o);

/* Returns the function that manage_run() calls to store the old value of a setting. */
struct manage_keeper manage_journal_keeper(struct manage_journal *j);

/* Call it after each order, successful or not. Ends or keeps the order's entry, logs the
 * outcome and sets r->restored_on_exit. */
void manage_journal_done(struct manage_journal *j, const struct manage_order *o,
			 struct manage_result *r);

#endif
