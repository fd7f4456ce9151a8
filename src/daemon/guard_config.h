/* guard_config: makes the guard's policy and options from the configuration.
 *
 * config_read() has read and checked the tables [guard], [guard.defaults], [[worker]],
 * [[rule]], [[schedule]], [health] and [capacity]. The result owns its texts and outlives the
 * configuration, so that a reload can replace one by the other. */
#ifndef GW_DAEMON_GUARD_CONFIG_H
#define GW_DAEMON_GUARD_CONFIG_H

#include "config.h"
#include "guard/budget.h"
#include "guard/health.h"
#include "guard/policy.h"

struct guard_settings {
	struct policy policy;
	bool health_enabled;
	struct health_options health;
	uint64_t health_interval_ns;
	bool capacity_enabled;
	struct budget_options budget;
	const char *record;    /* NULL: nothing is recorded */
	uint64_t record_limit; /* bytes; 0: none */
};

/* c: a valid configuration. 0, or -GW_E_NOMEM and *ret is empty. */
int guard_config_make(const struct config *c, struct guard_settings *ret);
void guard_settings_done(struct guard_settings *s);

/* Makes a policy from the text of a configuration, such as a request has; only the guard's tables
 * count.  0 and *ret, which the caller frees with policy_done(); -GW_E_PARSE with a message that
 * names the line, or -GW_E_NOMEM. */
int guard_policy_parse(const char *toml, size_t n, struct policy *ret, char *message,
		       size_t size);

#endif
