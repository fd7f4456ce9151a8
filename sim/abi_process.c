/* The NVML calls about the processes on a GPU. */
#include <math.h>
#include <string.h>

#include "abi.h"

#include "base/clock.h"

/* First pid of the extra processes that appear after a list was refused because the buffer was
 * too small. */
#define GROWN_PID 4100000u

struct list {
	char *out;
	size_t stride;     /* number of bytes that are written per entry */
	uint32_t capacity; /* number of entries for which the caller has memory */
	uint32_t n;        /* number of entries that exist */
};

static void add_entry(struct list *l, struct abi_process_detail entry)
{
	if (l->n < l->capacity)
		memcpy(l->out + l->n * l->stride, &entry, l->stride);
	l->n++;
}

static void add_process(const struct ctx *c, struct list *l, const struct process *p)
{
	struct abi_process_detail entry;

	memset(&entry, 0, sizeof(entry));
	entry.pid = p->pid;
	entry.memory = p->no_memory ? ABI_NO_U64 : process_bytes(p, c->now_ns);
	entry.memory = abi_u64(c, entry.memory);
	entry.gpu_instance = p->gpu_instance;
	entry.compute_instance = p->compute_instance;
	for (unsigned k = 0; k < p->copies; k++)
		add_entry(l, entry);
}

static void fill_list(const struct ctx *c, struct list *l, unsigned which)
{
	for (size_t i = 0; i < c->d->n_processes; i++) {
		const struct process *p = &c->d->processes[i];

		if (p->hidden || !(p->lists & which) || !process_alive(p, c->now_ns))
			continue;
		if (c->mig == NULL || c->mig->gpu_instance == p->gpu_instance)
			add_process(c, l, p);
	}
	for (unsigned k = 0; which == LIST_COMPUTE && k < c->d->lists.grown; k++)
		add_process(c, l,
			    &(struct process){ .pid = GROWN_PID + k,
					       .bytes = UINT64_C(14) << 20,
					       .copies = 1,
					       .gpu_instance = ABI_NO_U32,
					       .compute_instance = ABI_NO_U32 });
}

/* Fills the caller's buffer and sets *count to the number of entries that exist. If the buffer
 * is too small, returns insufficient size (7). In MIG mode, returns no permission (4) if an
 * unprivileged caller asks for the list of the whole board. */
static abi_return return_list(const struct ctx *c, struct list *l, unsigned which,
			      uint32_t *count)
{
	if (c->d->mig_enabled && c->mig == NULL && !c->w->privileged)
		return ABI_NO_PERMISSION;
	fill_list(c, l, which);
	*count = l->n;
	if (l->n <= l->capacity)
		return ABI_SUCCESS;
	c->d->lists.grown += c->d->lists.growth;
	return ABI_INSUFFICIENT_SIZE;
}

static abi_return list_processes(const struct ctx *c, uint32_t *count, void *out,
				 unsigned which, size_t stride)
{
	struct list l = { out, stride != 0 ? stride : c->w->stride, 0, 0 };

	if (count == NULL || (*count != 0 && out == NULL))
		return ABI_INVALID_ARGUMENT;
	l.capacity = *count;
	return return_list(c, &l, which, count);
}

#define LIST_CALL(symbol, which, stride)                               \
	DEVICE_CALL(symbol, (uint32_t * count, void *out), count, out) \
	{                                                              \
		return list_processes(c, count, out, which, stride);   \
	}
LIST_CALL(nvmlDeviceGetComputeRunningProcesses_v3, LIST_COMPUTE, 0)
LIST_CALL(nvmlDeviceGetComputeRunningProcesses_v2, LIST_COMPUTE, sizeof(struct abi_process_v2))
LIST_CALL(nvmlDeviceGetComputeRunningProcesses, LIST_COMPUTE, sizeof(struct abi_process_v1))
LIST_CALL(nvmlDeviceGetGraphicsRunningProcesses_v3, LIST_GRAPHICS, 0)
LIST_CALL(nvmlDeviceGetGraphicsRunningProcesses_v2, LIST_GRAPHICS,
	  sizeof(struct abi_process_v2))
LIST_CALL(nvmlDeviceGetGraphicsRunningProcesses, LIST_GRAPHICS, sizeof(struct abi_process_v1))
LIST_CALL(nvmlDeviceGetMPSComputeRunningProcesses_v3, LIST_MPS, 0)
LIST_CALL(nvmlDeviceGetMPSComputeRunningProcesses_v2, LIST_MPS, sizeof(struct abi_process_v2))
LIST_CALL(nvmlDeviceGetMPSComputeRunningProcesses, LIST_MPS, sizeof(struct abi_process_v1))

DEVICE_CALL(nvmlDeviceGetRunningProcessDetailList, (struct abi_process_detail_list * list),
	    list)
{
	static const unsigned which[] = { LIST_COMPUTE, LIST_GRAPHICS, LIST_MPS };
	struct list l = { NULL, sizeof(struct abi_process_detail), 0, 0 };

	if (list == NULL || (list->count != 0 && list->processes == NULL))
		return ABI_INVALID_ARGUMENT;
	if (list->version != ABI_TAG(struct abi_process_detail_list, 1))
		return ABI_ARGUMENT_VERSION_MISMATCH;
	if (c->d->p.chip.architecture < 9 || list->mode > 2)
		return list->mode > 2 ? ABI_INVALID_ARGUMENT : ABI_NOT_SUPPORTED;
	l.out = (char *)list->processes;
	l.capacity = list->count;
	return return_list(c, &l, which[list->mode], &list->count);
}

/* The driver stores a sample of the utilisation every sixth of a second. */
#define SAMPLE_NS UINT64_C(166666667)

struct use_list {
	struct abi_process_utilization *out;
	uint32_t capacity, n;
	uint64_t last_us;
};

/* Adds the utilisation of p in one sample. A sample in which p was idle is not reported. */
static void add_use(const struct ctx *c, struct use_list *l, const struct process *p,
		    uint64_t at_ns)
{
	uint64_t window_ns = c->w->utilization_history > 1 ? SAMPLE_NS : NS_PER_S;
	double load = history_mean_load(&c->d->history, at_ns, window_ns);
	uint32_t sm = (uint32_t)lround(fmin(100 * load * p->share, 100));
	struct abi_process_utilization use = { .pid = p->pid,
					       .timestamp_us = abi_us(c, at_ns),
					       .sm = sm,
					       .memory = sm / 2,
					       .encoder = (uint32_t)lround(100 * p->encoder),
					       .decoder = (uint32_t)lround(100 * p->decoder) };

	if (p->sm_percent != 0)
		use.sm = p->sm_percent;
	if (p->hidden || !process_alive(p, at_ns) || use.timestamp_us <= l->last_us ||
	    (use.sm == 0 && use.encoder == 0 && use.decoder == 0))
		return;
	for (unsigned i = 0; i < c->w->utilization_copies && l->n < l->capacity; i++)
		l->out[l->n++] = use;
}

/* Adds the stored samples of all processes, process by process, the newest sample last. */
static void add_uses(const struct ctx *c, struct use_list *l)
{
	uint64_t newest = c->now_ns / SAMPLE_NS, kept = c->w->utilization_history;
	uint64_t oldest = newest + 1 > kept ? newest + 1 - kept : 0;

	for (size_t i = 0; i < c->d->n_processes; i++)
		for (uint64_t k = oldest; k <= newest; k++)
			add_use(c, l, &c->d->processes[i], k * SAMPLE_NS);
}

DEVICE_CALL(nvmlDeviceGetProcessUtilization,
	    (struct abi_process_utilization * out, uint32_t *count, uint64_t last_us), out,
	    count, last_us)
{
	struct use_list l = { .out = out, .last_us = last_us };

	if (count == NULL)
		return ABI_INVALID_ARGUMENT;
	if (c->d->mig_enabled)
		return ABI_NOT_SUPPORTED;
	/* The driver requires space for its whole buffer, even if the buffer contains
	 * little. */
	if (out == NULL || *count < c->w->utilization_entries) {
		*count = c->w->utilization_entries;
		return ABI_INSUFFICIENT_SIZE;
	}
	if (c->w->utilization_ignores_since)
		l.last_us = 0;
	l.capacity = *count;
	add_uses(c, &l);
	*count = l.n;
	return l.n != 0 ? ABI_SUCCESS : ABI_NOT_FOUND;
}

/* Accounting mode: while it is on, the driver remembers every process that ran. */
SET_CALL(nvmlDeviceSetAccountingMode, (uint32_t mode), mode)
{
	if (mode > 1 || c->d->mig_enabled)
		return mode > 1 ? ABI_INVALID_ARGUMENT : ABI_NOT_SUPPORTED;
	c->d->set.accounting = mode != 0;
	c->d->set.accounting_ns = c->now_ns;
	return ABI_SUCCESS;
}

RESET_CALL(nvmlDeviceClearAccountingPids)
{
	c->d->set.accounting_ns = c->now_ns;
	return ABI_SUCCESS;
}

/* True if accounting mode has recorded p, because p ran after accounting was switched on. */
static bool process_accounted(const struct ctx *c, const struct process *p)
{
	return c->now_ns >= p->from_ns && !p->hidden &&
	       (p->until_ns == 0 || p->until_ns > c->d->set.accounting_ns);
}

DEVICE_CALL(nvmlDeviceGetAccountingPids, (uint32_t * count, uint32_t *pids), count, pids)
{
	abi_return code;
	uint32_t n = 0;

	if (count == NULL || (*count != 0 && pids == NULL))
		return ABI_INVALID_ARGUMENT;
	if (!c->d->set.accounting)
		return ABI_NOT_SUPPORTED;
	for (size_t i = 0; i < c->d->n_processes; i++) {
		if (!process_accounted(c, &c->d->processes[i]))
			continue;
		if (n < *count)
			pids[n] = c->d->processes[i].pid;
		n++;
	}
	code = n <= *count ? ABI_SUCCESS : ABI_INSUFFICIENT_SIZE;
	*count = n;
	return code;
}

static struct abi_accounting process_stats(const struct ctx *c, const struct process *p)
{
	bool alive = process_alive(p, c->now_ns);
	uint64_t end_ns = alive ? c->now_ns : p->until_ns;

	return (struct abi_accounting){
		.gpu_utilization = (uint32_t)lround(100 * p->share),
		.memory_utilization = (uint32_t)lround(50 * p->share),
		.max_memory = process_bytes(p, end_ns),
		.time_ms = alive ? 0 : (end_ns - p->from_ns) / 1000000,
		.start_us = abi_us(c, p->from_ns),
		.running = alive,
	};
}

DEVICE_CALL(nvmlDeviceGetAccountingStats, (uint32_t pid, struct abi_accounting *out), pid, out)
{
	if (out == NULL)
		return ABI_INVALID_ARGUMENT;
	if (!c->d->set.accounting)
		return ABI_NOT_SUPPORTED;
	for (size_t i = 0; i < c->d->n_processes; i++) {
		const struct process *p = &c->d->processes[i];

		if (p->pid != pid || !process_accounted(c, p))
			continue;
		*out = process_stats(c, p);
		return ABI_SUCCESS;
	}
	return ABI_NOT_FOUND;
}
