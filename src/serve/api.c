/* The table of routes. Each handler runs only after its query parameters are checked and, if
 * the readings are old, after a new reading. */
#include "api_parts.h"

#include "base/suggest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 16

/* Returns the word of the list that is most similar to `word`; NULL: none is similar. The
 * result points into `out`, which receives a copy of the list. */
static const char *nearest_word(const char *list, const char *word, char *out, size_t size)
{
	const char *words[WORDS_MAX];
	size_t n = 0;

	snprintf(out, size, "%s", list);
	for (char *p = out, *end; *p && n < WORDS_MAX; p = end) {
		end = p + strcspn(p, " ");
		if (*end)
			*end++ = '\0';
		words[n++] = p;
	}
	return suggest(word, words, n, sizeof(words[0]));
}

static bool params_known(const struct request *q, struct reply *r, const char *list)
{
	const char *name, *near;
	char copy[128];

	if (*list == '*')
		return true;
	for (unsigned i = 0; (name = request_param_name(q, i)); i++) {
		if (api_word_in(list, name, strlen(name)))
			continue;
		near = nearest_word(list, name, copy, sizeof(copy));
		if (near)
			reply_problem(r, 400, "unknown-parameter", NULL,
				      "unknown parameter \"%.64s\"; did you mean \"%s\"?", name,
				      near);
		else
			reply_problem(r, 400, "unknown-parameter", "See /openapi.json.",
				      "unknown parameter \"%.64s\"; this route %s%s", name,
				      *list ? "has: " : "has none", list);
		return false;
	}
	return true;
}

#define READING_WAIT_NS (10 * NS_PER_MS)
#define READING_WAITS   30
#define STORED_WAIT_NS  (2 * NS_PER_MS)
#define STORED_WAITS    150

void api_follow(const struct api *a)
{
	if (a->view.ops && a->view.ops->watch)
		a->view.ops->watch(a->view.engine, VIEW_WATCH_TICKS);
}

/* Reports the request to the engine. If the readings are old because no client asked for them,
 * the reply waits for a new reading, at most READING_WAITS times READING_WAIT_NS. If counters are not
 * stored yet, it waits for that, at most STORED_WAITS times STORED_WAIT_NS. A request that changes
 * something does not wait. */
static bool waits_for_view(const struct api *a, const struct request *q, struct reply *r,
			   unsigned flags, const char *tag)
{
	const bool scene = strcmp(tag, "guard") == 0 || strcmp(tag, "metrics") == 0;
	const bool rests = view_rests(&a->view, api_now(a), scene);
	const struct view_ops *ops = a->view.ops;

	if ((flags & (ROUTE_ALIVE | ROUTE_STATIC)) || !ops || !ops->watch)
		return false;
	if (q->tries == 0)
		ops->watch(a->view.engine, scene ? VIEW_WATCH_SCENE : VIEW_WATCH_ONCE);
	if ((flags & ROUTE_CHANGE) || q->tries >= (rests ? READING_WAITS : STORED_WAITS))
		return false;
	if (!rests && (!ops->counts_stored || ops->counts_stored(a->view.engine)))
		return false;
	reply_again(r, api_now(a) + (rests ? READING_WAIT_NS : STORED_WAIT_NS));
	return true;
}

#define R(id, method, path, handler, flags, tag, params, ...)                             \
	static void checked_##id(void *arg, const struct request *q, struct reply *r)     \
	{                                                                                 \
		if (params_known(q, r, params) && !waits_for_view(arg, q, r, flags, tag)) \
			api_##handler(arg, q, r);                                         \
	}
#include "routes.def"
#undef R

const struct route api_routes[] = {
#define R(id, method, path, handler, flags, ...) { HTTP_##method, path, checked_##id, flags },
#include "routes.def"
#undef R
};
const unsigned api_route_count = sizeof(api_routes) / sizeof(api_routes[0]);

void api_mark(void *arg, struct reply *r)
{
	const struct api *a = arg;

	if (view_simulated(&a->view))
		reply_header(r, "X-Gpuward-Simulated", "true");
}

void api_done(struct api *a)
{
	api_guard_simulate_done(a);
	if (a->openapi.p)
		buf_done(&a->openapi);
}
