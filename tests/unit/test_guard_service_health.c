/* Tests what the service does with the health of a GPU: it evicts and resumes a worker, emits
 * events, and logs when a reason ends. The GPU is simulated by the test, the guard is real. */
#include "daemon/guard_service_parts.h"

#define TEST_SETUP    begin
#define TEST_TEARDOWN end
#include "guard_world.h"

#include "device/nvml_abi.h"

#include <math.h>

static struct world o;
static struct guard_service g;
static struct guard_settings settings;
static struct {
	struct gw_device d;
	double value[GW_QUANTITIES];
	uint8_t why[GW_QUANTITIES];
} gpu;
static struct {
	unsigned events;
	char text[512];
	const char *severity;
} emitted;

uint64_t guard_service_real_ns(void)
{
	return o.now;
}

uint64_t guard_service_log(struct guard_service *x, const char *severity, const char *fmt, ...)
{
	return 1;
}

double store_count_now(struct store *s, const char *key)
{
	return 0;
}

void store_set_count(struct store *s, const char *key, double value)
{
}

void guard_counts_load_xids(struct guard_counters *t, struct store *s, const char *uuid)
{
}

void guard_counts_add_xid(struct guard_counters *t, struct store *s, const char *uuid,
			  unsigned xid)
{
}

bool guard_inputs_note_xid(struct guard_inputs *b, const struct driver_event *e)
{
	return true;
}

void guard_view_capacity(const struct view *v, unsigned i, struct capacity_gpu *ret)
{
}

void guard_service_reason(struct guard_service *x, const char *uuid, enum guard_reason r,
			  bool on, const char *why, uint64_t now)
{
	guard_set_reason(o.g, uuid, r, on, why, now);
}

void guard_service_reason_ends(struct guard_service *x, const char *uuid, enum guard_reason r,
			       const char *clears, uint64_t clears_ns)
{
	guard_set_reason_end(o.g, uuid, r, clears, clears_ns);
}

void guard_service_heat(struct guard_service *x, const char *uuid, unsigned heat,
			const char *why, uint64_t now)
{
	guard_set_heat(o.g, uuid, heat, why);
}

int guard_service_trust(struct guard_service *x, const char *uuid, uint64_t now)
{
	return guard_trust_gpu(o.g, uuid, now);
}

void guard_service_pump(struct guard_service *x)
{
	world_fetch(&o);
}

void scene_thread_trigger(struct scene_thread *l)
{
}

static uint64_t record_event(void *arg, const struct view_event *e)
{
	assert_string_equal(e->kind, "health");
	assert_string_equal(e->uuid, "GPU-0");
	emitted.events++;
	emitted.severity = e->severity;
	snprintf(emitted.text, sizeof(emitted.text), "%s", e->text);
	return 1;
}

static void set(unsigned q, double v)
{
	gpu.value[q] = v;
	gpu.why[q] = isnan(v) ? GW_ABSENT_NOT_SUPPORTED : GW_HAVE;
}

static int begin(void **state)
{
	memset(&g, 0, sizeof(g));
	memset(&gpu, 0, sizeof(gpu));
	memset(&emitted, 0, sizeof(emitted));
	memset(&settings, 0, sizeof(settings));
	memset(gpu.why, GW_ABSENT_NOT_SUPPORTED, sizeof(gpu.why));
	gpu.d = (struct gw_device){ .state = GW_DEVICE_OK,
				    .message = "",
				    .value_count = GW_QUANTITIES,
				    .value = gpu.value,
				    .value_absence = gpu.why };
	set(GW_Q_TEMPERATURE_GPU, 50);
	set(GW_Q_RECOVERY_ACTION, 0);
	world_init(&o, 1, 1);
	world_begin(&o);
	world_run(&o, S);
	settings.health_enabled = true;
	settings.health_interval_ns = S;
	health_options_init(&settings.health);
	g.settings = &settings;
	g.guard = o.g;
	g.config.emit = record_event;
	snprintf(g.gpus.uuid[0], sizeof(g.gpus.uuid[0]), "GPU-0");
	g.gpus.count = 1;
	return 0;
}

static int end(void **state)
{
	guard_service_health_forget(&g, 0);
	world_done(&o);
	return 0;
}

static void ticks(unsigned n)
{
	while (n--) {
		guard_service_health_read(&g, 0, &gpu.d);
		guard_service_pump(&g);
		world_run(&o, S);
	}
}

static void xid(unsigned number, bool past)
{
	struct driver_event e = {
		.uuid = "GPU-0", .type = ABI_EVENT_XID, .data = number, .mono_ns = o.now
	};

	guard_service_health_event(&g, &e, past);
	guard_service_pump(&g);
}

static struct guard_explanation why(enum guard_reason r)
{
	struct guard_explanation ret;

	assert_true(guard_explain(o.g, 0, r, &ret));
	return ret;
}

static uint32_t mask(void)
{
	return world_status(&o, 0).mask;
}

TEST(a_fault_ends_for_the_guard_when_it_ends_for_health)
{
	struct health_status s;

	settings.health.clean_ns = 300 * S;
	ticks(2);
	xid(79, false);
	ticks(3);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	assert_int_equal(mask(), 1u << REASON_HEALTH);
	health_status(g.gpus.health[0], o.now, &s);
	assert_true(s.worst.clears_ns > o.now + 290 * S);
	assert_int_equal(why(REASON_HEALTH).clears_ns, s.worst.clears_ns);
	assert_in(why(REASON_HEALTH).clears, "no problem for 300 s");
	assert_in(why(REASON_HEALTH).evidence, "Xid 79");
	ticks(295);
	assert_int_equal(mask(), 1u << REASON_HEALTH);
	ticks(10);
	assert_int_equal(mask(), 0);
	world_run(&o, 60 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
}

TEST(a_changed_clean_time_is_reported_with_the_next_reading)
{
	ticks(2);
	xid(79, false);
	ticks(2);
	assert_in(why(REASON_HEALTH).clears, "for 60 s");
	settings.health.clean_ns = 90 * S;
	guard_service_health_swapped(&g);
	ticks(1);
	assert_in(why(REASON_HEALTH).clears, "for 90 s");
}

static double threshold(void)
{
	const struct guard_decision d = { .gpu = "GPU-0",
					  /* this temperature is older than the health
					   * reading */
					  .temperature_c = 40,
					  .mono_ns = o.now };

	return guard_service_threshold_c(&g, &d);
}

TEST(the_reported_eviction_temperature_is_the_one_at_which_workers_leave)
{
	assert_true(isnan(threshold())); /* health was not read yet */
	ticks(1);
	assert_true(threshold() == 85);
	set(GW_Q_TEMPERATURE_GPU, 84);
	ticks(10);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	assert_true(threshold() == 85);
	set(GW_Q_TEMPERATURE_GPU, 85);
	ticks(6);
	assert_int_equal(mask(), 1u << REASON_THERMAL);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	set(GW_Q_TEMPERATURE_SLOWDOWN, 93);
	ticks(1);
	assert_true(threshold() == 91);
	assert_true(isnan(guard_service_threshold_c(
		&g, &(struct guard_decision){ .gpu = "GPU-1", .mono_ns = o.now })));
}

TEST(each_level_emits_one_event)
{
	ticks(5);
	assert_int_equal(emitted.events, 0);
	set(GW_Q_ROWS_PENDING, 1);
	ticks(5);
	assert_int_equal(emitted.events, 1);
	assert_string_equal(emitted.severity, "warning");
	assert_in(emitted.text, "GPU is degraded: A memory row waits");
	assert_null(strstr(emitted.text, ".."));
	xid(79, false);
	ticks(5);
	assert_int_equal(emitted.events, 2);
	assert_string_equal(emitted.severity, "error");
	assert_in(emitted.text, "in quarantine: Xid 79");
}

TEST(an_earlier_xid_moves_no_worker_if_the_driver_requests_nothing)
{
	struct health_status s;

	ticks(1);
	xid(79, true);
	ticks(2);
	assert_int_equal(mask(), 0);
	health_status(g.gpus.health[0], o.now, &s);
	assert_int_equal(s.past_xids, 1);
	assert_int_equal(s.xids, 0);
}

TEST(disabling_health_ends_its_reasons)
{
	settings.health.absolute_c = 45;
	ticks(6);
	xid(79, false);
	assert_int_equal(mask(), 1u << REASON_THERMAL | 1u << REASON_HEALTH);
	settings.health_enabled = false;
	guard_service_health_swapped(&g);
	assert_int_equal(mask(), 0);
	assert_null(g.gpus.health[0]);
	assert_true(isnan(threshold()));
	ticks(3);
	assert_null(g.gpus.health[0]);
	world_run(&o, 60 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
}

TEST(clearing_a_quarantine_ends_only_the_reason_health)
{
	char message[200] = "";

	settings.health.absolute_c = 45;
	ticks(6);
	xid(79, false);
	set(GW_Q_RECOVERY_ACTION, 1);
	ticks(2);
	assert_int_equal(guard_service_clear(&g, "GPU-0", "a test", message, sizeof(message)),
			 -GW_E_STATE);
	assert_in(message, "reset the GPU");
	set(GW_Q_RECOVERY_ACTION, 0);
	ticks(2);
	assert_int_equal(guard_service_clear(&g, "GPU-0", "a test", message, sizeof(message)),
			 0);
	assert_int_equal(mask(), 1u << REASON_THERMAL);
	assert_int_equal(guard_service_clear(&g, "GPU-9", "a test", message, sizeof(message)),
			 -GW_E_NOENT);
}

TEST_MAIN(NULL, NULL)
