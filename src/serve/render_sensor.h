/* render_sensor: writes a sensor as JSON, as a document of its own or as a part of a result. */
#ifndef GW_SERVE_RENDER_SENSOR_H
#define GW_SERVE_RENDER_SENSOR_H

#include "render.h"

#include "measure/sensor.h"

/* A row of measure/sensor.def, for reading and writing JSON. */
struct sensor_field {
	enum {
		SENSOR_TEXT,
		SENSOR_UINT,
		SENSOR_BOOL,
		SENSOR_REAL,
		SENSOR_LATER = SENSOR_REAL,
		SENSOR_TIME,
		SENSOR_ORIGIN,
		SENSOR_MODEL,
		SENSOR_WHY,
		SENSOR_SCOPE,
	} kind;
	const char *key; /* path in the JSON object of a sensor */
	size_t offset;   /* in struct sensor */
};

/* The last row has the key NULL. */
extern const struct sensor_field sensor_fields[];

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
