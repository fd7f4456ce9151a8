/* calibrate: gain and offset of a GPU's own sensor, out of what an outside meter said
 * meanwhile.
 *
 * Pure.  true power = gain x reading + offset, fitted by least squares to the outside meter's
 * points, each held against the mean of the sensor's readings around it.  The two clocks
 * differ, and an outside meter is late: the lag at which they are most alike is looked for
 * first.  A line is known best in the middle of its points, so its uncertainty is told there:
 * of the gain, and of the power at the pivot. */
#ifndef GW_CLI_CALIBRATE_H
#define GW_CLI_CALIBRATE_H

#include "power_record.h"

struct calibrate_point {
	double t_s, w; /* on the record's scale of time */
};

#define CALIBRATE_LAG_S 10.0 /* looked for this far on either side                         */
#define CALIBRATE_LEAST 10   /* points                                                     */
#define CALIBRATE_ALIKE 0.9  /* least correlation                                          */
#define CALIBRATE_OFFSET_W \
	25.0 /* no board is known to be off by more: beyond it the outside meter has
				   seen more than the GPU                                     */

struct calibrate_fit {
	double gain, offset_w;
	double gain_u, offset_u_w; /* standard uncertainties; that of the offset at pivot_w   */
	double pivot_w;            /* reading in the middle of the points                     */
	double lag_s;              /* the outside meter is so late                            */
	double correlation;        /* at that lag; NAN: power did not vary                    */
	double residual_w;         /* s.d. of the points about the line                       */
	double span_s;             /* from the first point that was used to the last          */
	double measured_offset_w;  /* as fitted; another than offset_w where `wider`          */
	size_t points;             /* that were used                                          */
	bool offset_alone; /* power did not vary enough to tell gain from offset: gain is 1   */
	bool wider; /* the offset is no board's: it is left out, the gain alone is used */
};

/* Times of the n points ascend.  0, or -GW_E_PARSE with a sentence in why: no overlap, too few
 * points, the two are not alike, a gain that no sensor has. */
int calibrate_fit(const struct power_record *record, const struct calibrate_point *trace,
		  size_t n, struct calibrate_fit *ret, char *why, size_t size);

#endif
