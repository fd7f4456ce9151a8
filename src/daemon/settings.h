/* settings: changes settings of GPUs. Unless a change has `keep`, the old value is restored
 * when the service stops. If the service crashes, the old value is restored at the next start.
 *
 * Settings are checked and changed on the reader thread, because a driver call may hang.
 * Everything else happens on the main thread, which never waits. It handles one change after
 * the other. It sends each change to the reader thread twice: first to check the change, and
 * again when the old value is stored. */
#ifndef GW_DAEMON_SETTINGS_H
#define GW_DAEMON_SETTINGS_H

#include "reader.h"
#include "store.h"

#include "base/clock.h"
#include "device/manage.h"
#include "serve/manage_doc.h"

struct settings;

/* Writes an outcome to the audit log. severity has the words of struct view_event. */
typedef void settings_log_fn(void *arg, const char *uuid, const char *severity,
			     const char *text);

struct settings_config {
	struct loop *loop;
	struct store *store; /* Store and reader are borrowed. */
	struct reader *reader;
	settings_log_fn *log;
	void *arg;
};

/* Returns 0, -GW_E_NOMEM or -GW_E_IO. */
int settings_new(const struct settings_config *config, struct settings **ret);

/* Call it after the reader stopped. */
void settings_free(struct settings *s);

/* Restores every setting that is still changed, including the settings that an earlier run
 * changed and did not restore. Call it after the first reading, and when the store becomes
 * readable late (store_news()). Between these two calls no setting has changed, because a
 * setting is changed only if the store has its old value. */
void settings_restore(struct settings *s);

/* Starts the shutdown after the loop has stopped: refuses new changes and restores everything.
 * Returns 0, or -GW_E_STATE if a driver call has not returned within timeout_ns; the reader
 * thread then still uses s. */
int settings_close(struct settings *s, uint64_t timeout_ns);

/* These functions work like view_ops.manage and view_ops.managed. */
int settings_change(struct settings *s, const struct manage_change *change);
int settings_result(struct settings *s, int ticket, struct manage_result *ret);

/* The journal of the settings that were changed and must be restored. Only settings.c and its
 * test use it. The rules of the journal are pure functions of one entry. They say when an entry
 * begins and ends, and what happens when a setting is changed twice or by another program. */
struct manage_journal;

/* Creates an empty journal. Borrows store and clock. Returns 0 or -GW_E_NOMEM. */
int manage_journal_new(struct store *store, settings_log_fn *log, void *arg,
		       const struct clock *clock, struct manage_journal **ret);
void manage_journal_free(struct manage_journal *j);

/* Loads the documents of the store. An unreadable one is logged and stays in the store. */
void manage_journal_load(struct manage_journal *j);

/* Makes the changes that restore everything, in the reverse order of the original changes.
 * Returns the number of changes, at most max. */
unsigned manage_journal_changes(struct manage_journal *j, struct manage_change *out,
				unsigned max);

/* If c restores a setting and the old value of the setting is known, sets the value of c to the
 * old value. Otherwise leaves c as it is. */
void manage_journal_fill(struct manage_journal *j, struct manage_change *c);

/* Begins the entry of a change, before the change replaces the value `before`. Adds the
 * document of the entry to the next batch of the store. Returns 0, -GW_E_NOMEM or -GW_E_SIZE.
 * The caller may call this function again with another value. At the end, the caller must call
 * manage_journal_done(), also after an error. */
int manage_journal_begin(struct manage_journal *j, const struct manage_change *c,
			 const double before[2]);

/* Call it after each change, successful or not. Ends or keeps the change's entry, logs the
 * outcome and sets r->restored_on_exit. */
void manage_journal_done(struct manage_journal *j, const struct manage_change *c,
			 struct manage_result *r);

#endif
