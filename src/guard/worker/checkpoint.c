#include "guard/worker/checkpoint.h"

#include "guard/worker/common.h"
#include "guard/worker/kinds.h"

#include "base/clock.h"

#include "device/proc.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TARGETS 64

/* Host memory that must be free, for each byte that is put away. */
#define HOST_SHARE 1.1

/* Answers of the driver that say what can be done about them. */
enum {
	CUDA_OK = 0,
	CUDA_OPERATING_SYSTEM = 304, /* not permitted, or no such process */
	CUDA_NOT_SUPPORTED = 801,    /* managed memory, shared memory      */
	CUDA_TIMEOUT = 909
};

/* What a process is; newer drivers have more, which are not touched. */
enum { RUNNING = 0, LOCKED = 1, PUT_AWAY = 2, FAILED = 3 };

struct lock_args {
	uint32_t timeout_ms; /* 0: none */
	uint32_t zero;
	uint64_t zeros[7];
};

/* clang-format off */
#define CHECKPOINT_CALLS(C)                                                          \
	C(get_state, "cuCheckpointProcessGetState", (int pid, int *state))           \
	C(lock, "cuCheckpointProcessLock", (int pid, struct lock_args *args))        \
	C(put_away, "cuCheckpointProcessCheckpoint", (int pid, void *args))          \
	C(restore, "cuCheckpointProcessRestore", (int pid, void *args))              \
	C(unlock, "cuCheckpointProcessUnlock", (int pid, void *args))
/* clang-format on */

struct cuda_library {
#define POINTER(name, symbol, args) int(*name) args;
	CHECKPOINT_CALLS(POINTER)
#undef POINTER
	char why[160];
};

static struct cuda_library cuda; /* one for the process, never let go */
static pthread_once_t cuda_once = PTHREAD_ONCE_INIT;

static void load_cuda(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	void *p;

	if (!library) {
		snprintf(cuda.why, sizeof(cuda.why),
			 "a checkpoint needs the driver's libcuda.so.1, which is not here");
		return;
	}
#define LOOK_UP(name, symbol, args)                  \
	p = dlsym(library, symbol);                  \
	memcpy(&cuda.name, &p, sizeof(p));           \
	if (!p)                                      \
		snprintf(cuda.why, sizeof(cuda.why), \
			 "this driver has no %s; it came with 570", symbol);
	CHECKPOINT_CALLS(LOOK_UP)
#undef LOOK_UP
}

static int have_cuda(char *message, size_t size)
{
	pthread_once(&cuda_once, load_cuda);
	if (!cuda.why[0])
		return 0;
	snprintf(message, size, "%s", cuda.why);
	return -GW_E_NOSUPPORT;
}

static int call_failed(const char *what, int64_t pid, int code, char *message, size_t size)
{
	const char *why = code == CUDA_OPERATING_SYSTEM ? " (it needs root)"
			  : code == CUDA_NOT_SUPPORTED ? " (managed or shared memory cannot be "
							 "put away)"
			  : code == CUDA_TIMEOUT       ? " (its work did not end in time)"
						       : "";

	snprintf(message, size, "process %" PRId64 " cannot be %s: CUDA error %d%s", pid, what,
		 code, why);
	switch (code) {
	case CUDA_OPERATING_SYSTEM: return -GW_E_PERM;
	case CUDA_NOT_SUPPORTED: return -GW_E_NOSUPPORT;
	case CUDA_TIMEOUT: return -GW_E_TIMEOUT;
	default: return -GW_E_IO;
	}
}

static bool is_same(const struct root *root, const struct checkpoint_target *t)
{
	uint64_t ticks;

	return t->pid > 1 && t->start_ticks != 0 &&
	       proc_start_ticks(root, t->pid, &ticks) == 0 && ticks == t->start_ticks;
}

/* ---- back */

static int bring_back(const struct root *root, const struct checkpoint_target *t, char *message,
		      size_t size)
{
	int state = RUNNING, pid = (int)t->pid, code;

	if (!is_same(root, t))
		return 0;
	code = cuda.get_state(pid, &state);
	if (code)
		return call_failed("asked for its state", pid, code, message, size);
	if (state != LOCKED && state != PUT_AWAY)
		return 0;
	code = state == PUT_AWAY ? cuda.restore(pid, NULL) : CUDA_OK;
	if (code)
		return call_failed("brought back", pid, code, message, size);
	code = cuda.unlock(pid, NULL);
	return code ? call_failed("unlocked", pid, code, message, size) : 0;
}

int checkpoint_restore(const struct root *root, const struct checkpoint_target *t, unsigned n,
		       char *message, size_t size)
{
	int first = have_cuda(message, size), rc;
	char why[200];

	for (unsigned i = 0; i < n && !cuda.why[0]; i++) {
		rc = bring_back(root, &t[i], why, sizeof(why));
		if (rc && !first) {
			snprintf(message, size, "%s", why);
			first = rc;
		}
	}
	return first;
}

/* ---- refusals: before anything is touched */

static uint64_t number_in(const struct root *root, const char *path, const char *key)
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

/* What one control group may still take: its limit, less what it has, but for files that the kernel keeps
 * only as long as nobody wants the room. */
static uint64_t one_group_free(const struct root *root, const char *group)
{
	char path[320];
	uint64_t max, now, files;

	max = number_in(root,
			root_path(path, sizeof(path), "sys/fs/cgroup%s/memory.max", group), "");
	now = number_in(root,
			root_path(path, sizeof(path), "sys/fs/cgroup%s/memory.current", group),
			"");
	files = number_in(root,
			  root_path(path, sizeof(path), "sys/fs/cgroup%s/memory.stat", group),
			  "\nfile ");
	if (max == UINT64_MAX || now == UINT64_MAX)
		return UINT64_MAX;
	if (files != UINT64_MAX)
		now -= files < now ? files : now;
	return max > now ? max - now : 0;
}

/* The least of its group and those above it: what is put away counts as memory of the process. */
static uint64_t group_free(const struct root *root, int64_t pid)
{
	uint64_t least = UINT64_MAX;
	struct proc who;

	if (proc_read(root, pid, &who) < 0)
		return least;
	while (who.cgroup[0] == '/' && who.cgroup[1]) {
		uint64_t one = one_group_free(root, who.cgroup);

		if (one < least)
			least = one;
		*strrchr(who.cgroup, '/') = '\0';
	}
	return least;
}

static int check_memory(const struct worker_call *c, const struct checkpoint_target *t,
			unsigned n, char *message, size_t size)
{
	uint64_t host_kib = number_in(c->root, "proc/meminfo", "MemAvailable:");
	double least = host_kib == UINT64_MAX ? -1 : (double)host_kib * 1024;
	double need = (double)c->order->bytes * HOST_SHARE;

	for (unsigned i = 0; i < n; i++) {
		uint64_t group = group_free(c->root, t[i].pid);

		if (group != UINT64_MAX && (double)group < least)
			least = (double)group;
	}
	if (least >= need)
		return 0;
	if (least < 0)
		snprintf(message, size, "how much host memory is free cannot be read");
	else
		snprintf(message, size,
			 "%.1f GiB of host memory are needed to put it away, %.1f are free",
			 need / (double)(1u << 30), least / (double)(1u << 30));
	return -GW_E_NOSUPPORT;
}

static int check_machine(const struct worker_call *c, unsigned n, char *message, size_t size)
{
	const char *why = NULL;

	if (c->facts.persistence != 1)
		why = c->facts.persistence == 0 ? "persistence mode is off, and a process that "
						  "is put away without it "
						  "dies: nvidia-smi -pm 1"
						: "whether persistence mode is on is not "
						  "known, and a process that is "
						  "put away without it dies";
	else if (c->facts.mps == 1)
		why = "a client of MPS cannot be put away";
	else if (c->facts.mig == 1)
		why = "a process on a MIG instance cannot be put away";
	else if (n == 0)
		why = "none of its processes is on a GPU";
	else if (n > 1 && c->worker->level < 2)
		why = "several of its processes are on the GPU, and putting away several is "
		      "unreliable; level = 2 does it all the same";
	if (!why)
		return 0;
	snprintf(message, size, "refused: %s", why);
	return -GW_E_NOSUPPORT;
}

/* ---- out */

static unsigned long_until(uint64_t deadline_ns)
{
	uint64_t now = clock_mono_ns(clock_real());
	uint64_t ms = deadline_ns > now ? (deadline_ns - now) / NS_PER_MS : 0;

	return ms == 0 ? 1 : ms > 3600000 ? 3600000 : (unsigned)ms; /* 0 would be without end */
}

/* 0: it is locked by us now; 1: it is put away already; else an error. */
static int lock_one(const struct worker_call *c, const struct checkpoint_target *t,
		    char *message, size_t size)
{
	struct lock_args args = { .timeout_ms = long_until(c->deadline_ns) };
	int state = RUNNING, pid = (int)t->pid, code;

	if (!is_same(c->root, t)) {
		snprintf(message, size, "process %d has ended", pid);
		return -GW_E_STATE;
	}
	code = cuda.get_state(pid, &state);
	if (code)
		return call_failed("asked for its state", pid, code, message, size);
	if (state == PUT_AWAY)
		return 1;
	if (state != RUNNING) {
		snprintf(message, size, "process %d is in state %d%s: it is left alone", pid,
			 state,
			 state == LOCKED   ? " (locked by somebody)"
			 : state == FAILED ? " (failed)"
					   : "");
		return -GW_E_STATE;
	}
	code = cuda.lock(pid, &args);
	return code ? call_failed("locked", pid, code, message, size) : 0;
}

/* All are locked before the first is put away: one that runs on may wait for one that does not.
 * Never cut short by the deadline once it has begun. */
static int put_away(const struct worker_call *c, const struct checkpoint_target *t, unsigned n,
		    char *message, size_t size)
{
	bool there[TARGETS] = { false };
	unsigned touched = 0;
	char unused[200];
	int rc = 0, code;

	for (; touched < n && rc >= 0; touched++) {
		rc = lock_one(c, &t[touched], message, size);
		there[touched] = rc == 1;
		if (rc < 0)
			break;
	}
	for (unsigned i = 0; i < n && rc >= 0; i++) {
		if (there[i])
			continue;
		code = cuda.put_away((int)t[i].pid, NULL);
		if (code)
			rc = call_failed("put away", t[i].pid, code, message, size);
	}
	if (rc >= 0)
		return 0;
	for (unsigned i = 0; i < touched; i++)
		if (!there[i])
			bring_back(c->root, &t[i], unused, sizeof(unused));
	return rc;
}

static unsigned targets_of(const struct worker_call *c, struct checkpoint_target *t)
{
	unsigned n = c->order->targets < TARGETS ? c->order->targets : TARGETS;

	for (unsigned i = 0; i < n; i++)
		t[i] = (struct checkpoint_target){ c->order->target[i].pid,
						   c->order->target[i].start_ticks };
	return n;
}

static int evict(struct worker_call *c, char *message, size_t size)
{
	struct checkpoint_target t[TARGETS];
	unsigned n = targets_of(c, t);
	char who[64];
	int rc = check_machine(c, n, message, size);

	rc = rc ? rc : check_memory(c, t, n, message, size);
	rc = rc ? rc : have_cuda(message, size);
	if (rc)
		return rc;
	for (unsigned i = 0; i < n; i++) {
		snprintf(who, sizeof(who), "%" PRId64 " %" PRIu64, t[i].pid, t[i].start_ticks);
		worker_note(c, "process", who);
	}
	rc = put_away(c, t, n, message, size);
	if (!rc)
		snprintf(message, size, "%u processes put away", n);
	return rc;
}

/* A process that is put away is in no list of the driver's: the order names it, or the notes do. */
static int resume(struct worker_call *c, char *message, size_t size)
{
	struct checkpoint_target t[TARGETS];
	unsigned n = targets_of(c, t);
	char who[64];

	for (unsigned i = 0; n < TARGETS && worker_noted(c, "process", i, who, sizeof(who));
	     i++)
		if (sscanf(who, "%" SCNd64 " %" SCNu64, &t[n].pid, &t[n].start_ticks) == 2)
			n++;
	return checkpoint_restore(c->root, t, n, message, size);
}

const struct worker_ops worker_checkpoint = { .levels = 1u << 3,
					      .evict = evict,
					      .resume = resume };
