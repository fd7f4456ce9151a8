/* Kinds "systemd" and "container". These adapters stop and start the unit or the container that
 * the policy names. They also carry out level 4 for workers of other kinds. */
#include "guard/worker/common.h"
#include "guard/worker/companion.h"

#include "base/child.h"
#include "base/clock.h"
#include "base/http_message.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Kind "container" uses the UNIX socket of the container engine and the API of Docker, which
 * Podman also has. */
#define UNIX_SCHEME "unix://"
/* after this many seconds the engine kills the container; earlier if the deadline is sooner */
#define GRACE_S 10u

static const char *const usual_sockets[] = { "/run/docker.sock", "/var/run/docker.sock",
					     "/run/podman/podman.sock" };

const char *worker_engine(const struct policy_worker *w)
{
	const char *url = w->kind == WORKER_CONTAINER ? w->url : NULL;

	if (url)
		return strncmp(url, UNIX_SCHEME, strlen(UNIX_SCHEME)) == 0
			       ? url + strlen(UNIX_SCHEME)
			       : NULL;
	for (size_t i = 0; i < sizeof(usual_sockets) / sizeof(*usual_sockets); i++)
		if (access(usual_sockets[i], F_OK) == 0)
			return usual_sockets[i];
	return usual_sockets[0];
}

/* Checks that the socket can be opened, because libcurl does not report why a socket cannot be
 * opened. */
static int check_socket(const struct worker_call *c, const char *path)
{
	if (access(path, W_OK) == 0)
		return 0;
	if (errno == EACCES)
		return worker_fail(
			c, -GW_E_PERM,
			"this user may not open %s: add the service to the group of that "
			"socket (SupplementaryGroups=, with systemctl edit gpuward)",
			path);
	return worker_fail(
		c, -GW_E_IO,
		"there is no socket of a container engine at %s: start the engine, or "
		"name its socket with url = \"unix:///PATH\"",
		path);
}

/* Sends a request to /containers/ID. `rest`: the part of the path after the ID. */
static int engine_request(struct worker_call *c, bool post, const char *rest)
{
	const char *path = worker_engine(c->worker), *id = c->worker->match.container;
	char url[512];
	struct buf b;
	int rc;

	if (!id || !id[0])
		return worker_fail(c, -GW_E_ARG, "match.container does not name a container");
	if (!path || path[0] != '/')
		return worker_fail(
			c, -GW_E_ARG,
			"url names no socket of a container engine: write \"unix:///PATH\"");
	rc = check_socket(c, path);
	if (rc)
		return rc;
	buf_init_fixed(&b, url, sizeof(url));
	buf_adds(&b, "/containers/");
	url_escape(&b, id);
	buf_adds(&b, rest);
	worker_http_socket(c->http, path);
	rc = post ? worker_post(c, url, NULL) : worker_get(c, url);
	/* 304: the container is already stopped or started. */
	return rc == -GW_E_IO && worker_http_status(c->http) == 304 ? 0 : rc;
}

static int container_evict(struct worker_call *c)
{
	uint64_t now = clock_mono_ns(clock_real());
	uint64_t left_s = c->deadline_ns > now ? (c->deadline_ns - now) / NS_PER_S : 0;
	uint64_t grace_s = left_s > 1 ? left_s - 1 : 0; /* one second for the kill */
	char rest[32];

	snprintf(rest, sizeof(rest), "/stop?t=%u",
		 grace_s < GRACE_S ? (unsigned)grace_s : GRACE_S);
	return engine_request(c, true, rest);
}

static int container_resume(struct worker_call *c)
{
	return engine_request(c, true, "/start");
}

static int container_alive(struct worker_call *c)
{
	return engine_request(c, false, "/json");
}

const struct worker_ops worker_container = { .evict = container_evict,
					     .resume = container_resume,
					     .alive = container_alive };

/* Kind "systemd" uses systemctl. url "user" means the service manager of the user of this
 * program; "user@NAME" means the service manager of another user. If there is a companion, the
 * companion stops and starts the units of the system; every user may query their state. */

#define EXIT_NOT_ACTIVE 3 /* exit status of systemctl is-active: the unit does not run */
#define EXIT_NO_UNIT    5 /* exit status of systemctl: there is no such unit */

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
