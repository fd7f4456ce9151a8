/* Adapter for vLLM: the server sleeps while it is evicted. It must be started with
 * VLLM_SERVER_DEV_MODE=1 and --enable-sleep-mode.
 *
 * To make the server refuse new work, the adapter uses /pause and not sleep level 0, because a
 * server that does not know level 0 releases everything, including the weights. Level 1 keeps
 * the weights in host memory. Level 2 drops the weights; they are loaded again before the cache
 * is restored. */
#include "guard/worker/common.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>

/* Time limit of vllm_close(), which does not wait for running requests; vllm_drain() does. */
#define CLOSE_NS NS_PER_S

/* Adds advice to the message if the server does not have the requests to pause, sleep or
 * wake. */
static int vllm_hint(struct worker_call *c, int rc)
{
	size_t n = strlen(c->message);

	if (rc == -GW_E_NOSUPPORT && n < c->message_size)
		snprintf(c->message + n, c->message_size - n,
			 "; start vLLM with VLLM_SERVER_DEV_MODE=1 and --enable-sleep-mode");
	return rc;
}

/* Makes the server refuse new requests, and waits for running requests until deadline_ns.
 * Returns 0: no request runs any more; 1: some still run; or a negative error. */
static int pause_until(struct worker_call *c, uint64_t deadline_ns)
{
	int rc = worker_get(c, "/is_paused");

	if (rc)
		return rc;
	worker_note(c, "paused", "1");
	worker_http_deadline(c->http,
			     deadline_ns < c->deadline_ns ? deadline_ns : c->deadline_ns);
	rc = worker_post(c, "/pause?mode=wait", NULL);
	worker_http_deadline(c->http, c->deadline_ns);
	return rc == -GW_E_TIMEOUT ? 1 : rc;
}

static int vllm_close(struct worker_call *c)
{
	int rc = pause_until(c, clock_mono_ns(clock_real()) + CLOSE_NS);

	return rc < 0 ? vllm_hint(c, rc) : 0;
}

/* Waits for running requests. A server without /pause cannot drain, so the request to sleep
 * aborts running requests. */
static int vllm_drain(struct worker_call *c, bool *ret_busy)
{
	int rc = pause_until(c, c->deadline_ns);

	*ret_busy = rc == 1;
	return rc < 0 && rc != -GW_E_NOSUPPORT ? rc : 0;
}

static unsigned sleep_level(const struct worker_call *c)
{
	return c->worker->level == 2 ? 2 : 1;
}

/* Notes the sleep level, because the resume needs this level even if the configuration has
 * changed since. */
static int vllm_learn(struct worker_call *c)
{
	worker_note(c, "level", sleep_level(c) == 2 ? "2" : "1");
	return 0;
}

/* Checks that the server sleeps (or does not sleep, if `asleep` is false), because a request to
 * sleep or to wake can succeed without effect. Returns 0 also if the server cannot report
 * this. */
static int vllm_check(struct worker_call *c, bool asleep)
{
	struct json_doc *r;
	bool is;
	int rc = worker_get_json(c, "/is_sleeping", &r);

	if (rc == -GW_E_NOSUPPORT)
		return worker_ok(c, "%s", "");
	if (rc)
		return rc;
	is = json_doc_true(r, "is_sleeping");
	json_doc_free(r);
	if (is == asleep)
		return 0;
	return worker_fail(c, -GW_E_IO,
			   asleep ? "vLLM answered, but does not sleep: start it with "
				    "--enable-sleep-mode, and see its log"
				  : "vLLM answered, but still sleeps: see its log, and restart "
				    "it if it does not wake");
}

static int vllm_evict(struct worker_call *c)
{
	int rc = worker_post(c,
			     sleep_level(c) == 2 ? "/sleep?level=2&mode=abort"
						 : "/sleep?level=1&mode=abort",
			     NULL);

	return rc ? vllm_hint(c, rc) : vllm_check(c, true);
}

static const struct worker_post vllm_accept[] = { { "/resume", NULL, true }, { 0 } };

static int vllm_open(struct worker_call *c)
{
	return vllm_hint(c, worker_post_all(c, vllm_accept));
}

/* True if the weights were dropped. A sleep at level 2 drops them, even if a sleep at level 1
 * follows. */
static bool weights_dropped(const struct worker_call *c)
{
	char level[4];
	bool dropped = false;
	unsigned i;

	for (i = 0; worker_noted(c, "level", i, level, sizeof(level)); i++)
		dropped = dropped || level[0] == '2';
	return i ? dropped : sleep_level(c) == 2;
}

/* A server that was restarted is awake. If it runs without VLLM_SERVER_DEV_MODE=1, it answers
 * the first request with 404: a server without /wake_up does not have /sleep either. */
static int vllm_resume(struct worker_call *c)
{
	static const struct worker_post reload[] = {
		{ "/collective_rpc", "{\"method\":\"reload_weights\"}", false },
		{ "/wake_up?tags=kv_cache", NULL, false },
		{ "/resume", NULL, true },
		{ 0 }
	};

	bool dropped = weights_dropped(c);
	int rc = worker_post(c, dropped ? "/wake_up?tags=weights" : "/wake_up", NULL);

	if (rc == -GW_E_NOSUPPORT && worker_http_status(c->http) == 404)
		rc = worker_post_all(c, vllm_accept);
	else if (!rc)
		rc = worker_post_all(c, dropped ? reload : vllm_accept);
	return rc ? vllm_hint(c, rc) : vllm_check(c, false);
}

const struct worker_ops worker_vllm = { .close = vllm_close,
					.drain = vllm_drain,
					.learn = vllm_learn,
					.evict = vllm_evict,
					.resume = vllm_resume,
					.open = vllm_open,
					.alive_path = "/health" };
