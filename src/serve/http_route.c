/* Finds the route of a path: a hash of the exact paths, then the few patterns in order. */
#include "http_impl.h"

#include <gpuward.h>

#include <stdlib.h>
#include <string.h>

struct router {
	const struct route *route;
	unsigned mask;
	int *slot; /* index of the first route of a path; -1: free */
	int *same; /* for each route the next one with the same path */
	int *pattern;
	unsigned patterns;
};

static unsigned hash(const char *s)
{
	unsigned h = 2166136261u;

	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * 16777619u;
	return h ^ h >> 15;
}

static bool is_pattern(const char *path)
{
	return strchr(path, '{') || strchr(path, '*');
}

static int *slot_of(const struct router *r, const char *path)
{
	unsigned i = hash(path) & r->mask;

	while (r->slot[i] >= 0 && strcmp(r->route[r->slot[i]].path, path) != 0)
		i = (i + 1) & r->mask;
	return &r->slot[i];
}

int router_new(const struct route *route, unsigned routes, struct router **ret)
{
	struct router *r = calloc(1, sizeof(*r));
	unsigned size = 16;

	if (!r)
		return -GW_E_NOMEM;
	while (size < 2 * routes + 2)
		size *= 2;
	r->route = route;
	r->mask = size - 1;
	r->slot = malloc(size * sizeof(int));
	r->same = malloc((routes + 1) * sizeof(int));
	r->pattern = malloc((routes + 1) * sizeof(int));
	if (!r->slot || !r->same || !r->pattern) {
		router_free(r);
		return -GW_E_NOMEM;
	}
	for (unsigned i = 0; i < size; i++)
		r->slot[i] = -1;
	for (unsigned i = 0; i < routes; i++) {
		int *slot = is_pattern(route[i].path) ? NULL : slot_of(r, route[i].path);

		r->same[i] = slot ? *slot : -1;
		if (slot)
			*slot = (int)i;
		else
			r->pattern[r->patterns++] = (int)i;
	}
	*ret = r;
	return 0;
}

void router_free(struct router *r)
{
	if (!r)
		return;
	free(r->slot);
	free(r->same);
	free(r->pattern);
	free(r);
}

int router_exact(const struct router *r, const char *path, unsigned method)
{
	int i = *slot_of(r, path);

	while (i >= 0 && r->route[i].method != method)
		i = r->same[i];
	return i;
}

/* Returns the end of a path segment. */
static const char *segment_end(const char *s)
{
	return s + strcspn(s, "/");
}

static bool matches(const char *pattern, const char *path)
{
	while (*pattern && *path) {
		if (strcmp(pattern, "*") == 0)
			return true;
		if (*pattern == '{') {
			if (segment_end(path) == path)
				return false;
			pattern = segment_end(pattern);
			path = segment_end(path);
		} else if (*pattern++ != *path++) {
			return false;
		}
	}
	return !*pattern && !*path;
}

/* Splits a matching path into the values of the braces. */
static void split_path(const char *pattern, char *path, const char **arg)
{
	for (unsigned n = 0; *pattern && n < HTTP_ARGS;) {
		if (strcmp(pattern, "*") == 0) {
			arg[n] = path;
			return;
		}
		if (*pattern == '{') {
			char *end = path + strcspn(path, "/");

			arg[n++] = path;
			pattern = segment_end(pattern);
			if (!*end)
				return;
			*end = '\0'; /* pattern and path continue after the '/' */
			path = end;
		}
		pattern++;
		path++;
	}
}

int router_find(const struct router *r, char *path, unsigned method, const char **arg,
		unsigned *ret_methods)
{
	unsigned methods = 0;

	for (int i = *slot_of(r, path); i >= 0; i = r->same[i]) {
		if (r->route[i].method == method)
			return i;
		methods |= r->route[i].method;
	}
	for (unsigned p = 0; p < r->patterns && methods == 0; p++) {
		int first = r->pattern[p];

		if (!matches(r->route[first].path, path))
			continue;
		for (; p < r->patterns; p++) {
			const struct route *route = &r->route[r->pattern[p]];

			if (!matches(route->path, path))
				continue;
			if (route->method == method) {
				split_path(route->path, path, arg);
				return r->pattern[p];
			}
			methods |= route->method;
		}
	}
	*ret_methods = methods;
	return -1;
}
