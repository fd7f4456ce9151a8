#include "calibration.h"

#include "cli.h"

#include "base/number.h"
#include "measure/distribution.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

int calibration_accuracy(const char *text, double *ret_ratio)
{
	const char *end;
	double v = text ? number_parse(text, &end) : 1;

	if (!text || (end != text && (!*end || strcmp(end, "%") == 0) && v >= 0 && v <= 20)) {
		*ret_ratio = v / 100;
		return EXIT_OK;
	}
	cli_error("--calibrate-accuracy takes per cent from 0 to 20 such as 0.5, not '%s'",
		  text);
	return EXIT_USAGE;
}

static void tell(struct measured_calibration *t, const struct calibrate_fit *f)
{
	t->points = f->points;
	t->lag_s = f->lag_s;
	t->correlation = f->correlation;
	t->residual_w = f->residual_w;
	t->span_s = f->span_s;
	t->gain = f->gain;
	t->gain_u = f->gain_u;
	t->offset_w = f->offset_w;
	t->offset_u_w = f->offset_u_w;
	t->pivot_w = f->pivot_w;
	t->measured_offset_w = f->measured_offset_w;
	t->offset_alone = f->offset_alone;
	t->wider = f->wider;
}

static void note(struct measured_calibration *t)
{
	unsigned n = 0;

	if (t->offset_alone)
		snprintf(t->note[n++], sizeof(t->note[0]),
			 "%s too little to tell the gain from the offset: the offset alone is "
			 "used, and holds near %.0f W",
			 isnan(t->correlation) ? "power varied"
					       : "the points, by how they scatter, say",
			 t->pivot_w);
	if (t->wider)
		snprintf(t->note[n++], sizeof(t->note[0]),
			 "the outside meter is %.0f W off where the GPU takes none: it "
			 "measures more than the GPU; that is left out, and the gain holds "
			 "losses and fans that follow the load",
			 t->measured_offset_w);
	if (t->passed_over)
		snprintf(t->note[n++], sizeof(t->note[0]),
			 "%zu line%s of the trace %s passed over: no time and power, or not "
			 "later than the one before",
			 t->passed_over, t->passed_over == 1 ? "" : "s",
			 t->passed_over == 1 ? "was" : "were");
}

int calibration_make(struct calibration *c, const char *path, const struct power_record *record,
		     double wall_s, double accuracy_ratio, char *why, size_t size)
{
	struct calibrate_fit fit;
	int err;

	memset(c, 0, sizeof(*c));
	err = trace_read(&c->trace, path, why, size);
	if (err)
		return err;
	for (size_t i = 0; i < c->trace.n; i++)
		c->trace.point[i].t_s -= wall_s;
	err = calibrate_fit(record, c->trace.point, c->trace.n, &fit, why, size);
	if (err) {
		trace_done(&c->trace);
		return err;
	}
	tell(&c->told, &fit);
	c->told.trace = path;
	c->told.passed_over = c->trace.passed_over;
	c->told.reference_u = accuracy_ratio / NORMAL_95;
	snprintf(c->told.sha256, sizeof(c->told.sha256), "%s", c->trace.sha256);
	note(&c->told);
	return 0;
}

void calibration_done(struct calibration *c)
{
	trace_done(&c->trace);
}

void calibration_apply(const struct calibration *c, struct sensor *s)
{
	const struct measured_calibration *t = &c->told;

	s->calibrated = true;
	s->gain = t->gain;
	s->gain_u = t->gain_u;
	s->offset_w = t->offset_w;
	s->offset_u_w = t->offset_u_w;
	s->pivot_w = t->pivot_w;
	s->reference_u = t->reference_u;
}
