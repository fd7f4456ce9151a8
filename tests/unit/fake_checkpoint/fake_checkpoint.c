/* A libcuda.so.1 that does not really checkpoint, but follows the driver's rules: only a locked
 * process can be checkpointed, only a checkpointed process can be restored, and a checkpointed
 * process cannot be unlocked. */
#include "fake_checkpoint.h"

#include <pthread.h>
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
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER;

/* Waits until enough calls are under way. A program that makes one call at a time hangs here
 * until the test's time limit ends it. */
static void meet(void)
{
	__atomic_add_fetch(&fake_checkpoint.underway, 1,
			   __ATOMIC_SEQ_CST); /* the test reads it */
	pthread_cond_broadcast(&arrived);
	while (fake_checkpoint.underway < fake_checkpoint.together)
		pthread_cond_wait(&arrived, &lock);
}

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

static int change(const char *call, int pid, int from, int to, int fail)
{
	int i = find(pid), rc = 0;

	pthread_mutex_lock(&lock);
	write_down(call, pid);
	if (from == 2 || to == 2)
		meet();
	if (i < 0)
		rc = NO_PROCESS;
	else if (fail)
		rc = fail;
	else if (fake_checkpoint.process[i].state != from)
		rc = ILLEGAL_STATE;
	else
		fake_checkpoint.process[i].state = to;
	pthread_mutex_unlock(&lock);
	return rc;
}

#define FAIL(what) (find(pid) < 0 ? 0 : fake_checkpoint.process[find(pid)].fail_##what)

CALL(cuCheckpointProcessGetState, int pid, int *state)
{
	if (find(pid) < 0)
		return NO_PROCESS;
	pthread_mutex_lock(&lock);
	*state = fake_checkpoint.process[find(pid)].state;
	pthread_mutex_unlock(&lock);
	return FAIL(state);
}

CALL(cuCheckpointProcessLock, int pid, const uint32_t *args)
{
	pthread_mutex_lock(&lock);
	fake_checkpoint.timeout_ms = args ? args[0] : 0;
	pthread_mutex_unlock(&lock);
	return change("lock", pid, 0, 1, FAIL(lock));
}

CALL(cuCheckpointProcessCheckpoint, int pid, void *args)
{
	(void)args;
	return change("checkpoint", pid, 1, 2, FAIL(put_away));
}

CALL(cuCheckpointProcessRestore, int pid, void *args)
{
	(void)args;
	return change("restore", pid, 2, 1, FAIL(restore));
}

CALL(cuCheckpointProcessUnlock, int pid, void *args)
{
	(void)args;
	return change("unlock", pid, 1, 0, FAIL(unlock));
}
