/* SGLang: its scheduler must be idle before memory is released, so that generation is paused first,
 * which aborts what runs.  Needs --enable-memory-saver, and --enable-weights-cpu-backup: else the
 * weights are gone when it comes back. */
#include "guard/worker/common.h"
#include "guard/worker/kinds.h"

#include <stdio.h>
#include <string.h>

#define TAGS "{\"tags\":[\"weights\",\"kv_cache\"]}"

static int close_admission(struct worker_call *c, char *message, size_t size)
{
	return worker_ask(c, "POST", "/pause_generation", "{\"mode\":\"abort\"}", message,
			  size);
}

static int open_admission(struct worker_call *c, char *message, size_t size)
{
	return worker_ask(c, "POST", "/continue_generation", "{}", message, size);
}

/* 400 says that the scheduler was not idle yet: a moment later it is. */
static int evict(struct worker_call *c, char *message, size_t size)
{
	int rc = close_admission(c, message, size);

	if (rc)
		return rc;
	rc = worker_ask(c, "POST", "/release_memory_occupation", TAGS, message, size);
	if (rc == -GW_E_IO && worker_http_status(c->http) == 400)
		rc = -GW_E_STATE;
	return rc;
}

static int resume(struct worker_call *c, char *message, size_t size)
{
	static const struct worker_step steps[] = { { "/resume_memory_occupation", TAGS,
						      false },
						    { "/continue_generation", "{}", false },
						    { 0 } };

	return worker_steps(c, steps, message, size);
}

static int alive(struct worker_call *c, char *message, size_t size)
{
	return worker_ask(c, "GET", "/health", NULL, message, size);
}

const struct worker_ops worker_sglang = { .close = close_admission,
					  .evict = evict,
					  .resume = resume,
					  .open = open_admission,
					  .alive = alive };
