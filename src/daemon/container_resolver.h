/* called: which container a name is, as its engine says.
 *
 * Processes tell the id of their container, and people write its name, which stays when the container is made anew.
 * The engine (Docker's API, which Podman speaks as well) is asked over its UNIX socket when a name is new, every ten
 * seconds while it is unknown, and three times a minute.  On the loop's thread; never blocks. */
#ifndef GW_DAEMON_CONTAINER_RESOLVER_H
#define GW_DAEMON_CONTAINER_RESOLVER_H

#include "base/loop.h"
#include "guard/policy.h"

struct container_resolver;

struct container_resolver_config {
	struct loop *loop;
	void (*changed)(
		void *arg); /* an id is another one: call container_resolver_apply() anew */
	void (*tell)(void *arg,
		     const char *sentence); /* a name that cannot be asked for; once */
	void *arg;
};

int container_resolver_new(const struct container_resolver_config *config,
			   struct container_resolver **ret); /* 0 or -GW_E_NOMEM */
void container_resolver_free(struct container_resolver *c);  /* NULL is fine    */

/* Takes the names of the policy's workers from now on, instead of those before, and puts ids in the place of those that are
 * known.  anew: all are asked for now. */
void container_resolver_apply(struct container_resolver *c, struct policy *p, bool anew);

/* The id in an engine's whole answer, HTTP head and all.  0, -GW_E_NOENT (it knows no such container) or -GW_E_PARSE. */
#define CONTAINER_RESOLVER_ID 64
int container_resolver_read(const char *answer, char id[static CONTAINER_RESOLVER_ID + 1]);

#endif
