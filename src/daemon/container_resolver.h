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
	/* An id has changed: call container_resolver_apply() again. */
	void (*changed)(void *arg);
	/* A name cannot be resolved; logged once until it is known again. */
	void (*log)(void *arg, const char *sentence);
	void *arg;
};

int container_resolver_new(const struct container_resolver_config *config,
			   struct container_resolver **ret); /* 0 or -GW_E_NOMEM */
void container_resolver_free(struct container_resolver *c);  /* NULL is fine    */

/* Resolves the container names of this policy from now on, and replaces those that are known
 * by their ids. refresh: query all of them now. */
void container_resolver_apply(struct container_resolver *c, struct policy *p, bool refresh);

/* Finds the id in an engine's complete answer, including the HTTP header. 0, -GW_E_NOENT (no
 * such container) or -GW_E_PARSE. */
#define CONTAINER_RESOLVER_ID 64
int container_resolver_read(const struct buf *answer,
			    char id[static CONTAINER_RESOLVER_ID + 1]);

#endif
