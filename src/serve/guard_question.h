/* guard_question: reads the body of POST /api/v1/guard/simulate: GPUs and processes as JSON, or
 * lines of a recording.
 *
 * Hides the JSON format. Every error names the key. */
#ifndef GW_SERVE_GUARD_QUESTION_H
#define GW_SERVE_GUARD_QUESTION_H

#include "guard_view.h"

struct guard_question {
	double seconds;
	/* The request has its own GPUs, so the current scene is not used. */
	bool made_up;
	struct scene scene; /* the scene to simulate */
};

/* Returns the value of the key "policy" of the body; the caller frees it. Returns NULL if the
 * body has no such key, or if the body is not an object; guard_question_read() then reports
 * this error. */
char *guard_question_policy(const char *text, size_t n);

/* Reads the request. ops reads the lines of a recording (last_scene). `now` is the current
 * scene; NULL if there is none yet. If the request has no GPUs, the processes of the request
 * are added to this scene. Returns 0, -GW_E_PARSE with a message, -GW_E_STATE (a scene is
 * needed, but there is none yet) or -GW_E_NOMEM. */
int guard_question_read(const char *text, size_t n, const struct policy *p,
			const struct guard_view_ops *ops, const struct scene *now,
			struct guard_question *ret, char *message, size_t size);

#endif
