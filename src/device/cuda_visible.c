#include "cuda_visible.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define NO_GPU SIZE_MAX /* result of the search if the entry names no GPU */

struct entry {
	const char *p;
	size_t n;
};

static bool cuda_starts(struct entry e, const char *prefix)
{
	return e.n >= strlen(prefix) && strncmp(e.p, prefix, strlen(prefix)) == 0;
}

static bool cuda_equals(struct entry e, const char *text)
{
	return text && strlen(text) == e.n && strncmp(e.p, text, e.n) == 0;
}

/* True if indices follow the driver's order: CUDA is set to this order, or all GPUs are the
 * same model. By default CUDA puts the fastest GPU first, and we do not know which GPU that
 * is. */
static bool order_known(const char *order, const struct cuda_visible_gpu *gpu, size_t n)
{
	if (order && strcmp(order, "PCI_BUS_ID") == 0)
		return true;
	for (size_t i = 1; i < n; i++)
		if (!gpu[0].name || !gpu[i].name || strcmp(gpu[0].name, gpu[i].name) != 0)
			return false;
	return true;
}

static bool is_index(struct entry e)
{
	return e.n > 0 && isdigit((unsigned char)e.p[0]);
}

static size_t find_index(struct entry e, size_t n)
{
	size_t v = 0;

	for (size_t i = 0; i < e.n; i++) {
		if (!isdigit((unsigned char)e.p[i]))
			return NO_GPU;
		v = v * 10 + (size_t)(e.p[i] - '0');
		if (v >= n)
			return NO_GPU;
	}
	return v;
}

static size_t find_uuid(struct entry e, const struct cuda_visible_gpu *gpu, size_t n)
{
	size_t found = NO_GPU;

	for (size_t i = 0; i < n; i++) {
		if (!gpu[i].uuid || strncmp(gpu[i].uuid, e.p, e.n) != 0)
			continue;
		if (found != NO_GPU)
			return NO_GPU;
		found = i;
	}
	return found;
}

/* Finds the GPU of a MIG entry: "MIG-<uuid>" or, with old drivers, "MIG-GPU-<uuid of the
 * GPU>/<gi>/<ci>". */
static size_t find_mig(struct entry e, const struct cuda_visible_gpu *gpu, size_t n)
{
	const char *slash = memchr(e.p, '/', e.n);

	for (size_t i = 0; i < n; i++)
		for (const char *const *m = gpu[i].mig; m && *m; m++)
			if (cuda_equals(e, *m))
				return i;
	if (!cuda_starts(e, "MIG-GPU-") || !slash)
		return NO_GPU;
	for (size_t i = 0; i < n; i++)
		if (gpu[i].mig && gpu[i].mig[0] &&
		    cuda_equals((struct entry){ e.p + 4, (size_t)(slash - e.p) - 4 },
				gpu[i].uuid))
			return i;
	return NO_GPU;
}

static size_t find_gpu(struct entry e, const struct cuda_visible_gpu *gpu, size_t n)
{
	if (e.n == 0)
		return NO_GPU;
	if (cuda_starts(e, "GPU-"))
		return find_uuid(e, gpu, n);
	if (cuda_starts(e, "MIG-"))
		return find_mig(e, gpu, n);
	return find_index(e, n);
}

/* Returns the next entry of *list without blanks, and moves *list past it. Returns false after
 * the last entry. */
static bool next_entry(const char **list, struct entry *ret)
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

static void set_all(struct cuda_visible_gpu *gpu, size_t n, int ordinal)
{
	for (size_t i = 0; i < n; i++)
		gpu[i].ordinal = ordinal;
}

void cuda_visible_resolve(const char *list, const char *order, struct cuda_visible_gpu *gpu,
			  size_t n)
{
	bool known = order_known(order, gpu, n), unknown = false;
	/* Bit i is set if the list contains index i. Used only if the order of CUDA is
	 * unknown. */
	uint64_t listed = 0;
	int ordinal = 0, instances = 0;
	struct entry e;

	if (!list) {
		for (size_t i = 0; i < n; i++)
			gpu[i].ordinal = known ? (int)i : CUDA_VISIBLE_UNKNOWN;
		return;
	}
	set_all(gpu, n, CUDA_VISIBLE_HIDDEN);
	while (next_entry(&list, &e)) {
		size_t i = find_gpu(e, gpu, n);
		bool twice;

		if (i == NO_GPU)
			break;
		instances += cuda_starts(e, "MIG-");
		twice = ordinal - instances >= (int)n;
		if (is_index(e) && !known) {
			twice |= i < 64 && (listed & UINT64_C(1) << i);
			listed |= i < 64 ? UINT64_C(1) << i : 0;
			unknown = true;
		} else if (gpu[i].ordinal == CUDA_VISIBLE_HIDDEN) {
			gpu[i].ordinal = ordinal;
		} else { /* listed before: allowed for several MIG instances of one GPU */
			twice |= !cuda_starts(e, "MIG-");
		}
		if (twice) { /* CUDA refuses the whole list */
			set_all(gpu, n, CUDA_VISIBLE_HIDDEN);
			return;
		}
		ordinal++;
	}
	for (size_t i = 0; i < n && unknown; i++)
		if (gpu[i].ordinal == CUDA_VISIBLE_HIDDEN)
			gpu[i].ordinal = CUDA_VISIBLE_UNKNOWN;
}
