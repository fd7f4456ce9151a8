/* vLLM: sleep and wake.  Needs VLLM_SERVER_DEV_MODE=1 and --enable-sleep-mode.
 *
 * New work is kept out by /pause, not by sleeping at level 0: a server that does not know level 0
 * takes it for "let go of everything", weights included.  Level 1 keeps the weights in host memory,
 * level 2 lets go of them, and they are loaded anew before the cache comes back. */
#include "guard/worker/common.h"
#include "guard/worker/kinds.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>

/* A closing that waits for requests is not waited for here: drain does. */
#define CLOSE_NS NS_PER_S

static int explain(int rc, char *message, size_t size)
{
	size_t n = strlen(message);

	if (rc == -GW_E_NOSUPPORT && n < size)
		snprintf(message + n, size - n,
			 "; start vLLM with VLLM_SERVER_DEV_MODE=1 and --enable-sleep-mode");
	return rc;
}

/* 0 drained, 1 requests still run, or an error. */
static int pause_until(struct worker_call *c, uint64_t deadline_ns, char *message, size_t size)
{
	int rc = worker_ask(c, "GET", "/is_paused", NULL, message, size);

	if (rc)
		return rc;
	worker_note(c, "paused", "1");
	worker_http_deadline(c->http,
			     deadline_ns < c->deadline_ns ? deadline_ns : c->deadline_ns);
	rc = worker_ask(c, "POST", "/pause?mode=wait", NULL, message, size);
	worker_http_deadline(c->http, c->deadline_ns);
	return rc == -GW_E_TIMEOUT ? 1 : rc;
}

static int close_admission(struct worker_call *c, char *message, size_t size)
{
	int rc = pause_until(c, clock_mono_ns(clock_real()) + CLOSE_NS, message, size);

	return rc < 0 ? explain(rc, message, size) : 0;
}

/* A server older than /pause cannot drain: what runs is then aborted by the sleep. */
static int drain(struct worker_call *c, bool *ret_busy, char *message, size_t size)
{
	int rc = pause_until(c, c->deadline_ns, message, size);

	*ret_busy = rc == 1;
	return rc < 0 && rc != -GW_E_NOSUPPORT ? rc : 0;
}

static unsigned level_of(const struct worker_call *c)
{
	return c->worker->level == 2 ? 2 : 1;
}

/* A wake must know what may have been done, whatever the configuration says by then. */
static int learn(struct worker_call *c, char *message, size_t size)
{
	char level[4];

	(void)message;
	(void)size;
	snprintf(level, sizeof(level), "%u", level_of(c));
	worker_note(c, "level", level);
	return 0;
}

static int evict(struct worker_call *c, char *message, size_t size)
{
	char path[64];
	int rc;

	snprintf(path, sizeof(path), "/sleep?level=%u&mode=abort", level_of(c));
	rc = worker_ask(c, "POST", path, NULL, message, size);
	return explain(rc, message, size);
}

static int open_admission(struct worker_call *c, char *message, size_t size)
{
	static const struct worker_step steps[] = { { "/resume", NULL, true }, { 0 } };

	return explain(worker_steps(c, steps, message, size), message, size);
}

/* Once it let go of its weights, it has none, whatever it was told later. */
static bool went_deep(const struct worker_call *c)
{
	char level[4];
	unsigned i;
	bool deep = false;

	for (i = 0; worker_noted(c, "level", i, level, sizeof(level)); i++)
		deep = deep || level[0] == '2';
	return i ? deep : level_of(c) == 2;
}

static int resume(struct worker_call *c, char *message, size_t size)
{
	static const struct worker_step wake[] = { { "/wake_up", NULL, false },
						   { "/resume", NULL, true },
						   { 0 } };
	static const struct worker_step reload[] = {
		{ "/wake_up?tags=weights", NULL, false },
		{ "/collective_rpc", "{\"method\":\"reload_weights\"}", false },
		{ "/wake_up?tags=kv_cache", NULL, false },
		{ "/resume", NULL, true },
		{ 0 }
	};
	bool deep = went_deep(c);

	return explain(worker_steps(c, deep ? reload : wake, message, size), message, size);
}

static int alive(struct worker_call *c, char *message, size_t size)
{
	return worker_ask(c, "GET", "/health", NULL, message, size);
}

const struct worker_ops worker_vllm = { .close = close_admission,
					.drain = drain,
					.learn = learn,
					.evict = evict,
					.resume = resume,
					.open = open_admission,
					.alive = alive };
