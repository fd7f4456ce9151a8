/* render_sensor: writes a sensor as JSON, alone and inside results. */
#ifndef GW_SERVE_RENDER_SENSOR_H
#define GW_SERVE_RENDER_SENSOR_H

#include "render.h"

#include "measure/sensor.h"

/* Writes one object. Unknown values are null, with the reason in "absent" next to them. */
void sensor_json(struct json *j, const char *key, const struct sensor *s);

/* The result of `gpuward characterise` for one device. */
struct render_learned {
	unsigned device;             /* index in the snapshot */
	const struct sensor *sensor; /* NULL: the measurement failed, and `message` says why */
	const char *message;         /* a sentence about the result; NULL: none */
	const char *path;            /* file with the stored sensor; NULL: not stored */
};

/* Writes the whole document of `gpuward characterise`. */
void render_characterise(struct json *j, const struct gw_snapshot *snap,
			 const struct render_learned *learned, unsigned n);

#endif
