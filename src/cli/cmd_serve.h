/* cmd_serve: how the command looks, whichever of the two programs it is in; its `run` is
 * theirs. */
const struct command command_serve = {
	.name = "serve",
	.summary = "the service: REST, metrics, stream and page",
	.description =
		"Watches every GPU and answers over HTTP: a page at /, /api/gpu/devices, "
		"/api/v1, /metrics for Prometheus, a stream of events.  Listens on "
		"127.0.0.1:9490 unless told otherwise.  Settings come from gpuward.toml(5), "
		"the environment and these options; SIGHUP reads them again, SIGTERM and "
		"Ctrl-C end it.  A driver call counts as hanging after 2s here.",
	.examples = "  gpuward serve\n"
		    "  gpuward serve --simulate --listen 127.0.0.1:8090\n"
		    "  gpuward serve --config /etc/gpuward/gpuward.toml\n",
	.options = serve_options,
	.options_size = sizeof(struct serve_flags),
	.lasts = true,
	.one_form = true,
	.run = run,
};
