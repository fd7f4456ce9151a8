/* Tests the effect of each NVML call that fails: every call of NVML_CALLS with every error code
 * in three situations, on the simulator in stepped time. Prints one row per call. A cell in
 * which the call is not made must have a reason in this file.
 *
 * - start: the call fails from before the driver is opened; later it works again.
 * - steady: the call begins to fail after everything was read once; later it works again.
 * - guard: the call begins to fail while a guarded worker holds memory. Then a contender arrives,
 *   the call works again, and the contender leaves. */
#include "here.h"
#include "simtest.h"

#include "device/nvml_reader.h"
#include "device/sampler_device.h"
#include "guard/api.h"
#include "guard/guard_query.h"

#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/wait.h>

#define GIB  (UINT64_C(1) << 30)
#define HELD (4 * GIB) /* by the guarded worker */

enum situation { START, STEADY, GUARD, SITUATIONS };

/* Every error code of NVML, one that NVML does not have yet, and "unknown". */
static const int all_codes[] = {
	1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16,
	17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 77, 999
};
/* For sanitizers and valgrind: one code of each kind that the source distinguishes. */
static const int few_codes[] = { 2, 3, 4, 6, 7, 8, 9, 10, 13, 15, 18, 19, 21, 25, 999 };

static const int *codes = all_codes;
static unsigned code_count = COUNT_OF(all_codes);

static void codes_choose(void)
{
#ifdef SLOW
	const bool slow = true;
#else
	const bool slow = under_valgrind();
#endif

	if (slow) {
		codes = few_codes;
		code_count = COUNT_OF(few_codes);
	}
}

/* ---- which figures a call returns ---- */

enum figure {
	F_TEXT = GW_QUANTITIES, /* name, UUID, ... */
	F_LIST = F_TEXT + GW_TEXTS,
	F_USE,
	F_RING,
	F_EVENTS,
	F_INSTANCES,
	F_SET, /* each setting can be set and restored */
	FIGURES = F_SET + MANAGE_WHATS
};

static const char *figure_name(unsigned f)
{
	static const char *const other[] = { "process list", "process utilisation",
					     "power ring", "events", "MIG instances" };

	if (f < F_TEXT)
		return gw_quantity_info(f)->key;
	if (f < F_LIST)
		return gw_text_key(f - F_TEXT);
	return f < F_SET ? other[f - F_LIST] : manage_info(f - F_SET)->name;
}

static struct {
	bool figure[FIGURES]; /* figures that may be absent if the call fails */
	/* the part of these figures that no other call returns */
	bool must[FIGURES];
	/* per figure, the call that is made if this call is missing; CALL_none: no call */
	enum nvml_call older[FIGURES];
	unsigned tiers; /* 0: the call is in no row of nvml_readers.def */
} about[CALL_COUNT];

static void about_fields(enum nvml_call call, unsigned tier, enum nvml_shape shape)
{
	static const uint8_t fields[] = {
#define FIELD(quantity, id, scope, scale, max) GW_Q_##quantity,
#include "device/nvml_readers.def"
#undef FIELD
	};
	static const uint8_t gpm[] = {
#define GPM(quantity, metric) GW_Q_##quantity,
#include "device/nvml_readers.def"
#undef GPM
	};

	for (size_t i = 0; i < sizeof(fields) && shape == SHAPE_FIELDS; i++)
		if (gw_quantity_info(fields[i])->tier == tier)
			about[call].figure[fields[i]] = about[call].must[fields[i]] = true;
	for (size_t i = 0; i < sizeof(gpm) && shape == SHAPE_GPM; i++)
		for (enum nvml_call c = CALL_gpm_support; c <= CALL_gpm_metrics; c++) {
			about[c].figure[gpm[i]] = true;
			about[c].tiers = tier;
		}
}

static void about_row(unsigned tier, enum nvml_shape shape, enum nvml_call call,
		      enum nvml_call older, const uint8_t *q, size_t n)
{
	about[call].tiers |= tier;
	about_fields(call, tier, shape);
	if (older != CALL_none)
		about[older].tiers |= tier;
	for (size_t i = 0; i < n && q[i] != GW_QUANTITIES; i++) {
		about[call].figure[q[i]] = about[call].must[q[i]] = true;
		about[call].older[q[i]] = older;
		if (older != CALL_none)
			about[older].figure[q[i]] = about[older].must[q[i]] = true;
	}
}

/* Figures that no row of nvml_readers.def names. */
static const struct {
	enum nvml_call call;
	unsigned figure;
} more_figures[] = {
	{ CALL_name, F_TEXT + GW_T_NAME },
	{ CALL_uuid, F_TEXT + GW_T_UUID },
	{ CALL_serial, F_TEXT + GW_T_SERIAL },
	{ CALL_vbios, F_TEXT + GW_T_VBIOS },
	{ CALL_part_number, F_TEXT + GW_T_PART_NUMBER },
	{ CALL_pci, F_TEXT + GW_T_PCI },
	{ CALL_driver_version, F_TEXT + GW_T_DRIVER },
	{ CALL_compute_v3, F_LIST },
	{ CALL_compute_v2, F_LIST },
	{ CALL_compute_v1, F_LIST },
	{ CALL_graphics_v3, F_LIST },
	{ CALL_graphics_v2, F_LIST },
	{ CALL_graphics_v1, F_LIST },
	{ CALL_mps_v3, F_LIST },
	{ CALL_mps_v2, F_LIST },
	{ CALL_mps_v1, F_LIST },
	{ CALL_process_utilization, F_USE },
	{ CALL_samples, F_RING },
	{ CALL_event_set_create, F_EVENTS },
	{ CALL_event_types, F_EVENTS },
	{ CALL_event_register, F_EVENTS },
	{ CALL_event_wait, F_EVENTS },
	{ CALL_mig_mode, F_INSTANCES },
	{ CALL_mig_max, F_INSTANCES },
	{ CALL_mig_by_index, F_INSTANCES },
	{ CALL_gpu_instance, F_INSTANCES },
	{ CALL_compute_instance, F_INSTANCES },
	{ CALL_memory, F_INSTANCES },
	{ CALL_name, F_INSTANCES },
	{ CALL_uuid, F_INSTANCES },
	{ CALL_persistence, F_SET + MANAGE_PERSISTENCE },
	{ CALL_set_persistence, F_SET + MANAGE_PERSISTENCE },
	{ CALL_compute_mode, F_SET + MANAGE_COMPUTE_MODE },
	{ CALL_set_compute_mode, F_SET + MANAGE_COMPUTE_MODE },
	{ CALL_power_limit, F_SET + MANAGE_POWER_LIMIT },
	{ CALL_set_power_limit_v2, F_SET + MANAGE_POWER_LIMIT },
	{ CALL_set_power_limit, F_SET + MANAGE_POWER_LIMIT },
	{ CALL_set_gpu_clocks, F_SET + MANAGE_GPU_CLOCKS },
	{ CALL_reset_gpu_clocks, F_SET + MANAGE_GPU_CLOCKS },
	{ CALL_set_memory_clocks, F_SET + MANAGE_MEMORY_CLOCKS },
	{ CALL_reset_memory_clocks, F_SET + MANAGE_MEMORY_CLOCKS },
	{ CALL_ecc_errors, F_SET + MANAGE_CLEAR_ECC },
	{ CALL_clear_ecc, F_SET + MANAGE_CLEAR_ECC },
};

/* Calls without which there is no GPU, or an order cannot find its GPU. */
static const enum nvml_call costs_all[] = { CALL_init, CALL_count, CALL_by_index,
					    CALL_by_uuid };

static void about_fill(void)
{
	for (unsigned c = 0; c < CALL_COUNT; c++)
		for (unsigned f = 0; f < FIGURES; f++)
			about[c].older[f] = CALL_none;
#define READ(tier, shape, call, which, scale, most, older, ...)             \
	about_row(GW_TIER_##tier, SHAPE_##shape, CALL_##call, CALL_##older, \
		  (uint8_t[]){ __VA_ARGS__ }, sizeof((uint8_t[]){ __VA_ARGS__ }));
#include "device/nvml_readers.def"
#undef READ
	/* A setting needs its bounds, and the call that names the GPU. */
	for (unsigned c = 0; c < CALL_COUNT; c++)
		for (unsigned w = 0; w < MANAGE_WHATS; w++) {
			const struct manage_info *m = manage_info(w);
			const unsigned q[] = { m->quantity, m->lowest, m->highest,
					       m->standard };

			for (unsigned i = 0; i < COUNT_OF(q); i++)
				if (q[i] < GW_QUANTITIES && about[c].figure[q[i]])
					about[c].figure[F_SET + w] = true;
			about[c].figure[F_SET + w] |= c == CALL_uuid;
		}
	for (size_t i = 0; i < COUNT_OF(more_figures); i++)
		about[more_figures[i].call].figure[more_figures[i].figure] = true;
	for (size_t i = 0; i < COUNT_OF(costs_all); i++)
		memset(about[costs_all[i]].figure, true, FIGURES);
}

static int matrix_setup(void **state)
{
	codes_choose();
	about_fill();
	return sim_setup(state);
}

/* ---- the world of a call ---- */

#define TWO(profile)                                                 \
	"[[gpu]]\nprofile = \"" profile "\"\ncount = 2\nnoise = 0\n" \
	"[[gpu.load]]\nkind = \"constant\"\nlevel = 0.5\n"
#define WITH_INSTANCES                                                                \
	"[[gpu]]\nprofile = \"h200\"\nnoise = 0\n"                                    \
	"[[gpu.mig]]\nindex = 0\ngpu_instance = 1\nslices = 3\nmemory = \"69 GiB\"\n" \
	"profile = \"3g.71gb\"\n[[gpu]]\nprofile = \"h200\"\nnoise = 0\n"

/* Calls that the common world (two H200) does not cause. `hidden` are symbols that the
 * library must not have; `lost`: the GPU is lost while the call fails. */
static const struct {
	enum nvml_call call;
	const char *world, *hidden;
	bool lost;
} worlds[] = {
	{ CALL_by_uuid, NULL, NULL, true },
	{ CALL_memory, NULL, "\"nvmlDeviceGetMemoryInfo_v2\"", false },
	{ CALL_reasons_old, NULL, "\"nvmlDeviceGetCurrentClocksEventReasons\"", false },
	{ CALL_power_limit, NULL, "\"nvmlDeviceGetEnforcedPowerLimit\"", false },
	{ CALL_temperature, NULL, "\"nvmlDeviceGetTemperatureV\"", false },
	{ CALL_pages_pending, TWO("t4"), NULL, false },
	{ CALL_fan, TWO("rtx4090"), NULL, false },
	{ CALL_fan_rpm, TWO("rtx4090"), NULL, false },
	{ CALL_fan_old, TWO("rtx4090"), "\"nvmlDeviceGetFanSpeed_v2\"", false },
	{ CALL_compute_v2, NULL, "\"nvmlDeviceGetComputeRunningProcesses_v3\"", false },
	{ CALL_compute_v1, NULL,
	  "\"nvmlDeviceGetComputeRunningProcesses_v3\", "
	  "\"nvmlDeviceGetComputeRunningProcesses_v2\"",
	  false },
	{ CALL_graphics_v2, NULL, "\"nvmlDeviceGetGraphicsRunningProcesses_v3\"", false },
	{ CALL_graphics_v1, NULL,
	  "\"nvmlDeviceGetGraphicsRunningProcesses_v3\", "
	  "\"nvmlDeviceGetGraphicsRunningProcesses_v2\"",
	  false },
	{ CALL_mps_v2, NULL, "\"nvmlDeviceGetMPSComputeRunningProcesses_v3\"", false },
	{ CALL_mps_v1, NULL,
	  "\"nvmlDeviceGetMPSComputeRunningProcesses_v3\", "
	  "\"nvmlDeviceGetMPSComputeRunningProcesses_v2\"",
	  false },
	{ CALL_set_power_limit, NULL, "\"nvmlDeviceSetPowerManagementLimit_v2\"", false },
	{ CALL_mig_max, WITH_INSTANCES, NULL, false },
	{ CALL_mig_by_index, WITH_INSTANCES, NULL, false },
	{ CALL_gpu_instance, WITH_INSTANCES, NULL, false },
	{ CALL_compute_instance, WITH_INSTANCES, NULL, false },
};

struct cell_case {
	enum nvml_call call;
	int device; /* index of the GPU on which the call fails; -1: the call names no GPU */
	const char *world, *hidden;
	bool lost;
};

static struct cell_case case_of(enum nvml_call call)
{
	static const char *const arguments[] = {
#define N(name, symbol, args) #args,
		NVML_CALLS(N)
#undef N
	};
	struct cell_case c = { .call = call, .world = TWO("h200"), .hidden = "" };
	const bool names_device = !strncmp(arguments[call], "(abi_device", 11) &&
				  strncmp(arguments[call], "(abi_device *", 13) != 0;

	c.device = names_device || call == CALL_by_index || call == CALL_by_uuid ? 0 : -1;
	for (size_t i = 0; i < COUNT_OF(worlds); i++)
		if (worlds[i].call == call) {
			c.world = worlds[i].world ? worlds[i].world : c.world;
			c.hidden = worlds[i].hidden ? worlds[i].hidden : "";
			c.lost = worlds[i].lost;
		}
	return c;
}

/* Loads the world of a case, without processes. */
static void case_load(const struct cell_case *c)
{
	char text[2048];

	snprintf(text, sizeof(text), "[driver]\nmissing = [%s]\n%s", c->hidden, c->world);
	sim_text(text);
}

static void case_fault(const struct cell_case *c, int code)
{
	sim_fault(nvml_symbol[c->call], c->device, code);
	if (c->lost)
		sim_fault(nvml_symbol[CALL_power], 0, code ? ABI_GPU_IS_LOST : 0);
}

/* ---- cells in which a call is not made ---- */

#define EVERY     ((1u << SITUATIONS) - 1)
#define ONLY(s)   (1u << (s))
#define LATER     (ONLY(STEADY) | ONLY(GUARD))
#define AT_OPEN   "made only when the driver or a GPU is opened"
#define NO_USER   "in the table for later use; no part of gpuward makes it"
#define NO_CHANGE "the guard changes no settings"

static const struct {
	enum nvml_call call;
	unsigned situations;
	const char *why;
} not_made[] = {
	{ CALL_init, LATER, AT_OPEN },
	{ CALL_driver_version, LATER, AT_OPEN },
	{ CALL_nvml_version, LATER, AT_OPEN },
	{ CALL_cuda_version, LATER, AT_OPEN },
	{ CALL_count, LATER, AT_OPEN },
	{ CALL_by_index, LATER, AT_OPEN },
	{ CALL_name, LATER, AT_OPEN },
	{ CALL_uuid, LATER, AT_OPEN },
	{ CALL_pci, LATER, AT_OPEN },
	{ CALL_serial, LATER, AT_OPEN },
	{ CALL_vbios, LATER, AT_OPEN },
	{ CALL_part_number, LATER, AT_OPEN },
	{ CALL_shutdown, LATER, "made only when the driver is closed" },
	{ CALL_fan_count, EVERY, NO_USER },
	{ CALL_row_histogram, EVERY, NO_USER },
	{ CALL_process_detail, EVERY, NO_USER },
	{ CALL_conf_compute, EVERY, NO_USER },
	{ CALL_gpm_support, ONLY(STEADY), "made only before the first reading of GPM" },
	{ CALL_gpm_alloc, ONLY(STEADY), "made only before the first reading of GPM" },
	{ CALL_gpm_free, LATER, "made only when the driver is closed" },
	{ CALL_samples, ONLY(GUARD), "only a meter reads the power ring" },
	{ CALL_event_set_create, ONLY(GUARD), "only the service waits for events" },
	{ CALL_event_types, ONLY(GUARD), "only the service waits for events" },
	{ CALL_event_register, ONLY(GUARD), "only the service waits for events" },
	{ CALL_event_wait, ONLY(GUARD), "only the service waits for events" },
	{ CALL_event_set_free, ONLY(GUARD), "only the service waits for events" },
#define N(name, symbol, args) { CALL_##name, ONLY(GUARD), NO_CHANGE },
	NVML_SETTERS(N)
#undef N
};

#define GUARD_TIERS (GW_TIER_STATIC | GW_TIER_FAST | GW_TIER_HEALTH)

static const char *reason_not_made(enum nvml_call call, enum situation s)
{
	const unsigned tiers = about[call].tiers;

	for (size_t i = 0; i < COUNT_OF(not_made); i++)
		if (not_made[i].call == call && not_made[i].situations >> s & 1)
			return not_made[i].why;
	/* the MIG mode is also read with the list of instances */
	if (s != START && tiers == GW_TIER_STATIC && call != CALL_mig_mode)
		return "its figures do not change and are read once";
	if (s == GUARD && tiers && !(tiers & GUARD_TIERS))
		return "the guard does not read its figures";
	return NULL;
}

/* ---- one look with every part of gpuward that makes NVML calls ---- */

struct sight {
	unsigned devices;
	enum gw_cause cause;
	char message[200];
	struct {
		enum gw_device_state state;
		double v[FIGURES];
		uint8_t why[FIGURES];
	} gpu[2];
};

static void have(struct sight *s, unsigned gpu, unsigned f, double v)
{
	s->gpu[gpu].why[f] = GW_HAVE;
	s->gpu[gpu].v[f] = v;
}

static void see_lists(struct sight *s)
{
	struct gw_process_list *l;

	assert_int_equal(gw_process_list_new(sim.ctx, &l), 0);
	assert_int_equal(gw_process_list_take(l), 0);
	for (unsigned i = 0; i < 2; i++) {
		unsigned n = 0;

		s->gpu[i].why[F_LIST] = (uint8_t)gw_process_list_absence(l, i);
		for (unsigned k = 0; k < gw_process_list_count(l); k++)
			n += gw_process_list_get(l, k)->device == i;
		s->gpu[i].v[F_LIST] = n;
	}
	gw_process_list_free(l);
}

static void see_samples(struct sight *s, unsigned gpu)
{
	static struct power_sample ring[256];
	struct process_use use[16];
	struct sampler_device sd;
	int n;

	if (sampler_device_init(&sd, sim.ctx, gpu) != 0)
		return;
	n = sampler_device_ring(&sd, ring, COUNT_OF(ring));
	if (n > 0)
		have(s, gpu, F_RING, ring[n - 1].power_w);
	n = sampler_device_process_use(&sd, sim_wall_ns() / 1000 - 1000000, use, COUNT_OF(use));
	if (n > 0)
		have(s, gpu, F_USE, use[0].sm_ratio);
}

static void see_events(struct sight *s)
{
	struct backend *b = &sim.ctx->opener[0]->b;
	struct device_event event;
	void *events;

	if (!b->open || !b->ops->has_events(b) || b->ops->events_open(b, &events) != 0)
		return;
	for (unsigned i = 0; i < b->count && i < 2; i++)
		if (b->ops->events_add(b->slot[i], events) == 1)
			have(s, i, F_EVENTS, 1);
	if (b->ops->events_wait(b, events, 0, &event) < 0)
		s->gpu[0].why[F_EVENTS] = s->gpu[1].why[F_EVENTS] = GW_ABSENT_LOST;
	b->ops->events_close(b, events);
}

/* Sets and restores a setting, so that its calls are made and nothing changes. */
static void see_setting(struct sight *s, unsigned gpu, const char *uuid, enum manage_what what)
{
	static const double value[MANAGE_WHATS][2] = {
		[MANAGE_PERSISTENCE] = { 0, NAN },
		[MANAGE_POWER_LIMIT] = { 400, NAN },
		[MANAGE_COMPUTE_MODE] = { 3, NAN },
		[MANAGE_GPU_CLOCKS] = { 510e6, 900e6 },
		[MANAGE_MEMORY_CLOCKS] = { 510e6, 900e6 },
		[MANAGE_CLEAR_ECC] = { NAN, NAN },
	};
	struct manage_change o = { .what = what, .keep = true, .who = "test" };
	struct manage_result set, back;

	snprintf(o.uuid, sizeof(o.uuid), "%s", uuid);
	memcpy(o.value, value[what], sizeof(o.value));
	manage_run(sim.ctx, &o, NULL, &set);
	o.restore = o.kept = what != MANAGE_CLEAR_ECC;
	memcpy(o.ours, value[what], sizeof(o.ours));
	o.earlier[0] = o.earlier[1] = NAN;
	o.value[0] = what == MANAGE_PERSISTENCE    ? 1
		     : what == MANAGE_POWER_LIMIT  ? 700
		     : what == MANAGE_COMPUTE_MODE ? 0
						   : NAN;
	o.value[1] = NAN;
	manage_run(sim.ctx, &o, NULL, &back);
	if (set.error == 0 && back.error == 0)
		have(s, gpu, F_SET + what, 1);
	else
		assert_true(set.message[0] || back.message[0]);
}

static void see_device(struct sight *s, unsigned gpu, const struct gw_device *d)
{
	s->gpu[gpu].state = d->state;
	if (d->state != GW_DEVICE_OK)
		assert_true(d->message[0] != '\0');
	for (unsigned q = 0; q < GW_QUANTITIES; q++)
		s->gpu[gpu].why[q] = (uint8_t)gw_device_value(d, q, &s->gpu[gpu].v[q]);
	for (unsigned t = 0; t < GW_TEXTS; t++) {
		const char *text = gw_device_text(d, t);

		s->gpu[gpu].why[F_TEXT + t] = d->text_absence[t];
		for (; text && *text; text++)
			s->gpu[gpu].v[F_TEXT + t] =
				fmod(s->gpu[gpu].v[F_TEXT + t] * 31 + *text, 1e9);
	}
	for (unsigned i = 0; i < d->mig_count; i++)
		if (d->mig[i]->memory_absence == GW_HAVE && d->mig[i]->uuid[0] &&
		    d->mig[i]->gpu_instance >= 0)
			have(s, gpu, F_INSTANCES, (double)d->mig[i]->memory_total_bytes);
}

static void look(struct sight *s)
{
	memset(s, 0, sizeof(*s));
	for (unsigned i = 0; i < 2; i++)
		memset(s->gpu[i].why, GW_ABSENT_NO_DATA, FIGURES);
	see_lists(s);
	see_samples(s, 0);
	see_samples(s, 1);
	see_events(s);
	sim_take(GW_TIERS_ALL, 0);
	for (unsigned i = 0; i < 2 && i < gw_snapshot_device_count(sim.snap); i++) {
		const char *uuid = gw_device_text(gw_snapshot_device(sim.snap, i), GW_T_UUID);

		for (unsigned w = 0; uuid && w < MANAGE_WHATS; w++)
			see_setting(s, i, uuid, w);
	}
	sim_step(200 * NS_PER_MS); /* the profiler needs two readings */
	sim_take(GW_TIERS_ALL, 0);
	s->devices = gw_snapshot_device_count(sim.snap);
	s->cause = gw_snapshot_status(sim.snap)->cause;
	snprintf(s->message, sizeof(s->message), "%s", gw_snapshot_status(sim.snap)->message);
	for (unsigned i = 0; i < 2 && i < s->devices; i++)
		see_device(s, i, gw_snapshot_device(sim.snap, i));
}

/* ---- complaints ---- */

static struct {
	unsigned count;
	char about[160]; /* names the cell that is tested */
} complaints;

static void complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void complain(const char *fmt, ...)
{
	char text[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (complaints.count++ < 40)
		print_error("%s: %s\n", complaints.about, text);
}

static void assert_no_complaints(void)
{
	unsigned n = complaints.count;

	complaints.count = 0;
	if (n)
		fail_msg("%u complaints", n);
}

/* ---- the table ---- */

static struct cell {
	/* `good`: no figure was absent, or the guard acted during the fault; `less`: the
	 * other cells */
	unsigned good, less, cells;
	unsigned absent[GW_ABSENCES];
	const char *not_made;
} table[CALL_COUNT][SITUATIONS];

static const char *const situation_name[] = { "start", "steady", "guard" };

static void set_about(enum nvml_call call, enum situation s, int code)
{
	char name[24];

	snprintf(complaints.about, sizeof(complaints.about), "%s, %s, %s", nvml_symbol[call],
		 nvml_code_name(code, name), situation_name[s]);
}

/* ---- start and steady ---- */

static bool costs_everything(int code)
{
	enum nvml_reaction r = nvml_meaning(code)->reaction;

	return r == REACT_LOST || r == REACT_REOPEN;
}

/* True if this GPU may lack this figure because of the failing call. */
static bool may_cost(const struct cell_case *c, int code, unsigned gpu, unsigned f)
{
	enum nvml_reaction r = nvml_meaning(code)->reaction;

	if (gpu == 1 && c->device == 0 && r != REACT_REOPEN)
		return false;
	return costs_everything(code) || c->lost || about[c->call].figure[f];
}

/* True if another call replaces the failing one for this figure. */
static bool is_replaced(const struct cell_case *c, unsigned f, int code)
{
	return about[c->call].older[f] != CALL_none &&
	       (code == ABI_NOT_SUPPORTED || code == ABI_FUNCTION_NOT_FOUND ||
		code == ABI_DEPRECATED || code == ABI_ARGUMENT_VERSION_MISMATCH);
}

/* True if the call's figures were read before the fault and do not change. */
static bool is_read_once(const struct cell_case *c, enum situation s)
{
	return s != START && about[c->call].tiers == GW_TIER_STATIC;
}

static bool is_setter(enum nvml_call call)
{
	static const enum nvml_call setters[] = {
#define N(name, symbol, args) CALL_##name,
		NVML_SETTERS(N)
#undef N
	};

	for (size_t i = 0; i < COUNT_OF(setters); i++)
		if (setters[i] == call)
			return true;
	return false;
}

/* True if a present figure has the value that it has without a fault. A counter may have grown.
 * The older memory call counts reserved memory as used memory. */
static bool is_same(const struct cell_case *c, unsigned f, int code, double want, double got)
{
	if (is_setter(c->call))
		return true; /* a setting that was not restored changes figures */
	if (f == F_LIST && (code == ABI_NOT_FOUND || code == ABI_NO_DATA))
		return true; /* the driver says that the list is empty */

	if (f == GW_Q_MEMORY_USED || f == GW_Q_MEMORY_FREE ||
	    (f < GW_QUANTITIES && gw_quantity_info(f)->kind == GW_KIND_COUNTER))
		return want == 0 || got > 0;
	return fabs(got - want) <= 0.05 * fabs(want) + 1e-9;
}

static void check_figures(const struct cell_case *c, enum situation s, int code,
			  const struct sight *want, const struct sight *got, bool fault)
{
	struct cell *cell = &table[c->call][s];
	unsigned lost = 0;

	if (got->devices != 2 && (got->cause == GW_CAUSE_NONE || !got->message[0]))
		complain("%u GPUs and no cause", got->devices);
	for (unsigned gpu = 0; gpu < 2; gpu++)
		for (unsigned f = 0; f < FIGURES; f++) {
			const unsigned why = got->gpu[gpu].why[f];
			const double v = got->gpu[gpu].v[f];

			if (want->gpu[gpu].why[f] != GW_HAVE)
				continue;
			if (why == GW_HAVE && !is_same(c, f, code, want->gpu[gpu].v[f], v))
				complain("GPU %u: %s is %g and not %g", gpu, figure_name(f), v,
					 want->gpu[gpu].v[f]);
			if (why == GW_HAVE)
				continue;
			lost++;
			/* the absence reason must follow from the cause */
			if (gpu >= got->devices)
				cell->absent[GW_ABSENT_NO_DRIVER]++;
			else if (why >= GW_ABSENCES || why == GW_ABSENT_NOT_READ)
				complain("GPU %u: %s is absent without a reason (%s)", gpu,
					 figure_name(f), gw_absence_key(why));
			else
				cell->absent[why]++;
			if (!fault || !may_cost(c, code, gpu, f))
				complain("GPU %u: %s is absent: %s", gpu, figure_name(f),
					 gw_absence_key(why));
		}
	if (!fault)
		return;
	for (unsigned f = 0; f < GW_QUANTITIES; f++)
		if (about[c->call].must[f] && !is_read_once(c, s) &&
		    want->gpu[0].why[f] == GW_HAVE && got->gpu[0].why[f] == GW_HAVE &&
		    !is_replaced(c, f, code))
			complain("%s is %g although its call fails", figure_name(f),
				 got->gpu[0].v[f]);
	cell->cells++;
	cell->good += lost == 0;
	cell->less += lost != 0;
}

static bool all_are_back(const struct sight *want, const struct sight *got)
{
	for (unsigned gpu = 0; gpu < 2; gpu++)
		for (unsigned f = 0; f < FIGURES; f++)
			if (want->gpu[gpu].why[f] == GW_HAVE && got->gpu[gpu].why[f] != GW_HAVE)
				return false;
	return got->devices == 2;
}

/* Loads the world of the case with one process per GPU. */
static void figures_load(const struct cell_case *c)
{
	sim_close();
	case_load(c);
	sim_process(0, 4100000, 2 * GIB, 0);
	sim_process(1, 4100001, 2 * GIB, 0);
	sim_step(120 * NS_PER_S); /* the power ring is full, and temperatures are steady */
}

/* Opens the driver again if the figures of this case would otherwise stay absent: they are not
 * read again after a refusal, or they are read only once. */
static void driver_open_again(const struct cell_case *c, int code)
{
	if (nvml_meaning(code)->reaction != REACT_FORGET && !reason_not_made(c->call, STEADY))
		return;
	assert_int_equal(gw_ctx_release(sim.ctx), 0);
	assert_int_equal(gw_ctx_reopen(sim.ctx), 0);
}

#define RECOVERY_S 130 /* two of the longest pauses before a driver or a GPU is tried again */

static void recover(const struct cell_case *c, enum situation s, int code,
		    const struct sight *want)
{
	struct sight got;
	uint64_t until;

	case_fault(c, 0);
	driver_open_again(c, code);
	until = sim_now_ns() + RECOVERY_S * NS_PER_S;
	do {
		look(&got);
		if (all_are_back(want, &got))
			break;
		sim_step(10 * NS_PER_S);
	} while (sim_now_ns() < until);
	check_figures(c, s, code, want, &got, false);
}

/* Ends the world. A driver that failed to shut down still counts its client. */
static void figures_unload(void)
{
	sim_close();
	while (nvml_shutdown() == 0)
		;
}

#define AGE_NS (61 * NS_PER_S) /* after this time every tier except STATIC is read again */

/* Reads everything without a fault. Sets *ret_made if the call was made in the part of the test
 * in which it would fail. */
static void reference(const struct cell_case *c, enum situation s, struct sight *ret,
		      bool *ret_made)
{
	uint64_t before = 0;

	figures_load(c);
	if (s == START && c->lost)
		sim_fault(nvml_symbol[CALL_power], 0, ABI_GPU_IS_LOST);
	sim_open();
	look(ret);
	if (s == STEADY) {
		before = sim_calls(nvml_symbol[c->call]);
		if (c->lost)
			sim_fault(nvml_symbol[CALL_power], 0, ABI_GPU_IS_LOST);
		sim_step(AGE_NS);
	}
	if (c->lost) { /* the GPU is lost, and is then searched for */
		look(ret);
		sim_step(5 * NS_PER_S);
		look(ret);
		sim_fault(nvml_symbol[CALL_power], 0, 0);
		sim_step(RECOVERY_S * NS_PER_S);
		sim_step(RECOVERY_S * NS_PER_S);
	}
	look(ret);
	if (s == START)
		sim_close();
	*ret_made = sim_calls(nvml_symbol[c->call]) > before;
	figures_unload();
}

static void run_case(const struct cell_case *c, enum situation s, int code,
		     const struct sight *want)
{
	struct sight got;

	set_about(c->call, s, code);
	figures_load(c);
	if (s == START)
		case_fault(c, code);
	sim_open();
	look(&got);
	if (s == STEADY) {
		case_fault(c, code);
		sim_step(AGE_NS);
		look(&got);
	}
	if (c->lost) {
		sim_step(5 * NS_PER_S);
		look(&got);
	}
	check_figures(c, s, code, want, &got, true);
	recover(c, s, code, want);
	case_fault(c, c->call == CALL_shutdown ? code : 0);
	figures_unload();
	sim_fault(nvml_symbol[c->call], c->device, 0);
	while (nvml_shutdown() == 0)
		;
}

static void check_made(bool made, const char *why)
{
	if (made && why)
		complain("it is made, but this test says: %s", why);
	if (!made && !why)
		complain("it is not made, and this test has no reason");
}

static void run_situation(enum situation s)
{
	struct sight want;
	bool made;

	for (enum nvml_call call = 0; call < CALL_COUNT; call++) {
		const struct cell_case c = case_of(call);
		const char *why = reason_not_made(call, s);
		bool has = about[call].tiers == 0;

		set_about(call, s, 0);
		reference(&c, s, &want, &made);
		table[call][s].not_made = why;
		check_made(made, why);
		for (unsigned f = 0; f < FIGURES; f++)
			has |= about[call].figure[f] && want.gpu[0].why[f] == GW_HAVE;
		if (made && !has)
			complain("its world has none of its figures");
		for (unsigned i = 0; i < code_count && made; i++)
			run_case(&c, s, codes[i], &want);
	}
	assert_no_complaints();
}

SIM_TEST(a_call_that_fails_from_the_start_costs_its_own_figures_until_it_works)
{
	run_situation(START);
}

SIM_TEST(a_call_that_begins_to_fail_costs_its_own_figures_until_it_works)
{
	run_situation(STEADY);
}

/* ---- guard ---- */

static struct {
	struct gw_guard *guard;
	atomic_uint evicted, resumed;
	pid_t contender;
	int alive_fd; /* readable when the contender has ended */
} scene;

static int evict(void *arg, uint64_t bytes, uint64_t deadline_ns)
{
	sim_process(0, (uint32_t)getpid(), 0, 0);
	atomic_fetch_add(&scene.evicted, 1);
	return 0;
}

static int resume(void *arg, uint64_t deadline_ns)
{
	sim_process(0, (uint32_t)getpid(), HELD, 0);
	atomic_fetch_add(&scene.resumed, 1);
	return 0;
}

/* Starts a process that is no descendant of this one, because a descendant of the worker does
 * not contend. It ends when it gets any signal, or with this process. */
static int contender_start(void **state)
{
	int alive[2], life[2];
	pid_t child;

	if (matrix_setup(state) != 0 || pipe2(alive, O_CLOEXEC) != 0 ||
	    pipe2(life, O_CLOEXEC) != 0)
		return -1;
	child = fork();
	if (child == 0) {
		pid_t own;
		char byte;

		if (fork() != 0)
			_exit(0);
		own = getpid();
		close(alive[0]);
		close(life[1]);
		if (write(alive[1], &own, sizeof(own)) != sizeof(own) ||
		    read(life[0], &byte, 1) != 0)
			_exit(1);
		_exit(0);
	}
	close(alive[1]);
	close(life[0]);
	if (child < 0 || waitpid(child, NULL, 0) != child ||
	    read(alive[0], &scene.contender, sizeof(scene.contender)) !=
		    sizeof(scene.contender))
		return -1;
	scene.alive_fd = alive[0];
	return 0;
}

/* The contender must run, and must not be stopped. */
static void check_contender(void)
{
	struct pollfd p = { .fd = scene.alive_fd, .events = POLLIN };
	char path[40], stat[256] = "", *state;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)scene.contender);
	f = fopen(path, "r");
	if (f && !fgets(stat, sizeof(stat), f))
		stat[0] = '\0';
	if (f)
		fclose(f);
	state = strrchr(stat, ')');
	if (poll(&p, 1, 0) != 0 || !state || !strchr("SRD", state[2]))
		complain("the contender was touched");
}

static struct gw_guard_status status(void)
{
	struct gw_guard_status st = { .size = sizeof(st) };

	assert_int_equal(gw_guard_status(scene.guard, &st), 0);
	return st;
}

/* Lets this time pass, makes an observation, and waits until no order is being carried out. */
static void guard_step(uint64_t ns)
{
	struct pollfd p = { .fd = scene.guard->box.wake_fd, .events = POLLIN };
	eventfd_t n;

	sim_step(ns);
	scene.guard->observer.due_ns = 0;
	guard_api_round(scene.guard);
	while (guard_orders_underway(scene.guard->guard)) {
		if (poll(&p, 1, 1) == 0)
			continue;
		eventfd_read(scene.guard->box.wake_fd, &n);
		guard_api_round(scene.guard);
	}
}

static void guard_steps(unsigned n)
{
	while (n--)
		guard_step(100 * NS_PER_MS);
}

/* True if the worker reaches this state with these total numbers of evictions and returns. */
static bool guard_until(enum gw_worker_state want, unsigned evicted, unsigned resumed)
{
	for (unsigned i = 0; i < 600; i++) {
		guard_step(i < 100 ? 100 * NS_PER_MS : NS_PER_S);
		if (status().state == want && scene.evicted == evicted &&
		    scene.resumed == resumed)
			return true;
	}
	complain("it is %s and not %s, %u evictions, %u returns: %s",
		 gw_worker_state_name(status().state), gw_worker_state_name(want),
		 scene.evicted, scene.resumed, status().why);
	return false;
}

static void guard_load(const struct cell_case *c)
{
	static const struct gw_guard_options o = { .size = sizeof(o),
						   .name = "worker",
						   .flags = GW_GUARD_SIMULATED,
						   .evict = evict,
						   .resume = resume,
						   .quiet_ns = 2 * NS_PER_S };

	scene.evicted = scene.resumed = 0;
	case_load(c);
	sim_process(0, (uint32_t)getpid(), HELD, 0);
	sim_open();
	assert_int_equal(guard_api_new(sim.ctx, &o, &scene.guard), 0);
	guard_until(GW_WORKER_ACTIVE, 0, 0);
}

static void guard_unload(void)
{
	assert_int_equal(guard_api_free(scene.guard, 60 * NS_PER_S), 0);
	figures_unload();
}

/* Observes without a contender: often enough to make a GPU blind, and long enough to read the
 * HEALTH tier again. */
static void guard_alone(void)
{
	guard_steps(20);
	for (unsigned i = 0; i < 12; i++)
		guard_step(NS_PER_S);
}

/* Takes the scene of the guard without a fault; returns whether the call is made in it. */
static bool guard_reference(const struct cell_case *c)
{
	uint64_t before;
	bool made;

	guard_load(c);
	before = sim_calls(nvml_symbol[c->call]);
	if (c->lost)
		sim_fault(nvml_symbol[CALL_power], 0, ABI_GPU_IS_LOST);
	guard_alone();
	sim_process(0, (uint32_t)scene.contender, 6 * GIB, 0);
	guard_steps(30);
	made = sim_calls(nvml_symbol[c->call]) > before;
	guard_unload();
	return made;
}

static void guard_case(const struct cell_case *c, int code)
{
	struct cell *cell = &table[c->call][GUARD];

	set_about(c->call, GUARD, code);
	guard_load(c);
	case_fault(c, code);
	guard_alone();
	if (scene.evicted)
		complain("it evicts because of the fault alone: %s", status().why);
	sim_process(0, (uint32_t)scene.contender, 6 * GIB, 0);
	guard_steps(30);
	check_contender();
	cell->cells++;
	cell->good += scene.evicted != 0;
	cell->less += scene.evicted == 0;
	case_fault(c, 0);
	driver_open_again(c, code);
	if (guard_until(GW_WORKER_EVICTED, 1, 0)) {
		check_contender();
		sim_process(0, (uint32_t)scene.contender, 0, 0);
		if (guard_until(GW_WORKER_ACTIVE, 1, 1) && status().resident_bytes != HELD)
			complain("the worker holds %llu bytes",
				 (unsigned long long)status().resident_bytes);
	}
	check_contender();
	guard_unload();
}

SIM_TEST(a_guard_evicts_for_a_contender_and_never_for_a_failing_call)
{
	for (enum nvml_call call = 0; call < CALL_COUNT; call++) {
		const struct cell_case c = case_of(call);
		const char *why = reason_not_made(call, GUARD);
		bool made;

		set_about(call, GUARD, 0);
		made = guard_reference(&c);
		table[call][GUARD].not_made = why;
		check_made(made, why);
		for (unsigned i = 0; i < code_count && made; i++)
			guard_case(&c, codes[i]);
	}
	assert_no_complaints();
}

TEST(prints_the_table)
{
	unsigned cells = 0, without = 0, absent[GW_ABSENCES] = { 0 };

	printf("%u codes per cell: figures stay / are absent; guard: acts during the fault / "
	       "when it is over\n%-46s %9s %9s %9s\n",
	       code_count, "call", "start", "steady", "guard");
	for (unsigned call = 0; call < CALL_COUNT; call++) {
		printf("%-46s", nvml_symbol[call]);
		for (unsigned s = 0; s < SITUATIONS; s++) {
			const struct cell *c = &table[call][s];

			assert_true(c->cells == code_count || (c->not_made && !c->cells));
			assert_int_equal(c->good + c->less, c->cells);
			cells += c->cells;
			without += c->cells == 0;
			for (unsigned why = 0; why < GW_ABSENCES; why++)
				absent[why] += c->absent[why];
			if (c->cells)
				printf(" %4u /%3u", c->good, c->less);
			else
				printf(" %9s", "-");
		}
		for (unsigned s = 0; s < SITUATIONS; s++)
			if (table[call][s].not_made &&
			    (s == 0 || table[call][s].not_made != table[call][s - 1].not_made))
				printf("  %s: %s", situation_name[s], table[call][s].not_made);
		printf("\n");
	}
	printf("%u calls, %u codes: %u cells tested, %u not made (reasons in the row)\n",
	       CALL_COUNT, code_count, cells, without);
	printf("absent figures by reason:");
	for (unsigned why = 0; why < GW_ABSENCES; why++)
		if (absent[why])
			printf(" %s %u", gw_absence_key(why), absent[why]);
	printf("\n");
}

TEST_MAIN(contender_start, NULL)
