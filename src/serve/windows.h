/* windows: energy windows that clients open over HTTP.
 *
 * They use the meter of the view. A window ends on request, after its limit or lease, or when
 * the meter stops. Marks divide it into contiguous parts with their own energy. Ended windows
 * are stored as the document of the answer (view_ops.keep), and the latest stay in memory. Of
 * an open one the store has that it began: after a crash the next start reports it as ended
 * by "crash". Only the main thread uses this; nothing blocks. */
#ifndef GW_SERVE_WINDOWS_H
#define GW_SERVE_WINDOWS_H

#include "view.h"

#include "base/json.h"

#define WINDOWS_OPEN_MAX     64
#define WINDOWS_ENDED_MAX    64   /* in memory and in the store */
#define WINDOWS_MARKS_MAX    256  /* per window */
#define WINDOWS_PARTS_MAX    2048 /* of all open windows */
#define WINDOWS_TAGS_MAX     16
#define WINDOWS_LABEL        64                         /* bytes, with the NUL */
#define WINDOWS_LIMIT_MOST_S (7 * 86400.0)              /* maximum duration */
#define WINDOWS_WAIT_NS      (3 * UINT64_C(1000000000)) /* for the sample that covers the end */

struct windows;
struct windows_entry;

int windows_new(struct windows **ret);
void windows_free(struct windows *w);

/* The stream for documents of windows that begin or end; NULL: none. */
struct stream;
void windows_stream(struct windows *w, struct stream *s);

/* The request. Texts are borrowed for the call. */
struct windows_ask {
	const char *label;   /* may be NULL */
	const char *key;     /* Idempotency-Key; NULL: none */
	const char *request; /* the body of the request, to detect reuse of the key */
	size_t request_size;
	const bool *position; /* per device of the snapshot: measured? NULL: all */
	uint64_t limit_ns;
	uint64_t lease_ns; /* ends after this time without a request for it; 0: no lease */
	const char *tag[WINDOWS_TAGS_MAX], *value[WINDOWS_TAGS_MAX];
	unsigned tags;
};

/* 0, -GW_E_SIZE (too many are open), -GW_E_NODEV (no meter, or none of the devices is on it),
 * -GW_E_ARG (the key was used with another request) or -GW_E_NOMEM. *ret_new: false if the
 * key was known and *ret is its window. */
int windows_open(struct windows *w, const struct view *v, const struct windows_ask *ask,
		 uint64_t now_ns, struct windows_entry **ret, bool *ret_new);

/* NULL: none. */
struct windows_entry *windows_find(struct windows *w, const char *id);

/* A client requested it: renews its lease. */
void windows_asked(struct windows_entry *e, uint64_t now_ns);

/* Ends the current part and begins a new one. 0, -GW_E_STATE (the window has ended),
 * -GW_E_SIZE or -GW_E_NOMEM. */
int windows_mark(struct windows *w, const struct view *v, struct windows_entry *e,
		 const char *label, uint64_t now_ns);

/* Ends it now; no effect on an ended one. True: the result is complete. False: call again. */
bool windows_stop(struct windows *w, const struct view *v, struct windows_entry *e,
		  uint64_t now_ns);

void windows_forget(struct windows *w, const struct view *v, struct windows_entry *e);

/* At each new view: follows a changed meter, ends windows past their limit, completes
 * results. */
void windows_tick(struct windows *w, const struct view *v, uint64_t now_ns);

/* The meter is about to stop: ends every open window with the available data. */
void windows_meter_gone(struct windows *w, const struct view *v);

const char *windows_id(const struct windows_entry *e);
unsigned windows_open_count(const struct windows *w);

/* A window as a document, as far as known; at most VIEW_DOCUMENT_MAX bytes: parts that do not
 * fit are omitted, and the document says so. */
enum windows_form {
	WINDOWS_WHOLE,
	WINDOWS_SHORT, /* for lists and streams: without parts */
};
void windows_json(struct json *j, const struct windows_entry *e, enum windows_form form,
		  uint64_t now_ns);

/* The latest mark of an open window as a document; it must have one. */
void windows_mark_json(struct json *j, const struct windows_entry *e);

/* Latest first: open ones, then at most `ended` ended ones, until each returns false. True:
 * there are more ended ones. */
bool windows_each(struct windows *w, bool open, unsigned ended,
		  bool (*each)(void *arg, const struct windows_entry *e), void *arg);

#endif
