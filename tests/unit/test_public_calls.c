/* Tests how every public function that returns int handles NULL, and that each failure has its
 * own sentence. */
#include "simtest.h"

#include <gpuward-guard.h>

static struct gw_ctx *ctx;
static struct gw_snapshot *snap;
static struct gw_process_list *list;
static struct gw_meter *meter;
static struct gw_window *window;
static struct gw_guard *guard;

static void open_all(void)
{
	struct gw_meter_options mo = { .size = sizeof(mo),
				       .flags = GW_METER_MANUAL,
				       .cache_dir = "" };

	sim_text(TWO_GPUS);
	sim_open();
	ctx = sim.ctx;
	snap = sim.snap;
	assert_int_equal(gw_snapshot_take(snap, GW_TIERS_COMMON), 0);
	assert_int_equal(gw_process_list_new(ctx, &list), 0);
	assert_int_equal(gw_meter_start(ctx, &mo, &meter), 0);
	assert_int_equal(gw_window_open(meter, "w", 0, &window), 0);
	assert_int_equal(gw_guard_start(ctx, NULL, &guard), 0);
}

static int close_all(void **state)
{
	gw_guard_stop(guard, UINT64_MAX);
	gw_meter_stop(meter);
	gw_process_list_free(list);
	guard = NULL, meter = NULL, list = NULL;
	return sim_teardown(state);
}

#define FULL ((void *)&room) /* a result pointer that must not be used */
static char room[4096];

/* One row per function and pointer: a call with NULL for this pointer. The third column is the
 * context of gw_ctx_error(). */
#define CALLS(X)                                                                              \
	X(gw_quantity_find, "key", NULL, gw_quantity_find(NULL))                              \
	X(gw_quantity_name, "out", NULL, gw_quantity_name(0, 0, NULL, 9))                     \
	X(gw_open, "ret_ctx", NULL, gw_open(NULL, NULL))                                      \
	X(gw_ctx_release, "ctx", NULL, gw_ctx_release(NULL))                                  \
	X(gw_ctx_reopen, "ctx", NULL, gw_ctx_reopen(NULL))                                    \
	X(gw_snapshot_new, "ctx", NULL, gw_snapshot_new(NULL, FULL))                          \
	X(gw_snapshot_new, "ret_snap", ctx, gw_snapshot_new(ctx, NULL))                       \
	X(gw_snapshot_take, "snap", NULL, gw_snapshot_take(NULL, 0))                          \
	X(gw_device_matches, "d", NULL, gw_device_matches(NULL, "0"))                         \
	X(gw_device_matches, "selector", NULL,                                                \
	  gw_device_matches(gw_snapshot_device(snap, 0), NULL))                               \
	X(gw_process_list_new, "ctx", NULL, gw_process_list_new(NULL, FULL))                  \
	X(gw_process_list_new, "ret_list", ctx, gw_process_list_new(ctx, NULL))               \
	X(gw_process_list_take, "list", NULL, gw_process_list_take(NULL))                     \
	X(gw_process_list_want, "list", NULL, gw_process_list_want(NULL, 0))                  \
	X(gw_environment_new, "ctx", NULL, gw_environment_new(NULL, FULL))                    \
	X(gw_environment_new, "ret_env", ctx, gw_environment_new(ctx, NULL))                  \
	X(gw_meter_start, "ctx", NULL, gw_meter_start(NULL, NULL, FULL))                      \
	X(gw_meter_start, "ret_meter", ctx, gw_meter_start(ctx, NULL, NULL))                  \
	X(gw_window_open, "meter", NULL, gw_window_open(NULL, NULL, 0, FULL))                 \
	X(gw_window_open, "ret_window", ctx, gw_window_open(meter, NULL, 0, NULL))            \
	X(gw_window_open_recorded, "meter", NULL,                                             \
	  gw_window_open_recorded(NULL, NULL, 0, 1, FULL))                                    \
	X(gw_window_open_recorded, "ret_window", ctx,                                         \
	  gw_window_open_recorded(meter, NULL, 0, 1, NULL))                                   \
	X(gw_window_close, "window", NULL, gw_window_close(NULL, 0))                          \
	X(gw_window_wait, "window", NULL, gw_window_wait(NULL, 0))                            \
	X(gw_meter_sensor, "meter", NULL, gw_meter_sensor(NULL, 0, FULL))                     \
	X(gw_meter_sensor, "ret", ctx, gw_meter_sensor(meter, 0, NULL))                       \
	X(gw_baseline_take, "meter", NULL, gw_baseline_take(NULL, 0, NULL, FULL))             \
	X(gw_baseline_take, "ret_baseline", ctx, gw_baseline_take(meter, 0, NULL, NULL))      \
	X(gw_baseline_load, "meter", NULL,                                                    \
	  gw_baseline_load(NULL, 0, GW_BASELINE_HOT_IDLE, 0, NULL, FULL))                     \
	X(gw_baseline_load, "ret_baseline", ctx,                                              \
	  gw_baseline_load(meter, 0, GW_BASELINE_HOT_IDLE, 0, NULL, NULL))                    \
	X(gw_baseline_save, "baseline", ctx, gw_baseline_save(ctx, NULL, NULL))               \
	X(gw_baseline_save, "baseline", NULL, gw_baseline_save(NULL, NULL, NULL))             \
	X(gw_baseline_apply, "meter", NULL, gw_baseline_apply(NULL, FULL, FULL, NULL, FULL))  \
	X(gw_baseline_apply, "energy", ctx, gw_baseline_apply(meter, NULL, FULL, NULL, FULL)) \
	X(gw_baseline_apply, "before", ctx, gw_baseline_apply(meter, FULL, NULL, NULL, FULL)) \
	X(gw_baseline_apply, "ret", ctx, gw_baseline_apply(meter, FULL, FULL, NULL, NULL))    \
	X(gw_diagnosis_new, "snap", NULL, gw_diagnosis_new(NULL, FULL))                       \
	X(gw_diagnosis_new, "ret_diagnosis", ctx, gw_diagnosis_new(snap, NULL))               \
	X(gw_guard_start, "ctx", NULL, gw_guard_start(NULL, NULL, FULL))                      \
	X(gw_guard_start, "ret_guard", ctx, gw_guard_start(ctx, NULL, NULL))                  \
	X(gw_guard_request, "guard", NULL, gw_guard_request(NULL, GW_REQUEST_RESUME, 0))      \
	X(gw_guard_status, "guard", NULL, gw_guard_status(NULL, FULL))                        \
	X(gw_guard_status, "ret_status", ctx, gw_guard_status(guard, NULL))

static void check_null(const char *parameter, const char *call, struct gw_ctx *of, int result)
{
	char want[64];

	snprintf(want, sizeof(want), "%s must not be NULL", parameter);
	if (result != -GW_E_ARG || !strstr(gw_ctx_error(of), want))
		fail_msg("%s: %d, %s", call, result, gw_ctx_error(of));
}

TEST_WITH(null_is_refused_by_every_function_that_returns_int, NULL, close_all)
{
	open_all();
	/* another failure before each call: its sentence must not stay */
#define X(name, parameter, of, call)      \
	gw_snapshot_take(snap, 1u << 30); \
	gw_quantity_find("nope");         \
	check_null(parameter, #call, of, call);
	CALLS(X)
#undef X
	assert_int_equal(gw_meter_stop(NULL), 0);
	assert_int_equal(gw_guard_stop(NULL, 0), 0);
	assert_int_equal(gw_guard_allowed(NULL), 1);
	assert_int_equal(gw_guard_wait(NULL, UINT64_MAX), 0);
}

/* Functions that free something. */
#define FREES(X)                \
	X(gw_close)             \
	X(gw_snapshot_free)     \
	X(gw_process_list_free) \
	X(gw_environment_free)  \
	X(gw_window_free)       \
	X(gw_baseline_free)     \
	X(gw_diagnosis_free)

TEST(every_function_that_frees_accepts_null)
{
#define X(name) name(NULL);
	FREES(X)
#undef X
}

static bool has_row(const char *name)
{
	static const char *const rows[] = {
#define X(function, ...) #function,
		CALLS(X) FREES(X)
#undef X
		/* their only pointer may be NULL */
		"gw_meter_stop",
		"gw_guard_stop", "gw_guard_allowed", "gw_guard_wait"
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++)
		if (strcmp(rows[i], name) == 0)
			return true;
	return false;
}

/* Returns the number of functions with this result in a header. Fails if one is in no table. */
static unsigned check_header(const char *header, const char *result)
{
	char path[512], line[512], type[16], name[128];
	unsigned found = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/include/%s", getenv("GPUWARD_TEST_SOURCE"), header);
	f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "GW_API %15s %127[a-z_](", type, name) == 2 &&
		    strcmp(type, result) == 0) {
			found++;
			if (!has_row(name))
				fail_msg("%s() is not in a table", name);
		}
	fclose(f);
	return found;
}

TEST(every_public_function_that_returns_int_or_frees_is_in_a_table)
{
	assert_true(check_header("gpuward.h", "int") > 20);
	assert_true(check_header("gpuward-guard.h", "int") > 5);
	assert_true(check_header("gpuward.h", "void") > 5);
}

TEST_WITH(before_the_first_take_every_resource_is_unknown, NULL, sim_teardown)
{
	double v = 7;

	sim_text(TWO_GPUS);
	sim_open();
	for (unsigned i = 0; i < GW_RESOURCES; i++)
		assert_int_equal(gw_snapshot_resource(sim.snap, i, &v), GW_ABSENT_NOT_READ);
	assert_true(v == 7);
	assert_int_equal(gw_snapshot_take(sim.snap, GW_TIERS_COMMON), 0);
	assert_int_equal(gw_snapshot_resource(sim.snap, GW_R_GPU_COUNT, &v), GW_HAVE);
	assert_true(v == 2);
}

TEST_WITH(the_parent_of_an_orphan_is_unknown, NULL, sim_teardown)
{
	struct gw_process_list *l;

	sim_text(TWO_GPUS); /* the process of this world is in no /proc */
	sim_open();
	assert_int_equal(gw_process_list_new(sim.ctx, &l), 0);
	assert_int_equal(gw_process_list_take(l), 0);
	assert_int_equal(gw_process_list_get(l, 0)->orphan, 1);
	assert_int_equal(gw_process_list_get(l, 0)->parent, -1);
	gw_process_list_free(l);
}

TEST_WITH(every_failure_has_its_own_sentence, NULL, close_all)
{
	struct gw_guard_status status = { .size = 8 };
	char out[8];

	open_all();
#define SAYS(of, call, code, text)                 \
	do {                                       \
		gw_snapshot_take(snap, 1u << 30);  \
		gw_open(NULL, NULL);               \
		assert_int_equal(call, -(code));   \
		assert_in(gw_ctx_error(of), text); \
	} while (0)
	SAYS(ctx, gw_guard_status(guard, &status), GW_E_ARG, "size of struct gw_guard_status");
	SAYS(ctx, gw_guard_request(guard, (enum gw_guard_request)99, 0), GW_E_ARG,
	     "no gw_guard_request 99");
	SAYS(ctx, gw_guard_request(guard, GW_REQUEST_HOLD_EVICTED, 0), GW_E_ARG, "hold");
	SAYS(ctx, gw_process_list_want(list, 1 << 9), GW_E_ARG, "unknown bits 0x200");
	SAYS(ctx, gw_window_wait(window, 0), GW_E_STATE, "still open");
	SAYS(NULL, gw_quantity_find("nope"), GW_E_NOENT, "no quantity \"nope\"");
	SAYS(NULL, gw_quantity_name(9999, 0, out, 8), GW_E_ARG, "number 9999");
	SAYS(NULL, gw_quantity_name(GW_Q_POWER, 0, out, 8), GW_E_ARG, "power_watts");
	SAYS(NULL, gw_quantity_name(GW_Q_ARCHITECTURE, -1, out, 8), GW_E_ARG, "-1");
	SAYS(NULL, gw_quantity_name(GW_Q_ARCHITECTURE, 9, out, 2), GW_E_SIZE, "2 bytes");
	SAYS(NULL, gw_quantity_name(GW_Q_ARCHITECTURE, 9, out, 0), GW_E_ARG, "size");
	SAYS(NULL, gw_device_matches(gw_snapshot_device(snap, 0), "!"), GW_E_ARG,
	     "\"!\" is not a GPU selector");
}

TEST_MAIN(sim_setup, NULL)
