/* drm: what the kernel's files tell about any GPU: where it sits on the PCI bus, whether it is
 * asleep, where its sensors are, and who has it open.
 *
 * A vendor's backend is tables over this: which file holds which figure, and a few names.  No
 * device file is ever opened; everything is read from /sys and /proc. */
#ifndef GW_DEVICE_DRM_H
#define GW_DEVICE_DRM_H

#include "backend.h"

#include "base/root.h"

#include <stdbool.h>
#include <stdint.h>

#define PCI_VENDOR_NVIDIA 0x10de
#define PCI_VENDOR_AMD    0x1002
#define PCI_VENDOR_INTEL  0x8086

#define PCI_DEVICES "sys/bus/pci/devices"

struct pci_gpu {
	char pci[16];    /* "0000:01:00.0"                                       */
	char driver[24]; /* kernel driver it is bound to; "" none                */
	uint32_t vendor, device;
	uint32_t class; /* 0x0300.. VGA, 0x0302.. 3D, 0x0380.. other, 0x1200.. accelerator */
	bool asleep;    /* runtime suspended: touching more of it would wake it */
};

/* PCI display devices and processing accelerators of a vendor, in the order of their PCI ids.
 * Fills at most cap, returns how many there are.  Of each only vendor, device, class,
 * power/runtime_status and the name of its driver are looked at, none of which wakes it. */
unsigned drm_pci_list(const struct root *root, uint32_t vendor, struct pci_gpu *out,
		      unsigned cap);

/* Is the device of this PCI id runtime suspended, or about to be?  Does not wake it. */
bool drm_asleep(const struct root *root, const char *pci);

/* ---- a vendor as tables ---- */

enum drm_place {
	DRM_PCI,   /* the PCI device's folder                         */
	DRM_HWMON, /* the folder of its driver's sensors              */
	DRM_CARD,  /* drm/cardN below the PCI device                  */
};

/* How a file says its number. */
enum drm_form {
	DRM_NUMBER,
	DRM_LEVEL,     /* "1: 1500Mhz *": the line with the asterisk, in MHz */
	DRM_LEVEL_MAX, /* the same file: the highest line                    */
	DRM_SPEED,     /* "16.0 GT/s PCIe": the PCIe generation               */
	DRM_CORRECTED, /* "ue: 0\nce: 3\n"                                   */
	DRM_UNCORRECTED,
};

/* One figure from one file.  Where several rows name one quantity the first that answers
 * counts. */
struct drm_row {
	uint8_t q;
	enum drm_place place;
	const char *file;  /* with "%u" where label is given                        */
	const char *label; /* channel whose "..._label" says this; NULL: none       */
	enum drm_form form;
	double scale; /* the file's unit to ours                                   */
	double most;  /* in the file's unit; what is larger is no value; 0: any     */
};

struct drm_text {
	enum gw_text text;
	const char *file; /* below the PCI device */
};

struct drm_name {
	uint32_t device;
	const char *name;
};

struct drm_vendor {
	uint32_t vendor;
	const char *brand;           /* "AMD"                                         */
	const char *const *driver;   /* kernel drivers, NULL-terminated               */
	const struct drm_row *row;   /* ends with a NULL file                         */
	const struct drm_text *text; /* ends with a NULL file                         */
	const struct drm_name *name; /* ends with a NULL name                         */
	const char *unique_id;       /* file with a number that is the board's own, or NULL */
	void (*derive)(struct device *d, unsigned tiers); /* after the rows, or NULL    */
};

/* priv of a device */
struct drm_device {
	const struct drm_vendor *vendor;
	struct pci_gpu gpu;
	char hwmon[64];                /* folder below the PCI device, "" none       */
	char card[16];                 /* "card0", "" none                           */
	char render[16];               /* "renderD128", "" none                      */
	uint8_t channel[64];           /* of the rows with a label, 0: there is none */
	bool attached;                 /* the above was found out, awake             */
	uint64_t energy_uj, energy_ns; /* previous reading, for derive; ns 0: none */
};

/* The functions of struct backend_ops, but that present and open are told the vendor. */
bool drm_present(struct backend *b, const struct drm_vendor *vendor);
int drm_open(struct backend *b, const struct drm_vendor *vendor);
void drm_close(struct backend *b);
void drm_read(struct device *d, unsigned tiers);

/* Processes that have the GPU's DRM nodes open, by /proc/pid/fdinfo.  What we may not look into
 * is left out, and the answer is then no_permission: the list may lack others' processes. */
enum gw_absence drm_processes(struct device *d, struct usage_list *l, int *ret_error);

/* Why a file of a device could not be read. */
enum gw_absence drm_absence(long error);

/* A file of the device by place; for derive.  0 or a negative gw_error. */
int drm_read_number(struct device *d, enum drm_place place, const char *file, int64_t *ret);

#endif
