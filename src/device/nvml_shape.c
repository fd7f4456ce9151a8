/* nvml_shape: one function for each shape of call: makes it, refuses placeholders, scales. */
#include "nvml_reader.h"

#include <string.h>

enum {
#define Q(symbol, key, kind, tier, help) TIER_OF_##symbol = GW_TIER_##tier,
#include <gpuward/quantity.def>
#undef Q
};

struct field {
	enum gw_tier tier;
	uint8_t q;
	uint32_t id, scope;
	double scale, most;
};

static const struct field fields[] = {
#define FIELD(quantity, id, scope, scale, most)   \
	{                                         \
		(enum gw_tier)TIER_OF_##quantity, \
		GW_Q_##quantity,                  \
		ABI_FIELD_##id,                   \
		scope,                            \
		scale,                            \
		most                              \
	},
#include "nvml_readers.def"
#undef FIELD
};
#define FIELDS (sizeof(fields) / sizeof(fields[0]))

/* A number of the driver into its quantity, unless it is a placeholder. */
static void put(struct device *d, const struct reader *row, unsigned i, double raw)
{
	if (i >= row->count)
		return;
	if (row->most != 0 && (raw > row->most || raw < -row->most))
		report_miss(&d->r, row->q[i], GW_ABSENT_INVALID);
	else
		report_set(&d->r, row->q[i], nvml_scaled(raw, row->scale));
}

static void put_u32(struct device *d, const struct reader *row, unsigned i, uint32_t raw)
{
	if (i < row->count && raw == ABI_NO_U32)
		report_miss(&d->r, row->q[i], GW_ABSENT_INVALID);
	else
		put(d, row, i, raw);
}

static void put_u64(struct device *d, const struct reader *row, unsigned i, uint64_t raw)
{
	/* No counter gets that far: what is near all ones is a placeholder or a step below 0. */
	if (i < row->count && raw > UINT64_MAX / 2)
		report_miss(&d->r, row->q[i], GW_ABSENT_INVALID);
	else
		put(d, row, i, (double)raw);
}

/* Calls through a pointer chosen by the row.  `type` is the shape's function type. */
#define ROW_CALL(type, d, which, ...)                                          \
	(nvml_calling(d, which), nvml_called(d, which,                         \
					     ((type *)nvml_of(d)->any[which])( \
						     nvml_device_of(d)->handle, __VA_ARGS__)))

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
		report_set(&d->r, row->q, nvml_scaled(v, row->scale));
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

/* A field that was refused for good is not asked again, and keeps its reason. */
static bool refused(const struct device *d, const struct field *f)
{
	return d->r.why[f->q] == GW_ABSENT_NOT_SUPPORTED ||
	       d->r.why[f->q] == GW_ABSENT_NO_PERMISSION;
}

static abi_return read_fields(struct device *d, const struct reader *row)
{
	struct abi_field_value ask[FIELDS];
	uint8_t at[FIELDS];
	unsigned n = 0;
	abi_return code;

	memset(ask, 0, sizeof(ask));
	for (unsigned i = 0; i < FIELDS; i++) {
		if (fields[i].tier != row->tier || refused(d, &fields[i]))
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

/* ---- by shape ---- */

void nvml_shape_absent(struct device *d, const struct reader *row, enum gw_absence why)
{
	if (row->shape == SHAPE_FIELDS) {
		for (unsigned i = 0; i < FIELDS; i++)
			if (fields[i].tier == row->tier && !refused(d, &fields[i]))
				report_miss(&d->r, fields[i].q, why);
	} else if (row->shape == SHAPE_GPM) {
		nvml_gpm_absent(d, why);
	}
	for (unsigned i = 0; i < row->count; i++)
		if (row->q[i] != NO)
			report_miss(&d->r, row->q[i], why);
}

abi_return nvml_shape_read(struct device *d, const struct reader *row, enum nvml_call call)
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
	case SHAPE_GPM: return nvml_gpm_read(d, row);
	}
	return ABI_INVALID_ARGUMENT;
}
