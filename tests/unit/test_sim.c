/* Tests the simulator as its clients see it, in stepped time. */
#include "here.h"
#include "sim_client.h"

#include <math.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

/* CPU time, so that other programs on the machine do not matter. */
static double seconds_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

TEST(every_scenario_loads_and_has_a_description)
{
	int n = 0;

	for (const char *const *s = sim_scenarios(); *s != NULL; s++, n++) {
		if (sim_load(*s, error, sizeof(error)) != 0)
			fail_msg("%s", error);
		assert_non_null(sim_describe(*s));
		assert_true(strlen(sim_describe(*s)) > 10);
	}
	assert_true(n >= 12);
	assert_null(sim_describe("nothing"));
	assert_int_equal(sim_load("nothing", error, sizeof(error)), -1);
	assert_in(error, "nothing");
}

TEST(a_wrong_scenario_is_refused_with_place_and_spelling)
{
	static const struct {
		const char *text, *expected;
	} cases[] = {
		{ "[[gpu]]\nprofil = \"h200\"\n",
		  "test:2:1: unknown key 'profil'; did you mean 'profile'?" },
		{ "[[gpu]]\nprofile = \"h20\"\n",
		  "test:2:11: no profile is called 'h20'; did you mean 'h200'?" },
		{ "[[gpu]]\n[[gpu.load]]\nkind = \"sqare\"\n",
		  "test:3:8: 'kind' cannot be 'sqare'; did you mean 'square'?" },
		{ "[[gpu]]\n[[gpu.load]]\nkind = \"square\"\n",
		  "a square load needs a 'period'" },
		{ "[[gpu]]\nmemory = \"many\"\n",
		  "test:2:10: 'many' is not a number of bytes" },
		{ "[[gpu]]\nname = 7\n", "test:2:8: 'name' must be a string, not" },
		{ "[driver]\nmissing = [\"nvmlDeviceGetNam\"]\n",
		  "did you mean 'nvmlDeviceGetName'?" },
		{ "[driver]\nprocess_bytes = 20\n", "16, 24 or 32" },
		{ "[[fault]]\ncode = 3\n", "a fault needs a 'call'" },
		{ "[[timeline]]\nat = 1\n", "needs a 'do'" },
		{ "[[timeline]]\ndo = \"xidd\"\n", "did you mean 'xid'?" },
		{ "[[gpu]]\ncount = 65\n", "from 1 to 64" },
		{ "[[gpu]]\ncount = 40\n[[gpu]]\ncount = 40\n", "at most 64" },
		{ "[[gpu]]\ncount = 2\nuuid = \"GPU-1\"\n", "cannot have the same 'uuid'" },
		{ "[time]\nrate = 0\n", "from 0.001" },
		{ "a = \n", "test:1:" },
		{ "[[gpu]]\n[[gpu.load]]\nkind = \"steps\"\npoints = [[2, 1], [1, 0]]\n",
		  "must not decrease" },
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		assert_int_equal(sim_load_text("test", cases[i].text, error, sizeof(error)),
				 -1);
		if (strstr(error, cases[i].expected) == NULL)
			fail_msg("'%s' does not say '%s'", error, cases[i].expected);
	}
}

/* Loads a trace of n points from a temporary file. */
static int load_trace(unsigned n)
{
	char path[] = "/tmp/gpuward-trace-XXXXXX", text[200];
	int fd = mkstemp(path), err;
	FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;

	assert_non_null(f);
	for (unsigned i = 0; i < n; i++)
		fprintf(f, "%u,1\n", i);
	assert_int_equal(fclose(f), 0);
	snprintf(text, sizeof(text), "[[gpu]]\n[[gpu.load]]\nkind = \"trace\"\nfile = \"%s\"\n",
		 path);
	err = sim_load_text("test", text, error, sizeof(error));
	unlink(path);
	return err;
}

TEST(a_trace_has_at_most_a_million_points)
{
	assert_int_equal(load_trace(1000000), 0);
	assert_int_equal(load_trace(1000001), -1);
	assert_in(error, "a load has at most 1000000 points");
}

TEST(symbols_are_missing_for_any_client_and_come_back)
{
	assert_int_equal(sim_load("ancient-driver", error, sizeof(error)), 0);
	assert_null(dlsym(sim_library, "nvmlDeviceGetMemoryInfo_v2"));
	assert_null(dlsym(sim_library, "nvmlGpmSampleGet"));
	assert_non_null(dlsym(sim_library, "nvmlDeviceGetMemoryInfo"));
	assert_int_equal(sim_load("old-driver-r535", error, sizeof(error)), 0);
	assert_non_null(dlsym(sim_library, "nvmlDeviceGetMemoryInfo_v2"));
	assert_null(dlsym(sim_library, "nvmlDeviceGetRunningProcessDetailList"));
	assert_int_equal(sim_load("h200", error, sizeof(error)), 0);
	assert_ptr_equal(dlsym(sim_library, "nvmlGpmSampleGet"), *(void **)&nvml_gpm_get);
}

TEST(every_call_is_there_and_refuses_before_init)
{
	uint32_t v;

	assert_int_equal(sim_load("h200", error, sizeof(error)), 0);
#define CALL_EXISTS(name, symbol, args) assert_non_null(dlsym(sim_library, #symbol));
	NVML_CALLS(CALL_EXISTS)
	assert_int_equal(nvml_count(&v), ABI_UNINITIALIZED);
	assert_int_equal(nvml_power((abi_device)0x10, &v), ABI_UNINITIALIZED);
	assert_int_equal(nvml_init(), 0);
	assert_int_equal(nvml_power((abi_device)0x10, &v), ABI_INVALID_ARGUMENT);
	assert_int_equal(nvml_power(device(0), NULL), ABI_INVALID_ARGUMENT);
}

TEST(every_plain_number_of_an_h200_answers)
{
	abi_return (*const calls[])(abi_device, uint32_t *) = {
		nvml_minor,           nvml_architecture,  nvml_cores,
		nvml_virtualization,  nvml_persistence,   nvml_compute_mode,
		nvml_display_active,  nvml_power,         nvml_enforced_limit,
		nvml_power_limit,     nvml_default_limit, nvml_pstate,
		nvml_pcie_generation, nvml_pcie_width,    nvml_pcie_replays,
		nvml_mig_max,
	};
	uint32_t v;

	start_named("h200");
	for (size_t i = 0; i < COUNT_OF(calls); i++)
		assert_int_equal(calls[i](device(0), &v), 0);
	assert_int_equal(nvml_fan_count(device(0), &v), ABI_NOT_SUPPORTED);
	assert_int_equal(nvml_pages_pending(device(0), &v), ABI_NOT_SUPPORTED);
}

TEST(memory_info_v2_excludes_the_reserved_part)
{
	struct abi_memory_v2 m = { .version = ABI_TAG(struct abi_memory_v2, 2) };
	struct abi_memory old;

	start_named("idle-h200");
	assert_int_equal(nvml_memory_v2(device(0), &m), 0);
	assert_int_equal(m.total, UINT64_C(150754820096));
	assert_int_equal(m.reserved, UINT64_C(644939776));
	assert_int_equal(m.used, 0);
	assert_int_equal(m.free, UINT64_C(150109880320));
	assert_int_equal(nvml_memory(device(0), &old), 0);
	assert_int_equal(old.used, m.reserved);
	m.version = 1;
	assert_int_equal(nvml_memory_v2(device(0), &m), ABI_ARGUMENT_VERSION_MISMATCH);
}

static uint32_t field_u32(abi_device d, unsigned id)
{
	struct abi_field_value v = { .field = id };

	assert_int_equal(nvml_fields(d, 1, &v), 0);
	assert_int_equal(v.code, 0);
	return v.value.u32;
}

TEST(power_is_renewed_only_when_read_and_not_before_100_ms)
{
	abi_device d;
	uint32_t first;

	start("[[gpu]]\nnoise = 0\nsensor = { own_time = false }\n[[gpu.load]]\nkind = "
	      "\"constant\"\nunit = \"watts\"\nlevel = 100\n"
	      "[[gpu.load]]\nkind = \"constant\"\nunit = \"watts\"\nfrom = 2\nlevel = 300\n");
	d = device(0);
	sim_step(1950 * MS);
	first = field_u32(d, 186);
	sim_step(99 * MS);
	assert_int_equal(field_u32(d, 186), first);
	sim_step(1 * MS);
	assert_true(field_u32(d, 186) > first + 100000);
	sim_step(3 * S);
	assert_int_equal(field_u32(d, 186), 400000);
	assert_int_equal(field_u32(d, 185), 400000);
}

TEST(a_hopper_renews_power_in_its_own_time)
{
	abi_device d;
	uint32_t first;

	start("[[gpu]]\nnoise = 0\n[[gpu.load]]\nkind = \"constant\"\nunit = \"watts\"\nlevel "
	      "= 100\n"
	      "[[gpu.load]]\nkind = \"constant\"\nunit = \"watts\"\nfrom = 2\nlevel = 300\n");
	d = device(0);
	sim_step(1950 * MS);
	first = field_u32(d, 186);
	sim_step(149 * MS); /* the value read now is from 2.0 s, when the load had just begun */
	assert_int_equal(field_u32(d, 186), first);
	sim_step(1 * MS);
	assert_true(field_u32(d, 186) > first + 100000);
}

TEST(the_average_rises_straight_over_a_second)
{
	uint32_t half;

	start("[[gpu]]\nnoise = 0\n[[gpu.load]]\nkind = \"steps\"\nunit = \"watts\"\npoints = "
	      "[[0, 100], "
	      "[5, 500]]\n");
	sim_step(5 * S + 520 * MS);
	assert_int_equal(nvml_power(device(0), &half), 0);
	assert_in_range(half, 285000, 315000);
}

TEST(the_counter_moves_on_its_grid)
{
	uint64_t last = 0, now, moves = 0;
	abi_device d;

	start("[[gpu]]\nnoise = 0\n[[gpu.load]]\nkind = \"constant\"\nunit = \"watts\"\nlevel "
	      "= 500\n");
	d = device(0);
	sim_step(1 * S);
	assert_int_equal(nvml_energy(d, &last), 0);
	for (int i = 0; i < 2000; i++) {
		sim_step(1 * MS);
		assert_int_equal(nvml_energy(d, &now), 0);
		if (now == last)
			continue;
		assert_in_range(now - last, 49999, 50001);
		assert_int_equal(sim_now_ns() % (100 * MS), 0);
		last = now;
		moves++;
	}
	assert_int_equal(moves, 20);
}

TEST(fast_reads_hurt_the_counter_of_a_4090)
{
	uint64_t before, after, slow;
	abi_device d;

	start("[[gpu]]\nprofile = \"rtx4090\"\nnoise = 0\n[[gpu.load]]\nkind = "
	      "\"constant\"\nunit = "
	      "\"watts\"\nlevel = 300\n");
	d = device(0);
	sim_step(1 * S);
	nvml_energy(d, &before);
	for (int i = 0; i < 500; i++) {
		sim_step(10 * MS);
		nvml_energy(d, &after);
	}
	assert_true((double)(after - before) < 0.6 * 1.5e6);
	sim_step(10 * S);
	nvml_energy(d, &slow);
	assert_true((double)(slow - after) > 0.99 * 3e6);
}

TEST(the_ring_has_119_samples_and_none_twice)
{
	struct abi_sample out[256];
	uint32_t type, n = 256;
	uint64_t last = 0;
	int total = 0;
	abi_device d;

	start("[[gpu]]\nsensor = { ring_jitter_ms = 18 }\n");
	d = device(0);
	sim_step(10 * S);
	assert_int_equal(nvml_samples(d, 0, 0, &type, &n, out), 0);
	assert_int_equal(n, 119);
	assert_int_equal(type, ABI_VALUE_U32);
	for (int i = 0; i < 50; i++) {
		n = 256;
		if (nvml_samples(d, 0, last, &type, &n, out) != 0)
			fail();
		for (uint32_t k = 0; k < n; k++) {
			assert_true(out[k].timestamp_us > last);
			last = out[k].timestamp_us;
		}
		total += (int)n;
		assert_true(sim_wall_ns() / 1000 - last < 45000);
		sim_step(500 * MS);
	}
	assert_in_range(total, 119 + 49 * 25 - 2, 119 + 49 * 25 + 2);
	n = 256;
	assert_int_equal(nvml_samples(d, ABI_SAMPLE_MODULE_POWER, 0, &type, &n, out),
			 ABI_INVALID_ARGUMENT);
}

TEST(an_hour_passes_quickly_and_adds_up)
{
	double began = seconds_now(), joules;

	start("[[gpu]]\nnoise = 0\ncount = 8\n[[gpu.load]]\nkind = \"square\"\nunit = "
	      "\"watts\"\nhigh = "
	      "500\nlow = 100\nperiod = 0.02\n");
	sim_step(3600 * S);
	for (unsigned i = 0; i < 8; i++) {
		joules = sim_true_joules(i);
		assert_true(fabs(joules - 300.0 * 3600) < 1);
	}
	assert_true(under_valgrind() || seconds_now() - began < 5);
}

TEST(calls_are_cheap)
{
	double began;
	abi_device d;
	uint32_t v;

	assert_int_equal(sim_load("demo", error, sizeof(error)), 0);
	assert_int_equal(nvml_init(), 0);
	d = device(0);
	began = seconds_now();
	for (int i = 0; i < 100000; i++)
		nvml_power(d, &v);
	/* A call takes well under a microsecond; the bound of 10 us leaves room for
	 * sanitizers. */
	assert_true(under_valgrind() || seconds_now() - began < 1);
}

TEST(the_power_limit_caps_power_and_is_reported)
{
	uint64_t reasons;
	abi_device d;

	start("[[gpu]]\nnoise = 0\n[[gpu.load]]\nkind = \"constant\"\nfrom = 1\n");
	d = device(0);
	sim_step(1050 * MS);
	assert_true(sim_true_watts(0) > 770);
	sim_step(5 * S);
	assert_true(sim_true_watts(0) < 700);
	assert_int_equal(nvml_reasons(d, &reasons), 0);
	assert_int_equal(reasons, ABI_REASON_SW_POWER_CAP);
	assert_int_equal(nvml_set_power_limit(d, 400000), 0);
	sim_step(1 * S);
	assert_true(sim_true_watts(0) < 400);
	assert_int_equal(nvml_set_power_limit(d, 100000), ABI_INVALID_ARGUMENT);
	assert_int_equal(field_u32(d, 190), 400000);
}

TEST(short_bursts_above_the_limit_are_allowed)
{
	uint64_t reasons;

	start("[[gpu]]\nnoise = 0\n[[gpu.load]]\nkind = \"square\"\nperiod = 0.15\n"
	      "[[gpu.process]]\n");
	sim_step(10 * S);
	assert_int_equal(nvml_reasons(device(0), &reasons), 0);
	assert_int_equal(reasons, 0);
	assert_true(sim_true_joules(0) > 4400);
}

TEST(heat_takes_the_clock_down)
{
	struct abi_field_value v = { .field = ABI_FIELD_LIMITED_THERMAL_SOFTWARE };
	uint32_t cold, hot, celsius;
	uint64_t reasons;
	abi_device d;

	start_named("thermal-throttle");
	d = device(0);
	sim_step(1 * S);
	nvml_clock(d, ABI_CLOCK_SM, &cold);
	sim_step(120 * S);
	nvml_clock(d, ABI_CLOCK_SM, &hot);
	nvml_temperature(d, 0, &celsius);
	nvml_reasons(d, &reasons);
	assert_true(hot < cold);
	assert_in_range(celsius, 85, 92);
	assert_true(reasons & ABI_REASON_SW_THERMAL);
	assert_int_equal(nvml_fields(d, 1, &v), 0);
	assert_true(v.value.u64 > 10 * S);
}

TEST(fields_have_their_own_types_and_signs)
{
	struct abi_field_value v[5] = { { .field = 193 },
					{ .field = 197 },
					{ .field = 83 },
					{ .field = 186, .scope = 1 },
					{ .field = 9999 } };

	start_named("idle-h200");
	assert_int_equal(nvml_fields(device(0), 5, v), 0);
	assert_int_equal(v[0].type, ABI_VALUE_I32);
	assert_int_equal(v[0].value.i32, -8);
	assert_int_equal(v[1].type, ABI_VALUE_U32);
	assert_int_equal(v[2].type, ABI_VALUE_U64);
	assert_int_equal(v[3].code, ABI_NOT_SUPPORTED);
	assert_int_equal(v[4].code, ABI_NOT_SUPPORTED);
}

TEST(process_entries_of_version_3_have_the_drivers_size)
{
	static const unsigned strides[] = { 16, 24, 32 };

	for (size_t i = 0; i < 3; i++) {
		unsigned char raw[4 * 32 + 1];
		uint32_t n = 4, pid;
		char text[256];

		snprintf(text, sizeof(text),
			 "[driver]\nprocess_bytes = %u\n[[gpu]]\n[[gpu.process]]\ncount = 3\n",
			 strides[i]);
		start(text);
		memset(raw, 0xA5, sizeof(raw));
		assert_int_equal(nvml_compute_v3(device(0), &n, raw), 0);
		assert_int_equal(n, 3);
		memcpy(&pid, raw + 2 * strides[i], sizeof(pid));
		assert_int_equal(pid, 4000002);
		assert_int_equal(raw[3 * strides[i]], 0xA5);
		stop(NULL);
	}
}

TEST(a_list_can_grow_between_two_calls)
{
	struct abi_process_v2 out[256];
	uint32_t n = 2, wanted;

	start("[[gpu]]\nlist_growth = 3\n[[gpu.process]]\ncount = 5\n");
	assert_int_equal(nvml_compute_v3(device(0), &n, out), ABI_INSUFFICIENT_SIZE);
	wanted = n;
	assert_int_equal(nvml_compute_v3(device(0), &n, out), ABI_INSUFFICIENT_SIZE);
	assert_int_equal(n, wanted + 3);
	n = 256;
	assert_int_equal(nvml_compute_v3(device(0), &n, out), 0);
	assert_int_equal(n, wanted + 6);
}

TEST(processes_come_grow_and_go)
{
	struct abi_memory_v2 m = { .version = ABI_TAG(struct abi_memory_v2, 2) };
	struct abi_process_v2 out[8];
	uint32_t n = 8;
	abi_device d;

	start("[[gpu]]\n[[gpu.process]]\npid = \"self\"\nfrom = 1\nuntil = 5\nmemory = \"1 "
	      "GiB\"\ngrowth = "
	      "\"1 GiB\"\nmax_memory = \"3 GiB\"\n"
	      "[[gpu.process]]\nhidden = true\nmemory = \"2 GiB\"\n");
	d = device(0);
	assert_int_equal(nvml_compute_v3(d, &n, out), 0);
	assert_int_equal(n, 0);
	sim_step(2 * S);
	n = 8;
	assert_int_equal(nvml_compute_v3(d, &n, out), 0);
	assert_int_equal(n, 1);
	assert_int_equal(out[0].pid, getpid());
	assert_int_equal(out[0].memory, UINT64_C(2) << 30);
	assert_int_equal(out[0].gpu_instance, UINT32_MAX);
	sim_step(2 * S);
	assert_int_equal(nvml_memory_v2(d, &m), 0);
	assert_int_equal(m.used, UINT64_C(5) << 30);
	sim_step(1 * S);
	n = 8;
	assert_int_equal(nvml_compute_v3(d, &n, out), 0);
	assert_int_equal(n, 0);
	assert_int_equal(sim_process(0, 77, 4096, 1), 0);
	n = 8;
	assert_int_equal(nvml_graphics_v3(d, &n, out), 0);
	assert_int_equal(n, 1);
	assert_int_equal(sim_process(0, 77, 0, 1), 0);
	n = 8;
	assert_int_equal(nvml_graphics_v3(d, &n, out), 0);
	assert_int_equal(n, 0);
}

TEST(an_instance_has_its_own_memory_and_list)
{
	struct abi_memory_v2 m = { .version = ABI_TAG(struct abi_memory_v2, 2) };
	struct abi_process_v2 out[8];
	struct abi_utilization u;
	struct abi_bar1 bar1;
	uint64_t whole;
	abi_device parent, one;
	uint32_t n = 8, v;

	start_named("mig");
	parent = device(0);
	assert_int_equal(nvml_mig_by_index(parent, 1, &one), 0);
	assert_int_equal(nvml_mig_by_index(parent, 2, &parent), ABI_NOT_FOUND);
	assert_int_equal(nvml_memory_v2(one, &m), 0);
	assert_int_equal(m.total, UINT64_C(16) << 30);
	assert_int_equal(m.used, UINT64_C(3) << 30);
	assert_int_equal(nvml_compute_v3(one, &n, out), 0);
	assert_int_equal(n, 1);
	assert_int_equal(out[0].gpu_instance, 5);
	assert_int_equal(nvml_bar1(parent, &bar1), 0);
	whole = bar1.total;
	assert_int_equal(nvml_bar1(one, &bar1), 0);
	assert_true(bar1.total > bar1.used && bar1.total < whole);
	assert_int_equal(nvml_power(one, &v), ABI_NOT_SUPPORTED);
	assert_int_equal(nvml_power(parent, &v), 0);
	assert_int_equal(nvml_utilization(parent, &u), ABI_NOT_SUPPORTED);
	sim_step(31 * S);
	assert_int_equal(nvml_memory_v2(one, &m), ABI_INVALID_ARGUMENT);
	assert_int_equal(nvml_mig_by_index(parent, 1, &one), 0);
	assert_int_equal(nvml_memory_v2(one, &m), 0);
	assert_int_equal(nvml_mig_by_index(parent, 4, &one), ABI_NOT_FOUND);
}

/* Zeus and nvitop use these NVML calls. */
TEST(clocks_that_can_be_set_are_listed_and_there_is_no_driver_model)
{
	abi_return (*model)(abi_device, uint32_t *, uint32_t *);
	abi_return (*memory)(abi_device, uint32_t *, uint32_t *);
	abi_return (*graphics)(abi_device, uint32_t, uint32_t *, uint32_t *);
	uint32_t n = 0, mhz[200], at = 0;

	*(void **)&model = dlsym(sim_library, "nvmlDeviceGetDriverModel_v2");
	*(void **)&memory = dlsym(sim_library, "nvmlDeviceGetSupportedMemoryClocks");
	*(void **)&graphics = dlsym(sim_library, "nvmlDeviceGetSupportedGraphicsClocks");
	start_named("h200");
	assert_int_equal(model(device(0), &n, &at), ABI_NOT_SUPPORTED);
	n = 0;
	assert_int_equal(memory(device(0), &n, NULL), ABI_INSUFFICIENT_SIZE);
	assert_int_equal(n, 1);
	assert_int_equal(memory(device(0), &n, &at), 0);
	assert_int_equal(at, 3201);
	n = 200;
	assert_int_equal(graphics(device(0), at + 1, &n, mhz), ABI_NOT_FOUND);
	assert_int_equal(graphics(device(0), at, &n, mhz), 0);
	assert_int_equal(mhz[0], 1980);
	assert_int_equal(mhz[n - 1], 345);
	assert_int_equal(mhz[0] - mhz[1], 15);
}

TEST(processes_that_follow_a_file_share_the_load)
{
	struct abi_process_utilization use[80];
	char folder[] = "/tmp/gpuward-test-XXXXXX", text[400], path[64];
	uint32_t n = 80;

	assert_non_null(mkdtemp(folder));
	for (unsigned i = 0; i < 2; i++) {
		FILE *f;

		snprintf(path, sizeof(path), "%s/%d", folder, i ? 1 : (int)getpid());
		f = fopen(path, "w");
		assert_non_null(f);
		fputs("1000000 compute\n", f);
		fclose(f);
	}
	snprintf(text, sizeof(text),
		 "[[gpu]]\nprofile = \"h200\"\nfollow = \"%s\"\n[[gpu.load]]\n"
		 "kind = \"constant\"\nlevel = 0.5\n",
		 folder);
	start(text);
	assert_int_equal(nvml_process_utilization(device(0), use, &n, 0),
			 0); /* the first call */
	assert_int_equal(n, 2);
	assert_int_equal(use[0].sm, 25);
	assert_int_equal(use[1].sm, 25);
	for (unsigned i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%d", folder, i ? 1 : (int)getpid());
		unlink(path);
	}
	rmdir(folder);
}

TEST(a_simulated_fault_returns_its_code_and_does_not_change_the_output)
{
	uint32_t v = 12345;
	abi_device d;

	start("[[gpu]]\ncount = 2\n[[fault]]\ncall = \"nvmlDeviceGetPowerUsage\"\ngpu = "
	      "1\nfrom = 1\nuntil = "
	      "2\ncode = 999\n");
	assert_int_equal(nvml_power(device(1), &v), 0);
	sim_step(1 * S);
	v = 12345;
	assert_int_equal(nvml_power(device(1), &v), 999);
	assert_int_equal(v, 12345);
	assert_int_equal(nvml_power(device(0), &v), 0);
	sim_step(1 * S);
	assert_int_equal(nvml_power(device(1), &v), 0);
	d = device(0);
	sim_fault(NULL, -1, 17);
	assert_int_equal(nvml_pstate(d, &v), 17);
	sim_fault(NULL, -1, 0);
	assert_int_equal(nvml_pstate(d, &v), 0);
}

TEST(a_fault_with_a_file_lasts_while_the_file_exists)
{
	char path[] = "/tmp/gpuward-fault-XXXXXX", text[256];
	int fd = mkstemp(path);
	uint32_t v;

	assert_true(fd >= 0);
	close(fd);
	snprintf(text, sizeof(text),
		 "[[gpu]]\n[[fault]]\ncall = \"nvmlDeviceGetPerformanceState\"\ncode = "
		 "15\nuntil = 2\n"
		 "while = \"%s\"\n",
		 path);
	start(text);
	assert_int_equal(nvml_pstate(device(0), &v), 15);
	unlink(path);
	assert_int_equal(nvml_pstate(device(0), &v), 0);
}

TEST(a_value_replaces_each_number_of_an_answer)
{
	abi_return (*const calls[])(abi_device, uint32_t *, uint32_t *) = {
		nvml_ecc_mode,
		nvml_mig_mode,
		nvml_limit_range,
	};
	struct abi_bar1 bar;
	uint32_t a, b;
	int major, minor;

	start("[[gpu]]\n[[fault]]\ncall = \"*\"\nvalue = 77\n");
	for (size_t i = 0; i < COUNT_OF(calls); i++) {
		assert_int_equal(calls[i](device(0), &a, &b), 0);
		assert_int_equal(a, 77);
		assert_int_equal(b, 77);
	}
	assert_int_equal(nvml_capability(device(0), &major, &minor), 0);
	assert_int_equal(major, 77);
	assert_int_equal(minor, 77);
	assert_int_equal(nvml_bar1(device(0), &bar), 0);
	assert_int_equal(bar.total, 77);
	assert_int_equal(bar.free, 77);
	assert_int_equal(bar.used, 77);
}

TEST(a_sentinel_takes_the_place_of_a_number)
{
	struct abi_field_value v[2] = { { .field = 185 }, { .field = 186 } };
	uint32_t w;
	uint64_t e;

	start_named("sentinels");
	assert_int_equal(nvml_power(device(0), &w), 0);
	assert_int_equal(w, UINT32_MAX);
	assert_int_equal(nvml_energy(device(0), &e), 0);
	assert_int_equal(e, UINT64_MAX);
	assert_int_equal(nvml_fields(device(0), 2, v), 0);
	assert_int_equal(v[0].code, 999);
	assert_int_equal(v[1].value.u32, UINT32_MAX);
}

static void *read_list(void *argument)
{
	uint32_t n = 0;

	return (void *)(intptr_t)nvml_compute_v3(argument, &n, NULL);
}

TEST(a_hang_holds_its_own_thread_only)
{
	pthread_t thread;
	void *code;
	uint32_t v;

	start("[[gpu]]\ncount = 2\n");
	sim_hang("nvmlDeviceGetComputeRunningProcesses_v3", 1);
	pthread_create(&thread, NULL, read_list, device(1));
	while (sim_calls("nvmlDeviceGetComputeRunningProcesses_v3") == 0)
		sched_yield();
	assert_int_equal(nvml_power(device(1), &v), 0);
	assert_int_equal((intptr_t)read_list(device(0)), 0);
	sim_unhang();
	pthread_join(thread, &code);
	assert_int_equal((intptr_t)code, 0);
}

TEST(a_lost_gpu_answers_15_until_it_heals)
{
	uint32_t v;

	start_named("lost-gpu");
	sim_step(6 * S);
	assert_int_equal(nvml_power(device(1), &v), ABI_GPU_IS_LOST);
	assert_int_equal(nvml_power(device(0), &v), 0);
	sim_step(20 * S);
	assert_int_equal(nvml_power(device(1), &v), 0);
}

TEST(a_reload_ends_handles_counters_and_versions)
{
	uint64_t before, after;
	char version[80];
	abi_device old;
	uint32_t v;

	start_named("driver-reload");
	old = device(0);
	sim_step(9 * S);
	assert_int_equal(nvml_energy(old, &before), 0);
	sim_step(2 * S);
	assert_int_equal(nvml_power(old, &v), ABI_DRIVER_NOT_LOADED);
	assert_int_equal(nvml_init(), ABI_DRIVER_NOT_LOADED);
	sim_step(2 * S);
	assert_int_equal(nvml_power(old, &v), ABI_UNINITIALIZED);
	assert_int_equal(nvml_shutdown(), 0);
	assert_int_equal(nvml_init(), 0);
	assert_int_equal(nvml_power(old, &v), ABI_INVALID_ARGUMENT);
	assert_int_equal(nvml_driver_version(version, sizeof(version)), 0);
	assert_string_equal(version, "580.200.01");
	assert_int_equal(nvml_energy(device(0), &after), 0);
	assert_true(after < before);
}

TEST(init_returns_the_error_of_the_scenario)
{
	assert_int_equal(sim_load("version-mismatch", error, sizeof(error)), 0);
	assert_int_equal(nvml_init(), ABI_VERSION_MISMATCH);
	assert_int_equal(sim_load("no-driver", error, sizeof(error)), 0);
	assert_int_equal(nvml_init(), ABI_DRIVER_NOT_LOADED);
}

TEST(setters_ask_for_privilege)
{
	abi_device d;

	start_named("unprivileged");
	d = device(0);
	assert_int_equal(nvml_set_power_limit(d, 400000), ABI_NO_PERMISSION);
	assert_int_equal(nvml_set_persistence(d, 1), ABI_NO_PERMISSION);
	assert_int_equal(nvml_set_gpu_clocks(d, 210, 1000), ABI_NO_PERMISSION);
}

TEST(events_come_in_world_time_and_are_not_replayed)
{
	struct abi_event_data e;
	abi_set set;

	start_named("xid-storm");
	sim_step(2500 * MS);
	assert_int_equal(nvml_event_set_create(&set), 0);
	assert_int_equal(
		nvml_event_register(device(1), ABI_EVENT_XID | ABI_EVENT_RECOVERY_ACTION, set),
		0);
	assert_int_equal(nvml_event_wait(set, &e, 0), ABI_TIMEOUT);
	sim_step(5 * S);
	assert_int_equal(nvml_event_wait(set, &e, 1000), 0);
	assert_int_equal(e.type, ABI_EVENT_XID);
	assert_int_equal(e.data, 48);
	assert_ptr_equal(e.device, device(1));
	assert_int_equal(nvml_event_wait(set, &e, 1000), 0);
	assert_int_equal(e.data, 94);
	assert_int_equal(nvml_event_wait(set, &e, 1000), 0);
	assert_int_equal(e.type, ABI_EVENT_RECOVERY_ACTION);
	assert_int_equal(nvml_event_wait(set, &e, 0), ABI_TIMEOUT);
	assert_int_equal(field_u32(device(1), ABI_FIELD_RECOVERY_ACTION), 4);
	assert_int_equal(nvml_event_set_free(set), 0);
	assert_int_equal(nvml_event_set_free(set), ABI_INVALID_ARGUMENT);
}

TEST(clock_events_are_noise)
{
	struct abi_event_data e;
	abi_set set;

	start_named("idle-h200");
	assert_int_equal(nvml_event_set_create(&set), 0);
	assert_int_equal(nvml_event_register(device(0), 0xFF9F, set), 0);
	assert_int_equal(nvml_event_wait(set, &e, 0), 0);
	assert_int_equal(e.type, ABI_EVENT_CLOCK);
	assert_int_equal(nvml_event_wait(set, &e, 0), ABI_TIMEOUT);
	sim_step(100 * MS);
	assert_int_equal(nvml_event_wait(set, &e, 0), 0);
	assert_int_equal(nvml_event_set_free(set), 0);
}

TEST(the_wall_clock_steps_and_the_world_does_not)
{
	uint64_t mono, wall;

	start_named("wall-clock-steps");
	sim_step(4 * S);
	mono = sim_now_ns();
	wall = sim_wall_ns();
	sim_step(2 * S);
	assert_int_equal(sim_now_ns() - mono, 2 * S);
	assert_int_equal((int64_t)(sim_wall_ns() - wall), -28 * (int64_t)S);
}

TEST(gpm_measures_between_two_samples)
{
	struct abi_gpm_metrics m = { .version = 1, .count = 2 };
	struct abi_gpm_support support = { .version = 1 };

	start("[[gpu]]\nnoise = 0\n[[gpu.load]]\nkind = \"constant\"\nlevel = 0.5\n");
	assert_int_equal(nvml_gpm_support(device(0), &support), 0);
	assert_int_equal(support.supported, 1);
	assert_int_equal(nvml_gpm_alloc(&m.first), 0);
	assert_int_equal(nvml_gpm_alloc(&m.second), 0);
	assert_int_equal(nvml_gpm_get(device(0), m.first), 0);
	sim_step(1 * S);
	assert_int_equal(nvml_gpm_get(device(0), m.second), 0);
	m.metric[0].id = ABI_GPM_SM_ACTIVE;
	m.metric[1].id = 99;
	assert_int_equal(nvml_gpm_metrics(&m), 0);
	assert_true(fabs(m.metric[0].value - 49) < 0.1);
	assert_int_equal(m.metric[1].code, ABI_NOT_SUPPORTED);
	nvml_gpm_free(m.first);
	nvml_gpm_free(m.second);
}

TEST_MAIN(sim_library_setup, NULL)
