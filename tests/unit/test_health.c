/* Tests health with an artificial GPU: each test sets the GPU's values and events. */
#define TEST_SETUP    fresh
#define TEST_TEARDOWN done
#include "simtest.h"

#include "guard/guard.h"
#include "guard/health.h"

#include "base/clock.h"
#include "device/nvml_abi.h"
#include "measure/stat.h"

#include <math.h>
#include <time.h>

#define S NS_PER_S

static struct {
	struct health *h;
	struct gw_device d;
	double value[GW_QUANTITIES];
	uint8_t why[GW_QUANTITIES];
	uint64_t now;
	struct health_status s;
	unsigned changes; /* how often s.thermal changed */
} t;

static void set(unsigned q, double v)
{
	t.value[q] = v;
	t.why[q] = isnan(v) ? GW_ABSENT_NOT_SUPPORTED : GW_HAVE;
}

static int fresh_with(const struct health_options *o)
{
	health_free(t.h);
	memset(&t, 0, sizeof(t));
	memset(t.why, GW_ABSENT_NOT_SUPPORTED, sizeof(t.why));
	t.d.state = GW_DEVICE_OK;
	t.d.message = "";
	t.d.value_count = GW_QUANTITIES;
	t.d.value = t.value;
	t.d.value_absence = t.why;
	t.now = 1000 * S;
	return health_new(o, &t.h);
}

static int fresh(void **state)
{
	return fresh_with(NULL);
}

static int done(void **state)
{
	health_free(t.h);
	t.h = NULL;
	return 0;
}

static void read_after(uint64_t ns)
{
	bool before = t.s.thermal;

	t.now += ns;
	health_read(t.h, &t.d, t.now);
	health_status(t.h, t.now, &t.s);
	t.changes += before != t.s.thermal;
	if (t.s.level != HEALTH_OK) { /* each level has an explanation and an advice */
		assert_true(strlen(t.s.worst.why) > 10);
		assert_true(strlen(t.s.worst.advice) > 10);
	}
}

static void read_once(void)
{
	read_after(S);
}

static void read_times(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		read_once();
}

static void margin(double c)
{
	set(GW_Q_TEMPERATURE_MARGIN, c);
	set(GW_Q_TEMPERATURE_GPU, 87 - c);
}

static void read_margin(double c, unsigned times)
{
	margin(c);
	read_times(times);
}

static void read_value(unsigned q, double v, unsigned times)
{
	set(q, v);
	read_times(times);
}

static void event(uint64_t type, uint64_t data)
{
	health_event(t.h, &(struct health_event){ t.now, type, data });
	health_status(t.h, t.now, &t.s);
}

static void xid(unsigned number)
{
	event(ABI_EVENT_XID, number);
}

TEST(levels_follow_the_margin)
{
	read_margin(11, 1);
	assert_int_equal(t.s.level, HEALTH_OK);
	assert_string_equal(t.s.worst.why, "");
	assert_string_equal(t.s.margin_source, "margin");
	assert_int_equal(health_interval_ns(t.h), 10 * S);
	read_margin(10, 1);
	assert_int_equal(t.s.level, HEALTH_WARN);
	assert_int_equal(health_interval_ns(t.h), S);
	read_margin(5, 1);
	assert_int_equal(t.s.level, HEALTH_THROTTLE);
	assert_false(t.s.thermal);
	read_margin(2, 4);
	assert_int_equal(t.s.level, HEALTH_EVICT);
	assert_true(t.s.thermal);
	assert_in(t.s.worst.why, "85 C");
	assert_in(t.s.worst.why, "2 C below its limit");
	read_margin(-3, 1);
	assert_in(t.s.worst.why, "3 C above its limit");
}

TEST(a_gpu_that_cools_down_is_not_called_too_hot)
{
	read_margin(1, 4);
	assert_in(t.s.worst.why, "Too hot: 1 C below its limit");
	read_margin(22, 1);
	assert_true(t.s.thermal); /* the margin has not been large for long enough */
	assert_in(t.s.worst.why, "Was too hot and is cooling down: 22 C below its limit");
	read_margin(1, 1);
	assert_in(t.s.worst.why, "Too hot: 1 C below its limit");
}

TEST(three_critical_readings_do_not_act_and_four_do)
{
	read_margin(1, 3);
	assert_false(t.s.thermal);
	read_margin(3, 1);
	read_margin(1, 3);
	assert_false(t.s.thermal);
	read_once();
	assert_true(t.s.thermal);
}

TEST(a_hardware_slowdown_evicts_at_once)
{
	margin(6);
	read_value(GW_Q_CLOCK_REASONS, 0x40, 1);
	assert_true(t.s.thermal);
	assert_in(t.s.worst.why, "hardware");
}

TEST(a_clock_reason_of_a_newer_driver_hides_no_other)
{
	margin(6);
	read_value(GW_Q_CLOCK_REASONS, 0x7000000000040, 1);
	assert_true(t.s.thermal);
}

TEST(a_power_cap_is_not_a_fault)
{
	margin(40);
	read_value(GW_Q_CLOCK_REASONS, 0x4 | 0x8 | 0x80, 100);
	assert_int_equal(t.s.level, HEALTH_OK);
}

TEST(it_clears_after_half_a_minute_of_being_cool_enough)
{
	uint64_t cool;

	read_margin(2, 4);
	read_margin(6, 100); /* not cool enough: trip point + 5 is 7 */
	assert_true(t.s.thermal);
	assert_int_equal(t.s.worst.clears_ns, 0);
	read_margin(7, 1);
	cool = t.now;
	assert_int_equal(t.s.worst.clears_ns, cool + 30 * S);
	read_times(29);
	assert_true(t.s.thermal);
	read_margin(6.9, 1); /* the time begins again */
	read_margin(7, 30);
	assert_true(t.s.thermal);
	read_once();
	assert_false(t.s.thermal);
	assert_int_equal(t.s.level, HEALTH_THROTTLE); /* not yet cool enough: 7 < 5 + 5 */
	read_margin(15, 31);
	assert_int_equal(t.s.level, HEALTH_OK);
}

TEST(a_gpu_that_sleeps_after_it_was_too_hot_is_cool_after_half_a_minute)
{
	read_margin(2, 4);
	assert_true(t.s.thermal);
	t.d.state = GW_DEVICE_STALLED; /* its temperature is unknown */
	memset(t.why, GW_ABSENT_STALLED, sizeof(t.why));
	read_times(60);
	assert_true(t.s.thermal);
	t.d.state = GW_DEVICE_ASLEEP;
	memset(t.why, GW_ABSENT_ASLEEP, sizeof(t.why));
	read_times(30);
	assert_true(t.s.thermal && t.s.warm);
	read_once();
	assert_false(t.s.thermal || t.s.warm);
	assert_int_equal(t.s.level, HEALTH_OK);
}

TEST(noise_of_a_degree_makes_one_transition_each_way)
{
	struct random r;
	uint64_t seed = (uint64_t)time(NULL);

	print_message("seed %llu\n", (unsigned long long)seed);
	random_init(&r, seed);
	/* 0: near the trip point; 1: above the margin at which the reason clears */
	for (unsigned at = 0; at < 2; at++) {
		for (unsigned i = 0; i < 2000; i++)
			read_margin((at ? 9 : 2) + (double)random_below(&r, 3) - 1, 1);
		assert_int_equal(t.changes, at + 1);
	}
	assert_false(t.s.thermal);
}

TEST(a_margin_that_contradicts_the_temperature_is_not_used)
{
	set(GW_Q_TEMPERATURE_GPU, 35);
	set(GW_Q_TEMPERATURE_MARGIN, -3);
	set(GW_Q_TEMPERATURE_GPU_MAX, 87);
	read_value(GW_Q_TEMPERATURE_SLOWDOWN, 89, 10);
	assert_int_equal(t.s.level, HEALTH_OK);
	assert_string_equal(t.s.margin_source, "thresholds");
	assert_true(t.s.margin_c == 52);
	read_value(GW_Q_TEMPERATURE_GPU, 86, 4); /* now the margin is plausible */
	assert_string_equal(t.s.margin_source, "margin");
	assert_true(t.s.thermal);
	set(GW_Q_TEMPERATURE_GPU, 35); /* cold, but slowed down by heat: plausible */
	read_value(GW_Q_CLOCK_REASONS, 0x20, 1);
	assert_string_equal(t.s.margin_source, "margin");
}

TEST(thresholds_replace_a_missing_margin)
{
	set(GW_Q_TEMPERATURE_GPU, 80);
	read_value(GW_Q_TEMPERATURE_SLOWDOWN, 93, 1);
	assert_string_equal(t.s.margin_source, "thresholds");
	assert_true(t.s.margin_c == 13);
	set(GW_Q_TEMPERATURE_MEMORY, 104);
	read_value(GW_Q_TEMPERATURE_MEMORY_MAX, 105, 1);
	assert_true(t.s.margin_c == 1);
	assert_int_equal(t.s.level, HEALTH_THROTTLE);
	read_value(GW_Q_TEMPERATURE_MEMORY_MAX, 0, 1); /* some GPUs report 0 for unknown */
	assert_true(t.s.margin_c == 13);
}

TEST(without_any_limit_85_degrees_count)
{
	read_value(GW_Q_TEMPERATURE_GPU, 84, 10);
	assert_string_equal(t.s.margin_source, "fallback");
	assert_int_equal(t.s.level, HEALTH_OK);
	read_value(GW_Q_TEMPERATURE_GPU, 85, 3);
	assert_false(t.s.thermal);
	read_once();
	assert_true(t.s.thermal);
}

TEST(a_configured_limit_has_five_degrees_of_hysteresis)
{
	struct health_options o;

	health_options_init(&o);
	o.absolute_c = 85;
	assert_int_equal(fresh_with(&o), 0);
	set(GW_Q_TEMPERATURE_MARGIN, 1); /* ignored */
	read_value(GW_Q_TEMPERATURE_GPU, 84, 10);
	assert_string_equal(t.s.margin_source, "override");
	assert_int_equal(t.s.level, HEALTH_OK);
	read_value(GW_Q_TEMPERATURE_GPU, 85, 4);
	assert_int_equal(t.s.level, HEALTH_EVICT);
	read_value(GW_Q_TEMPERATURE_GPU, 81, 60);
	assert_true(t.s.thermal);
	read_value(GW_Q_TEMPERATURE_GPU, 80, 31);
	assert_int_equal(t.s.level, HEALTH_OK);
	assert_int_equal(t.changes, 2);
}

TEST(an_unreadable_value_is_unknown_and_changes_nothing)
{
	read_once();
	assert_true(isnan(t.s.margin_c));
	assert_string_equal(t.s.margin_source, "");
	assert_int_equal(t.s.level, HEALTH_OK);
	read_margin(1, 4);
	read_margin(NAN, 100);
	assert_true(t.s.thermal);
	t.d.state = GW_DEVICE_STALLED;
	read_times(100);
	assert_true(t.s.thermal);
	t.d.state = GW_DEVICE_OK;
	read_margin(30, 31);
	assert_false(t.s.thermal);
}

/* Asserts that nothing happens one degree below evict_at_c, and that four readings at
 * evict_at_c evict. */
static void trips_at(double c)
{
	assert_true(fabs(t.s.evict_at_c - c) < 1e-9);
	read_value(GW_Q_TEMPERATURE_GPU, c - 1, 10);
	assert_false(t.s.thermal);
	assert_true(fabs(t.s.evict_at_c - c) < 1e-9);
	read_value(GW_Q_TEMPERATURE_GPU, c, 4);
	assert_true(t.s.thermal);
	assert_true(fabs(t.s.evict_at_c - c) < 1e-9);
}

TEST(the_reported_eviction_temperature_is_where_it_happens)
{
	struct health_options o;

	read_value(GW_Q_TEMPERATURE_GPU, 60, 1);
	trips_at(85); /* a GPU without any limit */
	fresh(NULL);
	set(GW_Q_TEMPERATURE_GPU, 60);
	read_value(GW_Q_TEMPERATURE_SLOWDOWN, 90, 1);
	trips_at(88);
	health_options_init(&o);
	o.fallback_c = 70;
	o.evict_c = 4;
	assert_int_equal(fresh_with(&o), 0);
	read_value(GW_Q_TEMPERATURE_GPU, 60, 1);
	trips_at(70);
	o.absolute_c = 80;
	assert_int_equal(fresh_with(&o), 0);
	read_once();
	assert_true(t.s.evict_at_c == 80); /* evict_at_c is also known without a temperature */
	read_value(GW_Q_TEMPERATURE_GPU, 60, 1);
	trips_at(80);
	fresh(NULL);
	read_once();
	assert_true(isnan(t.s.evict_at_c));
}

TEST(the_eviction_temperature_follows_the_drivers_margin)
{
	margin(20);
	read_value(GW_Q_TEMPERATURE_GPU, 67, 1);
	assert_true(t.s.evict_at_c == 85);
	margin(17);
	read_value(GW_Q_TEMPERATURE_GPU, 70, 1);
	assert_true(t.s.evict_at_c == 85);
}

TEST(memory_flags_warn_and_do_not_quarantine)
{
	static const unsigned q[] = { GW_Q_ROWS_PENDING, GW_Q_ROWS_FAILED, GW_Q_PAGES_PENDING,
				      GW_Q_REPAIR_CHANNEL, GW_Q_REPAIR_TPC };

	for (unsigned i = 0; i < COUNT_OF(q); i++) {
		read_value(q[i], 1, 1);
		assert_int_equal(t.s.level, HEALTH_WARN);
		read_value(q[i], 0, 1);
		assert_int_equal(t.s.level, HEALTH_OK);
	}
}

TEST(new_uncorrectable_errors_quarantine_without_recovery_actions)
{
	read_value(GW_Q_ECC_UNCORRECTED, 7, 1); /* the Xid is from before the start */
	assert_int_equal(t.s.level, HEALTH_OK);
	read_value(GW_Q_ECC_UNCORRECTED, 0, 1); /* the driver was reloaded */
	assert_int_equal(t.s.level, HEALTH_OK);
	read_value(GW_Q_ECC_UNCORRECTED, 2, 1);
	assert_true(t.s.quarantine);
	assert_in(t.s.worst.why, "2 new uncorrectable");
}

TEST(with_a_recovery_action_new_errors_only_warn)
{
	set(GW_Q_RECOVERY_ACTION, 0);
	read_value(GW_Q_ECC_UNCORRECTED, 0, 1);
	read_value(GW_Q_ECC_UNCORRECTED, 1, 1);
	assert_int_equal(t.s.level, HEALTH_WARN);
	read_after(180 * S);
	assert_int_equal(t.s.level, HEALTH_OK);
}

TEST(a_recovery_action_found_at_the_start_quarantines)
{
	for (unsigned action = 1; action < 10; action++) {
		fresh(NULL);
		read_value(GW_Q_RECOVERY_ACTION, action, 1);
		assert_int_equal(t.s.level, HEALTH_QUARANTINE);
		assert_true(t.s.quarantine);
	}
}

TEST(quarantine_ends_after_a_clean_minute)
{
	read_value(GW_Q_RECOVERY_ACTION, 4, 100);
	assert_int_equal(t.s.worst.clears_ns, 0);
	read_value(GW_Q_RECOVERY_ACTION, 0, 1);
	assert_int_equal(t.s.worst.clears_ns, t.now + 60 * S);
	read_times(30);
	t.d.state = GW_DEVICE_CLOSED; /* the driver is reloaded; no value is known */
	read_once();
	assert_true(t.s.quarantine);
	t.d.state = GW_DEVICE_OK;
	read_times(60);
	assert_true(t.s.quarantine);
	read_once();
	assert_int_equal(t.s.level, HEALTH_OK);
}

TEST(a_lost_gpu_is_quarantined_until_it_is_back_and_clean)
{
	set(GW_Q_RECOVERY_ACTION, 0);
	read_margin(30, 1);
	t.d.state = GW_DEVICE_LOST;
	t.d.message = "the GPU is off the bus";
	read_once();
	assert_true(t.s.quarantine);
	assert_true(isnan(t.s.margin_c));
	assert_in(t.s.worst.why, "off the bus");
	t.d.state = GW_DEVICE_OK;
	t.d.message = "";
	read_times(61);
	assert_int_equal(t.s.level, HEALTH_OK);
}

TEST(a_fault_that_the_driver_reports_warns)
{
	t.d.state = GW_DEVICE_FAULT;
	t.d.message = "the InfoROM is corrupted";
	read_once();
	assert_int_equal(t.s.level, HEALTH_WARN);
	assert_in(t.s.worst.why, "InfoROM");
}

/* The classes of Xids as lists, independent of xid.def. */
static const char *const lists[XID_CLASSES] = {
	[XID_RESTART_APP] = ("8 11 13 25 31 32 39-41 60 68-72 75-77 80 82-86 88 89 94 96-105 "
			     "126-135 139"),
	[XID_RESET_GPU] = "46 62 64 95 109 110 119 120 136 140 143 155 156 158",
	[XID_REBOOT] = "79",
	[XID_RESTART_VM] = "151",
	[XID_MECHANICS] = "54",
	[XID_UVM] = "159",
	[XID_UPDATE] = "78",
	[XID_VENDOR] = "142",
	[XID_IGNORE] = "37 38 43 44 63 66 67 92 93 106 107 121 137 141 152 153 157 160 161",
	[XID_WORKFLOW] = "45 48 74 144-150",
	[XID_RECOVERY] = "154",
};

static enum xid_class listed(unsigned number)
{
	for (unsigned c = 0; c < XID_UNKNOWN; c++) {
		const char *p = lists[c];

		while (p && *p) {
			char *end;
			unsigned long from = strtoul(p, &end, 10), to = from;

			if (*end == '-')
				to = strtoul(end + 1, &end, 10);
			if (number >= from && number <= to)
				return (enum xid_class)c;
			p = *end ? end + 1 : end;
		}
	}
	return XID_UNKNOWN;
}

static bool quarantines(enum xid_class c, unsigned number, bool action_known)
{
	if (c == XID_WORKFLOW)
		return number == 48 && !action_known;
	return c == XID_RESET_GPU || c == XID_REBOOT || c == XID_VENDOR;
}

TEST(every_xid_has_the_consequence_of_its_class)
{
	for (unsigned known = 0; known < 2; known++)
		for (unsigned n = 0; n <= 1000; n++) {
			enum xid_class c = listed(n);

			fresh(NULL);
			if (known)
				set(GW_Q_RECOVERY_ACTION, 0);
			read_once();
			xid(n);
			assert_int_equal(xid_class_of(n), c);
			assert_int_equal(t.s.quarantine, quarantines(c, n, known));
			if (c == XID_IGNORE || c == XID_RECOVERY)
				assert_int_equal(t.s.level, HEALTH_OK);
			else
				assert_true(t.s.level >= HEALTH_WARN);
			assert_int_equal(t.s.xids, 1);
			assert_int_equal(t.s.last_xid, n);
			read_once(); /* read_once() also asserts that the level has an advice */
		}
	assert_string_equal(xid_text(999), "unknown");
	assert_string_equal(xid_text(79), "GPU has fallen off the bus");
	assert_true(strlen(xid_table_version()) > 0);
}

TEST(every_class_can_be_written_in_a_rule)
{
	static const char *const wrong[] = { "",          "109",
					     "109=",      "=ignore",
					     "109=no",    "-1=ignore",
					     "1 =vendor", "4294967296=vendor" };
	struct xid_rule rule;
	char text[40];

	for (unsigned c = 0; c < XID_CLASSES; c++) {
		snprintf(text, sizeof(text), "%u=%s", 100 + c, xid_class_name(c));
		assert_int_equal(xid_rule_read(text, &rule), 0);
		assert_int_equal(rule.xid, 100 + c);
		assert_int_equal(rule.class, c);
	}
	for (unsigned i = 0; i < COUNT_OF(wrong); i++)
		assert_int_equal(xid_rule_read(wrong[i], &rule), -GW_E_PARSE);
}

TEST(the_first_reading_decides_about_an_earlier_xid_48)
{
	xid(48);
	assert_false(t.s.quarantine);
	xid(31); /* a less severe Xid after the severe one */
	read_once();
	assert_true(t.s.quarantine);
	assert_in(t.s.worst.why, "48");
	fresh(NULL);
	xid(48);
	read_value(GW_Q_RECOVERY_ACTION, 0, 1);
	assert_false(t.s.quarantine);
	assert_int_equal(t.s.level, HEALTH_WARN);
}

TEST(xid_154_shortens_the_interval)
{
	read_value(GW_Q_RECOVERY_ACTION, 0, 1);
	assert_int_equal(health_interval_ns(t.h), 10 * S);
	xid(154);
	assert_int_equal(health_interval_ns(t.h), S);
	read_once();
	assert_int_equal(health_interval_ns(t.h), S); /* a reading may be ten seconds old */
	read_value(GW_Q_RECOVERY_ACTION, 1, 1);
	assert_true(t.s.quarantine);
	set(GW_Q_RECOVERY_ACTION, 0);
	read_after(20 * S);
	assert_int_equal(health_interval_ns(t.h), 10 * S);
	event(ABI_EVENT_RECOVERY_ACTION, 0);
	assert_int_equal(health_interval_ns(t.h), S);
}

TEST(events_are_one_incident_until_three_minutes_of_silence)
{
	read_value(GW_Q_RECOVERY_ACTION, 0, 1);
	xid(94);
	for (unsigned i = 0; i < 10; i++) {
		read_after(170 * S);
		xid(63); /* ignored: it does not prolong the incident */
		assert_int_equal(t.s.level, i == 0 ? HEALTH_WARN : HEALTH_OK);
	}
	xid(94);
	for (unsigned i = 0; i < 10; i++) {
		read_after(170 * S);
		xid(31);
		assert_int_equal(t.s.level, HEALTH_WARN);
		assert_int_equal(t.s.worst.clears_ns, t.now + 180 * S);
	}
	read_after(180 * S);
	assert_int_equal(t.s.level, HEALTH_OK);
	assert_int_equal(t.s.xids, 21 + 1);
}

TEST(the_worst_event_of_an_incident_is_reported)
{
	read_value(GW_Q_RECOVERY_ACTION, 0, 1);
	xid(45);
	xid(119);
	xid(45);
	assert_true(t.s.quarantine);
	assert_in(t.s.worst.why, "119");
	assert_in(t.s.worst.advice, "reset");
}

TEST(without_recovery_actions_quarantine_lasts_as_long_as_the_incident)
{
	read_once();
	xid(48);
	read_once();
	assert_true(t.s.quarantine);
	read_times(179);
	assert_true(t.s.quarantine);
	read_times(2);
	assert_int_equal(t.s.level, HEALTH_OK);
}

TEST(an_operator_can_end_a_quarantine_without_a_cause)
{
	char why[200] = "";

	read_once();
	assert_int_equal(health_clear(t.h, t.now, why, sizeof(why)), 0); /* no quarantine */
	xid(79);
	assert_true(t.s.quarantine);
	assert_int_equal(health_clear(t.h, t.now, why, sizeof(why)), 0);
	read_once();
	assert_false(t.s.quarantine);
	assert_int_equal(t.s.level, HEALTH_OK);
	read_value(GW_Q_RECOVERY_ACTION, 1, 1);
	assert_true(t.s.quarantine);
	assert_int_equal(health_clear(t.h, t.now, why, sizeof(why)), -GW_E_STATE);
	assert_in(why, "reset the GPU");
	set(GW_Q_RECOVERY_ACTION, 0);
	t.d.state = GW_DEVICE_LOST;
	read_once();
	assert_int_equal(health_clear(t.h, t.now, why, sizeof(why)), -GW_E_STATE);
	assert_in(why, "does not answer");
	t.d.state = GW_DEVICE_OK;
	read_once();
	assert_true(t.s.quarantine);
	assert_int_equal(health_clear(t.h, t.now, why, sizeof(why)), 0);
	read_once();
	assert_false(t.s.quarantine);
}

TEST(configured_xid_rules_replace_the_table)
{
	struct health_options o;

	health_options_init(&o);
	o.xid[0] = (struct xid_rule){ 109, XID_RESTART_APP };
	o.xid[1] = (struct xid_rule){ 999, XID_VENDOR };
	o.xids = 2;
	assert_int_equal(fresh_with(&o), 0);
	read_once();
	xid(109);
	assert_int_equal(t.s.level, HEALTH_WARN);
	xid(999);
	assert_true(t.s.quarantine);
	assert_in(t.s.worst.why, "Xid 999");
	assert_int_equal(health_xid_class(t.h, 109), XID_RESTART_APP);
	assert_int_equal(health_xid_class(t.h, 79), XID_REBOOT);
	assert_int_equal(health_xid_class(NULL, 109), XID_RESET_GPU);
}

TEST(ecc_and_other_events_have_their_health_level)
{
	static const struct {
		uint64_t type;
		enum health_level without, with; /* level without and with a recovery action */
	} rows[] = {
		{ ABI_EVENT_ECC_SINGLE, HEALTH_OK, HEALTH_OK },
		{ ABI_EVENT_ECC_DOUBLE, HEALTH_QUARANTINE, HEALTH_WARN },
		{ ABI_EVENT_ECC_STORM, HEALTH_WARN, HEALTH_WARN },
		{ ABI_EVENT_DRAM_RETIRED, HEALTH_WARN, HEALTH_WARN },
		{ ABI_EVENT_DRAM_RETIRE_FAILED, HEALTH_WARN, HEALTH_WARN },
		{ ABI_EVENT_POISON, HEALTH_WARN, HEALTH_WARN },
		{ ABI_EVENT_POISON_FATAL, HEALTH_QUARANTINE, HEALTH_WARN },
		{ ABI_EVENT_GPU_UNAVAILABLE, HEALTH_QUARANTINE, HEALTH_QUARANTINE },
		{ ABI_EVENT_MIG_CHANGE, HEALTH_OK, HEALTH_OK },
		{ ABI_EVENT_POWER_SOURCE, HEALTH_OK, HEALTH_OK },
	};

	for (unsigned i = 0; i < 2 * COUNT_OF(rows); i++) {
		fresh(NULL);
		if (i % 2)
			set(GW_Q_RECOVERY_ACTION, 0);
		read_once();
		event(rows[i / 2].type, 0);
		assert_int_equal(t.s.level, i % 2 ? rows[i / 2].with : rows[i / 2].without);
		read_once();
	}
}

TEST(quarantine_and_heat_are_separate)
{
	set(GW_Q_RECOVERY_ACTION, 1);
	read_margin(1, 4);
	assert_true(t.s.thermal && t.s.quarantine);
	assert_int_equal(t.s.level, HEALTH_QUARANTINE);
	read_value(GW_Q_RECOVERY_ACTION, 0, 61);
	assert_true(t.s.thermal && !t.s.quarantine);
	assert_int_equal(t.s.heat, HEALTH_EVICT);
	assert_int_equal(t.s.level, HEALTH_EVICT);
}

static struct health_meaning meaning(void)
{
	struct health_meaning m;

	health_meaning(t.h, t.now, &m);
	assert_int_equal(m.reason[0].reason, REASON_THERMAL);
	assert_int_equal(m.reason[1].reason, REASON_HEALTH);
	return m;
}

TEST(a_warning_moves_no_worker)
{
	struct health_meaning m;

	margin(8);
	read_value(GW_Q_ROWS_PENDING, 1, 1);
	assert_int_equal(t.s.level, HEALTH_WARN);
	m = meaning();
	assert_false(m.reason[0].on || m.reason[1].on);
	assert_string_equal(m.reason[0].found.why, "");
	assert_int_equal(m.heat, 0);
}

/* A GPU can be hot and broken: each reason has its own finding and end. */
TEST(heat_is_a_separate_reason_during_a_quarantine)
{
	struct health_meaning m;

	read_margin(1, 4);
	m = meaning();
	assert_true(m.reason[0].on);
	assert_false(m.reason[1].on);
	assert_int_equal(m.heat, HEAT_THROTTLE | HEAT_WARM);
	read_value(GW_Q_RECOVERY_ACTION, 1, 1);
	m = meaning();
	assert_true(m.reason[0].on && m.reason[1].on);
	assert_in(m.heat_why, "Too hot");
	assert_in(m.reason[0].found.why, "Too hot");
	assert_in(m.reason[1].found.why, "reset the GPU");
	assert_string_equal(t.s.worst.why, m.reason[1].found.why);
	set(GW_Q_RECOVERY_ACTION, 0);
	read_margin(30, 31);
	m = meaning();
	assert_false(m.reason[0].on);
	assert_true(m.reason[1].on);
	assert_int_equal(m.heat, 0);
}

TEST(the_end_of_a_health_finding_follows_the_options)
{
	struct health_options o;
	struct health_meaning m;

	health_options_init(&o);
	o.clean_ns = 300 * S;
	o.clear_c = 8;
	o.clear_ns = 45 * S;
	assert_int_equal(fresh_with(&o), 0);
	set(GW_Q_RECOVERY_ACTION, 0);
	read_margin(1, 4);
	xid(79);
	m = meaning();
	assert_string_equal(
		m.reason[1].found.clears,
		"when the driver has reported no problem for 300 s, or by gpuward guard clear");
	assert_int_equal(m.reason[1].found.clears_ns, 0);
	assert_string_equal(m.reason[0].found.clears,
			    "when it has been 10 C or more below its limit for 45 s");
	read_margin(11, 1);
	m = meaning();
	assert_int_equal(m.reason[1].found.clears_ns, t.now + 300 * S);
	assert_int_equal(m.reason[0].found.clears_ns, t.now + 45 * S);
	/* without a known recovery action the incident must be over, too */
	set(GW_Q_RECOVERY_ACTION, NAN);
	o.clean_ns = 60 * S;
	health_set_options(t.h, &o);
	read_once();
	assert_in(meaning().reason[1].found.clears, "for 180 s");
}

static struct health *of[2];

static int sim_done(void **state)
{
	for (unsigned i = 0; i < 2; i++) {
		health_free(of[i]);
		of[i] = NULL;
	}
	return sim_teardown(state);
}

static void sim_begin(unsigned gpus)
{
	for (unsigned i = 0; i < gpus; i++)
		assert_int_equal(health_new(NULL, &of[i]), 0);
	sim_open();
}

/* Lets one second pass in the simulator and returns the health of the GPU. */
static struct health_status sim_second(unsigned gpu)
{
	struct health_status s = { 0 };

	sim_step(S);
	assert_int_equal(gw_snapshot_take(sim.snap, GW_TIERS_ALL), 0);
	for (unsigned i = 0; i < 2 && of[i]; i++)
		health_read(of[i], gw_snapshot_device(sim.snap, i), sim_mono(NULL));
	health_status(of[gpu], sim_mono(NULL), &s);
	return s;
}

static struct health_status sim_seconds(unsigned gpu, unsigned n)
{
	struct health_status s = { 0 };

	while (n--)
		s = sim_second(gpu);
	return s;
}

TEST_WITH(a_healthy_gpu_is_ok, NULL, sim_done)
{
	struct health_status s;

	sim_scenario("idle-h200");
	sim_begin(1);
	for (unsigned i = 0; i < 120; i++) {
		s = sim_second(0);
		assert_int_equal(s.level, HEALTH_OK);
		assert_string_equal(s.margin_source, "margin");
		assert_true(s.margin_c > 20);
	}
}

TEST_WITH(only_the_lost_gpu_is_quarantined, NULL, sim_done)
{
	sim_scenario("lost-gpu");
	sim_begin(2);
	assert_int_equal(sim_seconds(1, 4).level, HEALTH_OK);
	assert_true(sim_seconds(1, 3).quarantine);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(sim_second(0).level, HEALTH_OK);
	assert_true(sim_second(1).quarantine);
	/* by the scenario's clock, the GPU is back at 25 s, and it must be back for 60 s */
	assert_true(sim_seconds(1, 40).quarantine);
	assert_int_equal(sim_seconds(1, 120).level, HEALTH_OK);
}

TEST_WITH(a_requested_recovery_action_is_found, NULL, sim_done)
{
	sim_scenario("xid-storm");
	sim_begin(2);
	assert_int_equal(sim_seconds(1, 4).level, HEALTH_OK);
	assert_true(sim_seconds(1, 20).quarantine);
	assert_int_equal(sim_second(0).level, HEALTH_OK);
	assert_in(sim_second(1).worst.why, "drain and reset");
}

TEST_WITH(a_hot_gpu_is_evicted_once, NULL, sim_done)
{
	unsigned changes = 0;
	bool before = false;

	sim_scenario("thermal-throttle");
	sim_begin(1);
	for (unsigned i = 0; i < 300; i++) {
		struct health_status s = sim_second(0);

		changes += s.thermal != before;
		before = s.thermal;
	}
	assert_true(before);
	assert_int_equal(changes, 1);
}

static void past(unsigned number, uint64_t ago_ns)
{
	health_past(t.h, &(struct health_event){ t.now - ago_ns, ABI_EVENT_XID, number });
	health_status(t.h, t.now, &t.s);
}

TEST(a_past_xid_does_not_matter_without_a_requested_action)
{
	set(GW_Q_RECOVERY_ACTION, 0);
	past(62, 10 * S);
	past(79, 5 * S);
	read_once();
	past(95, S);
	assert_int_equal(t.s.level, HEALTH_OK);
	assert_int_equal(t.s.xids, 0);
	assert_int_equal(t.s.past_xids, 3);
	assert_int_equal(t.s.last_past_xid, 95);
}

TEST(a_past_xid_is_named_with_a_requested_reset)
{
	set(GW_Q_RECOVERY_ACTION, 1);
	past(95, 7 * 86400 * S / 1000);
	read_once();
	assert_true(t.s.quarantine);
	assert_in(t.s.worst.why, "after Xid 95");
}

TEST(without_recovery_actions_a_past_xid_counts_until_it_is_three_minutes_old)
{
	past(62, 200 * S);
	read_once();
	assert_int_equal(t.s.level, HEALTH_OK);
	past(62, 100 * S);
	assert_true(t.s.quarantine);
	assert_in(t.s.worst.why, "Xid 62");
	for (unsigned i = 0; i < 40; i++)
		read_after(10 * S);
	assert_int_equal(t.s.level, HEALTH_OK);
	assert_int_equal(t.s.past_xids, 2);
}

TEST(of_many_past_xids_the_latest_count)
{
	for (unsigned i = 0; i < 100; i++)
		past(13, (200 - i) * S);
	past(62, S);
	read_once();
	assert_true(t.s.quarantine);
	assert_int_equal(t.s.past_xids, 101);
}

TEST(corrected_errors_warn_by_their_rate)
{
	double n = 1000; /* from long ago */

	for (unsigned i = 0; i < 36; i++, n += 5) { /* 30 errors per hour, for six hours */
		set(GW_Q_ECC_CORRECTED, n);
		read_after(600 * S);
		assert_int_equal(t.s.level, HEALTH_OK);
	}
	set(GW_Q_ECC_CORRECTED, n + 100);
	read_after(60 * S);
	assert_int_equal(t.s.level, HEALTH_WARN);
	assert_in(t.s.worst.why, "corrected memory errors");
	for (unsigned i = 0; i < 8; i++)
		read_after(600 * S);
	assert_int_equal(t.s.level, HEALTH_OK);
	set(GW_Q_ECC_CORRECTED, 0); /* the driver was loaded again */
	read_after(60 * S);
	set(GW_Q_ECC_CORRECTED, 59);
	read_after(60 * S);
	assert_int_equal(t.s.level, HEALTH_OK);
	set(GW_Q_ECC_CORRECTED, 60);
	read_after(60 * S);
	assert_int_equal(t.s.level, HEALTH_WARN);
}

TEST_MAIN(sim_setup, NULL)
