/* Tests the metrics of simulated GPUs, without the service. */
#include "simtest.h"

#include "serve/metrics_text.h"
#include "measure/workload_energy.h"

#include <ctype.h>
#include <math.h>
#include <time.h>

static struct view_device known[256];
static struct gw_process_list *list;
static struct api api;
static struct buf page;

static void look(unsigned tiers)
{
	sim_take(tiers, 0);
	if (!list)
		assert_int_equal(gw_process_list_new(sim.ctx, &list), 0);
	assert_int_equal(gw_process_list_take(list), 0);
	api.view.tick++;
	api.view.devices = gw_snapshot_device_count(sim.snap);
	for (unsigned i = 0; i < api.view.devices; i++)
		if (gw_snapshot_device(sim.snap, i)->state == GW_DEVICE_OK)
			known[i].seen_ns = gw_snapshot_mono_ns(sim.snap);
	api.view.snap = sim.snap;
	api.view.processes = list;
}

static void begin(const char *scenario, uint64_t deadline_ns)
{
	if (strchr(scenario, '\n'))
		sim_text(scenario);
	else
		sim_scenario(scenario);
	sim_open_with(NULL, 0, deadline_ns);
	memset(known, 0, sizeof(known));
	api = (struct api){ .clock = &sim.clock,
			    .view = { .ctx = sim.ctx,
				      .device = known,
				      .interval_ns = NS_PER_S,
				      .self.counts_known = true } };
	metrics_choose(&api.metrics, (const char *const[]){ "*", NULL },
		       (const char *const[]){ NULL }, false);
	look(GW_TIERS_COMMON | GW_TIER_ENERGY);
}

static const char *render(enum metrics_form form)
{
	buf_done(&page);
	buf_init(&page, 4 << 20);
	metrics_render(&page, &api, form);
	assert_int_equal(page.err, 0);
	return page.p;
}

static int teardown(void **state)
{
	gw_process_list_free(list);
	list = NULL;
	buf_done(&page);
	return sim_teardown(state);
}

#define TEST_TEARDOWN teardown

/* Returns the number of samples with this name and `part` in their line. */
static unsigned samples(const char *text, const char *name, const char *part)
{
	unsigned n = 0;
	char line[4096];

	for (const char *p = text; *p; p = strchr(p, '\n') + 1) {
		size_t len = (size_t)(strchr(p, '\n') - p);

		assert_true(len < sizeof(line));
		memcpy(line, p, len);
		line[len] = '\0';
		n += strncmp(line, name, strlen(name)) == 0 && strstr(line, part) != NULL;
	}
	return n;
}

/* Returns the value of the sample with this name and labels; NAN if there is none. */
static double value(const char *text, const char *series)
{
	size_t n = strlen(series);

	for (const char *p = text; *p; p = strchr(p, '\n') + 1)
		if (strncmp(p, series, n) == 0 && p[n] == ' ')
			return strtod(p + n, NULL);
	return NAN;
}

/* Returns the value of the sample of GPU i with this name and the labels in `more`. */
static double of(const char *text, const char *name, unsigned i, const char *more)
{
	char series[512];

	snprintf(series, sizeof(series), "%s{uuid=\"%s\",gpu=\"%u\"%s}", name,
		 gw_device_text(gw_snapshot_device(sim.snap, i), GW_T_UUID), i, more);
	return value(text, series);
}

#define assert_value(v, want)                                           \
	do {                                                            \
		double v_ = (v), w_ = (want);                           \
		if (!(v_ == w_))                                        \
			fail_msg("%s is %.17g, not %.17g", #v, v_, w_); \
	} while (0)

TEST(figures_equal_the_snapshot)
{
	const char *text;

	begin(TWO_GPUS, 0);
	text = render(METRICS_PROMETHEUS);
	for (unsigned i = 0; i < 2; i++) {
		const struct gw_device *d = gw_snapshot_device(sim.snap, i);

		assert_value(of(text, "gpuward_gpu_power_watts", i, ""),
			     sim_value(d, GW_Q_POWER));
		assert_value(of(text, "gpuward_gpu_memory_used_bytes", i, ""),
			     sim_value(d, GW_Q_MEMORY_USED));
		assert_value(of(text, "gpuward_gpu_driver_energy_joules_total", i, ""),
			     sim_value(d, GW_Q_ENERGY));
		assert_value(of(text, "gpuward_gpu_up", i, ""), 1);
		assert_value(of(text, "gpu_power_watts", i, ""), sim_value(d, GW_Q_POWER));
		assert_value(of(text, "gpu_utilization_percent", i, ""),
			     rint(100 * sim_value(d, GW_Q_UTILIZATION_GPU)));
		assert_value(of(text, "gpu_other_processes_count", i, ""), 1);
	}
	assert_value(value(text, "gpuward_up"), 1);
	assert_value(value(text, "gpuward_nvml_up"), 1);
	assert_int_equal(samples(text, "gpuward_gpu_info{", "simulated=\"true\""), 2);
	assert_int_equal(samples(text, "gpuward_host_ram_total_bytes ", ""), 1);
}

TEST(every_known_figure_has_one_sample_per_gpu)
{
	const struct gw_device *d;
	const char *text;

	begin(TWO_GPUS, 0);
	text = render(METRICS_PROMETHEUS);
	d = gw_snapshot_device(sim.snap, 0);
	for (unsigned q = 0; q < GW_QUANTITIES; q++) {
		const struct gw_quantity_info *info = gw_quantity_info(q);
		double v = NAN, got;
		char name[128];

		if (info->kind == GW_KIND_ENUM || info->kind == GW_KIND_MASK ||
		    q == GW_Q_ENERGY)
			continue;
		snprintf(name, sizeof(name), "gpuward_gpu_%s%s", info->key,
			 info->kind == GW_KIND_COUNTER ? "_total" : "");
		gw_device_value(d, q, &v);
		got = of(text, name, 0, "");
		if (isnan(v) ? !isnan(got) : got != v)
			fail_msg("%s is %g, not %g", name, got, v);
	}
}

TEST(enumerations_are_series_with_one_set)
{
	const char *text;
	double sum = 0;

	begin("thermal-throttle", 0);
	sim_step(120 * NS_PER_S);
	look(GW_TIERS_COMMON);
	text = render(METRICS_PROMETHEUS);
	assert_int_equal(samples(text, "gpuward_gpu_clock_event_reason{", "reason="), 9);
	assert_int_equal(samples(text, "gpuward_gpu_recovery_action{", "state="), 6);
	assert_value(of(text, "gpuward_gpu_recovery_action", 0, ",state=\"none\""), 1);
	assert_value(of(text, "gpuward_gpu_recovery_action", 0, ",state=\"reset_gpu\""), 0);
	for (unsigned s = 0; s <= GW_DEVICE_CLOSED; s++) {
		char more[64];

		snprintf(more, sizeof(more), ",state=\"%s\"", gw_device_state_name(s));
		sum += of(text, "gpuward_gpu_state", 0, more);
	}
	assert_value(sum, 1);
}

TEST(the_bits_of_the_mask_are_its_reasons)
{
	uint64_t mask;
	const char *text;

	begin("power-cap", 0);
	sim_step(20 * NS_PER_S);
	look(GW_TIERS_COMMON);
	text = render(METRICS_PROMETHEUS);
	mask = (uint64_t)sim_value(gw_snapshot_device(sim.snap, 0), GW_Q_CLOCK_REASONS);
	assert_true(mask != 0);
	assert_value(of(text, "gpuward_gpu_clock_event_reason", 0, ",reason=\"sw_power_cap\""),
		     (mask & 0x4u) != 0);
	assert_value(of(text, "gpuward_gpu_clock_event_reason", 0, ",reason=\"idle\""),
		     (mask & 0x1u) != 0);
}

/* Asserts that GPU 1 has only the metrics that need no reading. */
static void assert_silent(const char *text, const char *state)
{
	static const char *const gauges[] = {
		"gpuward_gpu_power_watts",       "gpuward_gpu_memory_used_bytes",
		"gpuward_gpu_power_limit_watts", "gpuward_gpu_cores",
		"gpuward_gpu_processes",         "gpu_temperature_celsius",
		"gpu_other_processes_count",
	};
	char more[64];

	snprintf(more, sizeof(more), ",state=\"%s\"", state);
	for (size_t i = 0; i < COUNT_OF(gauges); i++) {
		assert_true(isnan(of(text, gauges[i], 1, "")));
		assert_true(!isnan(of(text, gauges[i], 0, "")));
	}
	assert_int_equal(samples(text, "gpuward_gpu_clock_event_reason{", "gpu=\"1\""), 0);
	assert_int_equal(samples(text, "gpuward_gpu_info{", "gpu=\"1\""), 1);
	assert_value(of(text, "gpuward_gpu_up", 1, ""), 0);
	assert_value(of(text, "gpuward_gpu_state", 1, more), 1);
	assert_value(of(text, "gpuward_energy_joules_total", 1, ""), 123.456789);
	assert_value(of(text, "gpuward_query_errors_total", 1, ",reason=\"lost\""), 7);
	assert_true(of(text, "gpuward_gpu_last_seen_timestamp_seconds", 1, "") <
		    of(text, "gpuward_gpu_last_seen_timestamp_seconds", 0, ""));
}

TEST(a_lost_gpu_has_only_up_its_name_and_its_counters)
{
	begin(TWO_GPUS, 0);
	known[1].energy_joules = 123.456789;
	known[1].errors[GW_ABSENT_LOST] = 7;
	sim_fault(NULL, 1, ABI_GPU_IS_LOST);
	sim_step(NS_PER_S);
	look(GW_TIERS_COMMON);
	assert_silent(render(METRICS_PROMETHEUS), "lost");
	sim_fault(NULL, 1, 0);
}

TEST(a_stalled_gpu_has_only_up_its_name_and_its_counters)
{
	begin(TWO_GPUS, 300 * NS_PER_MS);
	known[1].energy_joules = 123.456789;
	known[1].errors[GW_ABSENT_LOST] = 7;
	sim_hang("nvmlDeviceGetPowerUsage", 1);
	sim_step(NS_PER_S);
	look(GW_TIERS_COMMON);
	assert_silent(render(METRICS_PROMETHEUS), "stalled");
	/* Let the call return, so that the context can be closed. */
	sim_unhang();
	while (sim_take(GW_TIER_FAST, 1)->state == GW_DEVICE_STALLED)
		;
}

TEST(before_the_first_reading_there_is_no_gpu)
{
	struct api empty = { .clock = clock_real(),
			     .view = { .interval_ns = NS_PER_S, .self.counts_known = true } };
	const char *text;

	api = empty;
	text = render(METRICS_OPENMETRICS);
	assert_value(value(text, "gpuward_up"), 0);
	assert_value(value(text, "gpuward_nvml_up"), 0);
	assert_value(value(text, "nvml_init_failures_total"), 0);
	assert_int_equal(samples(text, "nvml_query_errors_total", ""), 0);
	assert_int_equal(samples(text, "gpuward_gpu", ""), 0);
	assert_int_equal(samples(text, "gpuward_tick_seconds", ""), 0);
	assert_int_equal(samples(text, "process_resident_memory_bytes", ""), 0);
	assert_int_equal(samples(text, "gpuward_http", ""), 0);
	assert_in(text, "gpuward_build_info{version=\"");
}

TEST(counters_without_their_earlier_value_are_left_out)
{
	static const char *const names[] = {
		"gpuward_energy_joules_total",      "gpuward_energy_measured_seconds_total",
		"gpuward_gpu_state_changes_total",  "gpuward_query_errors_total",
		"gpuward_nvml_init_failures_total", "nvml_init_failures_total"
	};

	begin(TWO_GPUS, 0);
	for (unsigned with = 0; with < 2; with++) {
		const char *text;

		api.view.self.counts_known = with;
		text = render(METRICS_OPENMETRICS);
		for (size_t i = 0; i < COUNT_OF(names); i++) {
			print_message("%s %u\n", names[i], with);
			assert_int_equal(samples(text, names[i], "") > 0, with);
		}
		assert_true(samples(text, "gpuward_gpu_power_watts", "") > 0);
	}
}

TEST(up_falls_when_the_reading_is_old)
{
	begin(TWO_GPUS, 0);
	assert_value(value(render(METRICS_PROMETHEUS), "gpuward_up"), 1);
	sim_step(10 * NS_PER_S);
	assert_value(value(render(METRICS_PROMETHEUS), "gpuward_up"), 0);
}

TEST(energy_that_is_not_known_has_no_sample)
{
	const char *text;

	begin(TWO_GPUS, 0);
	known[0].energy_joules = NAN;
	known[1].energy_joules = 0.1 + 0.2;
	known[1].energy_seconds = 5;
	text = render(METRICS_PROMETHEUS);
	assert_true(isnan(of(text, "gpuward_energy_joules_total", 0, "")));
	assert_true(isnan(of(text, "gpuward_energy_measured_seconds_total", 0, "")));
	assert_value(of(text, "gpuward_energy_joules_total", 1, ""), 0.3);
	assert_value(of(text, "gpuward_energy_measured_seconds_total", 1, ""), 5);
}

TEST(known_errors_start_at_0)
{
	const char *text;

	begin(TWO_GPUS, 0);
	text = render(METRICS_PROMETHEUS);
	for (unsigned a = 1; a < GW_ABSENCES; a++) {
		char more[64];
		double v;

		snprintf(more, sizeof(more), ",reason=\"%s\"", gw_absence_key(a));
		v = of(text, "gpuward_query_errors_total", 1, more);
		assert_true(view_is_error(a) ? v == 0 : isnan(v));
	}
	known[0].errors[GW_ABSENT_ERROR] = 2;
	known[1].errors[GW_ABSENT_LOST] = 3;
	known[1].errors[GW_ABSENT_NOT_READ] = 100; /* does not count as an error */
	assert_value(value(render(METRICS_PROMETHEUS), "nvml_query_errors_total"), 5);
}

TEST(calls_of_the_library_and_their_errors_are_there)
{
	const char *text;

	begin(TWO_GPUS, 0);
	sim_fault("nvmlDeviceGetPowerUsage", 0, ABI_TIMEOUT);
	sim_step(NS_PER_S);
	look(GW_TIERS_COMMON);
	sim_fault("nvmlDeviceGetPowerUsage", 0, 0);
	text = render(METRICS_PROMETHEUS);
	assert_value(value(text, "gpuward_nvml_calls_total{call=\"nvmlInit_v2\"}"), 1);
	assert_value(value(text, "gpuward_nvml_call_errors_total{call=\"nvmlInit_v2\"}"), 0);
	assert_value(value(text, "gpuward_nvml_errors_total{call=\"nvmlDeviceGetPowerUsage\","
				 "code=\"TIMEOUT\"}"),
		     1);
	assert_true(value(text, "gpuward_nvml_call_seconds_total{call=\"nvmlInit_v2\"}") > 0);
}

TEST(instances_have_memory_and_energy_is_counted_per_board)
{
	const struct gw_device *d;
	const char *text;

	begin("mig", 0);
	text = render(METRICS_PROMETHEUS);
	d = gw_snapshot_device(sim.snap, 0);
	assert_true(d->mig_count > 1);
	assert_int_equal(samples(text, "gpuward_mig_memory_used_bytes{", "profile=\"1g."), 2);
	assert_int_equal(samples(text, "gpuward_mig_memory_total_bytes{", "mig_uuid=\"MIG-"),
			 d->mig_count);
	assert_int_equal(samples(text, "gpuward_energy_joules_total", ""), 1);
}

#define CROWD                                                             \
	"[[gpu]]\nprofile = \"h100\"\n"                                   \
	"[[gpu.process]]\nname = \"rank\"\nmemory = 1048576\ncount = 8\n" \
	"[[gpu.process]]\nname = \"big\"\nmemory = 1073741824\n"          \
	"[[gpu.process]]\nname = \"small\"\nmemory = 4096\n"              \
	"[[gpu.process]]\nname = \"other\"\nmemory = 8192\n"

TEST(programs_with_most_memory_are_shown_and_the_rest_is_exact)
{
	const char *text;

	begin(CROWD, 0);
	text = render(METRICS_PROMETHEUS);
	assert_int_equal(samples(text, "gpuward_process_memory_bytes", ""), 0);
	assert_value(of(text, "gpuward_gpu_processes", 0, ""), 11);
	api.top = 2;
	text = render(METRICS_PROMETHEUS);
	assert_int_equal(samples(text, "gpuward_process_memory_bytes{", ""), 3);
	assert_value(of(text, "gpuward_process_memory_bytes", 0, ",name=\"big\",user=\"\""),
		     1073741824);
	assert_value(of(text, "gpuward_process_memory_bytes", 0, ",name=\"rank\",user=\"\""),
		     8 * 1048576);
	assert_value(of(text, "gpuward_process_memory_bytes", 0, ",name=\"other\",user=\"\""),
		     4096 + 8192);
	api.top = 100;
	text = render(METRICS_PROMETHEUS);
	assert_value(of(text, "gpuward_process_memory_bytes", 0, ",name=\"other\",user=\"\""),
		     8192);
	assert_int_equal(samples(text, "gpuward_process_memory_bytes{", ""), 4);
}

TEST(both_forms_have_the_same_samples)
{
	const char *a, *b;
	char *plain;

	begin(TWO_GPUS, 0);
	plain = strdup(render(METRICS_PROMETHEUS));
	a = plain;
	b = render(METRICS_OPENMETRICS);
	while (*a || *b) {
		size_t n = (size_t)(strchrnul(a, '\n') - a);

		if (*a == '#') {
			a += n + 1;
		} else if (*b == '#') {
			b = strchr(b, '\n') + 1;
		} else {
			assert_memory_equal(a, b, n + 1);
			a += n + 1;
			b += n + 1;
		}
	}
	free(plain);
}

TEST(openmetrics_names_counters_without_total_and_ends_with_eof)
{
	const char *text;

	begin(TWO_GPUS, 0);
	text = render(METRICS_OPENMETRICS);
	assert_in(text, "# TYPE gpuward_energy_joules counter\n"
			"# UNIT gpuward_energy_joules joules\n");
	assert_in(text, "# TYPE gpuward_gpu info\n");
	assert_string_equal(text + strlen(text) - 6, "# EOF\n");
	text = render(METRICS_PROMETHEUS);
	assert_in(text, "# TYPE gpuward_energy_joules_total counter\n");
	assert_null(strstr(text, "# EOF"));
	assert_null(strstr(text, "# UNIT"));
}

TEST(an_accept_header_chooses_the_form)
{
	static const struct {
		const char *accept;
		enum metrics_form form;
	} rows[] = {
		{ NULL, METRICS_PROMETHEUS },
		{ "", METRICS_PROMETHEUS },
		{ "*/*", METRICS_PROMETHEUS },
		{ "text/html,application/xhtml+xml,*/*;q=0.8", METRICS_PROMETHEUS },
		{ "text/plain;version=0.0.4", METRICS_PROMETHEUS },
		{ "application/openmetrics-text", METRICS_OPENMETRICS },
		{ "Application/OpenMetrics-Text ; Version=1.0.0", METRICS_OPENMETRICS },
		{ "application/openmetrics-text;version=1.0.0,application/openmetrics-text;"
		  "version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
		  METRICS_OPENMETRICS },
		{ "application/openmetrics-text; version=2.0.0, */*", METRICS_PROMETHEUS },
		{ "application/openmetrics-text;q=0.3,text/plain;q=0.9", METRICS_PROMETHEUS },
		{ "application/openmetrics-text;q=0", METRICS_PROMETHEUS },
		{ "application/openmetrics-text;q=0.3,*/*;q=0.9", METRICS_PROMETHEUS },
		{ "application/openmetrics-text;q=0.3,text/plain;q=0.2,*/*;q=0.9",
		  METRICS_OPENMETRICS },
		{ "application/openmetrics-text;q=,;,,;q=;version", METRICS_OPENMETRICS },
		{ ",,,;;;", METRICS_PROMETHEUS },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++)
		if (metrics_negotiate(rows[i].accept) != rows[i].form)
			fail_msg("\"%s\" is misread", rows[i].accept);
	assert_string_equal(metrics_type(METRICS_PROMETHEUS),
			    "text/plain; version=0.0.4; charset=utf-8");
}

TEST(labels_are_escaped_and_valid_utf8)
{
	struct labels l;

	labels_clear(&l);
	labels_add(&l, "a", "x\\y\"z\n\xff\xc3\xa4");
	labels_add(&l, "b", NULL);
	labels_add_number(&l, "c", UINT64_MAX);
	assert_string_equal(l.text, "a=\"x\\\\y\\\"z\\n\xef\xbf\xbd\xc3\xa4\",b=\"\","
				    "c=\"18446744073709551615\"");
}

TEST(labels_that_do_not_fit_are_cut_between_characters)
{
	char longest[3 * METRIC_LABELS_SIZE];
	struct labels l;

	for (unsigned shift = 0; shift < 8; shift++) {
		for (size_t i = 0; i + 1 < sizeof(longest); i++)
			longest[i] = i < shift ? 'x' : (i - shift) % 2 ? '\xa4' : '\xc3';
		longest[sizeof(longest) - 1] = '\0';
		labels_clear(&l);
		labels_add(&l, "name", longest);
		assert_true(l.len < METRIC_LABELS_SIZE && l.len > METRIC_LABELS_SIZE - 8);
		assert_int_equal(strlen(l.text), l.len);
		assert_true(l.text[l.len - 1] == '"');
		assert_true(l.text[l.len - 2] == '\xa4');
		/* a label for which no space is left is omitted */
		labels_add(&l, "more", "y");
		assert_int_equal(strlen(l.text), l.len);
	}
}

static const char *number(double v)
{
	static const struct metric m = { .name = "m", .help = "help", .labels = "" };
	struct metrics_text t = { .out = &page };

	buf_done(&page);
	buf_init(&page, 4096);
	metrics_family(&t, &m);
	metrics_sample(&t, NULL, NULL, v);
	return page.len ? strrchr(page.p, ' ') + 1 : "";
}

static void choose(const char *include, const char *exclude, bool dcgm)
{
	metrics_choose(&api.metrics, (const char *const[]){ include, NULL },
		       (const char *const[]){ exclude, NULL }, dcgm);
}

TEST(a_gpu_of_one_workload_has_its_labels_in_the_dcgm_names)
{
	struct workload_row rows[] = {
		{ .workload = { WORKLOAD_KUBERNETES, "uid-1", "ml", "train-0", "main" },
		  .processes = 1 },
		{ .workload = { WORKLOAD_KUBERNETES, "uid-1", "ml", "train-0", "side" },
		  .processes = 0 },
		{ .workload = { WORKLOAD_SLURM, "4711", "ann", "4711", "0" },
		  .gpu = 1,
		  .processes = 2 },
	};
	struct workload_energy e = { .row = rows, .count = 3 };
	const char *text;

	begin(TWO_GPUS, 0);
	choose(NULL, NULL, true);
	api.view.workloads = &e;
	text = render(METRICS_PROMETHEUS);
	assert_int_equal(samples(text, "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\"",
				 ",pod=\"train-0\",namespace=\"ml\",container=\"main\"}"),
			 1);
	assert_int_equal(samples(text, "DCGM_FI_DEV_GPU_TEMP{gpu=\"1\"", ",hpc_job=\"4711\"}"),
			 1);
	/* two containers of one pod: the labels have the pod, but no container */
	rows[1].processes = 1;
	text = render(METRICS_PROMETHEUS);
	assert_int_equal(samples(text, "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\"",
				 ",pod=\"train-0\",namespace=\"ml\"}"),
			 1);
	/* two workloads: no labels */
	rows[2].gpu = 0;
	text = render(METRICS_PROMETHEUS);
	assert_int_equal(samples(text, "DCGM_", "pod="), 0);
	assert_int_equal(samples(text, "DCGM_", "hpc_job="), 0);
}

TEST(a_name_has_priority_over_a_group_and_a_group_over_a_pattern)
{
	static const struct {
		const char *include, *exclude;
		bool power, cores, dcgm;
	} rows[] = {
		{ NULL, NULL, true, false, false },
		{ "*", NULL, true, true, false },
		{ NULL, "*", false, false, false },
		{ "*", "*", false, false, false },
		{ "core", "*", true, false, false },
		{ "gpuward_gpu_power_watts", "core", true, false, false },
		{ "*cores", "settings", true, false, false },
		{ "gpuward_gpu_cores", "settings", true, true, false },
		{ "gpuward_*_watts", "*_watts", false, false, false },
		{ "DCGM_FI_DEV_*", NULL, true, false, true },
		{ "dcgm", "DCGM*", true, false, true },
		{ "dcgm", "DCGM_FI_DEV_GPU_TEMP", true, false, false },
	};

	begin(TWO_GPUS, 0);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		const char *text;

		choose(rows[i].include, rows[i].exclude, false);
		text = render(METRICS_PROMETHEUS);
		if ((samples(text, "gpuward_gpu_power_watts{", "") == 2) != rows[i].power ||
		    (samples(text, "gpuward_gpu_cores{", "") == 2) != rows[i].cores ||
		    (samples(text, "DCGM_FI_DEV_GPU_TEMP{", "") == 2) != rows[i].dcgm)
			fail_msg("row %zu", i);
	}
}

TEST(capacity_needs_no_guard)
{
	const char *text;

	begin(TWO_GPUS, 0);
	choose("capacity", NULL, false);
	text = render(METRICS_PROMETHEUS);
	assert_null(api.view.guard);
	assert_value(of(text, "gpuward_capacity_available_bytes", 0, ""),
		     sim_value(gw_snapshot_device(sim.snap, 0), GW_Q_MEMORY_FREE));
	assert_value(of(text, "gpuward_capacity_headroom_bytes", 0, ""), 0);
	assert_value(of(text, "gpuward_capacity_evictable_bytes", 0, ""), 0);
	assert_int_equal(samples(text, "gpuward_capacity_available_min_bytes{", ""), 0);
	assert_int_equal(samples(text, "gpuward_guard_", ""), 0);
}

TEST(numbers_are_the_shortest_that_read_back)
{
	static const struct {
		double v;
		const char *text;
	} rows[] = {
		{ 0, "0\n" },
		{ 1, "1\n" },
		{ -3, "-3\n" },
		{ 0.1, "0.1\n" },
		{ -0.25, "-0.25\n" },
		{ 111.326, "111.326\n" },
		{ 1e-9, "0.000000001\n" },
		{ 5e-324, "4.94066e-324\n" },
		{ 1794736106.278, "1794736106.278\n" },
		{ 85520809984, "85520809984\n" },
		{ 1.7976931348623157e308, "1.7976931348623157e+308\n" },
		{ 0.3 + 1e-16, "0.3000000000000001\n" },
		{ NAN, "" },
		{ INFINITY, "" },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++)
		assert_string_equal(number(rows[i].v), rows[i].text);
}

TEST(any_number_reads_back)
{
	unsigned seed = (unsigned)time(NULL);

	print_message("seed %u\n", seed);
	srand(seed);
	for (unsigned i = 0; i < 100000; i++) {
		double v = (double)rand() / (1 + rand() % 1000000);

		if (i % 3 == 0)
			v = rint(v * 1e6) / 1e6;
		if (i % 7 == 0)
			v = -v * 1e-5;
		if (strtod(number(v), NULL) != v)
			fail_msg("%.17g became %s", v, number(v));
	}
}

TEST(a_metrics_page_that_does_not_fit_is_an_error)
{
	char small[5000];
	struct buf b;

	begin(TWO_GPUS, 0);
	buf_init_fixed(&b, small, sizeof(small));
	metrics_render(&b, &api, METRICS_PROMETHEUS);
	assert_int_equal(b.err, -GW_E_SIZE);
	assert_true(b.len < sizeof(small));
}

TEST(sixty_four_gpus_are_all_there)
{
	begin("sixty-four", 0);
	assert_int_equal(samples(render(METRICS_PROMETHEUS), "gpuward_gpu_up{", ""), 64);
}

TEST(names_are_well_formed_and_each_is_there_once)
{
	struct metric m, n;

	for (unsigned i = 0; metrics_table(i, &m); i++) {
		if (!m.name)
			continue;
		assert_true(strlen(m.name) < 100 && strlen(m.help) > 3);
		assert_null(strpbrk(m.help, "\\\"\n"));
		assert_string_not_equal(m.name + strlen(m.name) - 6, "_total");
		for (const char *c = m.name; *c; c++)
			assert_true((m.group == METRIC_GROUP_DCGM
					     ? isupper((unsigned char)*c)
					     : islower((unsigned char)*c)) ||
				    *c == '_' || (isdigit((unsigned char)*c) && c > m.name));
		for (unsigned k = 0; metrics_table(k, &n); k++)
			if (k != i && n.name && strcmp(m.name, n.name) == 0)
				fail_msg("%s is there twice", m.name);
	}
}

TEST_MAIN(sim_setup, NULL)
