/* drm: what the kernel's files tell about any GPU: where it sits on the PCI bus, whether it is
 * asleep, where its sensors are, and who has it open.  Shared by the backends of all vendors. */
#ifndef GW_DEVICE_DRM_H
#define GW_DEVICE_DRM_H

#include "base/root.h"

#include <stdbool.h>
#include <stdint.h>

#define PCI_VENDOR_NVIDIA 0x10de
#define PCI_VENDOR_AMD    0x1002
#define PCI_VENDOR_INTEL  0x8086

struct pci_gpu {
	char pci[16];    /* "0000:01:00.0"                                             */
	char driver[24]; /* kernel driver it is bound to; "" none                      */
	uint32_t vendor, device;
	uint32_t class; /* 0x030000 VGA, 0x030200 3D, 0x038000 display, 0x120000 accelerator */
	bool asleep;    /* runtime suspended: touching more of it would wake it       */
};

/* PCI display devices and processing accelerators of a vendor, in the order of their PCI ids.
 * Fills at most cap, returns how many there are.  Of each only vendor, device, class,
 * power/runtime_status and the name of its driver are looked at, none of which wakes it. */
unsigned drm_pci_list(const struct root *root, uint32_t vendor, struct pci_gpu *out,
		      unsigned cap);

/* Is the device of this PCI id runtime suspended, or about to be?  Does not wake it. */
bool drm_asleep(const struct root *root, const char *pci);

#endif
