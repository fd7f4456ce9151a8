/* no_threads: with LD_PRELOAD, pthread_create() fails from call GPUWARD_TEST_THREADS on, while
 * the file named in GPUWARD_TEST_NO_THREADS exists. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((visibility("default"))) int pthread_create(pthread_t *thread,
							  const pthread_attr_t *attributes,
							  void *(*run)(void *), void *arg)
{
	static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
	static atomic_int calls;
	const char *first = getenv("GPUWARD_TEST_THREADS");
	const char *file = getenv("GPUWARD_TEST_NO_THREADS");

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
	if (first && file && atomic_fetch_add(&calls, 1) + 1 >= atoi(first) &&
	    access(file, F_OK) == 0)
		return EAGAIN;
	return real(thread, attributes, run, arg);
}
