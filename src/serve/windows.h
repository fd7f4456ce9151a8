/* windows: energy windows that clients open over HTTP, measured by the meter of the view.
 *
 * A window ends on request, after its limit or lease, or when the meter stops. Marks divide a
 * window into contiguous parts, and each part has its own energy. An ended window is stored as
 * the document that replies contain (view_ops.put_document); the latest ended windows also stay
 * in memory. An open window is stored too, so that after a crash the next start can report the
 * window as ended by "crash". Only the main thread uses this module; nothing blocks. */
#ifndef GW_SERVE_WINDOWS_H
#define GW_SERVE_WINDOWS_H

#include "view.h"

#include "base/clock.h"
#include "base/json.h"

#define WINDOWS_OPEN_MAX     64
#define WINDOWS_ENDED_MAX    64 /* maximum number of ended windows in memory and in the store */
#define WINDOWS_MARKS_MAX    256  /* maximum number of marks per window */
#define WINDOWS_PARTS_MAX    2048 /* maximum number of parts of all open windows together */
#define WINDOWS_TAGS_MAX     16
#define WINDOWS_LABEL        64            /* maximum bytes of a label, with its NUL */
#define WINDOWS_LIMIT_MOST_S (7 * 86400.0) /* maximum duration of a window */
/* Maximum time that an ended window waits for the sample that covers its end. */
#define WINDOWS_WAIT_NS (3 * NS_PER_S)

struct windows;
struct windows_entry;

int windows_new(struct windows **ret);
void windows_free(struct windows *w);

/* Sets the stream that receives the documents of windows that begin or end; NULL: no stream. */
struct stream;
void windows_stream(struct windows *w, struct stream *s);

/* A request to open a window. Strings are borrowed for the call. */
struct windows_ask {
	const char *label; /* may be NULL */
	const char *key;   /* Idempotency-Key; NULL: none */
	/* the body of the request; another body with the same key is refused */
	const char *request;
	size_t request_size;
	/* For each device of the snapshot, whether the device is measured. NULL: all devices
	 * are measured. */
	const bool *position;
	uint64_t limit_ns;
	/* The window ends if no client sends a request for it during this time. 0: no lease. */
	uint64_t lease_ns;
	const char *tag[WINDOWS_TAGS_MAX], *value[WINDOWS_TAGS_MAX];
	unsigned tags;
};

/* Opens a window. Returns 0, -GW_E_SIZE (too many windows are open), -GW_E_NODEV (there is no
 * meter, or it measures none of the devices), -GW_E_ARG (the key was used with another request)
 * or -GW_E_NOMEM. If a window with this key exists, *ret is that window and *ret_new is
 * false. */
int windows_open(struct windows *w, const struct view *v, const struct windows_ask *ask,
		 uint64_t now_ns, struct windows_entry **ret, bool *ret_new);

/* Returns the window with this id; NULL: there is none. */
struct windows_entry *windows_find(struct windows *w, const char *id);

/* Renews the lease of a window, because a client sent a request for the window. */
void windows_asked(struct windows_entry *e, uint64_t now_ns);

/* Ends the current part and begins a new one. Returns 0, -GW_E_STATE (the window has ended),
 * -GW_E_SIZE or -GW_E_NOMEM. */
int windows_mark(struct windows *w, const struct view *v, struct windows_entry *e,
		 const char *label, uint64_t now_ns);

/* Ends the window now. Does not change a window that has already ended. Returns true if the
 * result of the window is complete. After false, call the function again later. */
bool windows_stop(struct windows *w, const struct view *v, struct windows_entry *e,
		  uint64_t now_ns);

/* Deletes the window and its stored document. */
void windows_forget(struct windows *w, const struct view *v, struct windows_entry *e);

/* Call it with each new view. Ends the windows of a meter that was replaced, ends the windows
 * that reached their limit or lease, and completes the results of ended windows. */
void windows_tick(struct windows *w, const struct view *v, uint64_t now_ns);

/* Ends every open window with the available data, because the meter is about to stop. */
void windows_meter_gone(struct windows *w, const struct view *v);

/* If the last change of the window could not be stored, and no event has reported this yet,
 * emits an event. Returns false if the change is not stored, or is not stored yet. e is NULL if
 * the window was deleted. */
bool windows_stored(const struct view *v, struct windows_entry *e);

const char *windows_id(const struct windows_entry *e);
unsigned windows_open_count(const struct windows *w);

/* Writes a window as a document of at most VIEW_DOCUMENT_MAX bytes, with the values that are
 * known so far. If the parts do not fit, omits them and sets parts_left_out to true. */
enum windows_form {
	WINDOWS_WHOLE,
	WINDOWS_SHORT, /* for lists and streams: the parts are omitted */
};
void windows_json(struct json *j, const struct windows_entry *e, enum windows_form form);

/* Writes the latest mark of an open window as a document. The window must have a mark. */
void windows_mark_json(struct json *j, const struct windows_entry *e);

/* Calls each() for the open windows, if `open` is true, and then for at most `ended` ended
 * windows. In both groups, the latest window comes first. Ends when each() returns false.
 * Returns true if there are more windows. */
bool windows_each(struct windows *w, bool open, unsigned ended,
		  bool (*each)(void *arg, const struct windows_entry *e), void *arg);

#endif
