#include "guard/worker/curl.h"

#include <gpuward.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* Loaded once and never unloaded: curl_global_init() must run once, before every other call. */
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
