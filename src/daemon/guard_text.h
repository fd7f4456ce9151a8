/* guard_text: makes a policy from a configuration in a request. Only the guard's tables are
 * used. */
#ifndef GW_DAEMON_GUARD_TEXT_H
#define GW_DAEMON_GUARD_TEXT_H

#include "guard/policy.h"

/* Checked like a configuration file. 0 and *ret, which the caller frees with policy_done();
 * -GW_E_PARSE with a message that names the line, -GW_E_IO or -GW_E_NOMEM. */
int guard_text_policy(const char *toml, size_t n, struct policy *ret, char *message,
		      size_t size);

#endif
