/* fleet_watch: keeps the state of the fleet for the service. When a client requests the fleet,
 * a thread sends the queries to Prometheus.
 *
 * At most one request runs at a time, and at most one starts every 10 seconds. While no client
 * requests the fleet, no query is sent. One minute after the last request of a client, the
 * fleet is freed. The main thread calls every function. */
#ifndef GW_DAEMON_FLEET_WATCH_H
#define GW_DAEMON_FLEET_WATCH_H

#include "fleet_ask.h"

#include "base/clock.h"

struct config;
struct fleet_watch;

/* job is a regular expression for the label job, which selects the series of gpuward in
 * Prometheus; NULL as in struct fleet_question. The thread starts when a client requests the
 * fleet for the first time. Returns 0, -GW_E_NOMEM or -GW_E_IO. */
int fleet_watch_new(const struct fleet_server *server, const char *job,
		    const struct clock *clock, struct fleet_watch **ret);
void fleet_watch_free(struct fleet_watch *w); /* w may be NULL. */

/* Makes *w follow the configuration: creates, replaces or frees it if the server, its files or
 * the job changed. Returns 0, or -GW_E_NOMEM with *w = NULL. */
int fleet_watch_apply(struct fleet_watch **w, const struct config *c,
		      const struct clock *clock);

const struct fleet_source *fleet_watch_source(struct fleet_watch *w);

/* Frees the fleet if no client has requested it for a minute, even if the fleet arrived after
 * the last request. */
void fleet_watch_tick(struct fleet_watch *w);

#endif
