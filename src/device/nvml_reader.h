/* nvml_reader: rows of the table of calls, and the functions that carry one out. */
#ifndef GW_DEVICE_NVML_READER_H
#define GW_DEVICE_NVML_READER_H

#include "nvml.h"

/* How the arguments of a call look, after the device. */
enum nvml_shape {
	SHAPE_U32,      /* (u32 *)                                  */
	SHAPE_U32_OF,   /* (u32 which, u32 *)                       */
	SHAPE_U32_PAIR, /* (u32 *, u32 *)                           */
	SHAPE_U64,      /* (u64 *)                                  */
	SHAPE_ECC,      /* (u32 kind, u32 since, u64 *)             */
	SHAPE_ROWS,     /* four u32 *                               */
	SHAPE_MEMORY,   /* structs of their own                     */
	SHAPE_BAR1,
	SHAPE_UTILIZATION,
	SHAPE_TEMPERATURE,
	SHAPE_MARGIN,
	SHAPE_FAN_RPM,
	SHAPE_REPAIR,
	SHAPE_SRAM,
	SHAPE_CAPABILITY,
	SHAPE_FIELDS, /* every field row of the tier in one call    */
	SHAPE_GPM,    /* the difference of two samples              */
};

#define NO        GW_QUANTITIES /* no quantity here */
#define CALL_none CALL_COUNT    /* no call             */

struct reader { /* see nvml_readers.def */
	enum gw_tier tier;
	enum nvml_shape shape;
	enum nvml_call call, older; /* older: CALL_none where there is none */
	uint32_t which;
	double scale, most;
	uint8_t count; /* of q */
	uint8_t q[4];
};

/* Milli, nano and percent are divided away: 111326 mW are 111.326 W, while 111326 * 1e-3 is
 * 111.32600000000001. */
static inline double nvml_scaled(double raw, double scale)
{
	return scale < 1 ? raw / (double)(uint64_t)(1 / scale + 0.5) : raw * scale;
}

/* Makes the call and puts its numbers into d->r.  Returns its code; on anything but success the
 * figures are untouched. */
abi_return nvml_shape_read(struct device *d, const struct reader *row, enum nvml_call call);

/* The figures of a row are absent for this reason. */
void nvml_shape_absent(struct device *d, const struct reader *row, enum gw_absence why);

/* nvml_gpm.c */
abi_return nvml_gpm_read(struct device *d, const struct reader *row);
void nvml_gpm_absent(struct device *d, enum gw_absence why);

#endif
