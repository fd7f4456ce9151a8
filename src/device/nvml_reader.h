/* nvml_reader: the rows of nvml_readers.def, and the functions that make one call. */
#ifndef GW_DEVICE_NVML_READER_H
#define GW_DEVICE_NVML_READER_H

#include "nvml.h"

/* The arguments of a call, after the device. */
enum nvml_shape {
	SHAPE_U32,        /* (u32 *) */
	SHAPE_U32_OF,     /* (u32 which, u32 *) */
	SHAPE_U32_PAIR,   /* (u32 *, u32 *) */
	SHAPE_U64,        /* (u64 *) */
	SHAPE_ECC,        /* (u32 kind, u32 since, u64 *) */
	SHAPE_ROWS,       /* (u32 *, u32 *, u32 *, u32 *) */
	SHAPE_STRUCT,     /* (struct *); the table `layouts` in nvml_shape.c has the members */
	SHAPE_CAPABILITY, /* (int *, int *) */
	SHAPE_FIELDS,     /* one call that reads all FIELD rows of the tier */
	SHAPE_GPM,        /* the GPM calls, which compare two samples */
};

#define NO        GW_QUANTITIES /* for a row without a quantity */
#define CALL_none CALL_COUNT    /* for a row without an older call */

/* One row of nvml_readers.def, which explains the members. */
struct nvml_reader {
	enum gw_tier tier;
	enum nvml_shape shape;
	enum nvml_call call, older; /* older is CALL_none if there is no older call */
	uint32_t which;
	double scale, max;
	uint8_t count; /* number of entries in q */
	uint8_t q[4];
};

/* Divides by 1000, 1e9 or 100 instead of multiplying, because that is exact: 111326 mW / 1000
 * is 111.326 W, but 111326 * 1e-3 is 111.32600000000001. */
static inline double nvml_scaled(double raw, double scale)
{
	return scale < 1 ? raw / (double)(int64_t)(1 / scale + 0.5) : raw * scale;
}

/* True if a number from the driver is a value and not a placeholder. `max` is from the row. */
static inline bool nvml_is_value(double raw, double max)
{
	return max == 0 ? raw == raw : raw >= -max && raw <= max;
}

/* Makes the call and stores its numbers in d->r. Returns the code of the call. If the call
 * fails, the values in d->r stay unchanged. */
abi_return nvml_shape_read(struct device *d, const struct nvml_reader *row,
			   enum nvml_call call);

/* Marks the values of a row as absent for this reason. */
void nvml_shape_absent(struct device *d, const struct nvml_reader *row, enum gw_absence why);

#endif
