/* ComfyUI: told to free what it can, which it does between two prompts.  What waits in its queue is the
 * user's and stays there; what it needs it loads with the next prompt. */
#include "guard/worker/common.h"
#include "guard/worker/kinds.h"

#include <stdio.h>

static int drain(struct worker_call *c, bool *ret_busy, char *message, size_t size)
{
	struct json_doc *r;
	int rc = worker_ask_json(c, "GET", "/queue", NULL, &r, message, size);

	*ret_busy = false;
	if (rc)
		return rc;
	*ret_busy = json_doc_count(r, "queue_running") > 0;
	json_doc_free(r);
	return 0;
}

static int evict(struct worker_call *c, char *message, size_t size)
{
	static const struct worker_step steps[] = {
		{ "/interrupt", "{}", false },
		{ "/free", "{\"unload_models\":true,\"free_memory\":true}", false },
		{ 0 }
	};

	return worker_steps(c, steps, message, size);
}

static int resume(struct worker_call *c, char *message, size_t size)
{
	(void)c;
	snprintf(message, size, "it loads what it needs with the next prompt");
	return 0;
}

static int alive(struct worker_call *c, char *message, size_t size)
{
	return worker_ask(c, "GET", "/system_stats", NULL, message, size);
}

const struct worker_ops worker_comfy = {
	.drain = drain, .evict = evict, .resume = resume, .alive = alive
};
