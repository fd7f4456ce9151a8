/* summary: the machine in nine flat figures (R1.3), for callers that know only those.
 *
 * They speak of the first GPU that answers; gpu_count tells whether there are more.  "gb" is
 * 2^30 bytes, as in the callers that these keys come from; the records of the devices say bytes. */
#ifndef GW_SERVE_SUMMARY_H
#define GW_SERVE_SUMMARY_H

#include <gpuward.h>

#include <stdbool.h>

struct summary_figure {
	double v;
	enum gw_absence why;
};

struct summary {
	bool gpu_available;  /* a GPU answers                                    */
	bool cuda_available; /* an NVIDIA driver is loaded and a device answers  */
	unsigned gpu_count;
	const struct gw_device *device; /* the one spoken of; NULL when none      */
	enum gw_absence silence;        /* why none answers; GW_HAVE: one does     */
	const char *gpu_name;           /* NULL when unknown                      */
	struct summary_figure total_vram_gb, used_vram_gb, free_vram_gb;
	struct summary_figure utilization_percent, temperature_c;
};

/* Points into snap. */
void summary_of(const struct gw_snapshot *snap, struct summary *ret);

#endif
