/* serve: executes the service program in place of this process.
 *
 * The service is a separate program, because it needs libraries that no other command needs.
 * Because it replaces this process, a service manager or a shell sees one process. */
#include "guard_subcommand.h"
#include "cli.h"
#include "serve_options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NAME "gpuward-serve"

/* Executes the service.  Returns only if this fails, with an exit code. */
static int serve_run(struct cli *c)
{
	char path[4096 + sizeof(NAME)];

	if (!cli_find_part(path, sizeof(path), NAME, GPUWARD_LIBEXECDIR "/gpuward/" NAME))
		return cli_fail("this gpuward is installed without the service (" NAME
				" is missing); build it with libmicrohttpd, sqlite3, zlib and "
				"jansson: make build");
	if (c->words)
		execv(path, c->words);
	return cli_fail("cannot start %s: %s", path, strerror(errno));
}

/* Executes the service program, because reading the journal needs its libraries. */
int guard_recover(struct cli *c)
{
	return serve_run(c);
}

#include "cmd_serve.h"
