/* serve: not in this build, and saying so. */
#include "cli.h"

static int run(struct cli *c)
{
	(void)c;
	cli_error("this gpuward was built without the service; build it with libmicrohttpd, "
		  "sqlite3, "
		  "zlib and jansson (make deps build)");
	return EXIT_FAILED;
}

const struct command command_serve = {
	.name = "serve",
	.summary = "the service: not in this build",
	.description = "This gpuward was built without the service.",
	.examples = "",
	.one_form = true,
	.run = run,
};
