/* llama-swap: stops its servers on demand and starts one with the next request for it; it cannot be told
 * to start one, so that resuming has nothing to do. */
#include "guard/worker/common.h"
#include "guard/worker/kinds.h"

#include <stdio.h>

static int evict(struct worker_call *c, char *message, size_t size)
{
	int rc = worker_ask(c, "POST", "/api/models/unload", NULL, message, size);

	if (rc == -GW_E_NOSUPPORT) /* before it had an API */
		rc = worker_ask(c, "GET", "/unload", NULL, message, size);
	return rc;
}

static int resume(struct worker_call *c, char *message, size_t size)
{
	(void)c;
	snprintf(message, size, "it starts a model with the next request for it");
	return 0;
}

static int alive(struct worker_call *c, char *message, size_t size)
{
	return worker_ask(c, "GET", "/running", NULL, message, size);
}

const struct worker_ops worker_llamaswap = { .evict = evict, .resume = resume, .alive = alive };
