/* Any power trace: its points are numbers in time order; a fit has a plausible gain and no
 * negative uncertainty. */
#include "cli/calibrate.h"
#include "cli/cli.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Replaces the real function: nothing here prints an error. */
void cli_error(const char *fmt, ...)
{
	(void)fmt;
}

static struct power_record *load(void)
{
	static struct power_record record;

	if (record.samples == 0) {
		power_record_init(&record);
		for (double t = 0; t < 100; t += 0.1)
			power_record_add(&record, t, 300 + 200 * sin(t));
	}
	return &record;
}

static void check_fit(const struct trace *t)
{
	struct measured_calibration f;
	char why[512] = "";

	if (calibrate_fit(load(), t->point, t->n, &f, why, sizeof(why)) != 0) {
		if (!*why)
			abort();
		return;
	}
	if (!(f.gain > 0.5 && f.gain < 2) || !(f.gain_u >= 0) || !(f.offset_u_w >= 0) ||
	    f.points < CALIBRATE_LEAST || fabs(f.offset_w) > 1000)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), why[512] = "";
	struct trace t;

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	if (trace_parse(&t, "x", text, size, why, sizeof(why)) != 0) {
		if (!*why)
			abort();
		return 0;
	}
	for (size_t i = 0; i < t.n; i++)
		if (!isfinite(t.point[i].w) || (i && !(t.point[i].t_s > t.point[i - 1].t_s)))
			abort();
	check_fit(&t);
	trace_done(&t);
	return 0;
}
