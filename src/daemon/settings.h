/* settings: changes of GPUs' settings, carried from the main thread to the reader's and back.
 *
 * Orders run on the reader's thread, where a driver may hang.  What the journal wants kept or told
 * meanwhile is the main thread's to do (the store and the log are its own): it is handed over, and
 * the reader's thread waits only for the old value to be in the file, before anything is changed. */
#ifndef GW_DAEMON_SETTINGS_H
#define GW_DAEMON_SETTINGS_H

#include "reader.h"
#include "store.h"

#include "device/manage.h"

struct settings;

struct settings_config {
	struct loop *loop;
	struct store *store; /* borrowed, as the reader is */
	struct reader *reader;
	/* The audit. */
	void (*tell)(void *arg, const char *uuid, const char *severity, const char *text);
	void *arg;
};

/* Takes up what an earlier run left changed: settings_restore() puts it back.  0, -GW_E_NOMEM or
 * -GW_E_IO. */
int settings_new(const struct settings_config *config, struct settings **ret);

/* Takes it up again, of a store that could not be read then (store_news()).  Nothing was changed
 * meanwhile: old values are kept in a store that lasts, or nothing is changed. */
void settings_load(struct settings *s);

/* After the reader has ended: does what is left of its messages. */
void settings_free(struct settings *s);

/* Puts everything back that is still changed, soon, on the reader's thread: after the first reading. */
void settings_restore(struct settings *s);

/* The end begins: nothing new is changed, who waits is told so, and everything is put back before the
 * reader ends. */
void settings_close(struct settings *s);

/* As view_ops.manage and view_ops.managed. */
int settings_order(struct settings *s, const struct manage_order *order);
int settings_result(struct settings *s, int ticket, struct manage_result *ret);

#endif
