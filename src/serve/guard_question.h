/* guard_question: the body of POST /api/v1/guard/simulate: GPUs and processes as JSON, or
 * lines of a recording.
 *
 * Hides jansson. Every error names the key. */
#ifndef GW_SERVE_GUARD_QUESTION_H
#define GW_SERVE_GUARD_QUESTION_H

#include "guard/scene.h"

struct guard_question {
	double seconds;
	/* the request has its own GPUs: nothing of the current scene is in it */
	bool made_up;
	struct scene scene; /* the scene to simulate */
};

/* The text of "policy", which the caller frees; NULL: none, or the body is no object, which
 * guard_question_read() reports. */
char *guard_question_policy(const char *text, size_t n);

/* now: the current scene, to which the request is added if it has no GPUs of its own; NULL:
 * unknown. 0, -GW_E_PARSE with a text in message, -GW_E_STATE (no scene yet) or -GW_E_NOMEM. */
int guard_question_read(const char *text, size_t n, const struct policy *p,
			const struct scene *now, struct guard_question *ret, char *message,
			size_t size);

#endif
