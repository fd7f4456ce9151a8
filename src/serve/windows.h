/* windows: energy windows that somebody opened over HTTP and will end or forget.
 *
 * They live on the meter of the view.  One that nobody ends is ended after its limit; when the meter
 * goes away they end as they stand.  A window is cut by marks into parts that follow each other
 * without a gap and have their own energy.  Ended ones are kept (view_ops.keep) as the document
 * that they answered with, and the latest in memory; one that cannot be kept is told so.  Of an open
 * one it is kept that it began: should we be killed, the next start tells it as ended by "crash".
 * Only the main thread comes here; nothing waits. */
#ifndef GW_SERVE_WINDOWS_H
#define GW_SERVE_WINDOWS_H

#include "view.h"

#include "base/json.h"

#define WINDOWS_OPEN_MAX     64
#define WINDOWS_ENDED_MAX    64   /* in memory and kept */
#define WINDOWS_MARKS_MAX    256  /* of one window      */
#define WINDOWS_PARTS_MAX    2048 /* of all that are open */
#define WINDOWS_TAGS_MAX     16
#define WINDOWS_LABEL        64                         /* bytes, with the NUL */
#define WINDOWS_LIMIT_MOST_S (7 * 86400.0)              /* that one may last at most */
#define WINDOWS_WAIT_NS      (3 * UINT64_C(1000000000)) /* for the sample that covers the end */

struct windows;
struct windows_entry;

int windows_new(struct windows **ret);
void windows_free(struct windows *w);

/* Where windows that began or ended are told, as documents; NULL: nowhere. */
struct stream;
void windows_stream(struct windows *w, struct stream *s);

/* What somebody asks for.  Texts are borrowed for the call. */
struct windows_ask {
	const char *label;   /* may be NULL                                     */
	const char *key;     /* Idempotency-Key; NULL: none                     */
	const char *request; /* what came with the key, to tell whether it is the same again */
	size_t request_size;
	const bool *position; /* for each device of the snapshot: measured?  NULL: all */
	uint64_t limit_ns;
	uint64_t
		lease_ns; /* it ends when nobody has asked for it for so long; 0: it does not */
	const char *tag[WINDOWS_TAGS_MAX], *value[WINDOWS_TAGS_MAX];
	unsigned tags;
};

/* 0, -GW_E_SIZE (too many are open), -GW_E_NODEV (there is no meter, or none of the devices is on
 * it), -GW_E_ARG (the key came with another request) or -GW_E_NOMEM.  *ret_new: false when the
 * key was known and *ret is the window of then. */
int windows_open(struct windows *w, const struct view *v, const struct windows_ask *ask,
		 uint64_t now_ns, struct windows_entry **ret, bool *ret_new);

/* NULL: there is none. */
struct windows_entry *windows_find(struct windows *w, const char *id);

/* Somebody asked for it: its lease begins anew. */
void windows_asked(struct windows_entry *e, uint64_t now_ns);

/* Ends the part before and begins one.  0, -GW_E_STATE (it has ended), -GW_E_SIZE or -GW_E_NOMEM. */
int windows_mark(struct windows *w, const struct view *v, struct windows_entry *e,
		 const char *label, uint64_t now_ns);

/* Ends it now; nothing happens to one that has ended.  True: the result is there.  False: ask again. */
bool windows_stop(struct windows *w, const struct view *v, struct windows_entry *e,
		  uint64_t now_ns);

void windows_forget(struct windows *w, const struct view *v, struct windows_entry *e);

/* A view came: follows a changed meter, ends what is past its limit, finishes what can be. */
void windows_tick(struct windows *w, const struct view *v, uint64_t now_ns);

/* The meter is about to go away: ends every open window now, with what is known. */
void windows_meter_gone(struct windows *w, const struct view *v);

const char *windows_id(const struct windows_entry *e);
unsigned windows_open_count(const struct windows *w);

/* One as a document, as far as it is known; at most VIEW_DOCUMENT_MAX bytes: where its parts do not fit
 * they are left out, and it says so. */
enum windows_form {
	WINDOWS_WHOLE,
	WINDOWS_SHORT, /* for lists and streams: without its parts */
};
void windows_json(struct json *j, const struct windows_entry *e, enum windows_form form,
		  uint64_t now_ns);

/* The latest mark of an open one that has any, as a document. */
void windows_mark_json(struct json *j, const struct windows_entry *e);

/* The latest first: open ones, then at most `ended` of those that ended.  Until each returns false.
 * True: there are more that ended. */
bool windows_each(struct windows *w, bool open, unsigned ended,
		  bool (*each)(void *arg, const struct windows_entry *e), void *arg);

#endif
