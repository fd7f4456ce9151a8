/* Stable Diffusion web UI (AUTOMATIC1111), started with --api: the checkpoint is unloaded and loaded
 * again; its CUDA context stays. */
#include "guard/worker/common.h"
#include "guard/worker/kinds.h"

static int drain(struct worker_call *c, bool *ret_busy, char *message, size_t size)
{
	struct json_doc *r;
	int rc = worker_ask_json(c, "GET", "/sdapi/v1/progress", NULL, &r, message, size);

	*ret_busy = false;
	if (rc)
		return rc;
	*ret_busy =
		json_doc_number(r, "progress") > 0 || json_doc_number(r, "state.job_count") > 0;
	json_doc_free(r);
	return 0;
}

static int evict(struct worker_call *c, char *message, size_t size)
{
	static const struct worker_step steps[] = { { "/sdapi/v1/interrupt", "{}", false },
						    { "/sdapi/v1/unload-checkpoint", "{}",
						      false },
						    { 0 } };

	return worker_steps(c, steps, message, size);
}

static int resume(struct worker_call *c, char *message, size_t size)
{
	return worker_ask(c, "POST", "/sdapi/v1/reload-checkpoint", "{}", message, size);
}

static int alive(struct worker_call *c, char *message, size_t size)
{
	return worker_ask(c, "GET", "/sdapi/v1/memory", NULL, message, size);
}

const struct worker_ops worker_a1111 = {
	.drain = drain, .evict = evict, .resume = resume, .alive = alive
};
