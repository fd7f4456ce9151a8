/* nvml_process: the driver's process lists in any of their layouts, and utilisation per
 * process.
 *
 * Under the same symbol, different drivers use entries of 16, 24 or 32 bytes (seen with 535.43
 * to 535.98, and with 550.127 in a container). So we measure the length of an entry: we fill
 * the array with a pattern before the call, and the bytes that the driver overwrote show the
 * length. */
#include "nvml.h"

#include "base/array.h"

#include <stdlib.h>
#include <string.h>

#define PATTERN       0xA5
#define STRIDE_MAX    32
#define FIRST_CAP     64
#define PROCESSES_MAX 65536 /* larger than the number of processes on any GPU */
#define TRIES         5

static const struct {
	unsigned type;
	enum nvml_call newest_first[3];
} lists[] = {
	{ GW_PROCESS_COMPUTE, { CALL_compute_v3, CALL_compute_v2, CALL_compute_v1 } },
	{ GW_PROCESS_GRAPHICS, { CALL_graphics_v3, CALL_graphics_v2, CALL_graphics_v1 } },
	{ GW_PROCESS_MPS, { CALL_mps_v3, CALL_mps_v2, CALL_mps_v1 } },
};

typedef abi_return fn_list(abi_device, uint32_t *, void *);

/* Returns the bytes per entry: the shortest known layout that covers what the driver wrote. */
static unsigned stride_of(const unsigned char *p, unsigned n)
{
	static const unsigned known[] = { 16, 24, STRIDE_MAX };
	size_t end = (size_t)n * STRIDE_MAX;

	while (end > 0 && p[end - 1] == PATTERN)
		end--;
	for (size_t i = 0; i < COUNT(known); i++)
		if (end <= (size_t)n * known[i])
			return known[i];
	return STRIDE_MAX;
}

static int grow_scratch(struct nvml_device *nd, unsigned cap)
{
	return array_reserve(&nd->processes, &nd->processes_cap, cap, STRIDE_MAX);
}

/* Reads a list. Retries with more memory, because the list may grow between two calls. */
static abi_return query_list(struct device *d, enum nvml_call call, uint32_t *ret_n,
			     int *ret_error)
{
	struct nvml_device *nd = nvml_device_of(d);
	unsigned cap = nd->processes_cap ? nd->processes_cap : FIRST_CAP;
	abi_return code = ABI_INSUFFICIENT_SIZE;

	for (unsigned i = 0; i < TRIES && code == ABI_INSUFFICIENT_SIZE; i++) {
		uint32_t n;

		if (grow_scratch(nd, cap) != 0) {
			*ret_error = -GW_E_NOMEM;
			return ABI_MEMORY;
		}
		memset(nd->processes, PATTERN, (size_t)nd->processes_cap * STRIDE_MAX);
		n = nd->processes_cap;
		code = NVML_ANY(fn_list, d, call, &n, nd->processes);
		*ret_n = n <= nd->processes_cap ? n : nd->processes_cap;
		/* The buffer already has its maximum size. */
		if (nd->processes_cap >= PROCESSES_MAX)
			break;
		cap = n < PROCESSES_MAX / 2 ? 2 * n + 5 : PROCESSES_MAX;
		if (cap <= nd->processes_cap)
			cap = 2 * nd->processes_cap;
		if (cap > PROCESSES_MAX)
			cap = PROCESSES_MAX;
	}
	return code;
}

static void decode_entry(const unsigned char *p, unsigned stride, struct usage *u, double total)
{
	struct abi_process_v2 e;

	memset(&e, 0xFF, sizeof(e));
	memcpy(&e, p, stride < sizeof(e) ? stride : sizeof(e));
	u->pid = e.pid;
	u->gpu_instance = e.gpu_instance == ABI_NO_U32 ? -1 : (int)(e.gpu_instance & 0xFFFF);
	u->memory_bytes = e.memory;
	if (e.memory == ABI_NO_U64) /* WSL, Windows and some vGPUs do not report the memory */
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
	abi_return code = query_list(d, call, &n, ret_error);
	unsigned stride;

	if (code == ABI_NOT_FOUND || code == ABI_NO_DATA) /* The list is empty. */
		return ABI_SUCCESS;
	if (code != ABI_SUCCESS)
		return code;
	stride = stride_of(nd->processes, n);
	for (uint32_t i = 0; i < n && *ret_error == 0; i++) {
		struct usage u = { .type = type };

		decode_entry(nd->processes + (size_t)i * stride, stride, &u, total);
		if (d->backend->simulated && nvml_of(d)->call.process_name)
			NVML(d, process_name, (uint32_t)u.pid, u.name, sizeof(u.name));
		if (u.pid != 0)
			*ret_error = usage_add(l, &u);
	}
	return code;
}

static enum nvml_call newest_call(const struct nvml *n, const enum nvml_call *calls)
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
	l->partial = GW_HAVE;
	if (!d->priv || !nvml_device_of(d)->handle)
		return device_absence(d->r.state, d->r.cause);
	for (size_t i = 0; i < COUNT(lists); i++) {
		enum nvml_call call = newest_call(nvml_of(d), lists[i].newest_first);
		abi_return code;

		if (call == CALL_COUNT)
			continue;
		code = add_list(d, lists[i].type, call, l, ret_error);
		if (*ret_error)
			return GW_ABSENT_ERROR;
		if (nvml_react(d, code))
			return nvml_meaning(code)->absence;
		/* If one of the lists fails temporarily, report no list at all: otherwise its
		 * processes would seem to have ended. */
		if (code != ABI_SUCCESS && nvml_meaning(code)->reaction != REACT_FORGET)
			return nvml_meaning(code)->absence;
		if (lists[i].type == GW_PROCESS_COMPUTE)
			l->partial = nvml_meaning(code)->absence;
		/* One available list is enough. If all lists are refused, the reason of the
		 * compute list is returned. */
		if (code == ABI_SUCCESS || why == GW_ABSENT_NO_SYMBOL)
			why = why == GW_HAVE ? GW_HAVE : nvml_meaning(code)->absence;
	}
	return why;
}

/* Number of entries in our buffer for the first call. The driver accepts only a buffer that has
 * space for all entries that the driver can store (72 on an H200). A call without a buffer does
 * not return this number: the driver then always answers 100. So the first call already passes
 * a buffer. If that buffer is too small, the second call uses the number that the driver has
 * returned. */
#define USE_FIRST_CAP 128
#define USE_MAX       4096

_Static_assert(sizeof(struct abi_process_utilization) <= STRIDE_MAX,
	       "both use the scratch memory");

static abi_return query_use(struct device *d, uint64_t since_us, uint32_t *ret_n,
			    int *ret_error)
{
	struct nvml_device *nd = nvml_device_of(d);
	unsigned cap = USE_FIRST_CAP;
	abi_return code = ABI_INSUFFICIENT_SIZE;

	for (unsigned i = 0; i < TRIES && code == ABI_INSUFFICIENT_SIZE; i++) {
		*ret_error = cap <= USE_MAX ? grow_scratch(nd, cap) : -GW_E_NOMEM;
		if (*ret_error)
			return ABI_MEMORY;
		*ret_n = nd->processes_cap;
		code = NVML(d, process_utilization, nd->handle, (void *)nd->processes, ret_n,
			    since_us);
		if (code == ABI_INSUFFICIENT_SIZE)
			cap = *ret_n > nd->processes_cap ? *ret_n : 2 * nd->processes_cap;
	}
	if (code == ABI_INSUFFICIENT_SIZE)
		*ret_error = -GW_E_NOMEM;
	if (*ret_n > nd->processes_cap)
		*ret_n = nd->processes_cap;
	return code;
}

/* True if a sample of utilisation can be used. The driver also returns old samples and invented
 * ones (values far over 100). */
static bool is_use(const struct abi_process_utilization *u, uint64_t since_us)
{
	return u->pid != 0 && u->timestamp_us > since_us && u->sm <= 100 && u->memory <= 100;
}

/* Averages the samples of the process in row i; a sample that the driver repeats is used once.
 * Returns false if an earlier row belongs to the same process. */
static bool mean_use(const struct abi_process_utilization *u, uint32_t i, uint32_t n,
		     uint64_t since_us, struct process_use *ret)
{
	double sm = 0;
	unsigned count = 0;

	for (uint32_t k = 0; k < i; k++)
		if (u[k].pid == u[i].pid && is_use(&u[k], since_us))
			return false;
	*ret = (struct process_use){ .pid = u[i].pid };
	for (uint32_t k = i; k < n; k++) {
		bool repeated = false;

		if (u[k].pid != u[i].pid || !is_use(&u[k], since_us))
			continue;
		for (uint32_t j = i; j < k && !repeated; j++)
			repeated = u[j].pid == u[k].pid && is_use(&u[j], since_us) &&
				   u[j].timestamp_us == u[k].timestamp_us;
		if (repeated)
			continue;
		sm += u[k].sm;
		count++;
		if (u[k].timestamp_us > ret->wall_us)
			ret->wall_us = u[k].timestamp_us;
	}
	ret->sm_ratio = sm / (100.0 * count);
	return true;
}

int nvml_process_use(struct device *d, uint64_t since_us, struct process_use *out, unsigned cap)
{
	struct nvml_device *nd = nvml_device_of(d);
	const struct abi_process_utilization *u;
	abi_return code;
	uint32_t n = 0;
	unsigned used = 0;
	int error = 0;

	if (!nd || !nd->handle)
		return -GW_E_LOST;
	if (!nvml_of(d)->call.process_utilization)
		return -GW_E_NOSUPPORT;
	code = query_use(d, since_us, &n, &error);
	if (error)
		return error;
	if (code == ABI_NOT_FOUND || code == ABI_NO_DATA) /* No process was active. */
		return 0;
	if (nvml_react(d, code))
		return -GW_E_LOST;
	if (code != ABI_SUCCESS)
		return code == ABI_NO_PERMISSION ? -GW_E_PERM : -GW_E_NOSUPPORT;
	u = (const void *)nd->processes;
	for (uint32_t i = 0; i < n && used < cap; i++)
		if (is_use(&u[i], since_us) && mean_use(u, i, n, since_us, &out[used]))
			used++;
	return (int)used;
}
