/* settings: passes changes of GPU settings from the main thread to the reader thread, and the
 * results back.
 *
 * Settings are changed on the reader thread, because a driver call may hang. Only the main
 * thread uses the store and the log, so the reader thread sends it what to store and to log.
 * The reader thread changes a setting only after the old value is stored. */
#ifndef GW_DAEMON_SETTINGS_H
#define GW_DAEMON_SETTINGS_H

#include "reader.h"
#include "store.h"

#include "device/manage.h"

struct settings;

struct settings_config {
	struct loop *loop;
	struct store *store; /* borrowed, like the reader */
	struct reader *reader;
	/* Writes to the audit log. */
	void (*log)(void *arg, const char *uuid, const char *severity, const char *text);
	void *arg;
};

/* Loads the settings that an earlier run left changed; settings_restore() restores them.
 * Returns 0, -GW_E_NOMEM or -GW_E_IO. */
int settings_new(const struct settings_config *config, struct settings **ret);

/* Loads the changed settings when the store became readable late (store_news()). No setting
 * changed in between, because a setting only changes if the store keeps its old value. */
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

/* Work like view_ops.manage and view_ops.managed. */
int settings_order(struct settings *s, const struct manage_order *order);
int settings_result(struct settings *s, int ticket, struct manage_result *ret);

#endif
