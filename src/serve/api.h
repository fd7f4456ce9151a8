/* api: the answers.  Each row of routes.def has a handler here (api_*.c).
 *
 * Handlers see the view of the latest tick and nothing else of the daemon. */
#ifndef GW_SERVE_API_H
#define GW_SERVE_API_H

#include "http.h"
#include "stream.h"
#include "view.h"

#include "base/clock.h"

struct windows; /* energy windows that were opened over HTTP: windows.h */
struct http;

struct api {
	struct view view;
	const struct clock *clock;
	struct stream *stream;
	struct windows *windows;
	void *daemon;      /* of whoever serves; not looked at here */
	struct http *http; /* for its counts; NULL in tests */
	unsigned top;      /* processes in /metrics, at most; 0: none */
	bool manage;       /* /api/gpu/manage is on */
	bool windows_open; /* anybody may open and end energy windows, not only who is trusted */
	/* Of reservations that were asked for with an Idempotency-Key; a ring. */
	struct api_key {
		char key[65], body[65]; /* SHA-256 */
		uint64_t id;            /* 0: none */
	} room_key[32];
	unsigned room_keys; /* so many were kept */
	struct buf openapi; /* made at the first question; zero at first */
};

/* Frees what the answers keep; the rest is the caller's. */
void api_done(struct api *a);

/* The table, made of routes.def. */
extern const struct route api_routes[];
extern const unsigned api_route_count;

/* A new tick: the stream's message of it, one line without a line break. */
void api_tick_json(struct buf *out, const struct view *v);

/* An event as JSON, one line, for the stream and for lists. */
void api_event_json(struct buf *out, const struct view_event *e);

#endif
