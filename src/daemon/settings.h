/* settings: changes settings of GPUs. Unless an order has `keep`, the old value is restored
 * when the service stops. If the service crashes, the old value is restored at the next start.
 *
 * Settings are changed on the reader thread, because a driver call may hang. Only the main
 * thread uses the store and the log, so the reader thread sends it what to store and to log.
 * The reader thread changes a setting only after the old value is stored. */
#ifndef GW_DAEMON_SETTINGS_H
#define GW_DAEMON_SETTINGS_H

#include "reader.h"
#include "store.h"

#include "base/clock.h"
#include "device/manage.h"
#include "serve/manage_doc.h"

struct settings;

struct settings_config {
	struct loop *loop;
	struct store *store; /* Store and reader are borrowed. */
	struct reader *reader;
	/* Writes to the audit log. */
	void (*log)(void *arg, const char *uuid, const char *severity, const char *text);
	void *arg;
};

/* Loads the settings that an earlier run left changed; settings_restore() restores them.
 * Returns 0, -GW_E_NOMEM or -GW_E_IO. */
int settings_new(const struct settings_config *config, struct settings **ret);

/* Loads the same settings when the store becomes readable late (store_news()). No setting has
 * changed in between, because a setting is changed only if the store has its old value. */
void settings_load(struct settings *s);

/* Handles the remaining messages of the reader and frees s. Call it after the reader
 * stopped. */
void settings_free(struct settings *s);

/* Makes the reader thread restore everything that is still changed, before its next round. Call
 * it after the first reading. */
void settings_restore(struct settings *s);

/* Starts the shutdown: refuses new changes, stops waiting for the store, and restores
 * everything before the reader stops. */
void settings_close(struct settings *s);

/* These functions work like view_ops.manage and view_ops.managed. */
int settings_order(struct settings *s, const struct manage_order *order);
int settings_result(struct settings *s, int ticket, struct manage_result *ret);

/* The journal of the settings that were changed and must be restored. Only settings.c and its
 * test use it. Its rules are pure functions of one entry: when an entry begins and ends, and
 * what happens when a setting is changed twice or by another program. All functions except new
 * and free may be called from any thread. They call the functions of manage_journal_ops on the
 * caller's thread, one at a time. */
struct manage_journal_ops {
	/* Stores a document. Returns 0 only if the document is written and committed, so
	 * that it survives kill -9. Otherwise returns a negative enum gw_error, and the
	 * setting is not changed. */
	int (*keep)(void *arg, const char *id, const char *json, size_t size);
	/* Deletes a document. */
	void (*forget)(void *arg, const char *id);
	/* Writes an outcome to the audit log. severity has the words of struct view_event. */
	void (*log)(void *arg, const char *uuid, const char *severity, const char *text);
};

struct manage_journal;

/* Creates a journal. Borrows ops and clock. Returns 0 or -GW_E_NOMEM. */
int manage_journal_new(const struct manage_journal_ops *ops, void *arg,
		       const struct clock *clock, struct manage_journal **ret);
void manage_journal_free(struct manage_journal *j);

/* Loads a document of the store. Returns 0, -GW_E_NOMEM or -GW_E_PARSE. A parse error is
 * logged, and the document stays in the store. */
int manage_journal_load(struct manage_journal *j, const char *id, const char *json);

unsigned manage_journal_count(struct manage_journal *j);

/* Makes the orders that restore everything. The latest change comes first. Returns their
 * number, at most max. */
unsigned manage_journal_orders(struct manage_journal *j, struct manage_order *out,
			       unsigned max);

/* If o restores a setting and its old value is known, fills in the old value. Leaves other
 * orders unchanged. */
void manage_journal_fill(struct manage_journal *j, struct manage_order *o);

/* Returns the function that manage_run() calls to store the old value of a setting. */
struct manage_keeper manage_journal_keeper(struct manage_journal *j);

/* Call it after each order, successful or not. Ends or keeps the order's entry, logs the
 * outcome and sets r->restored_on_exit. */
void manage_journal_done(struct manage_journal *j, const struct manage_order *o,
			 struct manage_result *r);

#endif
