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
	SHAPE_ROWS,       /* four u32 * */
	SHAPE_STRUCT,     /* (struct *): nvml_shape.c knows the members */
	SHAPE_CAPABILITY, /* (int *, int *) */
	SHAPE_FIELDS,     /* reads all FIELD rows of the tier in one call */
	SHAPE_GPM,        /* GPM: needs the difference of two samples */
};

#define NO        GW_QUANTITIES /* no quantity */
#define CALL_none CALL_COUNT    /* no call */

struct nvml_reader { /* one row of nvml_readers.def, which explains the members */
	enum gw_tier tier;
	enum nvml_shape shape;
	/* older: the call to use if `call` is missing or refused; CALL_none: there is no such
	 * call */
	enum nvml_call call, older;
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

/* Makes the call and stores its numbers in d->r. Returns its code; on failure the values are
 * unchanged. */
abi_return nvml_shape_read(struct device *d, const struct nvml_reader *row,
			   enum nvml_call call);

/* Marks the values of a row as absent for this reason. */
void nvml_shape_absent(struct device *d, const struct nvml_reader *row, enum gw_absence why);

#endif
