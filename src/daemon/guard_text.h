/* guard_text: a configuration that somebody sent, as a policy.  Nothing of it is used but the guard's tables. */
#ifndef GW_DAEMON_GUARD_TEXT_H
#define GW_DAEMON_GUARD_TEXT_H

#include "guard/policy.h"

/* Judged as a file of the service is.  0 and *ret, which the caller ends with policy_done(); -GW_E_PARSE with a
 * sentence that names the line, -GW_E_IO or -GW_E_NOMEM. */
int guard_text_policy(const char *toml, size_t n, struct policy *ret, char *message,
		      size_t size);

#endif
