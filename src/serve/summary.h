/* summary: the machine in nine flat figures, for simple clients.
 *
 * They describe the first GPU that responds; gpu_count shows whether there are more. "gb" is
 * 2^30 bytes, as in the programs that use these keys; the device records use bytes. */
#ifndef GW_SERVE_SUMMARY_H
#define GW_SERVE_SUMMARY_H

#include <gpuward.h>

#include <stdbool.h>

struct summary_figure {
	double v;
	enum gw_absence why;
};

struct summary {
	bool gpu_available;  /* a GPU responds */
	bool cuda_available; /* an NVIDIA driver is loaded and a device responds */
	unsigned gpu_count;
	const struct gw_device *device; /* the described GPU; NULL: none */
	enum gw_absence silence;        /* why none responds; GW_HAVE: one does */
	const char *gpu_name;           /* NULL: unknown */
	struct summary_figure total_vram_gb, used_vram_gb, free_vram_gb;
	struct summary_figure utilization_percent, temperature_c;
};

/* Points into snap. */
void summary_of(const struct gw_snapshot *snap, struct summary *ret);

#endif
