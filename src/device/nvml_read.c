/* nvml_read: figures of one device, by a table of calls.
 *
 * A row names the call, how its arguments look (shape), and where its numbers go.  Adding a
 * quantity that one call answers is one row; a call of a new shape is one function more. */
#include "nvml.h"

#include <stdio.h>
#include <string.h>

enum shape {
	SHAPE_U32,      /* (u32 *)                                       */
	SHAPE_U32_OF,   /* (u32 which, u32 *)                            */
	SHAPE_U32_PAIR, /* (u32 *, u32 *)                                */
	SHAPE_U64,      /* (u64 *)                                       */
	SHAPE_ECC,      /* (u32 kind, u32 since, u64 *)                  */
	SHAPE_ROWS,     /* four u32 *                                    */
	SHAPE_MEMORY,   /* structs                                       */
	SHAPE_BAR1,
	SHAPE_UTILIZATION,
	SHAPE_TEMPERATURE,
	SHAPE_MARGIN,
	SHAPE_FAN_RPM,
	SHAPE_REPAIR,
	SHAPE_SRAM,
	SHAPE_CAPABILITY,
	SHAPE_FIELDS, /* every field row of the tier in one call           */
	SHAPE_GPM,
};

#define NO GW_QUANTITIES /* no quantity here */

struct reader {
	enum gw_tier tier;
	enum shape shape;
	enum nvml_call call;
	uint32_t which;
	double scale; /* driver's unit to ours  */
	double most;  /* what is larger is no value but a placeholder (0: any 32-bit but -1) */
	uint8_t q[4];
	enum nvml_call older; /* 0 (init): none.  Asked where `call` is absent or refused */
};

#define Q4(a, b, c, d)            \
	{                         \
		GW_Q_##a, b, c, d \
	}
#define ONE(a)                       \
	{                            \
		GW_Q_##a, NO, NO, NO \
	}
#define TWO(a, b)                          \
	{                                  \
		GW_Q_##a, GW_Q_##b, NO, NO \
	}

static const struct reader readers[] = {
	/* FAST */
	{ GW_TIER_FAST, SHAPE_U32, CALL_power, 0, 1e-3, 0, ONE(POWER), 0 },
	{ GW_TIER_FAST, SHAPE_FIELDS, CALL_fields, 0, 1, 0, { NO, NO, NO, NO }, 0 },
	{ GW_TIER_FAST,
	  SHAPE_MEMORY,
	  CALL_memory_v2,
	  0,
	  1,
	  0,
	  { GW_Q_MEMORY_TOTAL, GW_Q_MEMORY_RESERVED, GW_Q_MEMORY_USED, GW_Q_MEMORY_FREE },
	  CALL_memory },
	{ GW_TIER_FAST, SHAPE_UTILIZATION, CALL_utilization, 0, 1e-2, 100,
	  TWO(UTILIZATION_GPU, UTILIZATION_MEMORY), 0 },
	{ GW_TIER_FAST, SHAPE_TEMPERATURE, CALL_temperature_v, 0, 1, 250, ONE(TEMPERATURE_GPU),
	  CALL_temperature },
	{ GW_TIER_FAST, SHAPE_U32_OF, CALL_clock, ABI_CLOCK_GRAPHICS, 1e6, 1e5,
	  ONE(CLOCK_GRAPHICS), 0 },
	{ GW_TIER_FAST, SHAPE_U32_OF, CALL_clock, ABI_CLOCK_SM, 1e6, 1e5, ONE(CLOCK_SM), 0 },
	{ GW_TIER_FAST, SHAPE_U32_OF, CALL_clock, ABI_CLOCK_MEMORY, 1e6, 1e5, ONE(CLOCK_MEMORY),
	  0 },
	{ GW_TIER_FAST, SHAPE_U32, CALL_pstate, 0, 1, 15, ONE(PERFORMANCE_STATE), 0 },
	{ GW_TIER_FAST, SHAPE_U64, CALL_reasons, 0, 1, 0, ONE(CLOCK_REASONS),
	  CALL_reasons_old },
	/* SLOW */
	{ GW_TIER_SLOW, SHAPE_FIELDS, CALL_fields, 0, 1, 0, { NO, NO, NO, NO }, 0 },
	{ GW_TIER_SLOW, SHAPE_U32_OF, CALL_clock, ABI_CLOCK_VIDEO, 1e6, 1e5, ONE(CLOCK_VIDEO),
	  0 },
	{ GW_TIER_SLOW, SHAPE_MARGIN, CALL_margin, 0, 1, 250, ONE(TEMPERATURE_MARGIN), 0 },
	{ GW_TIER_SLOW, SHAPE_U32_PAIR, CALL_encoder, 0, 1e-2, 100, ONE(UTILIZATION_ENCODER),
	  0 },
	{ GW_TIER_SLOW, SHAPE_U32_PAIR, CALL_decoder, 0, 1e-2, 100, ONE(UTILIZATION_DECODER),
	  0 },
	{ GW_TIER_SLOW, SHAPE_U32_PAIR, CALL_jpeg, 0, 1e-2, 100, ONE(UTILIZATION_JPEG), 0 },
	{ GW_TIER_SLOW, SHAPE_U32_PAIR, CALL_ofa, 0, 1e-2, 100, ONE(UTILIZATION_OFA), 0 },
	/* ENERGY */
	{ GW_TIER_ENERGY, SHAPE_U64, CALL_energy, 0, 1e-3, 0, ONE(ENERGY), 0 },
	/* HEALTH */
	{ GW_TIER_HEALTH, SHAPE_FIELDS, CALL_fields, 0, 1, 0, { NO, NO, NO, NO }, 0 },
	{ GW_TIER_HEALTH, SHAPE_U32, CALL_enforced_limit, 0, 1e-3, 0, ONE(POWER_LIMIT),
	  CALL_power_limit },
	{ GW_TIER_HEALTH, SHAPE_U32_OF, CALL_fan, 0, 1e-2, 1000, ONE(FAN_SPEED), CALL_fan_old },
	{ GW_TIER_HEALTH, SHAPE_FAN_RPM, CALL_fan_rpm, 0, 1, 1e5, ONE(FAN_SPEED_RPM), 0 },
	{ GW_TIER_HEALTH, SHAPE_U32, CALL_pcie_generation, 0, 1, 64, ONE(PCIE_GENERATION), 0 },
	{ GW_TIER_HEALTH, SHAPE_U32, CALL_pcie_width, 0, 1, 64, ONE(PCIE_WIDTH), 0 },
	{ GW_TIER_HEALTH, SHAPE_U32, CALL_pcie_replays, 0, 1, 0, ONE(PCIE_REPLAYS), 0 },
	{ GW_TIER_HEALTH, SHAPE_ECC, CALL_ecc_errors, 0, 1, 0, ONE(ECC_CORRECTED), 0 },
	{ GW_TIER_HEALTH, SHAPE_ECC, CALL_ecc_errors, 1, 1, 0, ONE(ECC_UNCORRECTED), 0 },
	{ GW_TIER_HEALTH, SHAPE_ECC, CALL_ecc_errors, 2, 1, 0, ONE(ECC_CORRECTED_LIFE), 0 },
	{ GW_TIER_HEALTH, SHAPE_ECC, CALL_ecc_errors, 3, 1, 0, ONE(ECC_UNCORRECTED_LIFE), 0 },
	{ GW_TIER_HEALTH,
	  SHAPE_ROWS,
	  CALL_remapped_rows,
	  0,
	  1,
	  0,
	  { GW_Q_ROWS_CORRECTABLE, GW_Q_ROWS_UNCORRECTABLE, GW_Q_ROWS_PENDING,
	    GW_Q_ROWS_FAILED },
	  0 },
	{ GW_TIER_HEALTH, SHAPE_U32, CALL_pages_pending, 0, 1, 1, ONE(PAGES_PENDING), 0 },
	{ GW_TIER_HEALTH, SHAPE_REPAIR, CALL_repair, 0, 1, 1, TWO(REPAIR_CHANNEL, REPAIR_TPC),
	  0 },
	{ GW_TIER_HEALTH, SHAPE_BAR1, CALL_bar1, 0, 1, 0, TWO(BAR1_TOTAL, BAR1_USED), 0 },
	{ GW_TIER_HEALTH, SHAPE_U32, CALL_display_active, 0, 1, 1, ONE(DISPLAY_ACTIVE), 0 },
	{ GW_TIER_HEALTH, SHAPE_U32, CALL_persistence, 0, 1, 1, ONE(PERSISTENCE), 0 },
	{ GW_TIER_HEALTH, SHAPE_U32, CALL_compute_mode, 0, 1, 0, ONE(COMPUTE_MODE), 0 },
	{ GW_TIER_HEALTH, SHAPE_U32_PAIR, CALL_ecc_mode, 0, 1, 1,
	  TWO(ECC_MODE, ECC_MODE_PENDING), 0 },
	/* STATIC */
	{ GW_TIER_STATIC, SHAPE_U32_PAIR, CALL_limit_range, 0, 1e-3, 0,
	  TWO(POWER_LIMIT_MIN, POWER_LIMIT_MAX), 0 },
	{ GW_TIER_STATIC, SHAPE_U32, CALL_default_limit, 0, 1e-3, 0, ONE(POWER_LIMIT_DEFAULT),
	  0 },
	{ GW_TIER_STATIC, SHAPE_U32_OF, CALL_max_clock, ABI_CLOCK_SM, 1e6, 1e5,
	  ONE(CLOCK_SM_MAX), 0 },
	{ GW_TIER_STATIC, SHAPE_U32_OF, CALL_max_clock, ABI_CLOCK_MEMORY, 1e6, 1e5,
	  ONE(CLOCK_MEMORY_MAX), 0 },
	{ GW_TIER_STATIC, SHAPE_U32, CALL_pcie_generation_max, 0, 1, 64,
	  ONE(PCIE_GENERATION_MAX), 0 },
	{ GW_TIER_STATIC, SHAPE_U32, CALL_pcie_width_max, 0, 1, 64, ONE(PCIE_WIDTH_MAX), 0 },
	{ GW_TIER_STATIC, SHAPE_U32_OF, CALL_threshold, ABI_THRESHOLD_SHUTDOWN, 1, 250,
	  ONE(TEMPERATURE_SHUTDOWN), 0 },
	{ GW_TIER_STATIC, SHAPE_U32_OF, CALL_threshold, ABI_THRESHOLD_SLOWDOWN, 1, 250,
	  ONE(TEMPERATURE_SLOWDOWN), 0 },
	{ GW_TIER_STATIC, SHAPE_U32_OF, CALL_threshold, ABI_THRESHOLD_GPU_MAX, 1, 250,
	  ONE(TEMPERATURE_GPU_MAX), 0 },
	{ GW_TIER_STATIC, SHAPE_U32_OF, CALL_threshold, ABI_THRESHOLD_MEMORY_MAX, 1, 250,
	  ONE(TEMPERATURE_MEMORY_MAX), 0 },
	{ GW_TIER_STATIC, SHAPE_U32, CALL_architecture, 0, 1, 0, ONE(ARCHITECTURE), 0 },
	{ GW_TIER_STATIC, SHAPE_CAPABILITY, CALL_capability, 0, 1, 1000,
	  TWO(COMPUTE_CAPABILITY_MAJOR, COMPUTE_CAPABILITY_MINOR), 0 },
	{ GW_TIER_STATIC, SHAPE_U32, CALL_cores, 0, 1, 0, ONE(CORES), 0 },
	{ GW_TIER_STATIC, SHAPE_U32, CALL_minor, 0, 1, 0, ONE(MINOR_NUMBER), 0 },
	{ GW_TIER_STATIC, SHAPE_U32, CALL_virtualization, 0, 1, 0, ONE(VIRTUALIZATION), 0 },
	{ GW_TIER_STATIC, SHAPE_U32_PAIR, CALL_mig_mode, 0, 1, 1, ONE(MIG_MODE), 0 },
	/* ASKED */
	{ GW_TIER_ASKED, SHAPE_FIELDS, CALL_fields, 0, 1, 0, { NO, NO, NO, NO }, 0 },
	{ GW_TIER_ASKED, SHAPE_U32_OF, CALL_pcie_rate, 0, 1024, 0, ONE(PCIE_SEND_RATE), 0 },
	{ GW_TIER_ASKED, SHAPE_U32_OF, CALL_pcie_rate, 1, 1024, 0, ONE(PCIE_RECEIVE_RATE), 0 },
	{ GW_TIER_ASKED, SHAPE_GPM, CALL_gpm_get, 0, 1e-2, 0, { NO, NO, NO, NO }, 0 },
	{ GW_TIER_ASKED, SHAPE_SRAM, CALL_sram_status, 0, 1, 1, ONE(SRAM_UNCORRECTED_THRESHOLD),
	  0 },
};
#define READERS (sizeof(readers) / sizeof(readers[0]))
_Static_assert(READERS <= NVML_READERS_MAX, "a device's plan holds every row");

/* Quantities that come as field values.  Those of one tier are asked in one call; the energy
 * counter (83) must never be among them: it makes the whole batch cost 3 ms (measured). */
struct field {
	enum gw_tier tier;
	uint8_t q;
	uint32_t id, scope;
	double scale;
	double most;
};

static const struct field fields[] = {
	{ GW_TIER_FAST, GW_Q_POWER_AVERAGE, ABI_FIELD_POWER_AVERAGE, ABI_SCOPE_GPU, 1e-3, 1e8 },
	{ GW_TIER_FAST, GW_Q_POWER_INSTANT, ABI_FIELD_POWER_INSTANT, ABI_SCOPE_GPU, 1e-3, 1e8 },
	{ GW_TIER_SLOW, GW_Q_POWER_MEMORY, ABI_FIELD_POWER_AVERAGE, ABI_SCOPE_MEMORY, 1e-3,
	  1e8 },
	{ GW_TIER_SLOW, GW_Q_TEMPERATURE_MEMORY, ABI_FIELD_MEMORY_TEMPERATURE, 0, 1, 250 },
	{ GW_TIER_SLOW, GW_Q_LIMITED_POWER, ABI_FIELD_LIMITED_POWER, 0, 1e-9, 1e18 },
	{ GW_TIER_SLOW, GW_Q_LIMITED_SYNC_BOOST, ABI_FIELD_LIMITED_SYNC_BOOST, 0, 1e-9, 1e18 },
	{ GW_TIER_SLOW, GW_Q_LIMITED_THERMAL, ABI_FIELD_LIMITED_THERMAL, 0, 1e-9, 1e18 },
	{ GW_TIER_SLOW, GW_Q_LIMITED_THERMAL_SOFTWARE, ABI_FIELD_LIMITED_THERMAL_SOFTWARE, 0,
	  1e-9, 1e18 },
	{ GW_TIER_SLOW, GW_Q_LIMITED_THERMAL_HARDWARE, ABI_FIELD_LIMITED_THERMAL_HARDWARE, 0,
	  1e-9, 1e18 },
	{ GW_TIER_SLOW, GW_Q_LIMITED_POWER_BRAKE, ABI_FIELD_LIMITED_POWER_BRAKE, 0, 1e-9,
	  1e18 },
	{ GW_TIER_HEALTH, GW_Q_RECOVERY_ACTION, ABI_FIELD_RECOVERY_ACTION, 0, 1, 1e6 },
	{ GW_TIER_ASKED, GW_Q_PCIE_SENT, ABI_FIELD_PCIE_SENT, 0, 1, 1e19 },
	{ GW_TIER_ASKED, GW_Q_PCIE_RECEIVED, ABI_FIELD_PCIE_RECEIVED, 0, 1, 1e19 },
};
#define FIELDS (sizeof(fields) / sizeof(fields[0]))

static const struct {
	uint8_t q;
	uint32_t metric;
} gpm_metrics[] = {
	{ GW_Q_GPM_SM_ACTIVE, ABI_GPM_SM_ACTIVE },
	{ GW_Q_GPM_SM_OCCUPANCY, ABI_GPM_SM_OCCUPANCY },
	{ GW_Q_GPM_TENSOR, ABI_GPM_TENSOR },
	{ GW_Q_GPM_DRAM, ABI_GPM_DRAM },
	{ GW_Q_GPM_FP64, ABI_GPM_FP64 },
	{ GW_Q_GPM_FP32, ABI_GPM_FP32 },
	{ GW_Q_GPM_FP16, ABI_GPM_FP16 },
};
#define GPM_METRICS (sizeof(gpm_metrics) / sizeof(gpm_metrics[0]))

static unsigned tier_bit(enum gw_tier tier)
{
	return (unsigned)__builtin_ctz(tier);
}

void nvml_plan(struct device *d)
{
	struct nvml_device *nd = nvml_device_of(d);

	memset(nd->planned, 0, sizeof(nd->planned));
	for (unsigned i = 0; i < READERS; i++) {
		unsigned t = tier_bit(readers[i].tier);

		nd->plan[t][nd->planned[t]++] = (uint8_t)i;
	}
}

void nvml_missing(const struct nvml *n, char *out, size_t size)
{
	size_t used = 0;

	out[0] = '\0';
	for (unsigned i = 0; i < READERS; i++) {
		const struct reader *row = &readers[i];
		const char *name = nvml_symbol[row->call];

		if (n->any[row->call] || (row->older && n->any[row->older]) ||
		    strstr(out, name))
			continue;
		used += (size_t)snprintf(out + used, size - used, "%s%s", used ? " " : "",
					 name);
		if (used >= size)
			return;
	}
}

/* ---- one call ---- */

/* A number of the driver into its quantity, unless it is a placeholder. */
static void put(struct device *d, const struct reader *row, unsigned i, double raw)
{
	if (row->q[i] == NO)
		return;
	if (row->most != 0 && (raw > row->most || raw < -row->most))
		report_miss(&d->r, row->q[i], GW_ABSENT_INVALID);
	else
		report_set(&d->r, row->q[i], raw * row->scale);
}

static void put_u32(struct device *d, const struct reader *row, unsigned i, uint32_t raw)
{
	if (row->q[i] != NO && raw == ABI_NO_U32)
		report_miss(&d->r, row->q[i], GW_ABSENT_INVALID);
	else
		put(d, row, i, raw);
}

static void put_u64(struct device *d, const struct reader *row, unsigned i, uint64_t raw)
{
	if (row->q[i] != NO && raw == ABI_NO_U64)
		report_miss(&d->r, row->q[i], GW_ABSENT_INVALID);
	else
		put(d, row, i, (double)raw);
}

/* Calls through a pointer chosen by the row.  `type` is the shape's function type. */
#define ROW_CALL(type, d, which, ...)                                                       \
	(atomic_store_explicit((d)->call, nvml_symbol[which], memory_order_relaxed),        \
	 nvml_called((d)->call, ((type *)nvml_of(d)->any[which])(nvml_device_of(d)->handle, \
								 __VA_ARGS__)))

typedef abi_return fn_u32(abi_device, uint32_t *);
typedef abi_return fn_u32_of(abi_device, uint32_t, uint32_t *);
typedef abi_return fn_u32_pair(abi_device, uint32_t *, uint32_t *);
typedef abi_return fn_u64(abi_device, uint64_t *);

static abi_return read_u32(struct device *d, const struct reader *row, enum nvml_call call)
{
	uint32_t v = ABI_NO_U32;
	abi_return code = ROW_CALL(fn_u32, d, call, &v);

	if (code == ABI_SUCCESS)
		put_u32(d, row, 0, v);
	return code;
}

static abi_return read_u32_of(struct device *d, const struct reader *row, enum nvml_call call)
{
	uint32_t v = ABI_NO_U32;
	abi_return code;

	if (call == CALL_fan_old)
		return read_u32(d, row, call);
	code = ROW_CALL(fn_u32_of, d, call, row->which, &v);
	if (code == ABI_SUCCESS)
		put_u32(d, row, 0, v);
	return code;
}

static abi_return read_u32_pair(struct device *d, const struct reader *row, enum nvml_call call)
{
	uint32_t a = ABI_NO_U32, b = ABI_NO_U32;
	abi_return code = ROW_CALL(fn_u32_pair, d, call, &a, &b);

	if (code == ABI_SUCCESS) {
		put_u32(d, row, 0, a);
		put_u32(d, row, 1, b);
	}
	return code;
}

static abi_return read_u64(struct device *d, const struct reader *row, enum nvml_call call)
{
	uint64_t v = ABI_NO_U64;
	abi_return code = ROW_CALL(fn_u64, d, call, &v);

	if (code == ABI_SUCCESS)
		put_u64(d, row, 0, v);
	return code;
}

static abi_return read_ecc(struct device *d, const struct reader *row)
{
	uint64_t v = ABI_NO_U64;
	abi_return code = NVML(d, ecc_errors, nvml_device_of(d)->handle, row->which & 1,
			       row->which >> 1, &v);

	if (code == ABI_SUCCESS)
		put_u64(d, row, 0, v);
	return code;
}

static abi_return read_rows(struct device *d, const struct reader *row)
{
	uint32_t v[4] = { ABI_NO_U32, ABI_NO_U32, ABI_NO_U32, ABI_NO_U32 };
	abi_return code =
		NVML(d, remapped_rows, nvml_device_of(d)->handle, &v[0], &v[1], &v[2], &v[3]);

	if (code == ABI_SUCCESS)
		for (unsigned i = 0; i < 4; i++)
			put_u32(d, row, i, v[i]);
	return code;
}

static abi_return read_memory(struct device *d, const struct reader *row, enum nvml_call call)
{
	struct abi_memory_v2 m = { .version = ABI_TAG(struct abi_memory_v2, 2) };
	struct abi_memory old;
	abi_return code;

	if (call == CALL_memory_v2) {
		code = NVML(d, memory_v2, nvml_device_of(d)->handle, &m);
		if (code == ABI_SUCCESS)
			put_u64(d, row, 1, m.reserved);
	} else {
		/* The old call counts the reserved part as used and does not tell it apart. */
		memset(&old, 0xFF, sizeof(old));
		code = NVML(d, memory, nvml_device_of(d)->handle, &old);
		m.total = old.total;
		m.used = old.used;
		m.free = old.free;
		if (code == ABI_SUCCESS)
			report_miss(&d->r, row->q[1], GW_ABSENT_NO_SYMBOL);
	}
	if (code == ABI_SUCCESS) {
		put_u64(d, row, 0, m.total);
		put_u64(d, row, 2, m.used);
		put_u64(d, row, 3, m.free);
	}
	return code;
}

static abi_return read_bar1(struct device *d, const struct reader *row)
{
	struct abi_bar1 m;
	abi_return code;

	memset(&m, 0xFF, sizeof(m));
	code = NVML(d, bar1, nvml_device_of(d)->handle, &m);
	if (code == ABI_SUCCESS) {
		put_u64(d, row, 0, m.total);
		put_u64(d, row, 1, m.used);
	}
	return code;
}

static abi_return read_utilization(struct device *d, const struct reader *row)
{
	struct abi_utilization u = { ABI_NO_U32, ABI_NO_U32 };
	abi_return code = NVML(d, utilization, nvml_device_of(d)->handle, &u);

	if (code == ABI_SUCCESS) {
		put_u32(d, row, 0, u.gpu);
		put_u32(d, row, 1, u.memory);
	}
	return code;
}

static abi_return read_temperature(struct device *d, const struct reader *row,
				   enum nvml_call call)
{
	struct abi_temperature t = { .version = ABI_TAG(struct abi_temperature, 1),
				     .celsius = INT32_MAX };
	uint32_t old = ABI_NO_U32;
	abi_return code;

	if (call == CALL_temperature_v) {
		code = NVML(d, temperature_v, nvml_device_of(d)->handle, &t);
	} else {
		code = NVML(d, temperature, nvml_device_of(d)->handle, 0, &old);
		t.celsius = (int32_t)old; /* -1 is the placeholder: no GPU runs there */
		if (old == ABI_NO_U32)
			t.celsius = INT32_MAX;
	}
	if (code == ABI_SUCCESS)
		put(d, row, 0, t.celsius);
	return code;
}

static abi_return read_margin(struct device *d, const struct reader *row)
{
	struct abi_margin m = { .version = ABI_TAG(struct abi_margin, 1),
				.celsius = INT32_MAX };
	abi_return code = NVML(d, margin, nvml_device_of(d)->handle, &m);

	if (code == ABI_SUCCESS)
		put(d, row, 0, m.celsius);
	return code;
}

static abi_return read_fan_rpm(struct device *d, const struct reader *row)
{
	struct abi_fan_rpm f = { .version = ABI_TAG(struct abi_fan_rpm, 1), .rpm = ABI_NO_U32 };
	abi_return code = NVML(d, fan_rpm, nvml_device_of(d)->handle, &f);

	if (code == ABI_SUCCESS)
		put_u32(d, row, 0, f.rpm);
	return code;
}

static abi_return read_repair(struct device *d, const struct reader *row)
{
	struct abi_repair r = { ABI_TAG(struct abi_repair, 1), ABI_NO_U32, ABI_NO_U32 };
	abi_return code = NVML(d, repair, nvml_device_of(d)->handle, &r);

	if (code == ABI_SUCCESS) {
		put_u32(d, row, 0, r.channel);
		put_u32(d, row, 1, r.tpc);
	}
	return code;
}

static abi_return read_sram(struct device *d, const struct reader *row)
{
	struct abi_sram_status s = { .version = ABI_TAG(struct abi_sram_status, 1),
				     .threshold_exceeded = ABI_NO_U32 };
	abi_return code = NVML(d, sram_status, nvml_device_of(d)->handle, &s);

	if (code == ABI_SUCCESS)
		put_u32(d, row, 0, s.threshold_exceeded);
	return code;
}

static abi_return read_capability(struct device *d, const struct reader *row)
{
	int major = -1, minor = -1;
	abi_return code = NVML(d, capability, nvml_device_of(d)->handle, &major, &minor);

	if (code == ABI_SUCCESS) {
		put(d, row, 0, major < 0 ? 1e9 : major);
		put(d, row, 1, minor < 0 ? 1e9 : minor);
	}
	return code;
}

/* ---- field values ---- */

/* A field's number by its own type: the union read as 64 bits would show a 4-byte -8 as
 * 4294967288. */
static bool field_number(const struct abi_field_value *f, double *ret)
{
	switch (f->type) {
	case ABI_VALUE_DOUBLE: *ret = f->value.d; return true;
	case ABI_VALUE_U32: *ret = f->value.u32; return f->value.u32 != ABI_NO_U32;
	case ABI_VALUE_ULONG:
		*ret = (double)f->value.ul;
		return f->value.ul != (unsigned long)-1;
	case ABI_VALUE_U64: *ret = (double)f->value.u64; return f->value.u64 != ABI_NO_U64;
	case ABI_VALUE_I64: *ret = (double)f->value.i64; return true;
	case ABI_VALUE_I32: *ret = f->value.i32; return true;
	case ABI_VALUE_U16: *ret = f->value.u16; return true;
	default: return false;
	}
}

static void put_field(struct device *d, const struct field *row,
		      const struct abi_field_value *f)
{
	double v;

	if (f->code != ABI_SUCCESS)
		report_miss(&d->r, row->q, nvml_meaning(f->code)->absence);
	else if (!field_number(f, &v) || !(v >= 0 && v <= row->most))
		report_miss(&d->r, row->q, GW_ABSENT_INVALID);
	else
		report_set(&d->r, row->q, v * row->scale);
}

/* An answer of one entry that concerns the whole device, ABI_SUCCESS where there is none. */
static abi_return worst_field(const struct abi_field_value *ask, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		enum nvml_reaction r = nvml_meaning(ask[i].code)->reaction;

		if (ask[i].code != ABI_SUCCESS && (r == REACT_LOST || r == REACT_REOPEN))
			return ask[i].code;
	}
	return ABI_SUCCESS;
}

static abi_return read_fields(struct device *d, const struct reader *row)
{
	struct abi_field_value ask[FIELDS];
	uint8_t at[FIELDS];
	unsigned n = 0;
	abi_return code;

	memset(ask, 0, sizeof(ask));
	for (unsigned i = 0; i < FIELDS; i++) {
		enum gw_absence known = (enum gw_absence)d->r.why[fields[i].q];

		if (fields[i].tier != row->tier || known == GW_ABSENT_NOT_SUPPORTED ||
		    known == GW_ABSENT_NO_PERMISSION)
			continue;
		ask[n].field = fields[i].id;
		ask[n].scope = fields[i].scope;
		ask[n].code = ABI_NO_DATA;
		at[n++] = (uint8_t)i;
	}
	if (n == 0)
		return ABI_NOT_SUPPORTED;
	code = NVML(d, fields, nvml_device_of(d)->handle, (int)n, ask);
	if (code != ABI_SUCCESS)
		return code;
	for (unsigned i = 0; i < n; i++)
		put_field(d, &fields[at[i]], &ask[i]);
	return worst_field(ask, n);
}

/* ---- GPM: the difference of two samples more than 100 ms apart ---- */

static void gpm_absent(struct device *d, enum gw_absence why)
{
	for (unsigned i = 0; i < GPM_METRICS; i++)
		report_miss(&d->r, gpm_metrics[i].q, why);
}

static abi_return gpm_prepare(struct device *d)
{
	struct nvml_device *nd = nvml_device_of(d);
	const struct nvml *n = nvml_of(d);
	struct abi_gpm_support support = { 1, 0 };
	abi_return code;

	if (!n->call.gpm_support || !n->call.gpm_alloc || !n->call.gpm_free ||
	    !n->call.gpm_metrics)
		return ABI_FUNCTION_NOT_FOUND;
	if (nd->gpm[1])
		return ABI_SUCCESS;
	code = NVML(d, gpm_support, nd->handle, &support);
	if (code == ABI_SUCCESS && !support.supported)
		code = ABI_NOT_SUPPORTED;
	for (unsigned i = 0; i < 2 && code == ABI_SUCCESS; i++)
		if (!nd->gpm[i])
			code = NVML(d, gpm_alloc, &nd->gpm[i]);
	return code;
}

static abi_return gpm_difference(struct device *d, double scale)
{
	struct nvml_device *nd = nvml_device_of(d);
	struct abi_gpm_metrics m;
	abi_return code;

	memset(&m, 0, sizeof(m));
	m.version = 1;
	m.count = GPM_METRICS;
	m.first = nd->gpm[0];
	m.second = nd->gpm[1];
	for (unsigned i = 0; i < GPM_METRICS; i++)
		m.metric[i].id = gpm_metrics[i].metric;
	code = NVML(d, gpm_metrics, &m);
	for (unsigned i = 0; i < GPM_METRICS && code == ABI_SUCCESS; i++) {
		double v = m.metric[i].value;

		if (m.metric[i].code != ABI_SUCCESS)
			report_miss(&d->r, gpm_metrics[i].q,
				    nvml_meaning(m.metric[i].code)->absence);
		else if (!(v >= 0 && v <= 101)) /* rounding may pass 100; NaN is no value */
			report_miss(&d->r, gpm_metrics[i].q, GW_ABSENT_INVALID);
		else
			report_set(&d->r, gpm_metrics[i].q, v * scale);
	}
	return code;
}

static abi_return read_gpm(struct device *d, const struct reader *row)
{
	struct nvml_device *nd = nvml_device_of(d);
	uint64_t now = clock_mono_ns(d->backend->env->clock);
	abi_return code = gpm_prepare(d);
	abi_gpm_sample swap;

	if (code == ABI_SUCCESS && nd->gpm_ns && now - nd->gpm_ns < 100 * NS_PER_MS) {
		gpm_absent(d, GW_ABSENT_NO_DATA);
		return code;
	}
	if (code == ABI_SUCCESS)
		code = NVML(d, gpm_get, nd->handle, nd->gpm[1]);
	if (code == ABI_SUCCESS && nd->gpm_ns)
		code = gpm_difference(d, row->scale);
	else if (code == ABI_SUCCESS)
		gpm_absent(d, GW_ABSENT_FIRST_READING);
	if (code != ABI_SUCCESS) {
		gpm_absent(d, nvml_meaning(code)->absence);
		return code;
	}
	swap = nd->gpm[0];
	nd->gpm[0] = nd->gpm[1];
	nd->gpm[1] = swap;
	nd->gpm_ns = now;
	return ABI_SUCCESS;
}

/* ---- a row, a tier, a device ---- */

static abi_return read_shape(struct device *d, const struct reader *row, enum nvml_call call)
{
	switch (row->shape) {
	case SHAPE_U32: return read_u32(d, row, call);
	case SHAPE_U32_OF: return read_u32_of(d, row, call);
	case SHAPE_U32_PAIR: return read_u32_pair(d, row, call);
	case SHAPE_U64: return read_u64(d, row, call);
	case SHAPE_ECC: return read_ecc(d, row);
	case SHAPE_ROWS: return read_rows(d, row);
	case SHAPE_MEMORY: return read_memory(d, row, call);
	case SHAPE_BAR1: return read_bar1(d, row);
	case SHAPE_UTILIZATION: return read_utilization(d, row);
	case SHAPE_TEMPERATURE: return read_temperature(d, row, call);
	case SHAPE_MARGIN: return read_margin(d, row);
	case SHAPE_FAN_RPM: return read_fan_rpm(d, row);
	case SHAPE_REPAIR: return read_repair(d, row);
	case SHAPE_SRAM: return read_sram(d, row);
	case SHAPE_CAPABILITY: return read_capability(d, row);
	case SHAPE_FIELDS: return read_fields(d, row);
	case SHAPE_GPM: return read_gpm(d, row);
	}
	return ABI_INVALID_ARGUMENT;
}

static bool try_older(abi_return code)
{
	return code == ABI_FUNCTION_NOT_FOUND || code == ABI_DEPRECATED ||
	       code == ABI_ARGUMENT_VERSION_MISMATCH || code == ABI_NOT_SUPPORTED;
}

static abi_return read_row(struct device *d, const struct reader *row)
{
	const struct nvml *n = nvml_of(d);
	abi_return code = ABI_FUNCTION_NOT_FOUND;

	if (n->any[row->call])
		code = read_shape(d, row, row->call);
	if (row->older && n->any[row->older] && try_older(code))
		code = read_shape(d, row, row->older);
	return code;
}

static void row_absent(struct device *d, const struct reader *row, enum gw_absence why)
{
	if (row->shape == SHAPE_FIELDS) {
		for (unsigned i = 0; i < FIELDS; i++)
			if (fields[i].tier == row->tier &&
			    d->r.why[fields[i].q] != GW_ABSENT_NOT_SUPPORTED)
				report_miss(&d->r, fields[i].q, why);
	} else if (row->shape == SHAPE_GPM) {
		gpm_absent(d, why);
	}
	for (unsigned i = 0; i < 4; i++)
		if (row->q[i] != NO)
			report_miss(&d->r, row->q[i], why);
}

struct outcome {
	unsigned good, bad;
	abi_return first_bad; /* of the errors without a better name                    */
	abi_return fault;     /* the driver named a hardware fault                      */
	bool stop;            /* the device or the driver is gone: its figures are too  */
};

static void row_failed(struct device *d, const struct reader *row, abi_return code,
		       struct outcome *o)
{
	const struct nvml_meaning *m = nvml_meaning(code);

	row_absent(d, row, m->absence);
	if (m->reaction == REACT_FAULT)
		o->fault = code;
	if (m->absence == GW_ABSENT_ERROR && o->bad++ == 0)
		o->first_bad = code;
	o->stop = nvml_react(d, code);
}

static void read_tier(struct device *d, unsigned t, struct outcome *o)
{
	struct nvml_device *nd = nvml_device_of(d);
	unsigned keep = 0, i;

	for (i = 0; i < nd->planned[t] && !o->stop; i++) {
		uint8_t at = nd->plan[t][i];
		abi_return code = read_row(d, &readers[at]);

		if (code == ABI_SUCCESS)
			o->good++;
		else
			row_failed(d, &readers[at], code, o);
		if (nvml_meaning(code)->reaction != REACT_FORGET)
			nd->plan[t][keep++] = at;
	}
	while (i < nd->planned[t])
		nd->plan[t][keep++] = nd->plan[t][i++];
	nd->planned[t] = (uint8_t)keep;
}

void nvml_mig_memory(struct device *d)
{
	struct nvml_device *nd = nvml_device_of(d);

	for (unsigned i = 0; i < d->r.mig_count; i++) {
		struct gw_mig *g = &d->r.mig[i];
		struct abi_memory m;
		abi_return code = ABI_FUNCTION_NOT_FOUND;

		memset(&m, 0xFF, sizeof(m));
		if (nvml_of(d)->call.memory)
			code = NVML(d, memory, nd->mig[i], &m);
		g->memory_absence = nvml_meaning(code)->absence;
		if (code == ABI_SUCCESS && m.total == ABI_NO_U64)
			g->memory_absence = GW_ABSENT_INVALID;
		if (g->memory_absence != GW_HAVE)
			continue;
		g->memory_total_bytes = m.total;
		g->memory_used_bytes = m.used;
		g->memory_free_bytes = m.free;
	}
}

bool nvml_read_one(struct device *d, unsigned quantity)
{
	struct outcome o = { 0 };

	for (unsigned i = 0; i < READERS; i++) {
		abi_return code;

		if (!memchr(readers[i].q, (int)quantity, sizeof(readers[i].q)))
			continue;
		code = read_row(d, &readers[i]);
		if (code != ABI_SUCCESS)
			row_failed(d, &readers[i], code, &o);
		break;
	}
	return !o.stop;
}

static void judge(struct device *d, const struct outcome *o)
{
	char code[24];

	if (o->fault)
		report_state(&d->r, GW_DEVICE_FAULT, GW_CAUSE_GPU_FAULT,
			     nvml_code_name(o->fault, code));
	else if (o->good == 0 && o->bad > 0) /* it answers, but nothing that helps */
		report_state(&d->r, GW_DEVICE_FAULT, GW_CAUSE_DRIVER_ERROR,
			     nvml_code_name(o->first_bad, code));
	else
		report_state(&d->r, GW_DEVICE_OK, GW_CAUSE_NONE, NULL);
}

void nvml_read(struct device *d, unsigned tiers)
{
	const struct clock *clock = d->backend->env->clock;
	struct outcome o = { 0 };
	uint64_t begin = clock_mono_ns(clock);

	if (d->r.state != GW_DEVICE_OK)
		nvml_find_again(d);
	if (!d->priv || !nvml_device_of(d)->handle)
		return;
	for (unsigned t = 0; t < TIER_COUNT; t++)
		if (tiers & 1u << t)
			read_tier(d, t, &o);
	if (o.stop)
		return;
	if (tiers & GW_TIER_STATIC)
		nvml_read_texts(d);
	if (d->r.mig_count && tiers & GW_TIER_SLOW)
		nvml_mig_memory(d);
	judge(d, &o);
	report_stamp(&d->r, tiers, begin);
	if (tiers & GW_TIER_FAST) {
		d->r.begin_ns = begin;
		d->r.end_ns = clock_mono_ns(clock);
	}
}
