#include "thread.h"

#include <gpuward.h>

#include <signal.h>

int thread_start(pthread_t *ret, size_t stack_bytes, void *(*run)(void *arg), void *arg)
{
	sigset_t all, before;
	pthread_attr_t attr;
	int e;

	if (pthread_attr_init(&attr) != 0)
		return -GW_E_NOMEM;
	if (stack_bytes)
		pthread_attr_setstacksize(&attr, stack_bytes);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	e = pthread_create(ret, &attr, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return e ? -GW_E_NOMEM : 0;
}
