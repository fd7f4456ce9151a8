/* visible: what CUDA_VISIBLE_DEVICES means. */
#ifndef GW_DEVICE_CUDA_VISIBLE_H
#define GW_DEVICE_CUDA_VISIBLE_H

#include <stddef.h>

/* One GPU as CUDA would enumerate it, in the driver's (PCI bus) order. */
struct cuda_visible_gpu {
	const char *uuid;       /* "GPU-..."; NULL unknown                          */
	const char *name;       /* model, to tell whether CUDA's order is the same  */
	const char *const *mig; /* UUIDs of its instances, NULL-terminated, or NULL */
	int ordinal;            /* result: its CUDA number, -1 not visible, -2 cannot be told */
};

/* Fills the ordinals of n GPUs.
 * list: value of CUDA_VISIBLE_DEVICES, NULL when unset (all visible).  Entries are indices or
 * UUIDs, "GPU-" + a prefix that names one GPU alone, "MIG-" UUIDs (new form) or
 * "MIG-GPU-uuid/gi/ci" (old form); the first invalid entry ends the list, as CUDA does; an
 * empty list or one that begins with an invalid entry such as -1 hides all; a GPU named twice
 * makes the whole list invalid.
 * order: value of CUDA_DEVICE_ORDER.  Indices follow the driver's order only when it is
 * "PCI_BUS_ID" or all GPUs have one name; otherwise what an index means cannot be told from
 * here (-2 for the GPUs concerned). */
void cuda_visible_resolve(const char *list, const char *order, struct cuda_visible_gpu *gpu,
			  size_t n);

#endif
