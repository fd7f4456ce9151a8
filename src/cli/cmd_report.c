/* report: results as one HTML page that needs nothing else: no network, no script. */
#include "cli.h"
#include "comparison.h"
#include "output.h"
#include "report.h"
#include "results.h"

#include <stddef.h>

struct given {
	const char *output, *title;
	bool across_gpus;
};

static const struct given *given(const struct cli *c)
{
	return c->own;
}

static int write_page(const struct cli *c, const struct results *r)
{
	struct comparison comparison;
	struct buf out;
	int code;

	if (comparison_init(&comparison, r->v, r->n) != 0) {
		cli_error("%s", gw_strerror(-GW_E_NOMEM));
		return EXIT_FAILED;
	}
	buf_init(&out, 256u << 20);
	report_page(&out, given(c)->title, &comparison, r->v, r->n);
	code = output_write(given(c)->output, &out);
	buf_done(&out);
	comparison_done(&comparison);
	return code;
}

static int run(struct cli *c)
{
	struct results results;
	int code = output_spares(given(c)->output, c->argv, c->argc);

	if (code != EXIT_OK)
		return code;
	code = results_load(&results, c, given(c)->across_gpus);
	if (code == EXIT_OK)
		code = write_page(c, &results);
	results_done(&results);
	return code;
}

static const struct option options[] = {
	{ "output", 'o', OPTION_TEXT, offsetof(struct given, output), "FILE",
	  "write there instead of standard output", NULL, NULL },
	{ "title", 0, OPTION_TEXT, offsetof(struct given, title), "TEXT",
	  "the heading of the page", NULL, NULL },
	{ "across-gpus", 0, OPTION_FLAG, offsetof(struct given, across_gpus), NULL,
	  "compare results of different GPUs too", NULL, NULL },
	{ NULL, 0, 0, 0, NULL, NULL, NULL, NULL },
};

const struct command command_report = {
	.name = "report",
	.summary = "write results as one HTML page with tables and plots",
	.description = "Writes one HTML file that needs no network and no script: the table of "
		       "gpuward compare, the energy of each label with its intervals, power, "
		       "throttling and temperature of each run over time, the environment, and "
		       "how the numbers were got.",
	.examples =
		"  gpuward report fp32.json fp16.json -o report.html\n"
		"  gpuward report --title='Quantisation, H200' runs/*.json -o report.html\n",
	.arguments = "RESULT...",
	.options = options,
	.options_size = sizeof(struct given),
	.offline = true,
	.one_form = true,
	.run = run,
};
