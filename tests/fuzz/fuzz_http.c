/* Any strings of a request: no crash; an accepted path has no "..", an accepted host is valid,
 * and an accepted length is written back identically. */
#include "serve/http_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_one_path(const char *text, char *out)
{
	size_t n;

	if (check_path(text, out))
		return;
	n = strlen(out);
	if (out[0] != '/' || n > strlen(text) || strstr(out, "/../") || strstr(out, "/./") ||
	    (n >= 3 && strcmp(out + n - 3, "/..") == 0))
		abort();
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)out[i] < ' ')
			abort();
}

static void check_one_host(const char *text)
{
	char host[CHECK_HOST_SIZE], again[CHECK_HOST_SIZE];
	unsigned port;

	if (!check_host(text, host, &port))
		return;
	if (port > 65535 || !*host || strpbrk(host, " /@[]"))
		abort();
	if (!strchr(host, ':') && (!check_host(host, again, &port) || strcmp(host, again) != 0))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), *out = malloc(size + 1);
	const char *type = "application/json; charset=utf-8";
	uint64_t length;

	memcpy(text, data, size);
	text[size] = '\0';
	check_one_path(text, out);
	check_decode(text, out);
	check_one_host(text);
	if (check_length(text, &length) && strspn(text, "0123456789") != strlen(text))
		abort();
	check_accepts(text, type);
	check_accepts("text/html, application/*;q=0.5", text);
	check_gzip(text);
	check_etag(text, "\"0123456789\"");
	check_json(text);
	if (check_id(text) && strpbrk(text, " \r\n\""))
		abort();
	free(text);
	free(out);
	return 0;
}
