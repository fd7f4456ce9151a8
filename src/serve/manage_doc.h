/* manage_doc: reads and writes GPU settings as JSON. The documents are requests, replies, and
 * the record of a change, which is stored until the setting is restored.
 *
 * A value has the same keys everywhere, in base units: {"watts": 400}, {"enabled": true},
 * {"mode": "default"}, {"min_hertz": ..., "max_hertz": ...}. */
#ifndef GW_SERVE_MANAGE_DOC_H
#define GW_SERVE_MANAGE_DOC_H

#include "base/clock.h"
#include "device/manage.h"

#include <stdint.h>

struct buf;
struct json;

/* Maximum time that a client waits for the result of a change. The engine stops waiting for the
 * driver after a few seconds. The engine may drop a result that no client has fetched within
 * this time. */
#define MANAGE_DOC_WAIT_NS (60 * NS_PER_S)

/* A change that gpuward will undo. The change is stored as a document of kind MANAGE_DOC_KIND
 * with id "UUID/SETTING". */
#define MANAGE_DOC_KIND    "manage"
#define MANAGE_DOC_ID_SIZE 128
struct manage_entry {
	char uuid[96];
	enum manage_what what;
	double before[2]; /* the value to restore; NAN: the clock was not locked */
	double after[2];  /* the value that gpuward has set, or tried to set */
	/* The value that gpuward set before `after`. It is needed while nobody knows whether
	 * the driver applied `after`. NAN: there is no such value. */
	double earlier[2];
	uint64_t wall_ns; /* time of the last change */
	char who[64];
};

void manage_entry_id(const struct manage_entry *e, char out[static MANAGE_DOC_ID_SIZE]);
void manage_entry_write(struct buf *out, const struct manage_entry *e);

/* Reads a stored document. Returns 0, or -GW_E_PARSE if the document does not have the format
 * of manage_entry_write(). */
int manage_entry_read(const char *id, const char *json, struct manage_entry *ret);

/* Writes a value such as {"watts": 400}. Writes null if the value is NAN. If key is NULL,
 * writes an array element instead of a member. */
void manage_value_write(struct json *j, const char *key, enum manage_what what,
			const double value[2]);

/* Reads the body of a request for the setting o->what into o->value and o->keep. Returns 0, or
 * an error with a message: -GW_E_PARSE (not a JSON object) or -GW_E_ARG (a key is missing,
 * unknown or of the wrong type). */
int manage_body_read(const char *body, size_t size, struct manage_change *o, char *message,
		     size_t message_size);

#endif
