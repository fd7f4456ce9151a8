#include "sensor.h"
#include "device/tap.h"
#include <math.h>
#include <string.h>
int sensor_directory(char *out, size_t size)
{
	(void)out;
	(void)size;
	return -1;
}
int sensor_known_tap(struct tap *t, const char *dir, struct sensor *s, char *note, size_t size)
{
	(void)t;
	(void)dir;
	(void)note;
	(void)size;
	memset(s, 0, sizeof(*s));
	s->ring = (struct sensor_source){
		.model = SENSOR_LOWPASS, .period_s = 0.02, .window_s = 0.0135, .lag_s = 0.017
	};
	s->instant =
		(struct sensor_source){ .period_s = 0.1, .window_s = 0.025, .lag_s = 0.0125 };
	s->average = (struct sensor_source){ .period_s = 0.1, .window_s = 1, .lag_s = 0.5 };
	s->ring_span_s = 2.36;
	s->tick_s = 0.1;
	s->counter_safe_s = 1;
	s->gain = 1;
	s->gain_u = 0.025;
	s->offset_u_w = 2.5;
	return 0;
}
