/* cuda_visible: computes which GPUs CUDA programs can use, and their numbers, from
 * CUDA_VISIBLE_DEVICES. */
#ifndef GW_DEVICE_CUDA_VISIBLE_H
#define GW_DEVICE_CUDA_VISIBLE_H

#include <gpuward.h>

#include <stddef.h>

/* Values of cuda_visible_gpu.ordinal and gw_device.cuda_ordinal for a GPU without a number. */
#define CUDA_VISIBLE_HIDDEN  GW_CUDA_NOT_VISIBLE
#define CUDA_VISIBLE_UNKNOWN (-1)

/* One GPU as CUDA enumerates it, in the driver's (PCI bus) order. */
struct cuda_visible_gpu {
	const char *uuid; /* UUID such as "GPU-..."; NULL: unknown */
	const char *name; /* model name; if the models differ, CUDA may use another order */
	const char *const *mig; /* UUIDs of its instances, NULL-terminated, or NULL */
	/* The result: the CUDA ordinal, CUDA_VISIBLE_HIDDEN or CUDA_VISIBLE_UNKNOWN. */
	int ordinal;
};

/* Fills in the ordinals of n GPUs.
 *
 * `list` is the value of CUDA_VISIBLE_DEVICES, NULL if that variable is unset (all GPUs are
 * then visible). An entry is an index, a UUID, "GPU-" with a unique prefix, a "MIG-" UUID (new
 * format) or "MIG-GPU-uuid/gi/ci" (old format). The rules are those of CUDA: the first invalid
 * entry ends the list. An empty list, or one that begins with an invalid entry such as -1,
 * hides all GPUs. A GPU that appears twice makes the whole list invalid.
 *
 * `order` is the value of CUDA_DEVICE_ORDER. Indices follow the driver's order only if `order`
 * is "PCI_BUS_ID" or all GPUs have the same name. Otherwise it is unknown which GPU an index
 * means, and every GPU that it could mean gets CUDA_VISIBLE_UNKNOWN. */
void cuda_visible_resolve(const char *list, const char *order, struct cuda_visible_gpu *gpu,
			  size_t n);

#endif
