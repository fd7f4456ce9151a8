/* Kind "checkpoint": the driver checkpoints the worker's processes, without the worker's help.
 * If there is a companion, the companion calls the driver. A checkpoint that cannot succeed is
 * refused before anything is touched. */
#include "guard/worker/checkpoint.h"
#include "guard/worker/common.h"
#include "guard/worker/companion.h"

#include "device/proc.h"

#include "base/number.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Free host memory that a checkpoint needs, per byte of GPU memory. */
#define HOST_RATIO 1.1

enum host_pages host_memory_pages(const struct root *root)
{
	char text[128], mode[32];

	/* for example "always [madvise] never": the brackets mark the current mode */
	if (root_read(root, "sys/kernel/mm/transparent_hugepage/enabled", text, sizeof(text)) <
	    0)
		return HOST_PAGES_UNKNOWN;
	for (unsigned p = HOST_PAGES_ALWAYS; p < HOST_PAGES_MODES; p++) {
		root_path(mode, sizeof(mode), "[%s]", host_pages_name(p));
		if (strstr(text, mode))
			return p;
	}
	return HOST_PAGES_UNKNOWN;
}

enum host_pages host_memory_pages_now(void)
{
	enum host_pages pages = HOST_PAGES_UNKNOWN;
	struct root root;

	if (root_open(&root, NULL) != 0)
		return pages;
	pages = host_memory_pages(&root);
	root_close(&root);
	return pages;
}

double host_memory_need(uint64_t gpu_bytes)
{
	return (double)gpu_bytes * HOST_RATIO;
}

/* Returns the number after key in a file; UINT64_MAX if there is none. */
static uint64_t read_number(const struct root *root, const char *path, const char *key)
{
	char text[4096], *found;

	if (root_read(root, path, text, sizeof(text)) < 0)
		return UINT64_MAX;
	found = strstr(text, key);
	found = found ? found + strlen(key) : NULL;
	return found && strspn(found, " \t0123456789") > 0 && strpbrk(found, "0123456789")
		       ? strtoull(found, NULL, 10)
		       : UINT64_MAX;
}

static uint64_t cgroup_number(const struct root *root, const char *cgroup, const char *file,
			      const char *key)
{
	char path[320];

	return read_number(
		root, root_path(path, sizeof(path), "sys/fs/cgroup%s/%s", cgroup, file), key);
}

/* Returns the limit of one control group minus the memory that the group uses; UINT64_MAX: no
 * limit is known. File cache does not count as used, because the kernel drops it on demand. */
static uint64_t cgroup_free(const struct root *root, const char *cgroup)
{
	uint64_t max = cgroup_number(root, cgroup, "memory.max", "");
	uint64_t now = cgroup_number(root, cgroup, "memory.current", "");
	uint64_t files = cgroup_number(root, cgroup, "memory.stat", "\nfile ");

	if (max == UINT64_MAX || now == UINT64_MAX)
		return UINT64_MAX;
	if (files != UINT64_MAX)
		now -= files < now ? files : now;
	return max > now ? max - now : 0;
}

/* Returns the free memory of the process's control group, or of a parent group that has less;
 * UINT64_MAX: no limit is known. A checkpoint counts as memory of the process. */
static uint64_t process_memory_free(const struct root *root, int64_t pid)
{
	uint64_t least = UINT64_MAX;
	struct proc p;

	if (proc_read(root, pid, &p) < 0)
		return least;
	while (p.cgroup[0] == '/' && p.cgroup[1]) {
		uint64_t one = cgroup_free(root, p.cgroup);

		if (one < least)
			least = one;
		*strrchr(p.cgroup, '/') = '\0';
	}
	return least;
}

double host_memory_free(const struct root *root, const struct proc_id *id, unsigned n)
{
	uint64_t host_kib = read_number(root, "proc/meminfo", "MemAvailable:");
	double least = host_kib == UINT64_MAX ? (double)NAN : (double)host_kib * 1024;

	for (unsigned i = 0; i < n; i++) {
		uint64_t one = process_memory_free(root, id[i].pid);

		if (one != UINT64_MAX && (double)one < least)
			least = (double)one;
	}
	return least;
}

/* The host memory that running checkpoints need. Without this sum, two checkpoints on different
 * threads could both count on the same free memory. */
static struct {
	pthread_mutex_t lock;
	double bytes;
} promised = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void end_promise(const struct worker_call *c)
{
	pthread_mutex_lock(&promised.lock);
	promised.bytes -= host_memory_need(c->order->bytes);
	pthread_mutex_unlock(&promised.lock);
}

/* Reserves the host memory that the checkpoint needs. Refuses the checkpoint if this memory is
 * not free. The free memory is read under the lock, so that no checkpoint gives up its
 * reservation between this reading and the comparison. */
static int promise_memory(const struct worker_call *c, const struct proc_id *id, unsigned n)
{
	const double need = host_memory_need(c->order->bytes);
	double least, others;

	pthread_mutex_lock(&promised.lock);
	least = host_memory_free(c->root, id, n);
	others = promised.bytes;
	if (least >= need + others)
		promised.bytes += need;
	pthread_mutex_unlock(&promised.lock);
	if (isnan(least))
		return worker_fail(c, -GW_E_NOSUPPORT,
				   "the amount of free host memory cannot be read");
	if (least < need)
		return worker_fail(c, -GW_E_NOSUPPORT,
				   "a checkpoint needs %.1f GiB of host memory, and only %.1f "
				   "GiB are free",
				   need / GIB, least / GIB);
	if (least < need + others)
		return worker_fail(c, -GW_E_STATE,
				   "a checkpoint needs %.1f GiB of host memory; %.1f GiB are "
				   "free, but other checkpoints that run now need %.1f GiB",
				   need / GIB, least / GIB, others / GIB);
	return 0;
}

static int check_machine(const struct worker_call *c)
{
	const char *why = NULL;

	if (c->facts.persistence == 0)
		why = "persistence mode is off, and without it a checkpointed process dies: "
		      "turn it on with nvidia-smi -pm 1";
	else if (c->facts.persistence != 1)
		why = "persistence mode is unknown, and without it a checkpointed process dies";
	else if (c->facts.mps == 1)
		why = "a client of MPS cannot be checkpointed";
	else if (c->facts.mig == 1)
		why = "a process on a MIG instance cannot be checkpointed";
	else if (c->order->targets == 0)
		why = "none of its processes is on a GPU";
	else if (c->order->more)
		why = "it has more than 64 processes on the GPU, but the journal can record "
		      "only 64";
	else if (c->order->targets > 1 && c->worker->level < 2)
		why = "several of its processes are on the GPU, and checkpointing several is "
		      "unreliable; level = 2 allows it";
	return why ? worker_fail(c, -GW_E_NOSUPPORT, "refused: %s", why) : 0;
}

static int check_processes(const struct worker_call *c)
{
	for (unsigned i = 0; i < c->order->targets; i++)
		if (!worker_process_belongs(c, &c->order->target[i]))
			return worker_fail(c, -GW_E_STATE,
					   "process %" PRId64
					   " no longer belongs to the worker",
					   c->order->target[i].id.pid);
	return 0;
}

static unsigned order_targets(const struct worker_call *c, struct proc_id *id)
{
	for (unsigned i = 0; i < c->order->targets; i++)
		id[i] = c->order->target[i].id;
	return c->order->targets;
}

static int checkpoint_evict(struct worker_call *c)
{
	struct proc_id id[GUARD_TARGETS];
	unsigned n = order_targets(c, id);
	int rc = check_machine(c);

	rc = rc ? rc : check_processes(c);
	if (!rc && !c->companion)
		rc = checkpoint_usable(c->message, c->message_size);
	rc = rc ? rc : promise_memory(c, id, n);
	if (rc)
		return rc;
	for (unsigned i = 0; i < n; i++)
		worker_note_process(c, id[i]);
	if (c->companion)
		rc = companion_checkpoint(c->companion, id, n, c->deadline_ns, c->message,
					  c->message_size);
	else
		rc = checkpoint_create(c->root, id, n, c->deadline_ns, c->message,
				       c->message_size);
	end_promise(c);
	return rc ? rc : worker_ok(c, "%u processes checkpointed", n);
}

/* Restores the worker's processes. The driver does not list a checkpointed process, so the
 * processes come from the order and from the notes. */
static int checkpoint_resume(struct worker_call *c)
{
	struct proc_id id[GUARD_TARGETS];
	unsigned n = order_targets(c, id);

	n += worker_noted_processes(c, id + n, GUARD_TARGETS - n);
	if (c->companion)
		return companion_restore(c->companion, id, n, c->deadline_ns, c->message,
					 c->message_size);
	return checkpoint_restore(c->root, id, n, c->message, c->message_size);
}

const struct worker_ops worker_checkpoint = { .evict = checkpoint_evict,
					      .resume = checkpoint_resume };
