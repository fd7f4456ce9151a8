/* Inference servers that need little more than fixed HTTP requests; a server that needs more
 * has its own file. */
#include "guard/worker/common.h"
#include "guard/worker/kinds.h"

/* AUTOMATIC1111's Stable Diffusion web UI, started with --api; its CUDA context stays on the GPU. */

static int a1111_drain(struct worker_call *c, bool *ret_busy)
{
	struct json_doc *r;
	int rc = worker_get_json(c, "/sdapi/v1/progress", &r);

	*ret_busy = false;
	if (rc)
		return rc;
	*ret_busy =
		json_doc_number(r, "progress") > 0 || json_doc_number(r, "state.job_count") > 0;
	json_doc_free(r);
	return 0;
}

const struct worker_ops worker_a1111 = {
	.drain = a1111_drain,
	.posts = { [ORDER_EVICT] =
			   (const struct worker_post[]){
				   { "/sdapi/v1/interrupt", "{}", false },
				   { "/sdapi/v1/unload-checkpoint", "{}", false },
				   { 0 } },
		   [ORDER_RESUME] =
			   (const struct worker_post[]){
				   { "/sdapi/v1/reload-checkpoint", "{}", false }, { 0 } } },
	.alive_path = "/sdapi/v1/memory",
};

/* ComfyUI frees memory between two prompts; prompts that wait in its queue stay there. */

static int comfy_drain(struct worker_call *c, bool *ret_busy)
{
	struct json_doc *r;
	int rc = worker_get_json(c, "/queue", &r);

	*ret_busy = false;
	if (rc)
		return rc;
	*ret_busy = json_doc_count(r, "queue_running") > 0;
	json_doc_free(r);
	return 0;
}

/* For servers that load a model when a request needs it and have no request to load one. */
static int resume_on_demand(struct worker_call *c)
{
	return worker_ok(c, "it loads a model with the next request");
}

const struct worker_ops worker_comfy = {
	.drain = comfy_drain,
	.resume = resume_on_demand,
	.posts = { [ORDER_EVICT] =
			   (const struct worker_post[]){
				   { "/interrupt", "{}", false },
				   { "/free", "{\"unload_models\":true,\"free_memory\":true}",
				     false },
				   { 0 } } },
	.alive_path = "/system_stats",
};

/* llama-swap stops its servers, and starts one with the next request for its model. */

static int llamaswap_evict(struct worker_call *c)
{
	int rc = worker_post(c, "/api/models/unload", NULL);

	if (rc == -GW_E_NOSUPPORT) /* versions without /api */
		rc = worker_get(c, "/unload");
	return rc;
}

const struct worker_ops worker_llamaswap = { .evict = llamaswap_evict,
					     .resume = resume_on_demand,
					     .alive_path = "/running" };

/* SGLang releases memory only while its scheduler is idle, so generation is paused first,
 * which aborts running requests.  It needs --enable-memory-saver, and
 * --enable-weights-cpu-backup to have its weights after a resume. */

#define SGLANG_TAGS "{\"tags\":[\"weights\",\"kv_cache\"]}"

static const struct worker_post sglang_pause[] = {
	{ "/pause_generation", "{\"mode\":\"abort\"}", false }, { 0 }
};

/* Status 400 means that the scheduler is not idle yet; it is a moment later. */
static int sglang_evict(struct worker_call *c)
{
	int rc = worker_post_all(c, sglang_pause);

	if (rc)
		return rc;
	rc = worker_post(c, "/release_memory_occupation", SGLANG_TAGS);
	return rc == -GW_E_IO && worker_http_status(c->http) == 400 ? -GW_E_STATE : rc;
}

const struct worker_ops worker_sglang = {
	.evict = sglang_evict,
	.posts = { [ORDER_CLOSE] = sglang_pause,
		   [ORDER_OPEN] =
			   (const struct worker_post[]){
				   { "/continue_generation", "{}", false }, { 0 } },
		   [ORDER_RESUME] =
			   (const struct worker_post[]){
				   { "/resume_memory_occupation", SGLANG_TAGS, false },
				   { "/continue_generation", "{}", false },
				   { 0 } } },
	.alive_path = "/health",
};
