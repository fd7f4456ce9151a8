#include "counter_url.h"

#include "client.h"
#include "counter_text.h"

#include <gpuward.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define SCHEME "http://"
#define ACCEPT "text/plain;version=0.0.4, application/json;q=0.5, */*;q=0.1"

struct place {
	char address[300], path[2048];
	const char *what; /* in the URL; NULL: not said */
};

/* What would end the line that it stands in, or is no part of a URL. */
static bool is_clean(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)s[i] <= ' ' || s[i] == 127)
			return false;
	return true;
}

/* Is there a port behind the host, which may be an address in brackets? */
static bool has_port(const char *host, size_t n)
{
	const char *bracket = memchr(host, ']', n);
	const char *from = bracket ? bracket : host;

	return memchr(from, ':', n - (size_t)(from - host)) != NULL;
}

static int parse(const char *url, struct place *ret, char *why, size_t size)
{
	bool plain = strncmp(url, SCHEME, strlen(SCHEME)) == 0;
	const char *host = plain ? url + strlen(SCHEME) : url, *path, *end;
	size_t n = plain ? strcspn(host, "/?#") : 0;

	if (strncmp(url, "https://", 8) == 0) {
		snprintf(why, size,
			 "only plain http is spoken here, and '%.100s' is https; --count-cmd "
			 "can ask it with curl",
			 url);
		return -GW_E_ARG;
	}
	path = host + n;
	end = path + strcspn(path, "#");
	if (n == 0 || n > 256 || !is_clean(host, (size_t)(end - host)) ||
	    (size_t)(end - path) >= sizeof(ret->path) - 1) {
		snprintf(why, size, "'%.100s' is no URL such as http://localhost:8000/metrics",
			 url);
		return -GW_E_ARG;
	}
	if (memchr(host, '@', n)) {
		snprintf(why, size,
			 "a URL with a user in it cannot be asked here; --count-cmd can, with "
			 "curl");
		return -GW_E_ARG;
	}
	snprintf(ret->address, sizeof(ret->address), "%.*s%s", (int)n, host,
		 has_port(host, n) ? "" : ":80");
	snprintf(ret->path, sizeof(ret->path), "%s%.*s", *path == '/' ? "" : "/",
		 (int)(end - path), path);
	ret->what = *end && end[1] ? end + 1 : NULL;
	return 0;
}

int counter_url_check(const char *url, char *why, size_t size)
{
	struct place place;
	int err = parse(url, &place, why, size);

	return err ? err : counter_text_check(place.what, why, size);
}

void counter_url_place(const char *url, char *out, size_t size)
{
	snprintf(out, size, "%.*s", (int)strcspn(url, "?#"), url);
}

static void unreachable(const char *address, int err, struct counter_reading *ret)
{
	static const struct {
		int err;
		const char *before, *after; /* the address */
	} known[] = {
		{ -GW_E_NOENT, "nobody listens on ", "" },
		{ -GW_E_NODEV, "", ": no such host" },
		{ -GW_E_ARG, "'", "' is no HOST:PORT" },
		{ -GW_E_TIMEOUT, "", " did not answer within 10 s" },
		{ -GW_E_STATE, "", " had not answered when this was interrupted" },
		{ -GW_E_PARSE, "what listens on ", " does not answer as an HTTP server does" },
		{ -GW_E_SIZE, "the answer of ", " is longer than 16 MiB" },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (known[i].err == err) {
			counter_refuse(ret, "%s%s%s", known[i].before, address, known[i].after);
			return;
		}
	counter_refuse(ret, "%s cannot be asked: %s", address, gw_strerror(err));
}

void counter_url_read(const char *url, const struct deadline_stop *stop,
		      struct counter_reading *ret)
{
	struct place place;
	struct client_request q = { .address = place.address,
				    .method = "GET",
				    .path = place.path,
				    .accept = ACCEPT,
				    .stop = stop };
	char why[COUNTER_WHY];
	struct buf body;
	int status = 0, err;

	if (parse(url, &place, why, sizeof(why)) != 0) {
		counter_refuse(ret, "%s", why);
		return;
	}
	buf_init(&body, CLIENT_REPLY_MAX);
	err = client_request_reply(&q, COUNTER_MOST_NS, &status, &body);
	if (err)
		unreachable(place.address, err, ret);
	else if (status < 200 || status > 299)
		counter_refuse(ret, "%s answers with status %d", place.address, status);
	else
		counter_text(body.p, body.len, place.what, ret);
	buf_done(&body);
}
