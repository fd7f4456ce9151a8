/* env: prints facts about the machine that are needed to repeat a measurement. */
#include "cli.h"
#include "output.h"

#include <stdio.h>
#include <string.h>

static void print_heading(const char *text)
{
	printf("%s%s%s\n", term_on(TERM_BOLD), text, term_off());
}

static void print_fact(const struct gw_fact *f)
{
	if (f->absence != GW_HAVE) {
		figure_line(f->key, "- (%s)", gw_absence_text(f->absence));
	} else if (f->type == GW_FACT_TEXT) {
		figure_line(f->key, "%s", *f->text ? f->text : "none");
	} else if (f->type == GW_FACT_FLAG) {
		figure_line(f->key, "%s", f->number != 0 ? "yes" : "no");
	} else {
		figure_number(f->key, f->number);
	}
}

static void print_device(const struct cli *c, const struct gw_device *d)
{
	char title[32];

	snprintf(title, sizeof(title), "gpu %u", d->index);
	print_heading(title);
	for (unsigned t = 0; t < GW_TEXTS; t++)
		if (gw_device_text(d, t))
			figure_line(gw_text_key(t), "%s", gw_device_text(d, t));
		else if (c->verbose)
			figure_line(gw_text_key(t), "- (%s)",
				    gw_absence_text(gw_device_text_absence(d, t)));
	figure_line("provenance", "%s", gw_provenance_name(d->provenance));
	figure_line("state", "%s%s%s", gw_device_state_name(d->state), *d->message ? ": " : "",
		    d->message);
	for (unsigned q = 0; q < GW_QUANTITIES; q++)
		if (gw_quantity_info(q)->tier &
			    (GW_TIER_STATIC | GW_TIER_HEALTH | GW_TIER_LIMITS) ||
		    q == GW_Q_MEMORY_TOTAL || q == GW_Q_TEMPERATURE_GPU || q == GW_Q_CLOCK_SM ||
		    q == GW_Q_CLOCK_MEMORY)
			figure_value(d, q, c->verbose);
}

static void print_text(const struct cli *c, const struct gw_environment *env)
{
	const struct gw_status *s = gw_snapshot_status(c->snap);
	const struct gw_device *d;
	const char *section = "";

	cli_print_status(c);
	for (unsigned i = 0; i < gw_environment_count(env); i++) {
		const struct gw_fact *f = gw_environment_get(env, i);

		if (f->absence != GW_HAVE && !c->verbose)
			continue;
		if (strcmp(section, f->section) != 0)
			print_heading(f->section);
		section = f->section;
		print_fact(f);
	}
	print_heading("driver");
	figure_line("backend", "%s", s->backend);
	figure_line("driver_version", "%s", s->driver_version ? s->driver_version : "-");
	figure_line("cuda_driver_version", "%s", s->cuda_version ? s->cuda_version : "-");
	figure_line("nvml_version", "%s", s->nvml_version ? s->nvml_version : "-");
	for (unsigned at = 0; (d = cli_next_device(c, &at));)
		print_device(c, d);
}

static int print_environment(const struct cli *c, const struct gw_environment *env)
{
	struct cli_document doc;

	if (!c->json) {
		print_text(c, env);
		return EXIT_OK;
	}
	cli_document_begin(&doc, true);
	render_environment(&doc.json, env, c->snap, &c->filter);
	return cli_document_end(&doc);
}

static int env_run(struct cli *c)
{
	struct gw_environment *env;
	int code = cli_open(c, GW_TIERS_COMMON), err;

	if (code != EXIT_OK)
		return code;
	err = gw_environment_new(c->ctx, &env);
	if (err)
		return cli_fail("%s", gw_strerror(err));
	code = print_environment(c, env);
	gw_environment_free(env);
	return code == EXIT_OK ? cli_device_exit_code(c) : code;
}

const struct command command_env = {
	.name = "env",
	.summary = "print the facts about this machine that a published result needs",
	.description = "Prints the facts that make a measurement repeatable: GPUs, driver, "
		       "limits, clocks, CPU, memory, kernel, container. cuda_driver_version is "
		       "the newest CUDA that the driver can run, not an installed toolkit. -v "
		       "also shows what is unknown, and why.",
	.examples = "  gpuward env\n"
		    "  gpuward env --json > environment.json\n",
	.verbose = "also show which values are missing, and why",
	.run = env_run,
};
