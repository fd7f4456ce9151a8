#include "sensor.h"

#include "device/sampler_device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEPLER = 2, MAXWELL, PASCAL, VOLTA, TURING, AMPERE, ADA, HOPPER, BLACKWELL };

struct published {
	double period_s, window_s;
	enum sensor_model model;
};

/* The first matching row counts. Numbers from the SC'24 study of these sensors; ring spacings
 * from published logs. For RC-like sensors no time constant is published: 0.1 s is a guess. */
static const struct generation {
	unsigned first, last;           /* architecture, in NVML's numbering */
	int capability;                 /* 10 * major + minor; 0: any           */
	int driver_first, driver_last;  /* major version */
	const char *name;               /* part of the device's name; NULL: any */
	struct published draw, instant; /* the driver's power value; field 186 */
	double ring_gap_s;
} generations[] = {
	{ HOPPER, HOPPER, 0, 0, 9999, "GH200", { 0.1, 1, 0 }, { 0.1, 0.02, 0 }, 0.02 },
	{ HOPPER, HOPPER, 0, 0, 9999, NULL, { 0.1, 1, 0 }, { 0.1, 0.025, 0 }, 0.02 },
	{ AMPERE, AMPERE, 80, 0, 9999, NULL, { 0.1, 0.025, 0 }, { 0.1, 0.025, 0 }, 0.02 },
	/* Only driver 530 used the same name for something else. */
	{ AMPERE, ADA, 0, 530, 530, NULL, { 0.1, 0.1, 0 }, { 0.1, 0.1, 0 }, 1 },
	{ AMPERE, ADA, 0, 0, 9999, NULL, { 0.1, 1, 0 }, { 0.1, 0.1, 0 }, 1 },
	{ TURING, TURING, 0, 0, 9999, "RTX 8000", { 0.1, 0.02, 0 }, { 0.1, 0.02, 0 }, 0.02 },
	{ TURING, TURING, 0, 0, 9999, NULL, { 0.1, 0.1, 0 }, { 0.1, 0.1, 0 }, 0.02 },
	{ PASCAL, VOLTA, 0, 0, 9999, NULL, { 0.02, 0.01, 0 }, { 0.02, 0.01, 0 }, 0.02 },
	{ MAXWELL, MAXWELL, 0, 0, 9999, "M40", { 0.031, 0.014, 0 }, { 0.031, 0.014, 0 }, 0.02 },
	{ KEPLER,
	  MAXWELL,
	  0,
	  0,
	  9999,
	  NULL,
	  { 0.1, 0.1, SENSOR_LOWPASS },
	  { 0.1, 0.1, SENSOR_LOWPASS },
	  0.02 },
	/* Blackwell and later: nothing is published; same as Ada. */
	{ BLACKWELL, 999, 0, 0, 9999, NULL, { 0.1, 1, 0 }, { 0.1, 0.1, 0 }, 0.02 },
	/* Not an NVIDIA GPU, or an unknown one: a kernel file that changes ten times per
	 * second. */
	{ 0, 999, 0, 0, 9999, NULL, { 0.1, 0.1, 0 }, { 0.1, 0.1, 0 }, NAN },
};

/* As measured on an H200: a low-pass of 13.5 ms with a delay of 3.5 ms. */
#define RING_FILTER_S 0.0135
#define RING_LAG_S    0.017
#define RING_ENTRIES  119
#define TICK_S        0.1

static double number(const struct report *r, unsigned q)
{
	return report_has(r, q) ? r->v[q] : 0;
}

static const struct generation *generation_of(const struct report *r)
{
	unsigned architecture = (unsigned)number(r, GW_Q_ARCHITECTURE);
	int capability = (int)(10 * number(r, GW_Q_COMPUTE_CAPABILITY_MAJOR) +
			       number(r, GW_Q_COMPUTE_CAPABILITY_MINOR));
	int driver = atoi(r->text[GW_T_DRIVER]);
	const struct generation *g = generations;

	if (r->vendor != GW_VENDOR_NVIDIA)
		architecture = 0;
	if (driver == 0)
		driver = 9998;
	while (architecture < g->first || architecture > g->last ||
	       (g->capability && capability != g->capability) || driver < g->driver_first ||
	       driver > g->driver_last || (g->name && !strstr(r->text[GW_T_NAME], g->name)))
		g++; /* the last row matches everything */
	return g;
}

static struct sensor_source source_of(const struct published *p, enum gw_absence why)
{
	return (struct sensor_source){ .why = why,
				       .model = p->model,
				       .period_s = p->period_s,
				       .window_s = p->window_s,
				       .lag_s = p->model == SENSOR_BOXCAR ? p->window_s / 2
									  : p->window_s,
				       .call_p50_s = NAN,
				       .call_p99_s = NAN };
}

static bool has_nvml(const struct report *r)
{
	return r->vendor == GW_VENDOR_NVIDIA &&
	       (r->provenance == GW_FROM_DRIVER || r->provenance == GW_FROM_SIMULATOR);
}

/* Do all cards of this kind have every power value, so that none must be read to know it? */
static bool kind_has_power(const struct report *r)
{
	return has_nvml(r) && number(r, GW_Q_ARCHITECTURE) >= HOPPER;
}

/* Does the value exist? If it was not read yet: yes, if cards of its kind have it. */
static enum gw_absence value_absence(const struct report *r, unsigned quantity)
{
	enum gw_absence why = (enum gw_absence)r->why[quantity];

	return why == GW_ABSENT_NOT_READ && kind_has_power(r) ? GW_HAVE : why;
}

static void assume_ring(struct sensor *s, const struct generation *g, const struct report *r)
{
	s->ring = source_of(&g->instant, has_nvml(r) ? GW_HAVE : GW_ABSENT_NOT_SUPPORTED);
	s->ring.period_s = g->ring_gap_s;
	if (g->first == HOPPER) {
		s->ring.model = SENSOR_LOWPASS;
		s->ring.window_s = RING_FILTER_S;
		s->ring.lag_s = RING_LAG_S;
	}
	s->ring_wall = true;
	s->ring_entries = has_nvml(r) ? RING_ENTRIES : 0;
	s->ring_span_s = has_nvml(r) ? (RING_ENTRIES - 1) * g->ring_gap_s : NAN;
	s->ring_gap_p10_s = s->ring_gap_p90_s = NAN;
}

static void assume_counter(struct sensor *s, const struct report *r)
{
	bool volta = has_nvml(r) && number(r, GW_Q_ARCHITECTURE) >= VOLTA;

	s->counter = (enum gw_absence)r->why[GW_Q_ENERGY];
	if (s->counter == GW_ABSENT_NOT_READ && volta)
		s->counter = GW_HAVE;
	s->tick_s = TICK_S;
	s->counter_lag_s = 0;
	s->counter_safe_s = 1;
	s->counter_p50_s = s->counter_p99_s = NAN;
	for (unsigned i = 0; i < SENSOR_RATES; i++)
		s->rate[i] = (struct sensor_rate){ NAN, NAN, NAN };
}

unsigned sensor_average_quantity(const struct report *r)
{
	return report_has(r, GW_Q_POWER_AVERAGE) ? GW_Q_POWER_AVERAGE : GW_Q_POWER;
}

void sensor_assume(struct sensor *ret, const struct report *r)
{
	const struct generation *g = generation_of(r);

	memset(ret, 0, sizeof(*ret));
	snprintf(ret->uuid, sizeof(ret->uuid), "%s", r->text[GW_T_UUID]);
	snprintf(ret->driver, sizeof(ret->driver), "%s", r->text[GW_T_DRIVER]);
	snprintf(ret->vbios, sizeof(ret->vbios), "%s", r->text[GW_T_VBIOS]);
	ret->instant = source_of(&g->instant, value_absence(r, GW_Q_POWER_INSTANT));
	ret->average = source_of(&g->draw, value_absence(r, sensor_average_quantity(r)));
	assume_ring(ret, g, r);
	assume_counter(ret, r);
	ret->module_scope = strstr(r->text[GW_T_NAME], "GH200") != NULL;
	ret->gain = 1;
	ret->gain_u = SENSOR_GAIN_U;
	ret->offset_u_w = SENSOR_OFFSET_U_W;
}

const char *sensor_model_name(enum sensor_model m)
{
	return m == SENSOR_LOWPASS ? "lowpass" : "boxcar";
}

const char *sensor_origin_name(enum sensor_origin o)
{
	static const char *const names[] = { "assumed", "passive", "active" };

	return names[o];
}

const char *sensor_source_note(const struct sensor_source *s)
{
	if (s->why != GW_HAVE)
		return gw_absence_text(s->why);
	if (s->changes >= SENSOR_CHANGES)
		return NULL;
	if (s->changes == 0)
		return "assumed; no change of its value was counted";
	return "few changes: an idle GPU repeats its values, or the values come slowly";
}

void sensor_note_ring(struct sensor *s, int n)
{
	if (s->origin != SENSOR_ASSUMED || s->ring.why != GW_HAVE || n >= 0)
		return;
	s->ring.why = n == -GW_E_NOSUPPORT ? GW_ABSENT_NOT_SUPPORTED : GW_ABSENT_LOST;
	s->ring_entries = 0;
}

void sensor_calibrate(struct sensor *s, const struct sensor *from)
{
	s->calibrated = from->calibrated;
	s->gain = from->gain;
	s->offset_w = from->offset_w;
	s->gain_u = from->gain_u;
	s->offset_u_w = from->offset_u_w;
	s->pivot_w = from->pivot_w;
	s->reference_u = from->reference_u;
}

int sensor_known_device(struct sampler_device *sd, const char *dir, struct sensor *ret,
			char *note, size_t size)
{
	struct report r;
	struct sensor kept;
	int err = -GW_E_NOENT;

	if (size)
		note[0] = '\0';
	sampler_device_read(sd, 0, false, &r);
	if (!report_has(&r, GW_Q_ARCHITECTURE)) /* usually read together with the name */
		sampler_device_read(sd, GW_TIER_STATIC, false, &r);
	if (!kind_has_power(&r))
		sampler_device_read(sd, GW_TIER_FAST, false, &r);
	sensor_assume(ret, &r);
	kept = *ret;
	if (dir)
		err = sensor_load(&kept, dir, note, size);
	if (!err && kept.origin == SENSOR_ASSUMED)
		sensor_calibrate(ret, &kept); /* what we assume now may be better */
	else if (!err)
		*ret = kept;
	if (err == -GW_E_NOENT && size)
		note[0] = '\0';
	return 0;
}

int sensor_known(struct gw_ctx *ctx, unsigned position, const char *dir, struct sensor *ret,
		 char *note, size_t size)
{
	struct sampler_device sd;
	struct power_sample sample[4];
	struct report r;
	int err = sampler_device_init(&sd, ctx, position);

	if (!err) {
		sampler_device_read(&sd, GW_TIER_FAST, false, &r);
		err = sensor_known_device(&sd, dir, ret, note, size);
	}
	if (!err)
		sensor_note_ring(ret, sampler_device_ring(&sd, sample, 4));
	return err;
}

int sensor_characterise(struct gw_ctx *ctx, unsigned position, const struct sensor_plan *plan,
			struct sensor *ret, char *message, size_t size)
{
	struct sampler_device sd;
	int err = sampler_device_init(&sd, ctx, position);

	return err ? err : sensor_learn(&sd, plan, ret, message, size);
}
