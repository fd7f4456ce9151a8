/* container_resolver: finds the id of a container from its name.
 *
 * The kernel shows the container id of a process, but people configure the name, which stays
 * the same when the container is created again. The container engine (Docker's API, which
 * Podman also offers) is queried over its UNIX socket: at once for a new name, every 10 s for
 * an unresolved name, every 20 s for a resolved name. The module runs on the loop's thread and
 * never blocks. */
#ifndef GW_DAEMON_CONTAINER_RESOLVER_H
#define GW_DAEMON_CONTAINER_RESOLVER_H

#include "base/buf.h"
#include "base/loop.h"
#include "guard/policy.h"

struct container_resolver;

struct container_resolver_config {
	struct loop *loop;
	/* Called when the id of a container has changed. The caller then calls
	 * container_resolver_apply() again. */
	void (*changed)(void *arg);
	/* Called when a name cannot be resolved. After that, called again for this name only if
	 * the name was resolved in the meantime. */
	void (*log)(void *arg, const char *sentence);
	void *arg;
};

/* Returns 0 or -GW_E_NOMEM. */
int container_resolver_new(const struct container_resolver_config *config,
			   struct container_resolver **ret);
void container_resolver_free(struct container_resolver *c); /* c may be NULL. */

/* Resolves the container names of this policy from now on. Replaces each name by its id if the
 * id is already known. If refresh is true, queries all names now. */
void container_resolver_apply(struct container_resolver *c, struct policy *p, bool refresh);

/* Finds the id in a complete answer of an engine, including the HTTP header. Returns 0,
 * -GW_E_NOENT (no such container) or -GW_E_PARSE. */
#define CONTAINER_RESOLVER_ID 64
int container_resolver_read(const struct buf *answer,
			    char id[static CONTAINER_RESOLVER_ID + 1]);

/* container_query: asks a container engine about one container over its UNIX socket.
 *
 * It uses Docker's API, which Podman also offers. It runs on the loop's thread and never
 * blocks. The container resolver queries the id for a name, and workload_names queries the name
 * for an id. */

#define CONTAINER_QUERY_SOCKET 108 /* Size of a socket path, with its NUL. */
#define CONTAINER_QUERY_NAME   128 /* Size of a container's name or id, with its NUL. */

struct container_query;

/* Called once per query from the loop. error is 0 or an errno: ETIMEDOUT after 5 s, EMSGSIZE
 * for an answer above 256 KiB. The query is already freed when fn is called. */
typedef void container_query_fn(void *arg, int error, const struct buf *answer);

/* Asks the engine at socket about a container. Returns 0, or a negative errno if the engine
 * cannot be reached; then fn is not called. */
int container_query_start(struct loop *loop, const char *socket, const char *container,
			  container_query_fn *fn, void *arg, struct container_query **ret);
/* Ends the query without calling fn. q may be NULL. */
void container_query_cancel(struct container_query *q);

/* Reads a text such as "Id" or "Name" from a complete answer, including the HTTP header.
 * Returns 0, -GW_E_NOENT (no such container) or -GW_E_PARSE (also if the text does not fit). */
int container_query_read(const struct buf *answer, const char *key, char *out, size_t size);

#endif
