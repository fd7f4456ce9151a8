/* Compares our numbers of libcurl's interface with its header. Built only if the header is
 * installed. */
#include "base/curl_abi.h"

#define CURL_DISABLE_DEPRECATION /* switches off warnings about deprecated numbers */
#include <curl/curl.h>

#define CHECK(ours, theirs, value) _Static_assert((long)(theirs) == (long)(value), #theirs);
CURL_NUMBERS(CHECK)

int main(void)
{
	/* Checks that the calls have the types that http_client.c uses; setopt and getinfo are
	 * macros in C. */
	CURLcode (*perform)(CURL *) = curl_easy_perform;
	CURL *(*init)(void) = curl_easy_init;
	void (*reset)(CURL *) = curl_easy_reset;
	CURLcode (*global)(long) = curl_global_init;
	struct curl_slist *(*append)(struct curl_slist *, const char *) = curl_slist_append;
	void (*cleanup)(CURL *) = curl_easy_cleanup;
	void (*slist_free)(struct curl_slist *) = curl_slist_free_all;
	const char *(*words)(CURLcode) = curl_easy_strerror;

	_Static_assert(sizeof(CURLcode) == sizeof(int), "codes are ints");
	return perform && init && reset && global && append && cleanup && slist_free && words
		       ? 0
		       : 1;
}
