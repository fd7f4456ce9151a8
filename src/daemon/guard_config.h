/* guard_config: makes the guard's policy and options from the configuration.
 *
 * config_read() has read and checked the tables [guard], [guard.defaults], [[worker]],
 * [[rule]], [[schedule]], [health] and [capacity]. The result owns its strings and outlives the
 * configuration, so that a reload can free the old configuration before the guard switches
 * policy. */
#ifndef GW_DAEMON_GUARD_CONFIG_H
#define GW_DAEMON_GUARD_CONFIG_H

#include "config.h"
#include "guard/gpu_use.h"
#include "guard/health.h"
#include "guard/policy.h"

struct guard_settings {
	struct policy policy;
	/* The mode in the configuration. policy.mode is the mode that is used now. */
	enum guard_mode configured;
	bool health_enabled;
	struct health_options health;
	uint64_t health_interval_ns;
	bool capacity_enabled;
	struct budget_options budget;
	/* Path of the recording (recording.h). NULL if nothing is recorded. */
	const char *record;
	uint64_t record_limit; /* Maximum size of the recording in bytes. 0 means no limit. */
};

/* Makes the settings from a valid configuration. Returns 0, or -GW_E_NOMEM; *ret is then
 * empty. */
int guard_config_make(const struct config *c, struct guard_settings *ret);
/* Copies s; *ret owns copies of all strings. Returns 0 or -GW_E_NOMEM. */
int guard_settings_copy(struct guard_settings *ret, const struct guard_settings *s);
void guard_settings_done(struct guard_settings *s);

/* Makes a policy from the text of a configuration, such as the body of a request. Only the
 * guard's tables are used. The caller frees *ret with policy_done(). Returns 0, -GW_E_NOMEM, or
 * -GW_E_PARSE with a message that names the line. */
int guard_policy_parse(const char *toml, size_t n, struct policy *ret, char *message,
		       size_t size);

#endif
