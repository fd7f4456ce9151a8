/* replay: turns the power samples of a bundle into a scenario for the simulator. */
#include "cli.h"
#include "output.h"

#include "base/array.h"
#include "measure/bundle.h"

#include "base/number.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct given {
	const char *output;
	double device; /* The GPU to replay. NAN: all GPUs. */
};

#define AT(member) offsetof(struct given, member)
static const struct option options[] = {
	OUTPUT_OPTION(AT(output)),
	OPTION_COUNT_ROW("device", AT(device),
			 "only this GPU of the bundle, counted from 0 (default: all)", 0, 63,
			 NAN),
	OPTION_END,
};

/* The simulator profile for each card. The first row whose word is in the name of the card is
 * used. */
static const struct {
	const char *word, *profile;
} profiles[] = {
	{ "GH200", "gh200" }, { "H200", "h200" },    { "H100", "h100" }, { "A100", "a100" },
	{ "A10", "a10" },     { "4090", "rtx4090" }, { "T4", "t4" },     { "V100", "v100" },
	{ "P100", "p100" },   { "K40", "k40" },
};

static const char *profile_of(const char *name)
{
	for (size_t i = 0; i < COUNT(profiles); i++)
		if (strstr(name, profiles[i].word))
			return profiles[i].profile;
	return "h200";
}

struct points {
	struct buf text;
	unsigned count;
	uint64_t first_ns;
};

static void add_point(void *arg, uint64_t t_ns, double watts)
{
	struct points *p = arg;
	char s[NUMBER_SIZE], w[NUMBER_SIZE];
	double seconds;

	if (p->count == 0)
		p->first_ns = t_ns;
	seconds = (double)(t_ns - p->first_ns) * 1e-9;
	/* Round to a microsecond and a microwatt, which is finer than any sensor. This keeps
	 * the numbers short. */
	number_format(round(seconds * 1e6) / 1e6, s);
	number_format(round(watts * 1e6) / 1e6, w);
	buf_addf(&p->text, "%s[%s, %s]", p->count ? ", " : "", s, w);
	if (++p->count % 8 == 0)
		buf_adds(&p->text, "\n  ");
}

static int add_gpu(struct buf *out, const char *dir, unsigned n, char *message, size_t size)
{
	struct points p = { .count = 0 };
	char name[96];
	bool simulated = false;
	int err;

	buf_init(&p.text, 64 << 20);
	err = bundle_power(dir, n, add_point, &p, name, sizeof(name), &simulated, message,
			   size);
	if (!err && p.text.err) {
		snprintf(message, size, "%s", gw_strerror(p.text.err));
		err = p.text.err;
	}
	if (!err && p.count == 0) {
		snprintf(message, size, "GPU %u of %s has no power sample to replay", n, dir);
		err = -GW_E_NOENT;
	}
	if (!err) {
		if (simulated)
			buf_addf(out, "\n# SIMULATED: the power is not that of a real GPU");
		buf_addf(out, "\n[[gpu]]\nprofile = \"%s\"\nnoise = 0\n", profile_of(name));
		buf_addf(out, "\n[[gpu.load]]\nkind = \"trace\"\npoints = [\n  %s]\n",
			 p.text.p);
	}
	buf_done(&p.text);
	return err;
}

static int add_all(struct buf *out, const char *dir, char *message, size_t size)
{
	int err = add_gpu(out, dir, 0, message, size);

	for (unsigned n = 1; !err; n++) {
		err = add_gpu(out, dir, n, message, size);
		if (err == -GW_E_NODEV)
			return 0;
	}
	return err;
}

static int replay_run(struct cli *c)
{
	const struct given *g = c->own;
	char message[5000];
	struct buf out;
	int err, code;

	if (c->argc != 1)
		return cli_usage("give the folder of one bundle: gpuward replay BUNDLE");
	if (output_spares(g->output, c->argv, c->argc) != EXIT_OK)
		return EXIT_USAGE;
	buf_init(&out, 256 << 20);
	buf_adds(&out, "# Power of a bundle, for gpuward --simulate=FILE\n");
	err = bundle_check_unchanged(c->argv[0], message, sizeof(message));
	if (!err)
		err = isnan(g->device) ? add_all(&out, c->argv[0], message, sizeof(message))
				       : add_gpu(&out, c->argv[0], (unsigned)g->device, message,
						 sizeof(message));
	code = err ? cli_fail("%s", message) : output_write(g->output, &out, c->quiet);
	buf_done(&out);
	return code;
}

const struct command command_replay = {
	.name = "replay",
	.summary = "turn a bundle into a scenario for the simulator",
	.description = "Writes a scenario in which simulated GPUs draw the same power as the "
		       "GPUs of the bundle, so that a measurement can be repeated without the "
		       "hardware, by gpuward or any program that uses NVML. The name of the "
		       "card selects the simulated card. The simulated power is what the "
		       "sensor reported, so it is already smoothed by the sensor.",
	.examples = "  gpuward replay run1 -o again.toml\n"
		    "  gpuward measure --simulate=again.toml -- sleep 10\n",
	.arguments = "BUNDLE",
	.options = options,
	.options_size = sizeof(struct given),
	.offline = true,
	.one_form = true,
	.run = replay_run,
};
