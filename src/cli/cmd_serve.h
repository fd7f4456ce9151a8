/* cmd_serve: the description of `gpuward serve`, shared by the two programs, which have
 * different run() functions. */
const struct command command_serve = {
	.name = "serve",
	.summary = "run the service: REST API, metrics, event stream and web page",
	.description =
		"Monitors all GPUs and answers over HTTP: a web page at /, the REST API at "
		"/api/v1, /api/gpu/devices, /metrics for Prometheus, and a stream of events. "
		"Listens on " CONFIG_ADDRESS " by default. Settings come from gpuward.toml(5), "
		"environment variables and these options; SIGHUP reads them again, SIGTERM and "
		"Ctrl-C stop the service. The default of --timeout is 2s here.",
	.examples = "  gpuward serve\n"
		    "  gpuward serve --simulate --listen 127.0.0.1:8090\n"
		    "  gpuward serve --config /etc/gpuward/gpuward.toml\n",
	.options = serve_options,
	.options_size = sizeof(struct serve_flags),
	.one_form = true,
	.run = serve_run,
};
