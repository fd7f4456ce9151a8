/* serve: starts the service.  daemon/config.def lists its settings. */
#include "cli.h"
#include "serve_options.h"

#include "daemon/service.h"

static int serve_run(struct cli *c)
{
	struct config_flag flag[SERVE_FLAGS_MAX];
	const struct serve_flags *given = c->own;
	struct service_options o = { .config_path = given->config, .flags = flag };
	struct gw_options g;
	int code = cli_open_options(c, &g);

	if (code != EXIT_OK)
		return code;
	if (c->gpu.count)
		return cli_usage("serve monitors all GPUs: leave out --gpu");
	o.flag_count = serve_config_flags(given, flag, SERVE_FLAGS_MAX);
	o.backend = g.backend;
	o.nvml_library = g.nvml_library;
	o.root = g.root;
	o.open_flags = g.flags;
	o.deadline_ns = g.deadline_ns;
	o.quiet = c->quiet;
	o.simulated = c->simulate != NULL || c->root != NULL;
	return service_run(&o);
}

#include "cmd_serve.h"
