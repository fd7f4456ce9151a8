/* Tests the NVML backend over the simulator: values, layouts and missing symbols. Failing calls
 * are in test_fault_matrix.c; loss, return and hangs are in test_nvml_loss.c. */
#include "here.h"
#include "simtest.h"

#include "device/nvml_reader.h"

#include <math.h>

static const struct gw_device *d;

SIM_TEST(the_margin_belongs_to_the_temperature_of_the_same_snapshot)
{
	const struct gw_device *gpu;
	double limit, reported, first;

	sim_start("[[gpu]]\nprofile = \"h200\"\n"
		  "[[gpu.load]]\nkind = \"constant\"\nlevel = 1.0\n");
	gpu = sim_take(GW_TIERS_COMMON, 0);
	first = sim_value(gpu, GW_Q_TEMPERATURE_GPU);
	reported = sim_value(gpu, GW_Q_TEMPERATURE_MARGIN);
	limit = first + reported;
	assert_true(gpu->reported_margin_c == reported);
	for (unsigned i = 0; i < 9; i++) {
		sim_step(NS_PER_S);
		gpu = sim_take(GW_TIERS_COMMON, 0);
		assert_true(sim_value(gpu, GW_Q_TEMPERATURE_GPU) +
				    sim_value(gpu, GW_Q_TEMPERATURE_MARGIN) ==
			    limit);
		assert_true(gpu->reported_margin_c == reported);
	}
	assert_true(sim_value(gpu, GW_Q_TEMPERATURE_GPU) > first);
}

SIM_TEST(reads_the_values_of_an_h200)
{
	sim_start("[[gpu]]\nprofile = \"h200\"\n");
	d = sim_take(GW_TIERS_ALL, 0);
	assert_int_equal(gw_snapshot_device_count(sim.snap), 1);
	assert_string_equal(gw_device_text(d, GW_T_NAME), "NVIDIA H200");
	assert_int_equal(d->provenance, GW_FROM_SIMULATOR);
	assert_int_equal(d->state, GW_DEVICE_OK);
	assert_true(sim_value(d, GW_Q_MEMORY_TOTAL) == 150754820096.0);
	assert_true(sim_value(d, GW_Q_MEMORY_RESERVED) == 644939776.0);
	assert_true(sim_value(d, GW_Q_ARCHITECTURE) == 9);
	assert_true(sim_value(d, GW_Q_COMPUTE_CAPABILITY_MAJOR) == 9);
	assert_true(sim_value(d, GW_Q_POWER_LIMIT_MIN) == 200);
	assert_true(sim_value(d, GW_Q_POWER_LIMIT_MAX) == 700);
	assert_true(sim_value(d, GW_Q_PCIE_WIDTH) == 16);
	assert_true(sim_value(d, GW_Q_TEMPERATURE_SLOWDOWN) == 89);
	assert_in_range((unsigned)sim_value(d, GW_Q_POWER), 70, 130);
	assert_absent(d, GW_Q_FAN_SPEED, GW_ABSENT_NOT_SUPPORTED);
}

SIM_TEST(a_container_without_the_library_gets_the_missing_setting)
{
	static const struct {
		const char *container, *visible, *capabilities, *says;
	} row[] = {
		{ "kubernetes", NULL, NULL, "NVIDIA_VISIBLE_DEVICES is not set" },
		{ "docker", "", "utility", "NVIDIA_VISIBLE_DEVICES is empty" },
		{ "docker", "void", "utility", "NVIDIA_VISIBLE_DEVICES is \"void\"" },
		{ "podman", "all", "compute,video",
		  "\"compute,video\", which does not include" },
		{ "podman", "all", "utility2", "does not include utility" },
		{ "kubernetes", "all", "compute,utility", "runtimeClassName: nvidia" },
		{ "kubernetes", "all", "all", "runtimeClassName: nvidia" },
		{ "podman", "all", NULL, "--device nvidia.com/gpu=all" },
		{ "wsl", NULL, NULL, "" },
		{ "", NULL, NULL, "" },
	};
	char text[300];

	for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		nvml_runtime_setting(row[i].container, row[i].visible, row[i].capabilities,
				     text, sizeof(text));
		assert_non_null(strstr(text, row[i].says));
		assert_int_equal(*text == '\0', *row[i].says == '\0');
	}
}

TEST(a_row_without_a_maximum_takes_every_number)
{
	assert_true(nvml_is_value(0, 0));
	assert_true(nvml_is_value(5, 0));
	assert_true(nvml_is_value(-5, 0));
	assert_true(nvml_is_value(1e19, 0));
	assert_false(nvml_is_value((double)NAN, 0));
	assert_true(nvml_is_value(250, 250));
	assert_true(nvml_is_value(-250, 250));
	assert_false(nvml_is_value(251, 250));
	assert_false(nvml_is_value(-251, 250));
	assert_false(nvml_is_value((double)NAN, 250));
}

SIM_TEST(milliwatts_and_nanoseconds_are_exact)
{
	sim_start("[[gpu]]\nprofile = \"h200\"\n[[fault]]\ncall = \"nvmlDeviceGetPowerUsage\"\n"
		  "value = 111326\n");
	assert_true(sim_value(sim_take(GW_TIER_FAST, 0), GW_Q_POWER) == 111.326);
	sim_start("[[gpu]]\nprofile = \"h200\"\n[[fault]]\nfield = 74\nvalue = 3000000000\n");
	assert_true(sim_value(sim_take(GW_TIER_SLOW, 0), GW_Q_LIMITED_POWER) == 3);
}

SIM_TEST(a_list_asks_no_more_than_identity_and_memory)
{
	sim_start(TWO_GPUS);
	sim_take(0, 0);
	assert_int_equal(sim_calls("nvmlDeviceGetPowerUsage"), 0);
	assert_int_equal(sim_calls("nvmlDeviceGetTotalEnergyConsumption"), 0);
	assert_int_equal(sim_calls("nvmlDeviceGetMemoryInfo_v2"), 2);
}

SIM_TEST(slower_tiers_are_kept_for_their_time)
{
	uint64_t encoder, ecc;

	sim_start(TWO_GPUS);
	sim_take(GW_TIERS_COMMON, 0);
	encoder = sim_calls("nvmlDeviceGetEncoderUtilization");
	ecc = sim_calls("nvmlDeviceGetTotalEccErrors");
	for (int i = 0; i < 9; i++) {
		sim_step(100 * NS_PER_MS);
		sim_take(GW_TIERS_COMMON, 0);
	}
	assert_int_equal(sim_calls("nvmlDeviceGetEncoderUtilization"), encoder);
	assert_int_equal(sim_calls("nvmlDeviceGetPowerUsage"), 2 * 10);
	sim_step(100 * NS_PER_MS);
	sim_take(GW_TIERS_COMMON, 0);
	assert_int_equal(sim_calls("nvmlDeviceGetEncoderUtilization"), 2 * encoder);
	assert_int_equal(sim_calls("nvmlDeviceGetTotalEccErrors"), ecc);
	sim_step(9 * NS_PER_S);
	sim_take(GW_TIERS_COMMON, 0);
	assert_int_equal(sim_calls("nvmlDeviceGetTotalEccErrors"), 2 * ecc);
}

TEST(the_energy_counter_is_read_only_when_asked_and_at_most_once_a_second)
{
	sim_start(TWO_GPUS);
	for (int i = 0; i < 50; i++) {
		sim_step(100 * NS_PER_MS);
		sim_take(GW_TIERS_COMMON, 0);
	}
	assert_int_equal(sim_calls("nvmlDeviceGetTotalEnergyConsumption"), 0);
	for (int i = 0; i < 50; i++) {
		sim_step(100 * NS_PER_MS);
		sim_take(GW_TIERS_COMMON | GW_TIER_ENERGY, 0);
	}
	assert_int_equal(sim_calls("nvmlDeviceGetTotalEnergyConsumption"), 2 * 5);
	sim_close();
}

SIM_TEST(a_refusal_is_remembered_until_the_driver_is_opened_again)
{
	uint64_t before;

	sim_start(TWO_GPUS);
	sim_take(GW_TIERS_ALL, 0);
	before = sim_calls("nvmlDeviceGetFanSpeed_v2");
	sim_step(60 * NS_PER_S);
	sim_take(GW_TIERS_ALL, 0);
	assert_int_equal(sim_calls("nvmlDeviceGetFanSpeed_v2"), before);
	assert_int_equal(sim_calls("nvmlInit_v2"), 1);
}

SIM_TEST(placeholder_values_are_absent)
{
	struct gw_process_list *l;

	sim_start_scenario("sentinels");
	d = sim_take(GW_TIERS_ALL, 0);
	for (unsigned q = 0; q < GW_QUANTITIES; q++)
		if (d->value_absence[q] == GW_HAVE) {
			assert_true(isfinite(d->value[q]) && d->value[q] < 1e15);
			assert_true(d->value[q] != 4294967.295 && d->value[q] != 42949672.95);
		}
	assert_absent(d, GW_Q_POWER, GW_ABSENT_INVALID);
	assert_absent(d, GW_Q_ENERGY, GW_ABSENT_INVALID);
	assert_absent(d, GW_Q_POWER_INSTANT, GW_ABSENT_INVALID);
	assert_absent(d, GW_Q_POWER_AVERAGE, GW_ABSENT_ERROR);
	assert_absent(d, GW_Q_UTILIZATION_GPU, GW_ABSENT_INVALID);
	assert_int_equal(gw_process_list_new(sim.ctx, &l), 0);
	assert_int_equal(gw_process_list_take(l), 0);
	assert_int_equal(gw_process_list_count(l), 1);
	assert_int_equal(gw_process_list_get(l, 0)->memory_absence, GW_ABSENT_NOT_SUPPORTED);
	assert_int_equal(gw_process_list_get(l, 0)->memory_bytes, -1);
	gw_process_list_free(l);
}

SIM_TEST(minus_one_degree_is_a_placeholder_but_a_margin_may_be_negative)
{
	static const char *const calls[] = { "nvmlDeviceGetTemperatureV",
					     "nvmlDeviceGetTemperature" };

	for (unsigned i = 0; i < 2; i++) {
		char text[512];

		snprintf(text, sizeof(text),
			 TWO_GPUS
			 "[[fault]]\ncall = \"%s\"\nvalue = -1\n"
			 "[[fault]]\ncall = \"nvmlDeviceGetMarginTemperature\"\nvalue = -1\n"
			 "%s",
			 calls[i],
			 i ? "[[fault]]\ncall = \"nvmlDeviceGetTemperatureV\"\ncode = 3\n"
			   : "");
		sim_start(text);
		d = sim_take(GW_TIERS_ALL, 0);
		assert_absent(d, GW_Q_TEMPERATURE_GPU, GW_ABSENT_INVALID);
		assert_true(sim_value(d, GW_Q_TEMPERATURE_MARGIN) == -1);
	}
}

SIM_TEST(gpm_needs_two_readings_a_tenth_of_a_second_apart)
{
	sim_start(TWO_GPUS);
	d = sim_take(GW_TIER_ON_REQUEST, 0);
	assert_absent(d, GW_Q_GPM_SM_ACTIVE, GW_ABSENT_FIRST_READING);
	sim_step(50 * NS_PER_MS);
	d = sim_take(GW_TIER_ON_REQUEST, 0);
	assert_absent(d, GW_Q_GPM_SM_ACTIVE, GW_ABSENT_NO_DATA);
	sim_step(150 * NS_PER_MS);
	d = sim_take(GW_TIER_ON_REQUEST, 0);
	assert_true(sim_value(d, GW_Q_GPM_SM_ACTIVE) >= 0);
	assert_true(sim_value(d, GW_Q_GPM_SM_ACTIVE) <= 1.01);
}

SIM_TEST(mig_instances_have_memory_of_their_own)
{
	sim_start_scenario("mig");
	d = sim_take(GW_TIERS_COMMON, 0);
	assert_int_equal(d->mig_count, 3);
	assert_int_equal(d->mig[0]->memory_absence, GW_HAVE);
	assert_true(d->mig[0]->memory_total_bytes > d->mig[1]->memory_total_bytes);
	assert_int_equal(strncmp(d->mig[2]->uuid, "MIG-", 4), 0);
	assert_int_equal(gw_device_matches(d, d->mig[1]->uuid), 1);
	assert_absent(d, GW_Q_UTILIZATION_GPU, GW_ABSENT_NOT_SUPPORTED);
	sim_step(31 * NS_PER_S); /* the scenario splits the board again */
	d = sim_take(GW_TIERS_COMMON, 0);
	assert_true(d->mig_count > 0);
	for (unsigned i = 0; i < d->mig_count; i++)
		assert_int_equal(d->mig[i]->memory_absence, GW_HAVE);
}

SIM_TEST(names_are_cleaned_for_terminals)
{
	sim_start("[[gpu]]\nprofile = \"t4\"\nname = \"a\\u001b[31mb\\nc\"\n");
	assert_string_equal(gw_device_text(sim_take(0, 0), GW_T_NAME), "a?[31mb?c");
}

TEST(rows_are_asked_in_the_tier_of_their_quantities)
{
	static const struct {
		unsigned tier;
		uint8_t q[4];
		size_t n;
	} rows[] = {
#define READ(tier, shape, call, which, scale, most, older, ...) \
	{ GW_TIER_##tier, { __VA_ARGS__ }, sizeof((uint8_t[]){ __VA_ARGS__ }) },
#include "device/nvml_readers.def"
#undef READ
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++)
		for (size_t k = 0; k < rows[i].n; k++)
			if (rows[i].q[k] != GW_QUANTITIES)
				assert_int_equal(gw_quantity_info(rows[i].q[k])->tier,
						 rows[i].tier);
}

struct have {
	uint8_t why[2][GW_QUANTITIES];
};

static void note(struct have *h)
{
	for (unsigned i = 0; i < 2; i++)
		memcpy(h->why[i], gw_snapshot_device(sim.snap, i)->value_absence,
		       GW_QUANTITIES);
}

enum {
	FIELD_ROWS = 0
#define FIELD(...) +1
#include "device/nvml_readers.def"
#undef FIELD
};

SIM_TEST(each_missing_symbol_costs_its_own_figures_only)
{
	struct have was, is;
	char text[512];

	for (unsigned c = 0; c < CALL_COUNT; c++) {
		unsigned lost = 0;

		sim_start(TWO_GPUS);
		sim_take(GW_TIERS_ALL, 0);
		note(&was);
		sim_close();
		snprintf(text, sizeof(text), "[driver]\nmissing = [\"%s\"]\n%s", nvml_symbol[c],
			 TWO_GPUS);
		sim_start(text);
		sim_take(GW_TIERS_ALL, 0);
		if (c == CALL_init || c == CALL_shutdown || c == CALL_count ||
		    c == CALL_by_index) {
			assert_int_equal(gw_snapshot_status(sim.snap)->cause,
					 GW_CAUSE_NO_FUNCTION);
			sim_close();
			continue;
		}
		assert_int_equal(gw_snapshot_device_count(sim.snap), 2);
		note(&is);
		for (unsigned q = 0; q < GW_QUANTITIES; q++)
			if (was.why[0][q] == GW_HAVE && is.why[0][q] != GW_HAVE) {
				assert_int_equal(is.why[0][q], GW_ABSENT_NO_SYMBOL);
				lost++;
			}
		assert_in_range(lost, 0, FIELD_ROWS); /* GetFieldValues returns the most */
		if (lost && c != CALL_memory_v2)
			assert_in(gw_snapshot_status(sim.snap)->missing_symbols,
				  nvml_symbol[c]);
		sim_close();
	}
}

SIM_TEST(an_older_call_replaces_a_missing_one)
{
	sim_start("[driver]\nmissing = [\"nvmlDeviceGetMemoryInfo_v2\", "
		  "\"nvmlDeviceGetTemperatureV\", "
		  "\"nvmlDeviceGetCurrentClocksEventReasons\"]\n" TWO_GPUS);
	d = sim_take(GW_TIERS_COMMON, 0);
	assert_true(sim_value(d, GW_Q_MEMORY_TOTAL) == 150754820096.0);
	assert_true(sim_value(d, GW_Q_TEMPERATURE_GPU) > 0);
	assert_true(sim_value(d, GW_Q_CLOCK_REASONS) >= 0);
	assert_absent(d, GW_Q_MEMORY_RESERVED, GW_ABSENT_NO_SYMBOL);
}

SIM_TEST(process_layouts_of_16_24_and_32_bytes_read_the_same)
{
	static const int bytes[] = { 16, 24, 32 };
	struct gw_process_list *l;
	char text[400];

	for (size_t i = 0; i < 3; i++) {
		snprintf(text, sizeof(text),
			 "[driver]\nprocess_bytes = %d\n[[gpu]]\nprofile = \"a100\"\n"
			 "[[gpu.process]]\nmemory = \"1 GiB\"\ncount = 5\n",
			 bytes[i]);
		sim_start(text);
		sim_take(0, 0);
		assert_int_equal(gw_process_list_new(sim.ctx, &l), 0);
		assert_int_equal(gw_process_list_take(l), 0);
		assert_int_equal(gw_process_list_count(l), 5);
		for (unsigned k = 0; k < 5; k++) {
			const struct gw_process *p = gw_process_list_get(l, k);

			assert_int_equal(p->pid, 4000000 + k);
			assert_int_equal(p->memory_bytes, 1u << 30);
			assert_int_equal(p->mig_gpu_instance, -1);
			assert_int_equal(p->orphan, 1);
		}
		gw_process_list_free(l);
		sim_close();
	}
}

SIM_TEST(lists_of_any_length_are_read_whole)
{
	static const unsigned counts[] = { 0, 1, 63, 64, 65, 200, 2000 };
	struct gw_process_list *l;

	for (size_t i = 0; i < COUNT_OF(counts); i++) {
		sim_text("[[gpu]]\nprofile = \"a100\"\n");
		for (unsigned k = 0; k < counts[i]; k++)
			sim_process(0, 4000000 + k, (1 + k) << 12, 0);
		sim_open();
		assert_int_equal(gw_process_list_new(sim.ctx, &l), 0);
		assert_int_equal(gw_process_list_take(l), 0);
		assert_int_equal(gw_process_list_absence(l, 0), GW_HAVE);
		/* The driver stops at 950 processes (nvml.md); the simulator does not. */
		if (counts[i] <= 900)
			assert_int_equal(gw_process_list_count(l), counts[i]);
		else
			assert_true(gw_process_list_count(l) >= 900);
		gw_process_list_free(l);
		sim_close();
	}
}

SIM_TEST(a_process_in_two_lists_is_one)
{
	struct gw_process_list *l;

	sim_start("[[gpu]]\nprofile = \"rtx4090\"\n"
		  "[[gpu.process]]\npid = \"self\"\nmemory = \"1 GiB\"\ntype = \"both\"\n");
	assert_int_equal(gw_process_list_new(sim.ctx, &l), 0);
	assert_int_equal(gw_process_list_take(l), 0);
	assert_int_equal(gw_process_list_count(l), 1);
	assert_int_equal(gw_process_list_get(l, 0)->type,
			 GW_PROCESS_COMPUTE | GW_PROCESS_GRAPHICS);
	assert_int_equal(gw_process_list_get(l, 0)->memory_bytes, 1u << 30);
	assert_int_equal(gw_process_list_get(l, 0)->pid, getpid());
	assert_int_equal(gw_process_list_get(l, 0)->orphan, 0);
	assert_true(gw_process_list_get(l, 0)->start_ticks > 0);
	if (!under_valgrind())
		assert_string_equal(gw_process_list_get(l, 0)->name, "test_nvml");
	gw_process_list_free(l);
}

static enum gw_absence list_absence(unsigned device)
{
	struct gw_process_list *l;
	enum gw_absence why;

	assert_int_equal(gw_process_list_new(sim.ctx, &l), 0);
	assert_int_equal(gw_process_list_take(l), 0);
	why = gw_process_list_absence(l, device);
	gw_process_list_free(l);
	return why;
}

SIM_TEST(a_list_that_cannot_be_read_has_a_reason)
{
	sim_text(TWO_GPUS);
	sim_fault("nvmlDeviceGetHandleByIndex_v2", 1, 4);
	sim_open();
	assert_int_equal(list_absence(0), GW_HAVE);
	assert_int_equal(list_absence(1), GW_ABSENT_NO_PERMISSION);
	assert_int_equal(gw_ctx_release(sim.ctx), 0);
	assert_int_equal(list_absence(0), GW_ABSENT_LET_GO);
}

SIM_TEST(a_growing_list_is_asked_again)
{
	struct gw_process_list *l;

	sim_start_scenario("crowd");
	assert_int_equal(gw_process_list_new(sim.ctx, &l), 0);
	assert_int_equal(gw_process_list_take(l), 0);
	assert_true(gw_process_list_count(l) >= 80);
	gw_process_list_free(l);
}

SIM_TEST(the_power_ring_is_drained_without_duplicate_or_hole)
{
	struct power_sample s[256];
	uint64_t last = 0;
	struct device *card;
	unsigned total = 0;

	sim_start(TWO_GPUS);
	sim_step(5 * NS_PER_S);
	card = sim.ctx->slot[0]->d;
	for (int i = 0; i < 10; i++) {
		int n = card->backend->ops->power_samples(card, last, s, 256);

		assert_true(n > 0);
		for (int k = 0; k < n; k++) {
			assert_true(s[k].wall_us > last);
			if (last)
				assert_in_range(s[k].wall_us - last, 1000, 45000);
			assert_true(s[k].power_w > 10 && s[k].power_w < 1100);
			last = s[k].wall_us;
		}
		total += i ? (unsigned)n : 0;
		sim_step(NS_PER_S);
	}
	assert_in_range(total, 9 * 48, 9 * 52);
	assert_int_equal(card->backend->ops->power_samples(card, last + 10000000, s, 256), 0);
}

SIM_TEST(xids_arrive_as_events_and_clock_noise_does_not)
{
	struct device_event e;
	struct backend *b;
	void *set = NULL;
	int n;

	sim_start_scenario("lost-gpu");
	b = &sim.ctx->opener[0]->b;
	assert_int_equal(b->ops->events_open(b, &set), 0);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(b->ops->events_add(b->slot[i], set), 1);
	assert_int_equal(b->ops->events_wait(b, set, 0, &e), 0);
	sim_step(5500 * NS_PER_MS);
	n = b->ops->events_wait(b, set, 0, &e);
	assert_int_equal(n, 1);
	assert_int_equal(e.type, ABI_EVENT_XID);
	assert_int_equal(e.data, 79);
	assert_ptr_equal(e.device, sim.ctx->slot[1]->d);
	b->ops->events_close(b, set);
}

SIM_TEST(a_sleeping_gpu_is_listed_and_the_driver_not_even_initialised)
{
	char root[] = "/tmp/gpuward-asleep-XXXXXX", cmd[600];

	assert_non_null(mkdtemp(root));
	snprintf(cmd, sizeof(cmd),
		 "d=%s/sys/bus/pci/devices/0000:01:00.0; mkdir -p $d/power; echo 0x10de > "
		 "$d/vendor; "
		 "echo 0x2684 > $d/device; echo 0x030000 > $d/class; echo suspended > "
		 "$d/power/runtime_status",
		 root);
	assert_int_equal(system(cmd), 0);
	sim_text("[[gpu]]\nprofile = \"laptop\"\n");
	sim_open_with(root, 0, 0);
	d = sim_take(GW_TIERS_ALL, 0);
	assert_int_equal(sim_calls(NULL), 0);
	assert_non_null(d);
	assert_int_equal(d->state, GW_DEVICE_ASLEEP);
	assert_absent(d, GW_Q_POWER, GW_ABSENT_ASLEEP);
	assert_string_equal(gw_device_text(d, GW_T_PCI), "0000:01:00.0");
	sim_close();
	sim_open_with(root, GW_OPEN_WAKE, 0);
	d = sim_take(GW_TIERS_ALL, 0);
	assert_int_equal(d->state, GW_DEVICE_OK);
	sim_close();
	snprintf(cmd, sizeof(cmd), "rm -rf %s", root);
	assert_int_equal(system(cmd), 0);
}

SIM_TEST(sixty_four_gpus_are_all_there)
{
	sim_start_scenario("sixty-four");
	sim_take(GW_TIERS_COMMON, 0);
	assert_int_equal(gw_snapshot_device_count(sim.snap), 64);
	for (unsigned i = 0; i < 64; i++)
		assert_true(sim_value(gw_snapshot_device(sim.snap, i), GW_Q_POWER) > 0);
}

/* Must be the last test: it leaves the library open. */
SIM_TEST(a_process_that_ends_leaves_the_driver_to_the_kernel)
{
	sim_scenario("idle-h200");
	sim_open_with(NULL, 0, 0);
	sim_close();
	assert_int_equal(sim_calls("nvmlShutdown"), 1);
	sim_scenario("idle-h200");
	sim_open_with(NULL, GW_OPEN_NO_SHUTDOWN, 0);
	assert_int_equal(gw_ctx_release(sim.ctx), 0); /* a release closes it */
	assert_int_equal(sim_calls("nvmlShutdown"), 1);
	assert_int_equal(gw_ctx_reopen(sim.ctx), 0);
	sim_close();
	assert_int_equal(sim_calls("nvmlShutdown"), 1);
}

TEST_MAIN(sim_setup, NULL)
