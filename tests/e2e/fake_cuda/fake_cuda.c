/* A libcuda.so.1 with the checkpoint calls. The state of each process is in a file next to the
 * library, so that one program can restore what another one has checkpointed.
 *         PID     state as a number: running 0, locked 1, checkpointed 2
 *         calls   the calls so far, one per line
 *         hold    while this file exists, a checkpoint does not finish */
#include <dlfcn.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define CALL(name, ...)               \
	EXPORT int name(__VA_ARGS__); \
	EXPORT int name(__VA_ARGS__)

#define ILLEGAL_STATE 401
#define NO_PROCESS    304

static void path_of(const char *name, char out[static 4096])
{
	Dl_info info;
	char own[4096];

	dladdr((void *)(uintptr_t)path_of, &info);
	snprintf(own, sizeof(own), "%s", info.dli_fname);
	snprintf(out, 4096, "%s/%s", dirname(own), name);
}

static FILE *open_file(int pid, const char *mode)
{
	char name[32], path[4096];

	snprintf(name, sizeof(name), "%d", pid);
	path_of(name, path);
	return fopen(path, mode);
}

static int state_of(int pid)
{
	FILE *f = open_file(pid, "r");
	int state = -1;

	if (f) {
		if (fscanf(f, "%d", &state) != 1)
			state = -1;
		fclose(f);
	}
	return state;
}

static void write_down(const char *call, int pid)
{
	char path[4096];
	FILE *f;

	path_of("calls", path);
	f = fopen(path, "a");
	if (f) {
		fprintf(f, "%s %d\n", call, pid);
		fclose(f);
	}
}

static int change(const char *call, int pid, int from, int to)
{
	FILE *f;

	write_down(call, pid);
	if (state_of(pid) < 0)
		return NO_PROCESS;
	if (state_of(pid) != from)
		return ILLEGAL_STATE;
	f = open_file(pid, "w");
	if (!f)
		return NO_PROCESS;
	fprintf(f, "%d", to);
	fclose(f);
	return 0;
}

CALL(cuCheckpointProcessGetState, int pid, int *state)
{
	*state = state_of(pid);
	return *state < 0 ? NO_PROCESS : 0;
}

CALL(cuCheckpointProcessLock, int pid, void *args)
{
	(void)args;
	return change("lock", pid, 0, 1);
}

CALL(cuCheckpointProcessCheckpoint, int pid, void *args)
{
	char hold[4096];

	(void)args;
	path_of("hold", hold);
	if (access(hold, F_OK) == 0)
		write_down("holding", pid);
	while (access(hold, F_OK) == 0)
		usleep(10000);
	return change("checkpoint", pid, 1, 2);
}

CALL(cuCheckpointProcessRestore, int pid, void *args)
{
	(void)args;
	return change("restore", pid, 2, 1);
}

CALL(cuCheckpointProcessUnlock, int pid, void *args)
{
	(void)args;
	return change("unlock", pid, 1, 0);
}
