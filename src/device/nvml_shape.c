/* nvml_shape: one function per form of NVML call. The function makes the call, rejects
 * placeholders and scales the numbers. A call that fills a struct is a row in `layouts`. The
 * last part reads GPM: profiling metrics that need no profiler (Hopper and later). */
#include "nvml_reader.h"

#include "base/array.h"

#include <stddef.h>
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
	double scale, max;
};

static const struct field fields[] = {
#define FIELD(quantity, id, scope, scale, max)    \
	{                                         \
		(enum gw_tier)TIER_OF_##quantity, \
		GW_Q_##quantity,                  \
		ABI_FIELD_##id,                   \
		scope,                            \
		scale,                            \
		max                               \
	},
#include "nvml_readers.def"
#undef FIELD
};
#define FIELDS COUNT(fields)

/* Stores a number from the driver in its quantity, unless it is a placeholder. */
static void store_number(struct device *d, const struct nvml_reader *row, unsigned i,
			 double raw)
{
	if (i >= row->count)
		return;
	if (nvml_is_value(raw, row->max))
		report_set(&d->r, row->q[i], nvml_scaled(raw, row->scale));
	else
		report_miss(&d->r, row->q[i], GW_ABSENT_INVALID);
}

static void store_u32(struct device *d, const struct nvml_reader *row, unsigned i, uint32_t raw)
{
	if (i < row->count && raw == ABI_NO_U32)
		report_miss(&d->r, row->q[i], GW_ABSENT_INVALID);
	else
		store_number(d, row, i, raw);
}

static void store_u64(struct device *d, const struct nvml_reader *row, unsigned i, uint64_t raw)
{
	/* No counter reaches this value: a value near "all bits set" is a placeholder or a
	 * small negative number. */
	if (i < row->count && raw > UINT64_MAX / 2)
		report_miss(&d->r, row->q[i], GW_ABSENT_INVALID);
	else
		store_number(d, row, i, (double)raw);
}

typedef abi_return fn_u32_of(abi_device, uint32_t, uint32_t *);
typedef abi_return fn_u32_pair(abi_device, uint32_t *, uint32_t *);
typedef abi_return fn_u64(abi_device, uint64_t *);

static abi_return read_u32(struct device *d, const struct nvml_reader *row, enum nvml_call call)
{
	uint32_t v = ABI_NO_U32;
	abi_return code = NVML_ANY(nvml_u32_fn, d, call, &v);

	if (code == ABI_SUCCESS)
		store_u32(d, row, 0, v);
	return code;
}

static abi_return read_u32_of(struct device *d, const struct nvml_reader *row,
			      enum nvml_call call)
{
	uint32_t v = ABI_NO_U32;
	abi_return code;

	if (call == CALL_fan_old)
		return read_u32(d, row, call);
	code = NVML_ANY(fn_u32_of, d, call, row->which, &v);
	if (code == ABI_SUCCESS)
		store_u32(d, row, 0, v);
	return code;
}

static abi_return read_u32_pair(struct device *d, const struct nvml_reader *row,
				enum nvml_call call)
{
	uint32_t a = ABI_NO_U32, b = ABI_NO_U32;
	abi_return code = NVML_ANY(fn_u32_pair, d, call, &a, &b);

	if (code == ABI_SUCCESS) {
		store_u32(d, row, 0, a);
		store_u32(d, row, 1, b);
	}
	return code;
}

static abi_return read_u64(struct device *d, const struct nvml_reader *row, enum nvml_call call)
{
	uint64_t v = ABI_NO_U64;
	abi_return code = NVML_ANY(fn_u64, d, call, &v);

	if (code == ABI_SUCCESS)
		store_u64(d, row, 0, v);
	return code;
}

static abi_return read_ecc(struct device *d, const struct nvml_reader *row)
{
	uint64_t v = ABI_NO_U64;
	abi_return code = NVML(d, ecc_errors, nvml_device_of(d)->handle, row->which & 1,
			       row->which >> 1, &v);

	if (code == ABI_SUCCESS)
		store_u64(d, row, 0, v);
	return code;
}

static abi_return read_rows(struct device *d, const struct nvml_reader *row)
{
	uint32_t v[4] = { ABI_NO_U32, ABI_NO_U32, ABI_NO_U32, ABI_NO_U32 };
	abi_return code =
		NVML(d, remapped_rows, nvml_device_of(d)->handle, &v[0], &v[1], &v[2], &v[3]);

	if (code == ABI_SUCCESS)
		for (unsigned i = 0; i < 4; i++)
			store_u32(d, row, i, v[i]);
	return code;
}

enum struct_kind { STRUCT_U32, STRUCT_I32, STRUCT_U64 };
#define STRUCT_MAX       104
#define NO_MEMBER        0xFF
#define AT(type, member) offsetof(struct abi_##type, member)
#define TAG(type, n)     ABI_TAG(struct abi_##type, n)

/* The structs that calls fill. */
static const struct layout {
	enum nvml_call call;
	enum struct_kind kind; /* type of the numbers in the struct */
	uint32_t tag;  /* Version tag, the first member of the struct. 0: it has no tag. */
	uint8_t at[4]; /* offsets of the numbers, in the order of the row's quantities */
} layouts[] = {
	{ CALL_memory_v2,
	  STRUCT_U64,
	  TAG(memory_v2, 2),
	  { AT(memory_v2, total), AT(memory_v2, reserved), AT(memory_v2, used),
	    AT(memory_v2, free) } },
	/* The old call counts reserved memory as used and does not report reserved memory. */
	{ CALL_memory,
	  STRUCT_U64,
	  0,
	  { AT(memory, total), NO_MEMBER, AT(memory, used), AT(memory, free) } },
	{ CALL_bar1, STRUCT_U64, 0, { AT(bar1, total), AT(bar1, used) } },
	{ CALL_utilization, STRUCT_U32, 0, { AT(utilization, gpu), AT(utilization, memory) } },
	{ CALL_temperature_v, STRUCT_I32, TAG(temperature, 1), { AT(temperature, celsius) } },
	{ CALL_margin, STRUCT_I32, TAG(margin, 1), { AT(margin, celsius) } },
	{ CALL_fan_rpm, STRUCT_U32, TAG(fan_rpm, 1), { AT(fan_rpm, rpm) } },
	{ CALL_repair, STRUCT_U32, TAG(repair, 1), { AT(repair, channel), AT(repair, tpc) } },
	{ CALL_sram_status,
	  STRUCT_U32,
	  TAG(sram_status, 1),
	  { AT(sram_status, threshold_exceeded) } },
};

static abi_return call_with_struct(struct device *d, enum nvml_call call, void *s)
{
	abi_device h = nvml_device_of(d)->handle;

	switch (call) {
	case CALL_memory_v2: return NVML(d, memory_v2, h, s);
	case CALL_memory: return NVML(d, memory, h, s);
	case CALL_bar1: return NVML(d, bar1, h, s);
	case CALL_utilization: return NVML(d, utilization, h, s);
	case CALL_temperature_v: return NVML(d, temperature_v, h, s);
	case CALL_margin: return NVML(d, margin, h, s);
	case CALL_fan_rpm: return NVML(d, fan_rpm, h, s);
	case CALL_repair: return NVML(d, repair, h, s);
	case CALL_sram_status: return NVML(d, sram_status, h, s);
	default: return ABI_INVALID_ARGUMENT;
	}
}

/* Stores a temperature. -1 is a placeholder here, because no GPU is that cold; a margin can be
 * -1. */
static void store_temperature(struct device *d, const struct nvml_reader *row, uint32_t raw)
{
	store_number(d, row, 0, raw == ABI_NO_U32 ? INT32_MAX : (int32_t)raw);
}

static void store_member(struct device *d, const struct nvml_reader *row, unsigned i,
			 enum struct_kind kind, const unsigned char *at)
{
	uint64_t u64;
	uint32_t u32;

	memcpy(&u32, at, sizeof(u32));
	if (kind == STRUCT_U32) {
		store_u32(d, row, i, u32);
	} else if (kind == STRUCT_I32 && row->call == CALL_temperature_v) {
		store_temperature(d, row, u32);
	} else if (kind == STRUCT_I32) {
		store_number(d, row, i, (int32_t)u32);
	} else {
		memcpy(&u64, at, sizeof(u64));
		store_u64(d, row, i, u64);
	}
}

static abi_return read_struct(struct device *d, const struct nvml_reader *row,
			      enum nvml_call call)
{
	const struct layout *l = layouts;
	_Alignas(uint64_t) unsigned char s[STRUCT_MAX] = { 0 };
	abi_return code;

	while (l->call != call)
		l++;
	memcpy(s, &l->tag, sizeof(l->tag));
	/* Fill the numbers with placeholders (all bits set, or a temperature beyond every
	 * maximum), so that a number that the driver does not write is recognised. */
	for (unsigned i = 0; i < row->count; i++)
		if (l->at[i] != NO_MEMBER)
			memset(s + l->at[i], l->kind == STRUCT_I32 ? 0x7F : 0xFF,
			       l->kind == STRUCT_U64 ? 8 : 4);
	code = call_with_struct(d, call, s);
	for (unsigned i = 0; i < row->count && code == ABI_SUCCESS; i++) {
		if (l->at[i] == NO_MEMBER)
			report_miss(&d->r, row->q[i], GW_ABSENT_NO_SYMBOL);
		else
			store_member(d, row, i, l->kind, s + l->at[i]);
	}
	return code;
}

static abi_return read_temperature_old(struct device *d, const struct nvml_reader *row)
{
	uint32_t v = ABI_NO_U32;
	abi_return code = NVML(d, temperature, nvml_device_of(d)->handle, 0, &v);

	if (code == ABI_SUCCESS)
		store_temperature(d, row, v);
	return code;
}

static abi_return read_capability(struct device *d, const struct nvml_reader *row)
{
	int major = -1, minor = -1;
	abi_return code = NVML(d, capability, nvml_device_of(d)->handle, &major, &minor);

	if (code == ABI_SUCCESS) {
		store_number(d, row, 0, major < 0 ? 1e9 : major);
		store_number(d, row, 1, minor < 0 ? 1e9 : minor);
	}
	return code;
}

/* Converts a field value to a number. The type of the value selects the member of the union:
 * read as 64 bits, a 4-byte -8 would be 4294967288. */
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

static void store_field(struct device *d, const struct field *row,
			const struct abi_field_value *f)
{
	double v;

	if (f->code != ABI_SUCCESS)
		report_miss(&d->r, row->q, nvml_meaning(f->code)->absence);
	else if (!field_number(f, &v) || v < 0 || !nvml_is_value(v, row->max))
		report_miss(&d->r, row->q, GW_ABSENT_INVALID);
	else
		report_set(&d->r, row->q, nvml_scaled(v, row->scale));
}

/* Returns the first code that means that the device or the driver is gone, or ABI_SUCCESS. */
static abi_return worst_field(const struct abi_field_value *values, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		enum nvml_reaction r = nvml_meaning(values[i].code)->reaction;

		if (values[i].code != ABI_SUCCESS && (r == REACT_LOST || r == REACT_REOPEN))
			return values[i].code;
	}
	return ABI_SUCCESS;
}

/* True if the driver permanently refused the field. It is then not read again and keeps its
 * reason. */
static bool field_refused(const struct device *d, const struct field *f)
{
	return d->r.why[f->q] == GW_ABSENT_NOT_SUPPORTED ||
	       d->r.why[f->q] == GW_ABSENT_NO_PERMISSION;
}

static abi_return read_fields(struct device *d, const struct nvml_reader *row)
{
	struct abi_field_value values[FIELDS];
	uint8_t at[FIELDS];
	unsigned n = 0;
	abi_return code;

	memset(values, 0, sizeof(values));
	for (unsigned i = 0; i < FIELDS; i++) {
		if (fields[i].tier != row->tier || field_refused(d, &fields[i]))
			continue;
		values[n].field = fields[i].id;
		values[n].scope = fields[i].scope;
		values[n].code = ABI_NO_DATA;
		at[n++] = (uint8_t)i;
	}
	if (n == 0)
		return ABI_NOT_SUPPORTED;
	code = NVML(d, fields, nvml_device_of(d)->handle, (int)n, values);
	if (code != ABI_SUCCESS)
		return code;
	for (unsigned i = 0; i < n; i++)
		store_field(d, &fields[at[i]], &values[i]);
	return worst_field(values, n);
}

static const struct {
	uint8_t q;
	uint32_t metric;
} gpm_metrics[] = {
#define GPM(quantity, metric) { GW_Q_##quantity, ABI_GPM_##metric },
#include "nvml_readers.def"
#undef GPM
};
#define GPM_METRICS COUNT(gpm_metrics)

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
		else if (!(v >= 0 && v <= 101)) /* Rounding may give more than 100. */
			report_miss(&d->r, gpm_metrics[i].q, GW_ABSENT_INVALID);
		else
			report_set(&d->r, gpm_metrics[i].q, nvml_scaled(v, scale));
	}
	return code;
}

static abi_return gpm_read(struct device *d, const struct nvml_reader *row)
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

void nvml_shape_absent(struct device *d, const struct nvml_reader *row, enum gw_absence why)
{
	if (row->shape == SHAPE_FIELDS) {
		for (unsigned i = 0; i < FIELDS; i++)
			if (fields[i].tier == row->tier && !field_refused(d, &fields[i]))
				report_miss(&d->r, fields[i].q, why);
	} else if (row->shape == SHAPE_GPM) {
		gpm_absent(d, why);
	}
	for (unsigned i = 0; i < row->count; i++)
		if (row->q[i] != NO)
			report_miss(&d->r, row->q[i], why);
}

abi_return nvml_shape_read(struct device *d, const struct nvml_reader *row, enum nvml_call call)
{
	switch (row->shape) {
	case SHAPE_U32: return read_u32(d, row, call);
	case SHAPE_U32_OF: return read_u32_of(d, row, call);
	case SHAPE_U32_PAIR: return read_u32_pair(d, row, call);
	case SHAPE_U64: return read_u64(d, row, call);
	case SHAPE_ECC: return read_ecc(d, row);
	case SHAPE_ROWS: return read_rows(d, row);
	case SHAPE_STRUCT:
		return call == CALL_temperature ? read_temperature_old(d, row)
						: read_struct(d, row, call);
	case SHAPE_CAPABILITY: return read_capability(d, row);
	case SHAPE_FIELDS: return read_fields(d, row);
	case SHAPE_GPM: return gpm_read(d, row);
	}
	return ABI_INVALID_ARGUMENT;
}
