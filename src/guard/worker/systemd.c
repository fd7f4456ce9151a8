/* Stops and starts a systemd unit with systemctl. Only the unit that the policy names is
 * touched.
 *
 * url "user" means the service manager of the user that this program runs as; "user@NAME" means
 * that of another user. If there is a companion, it stops and starts the units of the system.
 * Everyone may query whether they are active. */
#include "guard/worker/common.h"
#include "guard/worker/companion.h"
#include "guard/worker/kinds.h"

#include "base/child.h"

#include <stdio.h>
#include <string.h>

#define EXIT_NOT_ACTIVE 3 /* of is-active */
#define EXIT_NO_UNIT    5 /* systemctl: "unit not loaded" */

struct command {
	char machine[128];
	const char *argv[10];
};

/* Returns "user" or "user@NAME"; NULL: the manager of the system. */
static const char *user_manager(const struct worker_call *c)
{
	const char *url = c->worker->kind == WORKER_SYSTEMD ? c->worker->url : NULL;

	return url && strncmp(url, "user", 4) == 0 ? url : NULL;
}

static bool build_command(const struct worker_call *c, const char *verb, struct command *ret)
{
	const char *user = user_manager(c), *unit = c->worker->match.unit;
	const char **to = ret->argv;

	if (!unit || !unit[0] || unit[0] == '-')
		return false;
	*to++ = "systemctl";
	*to++ = "--no-ask-password";
	*to++ = "--quiet";
	if (user)
		*to++ = "--user";
	if (user && user[4] == '@') {
		snprintf(ret->machine, sizeof(ret->machine), "--machine=%s@.host", user + 5);
		*to++ = ret->machine;
	}
	*to++ = verb;
	*to++ = "--";
	*to++ = unit;
	*to = NULL;
	return true;
}

static int systemctl(struct worker_call *c, const char *verb)
{
	const char *unit = c->worker->match.unit, *hint;
	struct command command;
	int rc;

	if (!build_command(c, verb, &command))
		return worker_fail(c, -GW_E_ARG, "match.unit does not name a unit");
	rc = child_run(command.argv, c->deadline_ns, NULL, 0);
	if (rc == 0)
		return 0;
	if (rc == -GW_E_NOENT)
		return worker_fail(c, -GW_E_NOSUPPORT, "systemctl is not installed");
	if (rc == -GW_E_TIMEOUT)
		return worker_fail(c, rc, "systemctl %s %s: not done in time", verb, unit);
	hint = rc == EXIT_NO_UNIT ? " (no such unit)"
	       : rc == EXIT_NOT_ACTIVE
		       ? " (not active)"
		       : " (this may need root, a polkit rule or guard.companion)";
	return worker_fail(c,
			   rc < 0               ? rc
			   : rc == EXIT_NO_UNIT ? -GW_E_NOSUPPORT
						: -GW_E_IO,
			   "systemctl %s %s: exit status %d%s; see systemctl status %s", verb,
			   unit, rc, hint, unit);
}

static int start_or_stop(struct worker_call *c, bool start)
{
	if (c->companion && c->worker->match.unit && !user_manager(c))
		return companion_unit(c->companion, c->worker->match.unit, start,
				      c->deadline_ns, c->message, c->message_size);
	return systemctl(c, start ? "start" : "stop");
}

static int systemd_evict(struct worker_call *c)
{
	return start_or_stop(c, false);
}

static int systemd_resume(struct worker_call *c)
{
	return start_or_stop(c, true);
}

static int systemd_alive(struct worker_call *c)
{
	return systemctl(c, "is-active");
}

const struct worker_ops worker_systemd = { .evict = systemd_evict,
					   .resume = systemd_resume,
					   .alive = systemd_alive };
