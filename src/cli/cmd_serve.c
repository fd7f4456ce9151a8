/* serve: the daemon.  Its settings are the table of daemon/config.def. */
#include "cli.h"
#include "serve_options.h"

#include "daemon/service.h"

static int run(struct cli *c)
{
	struct config_flag flag[SERVE_FLAGS_MAX];
	const struct serve_flags *given = c->own;
	struct service_options o = { .config_path = given->config, .flags = flag };
	struct gw_options g;
	int code = cli_how(c, &g);

	if (code != EXIT_OK)
		return code;
	if (c->gpu.count) {
		cli_error("serve watches every GPU: --gpu means nothing to it");
		return EXIT_USAGE;
	}
	o.flag_count = serve_config_flags(given, flag, SERVE_FLAGS_MAX);
	o.backend = g.backend;
	o.nvml_library = g.nvml_library;
	o.root = g.root;
	o.open_flags = g.flags;
	o.deadline_ns = g.deadline_ns;
	o.quiet = c->quiet;
	return service_run(&o);
}

const struct command command_serve = {
	.name = "serve",
	.summary = "the service: REST, metrics, stream and page",
	.description = "Watches every GPU and answers over HTTP: a page at /, "
		       "/api/gpu/devices, /api/v1,\n"
		       "/metrics for Prometheus, a stream of events.  Listens on "
		       "127.0.0.1:9490 unless told\n"
		       "otherwise.  Settings come from gpuward.toml(5), the environment and "
		       "these options;\n"
		       "SIGHUP reads them again, SIGTERM and Ctrl-C end it.",
	.examples = "  gpuward serve\n"
		    "  gpuward serve --simulate --listen 127.0.0.1:8090\n"
		    "  gpuward serve --config /etc/gpuward/gpuward.toml\n",
	.options = serve_options,
	.options_size = sizeof(struct serve_flags),
	.one_form = true,
	.run = run,
};
