/* nvml_process: the driver's process lists, in whichever layout it writes them.
 *
 * Entries have been 16, 24 and 32 bytes long under one and the same symbol (drivers 535.43 to
 * 535.98, and a container's 550.127), so the length is looked at, not believed: the array is
 * filled with a pattern first, and how far the driver wrote over it tells. */
#include "nvml.h"

#include <stdlib.h>
#include <string.h>

#define PATTERN    0xA5
#define STRIDE_MAX 32
#define FIRST_CAP  64
#define TRIES      5

static const struct {
	unsigned type;
	enum nvml_call newest_first[3];
} lists[] = {
	{ GW_PROCESS_COMPUTE, { CALL_compute_v3, CALL_compute_v2, CALL_compute_v1 } },
	{ GW_PROCESS_GRAPHICS, { CALL_graphics_v3, CALL_graphics_v2, CALL_graphics_v1 } },
	{ GW_PROCESS_MPS, { CALL_mps_v3, CALL_mps_v2, CALL_mps_v1 } },
};

typedef abi_return fn_list(abi_device, uint32_t *, void *);

/* Bytes of an entry: the shortest known layout that reaches as far as the driver wrote. */
static unsigned stride_of(const unsigned char *p, unsigned n)
{
	static const unsigned known[] = { 16, 24, STRIDE_MAX };
	size_t end = (size_t)n * STRIDE_MAX;

	while (end > 0 && p[end - 1] == PATTERN)
		end--;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (end <= (size_t)n * known[i])
			return known[i];
	return STRIDE_MAX;
}

static int grow(struct nvml_device *nd, unsigned cap)
{
	unsigned char *p;

	if (cap <= nd->processes_cap)
		return 0;
	p = realloc(nd->processes, (size_t)cap * STRIDE_MAX);
	if (!p)
		return -GW_E_NOMEM;
	nd->processes = p;
	nd->processes_cap = cap;
	return 0;
}

/* Asks with more and more room.  The list may grow between two calls, so a few tries. */
static abi_return ask(struct device *d, enum nvml_call call, uint32_t *ret_n, int *ret_error)
{
	struct nvml_device *nd = nvml_device_of(d);
	unsigned cap = nd->processes_cap ? nd->processes_cap : FIRST_CAP;
	abi_return code = ABI_INSUFFICIENT_SIZE;

	for (unsigned i = 0; i < TRIES && code == ABI_INSUFFICIENT_SIZE; i++) {
		uint32_t n;

		if (grow(nd, cap) != 0) {
			*ret_error = -GW_E_NOMEM;
			return ABI_MEMORY;
		}
		memset(nd->processes, PATTERN, (size_t)nd->processes_cap * STRIDE_MAX);
		n = nd->processes_cap;
		atomic_store_explicit(d->call, nvml_symbol[call], memory_order_relaxed);
		code = nvml_called(d->call, ((fn_list *)nvml_of(d)->any[call])(nd->handle, &n,
									       nd->processes));
		*ret_n = n <= nd->processes_cap ? n : nd->processes_cap;
		if (code == ABI_INSUFFICIENT_SIZE)
			cap = n < 100000 ? 2 * n + 5 : 200005;
		if (cap <= nd->processes_cap)
			cap = 2 * nd->processes_cap;
	}
	return code;
}

static void decode(const unsigned char *p, unsigned stride, struct usage *u, double total)
{
	struct abi_process_v2 e;

	memset(&e, 0xFF, sizeof(e));
	memcpy(&e, p, stride < sizeof(e) ? stride : sizeof(e));
	u->pid = e.pid;
	u->gpu_instance = e.gpu_instance == ABI_NO_U32 ? -1 : (int)(e.gpu_instance & 0xFFFF);
	u->memory_bytes = e.memory;
	if (e.memory == ABI_NO_U64) /* WSL, Windows, some vGPU */
		u->memory_why = GW_ABSENT_NOT_SUPPORTED;
	else if (total > 0 && (double)e.memory > total)
		u->memory_why = GW_ABSENT_INVALID;
	else
		u->memory_why = GW_HAVE;
}

static abi_return add_list(struct device *d, unsigned type, enum nvml_call call,
			   struct usage_list *l, int *ret_error)
{
	struct nvml_device *nd = nvml_device_of(d);
	double total = report_has(&d->r, GW_Q_MEMORY_TOTAL) ? d->r.v[GW_Q_MEMORY_TOTAL] : 0;
	uint32_t n = 0;
	abi_return code = ask(d, call, &n, ret_error);
	unsigned stride;

	if (code == ABI_NOT_FOUND || code == ABI_NO_DATA) /* nobody */
		return ABI_SUCCESS;
	if (code != ABI_SUCCESS)
		return code;
	stride = stride_of(nd->processes, n);
	for (uint32_t i = 0; i < n && *ret_error == 0; i++) {
		struct usage u = { .type = type };

		decode(nd->processes + (size_t)i * stride, stride, &u, total);
		if (d->backend->simulated && nvml_of(d)->call.process_name)
			NVML(d, process_name, (uint32_t)u.pid, u.name, sizeof(u.name));
		if (u.pid != 0)
			*ret_error = usage_add(l, &u);
	}
	return code;
}

static enum nvml_call newest(const struct nvml *n, const enum nvml_call *calls)
{
	for (unsigned i = 0; i < 3; i++)
		if (n->any[calls[i]])
			return calls[i];
	return CALL_COUNT;
}

enum gw_absence nvml_processes(struct device *d, struct usage_list *l, int *ret_error)
{
	enum gw_absence why = GW_ABSENT_NO_SYMBOL;

	*ret_error = 0;
	if (!d->priv || !nvml_device_of(d)->handle)
		return device_silence(d->r.state, d->r.cause);
	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		enum nvml_call call = newest(nvml_of(d), lists[i].newest_first);
		abi_return code;

		if (call == CALL_COUNT)
			continue;
		code = add_list(d, lists[i].type, call, l, ret_error);
		if (*ret_error)
			return GW_ABSENT_ERROR;
		if (nvml_react(d, code))
			return nvml_meaning(code)->absence;
		/* One list that can be had is enough; of several refusals the compute list's counts. */
		if (code == ABI_SUCCESS || why == GW_ABSENT_NO_SYMBOL)
			why = why == GW_HAVE ? GW_HAVE : nvml_meaning(code)->absence;
	}
	return why;
}
