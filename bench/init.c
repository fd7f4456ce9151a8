/* init: the smallest program that opens a GPU. It loads NVML, initialises it, gets one handle
 * and shuts NVML down.
 *
 * init [LIBRARY]        exits with 0; 1 if no GPU is available */
#include "device/nvml_abi.h"

#include <dlfcn.h>
#include <string.h>

static int call(void *lib, const char *symbol)
{
	abi_return (*fn)(void);
	void *sym = dlsym(lib, symbol);

	memcpy(&fn, &sym, sizeof(sym));
	return sym ? fn() : ABI_FUNCTION_NOT_FOUND;
}

int main(int argc, char **argv)
{
	void *lib = dlopen(argc > 1 ? argv[1] : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	abi_return (*by_index)(uint32_t, abi_device *);
	abi_device device;
	void *sym;
	abi_return code;

	if (!lib && argc == 1)
		lib = dlopen("/usr/local/nvidia/lib64/libnvidia-ml.so.1",
			     RTLD_NOW | RTLD_LOCAL);
	sym = lib ? dlsym(lib, "nvmlDeviceGetHandleByIndex_v2") : NULL;
	if (!sym || call(lib, "nvmlInit_v2") != ABI_SUCCESS)
		return 1;
	memcpy(&by_index, &sym, sizeof(sym));
	code = by_index(0, &device);
	call(lib, "nvmlShutdown");
	return code == ABI_SUCCESS ? 0 : 1;
}
