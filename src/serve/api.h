/* api: the replies of the service. Each row of routes.def names a handler in api_*.c.
 *
 * Handlers make no driver calls. They use the figures in the view of the latest tick. */
#ifndef GW_SERVE_API_H
#define GW_SERVE_API_H

#include "http.h"
#include "metrics_family.h"
#include "render.h"
#include "stream.h"
#include "view.h"

#include "base/clock.h"

struct fleet_source; /* fleet.h */
struct windows;      /* windows.h */
struct http;

struct api {
	struct view view;
	const struct clock *clock;
	struct stream *stream;
	struct windows *windows;
	/* Used only by the owner of this struct (service.c), not by the handlers. */
	void *daemon;
	struct http *http;                /* the HTTP server, for its counters; NULL in tests */
	const struct view_push *push;     /* NULL: no push is configured */
	const struct fleet_source *fleet; /* NULL: no Prometheus is configured */
	/* Maximum number of programs per GPU in /metrics. 0: /metrics has no process
	 * metrics. */
	unsigned top;
	struct metrics_choice metrics; /* the metric families that /metrics serves */
	bool manage;                   /* Clients may change GPU settings (/api/gpu/manage). */
	/* Clients without the token may open and end energy windows too. */
	bool windows_open;
	struct energy_cost cost; /* prices that /api/v1/self shows */
	/* The running simulation, or an ended simulation with a result that was not sent yet.
	 * NULL: none. */
	struct simulation *simulation;
	uint64_t simulations; /* number of simulations that were started */
};

/* Ends the running simulation. The caller frees everything else. */
void api_done(struct api *a);

/* If the GPUs are simulated, adds the header X-Gpuward-Simulated to a reply. The function is
 * the hook http_config.mark. The body of a reply also has the key "simulated", except for the
 * documents with fixed keys (/api/gpu). */
void api_mark(void *arg, struct reply *r);

/* The table of routes, from routes.def. */
extern const struct route api_routes[];
extern const unsigned api_route_count;

/* Makes the next readings include the utilisation of the processes, because a client shows them
 * (view_ops.look). */
void api_look(const struct api *a);

/* Requests a reading at every tick, because a client follows the stream (view_ops.watch). */
void api_follow(const struct api *a);

/* Writes the stream's message for a tick: one line of JSON without a line break. */
void api_tick_json(struct buf *out, const struct view *v);

/* Writes an event as one line of JSON, for the stream and for lists. */
void api_event_json(struct buf *out, const struct view_event *e);

#endif
