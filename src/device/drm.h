/* drm: reads facts about a GPU from the kernel's files: its PCI id, whether it is
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
	char pci[16];    /* "0000:01:00.0" */
	char driver[24]; /* kernel driver that is bound to the GPU; "": none */
	uint32_t vendor, device;
	uint32_t class; /* 0x0300xx VGA, 0x0302xx 3D, 0x0380xx other, 0x1200xx accelerator */
	/* The kernel's runtime power management has suspended the GPU. Most reads would wake
	 * it. */
	bool asleep;
};

/* Lists the PCI display devices and accelerators of a vendor, in the order of their PCI ids.
 * Writes at most cap devices and returns the number of devices that exist. Reads only vendor,
 * device, class, power/runtime_status and the driver's name; reading them does not wake the
 * GPU. */
unsigned drm_pci_list(const struct root *root, uint32_t vendor, struct pci_gpu *out,
		      unsigned cap);

/* True if the kernel has suspended the GPU or is suspending it. Does not wake the GPU. */
bool drm_asleep(const struct root *root, const char *pci);

enum drm_place {
	DRM_PCI,   /* the PCI device's folder */
	DRM_HWMON, /* the folder of the driver's sensors (hwmon) */
	DRM_CARD,  /* drm/cardN below the PCI device */
	DRM_LINK,  /* the folder of the PCI device at the slot's end of the PCIe link */
};

/* The format of a file. */
enum drm_form {
	DRM_NUMBER,
	DRM_NONZERO, /* a number; 0: the driver has no value, and the row is skipped */
	/* A number that only grows. A channel that is 0 when the GPU is opened is skipped,
	 * because some drivers have the file but do not count (xe of Linux 6.16: energy1 of a
	 * B580). */
	DRM_COUNTER,
	/* Lines such as "1: 1500Mhz *". The value is the frequency in the line with the
	 * asterisk, in MHz. */
	DRM_LEVEL,
	DRM_LEVEL_MAX,   /* as DRM_LEVEL, but the value is the highest frequency of all lines */
	DRM_SPEED,       /* "16.0 GT/s PCIe"; the value is the PCIe generation */
	DRM_CORRECTED,   /* "ue: 0\nce: 3\n"; the value is the number after "ce:" */
	DRM_UNCORRECTED, /* as DRM_CORRECTED, but the value is the number after "ue:" */
	DRM_OWN,         /* a format of one vendor, which drm_vendor.read_own reads */
};

/* One value from one file. If several rows have the same quantity, the first row that can be
 * read is used. */
struct drm_row {
	uint8_t q; /* enum gw_quantity */
	enum drm_place place;
	const char *
		file; /* name of the file; contains "%u" for the channel if label is not NULL */
	/* If not NULL, the row reads the channel that has this text in its "..._label" file. */
	const char *label;
	enum drm_form form;
	double scale; /* factor from the file's unit to ours */
	double max;   /* largest valid value, in the file's unit; 0: no maximum */
};

struct client_use;

struct drm_text {
	enum gw_text text;
	const char *file; /* below the PCI device */
};

/* The name of a board. */
struct drm_name {
	uint32_t device; /* PCI device id */
	const char *name;
};

struct drm_vendor {
	uint32_t vendor;             /* PCI vendor id */
	const char *brand;           /* "AMD" */
	const char *const *driver;   /* kernel drivers, NULL-terminated */
	const struct drm_row *row;   /* The last row has a NULL file. */
	const struct drm_text *text; /* The last row has a NULL file. */
	const struct drm_name *name; /* The last row has a NULL name. */
	const char *unique_id;       /* file with the board's unique number, or NULL */
	/* PCI device ids of the upstream ports of the PCIe switches on boards of this vendor;
	 * ends with 0. Behind such a switch, the GPU's own link is internal to the board, and
	 * its speed is fixed or wrong. */
	const uint32_t *board_switch;
	/* The driver reports two of the three values total, used and free memory. This member
	 * is the third value, which is computed: GW_Q_MEMORY_USED or GW_Q_MEMORY_FREE. */
	unsigned derived_memory;
	/* Computes further values after the rows of the FAST tier were read. May be NULL. */
	void (*derive)(struct device *d);
	/* Reads a row with the form DRM_OWN. Returns 0 or a negative gw_error. */
	long (*read_own)(const struct device *d, const struct drm_row *row, double *ret);
	/* The driver has no file for used memory and utilisation, so drm_client_use() sums them
	 * over the clients. */
	bool use_from_clients;
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

/* The private data of a device (device.priv). */
struct drm_device {
	const struct drm_vendor *vendor;
	struct pci_gpu gpu;
	char hwmon[64];  /* folder of the sensors, below the PCI device; "": none */
	char card[16];   /* "card0"; "": none */
	char render[16]; /* "renderD128"; "": none */
	const char
		*link; /* path from the PCI device to the device of DRM_LINK: "" or "../../" */
	/* For each row with a label, the number of the channel with that label. 0: not
	 * found. */
	uint8_t channel[64];
	bool attached;          /* The members above were filled in while the GPU was awake. */
	double energy_j;        /* previous reading of the energy counter, for derive() */
	uint64_t energy_ns;     /* time of that reading; 0: none */
	struct client_use *use; /* state of drm_client_use(); NULL: not called yet */
};

/* The functions of struct backend_ops that DRM backends use; ops->tables is the struct
 * drm_vendor. */
bool drm_present(struct backend *b);
int drm_open(struct backend *b);
void drm_close(struct backend *b);
void drm_read(struct device *d, unsigned tiers);

/* Lists the processes that have the GPU's DRM nodes open, from /proc/pid/fdinfo. Processes that
 * we have no permission to inspect are left out. If there are any, the result is no_permission,
 * because the list may be incomplete. */
enum gw_absence drm_processes(struct device *d, struct usage_list *l, int *ret_error);

/* Returns why a file of a device could not be read. */
enum gw_absence drm_absence(long error);

/* Reads a quantity from the first row that can be read, in the unit of the quantity. Used by
 * drm_vendor.derive. Returns 0 or a negative gw_error. */
long drm_read_quantity(struct device *d, unsigned q, double *ret);

/* Reads the first bytes of a file that is not text. Returns the number of bytes or a negative
 * gw_error. */
long drm_read_bytes(const struct device *d, enum drm_place place, const char *file, char *out,
		    size_t size);

/* Sets GW_Q_UTILIZATION_GPU, and GW_Q_MEMORY_USED if it is missing, from the fdinfo files of
 * all clients of the GPU. For this, the function walks through /proc and reads the folders of
 * all processes, at most once per second and with at most 0.5 % of a core. Until the next walk,
 * the function reports the last result again.
 *
 * The utilisation is the mean since the previous walk, of the render engines or of the compute
 * engines: the larger of the two. The memory is the sum over all clients: a buffer that two
 * clients share is counted twice, and memory that the kernel itself allocates is missing.
 * Utilisation and memory are absent (no_permission) if there is a process that we have no
 * permission to inspect. */
void drm_client_use(struct device *d);
/* Frees the state of drm_client_use(); NULL is allowed. */
void drm_client_use_free(struct client_use *use);
/* Forgets the previous walk, because the GPU was suspended or replaced by another GPU. */
void drm_client_use_restart(struct client_use *use);

/* This function is for a backend with a vendor library that opens all GPUs at once. If one GPU
 * of the vendor is suspended and GW_OPEN_WAKE is not set, makes a slot for each GPU of the
 * vendor, sets the cause and returns true; the caller must then not open the library. Otherwise
 * returns false. */
bool drm_list_suspended(struct backend *b, uint32_t vendor);

#endif
