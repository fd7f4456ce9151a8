/* container_resolver: finds the id of a container from its name.
 *
 * The kernel shows the container id of a process, but people configure the name, which stays
 * the same when the container is created again. The container engine (Docker's API, which
 * Podman also offers) is queried over its UNIX socket: for a new name at once, for an unknown
 * one every 10 s, for a known one every 20 s. Runs on the loop's thread and never blocks. */
#ifndef GW_DAEMON_CONTAINER_RESOLVER_H
#define GW_DAEMON_CONTAINER_RESOLVER_H

#include "base/buf.h"
#include "base/loop.h"
#include "guard/policy.h"

struct container_resolver;

struct container_resolver_config {
	struct loop *loop;
	/* Called when an id has changed. Then call container_resolver_apply() again. */
	void (*changed)(void *arg);
	/* Called when a name cannot be resolved; called again only after the name was resolved
	 * meanwhile. */
	void (*log)(void *arg, const char *sentence);
	void *arg;
};

int container_resolver_new(const struct container_resolver_config *config,
			   struct container_resolver **ret); /* 0 or -GW_E_NOMEM */
void container_resolver_free(struct container_resolver *c);  /* NULL is fine    */

/* Resolves the container names of this policy from now on, and replaces the names that are
 * already known by their ids. If refresh is true, queries all names now. */
void container_resolver_apply(struct container_resolver *c, struct policy *p, bool refresh);

/* Finds the id in a complete answer of an engine, including the HTTP header. Returns 0,
 * -GW_E_NOENT (no such container) or -GW_E_PARSE. */
#define CONTAINER_RESOLVER_ID 64
int container_resolver_read(const struct buf *answer,
			    char id[static CONTAINER_RESOLVER_ID + 1]);

#endif
