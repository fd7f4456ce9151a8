/* api: the replies of the service. Each row of routes.def names a handler in api_*.c.
 *
 * Handlers only read the view of the latest tick. */
#ifndef GW_SERVE_API_H
#define GW_SERVE_API_H

#include "energy_cost.h"
#include "http.h"
#include "metrics_family.h"
#include "stream.h"
#include "view.h"

#include "base/clock.h"

struct fleet_source; /* fleet.h */
struct windows;      /* energy windows opened over HTTP: windows.h */
struct http;

struct api {
	struct view view;
	const struct clock *clock;
	struct stream *stream;
	struct windows *windows;
	void *daemon;                     /* pointer of the caller; not used here */
	struct http *http;                /* source of the HTTP counters; NULL in tests */
	const struct view_push *push;     /* NULL: no push is configured */
	const struct fleet_source *fleet; /* NULL: no Prometheus is configured */
	unsigned top; /* maximum number of processes in /metrics; 0: no processes */
	struct metrics_choice metrics; /* families of /metrics */
	bool manage;                   /* /api/gpu/manage may change settings */
	/* any client may open and end energy windows, not only trusted ones */
	bool windows_open;
	struct energy_cost cost; /* for /api/v1/self */
	/* Ring of reservations that were requested with an Idempotency-Key. */
	struct api_key {
		char key[65], body[65]; /* SHA-256 */
		uint64_t id;            /* 0: none */
	} room_key[32];
	/* the simulation that runs, or whose result no client has fetched; NULL: none */
	struct simulation *simulation;
	uint64_t simulations; /* number of simulations that were started */
	/* number of keys stored so far, including those that were overwritten */
	unsigned room_keys;
	struct buf openapi; /* made at the first request */
};

/* Ends a simulation and frees the cached OpenAPI document; the caller owns everything else. */
void api_done(struct api *a);

/* Adds the header X-Gpuward-Simulated to a reply if the GPUs are simulated; for
 * http_config.mark. The bodies have the same mark, except those with fixed keys (/api/gpu). */
void api_mark(void *arg, struct reply *r);

/* The table of routes, from routes.def. */
extern const struct route api_routes[];
extern const unsigned api_route_count;

/* Reports that a client looks at the processes; see view_ops.look. */
void api_look(const struct api *a);

/* Requests every tick, because a client follows the stream; see view_ops.watch. */
void api_follow(const struct api *a);

/* Writes the stream's message for a tick: one line of JSON without a line break. */
void api_tick_json(struct buf *out, const struct view *v);

/* Writes an event as one line of JSON, for the stream and for lists. */
void api_event_json(struct buf *out, const struct view_event *e);

#endif
