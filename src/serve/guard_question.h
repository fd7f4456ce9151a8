/* guard_question: the body of POST /api/v1/guard/simulate: a world as JSON, or as lines of a recording.
 *
 * Hides jansson.  Every fault is told in a sentence that names the key. */
#ifndef GW_SERVE_GUARD_QUESTION_H
#define GW_SERVE_GUARD_QUESTION_H

#include "guard/scene.h"

struct guard_question {
	double seconds;
	bool made_up;       /* the world is the question's own: nobody of now is in it */
	struct scene scene; /* what is asked about */
};

/* The text of "policy", which the caller frees; NULL: there is none, or the body is no object, which the
 * next tells. */
char *guard_question_policy(const char *text, size_t n);

/* now: the world that what is given is added to, where it brings none of its own; NULL: not known.  0,
 * -GW_E_PARSE with a sentence in message, -GW_E_STATE (there is no world yet) or -GW_E_NOMEM. */
int guard_question_read(const char *text, size_t n, const struct policy *p,
			const struct scene *now, struct guard_question *ret, char *message,
			size_t size);

#endif
