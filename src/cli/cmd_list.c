/* list: prints the GPUs of this machine, also those that do not work. */
#include "cli.h"
#include "output.h"
#include "table.h"

#include <string.h>

enum { INDEX, NAME, MEMORY, STATE, PCI, UUID, DRIVER, SOURCE, NOTE };

static const struct table_column columns[] = {
	[INDEX] = { "GPU", 0, true, false },      [NAME] = { "NAME", 0, false, true },
	[MEMORY] = { "MEMORY", 2, true, false },  [STATE] = { "STATE", 0, false, false },
	[PCI] = { "PCI", 4, false, false },       [UUID] = { "UUID", 3, false, false },
	[DRIVER] = { "DRIVER", 6, false, false }, [SOURCE] = { "SOURCE", 5, false, false },
	[NOTE] = { "NOTE", 1, false, true },      { NULL, 0, false, false },
};

static void add_mig(struct table *t, const struct gw_device *d)
{
	for (unsigned i = 0; i < d->mig_count; i++) {
		const struct gw_mig *m = d->mig[i];
		/* Leave out the name of the board, which is in the row above. */
		const char *profile = strstr(m->name, "MIG ");
		char size[16];

		table_row(t);
		table_set(t, INDEX, TERM_DIM, "%u:%u", d->index, m->index);
		table_set(t, NAME, TERM_DIM, "%s", profile ? profile : "MIG instance");
		table_set(t, STATE, TERM_DIM, "mig");
		table_set(t, UUID, TERM_DIM, "%s", m->uuid);
		if (m->memory_absence == GW_HAVE)
			table_text(t, MEMORY, TERM_DIM,
				   figure_bytes(size, (double)m->memory_total_bytes));
	}
}

static void add_device(struct table *t, const struct gw_device *d)
{
	char size[16];
	double v;

	table_row(t);
	table_set(t, INDEX, TERM_PLAIN, "%u", d->index);
	table_text(t, NAME, TERM_PLAIN, gw_device_text(d, GW_T_NAME));
	if (gw_device_value(d, GW_Q_MEMORY_TOTAL, &v) == GW_HAVE)
		table_text(t, MEMORY, TERM_PLAIN, figure_bytes(size, v));
	table_set(t, STATE, cli_state_style(d->state), "%s", gw_device_state_name(d->state));
	table_text(t, PCI, TERM_PLAIN, gw_device_text(d, GW_T_PCI));
	table_text(t, UUID, TERM_PLAIN, gw_device_text(d, GW_T_UUID));
	table_text(t, DRIVER, TERM_PLAIN, gw_device_text(d, GW_T_DRIVER));
	table_set(t, SOURCE, d->provenance == GW_FROM_SIMULATOR ? TERM_MARK : TERM_PLAIN, "%s",
		  gw_provenance_name(d->provenance));
	table_text(t, NOTE, TERM_PLAIN, d->message);
	add_mig(t, d);
}

static int print_table(const struct cli *c)
{
	bool none = cli_device_exit_code(c) == EXIT_NO_GPU;
	const struct gw_device *d;
	struct table t;

	/* If a GPU is needed and there is none, the status is an error: print it to standard
	 * error, and nothing to standard output. */
	if (none)
		term_to_stderr(true);
	cli_print_status(c);
	if (none)
		term_to_stderr(false);
	table_init(&t, columns);
	for (unsigned at = 0; (d = cli_next_device(c, &at));)
		add_device(&t, d);
	table_end(&t, term_width());
	return cli_device_exit_code(c);
}

static int list_run(struct cli *c)
{
	struct cli_document doc;
	int code = cli_open(c, 0);

	if (code != EXIT_OK)
		return code;
	if (!c->json)
		return print_table(c);
	cli_document_begin(&doc, true);
	render_list(&doc.json, c->snap, &c->filter);
	code = cli_document_end(&doc);
	return code ? code : cli_device_exit_code(c);
}

const struct command command_list = {
	.name = "list",
	.summary = "list the GPUs of this machine",
	.description =
		"Lists the GPUs of this machine with their name, UUID, memory and state. A GPU "
		"that is asleep, lost or not responding is listed, too, with the reason.",
	.examples = "  gpuward list\n"
		    "  gpuward list --json | jq -r '.devices[].uuid'\n"
		    "  gpuward list --gpu visible   GPUs in CUDA_VISIBLE_DEVICES\n",
	.run = list_run,
};
