/* Stops and starts a container through the socket of its engine, with Docker's API, which
 * Podman has too. Only the container that the policy names is touched. */
#include "guard/worker/common.h"
#include "guard/worker/kinds.h"

#include "base/clock.h"
#include "base/http_message.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define UNIX_SCHEME "unix://"
/* seconds until the engine kills the container; less if the order's deadline is sooner */
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
			"no socket of a container engine: set url = \"unix:///PATH\"");
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
	uint64_t grace_s = left_s > 1 ? left_s - 1 : 0; /* one second is left for the kill */
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
