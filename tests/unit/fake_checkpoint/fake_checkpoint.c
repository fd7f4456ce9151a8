/* A libcuda.so.1 that checkpoints nothing but follows the driver's rules: only a locked process
 * can be checkpointed, only a checkpointed process can be restored, and a checkpointed process
 * cannot be unlocked. */
#include "fake_checkpoint.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define CALL(name, ...)               \
	EXPORT int name(__VA_ARGS__); \
	EXPORT int name(__VA_ARGS__)

#define ILLEGAL_STATE 401
#define NO_PROCESS    304

EXPORT extern struct fake_checkpoint fake_checkpoint;
struct fake_checkpoint fake_checkpoint;

static int find(int pid)
{
	for (int i = 0; i < FAKE_PROCESSES; i++)
		if (fake_checkpoint.process[i].pid == pid)
			return i;
	return -1;
}

static void write_down(const char *call, int pid)
{
	size_t n = strlen(fake_checkpoint.calls);

	snprintf(fake_checkpoint.calls + n, sizeof(fake_checkpoint.calls) - n, "%s %d, ", call,
		 find(pid));
}

static int change(int pid, int from, int to, int fail)
{
	int i = find(pid);

	if (i < 0)
		return NO_PROCESS;
	if (fail)
		return fail;
	if (fake_checkpoint.process[i].state != from)
		return ILLEGAL_STATE;
	fake_checkpoint.process[i].state = to;
	return 0;
}

#define FAIL(what) (find(pid) < 0 ? 0 : fake_checkpoint.process[find(pid)].fail_##what)

CALL(cuCheckpointProcessGetState, int pid, int *state)
{
	if (find(pid) < 0)
		return NO_PROCESS;
	*state = fake_checkpoint.process[find(pid)].state;
	return FAIL(state);
}

CALL(cuCheckpointProcessLock, int pid, const uint32_t *args)
{
	write_down("lock", pid);
	fake_checkpoint.timeout_ms = args ? args[0] : 0;
	return change(pid, 0, 1, FAIL(lock));
}

CALL(cuCheckpointProcessCheckpoint, int pid, void *args)
{
	(void)args;
	write_down("checkpoint", pid);
	return change(pid, 1, 2, FAIL(put_away));
}

CALL(cuCheckpointProcessRestore, int pid, void *args)
{
	(void)args;
	write_down("restore", pid);
	return change(pid, 2, 1, FAIL(restore));
}

CALL(cuCheckpointProcessUnlock, int pid, void *args)
{
	(void)args;
	write_down("unlock", pid);
	return change(pid, 1, 0, FAIL(unlock));
}
