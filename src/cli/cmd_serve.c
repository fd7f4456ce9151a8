/* serve: starts the service. Its options are made from the settings in daemon/config.def.
 *
 * The service is a separate program, gpuward-serve, because it needs libraries that no other
 * command needs.  Both programs contain this file. `gpuward serve` replaces itself by
 * gpuward-serve with execv(), so that a service manager or a shell sees one process. */
#include "cli.h"
#include "guard_subcommand.h"

#include "daemon/config.h"

#ifdef GPUWARD_SERVICE
#include "daemon/service.h"
#endif

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#define FLAGS_MAX 128

/* Values of the options. Each setting that has an option is a string, a list or a bool here. */
#define SERVE_C_BOOL     bool
#define SERVE_C_COUNT    const char *
#define SERVE_C_NUMBER   const char *
#define SERVE_C_DURATION const char *
#define SERVE_C_BYTES    const char *
#define SERVE_C_TEXT     const char *
#define SERVE_C_CHOICE   const char *
#define SERVE_C_LIST     struct option_list
struct serve_flags {
	const char *config; /* --config FILE */
#define O(section, key, type, standard, least, most, choices, flag, help)
#define F(section, key, type, standard, least, most, choices, flag, help) \
	SERVE_C_##type section##_##key;
#include "daemon/config.def"
#undef O
};

/* Rows of the option table. The values stay strings: config_load() parses them, because it
 * knows the types and ranges of the settings. */
#define ROW_OF_BOOL(flag, at, choices, help, standard)  OPTION_ROW(FLAG, 0, flag, at, NULL, help)
#define ROW_OF_COUNT(flag, at, choices, help, standard) OPTION_ROW(TEXT, 0, flag, at, "N", help)
#define ROW_OF_NUMBER(flag, at, choices, help, standard) \
	OPTION_ROW(TEXT, 0, flag, at, "X", help)
#define ROW_OF_DURATION(flag, at, choices, help, standard) \
	OPTION_ROW(TEXT, 0, flag, at, "TIME", help " (default: " standard ")")
#define ROW_OF_BYTES(flag, at, choices, help, standard) \
	OPTION_ROW(TEXT, 0, flag, at, "SIZE", help)
#define ROW_OF_TEXT(flag, at, choices, help, standard) \
	OPTION_ROW(TEXT, 0, flag, at, "FILE", help)
#define ROW_OF_CHOICE(flag, at, choices, help, standard) \
	OPTION_ROW(TEXT, 0, flag, at, choices, help)
#define ROW_OF_LIST(flag, at, choices, help, standard) \
	OPTION_ROW(LIST, 0, flag, at, "ADDRESS", help)

static const struct option options[] = {
	OPTION_ROW(TEXT, 'c', "config", offsetof(struct serve_flags, config), "FILE",
		   "read this file instead of the files in the usual places"),
#define O(section, key, type, standard, least, most, choices, flag, help)
#define F(section, key, type, standard, least, most, choices, flag, help)                 \
	ROW_OF_##type(flag, offsetof(struct serve_flags, section##_##key), choices, help, \
		      standard),
#include "daemon/config.def"
#undef O
	OPTION_END,
};

#ifdef GPUWARD_SERVICE
static int serve_run(struct cli *c)
{
	struct config_flag flag[FLAGS_MAX];
	const struct serve_flags *given = c->own;
	struct service_options o = { .config_path = given->config, .flags = flag };
	struct gw_options g;
	int code = cli_open_options(c, &g);

	if (code != EXIT_OK)
		return code;
	if (c->gpu.count)
		return cli_usage("serve monitors all GPUs: leave out --gpu");
	/* options + 1: the first option, --config, is not a setting */
	o.flag_count = option_config_flags(options + 1, given, flag, FLAGS_MAX);
	o.backend = g.backend;
	o.nvml_library = g.nvml_library;
	o.root = g.root;
	o.open_flags = g.flags;
	o.deadline_ns = g.deadline_ns;
	o.quiet = c->quiet;
	o.simulated = c->simulate != NULL || c->root != NULL;
	return service_run(&o);
}
#else
#define NAME "gpuward-serve"

/* Replaces this process with the service. Returns only after an error, with an exit code. */
static int serve_run(struct cli *c)
{
	char path[4096 + sizeof(NAME)];

	if (!cli_find_part(path, sizeof(path), NAME, GPUWARD_LIBEXECDIR "/gpuward/" NAME)) {
		if (!cli_knows_own_path())
			return cli_fail("cannot search for " NAME " next to this program: "
					"/proc/self/exe cannot be read; mount /proc");
		return cli_fail("this gpuward is installed without the service (" NAME
				" is missing); install libmicrohttpd, sqlite3, zlib and "
				"jansson, and build gpuward again: make build");
	}
	if (c->words)
		execv(path, c->words);
	return cli_fail("cannot start %s: %s", path, strerror(errno));
}

/* Runs `guard recover` in gpuward-serve, because reading the journal needs the libraries of the
 * service. */
int guard_recover(struct cli *c)
{
	return serve_run(c);
}
#endif

const struct command command_serve = {
	.name = "serve",
	.summary = "run the service: REST API, metrics, event stream and web page",
	.description = "Monitors all GPUs and answers over HTTP: a web page at /, the REST API "
		       "at /api/v1, /api/gpu/devices, /metrics for Prometheus, and a stream of "
		       "events. Listens on " CONFIG_ADDRESS
		       " by default. Settings come from gpuward.toml(5), environment variables "
		       "and these options; SIGHUP reads them again, SIGTERM and Ctrl-C stop "
		       "the service.",
	.examples = "  gpuward serve\n"
		    "  gpuward serve --simulate --listen 127.0.0.1:8090\n"
		    "  gpuward serve --config /etc/gpuward/gpuward.toml\n",
	.options = options,
	.options_size = sizeof(struct serve_flags),
	.one_form = true,
	.run = serve_run,
};
