/* lookup: the addresses of a host.
 *
 * A name server that is silent keeps whoever asks for as long as it likes, and nothing can be
 * done about it: so a thread asks, and is left behind where it takes too long. */
#ifndef GW_CLI_LOOKUP_H
#define GW_CLI_LOOKUP_H

#include "deadline_wait.h"

#include <netdb.h>

/* 0, and *ret is the caller's until freeaddrinfo(); -GW_E_NODEV (no such host), -GW_E_NOMEM, or
 * as deadline_wait_wait(). */
int lookup(const char *host, const char *port, struct deadline_wait *p, struct addrinfo **ret);

#endif
