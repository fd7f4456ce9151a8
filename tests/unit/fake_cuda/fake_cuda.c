/* A libcuda.so.1 that computes nothing and records the calls that it gets.
 *
 * The call named in FAKE_CUDA_FAIL returns error 999. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_cuda.h"

#define EXPORT __attribute__((visibility("default")))
#define CALL(name, ...)               \
	EXPORT int name(__VA_ARGS__); \
	EXPORT int name(__VA_ARGS__)

EXPORT extern struct fake_cuda fake_cuda;
struct fake_cuda fake_cuda;

static int answer(const char *call)
{
	const char *fail = getenv("FAKE_CUDA_FAIL");

	return fail && strcmp(fail, call) == 0 ? 999 : 0;
}

CALL(cuInit, unsigned flags)
{
	(void)flags;
	return answer("cuInit");
}

CALL(cuDeviceGetByPCIBusId, int *device, const char *pci)
{
	snprintf(fake_cuda.pci, sizeof(fake_cuda.pci), "%s", pci);
	*device = 3;
	return answer("cuDeviceGetByPCIBusId");
}

CALL(cuDeviceGetAttribute, int *value, int which, int device)
{
	*value = which == 16 ? 132 : which == 39 ? 2048 : -1;
	return device == 3 ? 0 : 101;
}

CALL(cuCtxCreate_v2, void **context, unsigned flags, int device)
{
	(void)flags;
	*context = &fake_cuda;
	fake_cuda.contexts += answer("cuCtxCreate_v2") == 0;
	return device == 3 ? answer("cuCtxCreate_v2") : 101;
}

CALL(cuCtxDestroy_v2, void *context)
{
	fake_cuda.contexts--;
	return context == &fake_cuda ? 0 : 201;
}

CALL(cuCtxSynchronize, void)
{
	fake_cuda.running = 0;
	return answer("cuCtxSynchronize");
}

CALL(cuModuleLoadData, void **module, const void *image)
{
	*module = &fake_cuda.running;
	return strncmp(image, ".version", 8) == 0 ? answer("cuModuleLoadData") : 218;
}

CALL(cuModuleGetFunction, void **function, void *module, const char *name)
{
	*function = &fake_cuda.launches;
	return module == &fake_cuda.running && strcmp(name, "spin") == 0
		       ? answer("cuModuleGetFunction")
		       : 500;
}

CALL(cuLaunchKernel, void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
     unsigned by, unsigned bz, unsigned shared, void *stream, void **parameters, void **extra)
{
	if (function != &fake_cuda.launches || gy != 1 || gz != 1 || by != 1 || bz != 1 ||
	    shared || stream || extra || fake_cuda.running)
		return 1;
	memcpy(&fake_cuda.for_ns, parameters[0], sizeof(fake_cuda.for_ns));
	fake_cuda.blocks = gx;
	fake_cuda.threads = bx;
	fake_cuda.launches++;
	fake_cuda.running = 1;
	return answer("cuLaunchKernel");
}

CALL(cuGetErrorName, int code, const char **name)
{
	*name = code == 999 ? "CUDA_ERROR_UNKNOWN" : "CUDA_ERROR";
	return 0;
}
