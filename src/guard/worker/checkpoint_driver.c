/* Checkpoints and restores CUDA processes through libcuda, which is loaded at the first use. */
#include "guard/worker/checkpoint.h"

#include "base/clock.h"
#include "base/mailbox.h"

#include "device/proc.h"

#include <gpuward.h>

#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define PROCESSES 64
#define THREADS   8 /* maximum number of processes that are moved at the same time */

/* Error codes that need their own advice. */
enum {
	CUDA_OK = 0,
	CUDA_OPERATING_SYSTEM =
		304, /* this user lacks the permission, or there is no such process */
	CUDA_NOT_SUPPORTED = 801, /* the process uses managed or shared memory */
	CUDA_TIMEOUT = 909
};

/* States of a process. Newer drivers have more states; lock_one() refuses a process in such a
 * state. */
enum { RUNNING = 0, LOCKED = 1, CHECKPOINTED = 2, FAILED = 3 };

struct lock_args {
	uint32_t timeout_ms; /* 0: no limit */
	uint32_t zero;
	uint64_t zeros[7];
};

/* clang-format off */
#define CHECKPOINT_CALLS(C)                                                          \
	C(get_state, "cuCheckpointProcessGetState", (int pid, int *state))           \
	C(lock, "cuCheckpointProcessLock", (int pid, struct lock_args *args))        \
	C(checkpoint, "cuCheckpointProcessCheckpoint", (int pid, void *args))          \
	C(restore, "cuCheckpointProcessRestore", (int pid, void *args))              \
	C(unlock, "cuCheckpointProcessUnlock", (int pid, void *args))
/* clang-format on */

struct cuda_library {
#define POINTER(name, symbol, args) int(*name) args;
	CHECKPOINT_CALLS(POINTER)
#undef POINTER
	char why[160];
};

static struct cuda_library cuda; /* loaded once, never unloaded */
static pthread_once_t cuda_once = PTHREAD_ONCE_INIT;

static void load_cuda(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	void *p;

	if (!library) {
		snprintf(cuda.why, sizeof(cuda.why),
			 "a checkpoint needs libcuda.so.1 of the driver, which is not "
			 "installed");
		return;
	}
#define LOOK_UP(name, symbol, args)                  \
	p = dlsym(library, symbol);                  \
	memcpy(&cuda.name, &p, sizeof(p));           \
	if (!p)                                      \
		snprintf(cuda.why, sizeof(cuda.why), \
			 "this driver has no %s; update the driver to 570 or later", symbol);
	CHECKPOINT_CALLS(LOOK_UP)
#undef LOOK_UP
}

int checkpoint_usable(char *message, size_t size)
{
	pthread_once(&cuda_once, load_cuda);
	if (!cuda.why[0])
		return 0;
	snprintf(message, size, "%s", cuda.why);
	return -GW_E_NOSUPPORT;
}

static int call_failed(const char *what, int64_t pid, int code, char *message, size_t size)
{
	const char *why = code == CUDA_OPERATING_SYSTEM ? " (it needs root, or guard.companion)"
			  : code == CUDA_NOT_SUPPORTED ? " (managed or shared memory cannot be "
							 "checkpointed)"
			  : code == CUDA_TIMEOUT       ? " (its work did not finish in time)"
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

static bool is_same_process(const struct root *root, const struct proc_id *id)
{
	uint64_t ticks;

	return id->pid > 1 && id->start_ticks != 0 &&
	       proc_start_ticks(root, id->pid, &ticks) == 0 && ticks == id->start_ticks;
}

/* To copy the memory of a process, the driver uses only one thread, which runs in that process.
 * Therefore the processes of one request are moved at the same time, each by a call on its own
 * thread. */
struct checkpoint_batch {
	const struct root *root;
	const struct proc_id *id;
	unsigned n;
	const bool *skip;  /* true for a process to skip; NULL: skip none */
	bool stop_at_fail; /* after a failure, begin no further call */
	int (*call)(const struct root *root, const struct proc_id *id, char *message,
		    size_t size);
	atomic_uint next;   /* position of the next process to handle */
	atomic_bool failed; /* a call failed */
	int rc[PROCESSES];  /* result per process, with its sentence in why[] */
	char why[PROCESSES][200];
};

static void *batch_run(void *arg)
{
	struct checkpoint_batch *b = arg;
	unsigned i;

	while ((i = atomic_fetch_add(&b->next, 1)) < b->n) {
		if (b->skip[i] || (b->stop_at_fail && atomic_load(&b->failed)))
			continue;
		b->rc[i] = b->call(b->root, &b->id[i], b->why[i], sizeof(b->why[i]));
		if (b->rc[i])
			atomic_store(&b->failed, true);
	}
	return NULL;
}

/* Calls b->call for each process. The calling thread makes calls too, so the work is done even
 * if no other thread can be started. Returns 0, or the failure of the first process in the list
 * that failed, with its sentence. */
static int batch_all(struct checkpoint_batch *b, char *message, size_t size)
{
	pthread_t helper[THREADS - 1];
	unsigned helpers = 0;

	while (helpers + 1 < b->n && helpers < THREADS - 1 &&
	       thread_start(&helper[helpers], 0, batch_run, b) == 0)
		helpers++;
	batch_run(b);
	while (helpers > 0)
		pthread_join(helper[--helpers], NULL);
	for (unsigned i = 0; i < b->n; i++)
		if (b->rc[i]) {
			snprintf(message, size, "%s", b->why[i]);
			return b->rc[i];
		}
	return 0;
}

static int restore_one(const struct root *root, const struct proc_id *id, char *message,
		       size_t size)
{
	int state = RUNNING, pid = (int)id->pid, code;

	if (!is_same_process(root, id))
		return 0;
	code = cuda.get_state(pid, &state);
	if (code)
		return call_failed("queried", pid, code, message, size);
	if (state != LOCKED && state != CHECKPOINTED)
		return 0;
	code = state == CHECKPOINTED ? cuda.restore(pid, NULL) : CUDA_OK;
	if (code)
		return call_failed("restored", pid, code, message, size);
	code = cuda.unlock(pid, NULL);
	return code ? call_failed("unlocked", pid, code, message, size) : 0;
}

/* Restores at most PROCESSES processes. A process that is in the list twice is restored once,
 * because both the order and the worker's notes can name it. skip: as in struct
 * checkpoint_batch; NULL: skip none. */
static int restore_all(const struct root *root, const struct proc_id *id, unsigned n,
		       const bool *skip, char *message, size_t size)
{
	bool leave[PROCESSES] = { false };
	struct checkpoint_batch b = {
		.root = root, .id = id, .n = n, .skip = leave, .call = restore_one
	};

	for (unsigned i = 0; i < n; i++) {
		leave[i] = skip && skip[i];
		for (unsigned k = 0; k < i && !leave[i]; k++)
			leave[i] = id[k].pid == id[i].pid &&
				   id[k].start_ticks == id[i].start_ticks;
	}
	return batch_all(&b, message, size);
}

int checkpoint_restore(const struct root *root, const struct proc_id *id, unsigned n,
		       char *message, size_t size)
{
	int first = checkpoint_usable(message, size), rc;
	char why[200];

	for (unsigned i = 0; i < n && !cuda.why[0]; i += PROCESSES) {
		rc = restore_all(root, id + i, n - i < PROCESSES ? n - i : PROCESSES, NULL, why,
				 sizeof(why));
		if (rc && !first) {
			snprintf(message, size, "%s", why);
			first = rc;
		}
	}
	return first;
}

static unsigned remaining_ms(uint64_t deadline_ns)
{
	uint64_t ms = clock_ms_until(clock_real(), deadline_ns);

	/* at least 1, because 0 means no limit */
	return ms == 0 ? 1 : ms > 3600000 ? 3600000 : (unsigned)ms;
}

/* Locks one process. Returns 0: the process was locked; 1: it is already checkpointed; or a
 * negative error. */
static int lock_one(const struct root *root, const struct proc_id *id, uint64_t deadline_ns,
		    char *message, size_t size)
{
	struct lock_args args = { .timeout_ms = remaining_ms(deadline_ns) };
	int state = RUNNING, pid = (int)id->pid, code;

	if (!is_same_process(root, id)) {
		snprintf(message, size, "process %d has ended", pid);
		return -GW_E_STATE;
	}
	code = cuda.get_state(pid, &state);
	if (code)
		return call_failed("queried", pid, code, message, size);
	if (state == CHECKPOINTED)
		return 1;
	if (state != RUNNING) {
		snprintf(message, size, "process %d is in state %d%s, so it cannot be locked",
			 pid, state,
			 state == LOCKED   ? " (locked by another program)"
			 : state == FAILED ? " (failed)"
					   : "");
		return -GW_E_STATE;
	}
	code = cuda.lock(pid, &args);
	return code ? call_failed("locked", pid, code, message, size) : 0;
}

static int checkpoint_one(const struct root *root, const struct proc_id *id, char *message,
			  size_t size)
{
	int code = cuda.checkpoint((int)id->pid, NULL);

	(void)root;
	return code ? call_failed("checkpointed", id->pid, code, message, size) : 0;
}

/* Locks all processes first, because a process that still runs may wait for a process that is
 * checkpointed. */
int checkpoint_create(const struct root *root, const struct proc_id *id, unsigned n,
		      uint64_t deadline_ns, char *message, size_t size)
{
	bool already[PROCESSES] = { false };
	struct checkpoint_batch b = { .root = root,
				      .id = id,
				      .n = n,
				      .skip = already,
				      .stop_at_fail = true,
				      .call = checkpoint_one };
	unsigned locked = 0;
	char unused[200];
	int rc = n <= PROCESSES ? checkpoint_usable(message, size) : -GW_E_SIZE;

	if (rc == -GW_E_SIZE)
		snprintf(message, size,
			 "the worker has %u processes on the GPU, and at most %d can be "
			 "checkpointed: use another kind of eviction",
			 n, PROCESSES);
	for (; locked < n && rc >= 0; locked++) {
		rc = lock_one(root, &id[locked], deadline_ns, message, size);
		already[locked] = rc == 1;
		if (rc < 0)
			break;
	}
	if (rc >= 0)
		rc = batch_all(&b, message, size);
	if (rc < 0)
		(void)restore_all(root, id, locked, already, unused, sizeof(unused));
	return rc;
}
