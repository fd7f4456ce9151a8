/* A window of the service is written and read back; every field of a device must be the
 * same. */
#include "cli/window_read.h"
#include "serve/render_sensor.h"

#include "test.h"

#include <math.h>

static double next;

static double figure(void)
{
	return next += 1.25;
}

/* Every double between two members, both included, gets a different value. */
#define FIGURES(first, last)                          \
	for (double *p = &(first); p <= &(last); p++) \
	*p = figure()

/* Every field of the table gets a different value, so that a field that is not read back is
 * noticed. */
static struct gw_energy an_energy(void)
{
	const struct gw_energy_field *f;
	struct gw_energy e;

	memset(&e, 0x40, sizeof(e));
	for (unsigned i = 0; (f = gw_energy_field(i)); i++) {
		void *at = (char *)&e + f->offset;

		switch (f->kind) {
		case GW_FIELD_INDEX: *(unsigned *)at = (unsigned)figure(); break;
		case GW_FIELD_FLAG: *(int *)at = 1; break;
		case GW_FIELD_TIME:
		case GW_FIELD_COUNT: *(uint64_t *)at = (uint64_t)figure(); break;
		case GW_FIELD_CODES: *(uint64_t *)at = UINT64_C(5); break;
		case GW_FIELD_NUMBER: *(double *)at = figure(); break;
		case GW_FIELD_INTERVAL: FIGURES(((double *)at)[0], ((double *)at)[2]); break;
		case GW_FIELD_WORD: *(unsigned *)at = f->missing ? 1 : f->count - 1; break;
		case GW_FIELD_LIST:
			FIGURES(((double *)at)[0], ((double *)at)[f->count - 1]);
			break;
		}
	}
	return e;
}

static void a_source(struct sensor_source *s, enum sensor_model model)
{
	*s = (struct sensor_source){ .why = GW_HAVE, .model = model, .changes = 117 };
	FIGURES(s->period_s, s->lag_s);
	FIGURES(s->call_p50_s, s->call_p99_s);
}

static struct sensor a_sensor(void)
{
	struct sensor s = { .uuid = "GPU-1",
			    .driver = "580.1",
			    .vbios = "96.00",
			    .origin = SENSOR_ACTIVE,
			    .ring_entries = 120,
			    .ring_wall = true,
			    .counter_unsafe = true,
			    .ticks = 33,
			    .module_scope = true,
			    .calibration.done = true,
			    .wall_ns = UINT64_C(1700000000000000000) };

	a_source(&s.ring, SENSOR_LOWPASS);
	a_source(&s.instant, SENSOR_BOXCAR);
	a_source(&s.average, SENSOR_LOWPASS);
	s.average.why = GW_ABSENT_NO_PERMISSION;
	s.ring_span_s = figure();
	FIGURES(s.tick_s, s.counter_safe_s);
	FIGURES(s.counter_p50_s, s.counter_p99_s);
	FIGURES(s.calibration.gain, s.calibration.reference_u);
	FIGURES(s.ring_gap_p10_s, s.ring_gap_p90_s);
	for (unsigned i = 0; i < SENSOR_RATES; i++)
		FIGURES(s.rate[i].every_s, s.rate[i].reference_w);
	return s;
}

static struct attribute the_shares(void)
{
	struct attribute a;

	attribute_init(&a, NAN, NAN);
	a.idle_known = true;
	a.idle_joules = figure();
	a.unattributed_joules = figure();
	a.count = 2;
	a.row[0] = (struct attribute_row){ .id = { 4711, 99 },
					   .name = "train",
					   .joules = figure(),
					   .how = ATTRIBUTE_MODELLED };
	a.row[1] = (struct attribute_row){ .id = { .pid = 12 },
					   .name = "other",
					   .joules = figure(),
					   .how = ATTRIBUTE_MEASURED };
	return a;
}

static void write_window(struct buf *out, const struct measured_device *d)
{
	struct json j;

	buf_init(out, 1 << 20);
	json_init(&j, out, false);
	json_object(&j, NULL);
	json_double(&j, "seconds", 12.5);
	json_array(&j, "devices");
	json_object(&j, NULL);
	json_uint(&j, "index", d->index);
	json_string(&j, "uuid", d->uuid);
	json_string(&j, "name", d->name);
	json_string(&j, "provenance", gw_provenance_name(d->provenance));
	render_energy(&j, &d->energy);
	render_energy_detail(&j, &d->energy);
	json_object_end(&j);
	json_array_end(&j);
	json_array(&j, "details");
	json_object(&j, NULL);
	json_string(&j, "driver_version", d->driver);
	json_double(&j, "power_limit_watts", d->power_limit_w);
	json_object(&j, "evidence");
	json_string(&j, "short", "2 s");
	json_object_end(&j);
	sensor_json(&j, "sensor", &d->sensor);
	render_shares(&j, d->processes ? &d->who : NULL);
	json_object_end(&j);
	json_array_end(&j);
	json_object_end(&j);
	assert_int_equal(json_end(&j), 0);
}

static struct json_doc *parsed(const char *text)
{
	struct json_doc *doc = NULL;
	char why[200];

	if (json_doc_new(text, strlen(text), &doc, why, sizeof(why)) != 0)
		fail_msg("%s", why);
	return doc;
}

TEST(every_field_of_a_device_reads_back)
{
	struct measured_device d = { .index = 3,
				     .uuid = "GPU-1",
				     .name = "NVIDIA H200",
				     .driver = "580.1",
				     .provenance = GW_FROM_SIMULATOR,
				     .power_limit_w = 700,
				     .processes = true },
			       back;
	struct buf text, again;
	struct json_doc *doc;
	char evidence[100];

	d.energy = an_energy();
	d.sensor = a_sensor();
	d.who = the_shares();
	write_window(&text, &d);
	assert_null(strstr(text.p, "NaN"));
	doc = parsed(text.p);
	assert_true(window_read_device(doc, 0, &back));
	write_window(&again, &back);
	assert_string_equal(again.p, text.p);
	assert_true(back.energy.seconds == 12.5);
	assert_true(back.energy.calibrated && back.energy.gain == d.sensor.calibration.gain);
	window_read_evidence(doc, 0, GW_CODE_SHORT, evidence, sizeof(evidence));
	assert_string_equal(evidence, "2 s");
	window_read_evidence(doc, 0, GW_CODE_THROTTLE_POWER, evidence, sizeof(evidence));
	assert_string_equal(evidence, "");
	json_doc_free(doc);
	buf_done(&text);
	buf_done(&again);
}

TEST(missing_fields_are_unknown)
{
	static const char *const documents[] = {
		"{\"devices\":[{\"index\":0}]}",
		"{}",
		"[1]",
		"{\"devices\":[{\"codes\":[1,{}],\"energy_joules\":[3]}],\"details\":[7]}",
		"{\"devices\":[null],\"details\":null}",
	};
	struct measured_device d;

	for (unsigned i = 0; i < COUNT_OF(documents); i++) {
		struct json_doc *doc = parsed(documents[i]);

		assert_false(window_read_device(doc, 0, &d));
		assert_true(isnan(d.energy.joules.best));
		assert_true(isnan(d.power_limit_w));
		assert_int_equal(d.energy.validity, GW_NO_RESULT);
		assert_true(d.energy.codes == UINT64_C(1) << GW_CODE_TRUNCATED);
		assert_int_equal(d.sensor.counter, GW_ABSENT_NOT_READ);
		assert_false(d.processes);
		json_doc_free(doc);
	}
}

TEST_MAIN(NULL, NULL)
