#include "cuda_visible.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define HIDDEN -1
#define UNTOLD -2

#define NONE SIZE_MAX       /* the entry names no GPU                     */
#define SOME (SIZE_MAX - 1) /* it names one, but which cannot be told     */

struct entry {
	const char *p;
	size_t n;
};

static bool starts(struct entry e, const char *prefix)
{
	return e.n >= strlen(prefix) && strncmp(e.p, prefix, strlen(prefix)) == 0;
}

static bool equals(struct entry e, const char *text)
{
	return text && strlen(text) == e.n && strncmp(e.p, text, e.n) == 0;
}

/* Indices mean the driver's order only when CUDA was told so or cannot sort: by default it
 * puts the fastest first, and which that is cannot be seen from here. */
static bool order_known(const char *order, const struct cuda_visible_gpu *gpu, size_t n)
{
	if (order && strcmp(order, "PCI_BUS_ID") == 0)
		return true;
	for (size_t i = 1; i < n; i++)
		if (!gpu[0].name || !gpu[i].name || strcmp(gpu[0].name, gpu[i].name) != 0)
			return false;
	return true;
}

static size_t find_index(struct entry e, size_t n, bool known)
{
	size_t v = 0;

	for (size_t i = 0; i < e.n; i++) {
		if (!isdigit((unsigned char)e.p[i]))
			return NONE;
		v = v * 10 + (size_t)(e.p[i] - '0');
		if (v >= n)
			return NONE;
	}
	return known ? v : SOME;
}

static size_t find_uuid(struct entry e, const struct cuda_visible_gpu *gpu, size_t n)
{
	size_t found = NONE;

	for (size_t i = 0; i < n; i++) {
		if (!gpu[i].uuid || strncmp(gpu[i].uuid, e.p, e.n) != 0)
			continue;
		if (found != NONE)
			return NONE;
		found = i;
	}
	return found;
}

/* "MIG-<uuid>", or in the form of old drivers "MIG-GPU-<uuid of the GPU>/<gi>/<ci>". */
static size_t find_mig(struct entry e, const struct cuda_visible_gpu *gpu, size_t n)
{
	const char *slash = memchr(e.p, '/', e.n);

	for (size_t i = 0; i < n; i++)
		for (const char *const *m = gpu[i].mig; m && *m; m++)
			if (equals(e, *m))
				return i;
	if (!starts(e, "MIG-GPU-") || !slash)
		return NONE;
	for (size_t i = 0; i < n; i++)
		if (gpu[i].mig && gpu[i].mig[0] &&
		    equals((struct entry){ e.p + 4, (size_t)(slash - e.p) - 4 }, gpu[i].uuid))
			return i;
	return NONE;
}

static size_t find(struct entry e, const struct cuda_visible_gpu *gpu, size_t n, bool known)
{
	if (e.n == 0)
		return NONE;
	if (starts(e, "GPU-"))
		return find_uuid(e, gpu, n);
	if (starts(e, "MIG-"))
		return find_mig(e, gpu, n);
	return find_index(e, n, known);
}

/* Cuts the next entry off *list; false behind the last. */
static bool next(const char **list, struct entry *ret)
{
	const char *p = *list;
	size_t n;

	if (!p)
		return false;
	n = strcspn(p, ",");
	*list = p[n] ? p + n + 1 : NULL;
	while (n > 0 && isspace((unsigned char)*p)) {
		p++;
		n--;
	}
	while (n > 0 && isspace((unsigned char)p[n - 1]))
		n--;
	*ret = (struct entry){ p, n };
	return true;
}

static void fill(struct cuda_visible_gpu *gpu, size_t n, int ordinal)
{
	for (size_t i = 0; i < n; i++)
		gpu[i].ordinal = ordinal;
}

static void resolve_all(struct cuda_visible_gpu *gpu, size_t n, bool known)
{
	for (size_t i = 0; i < n; i++)
		gpu[i].ordinal = known ? (int)i : UNTOLD;
}

void cuda_visible_resolve(const char *list, const char *order, struct cuda_visible_gpu *gpu,
			  size_t n)
{
	bool known = order_known(order, gpu, n), untold = false;
	int ordinal = 0;
	struct entry e;

	if (!list) {
		resolve_all(gpu, n, known);
		return;
	}
	fill(gpu, n, HIDDEN);
	while (next(&list, &e)) {
		size_t i = find(e, gpu, n, known);

		if (i == NONE)
			break;
		if (i == SOME) {
			untold = true;
		} else if (gpu[i].ordinal == HIDDEN) {
			gpu[i].ordinal = ordinal;
		} else if (!starts(e, "MIG-")) {
			/* Instances of one GPU may stand side by side, a GPU may not. */
			fill(gpu, n, HIDDEN);
			return;
		}
		ordinal++;
	}
	for (size_t i = 0; i < n && untold; i++)
		if (gpu[i].ordinal == HIDDEN)
			gpu[i].ordinal = UNTOLD;
}
