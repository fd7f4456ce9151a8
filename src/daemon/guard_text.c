#include "guard_text.h"

#include "guard_config.h"

#include "base/file.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define NAME "/proc/self/fd/"

/* "/proc/self/fd/9:3:1: ..." becomes "policy:3:1: ..."; only the first sentence is kept. */
static void tidy(const char *path, const char *said, char *message, size_t size)
{
	size_t n = strlen(path), end;

	if (strncmp(said, path, n) == 0)
		snprintf(message, size, "policy%s", said + n);
	else
		snprintf(message, size, "%s", said);
	end = strcspn(message, "\n");
	message[end] = '\0';
}

static int make(const struct config *c, struct policy *ret)
{
	struct guard_settings s;
	int err = guard_config_make(c, &s);

	if (err)
		return err;
	err = policy_copy(ret, &s.policy);
	guard_settings_done(&s);
	return err;
}

int guard_text_policy(const char *toml, size_t n, struct policy *ret, char *message,
		      size_t size)
{
	int fd = memfd_create("policy", MFD_CLOEXEC), err;
	char path[64], said[2000] = "";
	struct config c;

	if (fd < 0)
		return -GW_E_IO;
	snprintf(path, sizeof(path), NAME "%d", fd);
	err = file_write_all(fd, toml, n) != 0
		      ? -GW_E_IO
		      : config_load(&c, path, NULL, 0, said, sizeof(said));
	if (!err) {
		err = make(&c, ret);
		config_done(&c);
	} else if (err != -GW_E_NOMEM && err != -GW_E_IO) {
		tidy(path, said, message, size);
		err = -GW_E_PARSE;
	}
	close(fd);
	return err;
}
