/* container_query: asks a container engine about one container over its UNIX socket.
 *
 * It uses Docker's API, which Podman also offers. It runs on the loop's thread and never
 * blocks. The container resolver knows a name and asks for the id; workload_names knows an id
 * and asks for the name. */
#ifndef GW_DAEMON_CONTAINER_QUERY_H
#define GW_DAEMON_CONTAINER_QUERY_H

#include "base/buf.h"
#include "base/loop.h"

#define CONTAINER_QUERY_SOCKET 108 /* size of the path of a socket, with its NUL */
#define CONTAINER_QUERY_NAME   128 /* size of a container's name or id, with its NUL */

struct container_query;

/* Called once per query from the loop. error: 0, or an errno (ETIMEDOUT after 5 s, EMSGSIZE for
 * an answer above 256 KiB). The query no longer exists during the call. */
typedef void container_query_fn(void *arg, int error, const struct buf *answer);

/* Asks the engine at socket about a container. Returns 0, or a negative errno if the engine
 * cannot be reached; then fn is not called. */
int container_query_start(struct loop *loop, const char *socket, const char *container,
			  container_query_fn *fn, void *arg, struct container_query **ret);
void container_query_cancel(struct container_query *q); /* fn is not called; NULL is fine */

/* Reads a text such as "Id" or "Name" from a complete answer, including the HTTP header. Returns
 * 0, -GW_E_NOENT (no such container) or -GW_E_PARSE (also if the text does not fit). */
int container_query_read(const struct buf *answer, const char *key, char *out, size_t size);

#endif
