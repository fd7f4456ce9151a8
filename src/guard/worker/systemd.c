/* A unit of systemd, stopped and started through systemctl: D-Bus by hand would be a library of its
 * own.  Only the unit that the policy names.  url "user" means the manager of the user that we run as,
 * "user@NAME" that of another.  Units of the system are the companion's to stop and start where there is
 * one; whether they run anybody may ask. */
#include "guard/worker/common.h"
#include "guard/worker/companion.h"
#include "guard/worker/kinds.h"

#include "base/child.h"

#include <stdio.h>
#include <string.h>

#define EXIT_NOT_ACTIVE 3 /* of is-active */
#define EXIT_NO_UNIT    5 /* "unit not loaded" */

struct command {
	char machine[128];
	const char *argv[10];
};

static bool build(const struct worker_call *c, const char *verb, struct command *ret)
{
	const char *url = c->worker->kind == WORKER_SYSTEMD ? c->worker->url : NULL;
	const char *unit = c->worker->match.unit;
	const char **to = ret->argv;

	if (!unit || !unit[0] || unit[0] == '-')
		return false;
	*to++ = "systemctl";
	*to++ = "--no-ask-password";
	*to++ = "--quiet";
	if (url && strncmp(url, "user", 4) == 0)
		*to++ = "--user";
	if (url && strncmp(url, "user@", 5) == 0) {
		snprintf(ret->machine, sizeof(ret->machine), "--machine=%s@.host", url + 5);
		*to++ = ret->machine;
	}
	*to++ = verb;
	*to++ = "--";
	*to++ = unit;
	*to = NULL;
	return true;
}

static int systemctl(struct worker_call *c, const char *verb, char *message, size_t size)
{
	const char *unit = c->worker->match.unit;
	struct command command;
	char out[64];
	int rc;

	if (!build(c, verb, &command)) {
		snprintf(message, size, "match.unit does not name a unit");
		return -GW_E_ARG;
	}
	rc = child_run(command.argv, c->deadline_ns, out, sizeof(out));
	if (rc == 0)
		return 0;
	if (rc == -GW_E_NOENT)
		snprintf(message, size, "there is no systemctl here");
	else if (rc == -GW_E_TIMEOUT)
		snprintf(message, size, "systemctl %s %s: not done in time", verb, unit);
	else
		snprintf(message, size,
			 "systemctl %s %s: exit status %d%s; see systemctl status %s", verb,
			 unit, rc,
			 rc == EXIT_NO_UNIT ? " (no such unit)"
			 : rc == EXIT_NOT_ACTIVE
				 ? " (not active)"
				 : " (it needs root, a rule of polkit or guard.companion)",
			 unit);
	if (rc < 0)
		return rc == -GW_E_NOENT ? -GW_E_NOSUPPORT : rc;
	return rc == EXIT_NO_UNIT ? -GW_E_NOSUPPORT : -GW_E_IO;
}

static bool by_companion(const struct worker_call *c)
{
	const char *url = c->worker->kind == WORKER_SYSTEMD ? c->worker->url : NULL;

	return c->companion && c->worker->match.unit && !(url && strncmp(url, "user", 4) == 0);
}

static int evict(struct worker_call *c, char *message, size_t size)
{
	if (by_companion(c))
		return companion_unit(c->companion, c->worker->match.unit, false,
				      c->deadline_ns, message, size);
	return systemctl(c, "stop", message, size);
}

static int resume(struct worker_call *c, char *message, size_t size)
{
	if (by_companion(c))
		return companion_unit(c->companion, c->worker->match.unit, true, c->deadline_ns,
				      message, size);
	return systemctl(c, "start", message, size);
}

static int alive(struct worker_call *c, char *message, size_t size)
{
	return systemctl(c, "is-active", message, size);
}

const struct worker_ops worker_systemd = { .evict = evict, .resume = resume, .alive = alive };
