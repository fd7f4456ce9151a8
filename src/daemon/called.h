/* called: which container a name is, as its engine says.
 *
 * Processes tell the id of their container, and people write its name, which stays when the container is made anew.
 * The engine (Docker's API, which Podman speaks as well) is asked over its UNIX socket when a name is new, every ten
 * seconds while it is unknown, and three times a minute.  On the loop's thread; never blocks. */
#ifndef GW_DAEMON_CALLED_H
#define GW_DAEMON_CALLED_H

#include "base/loop.h"
#include "guard/policy.h"

struct called;

struct called_config {
	struct loop *loop;
	void (*changed)(void *arg); /* an id is another one: call called_apply() anew */
	void (*tell)(void *arg,
		     const char *sentence); /* a name that cannot be asked for; once */
	void *arg;
};

int called_new(const struct called_config *config, struct called **ret); /* 0 or -GW_E_NOMEM */
void called_free(struct called *c);                                      /* NULL is fine    */

/* Takes the names of the policy's workers from now on, instead of those before, and puts ids in the place of those that are
 * known.  anew: all are asked for now. */
void called_apply(struct called *c, struct policy *p, bool anew);

/* The id in an engine's whole answer, HTTP head and all.  0, -GW_E_NOENT (it knows no such container) or -GW_E_PARSE. */
#define CALLED_ID 64
int called_read(const char *answer, char id[static CALLED_ID + 1]);

#endif
