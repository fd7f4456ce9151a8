/* snapshot: prints the current state of the machine and its GPUs, once or repeatedly. */
#include "cli.h"
#include "output.h"
#include "remote.h"
#include "term.h"
#include "table.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/mem_trim.h"
#include "serve/view.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct given {
	const char *watch;
	bool all, no_processes, cpu, direct;
	uint64_t settle_ns;
};

#define CPU_NS (50 * NS_PER_MS) /* with --cpu: time between two readings */
/* On a machine with few cores, two readings are not enough: see HOST_MIN_TICKS. */
#define CPU_TRIES 20

#define given(cli) ((const struct given *)(cli)->own)

#define COLUMNS(X)                                  \
	X(INDEX, "GPU", 0, true, false)             \
	X(NAME, "NAME", 1, false, true)             \
	X(UTIL, "UTIL", 0, true, false)             \
	X(MEMORY, "MEMORY", 0, true, false)         \
	X(TEMP, "TEMP", 0, true, false)             \
	X(POWER, "POWER", 0, true, false)           \
	X(LIMIT, "LIMIT", 4, true, false)           \
	X(SM, "SM CLOCK", 3, true, false)           \
	X(PSTATE, "STATE", 2, false, false)         \
	X(WHY, "CLOCKS LIMITED BY", 5, false, true) \
	X(MEMCLK, "MEM CLOCK", 6, true, false)      \
	X(FAN, "FAN", 7, true, false)               \
	X(ENERGY, "ENERGY", 8, true, false)         \
	X(PCI, "PCI", 9, false, false)              \
	X(SOURCE, "SOURCE", 10, false, false)

enum { COLUMNS(TABLE_SYMBOL) };
static const struct table_column columns[] = { COLUMNS(TABLE_COLUMN) TABLE_END };

#define PROCESS_COLUMNS(X)                           \
	X(P_GPU, "GPU", 0, true, false)              \
	X(P_MIG, "MIG", 1, true, false)              \
	X(P_PROCESS_ID, "PID", 0, true, false)       \
	X(P_USER, "USER", 3, false, false)           \
	X(P_TYPE, "TYPE", 4, false, false)           \
	X(P_SM, "SM", 0, true, false)                \
	X(P_MEMORY, "MEMORY", 0, true, false)        \
	X(P_ENERGY, "ENERGY", 1, true, false)        \
	X(P_CPU, "CPU", 2, true, false)              \
	X(P_RUN, "RUNS FOR", 5, true, false)         \
	X(P_NAME, "NAME", 0, false, true)            \
	X(P_CONTAINER, "CONTAINER", 6, false, false) \
	X(P_UNIT, "UNIT", 7, false, true)            \
	X(P_COMMAND, "COMMAND", 8, false, true)

enum { PROCESS_COLUMNS(TABLE_SYMBOL) };
static const struct table_column process_columns[] = { PROCESS_COLUMNS(TABLE_COLUMN)
							       TABLE_END };

#define MIG_COLUMNS(X)                              \
	X(M_GPU, "GPU", 0, true, false)             \
	X(M_INSTANCE, "MIG", 0, true, false)        \
	X(M_NAME, "INSTANCE", 0, false, true)       \
	X(M_MEMORY, "MEMORY", 0, true, false)       \
	X(M_PROCESSES, "PROCESSES", 0, true, false) \
	X(M_UUID, "UUID", 1, false, false)

enum { MIG_COLUMNS(TABLE_SYMBOL) };
static const struct table_column mig_columns[] = { MIG_COLUMNS(TABLE_COLUMN) TABLE_END };

/* Cells that contain one number with a unit. */
static const struct {
	unsigned column, quantity;
	double scale;
	const char *unit;
} cells[] = {
	{ UTIL, GW_Q_UTILIZATION_GPU, 100, "%" },
	{ TEMP, GW_Q_TEMPERATURE_GPU, 1, "°C" },
	{ POWER, GW_Q_POWER, 1, "W" },
	{ LIMIT, GW_Q_POWER_LIMIT, 1, "W" },
	{ SM, GW_Q_CLOCK_SM, 1e-6, "MHz" },
	{ MEMCLK, GW_Q_CLOCK_MEMORY, 1e-6, "MHz" },
	{ FAN, GW_Q_FAN_SPEED, 100, "%" },
};

static void set_numbers(struct table *t, const struct gw_device *d)
{
	double v;

	for (size_t i = 0; i < COUNT(cells); i++) {
		if (gw_device_value(d, cells[i].quantity, &v) == GW_HAVE)
			table_set(t, cells[i].column, TERM_PLAIN, "%.0f %s", v * cells[i].scale,
				  term_plain(cells[i].unit));
	}
}

static void set_energy(struct table *t, unsigned column, double joules)
{
	if (joules < 1e4)
		table_set(t, column, TERM_PLAIN, "%.0f J", joules);
	else
		table_set(t, column, TERM_PLAIN, "%.1f kJ", joules * 1e-3);
}

static void set_memory(struct table *t, const struct gw_device *d)
{
	char used_text[16], total_text[16];
	double used, total;

	if (gw_device_value(d, GW_Q_MEMORY_USED, &used) != GW_HAVE)
		return;
	table_text(t, MEMORY, TERM_PLAIN, figure_bytes(used_text, used));
	if (gw_device_value(d, GW_Q_MEMORY_TOTAL, &total) == GW_HAVE)
		table_set(t, MEMORY, TERM_PLAIN, "%s / %s", used_text,
			  figure_bytes(total_text, total));
}

static void set_state(struct table *t, const struct gw_device *d)
{
	char name[TABLE_CELL]; /* has room for several clock reasons */
	double v;

	if (d->state != GW_DEVICE_OK)
		table_set(t, PSTATE, cli_state_style(d->state), "%s",
			  gw_device_state_name(d->state));
	else if (gw_device_value(d, GW_Q_PERFORMANCE_STATE, &v) == GW_HAVE &&
		 gw_quantity_name(GW_Q_PERFORMANCE_STATE, v, name, sizeof(name)) == 0)
		table_set(t, PSTATE, TERM_PLAIN, "%s", name);
	if (gw_device_value(d, GW_Q_CLOCK_REASONS, &v) == GW_HAVE &&
	    gw_quantity_name(GW_Q_CLOCK_REASONS, v, name, sizeof(name)) == 0 && *name)
		table_set(t, WHY, v > 1 ? TERM_WARN : TERM_PLAIN, "%s", name);
}

static void add_device(struct table *t, const struct gw_device *d)
{
	double joules;

	table_row(t);
	table_set(t, INDEX, TERM_PLAIN, "%u", d->index);
	table_text(t, NAME, TERM_PLAIN, gw_device_text(d, GW_T_NAME));
	set_numbers(t, d);
	set_memory(t, d);
	if (gw_device_value(d, GW_Q_ENERGY, &joules) == GW_HAVE)
		set_energy(t, ENERGY, joules);
	set_state(t, d);
	table_text(t, PCI, TERM_PLAIN, gw_device_text(d, GW_T_PCI));
	table_set(t, SOURCE, d->provenance == GW_FROM_SIMULATOR ? TERM_MARK : TERM_PLAIN, "%s",
		  gw_provenance_name(d->provenance));
}

static void print_host(const struct cli *c)
{
	const struct gw_status *s = gw_snapshot_status(c->snap);
	char memory[2][16], line[400];
	struct buf b;
	double v, total;

	buf_init_fixed(&b, line, sizeof(line));
	if (gw_snapshot_host(c->snap, GW_H_CPU_UTILIZATION, &v) == GW_HAVE)
		buf_addf(&b, "CPU %.0f %%", v * 100);
	else
		buf_adds(&b, "CPU -");
	if (gw_snapshot_host(c->snap, GW_H_CPU_COUNT, &v) == GW_HAVE)
		buf_addf(&b, " (%.0f CPUs)", v);
	if (gw_snapshot_host(c->snap, GW_H_RAM_USED, &v) == GW_HAVE &&
	    gw_snapshot_host(c->snap, GW_H_RAM_TOTAL, &total) == GW_HAVE) {
		buf_addf(&b, ", RAM %s / %s", figure_bytes(memory[0], v),
			 figure_bytes(memory[1], total));
	}
	if (s->driver_version)
		buf_addf(&b, ", driver %s", s->driver_version);
	if (s->cuda_version)
		buf_addf(&b, ", CUDA up to %s", s->cuda_version);
	term_wrap("", 0, line, term_width());
}

static void print_note(const struct gw_device *d)
{
	char text[512];

	snprintf(text, sizeof(text), "GPU %u is %s: %s", d->index,
		 gw_device_state_name(d->state), d->message);
	fputs(term_on(cli_state_style(d->state)), stdout);
	term_wrap("", 0, text, term_width());
	fputs(term_off(), stdout);
}

/* Prints what is wrong with each device that does not work; the table shows only the state. */
static void print_notes(const struct cli *c)
{
	const struct gw_device *d;

	for (unsigned at = 0; (d = cli_next_device(c, &at));)
		/* The state "asleep" needs no explanation. */
		if (d->state != GW_DEVICE_OK && d->state != GW_DEVICE_ASLEEP)
			print_note(d);
}

/* Adds the row of one process. `energy` is what the service knows about the process; NULL: the
 * service did not answer. */
static void add_process(struct table *t, const struct cli *c, const struct gw_process *p,
			const struct view_process *energy)
{
	const struct gw_device *d = gw_snapshot_device(c->snap, p->device);
	char size[16];

	table_row(t);
	table_set(t, P_GPU, TERM_PLAIN, "%u", d ? d->index : p->device);
	table_set(t, P_PROCESS_ID, TERM_PLAIN, "%lld", (long long)p->pid);
	table_set(t, P_TYPE, TERM_PLAIN, "%s", figure_process_type(p->type));
	if (p->mig_gpu_instance >= 0)
		table_set(t, P_MIG, TERM_PLAIN, "%d", p->mig_gpu_instance);
	table_text(t, P_USER, TERM_PLAIN, p->user);
	if (p->sm_absence == GW_HAVE)
		table_set(t, P_SM, TERM_PLAIN, "%.0f %%", p->sm_ratio * 100);
	if (p->cpu_absence == GW_HAVE)
		table_set(t, P_CPU, TERM_PLAIN, "%.0f %%", p->cpu_cores * 100);
	if (!isnan(p->run_seconds))
		table_text(t, P_RUN, TERM_PLAIN, figure_run_time(size, p->run_seconds));
	if (p->memory_absence == GW_HAVE)
		table_text(t, P_MEMORY, TERM_PLAIN,
			   figure_bytes(size, (double)p->memory_bytes));
	if (energy && energy->absence == GW_HAVE)
		set_energy(t, P_ENERGY, energy->energy_joules);
	if (p->name)
		table_set(t, P_NAME, TERM_PLAIN, "%s", p->name);
	else if (p->orphan)
		table_set(t, P_NAME, TERM_WARN, "(not in /proc)");
	table_text(t, P_CONTAINER, TERM_PLAIN, p->container);
	table_text(t, P_UNIT, TERM_PLAIN, p->unit);
	table_text(t, P_COMMAND, TERM_DIM, p->command);
}

/* Returns the number of processes on a MIG instance, or -1 if it is unknown. */
static int count_on_instance(const struct gw_process_list *list, unsigned device,
			     const struct gw_mig *m)
{
	int n = 0;

	if (!list || m->gpu_instance < 0 || gw_process_list_absence(list, device) != GW_HAVE)
		return -1;
	for (unsigned i = 0; i < gw_process_list_count(list); i++) {
		const struct gw_process *p = gw_process_list_get(list, i);

		n += p->device == device && p->mig_gpu_instance == m->gpu_instance;
	}
	return n;
}

static void add_instance(struct table *t, const struct gw_process_list *list, unsigned device,
			 const struct gw_device *d, const struct gw_mig *m)
{
	const int processes = count_on_instance(list, device, m);
	/* Leave out the name of the board, which is in the table of GPUs. */
	const char *profile = strstr(m->name, "MIG ");
	char used[16], total[16];

	table_row(t);
	table_set(t, M_GPU, TERM_PLAIN, "%u", d->index);
	if (m->gpu_instance >= 0)
		table_set(t, M_INSTANCE, TERM_PLAIN, "%d", m->gpu_instance);
	if (*m->name)
		table_set(t, M_NAME, TERM_PLAIN, "%s", profile ? profile : m->name);
	if (m->memory_absence == GW_HAVE)
		table_set(t, M_MEMORY, TERM_PLAIN, "%s / %s",
			  figure_bytes(used, (double)m->memory_used_bytes),
			  figure_bytes(total, (double)m->memory_total_bytes));
	if (processes >= 0)
		table_set(t, M_PROCESSES, TERM_PLAIN, "%d", processes);
	table_set(t, M_UUID, TERM_PLAIN, "%s", m->uuid);
}

static void print_instances(const struct cli *c, const struct gw_process_list *list)
{
	const struct gw_device *d;
	struct table t;

	table_init(&t, mig_columns);
	for (unsigned at = 0; (d = cli_next_device(c, &at));)
		for (unsigned k = 0; k < d->mig_count; k++)
			add_instance(&t, list, at - 1, d, d->mig[k]);
	if (t.rows) {
		putchar('\n');
		table_print(&t, term_width());
	}
	table_done(&t);
}

static void print_processes(const struct cli *c, struct render_process_list processes)
{
	struct table t;

	table_init(&t, process_columns);
	for (unsigned i = 0; i < gw_process_list_count(processes.list); i++) {
		const struct gw_process *p = gw_process_list_get(processes.list, i);

		if (render_shows(&c->filter, p->device))
			add_process(&t, c, p, processes.energy ? &processes.energy[i] : NULL);
	}
	if (t.rows)
		putchar('\n');
	table_end(&t, term_width());
}

static void print_reason(const char *key, unsigned absence)
{
	char left[64];

	snprintf(left, sizeof(left), "  %s", key);
	term_wrap(left, 37, gw_absence_text(absence), term_width());
}

static void print_absent(const struct cli *c)
{
	const struct gw_device *d;

	for (unsigned at = 0; (d = cli_next_device(c, &at));) {
		printf("\nGPU %u, unknown values%s:\n", d->index,
		       given(c)->all ? "" : " (--all reads more)");
		for (unsigned q = 0; q < d->value_count; q++)
			if (d->value_absence[q] != GW_HAVE &&
			    d->value_absence[q] != GW_ABSENT_NOT_READ)
				print_reason(gw_quantity_info(q)->key, d->value_absence[q]);
	}
}

/* Prints the values that are read only with --all. The table has no columns for them. */
static void print_costly(const struct cli *c)
{
	const struct gw_device *d;

	for (unsigned at = 0; (d = cli_next_device(c, &at));) {
		if (d->state != GW_DEVICE_OK)
			continue;
		printf("\nGPU %u, further values:\n", d->index);
		for (unsigned q = 0; q < d->value_count; q++)
			if (gw_quantity_info(q)->tier & (GW_TIER_ON_REQUEST | GW_TIER_PROFILE))
				figure_value(d, q, false);
	}
}

static void print_tables(const struct cli *c, struct render_process_list processes)
{
	const struct gw_device *d;
	struct table t;

	cli_print_status(c);
	print_host(c);
	table_init(&t, columns);
	for (unsigned at = 0; (d = cli_next_device(c, &at));)
		add_device(&t, d);
	table_end(&t, term_width());
	print_notes(c);
	print_instances(c, processes.list);
	if (processes.list)
		print_processes(c, processes);
	if (given(c)->all)
		print_costly(c);
	if (c->verbose)
		print_absent(c);
}

static int print_snapshot(const struct cli *c, struct render_process_list processes)
{
	struct cli_document doc;

	if (!c->json) {
		print_tables(c, processes);
		return EXIT_OK;
	}
	/* with --watch, each document is one line */
	cli_document_begin(&doc, !given(c)->watch);
	render_snapshot(&doc.json, c->snap, processes, &c->filter);
	return cli_document_end(&doc);
}

static void sleep_until(uint64_t ns)
{
	struct timespec ts = clock_timespec(ns);

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR &&
	       !stop_requested())
		;
}

static unsigned tiers_of(const struct cli *c)
{
	return GW_TIERS_COMMON | GW_TIER_ENERGY | (given(c)->all ? GW_TIER_ON_REQUEST : 0);
}

/* Everything that is read for one snapshot. */
struct reading {
	struct gw_process_list *list; /* NULL: processes are not read */
	struct service_processes service;
	struct render_process_list processes;
};

static int take_snapshot(struct cli *c, struct reading *r)
{
	int err;

	if (r->list)
		service_processes_ask(&r->service);
	err = r->list ? gw_process_list_take(r->list) : 0;
	/* Take the snapshot after the process list. If the driver hangs while it reads the
	 * list, the snapshot then shows this as the state of the device. */
	if (!err)
		err = gw_snapshot_take(c->snap, tiers_of(c));
	if (err)
		return cli_fail("%s", gw_strerror(err));
	r->processes = service_processes_take(&r->service, r->list, c->snap);
	return EXIT_OK;
}

static int watch_devices(struct cli *c, struct reading *r, uint64_t every_ns)
{
	uint64_t next = clock_mono_ns(clock_real());
	bool screen = !c->json && screen_begin();
	int code;

	for (unsigned frames = 0;; frames++) {
		if (screen)
			screen_frame_begin();
		code = print_snapshot(c, r->processes);
		if (screen)
			screen_frame_end();
		if (code != EXIT_OK || fflush(stdout) != 0 || ferror(stdout))
			break;
		if (frames == 0)
			mem_trim_code();
		next += every_ns;
		if (next < clock_mono_ns(clock_real())) /* skip missed snapshots */
			next = clock_mono_ns(clock_real());
		sleep_until(next);
		if (screen && stop_requested())
			break;
		code = take_snapshot(c, r);
		if (code == EXIT_OK)
			code = cli_select(c);
		if (code != EXIT_OK)
			break;
	}
	if (screen)
		screen_end();
	return code;
}

/* Waits before the second reading, because the CPU utilisation is the difference between two
 * readings. Waits for the time of --settle. Without --settle, waits 50 ms with --cpu, or 100 ms
 * if the output is a table. With --all, waits at least 150 ms, because profiling metrics need
 * more than 100 ms between two readings. Returns true if it waited. */
static bool wait_for_rates(const struct cli *c, struct reading *r)
{
	uint64_t ns = given(c)->settle_ns;
	double v;

	if (given(c)->cpu && !ns)
		ns = CPU_NS;
	if (given(c)->all && ns < 150 * NS_PER_MS)
		ns = 150 * NS_PER_MS;
	if (!ns && !c->json &&
	    gw_snapshot_host(c->snap, GW_H_CPU_UTILIZATION, &v) == GW_ABSENT_FIRST_READING)
		ns = 100 * NS_PER_MS;
	if (!ns)
		return false;
	if (r->list) { /* the CPU utilisation of a process also needs two readings */
		service_processes_ask(&r->service);
		(void)gw_process_list_take(r->list);
	}
	sleep_until(clock_mono_ns(clock_real()) + ns);
	return true;
}

static bool cpu_missing(const struct cli *c)
{
	double v;

	return given(c)->cpu &&
	       gw_snapshot_host(c->snap, GW_H_CPU_UTILIZATION, &v) == GW_ABSENT_FIRST_READING;
}

static int run_with(struct cli *c, struct reading *r, uint64_t every_ns)
{
	int code;

	if (wait_for_rates(c, r) || r->list) {
		if (r->list)
			(void)gw_process_list_want(r->list, GW_PROCESS_SM);
		code = take_snapshot(c, r);
		for (int i = 0; code == EXIT_OK && i < CPU_TRIES && cpu_missing(c); i++) {
			sleep_until(clock_mono_ns(clock_real()) + CPU_NS);
			code = take_snapshot(c, r);
		}
		if (code != EXIT_OK)
			return code;
	}
	if (given(c)->watch)
		return watch_devices(c, r, every_ns);
	code = print_snapshot(c, r->processes);
	return code == EXIT_OK ? cli_device_exit_code(c) : code;
}

static int snapshot_run(struct cli *c)
{
	struct reading r = { .list = NULL };
	uint64_t every_ns = NS_PER_S;
	int code;

	if (given(c)->watch &&
	    (option_duration(given(c)->watch, &every_ns) != 0 || every_ns < 10 * NS_PER_MS))
		return cli_usage("--watch takes a time of at least 10ms such as 2s, not '%s'",
				 given(c)->watch);
	code = cli_open(c, tiers_of(c));
	if (code != EXIT_OK)
		return code;
	if (!given(c)->no_processes && gw_process_list_new(c->ctx, &r.list) != 0)
		return cli_no_memory();
	service_processes_open(&r.service, r.list && !given(c)->direct ? c : NULL);
	code = run_with(c, &r, every_ns);
	service_processes_close(&r.service);
	gw_process_list_free(r.list);
	return code;
}

#define AT(member) offsetof(struct given, member)
static const struct option options[] = {
	OPTION_OPTIONAL_ROW('w', "watch", AT(watch), "TIME",
			    "repeat the snapshot every TIME (default: 1s); with --json, each "
			    "snapshot is one line",
			    "1s"),
	OPTION_ROW(FLAG, 0, "cpu", AT(cpu), NULL,
		   "with --json: also print the CPU utilisation of the machine and of each "
		   "process; this takes 50 ms"),
	OPTION_ROW(DURATION, 0, "settle", AT(settle_ns), "TIME",
		   "time between the two CPU readings"),
	OPTION_ROW(FLAG, 'a', "all", AT(all), NULL,
		   "also read values that take longer, 0.2 s in total: PCIe traffic, GPM "
		   "metrics, SRAM state"),
	OPTION_ROW(FLAG, 0, "no-processes", AT(no_processes), NULL, "do not list processes"),
	OPTION_ROW(FLAG, 0, "direct", AT(direct), NULL,
		   "read only the driver; do not ask a service for the energy of processes"),
	OPTION_END,
};

const struct command command_snapshot = {
	.name = "snapshot",
	.summary = "show the current state of the machine and its GPUs",
	.description = "Shows CPU, memory, all figures of each GPU, and the processes that use "
		       "the GPUs. CPU utilisation is the difference between two readings: for "
		       "a table, the command waits 100 ms if necessary; for JSON, it waits "
		       "only with --cpu (50 ms) or --settle. The CPU utilisation of a process "
		       "is in percent of one core. Only a running service knows the energy of "
		       "a process: the command asks the service and waits half a second at "
		       "most. All other figures are read from the driver.",
	.examples = "  gpuward snapshot\n"
		    "  gpuward snapshot --json | jq '.devices[0].power_watts'\n"
		    "  gpuward snapshot --json --cpu | jq .host\n"
		    "  gpuward snapshot --watch=200ms --json   one line each\n",
	.verbose = "also show which values are missing, and why",
	.options = options,
	.options_size = sizeof(struct given),
	.run = snapshot_run,
};
