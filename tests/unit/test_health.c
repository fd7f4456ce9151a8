/* Health is fed by hand: a GPU of the test's own, whose figures are set one by one. */
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
	unsigned changes; /* of thermal */
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
	(void)state;
	return fresh_with(NULL);
}

static int done(void **state)
{
	(void)state;
	health_free(t.h);
	t.h = NULL;
	return 0;
}

static void reads_after(uint64_t ns)
{
	bool before = t.s.thermal;

	t.now += ns;
	health_read(t.h, &t.d, t.now);
	health_status(t.h, t.now, &t.s);
	t.changes += before != t.s.thermal;
	if (t.s.level != HEALTH_OK) { /* whatever it is, it is said, and what to do */
		assert_true(strlen(t.s.worst.why) > 10);
		assert_true(strlen(t.s.worst.advice) > 10);
	}
}

static void reads(void)
{
	reads_after(S);
}

static void reads_times(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		reads();
}

static void margin(double c)
{
	set(GW_Q_TEMPERATURE_MARGIN, c);
	set(GW_Q_TEMPERATURE_GPU, 87 - c);
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

/* ---- heat ---- */

static void levels_follow_the_margin(void **state)
{
	(void)state;
	margin(11);
	reads();
	assert_int_equal(t.s.level, HEALTH_OK);
	assert_string_equal(t.s.worst.why, "");
	assert_string_equal(t.s.margin_source, "margin");
	assert_int_equal(health_interval_ns(t.h), 10 * S);
	margin(10);
	reads();
	assert_int_equal(t.s.level, HEALTH_WARN);
	assert_int_equal(health_interval_ns(t.h), S);
	margin(5);
	reads();
	assert_int_equal(t.s.level, HEALTH_THROTTLE);
	assert_false(t.s.thermal);
	margin(2);
	reads_times(4);
	assert_int_equal(t.s.level, HEALTH_EVICT);
	assert_true(t.s.thermal);
	assert_non_null(strstr(t.s.worst.why, "85 C"));
	assert_non_null(strstr(t.s.worst.why, "2 C below its limit"));
	margin(-3);
	reads();
	assert_non_null(strstr(t.s.worst.why, "3 C above its limit"));
}

static void three_critical_readings_do_not_act_and_four_do(void **state)
{
	(void)state;
	margin(1);
	reads_times(3);
	assert_false(t.s.thermal);
	margin(3);
	reads();
	margin(1);
	reads_times(3);
	assert_false(t.s.thermal);
	reads();
	assert_true(t.s.thermal);
}

static void the_hardware_slowing_itself_down_acts_at_once(void **state)
{
	(void)state;
	margin(6);
	set(GW_Q_CLOCK_REASONS, 0x40);
	reads();
	assert_true(t.s.thermal);
	assert_non_null(strstr(t.s.worst.why, "hardware"));
}

static void a_power_cap_is_no_fault(void **state)
{
	(void)state;
	margin(40);
	set(GW_Q_CLOCK_REASONS, 0x4 | 0x8 | 0x80);
	reads_times(100);
	assert_int_equal(t.s.level, HEALTH_OK);
}

static void it_clears_after_half_a_minute_of_being_cool_enough(void **state)
{
	uint64_t cool;

	(void)state;
	margin(2);
	reads_times(4);
	margin(6); /* not enough: trip + 5 is 7 */
	reads_times(100);
	assert_true(t.s.thermal);
	assert_int_equal(t.s.worst.clears_ns, 0);
	margin(7);
	reads();
	cool = t.now;
	assert_int_equal(t.s.worst.clears_ns, cool + 30 * S);
	reads_times(29);
	assert_true(t.s.thermal);
	margin(6.9);
	reads(); /* begins anew */
	margin(7);
	reads_times(30);
	assert_true(t.s.thermal);
	reads();
	assert_false(t.s.thermal);
	assert_int_equal(t.s.level, HEALTH_THROTTLE); /* 7 < 5 + 5 */
	margin(15);
	reads_times(31);
	assert_int_equal(t.s.level, HEALTH_OK);
}

static void noise_of_a_degree_makes_one_transition_each_way(void **state)
{
	struct random r;
	uint64_t seed = (uint64_t)time(NULL);

	(void)state;
	print_message("seed %llu\n", (unsigned long long)seed);
	random_init(&r, seed);
	for (unsigned at = 0; at < 2; at++) { /* up at the trip, down at where it clears */
		for (unsigned i = 0; i < 2000; i++) {
			margin((at ? 9 : 2) + (double)random_below(&r, 3) - 1);
			reads();
		}
		assert_int_equal(t.changes, at + 1);
	}
	assert_false(t.s.thermal);
}

static void the_temperature_is_newer_than_the_margin(void **state)
{
	(void)state;
	margin(12);
	reads();
	set(GW_Q_TEMPERATURE_GPU, 75 + 4); /* the margin is of the last HEALTH reading */
	reads();
	assert_true(fabs(t.s.margin_c - 8) < 1e-9);
	assert_int_equal(t.s.level, HEALTH_WARN);
	set(GW_Q_TEMPERATURE_GPU, 70); /* cooler: a new margin is awaited */
	reads();
	assert_true(fabs(t.s.margin_c - 12) < 1e-9);
}

static void a_margin_that_contradicts_the_temperature_is_not_believed(void **state)
{
	(void)state;
	set(GW_Q_TEMPERATURE_GPU, 35);
	set(GW_Q_TEMPERATURE_MARGIN, -3);
	set(GW_Q_TEMPERATURE_GPU_MAX, 87);
	set(GW_Q_TEMPERATURE_SLOWDOWN, 89);
	reads_times(10);
	assert_int_equal(t.s.level, HEALTH_OK);
	assert_string_equal(t.s.margin_source, "thresholds");
	assert_true(t.s.margin_c == 52);
	set(GW_Q_TEMPERATURE_GPU, 86); /* now it may well be so */
	reads_times(4);
	assert_string_equal(t.s.margin_source, "margin");
	assert_true(t.s.thermal);
	set(GW_Q_TEMPERATURE_GPU, 35); /* cold, and yet slowed down for heat: believed */
	set(GW_Q_CLOCK_REASONS, 0x20);
	reads();
	assert_string_equal(t.s.margin_source, "margin");
}

static void thresholds_stand_in_for_the_margin(void **state)
{
	(void)state;
	set(GW_Q_TEMPERATURE_GPU, 80);
	set(GW_Q_TEMPERATURE_SLOWDOWN, 93);
	reads();
	assert_string_equal(t.s.margin_source, "thresholds");
	assert_true(t.s.margin_c == 13);
	set(GW_Q_TEMPERATURE_MEMORY, 104);
	set(GW_Q_TEMPERATURE_MEMORY_MAX, 105);
	reads();
	assert_true(t.s.margin_c == 1);
	assert_int_equal(t.s.level, HEALTH_THROTTLE);
	set(GW_Q_TEMPERATURE_MEMORY_MAX, 0); /* some say 0 where they know none */
	reads();
	assert_true(t.s.margin_c == 13);
}

static void without_any_limit_it_is_85_degrees(void **state)
{
	(void)state;
	set(GW_Q_TEMPERATURE_GPU, 84);
	reads_times(10);
	assert_string_equal(t.s.margin_source, "fallback");
	assert_int_equal(t.s.level, HEALTH_OK);
	set(GW_Q_TEMPERATURE_GPU, 85);
	reads_times(3);
	assert_false(t.s.thermal);
	reads();
	assert_true(t.s.thermal);
}

static void the_users_own_limit_has_five_degrees_of_hysteresis(void **state)
{
	struct health_options o;

	(void)state;
	health_options_init(&o);
	o.absolute_c = 85;
	assert_int_equal(fresh_with(&o), 0);
	set(GW_Q_TEMPERATURE_MARGIN, 1); /* not looked at */
	set(GW_Q_TEMPERATURE_GPU, 84);
	reads_times(10);
	assert_string_equal(t.s.margin_source, "override");
	assert_int_equal(t.s.level, HEALTH_OK);
	set(GW_Q_TEMPERATURE_GPU, 85);
	reads_times(4);
	assert_int_equal(t.s.level, HEALTH_EVICT);
	set(GW_Q_TEMPERATURE_GPU, 81);
	reads_times(60);
	assert_true(t.s.thermal);
	set(GW_Q_TEMPERATURE_GPU, 80);
	reads_times(31);
	assert_int_equal(t.s.level, HEALTH_OK);
	assert_int_equal(t.changes, 2);
}

static void what_cannot_be_read_is_unknown_and_changes_nothing(void **state)
{
	(void)state;
	reads();
	assert_true(isnan(t.s.margin_c));
	assert_string_equal(t.s.margin_source, "");
	assert_int_equal(t.s.level, HEALTH_OK);
	margin(1);
	reads_times(4);
	margin(NAN);
	reads_times(100);
	assert_true(t.s.thermal);
	t.d.state = GW_DEVICE_STALLED;
	reads_times(100);
	assert_true(t.s.thermal);
	t.d.state = GW_DEVICE_OK;
	margin(30);
	reads_times(31);
	assert_false(t.s.thermal);
}

/* What people are told is where it happens: one degree below nothing does, at it four readings do. */
static void trips_at(double c)
{
	assert_true(fabs(t.s.evict_at_c - c) < 1e-9);
	set(GW_Q_TEMPERATURE_GPU, c - 1);
	reads_times(10);
	assert_false(t.s.thermal);
	assert_true(fabs(t.s.evict_at_c - c) < 1e-9);
	set(GW_Q_TEMPERATURE_GPU, c);
	reads_times(4);
	assert_true(t.s.thermal);
	assert_true(fabs(t.s.evict_at_c - c) < 1e-9);
}

static void where_workers_leave_is_told_as_it_is(void **state)
{
	struct health_options o;

	(void)state;
	set(GW_Q_TEMPERATURE_GPU, 60);
	reads();
	trips_at(85); /* without any limit */
	fresh(NULL);
	set(GW_Q_TEMPERATURE_GPU, 60);
	set(GW_Q_TEMPERATURE_SLOWDOWN, 90);
	reads();
	trips_at(88);
	health_options_init(&o);
	o.fallback_c = 70;
	o.evict_c = 4;
	assert_int_equal(fresh_with(&o), 0);
	set(GW_Q_TEMPERATURE_GPU, 60);
	reads();
	trips_at(70);
	o.absolute_c = 80;
	assert_int_equal(fresh_with(&o), 0);
	reads();
	assert_true(t.s.evict_at_c == 80); /* also where the temperature is not told */
	set(GW_Q_TEMPERATURE_GPU, 60);
	reads();
	trips_at(80);
	fresh(NULL);
	reads();
	assert_true(isnan(t.s.evict_at_c));
}

static void of_the_drivers_margin_too(void **state)
{
	(void)state;
	margin(20);
	set(GW_Q_TEMPERATURE_GPU, 67);
	reads();
	assert_true(t.s.evict_at_c == 85);
	set(GW_Q_TEMPERATURE_GPU, 70); /* the margin is older than the temperature */
	reads();
	assert_true(t.s.evict_at_c == 85);
}

/* ---- memory ---- */

static void flags_of_the_memory_warn_and_do_not_quarantine(void **state)
{
	static const unsigned q[] = { GW_Q_ROWS_PENDING, GW_Q_ROWS_FAILED, GW_Q_PAGES_PENDING,
				      GW_Q_REPAIR_CHANNEL, GW_Q_REPAIR_TPC };

	(void)state;
	for (unsigned i = 0; i < sizeof(q) / sizeof(q[0]); i++) {
		set(q[i], 1);
		reads();
		assert_int_equal(t.s.level, HEALTH_WARN);
		set(q[i], 0);
		reads();
		assert_int_equal(t.s.level, HEALTH_OK);
	}
}

static void new_uncorrectable_errors_quarantine_where_no_recovery_action_is_told(void **state)
{
	(void)state;
	set(GW_Q_ECC_UNCORRECTED, 7); /* older than we are */
	reads();
	assert_int_equal(t.s.level, HEALTH_OK);
	set(GW_Q_ECC_UNCORRECTED, 0); /* the driver was reloaded */
	reads();
	assert_int_equal(t.s.level, HEALTH_OK);
	set(GW_Q_ECC_UNCORRECTED, 2);
	reads();
	assert_true(t.s.quarantine);
	assert_non_null(strstr(t.s.worst.why, "2 uncorrectable"));
}

static void with_a_recovery_action_new_errors_only_warn(void **state)
{
	(void)state;
	set(GW_Q_RECOVERY_ACTION, 0);
	set(GW_Q_ECC_UNCORRECTED, 0);
	reads();
	set(GW_Q_ECC_UNCORRECTED, 1);
	reads();
	assert_int_equal(t.s.level, HEALTH_WARN);
	reads_after(180 * S);
	assert_int_equal(t.s.level, HEALTH_OK);
}

/* ---- recovery actions and loss ---- */

static void a_recovery_action_found_at_the_start_quarantines(void **state)
{
	(void)state;
	for (unsigned action = 1; action < 10; action++) {
		fresh(NULL);
		set(GW_Q_RECOVERY_ACTION, action);
		reads();
		assert_int_equal(t.s.level, HEALTH_QUARANTINE);
		assert_true(t.s.quarantine);
	}
}

static void quarantine_ends_after_a_clean_minute(void **state)
{
	(void)state;
	set(GW_Q_RECOVERY_ACTION, 4);
	reads_times(100);
	assert_int_equal(t.s.worst.clears_ns, 0);
	set(GW_Q_RECOVERY_ACTION, 0);
	reads();
	assert_int_equal(t.s.worst.clears_ns, t.now + 60 * S);
	reads_times(30);
	t.d.state = GW_DEVICE_CLOSED; /* the driver is reloaded: nothing is known */
	reads();
	assert_true(t.s.quarantine);
	t.d.state = GW_DEVICE_OK;
	reads_times(60);
	assert_true(t.s.quarantine);
	reads();
	assert_int_equal(t.s.level, HEALTH_OK);
}

static void a_lost_gpu_is_in_quarantine_until_it_is_back_and_clean(void **state)
{
	(void)state;
	set(GW_Q_RECOVERY_ACTION, 0);
	margin(30);
	reads();
	t.d.state = GW_DEVICE_LOST;
	t.d.message = "the GPU is off the bus";
	reads();
	assert_true(t.s.quarantine);
	assert_true(isnan(t.s.margin_c));
	assert_non_null(strstr(t.s.worst.why, "off the bus"));
	t.d.state = GW_DEVICE_OK;
	t.d.message = "";
	reads_times(61);
	assert_int_equal(t.s.level, HEALTH_OK);
}

static void a_fault_that_the_driver_names_warns(void **state)
{
	(void)state;
	t.d.state = GW_DEVICE_FAULT;
	t.d.message = "the InfoROM is corrupted";
	reads();
	assert_int_equal(t.s.level, HEALTH_WARN);
	assert_non_null(strstr(t.s.worst.why, "InfoROM"));
}

/* ---- Xids ---- */

/* The classes as lists: another form than the table, and nothing in common with xid.def. */
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

static void every_xid_is_judged_by_its_class(void **state)
{
	(void)state;
	for (unsigned known = 0; known < 2; known++)
		for (unsigned n = 0; n <= 1000; n++) {
			enum xid_class c = listed(n);

			fresh(NULL);
			if (known)
				set(GW_Q_RECOVERY_ACTION, 0);
			reads();
			xid(n);
			assert_int_equal(xid_class_of(n), c);
			assert_int_equal(t.s.quarantine, quarantines(c, n, known));
			if (c == XID_IGNORE || c == XID_RECOVERY)
				assert_int_equal(t.s.level, HEALTH_OK);
			else
				assert_true(t.s.level >= HEALTH_WARN);
			assert_int_equal(t.s.xids, 1);
			assert_int_equal(t.s.last_xid, n);
			reads(); /* says what to do */
		}
	assert_string_equal(xid_text(999), "unknown");
	assert_string_equal(xid_text(79), "GPU has fallen off the bus");
	assert_true(strlen(xid_table_version()) > 0);
}

static void every_class_can_be_written_in_a_rule(void **state)
{
	static const char *const wrong[] = { "",          "109",
					     "109=",      "=ignore",
					     "109=no",    "-1=ignore",
					     "1 =vendor", "4294967296=vendor" };
	struct xid_rule rule;
	char text[40];

	(void)state;
	for (unsigned c = 0; c < XID_CLASSES; c++) {
		snprintf(text, sizeof(text), "%u=%s", 100 + c, xid_class_name(c));
		assert_int_equal(xid_rule_read(text, &rule), 0);
		assert_int_equal(rule.xid, 100 + c);
		assert_int_equal(rule.class, c);
	}
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(xid_rule_read(wrong[i], &rule), -GW_E_PARSE);
}

static void the_first_reading_decides_about_a_48_that_came_before_it(void **state)
{
	(void)state;
	xid(48);
	assert_false(t.s.quarantine);
	xid(31); /* less grave, and later */
	reads();
	assert_true(t.s.quarantine);
	assert_non_null(strstr(t.s.worst.why, "48"));
	fresh(NULL);
	xid(48);
	set(GW_Q_RECOVERY_ACTION, 0);
	reads();
	assert_false(t.s.quarantine);
	assert_int_equal(t.s.level, HEALTH_WARN);
}

static void a_154_makes_us_read_again_soon(void **state)
{
	(void)state;
	set(GW_Q_RECOVERY_ACTION, 0);
	reads();
	assert_int_equal(health_interval_ns(t.h), 10 * S);
	xid(154);
	assert_int_equal(health_interval_ns(t.h), S);
	reads();
	assert_int_equal(health_interval_ns(t.h), S); /* a reading may be ten seconds old */
	set(GW_Q_RECOVERY_ACTION, 1);
	reads();
	assert_true(t.s.quarantine);
	set(GW_Q_RECOVERY_ACTION, 0);
	reads_after(20 * S);
	assert_int_equal(health_interval_ns(t.h), 10 * S);
	event(ABI_EVENT_RECOVERY_ACTION, 0);
	assert_int_equal(health_interval_ns(t.h), S);
}

static void events_are_one_incident_until_three_minutes_of_silence(void **state)
{
	(void)state;
	set(GW_Q_RECOVERY_ACTION, 0);
	reads();
	xid(94);
	for (unsigned i = 0; i < 10; i++) {
		reads_after(170 * S);
		xid(63); /* ignored: it does not keep the incident open */
		assert_int_equal(t.s.level, i == 0 ? HEALTH_WARN : HEALTH_OK);
	}
	xid(94);
	for (unsigned i = 0; i < 10; i++) {
		reads_after(170 * S);
		xid(31);
		assert_int_equal(t.s.level, HEALTH_WARN);
		assert_int_equal(t.s.worst.clears_ns, t.now + 180 * S);
	}
	reads_after(180 * S);
	assert_int_equal(t.s.level, HEALTH_OK);
	assert_int_equal(t.s.xids, 21 + 1);
}

static void the_worst_of_an_incident_is_named(void **state)
{
	(void)state;
	set(GW_Q_RECOVERY_ACTION, 0);
	reads();
	xid(45);
	xid(119);
	xid(45);
	assert_true(t.s.quarantine);
	assert_non_null(strstr(t.s.worst.why, "119"));
	assert_non_null(strstr(t.s.worst.advice, "reset"));
}

static void without_recovery_actions_quarantine_lasts_as_long_as_the_incident(void **state)
{
	(void)state;
	reads();
	xid(48);
	reads();
	assert_true(t.s.quarantine);
	reads_times(179);
	assert_true(t.s.quarantine);
	reads_times(2);
	assert_int_equal(t.s.level, HEALTH_OK);
}

static void an_operator_ends_a_quarantine_whose_cause_is_past(void **state)
{
	char why[200] = "";

	(void)state;
	reads();
	assert_int_equal(health_clear(t.h, t.now, why, sizeof(why)), 0); /* there is none */
	xid(79);
	assert_true(t.s.quarantine);
	assert_int_equal(health_clear(t.h, t.now, why, sizeof(why)), 0);
	reads();
	assert_false(t.s.quarantine);
	assert_int_equal(t.s.level, HEALTH_OK);
	set(GW_Q_RECOVERY_ACTION, 1);
	reads();
	assert_true(t.s.quarantine);
	assert_int_equal(health_clear(t.h, t.now, why, sizeof(why)), -GW_E_STATE);
	assert_non_null(strstr(why, "reset the GPU"));
	set(GW_Q_RECOVERY_ACTION, 0);
	t.d.state = GW_DEVICE_LOST;
	reads();
	assert_int_equal(health_clear(t.h, t.now, why, sizeof(why)), -GW_E_STATE);
	assert_non_null(strstr(why, "does not answer"));
	t.d.state = GW_DEVICE_OK;
	reads();
	assert_true(t.s.quarantine);
	assert_int_equal(health_clear(t.h, t.now, why, sizeof(why)), 0);
	reads();
	assert_false(t.s.quarantine);
}

static void rows_of_the_policy_take_the_place_of_ours(void **state)
{
	struct health_options o;

	(void)state;
	health_options_init(&o);
	o.xid[0] = (struct xid_rule){ 109, XID_RESTART_APP };
	o.xid[1] = (struct xid_rule){ 999, XID_VENDOR };
	o.xids = 2;
	assert_int_equal(fresh_with(&o), 0);
	reads();
	xid(109);
	assert_int_equal(t.s.level, HEALTH_WARN);
	xid(999);
	assert_true(t.s.quarantine);
	assert_non_null(strstr(t.s.worst.why, "Xid 999"));
	assert_int_equal(health_xid_class(t.h, 109), XID_RESTART_APP);
	assert_int_equal(health_xid_class(t.h, 79), XID_REBOOT);
	assert_int_equal(health_xid_class(NULL, 109), XID_RESET_GPU);
}

static void other_events_are_judged_too(void **state)
{
	static const struct {
		uint64_t type;
		enum health_level without, with; /* a recovery action */
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

	(void)state;
	for (unsigned i = 0; i < 2 * sizeof(rows) / sizeof(rows[0]); i++) {
		fresh(NULL);
		if (i % 2)
			set(GW_Q_RECOVERY_ACTION, 0);
		reads();
		event(rows[i / 2].type, 0);
		assert_int_equal(t.s.level, i % 2 ? rows[i / 2].with : rows[i / 2].without);
		reads();
	}
}

static void quarantine_and_heat_are_told_apart(void **state)
{
	(void)state;
	set(GW_Q_RECOVERY_ACTION, 1);
	margin(1);
	reads_times(4);
	assert_true(t.s.thermal && t.s.quarantine);
	assert_int_equal(t.s.level, HEALTH_QUARANTINE);
	set(GW_Q_RECOVERY_ACTION, 0);
	reads_times(61);
	assert_true(t.s.thermal && !t.s.quarantine);
	assert_int_equal(t.s.heat, HEALTH_EVICT);
	assert_int_equal(t.s.level, HEALTH_EVICT);
}

/* ---- what it means ---- */

static struct health_meaning meaning(void)
{
	struct health_meaning m;

	health_meaning(t.h, t.now, &m);
	assert_int_equal(m.reason[0].reason, REASON_THERMAL);
	assert_int_equal(m.reason[1].reason, REASON_HEALTH);
	return m;
}

static void a_warning_moves_nobody(void **state)
{
	struct health_meaning m;

	(void)state;
	margin(8);
	set(GW_Q_ROWS_PENDING, 1);
	reads();
	assert_int_equal(t.s.level, HEALTH_WARN);
	m = meaning();
	assert_false(m.reason[0].on || m.reason[1].on);
	assert_string_equal(m.reason[0].found.why, "");
	assert_int_equal(m.heat, 0);
}

/* A hot GPU stays hot when it breaks: each reason has its own words and its own end. */
static void in_quarantine_heat_is_a_reason_of_its_own(void **state)
{
	struct health_meaning m;

	(void)state;
	margin(1);
	reads_times(4);
	m = meaning();
	assert_true(m.reason[0].on);
	assert_false(m.reason[1].on);
	assert_int_equal(m.heat, HEAT_THROTTLE | HEAT_WARM);
	set(GW_Q_RECOVERY_ACTION, 1);
	reads();
	m = meaning();
	assert_true(m.reason[0].on && m.reason[1].on);
	assert_non_null(strstr(m.heat_why, "Too hot"));
	assert_non_null(strstr(m.reason[0].found.why, "Too hot"));
	assert_non_null(strstr(m.reason[1].found.why, "reset the GPU"));
	assert_string_equal(t.s.worst.why, m.reason[1].found.why);
	set(GW_Q_RECOVERY_ACTION, 0);
	margin(30);
	reads_times(31);
	m = meaning();
	assert_false(m.reason[0].on);
	assert_true(m.reason[1].on);
	assert_int_equal(m.heat, 0);
}

static void each_end_is_told_by_the_options(void **state)
{
	struct health_options o;
	struct health_meaning m;

	(void)state;
	health_options_init(&o);
	o.clean_ns = 300 * S;
	o.clear_c = 8;
	o.clear_ns = 45 * S;
	assert_int_equal(fresh_with(&o), 0);
	set(GW_Q_RECOVERY_ACTION, 0);
	margin(1);
	reads_times(4);
	xid(79);
	m = meaning();
	assert_string_equal(
		m.reason[1].found.clears,
		"when the driver has been clean for 300 s, or by gpuward guard clear");
	assert_int_equal(m.reason[1].found.clears_ns, 0);
	assert_string_equal(m.reason[0].found.clears,
			    "when it has been 10 C or more below its limit for 45 s");
	margin(11);
	reads();
	m = meaning();
	assert_int_equal(m.reason[1].found.clears_ns, t.now + 300 * S);
	assert_int_equal(m.reason[0].found.clears_ns, t.now + 45 * S);
	set(GW_Q_RECOVERY_ACTION, NAN); /* then an incident must be over, too */
	o.clean_ns = 60 * S;
	health_set_options(t.h, &o);
	reads();
	assert_non_null(strstr(meaning().reason[1].found.clears, "for 180 s"));
}

/* ---- the simulator ---- */

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

/* A second goes by in the world. */
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

static void a_well_gpu_is_well(void **state)
{
	struct health_status s;

	(void)state;
	sim_scenario("idle-h200");
	sim_begin(1);
	for (unsigned i = 0; i < 120; i++) {
		s = sim_second(0);
		assert_int_equal(s.level, HEALTH_OK);
		assert_string_equal(s.margin_source, "margin");
		assert_true(s.margin_c > 20);
	}
}

static void only_the_gpu_that_is_lost_is_in_quarantine(void **state)
{
	(void)state;
	sim_scenario("lost-gpu");
	sim_begin(2);
	assert_int_equal(sim_seconds(1, 4).level, HEALTH_OK);
	assert_true(sim_seconds(1, 3).quarantine);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(sim_second(0).level, HEALTH_OK);
	assert_true(sim_second(1).quarantine);
	assert_true(
		sim_seconds(1, 40).quarantine); /* back since 25 s, and watched for a minute */
	assert_int_equal(sim_seconds(1, 120).level, HEALTH_OK);
}

static void an_action_that_the_driver_asks_for_is_found(void **state)
{
	(void)state;
	sim_scenario("xid-storm");
	sim_begin(2);
	assert_int_equal(sim_seconds(1, 4).level, HEALTH_OK);
	assert_true(sim_seconds(1, 20).quarantine);
	assert_int_equal(sim_second(0).level, HEALTH_OK);
	assert_non_null(strstr(sim_second(1).worst.why, "drain and reset"));
}

static void a_hot_gpu_has_its_work_taken_off_once(void **state)
{
	unsigned changes = 0;
	bool before = false;

	(void)state;
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

/* ---- before the start ---- */

static void past(unsigned number, uint64_t ago_ns)
{
	health_past(t.h, &(struct health_event){ t.now - ago_ns, ABI_EVENT_XID, number });
	health_status(t.h, t.now, &t.s);
}

static void a_past_xid_does_not_matter_where_the_driver_asks_for_nothing(void **state)
{
	(void)state;
	set(GW_Q_RECOVERY_ACTION, 0);
	past(62, 10 * S);
	past(79, 5 * S);
	reads();
	past(95, S);
	assert_int_equal(t.s.level, HEALTH_OK);
	assert_int_equal(t.s.xids, 0);
	assert_int_equal(t.s.past_xids, 3);
	assert_int_equal(t.s.last_past_xid, 95);
}

static void a_past_xid_is_named_where_the_driver_asks_for_a_reset(void **state)
{
	(void)state;
	set(GW_Q_RECOVERY_ACTION, 1);
	past(95, 7 * 86400 * S / 1000);
	reads();
	assert_true(t.s.quarantine);
	assert_non_null(strstr(t.s.worst.why, "after Xid 95"));
}

static void
without_recovery_actions_a_past_xid_counts_until_it_is_three_minutes_old(void **state)
{
	(void)state;
	past(62, 200 * S);
	reads();
	assert_int_equal(t.s.level, HEALTH_OK);
	past(62, 100 * S);
	assert_true(t.s.quarantine);
	assert_non_null(strstr(t.s.worst.why, "Xid 62"));
	for (unsigned i = 0; i < 40; i++)
		reads_after(10 * S);
	assert_int_equal(t.s.level, HEALTH_OK);
	assert_int_equal(t.s.past_xids, 2);
}

static void of_many_past_xids_before_the_first_reading_the_latest_are_judged(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 100; i++)
		past(13, (200 - i) * S);
	past(62, S);
	reads();
	assert_true(t.s.quarantine);
	assert_int_equal(t.s.past_xids, 101);
}

/* ---- corrected errors ---- */

static void corrected_errors_are_watched_by_their_rate(void **state)
{
	double n = 1000; /* of long ago */

	(void)state;
	for (unsigned i = 0; i < 36; i++, n += 5) { /* 30 an hour, for six hours */
		set(GW_Q_ECC_CORRECTED, n);
		reads_after(600 * S);
		assert_int_equal(t.s.level, HEALTH_OK);
	}
	set(GW_Q_ECC_CORRECTED, n + 100);
	reads_after(60 * S);
	assert_int_equal(t.s.level, HEALTH_WARN);
	assert_non_null(strstr(t.s.worst.why, "corrected memory errors"));
	for (unsigned i = 0; i < 8; i++)
		reads_after(600 * S);
	assert_int_equal(t.s.level, HEALTH_OK);
	set(GW_Q_ECC_CORRECTED, 0); /* the driver was loaded again */
	reads_after(60 * S);
	set(GW_Q_ECC_CORRECTED, 59);
	reads_after(60 * S);
	assert_int_equal(t.s.level, HEALTH_OK);
	set(GW_Q_ECC_CORRECTED, 60);
	reads_after(60 * S);
	assert_int_equal(t.s.level, HEALTH_WARN);
}

#define sim_health_test(f) cmocka_unit_test_teardown(f, sim_done)
#define health_test(f)     cmocka_unit_test_setup_teardown(f, fresh, done)

int main(void)
{
	const struct CMUnitTest tests[] = {
		health_test(levels_follow_the_margin),
		health_test(three_critical_readings_do_not_act_and_four_do),
		health_test(the_hardware_slowing_itself_down_acts_at_once),
		health_test(a_power_cap_is_no_fault),
		health_test(it_clears_after_half_a_minute_of_being_cool_enough),
		health_test(noise_of_a_degree_makes_one_transition_each_way),
		health_test(the_temperature_is_newer_than_the_margin),
		health_test(a_margin_that_contradicts_the_temperature_is_not_believed),
		health_test(thresholds_stand_in_for_the_margin),
		health_test(where_workers_leave_is_told_as_it_is),
		health_test(of_the_drivers_margin_too),
		health_test(without_any_limit_it_is_85_degrees),
		health_test(the_users_own_limit_has_five_degrees_of_hysteresis),
		health_test(what_cannot_be_read_is_unknown_and_changes_nothing),
		health_test(flags_of_the_memory_warn_and_do_not_quarantine),
		health_test(
			new_uncorrectable_errors_quarantine_where_no_recovery_action_is_told),
		health_test(with_a_recovery_action_new_errors_only_warn),
		health_test(a_recovery_action_found_at_the_start_quarantines),
		health_test(quarantine_ends_after_a_clean_minute),
		health_test(a_lost_gpu_is_in_quarantine_until_it_is_back_and_clean),
		health_test(a_fault_that_the_driver_names_warns),
		health_test(every_xid_is_judged_by_its_class),
		health_test(every_class_can_be_written_in_a_rule),
		health_test(the_first_reading_decides_about_a_48_that_came_before_it),
		health_test(a_154_makes_us_read_again_soon),
		health_test(events_are_one_incident_until_three_minutes_of_silence),
		health_test(the_worst_of_an_incident_is_named),
		health_test(without_recovery_actions_quarantine_lasts_as_long_as_the_incident),
		health_test(an_operator_ends_a_quarantine_whose_cause_is_past),
		health_test(rows_of_the_policy_take_the_place_of_ours),
		health_test(other_events_are_judged_too),
		health_test(quarantine_and_heat_are_told_apart),
		health_test(a_warning_moves_nobody),
		health_test(in_quarantine_heat_is_a_reason_of_its_own),
		health_test(each_end_is_told_by_the_options),
		health_test(a_past_xid_does_not_matter_where_the_driver_asks_for_nothing),
		health_test(a_past_xid_is_named_where_the_driver_asks_for_a_reset),
		health_test(
			without_recovery_actions_a_past_xid_counts_until_it_is_three_minutes_old),
		health_test(of_many_past_xids_before_the_first_reading_the_latest_are_judged),
		health_test(corrected_errors_are_watched_by_their_rate),
		sim_health_test(a_well_gpu_is_well),
		sim_health_test(only_the_gpu_that_is_lost_is_in_quarantine),
		sim_health_test(an_action_that_the_driver_asks_for_is_found),
		sim_health_test(a_hot_gpu_has_its_work_taken_off_once),
	};

	return cmocka_run_group_tests(tests, sim_setup, NULL);
}
