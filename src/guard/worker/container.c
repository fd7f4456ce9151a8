/* A container, stopped and started through the socket of its engine: Docker's API, which Podman speaks
 * as well.  Only the container that the policy names.  url "unix:///PATH" says where the socket is. */
#include "guard/worker/common.h"
#include "guard/worker/kinds.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define UNIX_SCHEME "unix://"
#define GRACE_S     10u /* at most, before the engine kills; the order's deadline may be sooner */

static const char *const usual[] = { "/run/docker.sock", "/var/run/docker.sock",
				     "/run/podman/podman.sock" };

const char *worker_engine(const struct policy_worker *w)
{
	const char *url = w->kind == WORKER_CONTAINER ? w->url : NULL;

	if (url)
		return strncmp(url, UNIX_SCHEME, strlen(UNIX_SCHEME)) == 0
			       ? url + strlen(UNIX_SCHEME)
			       : NULL;
	for (size_t i = 0; i < sizeof(usual) / sizeof(*usual); i++)
		if (access(usual[i], F_OK) == 0)
			return usual[i];
	return usual[0];
}

/* What libcurl does not say. */
static int reach(const char *path, char *message, size_t size)
{
	const bool denied = access(path, W_OK) != 0 && errno == EACCES;

	if (!denied && access(path, W_OK) == 0)
		return 0;
	if (denied)
		snprintf(
			message, size,
			"%s may not be opened by this user: give the service the group of that "
			"socket (SupplementaryGroups=, by systemctl edit gpuward)",
			path);
	else
		snprintf(message, size,
			 "there is no socket of an engine at %s: is it running? url = "
			 "\"unix:///PATH\" names another",
			 path);
	return denied ? -GW_E_PERM : -GW_E_IO;
}

/* rest: what follows /containers/ID. */
static int engine(struct worker_call *c, const char *method, const char *rest, char *message,
		  size_t size)
{
	const char *path = worker_engine(c->worker), *id = c->worker->match.container;
	char url[512];
	struct buf b;
	int rc;

	if (!path || path[0] != '/' || !id || !id[0]) {
		snprintf(message, size, "%s",
			 id && id[0] ? "no socket of an engine: set url = \"unix:///PATH\""
				     : "match.container does not name a container");
		return -GW_E_ARG;
	}
	rc = reach(path, message, size);
	if (rc)
		return rc;
	buf_init_fixed(&b, url, sizeof(url));
	buf_adds(&b, "/containers/");
	worker_http_escape(&b, id);
	buf_adds(&b, rest);
	worker_http_socket(c->http, path);
	rc = worker_ask(c, method, url, NULL, message, size);
	/* 304: it is so already. */
	return rc == -GW_E_IO && worker_http_status(c->http) == 304 ? 0 : rc;
}

static int evict(struct worker_call *c, char *message, size_t size)
{
	uint64_t now = clock_mono_ns(clock_real());
	uint64_t left_s = c->deadline_ns > now ? (c->deadline_ns - now) / NS_PER_S : 0;
	uint64_t grace_s = left_s > 1 ? left_s - 1 : 0; /* a second for the killing */
	char rest[32];

	snprintf(rest, sizeof(rest), "/stop?t=%u",
		 grace_s < GRACE_S ? (unsigned)grace_s : GRACE_S);
	return engine(c, "POST", rest, message, size);
}

static int resume(struct worker_call *c, char *message, size_t size)
{
	return engine(c, "POST", "/start", message, size);
}

static int alive(struct worker_call *c, char *message, size_t size)
{
	return engine(c, "GET", "/json", message, size);
}

const struct worker_ops worker_container = { .evict = evict, .resume = resume, .alive = alive };
