#include "guard/worker/checkpoint.h"

#include "base/clock.h"

#include "device/proc.h"

#include <gpuward.h>

#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define TARGETS 64

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
	int first = checkpoint_usable(message, size), rc;
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

/* ---- out */

static unsigned long_until(uint64_t deadline_ns)
{
	uint64_t now = clock_mono_ns(clock_real());
	uint64_t ms = deadline_ns > now ? (deadline_ns - now) / NS_PER_MS : 0;

	return ms == 0 ? 1 : ms > 3600000 ? 3600000 : (unsigned)ms; /* 0 would be without end */
}

/* 0: it is locked by us now; 1: it is put away already; else an error. */
static int lock_one(const struct root *root, const struct checkpoint_target *t,
		    uint64_t deadline_ns, char *message, size_t size)
{
	struct lock_args args = { .timeout_ms = long_until(deadline_ns) };
	int state = RUNNING, pid = (int)t->pid, code;

	if (!is_same(root, t)) {
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

/* All are locked before the first is put away: one that runs on may wait for one that does not. */
int checkpoint_put_away(const struct root *root, const struct checkpoint_target *t, unsigned n,
			uint64_t deadline_ns, char *message, size_t size)
{
	bool there[TARGETS] = { false };
	unsigned touched = 0;
	char unused[200];
	int rc = n <= TARGETS ? checkpoint_usable(message, size) : -GW_E_SIZE, code;

	for (; touched < n && rc >= 0; touched++) {
		rc = lock_one(root, &t[touched], deadline_ns, message, size);
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
			bring_back(root, &t[i], unused, sizeof(unused));
	return rc;
}
