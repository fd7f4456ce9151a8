/* fleet_ask: sends all queries about a fleet to a Prometheus server or to a server with the
 * same API.
 *
 * It sends POST requests to URL/api/v1/query with base/http_client.h, one after the other on
 * one connection, and blocks until the deadline. The token never appears in a message. */
#ifndef GW_DAEMON_FLEET_ASK_H
#define GW_DAEMON_FLEET_ASK_H

#include "serve/fleet.h"

#include <stdatomic.h>

/* Maximum bytes of an address. config_check_prometheus() refuses a longer one. */
#define FLEET_URL_MAX   1000
#define FLEET_PATH_MAX  1024
#define FLEET_REPLY_MAX (8u << 20) /* Maximum bytes of one answer. */

struct fleet_server {
	/* Such as http://HOST:9090, or with a path: http://HOST/prometheus. */
	char url[FLEET_URL_MAX];
	/* Paths. "" if there is none. */
	char token_file[FLEET_PATH_MAX], ca_file[FLEET_PATH_MAX];
};

/* Sends all queries. Returns 0 with *ret even if some or all queries failed; the answer of a
 * failed query has the reason. When *stop becomes true, the function returns within a second.
 * stop may be NULL. Error: -GW_E_NOMEM. */
int fleet_ask(const struct fleet_server *s, const struct fleet_question *x, uint64_t timeout_ns,
	      const atomic_bool *stop, struct fleet **ret);

#endif
