/* The token: read from a private file, kept and compared as a digest, so that the time of a
 * comparison reveals nothing. */
#include "http_impl.h"

#include "base/secret.h"
#include "base/sha256.h"

#include <string.h>
#include <strings.h>

#define FAILURES    10
#define FAILURES_NS (10 * NS_PER_S)

static void digest(const char *token, size_t n, char out[static 65])
{
	struct sha256 s;

	sha256_init(&s);
	sha256_add(&s, token, n);
	sha256_end(&s, out);
}

int auth_load(struct auth *a, const char *path, char *message, size_t size)
{
	char text[SECRET_MAX];
	int err;

	*a = (struct auth){ 0 };
	if (!path || !*path)
		return 0;
	err = secret_read(path, text, message, size);
	if (err)
		return err;
	digest(text, strlen(text), a->digest);
	explicit_bzero(text, sizeof(text));
	a->token = true;
	return 0;
}

static bool digests_equal(const char *a, const char *b)
{
	unsigned char difference = 0;

	for (unsigned i = 0; i < 64; i++)
		difference |= (unsigned char)(a[i] ^ b[i]);
	return difference == 0;
}

static bool token_good(const struct auth *a, const char *authorization)
{
	char given[65];

	if (!a->token || strncasecmp(authorization, "Bearer ", 7) != 0)
		return false;
	authorization += 7 + strspn(authorization + 7, " ");
	digest(authorization, strlen(authorization), given);
	return digests_equal(a->digest, given);
}

enum auth_verdict auth_check(struct auth *a, const char *authorization, uint64_t peer,
			     uint64_t now_ns)
{
	unsigned i = (unsigned)(peer % (sizeof(a->blocked) / sizeof(a->blocked[0])));

	/* First, so that another client with the same address (on loopback: all clients)
	 * cannot lock the owner out. */
	if (token_good(a, authorization))
		return AUTH_GOOD;
	if (a->blocked[i].peer != peer || now_ns - a->blocked[i].since_ns > FAILURES_NS) {
		a->blocked[i].peer = peer;
		a->blocked[i].since_ns = now_ns;
		a->blocked[i].failures = 0;
	}
	if (a->blocked[i].failures >= FAILURES)
		return AUTH_BLOCKED;
	a->blocked[i].failures++;
	return AUTH_WRONG;
}
