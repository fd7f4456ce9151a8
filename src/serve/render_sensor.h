/* render_sensor: a sensor as JSON, alone and inside results. */
#ifndef GW_SERVE_RENDER_SENSOR_H
#define GW_SERVE_RENDER_SENSOR_H

#include "render.h"

#include "measure/sensor.h"

/* One object.  What is not known is null, with its reason below "absent" beside it. */
void sensor_json(struct json *j, const char *key, const struct sensor *s);

/* What became of one device. */
struct render_learned {
	unsigned device;             /* position in the snapshot              */
	const struct sensor *sensor; /* NULL: it failed, and message says why */
	const char *message;         /* NULL: nothing to say                  */
	const char *path;            /* where it is kept; NULL: nowhere       */
};

/* The whole document of `gpuward characterise`. */
void render_characterise(struct json *j, const struct gw_snapshot *snap,
			 const struct render_learned *learned, unsigned n);

#endif
