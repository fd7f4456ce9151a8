#include "guard/worker/curl.h"

#include <gpuward.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* Loaded once and never unloaded, because curl_global_init() must run exactly once, before
 * every other call. */
struct curl_library curl_library;
static pthread_once_t curl_once = PTHREAD_ONCE_INIT;

static void curl_load_once(void)
{
	struct curl_library *c = &curl_library;
	void *library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
	void *p;

	if (!library) {
		snprintf(c->why, sizeof(c->why),
			 "libcurl.so.4 is needed for HTTP requests: install libcurl4");
		return;
	}
#define LOOK_UP(type, name, symbol, args) \
	p = dlsym(library, symbol);       \
	memcpy(&c->name, &p, sizeof(p));  \
	if (!p)                           \
		snprintf(c->why, sizeof(c->why), "this libcurl.so.4 has no %s", symbol);
	CURL_CALLS(LOOK_UP)
#undef LOOK_UP
	if (!c->why[0] && c->global_init(CURL_GLOBAL_EVERYTHING) != 0)
		snprintf(c->why, sizeof(c->why), "libcurl.so.4 cannot be initialised");
}

int curl_load(char *message, size_t size)
{
	pthread_once(&curl_once, curl_load_once);
	if (!curl_library.why[0])
		return 0;
	snprintf(message, size, "%s", curl_library.why);
	return -GW_E_NOSUPPORT;
}

int curl_prepare(void **handle, const struct curl_callbacks *x, char *message, size_t size)
{
	const struct curl_library *c = &curl_library;

	if (curl_load(message, size) != 0)
		return -GW_E_NOSUPPORT;
	if (!*handle)
		*handle = c->easy_init();
	if (!*handle) {
		snprintf(message, size, "%s", gw_strerror(-GW_E_NOMEM));
		return -GW_E_NOMEM;
	}
	c->setopt(*handle, CURL_NOSIGNAL, 1L);
	c->setopt(*handle, CURL_PROTOCOLS, (long)CURL_HTTP_AND_HTTPS);
	c->setopt(*handle, CURL_PROXY, "");
	c->setopt(*handle, CURL_USERAGENT, "gpuward/" GPUWARD_VERSION);
	c->setopt(*handle, CURL_ERRORBUFFER, x->error);
	c->setopt(*handle, CURL_WRITEFUNCTION, x->receive);
	c->setopt(*handle, CURL_WRITEDATA, x->receive_arg);
	c->setopt(*handle, CURL_XFERINFOFUNCTION, x->check);
	c->setopt(*handle, CURL_XFERINFODATA, x->check_arg);
	c->setopt(*handle, CURL_NOPROGRESS, x->check ? 0L : 1L);
	return 0;
}
