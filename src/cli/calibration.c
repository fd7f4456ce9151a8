#include "calibration.h"

#include "cli.h"

#include "base/number.h"
#include "measure/distribution.h"
#include "measure/energy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int calibration_accuracy(const char *text, double *ret_ratio)
{
	const char *end;
	double v = text ? number_parse(text, &end) : 1;

	if (!text || (end != text && (!*end || strcmp(end, "%") == 0) && v >= 0 && v <= 20)) {
		*ret_ratio = v / 100;
		return EXIT_OK;
	}
	return cli_usage(
		"--calibrate-accuracy takes a percentage from 0 to 20 such as 0.5, not '%s'",
		text);
}

static void copy_fit(struct measured_calibration *t, const struct calibrate_fit *f)
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

static void write_notes(struct measured_calibration *t)
{
	unsigned n = 0;

	if (t->offset_alone)
		snprintf(t->note[n++], sizeof(t->note[0]),
			 "%s too little to determine the gain; only the offset is used, which "
			 "is valid near %.0f W",
			 isnan(t->correlation)
				 ? "the power varied"
				 : "compared with the scatter of the points, the power varied",
			 t->pivot_w);
	if (t->wider)
		snprintf(t->note[n++], sizeof(t->note[0]),
			 "the external meter reads %.0f W at zero GPU power, so it measures "
			 "more than the GPU; this offset is ignored, and the gain includes "
			 "losses and fans that follow the load",
			 t->measured_offset_w);
	if (t->passed_over)
		snprintf(t->note[n++], sizeof(t->note[0]),
			 "%zu line%s of the trace %s ignored: no time and power, or not later "
			 "than the line before",
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
	copy_fit(&c->summary, &fit);
	c->summary.trace = path;
	c->summary.passed_over = c->trace.passed_over;
	c->summary.reference_u = accuracy_ratio / NORMAL_95;
	snprintf(c->summary.sha256, sizeof(c->summary.sha256), "%s", c->trace.sha256);
	write_notes(&c->summary);
	return 0;
}

void calibration_done(struct calibration *c)
{
	trace_done(&c->trace);
}

void calibration_apply(const struct calibration *c, struct sensor *s)
{
	const struct measured_calibration *t = &c->summary;

	s->calibration = (struct sensor_calibration){ .done = true,
						      .gain = t->gain,
						      .gain_u = t->gain_u,
						      .offset_w = t->offset_w,
						      .offset_u_w = t->offset_u_w,
						      .pivot_w = t->pivot_w,
						      .reference_u = t->reference_u };
}

int run_calibration_init(struct run_calibration *c, const char *path, double accuracy_ratio)
{
	if (!path)
		return 0;
	c->record = malloc(sizeof(*c->record));
	if (!c->record)
		return -GW_E_NOMEM;
	power_record_init(c->record);
	pthread_mutex_init(&c->lock, NULL);
	c->path = path;
	c->accuracy_ratio = accuracy_ratio;
	return 0;
}

void run_calibration_done(struct run_calibration *c)
{
	if (c->fitted)
		calibration_done(&c->fit);
	if (c->record)
		pthread_mutex_destroy(&c->lock);
	free(c->record);
	c->record = NULL;
}

void run_calibration_event(struct run_calibration *c, const struct event *e)
{
	if (!c->record || e->type != EVENT_POWER)
		return;
	pthread_mutex_lock(&c->lock);
	power_record_add(c->record, (double)e->t_ns * 1e-9, e->u.power_w);
	pthread_mutex_unlock(&c->lock);
}

int run_calibration_end(struct run_calibration *c, struct measured *result)
{
	const struct measured_run *first = &result->run[0];
	double wall_s = ((double)first->begin_wall_ns - (double)first->begin_ns) * 1e-9;
	int err;

	pthread_mutex_lock(&c->lock);
	err = calibration_make(&c->fit, c->path, c->record, wall_s, c->accuracy_ratio, c->why,
			       sizeof(c->why));
	pthread_mutex_unlock(&c->lock);
	if (err)
		return err;
	c->fitted = true;
	c->sensor = first->device[0].sensor;
	calibration_apply(&c->fit, &c->sensor);
	result->calibration = &c->fit.summary;
	return 0;
}

void run_calibration_marks(const struct run_calibration *c, struct progress_marks *m)
{
	for (unsigned i = 0; i < m->count; i++)
		if (m->window[i].energy)
			energy_calibrate(&m->window[i].energy[0], &c->sensor.calibration);
}

int run_calibration_keep(struct run_calibration *c)
{
	char dir[3800];
	int err = sensor_directory(dir, sizeof(dir));

	if (err) {
		snprintf(c->why, sizeof(c->why),
			 "neither XDG_CACHE_HOME nor HOME is set to a folder");
		return err;
	}
	return sensor_save(&c->sensor, dir, c->why, sizeof(c->why));
}
