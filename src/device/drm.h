/* drm: what the kernel's files say about any GPU: its place on the PCI bus, whether it is
 * suspended, its sensors, and the processes that have it open.
 *
 * A vendor's backend consists of tables for this module: which file holds which value, and some
 * names. No device file is ever opened; everything is read from /sys and /proc. */
#ifndef GW_DEVICE_DRM_H
#define GW_DEVICE_DRM_H

#include "backend.h"

#include "base/array.h"
#include "base/root.h"

#include <stdbool.h>
#include <stdint.h>

#define PCI_VENDOR_NVIDIA 0x10de
#define PCI_VENDOR_AMD    0x1002
#define PCI_VENDOR_INTEL  0x8086

#define PCI_DEVICES "sys/bus/pci/devices"

struct pci_gpu {
	char pci[16];    /* "0000:01:00.0"                                       */
	char driver[24]; /* kernel driver that is bound to it; "": none */
	uint32_t vendor, device;
	uint32_t class; /* 0x0300.. VGA, 0x0302.. 3D, 0x0380.. other, 0x1200.. accelerator */
	bool asleep;    /* runtime suspended: further access would wake it */
};

/* Lists the PCI display devices and accelerators of a vendor, in the order of their PCI ids.
 * Fills at most cap and returns how many there are. Reads only vendor, device, class,
 * power/runtime_status and the driver's name, none of which wakes the GPU. */
unsigned drm_pci_list(const struct root *root, uint32_t vendor, struct pci_gpu *out,
		      unsigned cap);

/* True if the device is runtime suspended or about to be. Does not wake it. */
bool drm_asleep(const struct root *root, const char *pci);

enum drm_place {
	DRM_PCI,   /* the PCI device's folder                         */
	DRM_HWMON, /* the folder of the driver's sensors (hwmon) */
	DRM_CARD,  /* drm/cardN below the PCI device                  */
};

/* The format of a file. */
enum drm_form {
	DRM_NUMBER,
	/* lines such as "1: 1500Mhz *": the frequency in the line with the asterisk, in MHz */
	DRM_LEVEL,
	/* lines such as "1: 1500Mhz *": the highest frequency of all lines, in MHz */
	DRM_LEVEL_MAX,
	DRM_SPEED,     /* "16.0 GT/s PCIe": the PCIe generation               */
	DRM_CORRECTED, /* "ue: 0\nce: 3\n"                                   */
	DRM_UNCORRECTED,
};

/* One value from one file. If several rows have the same quantity, the first row that can be
 * read is used. */
struct drm_row {
	uint8_t q;
	enum drm_place place;
	const char *file;  /* contains "%u" if label is not NULL */
	const char *label; /* use the channel with this text in its "..._label" file */
	enum drm_form form;
	double scale; /* factor from the file's unit to ours */
	double max;   /* a larger value is invalid; in the file's unit; 0: no maximum */
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
	const char *unique_id;       /* file with the board's unique number, or NULL */
	/* the quantity that is computed from the other two: GW_Q_MEMORY_USED or
	 * GW_Q_MEMORY_FREE */
	unsigned derived_memory;
	/* called after the rows of the FAST tier were read; NULL: nothing to call */
	void (*derive)(struct device *d);
};

/* Defines backend_NAME. tables_ points to the struct drm_vendor; rows is its array of rows. */
#define DRM_BACKEND(backend, vendor_, tables_, rows)                             \
	_Static_assert(COUNT(rows) <= sizeof(((struct drm_device *)0)->channel), \
		       "one channel per row");                                   \
	const struct backend_ops backend_##backend = {                           \
		.name = #backend,                                                \
		.vendor = vendor_,                                               \
		.tables = tables_,                                               \
		.present = drm_present,                                          \
		.open = drm_open,                                                \
		.close = drm_close,                                              \
		.read = drm_read,                                                \
		.processes = drm_processes,                                      \
	}

/* priv of a device */
struct drm_device {
	const struct drm_vendor *vendor;
	struct pci_gpu gpu;
	char hwmon[64];      /* folder below the PCI device, "" none       */
	char card[16];       /* "card0", "" none                           */
	char render[16];     /* "renderD128", "" none                      */
	uint8_t channel[64]; /* channel number per row with a label; 0: not found */
	bool attached;       /* the members above were filled in while the GPU was awake */
	uint64_t energy_uj, energy_ns; /* previous reading, for derive(); energy_ns 0: none */
};

/* The functions of struct backend_ops that DRM backends use; ops->tables is the struct
 * drm_vendor. */
bool drm_present(struct backend *b);
int drm_open(struct backend *b);
void drm_close(struct backend *b);
void drm_read(struct device *d, unsigned tiers);

/* Lists the processes that have the GPU's DRM nodes open, from /proc/pid/fdinfo. If we may not
 * inspect some processes, they are left out and the result is no_permission, because the list
 * may be incomplete. */
enum gw_absence drm_processes(struct device *d, struct usage_list *l, int *ret_error);

/* Returns why a file of a device could not be read. */
enum gw_absence drm_absence(long error);

/* Reads a file of the device; for derive. Returns 0 or a negative gw_error. */
int drm_read_number(struct device *d, enum drm_place place, const char *file, int64_t *ret);

/* Lists suspended GPUs for a vendor library that opens all of its GPUs at once. If one of them
 * is suspended and GW_OPEN_WAKE is not set, makes a slot for each GPU without opening any, sets
 * the cause and returns true. */
bool drm_list_suspended(struct backend *b, uint32_t vendor);

#endif
