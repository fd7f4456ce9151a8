/* no_memory: with LD_PRELOAD, realloc() of more than GPUWARD_TEST_MEMORY bytes fails. */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

__attribute__((visibility("default"))) void *realloc(void *p, size_t n)
{
	static void *(*real)(void *, size_t);
	const char *most = getenv("GPUWARD_TEST_MEMORY");

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "realloc");
	if (!most || n <= strtoul(most, NULL, 10))
		return real(p, n);
	errno = ENOMEM;
	return NULL;
}
