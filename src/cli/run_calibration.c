#include "run_calibration.h"

#include "measure/energy.h"

#include <stdio.h>
#include <stdlib.h>

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
	result->calibration = &c->fit.told;
	return 0;
}

void run_calibration_marks(const struct run_calibration *c, struct progress_marks *m)
{
	for (unsigned i = 0; i < m->count; i++)
		if (m->window[i].energy)
			energy_calibrate(&m->window[i].energy[0], &c->sensor);
}

int run_calibration_keep(struct run_calibration *c)
{
	char dir[3800];
	int err = sensor_directory(dir, sizeof(dir));

	if (err) {
		snprintf(c->why, sizeof(c->why),
			 "neither XDG_CACHE_HOME nor HOME names a folder");
		return err;
	}
	return sensor_save(&c->sensor, dir, c->why, sizeof(c->why));
}
