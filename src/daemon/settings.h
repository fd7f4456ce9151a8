/* settings: changes of GPU settings, passed from the main thread to the reader thread and
 * back.
 *
 * Orders run on the reader thread, where a driver may hang. Store and log belong to the main
 * thread, so the journal's documents and messages are passed to it; the reader thread only
 * waits until the old value is stored, before it changes anything. */
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
	/* The audit log. */
	void (*log)(void *arg, const char *uuid, const char *severity, const char *text);
	void *arg;
};

/* Loads settings that an earlier run left changed; settings_restore() restores them. 0,
 * -GW_E_NOMEM or -GW_E_IO. */
int settings_new(const struct settings_config *config, struct settings **ret);

/* Loads them again when the store became readable late (store_news()). Nothing changed in
 * between, because settings only change if the store keeps old values. */
void settings_load(struct settings *s);

/* Call after the reader stopped; handles its remaining messages. */
void settings_free(struct settings *s);

/* Restores everything that is still changed, soon, on the reader thread. Call after the first
 * reading. */
void settings_restore(struct settings *s);

/* Starts the shutdown: refuses new changes, ends waits, and restores everything before the
 * reader stops. */
void settings_close(struct settings *s);

/* As view_ops.manage and view_ops.managed. */
int settings_order(struct settings *s, const struct manage_order *order);
int settings_result(struct settings *s, int ticket, struct manage_result *ret);

#endif
