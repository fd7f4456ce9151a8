/* gpuward: reads the GPUs of this machine, measures their energy and reports their faults.
 *
 *	#include <gpuward.h>
 *	#include <stdio.h>
 *
 *	int main(void)
 *	{
 *		struct gw_ctx *ctx = NULL;
 *		struct gw_snapshot *snap = NULL;
 *		int err = gw_open(NULL, &ctx);
 *
 *		if (!err)
 *			err = gw_snapshot_new(ctx, &snap);
 *		if (!err)
 *			err = gw_snapshot_take(snap, GW_TIERS_COMMON);
 *		if (err)
 *			fprintf(stderr, "%s\n", gw_ctx_error(ctx));
 *		else if (gw_snapshot_device_count(snap) == 0)
 *			printf("no GPU: %s\n", gw_snapshot_status(snap)->message);
 *		for (unsigned i = 0; !err && i < gw_snapshot_device_count(snap); i++) {
 *			const struct gw_device *d = gw_snapshot_device(snap, i);
 *			const char *name = gw_device_text(d, GW_T_NAME);
 *			double watts;
 *
 *			if (gw_device_value(d, GW_Q_POWER, &watts) == GW_HAVE)
 *				printf("%s: %.1f W\n", name ? name : "GPU", watts);
 *		}
 *		gw_snapshot_free(snap);
 *		gw_close(ctx);
 *		return err ? 1 : 0;
 *	}
 *
 *	cc example.c $(pkg-config --cflags --libs gpuward)
 *
 * Rules for the whole interface:
 * - A function that can fail returns 0 or a negative enum gw_error. It writes its result to a
 *   parameter whose name begins with ret; this parameter is unchanged after a failure.
 *   gw_ctx_error() returns a sentence about the failure, for people.
 * - A pointer may be NULL only where the text says so. A function that returns int returns
 *   -GW_E_ARG if another pointer is NULL; other functions do not check it. Every function that
 *   frees an object accepts NULL.
 * - A machine without GPUs, without a driver or with a broken driver is not an error: a
 *   snapshot then has no devices. gw_snapshot_status() returns the cause, and gw_cause_info()
 *   says what to do.
 * - Unknown is never 0, except for points in time. In a struct an unknown double is NAN, an
 *   unknown pointer is NULL, an unknown char array is "", an unknown signed integer is -1 and
 *   an unknown point in time (_ns, _ticks) is 0; no other member can be unknown. If the library
 *   knows why a value is unknown, a member or a function with "absence" in its name has the
 *   reason.
 * - A struct that you fill begins with the member size: set size to the sizeof of the struct,
 *   and set all members that you do not need to 0. The library accepts the size of every
 *   version since 0.1.0. It accepts a larger size, up to 4096 bytes, only if the members that
 *   the library does not know are 0. In a struct that the library fills, it sets these members
 *   to 0. Any other size is a wrong size: the call returns -GW_E_ARG.
 * - A struct that the library returns may get more members at its end in later versions. Use it
 *   through the pointer, and never copy it by sizeof. Enums may get new values.
 * - Several threads may use a context or a meter at the same time. Only one thread at a time
 *   may use a snapshot, a list, a diagnosis or a window. The exception is gw_window_close(),
 *   which may be called while another thread uses the window.
 * - After fork() a context is usable in the parent only.
 * - A time in nanoseconds (_ns) is CLOCK_MONOTONIC, or Unix time if the name contains "wall".
 * - The library does not print, does not exit and does not install signal handlers. It starts
 *   another program (nvidia-smi) only with GW_OPEN_EXEC. It needs only libc.
 *
 * gpuward-guard.h has the interface for programs that give up a GPU when others need it. */
#ifndef GPUWARD_H
#define GPUWARD_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define GW_API __attribute__((visibility("default")))
#else
#define GW_API
#endif

/* ---- versions and errors ------------------------------------------------------------- */

/* The version of this header. gw_version() returns the version of the library that the program
 * runs with, such as "0.1.0". */
#define GW_VERSION_MAJOR 0
#define GW_VERSION_MINOR 1
#define GW_VERSION_PATCH 0
#define GW_VERSION       "0.1.0"
GW_API const char *gw_version(void);

/* There is one code for each case that a caller can handle differently. The numbers never
 * change. */
enum gw_error {
	GW_E_ARG = 1,        /* an argument is invalid */
	GW_E_NOMEM = 2,      /* out of memory */
	GW_E_NOENT = 3,      /* there is no such file, program, device or name */
	GW_E_PERM = 4,       /* permission denied */
	GW_E_IO = 5,         /* reading, writing or starting something failed */
	GW_E_PARSE = 6,      /* the input has the wrong format */
	GW_E_SIZE = 7,       /* too large or too long */
	GW_E_TIMEOUT = 8,    /* the time limit of the call has passed */
	GW_E_NODEV = 9,      /* there is no such GPU */
	GW_E_NOSUPPORT = 10, /* the device, the driver or this build cannot do it */
	GW_E_LOST = 11,      /* the device or the driver went away */
	/* The call is not possible now, because the object is released, stalled or already
	 * closed. */
	GW_E_STATE = 12,
};

/* Returns a short phrase for an error code, negative or positive. Never NULL. */
GW_API const char *gw_strerror(int error);

struct gw_ctx;

/* Returns a sentence about the last call that failed on ctx or on an object made from ctx, in
 * any thread. If ctx is NULL, returns a sentence about the last call of this thread that failed
 * without a context, such as gw_open(). Returns "" if no call failed; a later success does not
 * clear the sentence. Never returns NULL. The string belongs to the calling thread and is valid
 * until that thread calls gw_ctx_error() again. Any thread may call this function at any time
 * before gw_close(). */
GW_API const char *gw_ctx_error(struct gw_ctx *ctx);

/* ---- what is measured ---------------------------------------------------------------- */

/* The quantities of a GPU: GW_Q_POWER, GW_Q_MEMORY_USED, ... There is one value per row of
 * gpuward/quantity.def. Quantities are doubles in base units (watts, bytes, ratios 0 to 1,
 * hertz, seconds, joules, degrees Celsius). A double holds exactly every integer that a driver
 * reports. */
enum gw_quantity {
#define Q(symbol, key, kind, tier, help) GW_Q_##symbol,
#include <gpuward/quantity.def>
#undef Q
	GW_QUANTITIES
};

/* The quantities of the machine: GW_H_CPU_UTILIZATION, ... There is one value per row of
 * gpuward/host.def. */
enum gw_host_quantity {
#define H(symbol, key, kind, help) GW_H_##symbol,
#include <gpuward/host.def>
#undef H
	GW_HOST_QUANTITIES
};

/* Single figures about the machine, for programs that can handle only one GPU:
 * GW_R_GPU_TOTAL_VRAM_GB, ... There is one value per row of gpuward/resource.def. */
enum gw_resource {
#define R(symbol, key, kind, help) GW_R_##symbol,
#include <gpuward/resource.def>
#undef R
	GW_RESOURCES
};

/* The strings that describe a device: GW_T_NAME, GW_T_UUID, ... There is one value per row of
 * gpuward/text.def. */
enum gw_text {
#define T(symbol, key) GW_T_##symbol,
#include <gpuward/text.def>
#undef T
	GW_TEXTS
};

/* The reasons why a value is unknown: GW_ABSENT_NOT_READ, ... There is one value per row of
 * gpuward/absence.def. GW_HAVE (0) means that the value is known. */
enum gw_absence {
	GW_HAVE = 0,
#define A(symbol, key, sentence) GW_ABSENT_##symbol,
#include <gpuward/absence.def>
#undef A
	GW_ABSENCES
};

/* What the numbers of a quantity mean. */
enum gw_kind {
	GW_KIND_GAUGE,   /* a value that rises and falls */
	GW_KIND_COUNTER, /* a sum that only grows until the driver is loaded again */
	GW_KIND_FLAG,    /* 0 or 1 */
	GW_KIND_ENUM,    /* a number with a name; see gw_quantity_name() */
	GW_KIND_MASK,    /* a set of bits with names; see gw_quantity_name() */
};

/* Groups of quantities, by the cost of reading them. A set of tiers selects what a snapshot
 * reads. Each comment says when the driver is asked again; until then, a snapshot contains the
 * value of the last reading. */
enum gw_tier {
	GW_TIER_STATIC = 1 << 0, /* read once after the driver is opened */
	GW_TIER_FAST = 1 << 1,   /* read in every snapshot */
	GW_TIER_SLOW = 1 << 2,   /* read if the last reading is older than 1 s */
	/* Read if the last reading is older than 1 s. A reading takes 3 ms on an H200, and
	 * longer on other GPUs. */
	GW_TIER_ENERGY = 1 << 3,
	GW_TIER_HEALTH = 1 << 4, /* read if the last reading is older than 10 s */
	/* Read in every snapshot. A reading may take 20 ms. Includes GW_TIER_PROFILE. */
	GW_TIER_ON_REQUEST = 1 << 5,
	/* What limits the clocks. Read if the last reading is older than 10 s; a reading takes
	 * 2 ms on an H200. */
	GW_TIER_LIMITS = 1 << 6,
	/* GPM metrics, which are computed from the difference of two readings. Read in every
	 * snapshot. */
	GW_TIER_PROFILE = 1 << 7,
};
/* The tiers for a program that takes a snapshot again and again. */
#define GW_TIERS_COMMON \
	(GW_TIER_STATIC | GW_TIER_FAST | GW_TIER_SLOW | GW_TIER_HEALTH | GW_TIER_LIMITS)
#define GW_TIERS_ALL (GW_TIERS_COMMON | GW_TIER_ENERGY | GW_TIER_ON_REQUEST | GW_TIER_PROFILE)

struct gw_quantity_info {
	const char *key;  /* such as "power_watts" */
	const char *help; /* one sentence */
	enum gw_kind kind;
	enum gw_tier tier;
};

/* Return the description of a value of enum gw_quantity, enum gw_host_quantity or enum
 * gw_resource, or the key of a value of enum gw_text. Return NULL for a number past the last
 * value. */
GW_API const struct gw_quantity_info *gw_quantity_info(unsigned quantity);
GW_API const struct gw_quantity_info *gw_host_quantity_info(unsigned quantity);
GW_API const struct gw_quantity_info *gw_resource_info(unsigned resource);
GW_API const char *gw_text_key(unsigned text);

/* Returns the number of the quantity with this key, or -GW_E_NOENT. After a failure,
 * gw_ctx_error(NULL) returns the sentence. */
GW_API int gw_quantity_find(const char *key);

/* Writes the name of an ENUM value ("Hopper", "unknown(77)") to out, or the names of the bits
 * of a MASK ("sw_power_cap,idle"; "" if no bit is set). Returns 0, -GW_E_ARG for other kinds of
 * quantities, or -GW_E_SIZE. */
GW_API int gw_quantity_name(unsigned quantity, double value, char *out, size_t size);

/* gw_absence_key() returns a word such as "not_supported", gw_absence_text() a phrase such as
 * "this device does not have it". Never NULL. */
GW_API const char *gw_absence_key(unsigned absence);
GW_API const char *gw_absence_text(unsigned absence);

/* ---- what is wrong ------------------------------------------------------------------- */

/* What can be wrong with the machine or a GPU: GW_CAUSE_NO_DRIVER, ... There is one value per
 * row of gpuward/cause.def. */
enum gw_cause {
#define C(symbol, key, severity, sentence, remedy) GW_CAUSE_##symbol,
#include <gpuward/cause.def>
#undef C
	GW_CAUSES
};

enum gw_severity {
	GW_SEVERITY_OK,    /* nothing is wrong */
	GW_SEVERITY_NOTE,  /* worth knowing, but not a failure */
	GW_SEVERITY_ERROR, /* a GPU or a driver does not work */
};

struct gw_cause_info {
	const char *key;      /* such as "no_driver" */
	const char *sentence; /* what is wrong; without a capital letter and a full stop */
	const char *remedy;   /* what to do, in whole sentences; "": no action is needed */
	enum gw_severity severity;
};

/* Returns the row of cause.def for this cause. For a number past the last row, returns the row
 * of GW_CAUSE_NONE. Never NULL. */
GW_API const struct gw_cause_info *gw_cause_info(unsigned cause);

/* ---- opening ------------------------------------------------------------------------- */

enum gw_open_flag {
	/* The library may start nvidia-smi if the NVML library cannot be loaded. */
	GW_OPEN_EXEC = 1 << 0,
	GW_OPEN_WAKE = 1 << 1, /* The library may open a suspended GPU, which wakes the GPU. */
	/* Has no effect. It was meant to return memory of NVML to the system. That is not safe,
	 * because drivers since 580 run a thread of their own. */
	GW_OPEN_TRIM = 1 << 2,
	/* The caller promises that the process ends after gw_close(). gw_close() then does not
	 * shut down NVML (which takes 4 ms); the kernel cleans up. */
	GW_OPEN_NO_SHUTDOWN = 1 << 3,
	/* With backend "auto" or "all": use neither NVML nor nvidia-smi, only the backends of
	 * other vendors. */
	GW_OPEN_NO_NVML = 1 << 4,
};

struct gw_options {
	size_t size;    /* sizeof(struct gw_options) */
	unsigned flags; /* set of enum gw_open_flag */
	/* "auto" (or NULL), "all", "nvml", "nvidia-smi", "amdgpu", "intel" or "none". "auto" is
	 * the first of nvml, nvidia-smi, amdgpu and intel that finds a GPU. */
	const char *backend;
	const char *nvml_library; /* path of the NVML library; NULL: search for it */
	const char *root; /* folder that contains the /proc and /sys to read; NULL: "/" */
	/* Time limit for one driver call. 0: driver calls run on the caller's thread, without a
	 * limit. Otherwise they run on threads of the library; if a call does not return in
	 * time, its device gets the state GW_DEVICE_STALLED */
	uint64_t deadline_ns;
};

/* Finds and opens the GPUs. options may be NULL, for the defaults; the strings in it are
 * copied. Also succeeds on a machine without GPUs: see gw_snapshot_status(). Returns 0, and the
 * caller owns *ret_ctx until gw_close(). Otherwise returns -GW_E_ARG (unknown backend or flag,
 * or wrong size), -GW_E_NOENT, -GW_E_PERM or -GW_E_IO (the folder root cannot be opened), or
 * -GW_E_NOMEM (no memory or no thread). */
GW_API int gw_open(const struct gw_options *options, struct gw_ctx **ret_ctx);

/* Closes every driver handle and frees ctx. Free the snapshots, lists and meters of ctx first.
 * NULL is allowed. If a driver call has not returned, ctx is not freed and drivers may stay
 * open, because the call still uses the memory of ctx. */
GW_API void gw_close(struct gw_ctx *ctx);

/* Closes every driver handle, so that a driver can be unloaded, reset or upgraded. Until
 * gw_ctx_reopen(), snapshots still list the devices, but their values are unknown
 * (GW_ABSENT_LET_GO). Returns 0, or -GW_E_STATE if a driver call has not returned and keeps its
 * driver open. After -GW_E_STATE, the next snapshot opens the closed drivers again. */
GW_API int gw_ctx_release(struct gw_ctx *ctx);

/* Opens the drivers again after gw_ctx_release(). Returns 0 or -GW_E_NOMEM. */
GW_API int gw_ctx_reopen(struct gw_ctx *ctx);

/* Says which backends are open, or why no backend is open. */
struct gw_status {
	/* names of the open backends, separated by '+'; "none" if no backend is open */
	const char *backend;
	enum gw_cause cause; /* why no backend is open; GW_CAUSE_NONE if one is open */
	/* what is wrong, with details of this machine; "" if cause is GW_CAUSE_NONE */
	const char *message;
	const char *library_path; /* path of the NVML library; NULL: not loaded */
	const char *driver_version;
	const char *nvml_version;
	const char *cuda_version; /* newest CUDA version that the driver supports: "13.0" */
	/* names of missing NVML functions, separated by blanks; "": none is missing */
	const char *missing_symbols;
	/* 1: the GPUs are not real, because a simulator is used or gw_options.root is not
	 * "/" */
	int simulated;
	/* monotonic time of the next attempt to open a driver; 0: no attempt is planned */
	uint64_t retry_ns;
	unsigned opens; /* how often a driver was opened successfully */
};

/* Returns the status at the last gw_snapshot_take() of snap; valid until the next
 * gw_snapshot_take(). Before the first gw_snapshot_take() the backend is "none" and everything
 * else is unknown. */
struct gw_snapshot;
GW_API const struct gw_status *gw_snapshot_status(const struct gw_snapshot *snap);

/* ---- snapshots ----------------------------------------------------------------------- */

enum gw_vendor { GW_VENDOR_NVIDIA, GW_VENDOR_AMD, GW_VENDOR_INTEL, GW_VENDOR_OTHER };

/* The source of the values of a device. */
enum gw_provenance {
	GW_FROM_DRIVER,    /* the vendor's library */
	GW_FROM_TEXT,      /* output of nvidia-smi */
	GW_FROM_SYSFS,     /* sysfs files of the kernel */
	GW_FROM_SIMULATOR, /* simulated values */
};

enum gw_device_state {
	GW_DEVICE_OK,
	GW_DEVICE_ASLEEP, /* the device is suspended, and the library did not open it */
	/* The device fell off the bus or needs a reset. Snapshots read it again when it is
	 * back. */
	GW_DEVICE_LOST,
	GW_DEVICE_FAULT,   /* the driver reports a hardware fault */
	GW_DEVICE_DENIED,  /* there is no permission to open the device */
	GW_DEVICE_STALLED, /* a driver call on the device has not returned */
	GW_DEVICE_CLOSED,  /* closed by gw_ctx_release(), or the driver went away */
};

/* Return the word that JSON uses, such as "nvidia", "driver" or "ok". */
GW_API const char *gw_vendor_name(unsigned vendor);
GW_API const char *gw_provenance_name(unsigned provenance);
GW_API const char *gw_device_state_name(unsigned state);

/* A MIG instance: a part of a GPU with its own memory. Power and energy are known for the whole
 * board only. */
struct gw_mig {
	unsigned index;
	int gpu_instance, compute_instance;
	char uuid[96];
	char name[96]; /* "NVIDIA A100 ... MIG 1g.5gb" */
	int64_t memory_total_bytes, memory_used_bytes, memory_free_bytes; /* -1: unknown */
	enum gw_absence memory_absence; /* why the memory is unknown; GW_HAVE: it is known */
};

/* The value of gw_device.cuda_ordinal if CUDA_VISIBLE_DEVICES hides the device. */
#define GW_CUDA_NOT_VISIBLE (-2)

struct gw_device {
	/* The number that the driver gives to the device, or the position in the snapshot if
	 * several backends have devices. The number is for display only: use GW_T_UUID to
	 * identify a device. */
	unsigned index;
	enum gw_vendor vendor;
	enum gw_provenance provenance;
	enum gw_device_state state;
	enum gw_cause cause; /* why state is not GW_DEVICE_OK */
	const char *message; /* the sentence for cause; "" for GW_DEVICE_OK */
	const char *backend;
	uint64_t begin_ns, end_ns; /* monotonic time before and after the FAST tier was read */
	/* The number that CUDA programs use for the device if CUDA_VISIBLE_DEVICES has the same
	 * value as in this process. It is GW_CUDA_NOT_VISIBLE if that variable hides the
	 * device, and -1 (unknown) if CUDA may number the devices in another order than the
	 * driver. */
	int cuda_ordinal;
	unsigned mig_count;
	const struct gw_mig *const *mig; /* mig_count pointers */
	/* Do not use these members directly: call gw_device_value(), gw_device_text() and
	 * gw_device_text_absence(). */
	unsigned text_count, value_count;
	const char *const *text;
	const uint8_t *text_absence;
	const double *value;
	const uint8_t *value_absence;
	/* The thermal margin in degrees as the driver reported it, which can be 10 s old; NAN:
	 * unknown. GW_Q_TEMPERATURE_MARGIN is this margin, corrected by the change of
	 * GW_Q_TEMPERATURE_GPU since the driver reported it. */
	double reported_margin_c;
};

/* Creates an empty snapshot. ctx must outlive it. Returns 0, and the caller owns *ret_snap
 * until gw_snapshot_free(); or -GW_E_NOMEM. */
GW_API int gw_snapshot_new(struct gw_ctx *ctx, struct gw_snapshot **ret_snap);
GW_API void gw_snapshot_free(struct gw_snapshot *snap); /* NULL is allowed */

/* Reads every device and the host, and replaces the contents of snap. tiers is a set of enum
 * gw_tier; only the quantities of these tiers are read, the others keep their last values. Also
 * finds devices that appeared or disappeared. If a driver is missing, the call tries to open it
 * again; the time between these attempts grows. Allocates memory only if there are more devices
 * than before. Returns 0 even if a device failed (see gw_device.state), -GW_E_NOMEM or
 * -GW_E_ARG (unknown tier). */
GW_API int gw_snapshot_take(struct gw_snapshot *snap, unsigned tiers);

/* Return the time at which the snapshot was taken: monotonic and wall clock. */
GW_API uint64_t gw_snapshot_mono_ns(const struct gw_snapshot *snap);
GW_API uint64_t gw_snapshot_wall_ns(const struct gw_snapshot *snap);
GW_API unsigned gw_snapshot_device_count(const struct gw_snapshot *snap);

/* Returns device i; NULL past the end. Valid until the next gw_snapshot_take() on snap. */
GW_API const struct gw_device *gw_snapshot_device(const struct gw_snapshot *snap, unsigned i);

/* Reads a value of enum gw_host_quantity. Returns GW_HAVE and sets *ret, or returns why the
 * value is unknown. */
GW_API enum gw_absence gw_snapshot_host(const struct gw_snapshot *snap, unsigned quantity,
					double *ret);

/* Returns the GPU that the values of enum gw_resource describe: the first GPU that answers, or
 * NULL if no GPU answers. The name of this GPU is gpu_name in the JSON of a snapshot. Valid
 * until the next gw_snapshot_take() on snap. */
GW_API const struct gw_device *gw_snapshot_main_device(const struct gw_snapshot *snap);

/* Reads a value of enum gw_resource. The snapshot must have been taken with GW_TIERS_COMMON;
 * before the first gw_snapshot_take() every value is unknown (GW_ABSENT_NOT_READ).
 * Returns GW_HAVE and sets *ret, or returns why the value is unknown. */
GW_API enum gw_absence gw_snapshot_resource(const struct gw_snapshot *snap, unsigned resource,
					    double *ret);

/* Reads a value of enum gw_quantity. Returns GW_HAVE and sets *ret, or returns why the value is
 * unknown and leaves *ret unchanged. */
static inline enum gw_absence gw_device_value(const struct gw_device *d, unsigned quantity,
					      double *ret)
{
	if (quantity >= d->value_count)
		return GW_ABSENT_NOT_SUPPORTED;
	if (d->value_absence[quantity] == GW_HAVE)
		*ret = d->value[quantity];
	return (enum gw_absence)d->value_absence[quantity];
}

/* Returns the string for a value of enum gw_text, or NULL; gw_device_text_absence() then
 * returns the reason. */
static inline const char *gw_device_text(const struct gw_device *d, unsigned text)
{
	if (text >= d->text_count || d->text_absence[text] != GW_HAVE)
		return NULL;
	return d->text[text];
}

static inline enum gw_absence gw_device_text_absence(const struct gw_device *d, unsigned text)
{
	if (text >= d->text_count)
		return GW_ABSENT_NOT_SUPPORTED;
	return (enum gw_absence)d->text_absence[text];
}

/* Returns 1 if the selector matches this device, 0 if it does not, or -GW_E_ARG if the string
 * is not a selector. A selector is one of: the index; the UUID or its beginning (at least 4
 * characters after "GPU-"); the PCI address with or without its domain; "cuda:N" for the device
 * with cuda_ordinal N; the UUID of a MIG instance of the device; "visible" for every device
 * that CUDA_VISIBLE_DEVICES does not hide; or "all". */
GW_API int gw_device_matches(const struct gw_device *d, const char *selector);

/* ---- processes ----------------------------------------------------------------------- */

enum gw_process_type {
	GW_PROCESS_COMPUTE = 1 << 0,
	GW_PROCESS_GRAPHICS = 1 << 1,
	GW_PROCESS_MPS = 1 << 2,
};

struct gw_process {
	unsigned device; /* position of the GPU in snapshots of the context */
	unsigned type;   /* set of enum gw_process_type */
	int64_t pid;     /* process id in the pid namespace of the caller */
	/* start time from /proc/PID/stat; pid and start_ticks together identify the process */
	uint64_t start_ticks;
	int64_t parent; /* pid of the parent; -1: unknown, or outside the pid namespace */
	int64_t uid;
	const char *user;
	const char *name;    /* name from /proc/PID/comm, without control characters */
	const char *command; /* arguments separated by blanks; a long command is cut */
	const char *cgroup;
	const char *container; /* short id or name of the container; NULL: not in a container */
	int orphan;            /* 1: the driver lists the process, but /proc does not have it */
	int mig_gpu_instance;  /* id of the process's MIG GPU instance; -1: none */
	enum gw_absence memory_absence;
	int64_t memory_bytes;
	const char *unit;   /* systemd service or scope; NULL: none, or inside a container */
	double run_seconds; /* time since the process started; NAN: unknown */
	/* SM utilisation from 0 to 1: the mean since the list was last taken, over at least 3 s
	 * and at most 60 s. sm_absence is GW_ABSENT_NOT_READ unless gw_process_list_want()
	 * requested the utilisation. */
	enum gw_absence sm_absence;
	double sm_ratio;
	/* CPU time per second since the list was last taken. 1 is one busy core; a process with
	 * several threads can use more. cpu_absence is GW_ABSENT_FIRST_READING at the first
	 * take. */
	enum gw_absence cpu_absence;
	double cpu_cores;
};

/* Additional values that a list can read. The driver needs about 2 ms per GPU for the SM
 * utilisation. */
enum gw_process_want {
	GW_PROCESS_SM = 1 << 0, /* SM utilisation of each process */
	/* SM utilisation, but only on GPUs with several processes */
	GW_PROCESS_SM_SHARED = 1 << 1,
};

struct gw_process_list;

/* A list has one row per process and device. gw_process_list_new() creates an empty list; ctx
 * must outlive it. gw_process_list_take() reads the processes and replaces the rows. Both
 * return 0 or -GW_E_NOMEM. If the processes of a device cannot be read, gw_process_list_take()
 * still returns 0, and gw_process_list_absence() returns the reason. */
GW_API int gw_process_list_new(struct gw_ctx *ctx, struct gw_process_list **ret_list);
GW_API int gw_process_list_take(struct gw_process_list *list);
/* Sets which additional values gw_process_list_take() reads from now on: a set of enum
 * gw_process_want. A new list has the empty set. Returns 0, or -GW_E_ARG for an unknown bit. */
GW_API int gw_process_list_want(struct gw_process_list *list, unsigned want);
GW_API void gw_process_list_free(struct gw_process_list *list); /* NULL is allowed */
GW_API unsigned gw_process_list_count(const struct gw_process_list *list);
/* Returns row i; NULL past the end. The struct and its strings are valid until the next
 * gw_process_list_take() on list. */
GW_API const struct gw_process *gw_process_list_get(const struct gw_process_list *list,
						    unsigned i);
/* Returns GW_HAVE if the list has all processes that the driver knows on this device, otherwise
 * why some are missing. In a container, processes outside its pid namespace are invisible and
 * this function does not report them; gw_diagnosis_new() does (GW_CAUSE_PID_NAMESPACE). */
GW_API enum gw_absence gw_process_list_absence(const struct gw_process_list *list,
					       unsigned device);

/* ---- the machine --------------------------------------------------------------------- */

enum gw_fact_type { GW_FACT_TEXT, GW_FACT_NUMBER, GW_FACT_FLAG };

/* One fact about the machine. section and key are its name, such as "cpu" and "model". */
struct gw_fact {
	const char *section, *key;
	enum gw_fact_type type;
	enum gw_absence absence;
	const char *text; /* for GW_FACT_TEXT; otherwise NULL */
	double number;    /* for GW_FACT_NUMBER and GW_FACT_FLAG (0 or 1); otherwise NAN */
};

struct gw_environment;

/* Collects the facts about the machine that are stored with a result: operating system, CPU,
 * memory, driver. Facts about GPUs are in a snapshot. Returns 0, and the caller owns *ret_env
 * until gw_environment_free(); or -GW_E_NOMEM. */
GW_API int gw_environment_new(struct gw_ctx *ctx, struct gw_environment **ret_env);
GW_API void gw_environment_free(struct gw_environment *env); /* NULL is allowed */
GW_API unsigned gw_environment_count(const struct gw_environment *env);
/* Returns fact i; NULL past the end. Valid until gw_environment_free(). */
GW_API const struct gw_fact *gw_environment_get(const struct gw_environment *env, unsigned i);

/* ---- energy -------------------------------------------------------------------------- */

/* What can be wrong with a window: one value per row of gpuward/code.def. A set of codes is a
 * uint64_t with the bits UINT64_C(1) << GW_CODE_x. */
enum gw_code {
#define R(symbol, key, level, sentence) GW_CODE_##symbol,
#include <gpuward/code.def>
#undef R
	GW_CODES
};

/* The words that describe a result. gpuward/words.def has a sentence for each word. */
enum gw_validity { /* GW_VALID, GW_SUSPECT, GW_INVALID, GW_NO_RESULT */
#define GW_VALIDITY(symbol, key, help) GW_##symbol,
#include <gpuward/words.def>
		   GW_VALIDITIES
};

enum gw_meter_kind { /* GW_METER_COUNTER, ...: the reading that the joules are based on */
#define GW_METER_KIND(symbol, key, help) GW_METER_##symbol,
#include <gpuward/words.def>
		     GW_METER_KINDS
};

enum gw_rung { /* GW_RUNG_COUNTER_RING, ...: the sources that the GPU offers, best first */
#define GW_RUNG(symbol, key, help) GW_RUNG_##symbol,
#include <gpuward/words.def>
	       GW_RUNGS
};

enum gw_verdict { /* GW_VERDICT_AGREE, ...: whether counter and power samples agree */
#define GW_VERDICT(symbol, key, help) GW_VERDICT_##symbol,
#include <gpuward/words.def>
		  GW_VERDICTS
};

enum gw_budget { /* GW_BUDGET_EDGES, ...: contributions to the uncertainty */
#define GW_BUDGET(symbol, key, help) GW_BUDGET_##symbol,
#include <gpuward/words.def>
		 GW_BUDGETS
};

enum gw_throttle { /* GW_THROTTLE_POWER, ...: what can limit the clocks */
#define GW_THROTTLE(symbol, key, help) GW_THROTTLE_##symbol,
#include <gpuward/words.def>
		   GW_THROTTLES
};

enum gw_throttle_source { /* GW_THROTTLE_SOURCE_COUNTERS, ...: where their times come from */
#define GW_THROTTLE_SOURCE(symbol, key, help) GW_THROTTLE_SOURCE_##symbol,
#include <gpuward/words.def>
			  GW_THROTTLE_SOURCES
};

struct gw_code_info {
	const char *key;        /* such as "meters-disagree" */
	const char *sentence;   /* what is wrong; without a capital letter and a full stop */
	enum gw_validity level; /* a window with this code has at best this validity */
};

/* Returns the description of a code; NULL for a number past the last code. */
GW_API const struct gw_code_info *gw_code_info(unsigned code);

/* Return the word that JSON uses, such as "valid", "counter+ring" or "power_cap"; "unknown" for
 * a number past the last word. Never NULL. */
GW_API const char *gw_validity_name(unsigned validity);
GW_API const char *gw_meter_kind_name(unsigned meter);
GW_API const char *gw_rung_name(unsigned rung);
GW_API const char *gw_verdict_name(unsigned verdict);
GW_API const char *gw_budget_name(unsigned item);
GW_API const char *gw_throttle_name(unsigned cause);
GW_API const char *gw_throttle_source_name(unsigned source);

/* The best value and the interval that contains the true value with 95 % probability. NAN means
 * unknown. */
struct gw_interval {
	double low, best, high;
};

/* Length of the arrays in struct gw_energy that have one element per contribution to the
 * uncertainty or per cause of throttling. Larger than needed today, so that contributions and
 * causes can be added. Unused elements are NAN. */
#define GW_LIST_SIZE 16

/* Energy of one GPU over one window.  The members are the rows of gpuward/energy.def, which
 * describes each of them.  Doubles are NAN where a value is unknown; the codes say why. */
struct gw_energy {
#define GW_TYPE_INDEX                                   unsigned
#define GW_TYPE_TIME                                    uint64_t
#define GW_TYPE_FLAG                                    int
#define GW_TYPE_COUNT                                   uint64_t
#define GW_TYPE_CODES                                   uint64_t
#define GW_TYPE_NUMBER                                  double
#define GW_TYPE_INTERVAL                                struct gw_interval
#define GW_FIELD(kind, member, key, help, diff)         GW_TYPE_##kind member;
#define GW_WORD(list, member, key, missing, help, diff) enum gw_##list member;
#define GW_LIST(list, member, key, help, diff)          double member[GW_LIST_SIZE];
#include <gpuward/energy.def>
#undef GW_TYPE_INDEX
#undef GW_TYPE_TIME
#undef GW_TYPE_FLAG
#undef GW_TYPE_COUNT
#undef GW_TYPE_CODES
#undef GW_TYPE_NUMBER
#undef GW_TYPE_INTERVAL
};

/* Type of a member of struct gw_energy. */
enum gw_field_kind {
	GW_FIELD_INDEX,    /* unsigned */
	GW_FIELD_TIME,     /* uint64_t, nanoseconds of the monotonic clock */
	GW_FIELD_FLAG,     /* int, 0 or 1 */
	GW_FIELD_COUNT,    /* uint64_t */
	GW_FIELD_CODES,    /* uint64_t, set of enum gw_code */
	GW_FIELD_NUMBER,   /* double */
	GW_FIELD_INTERVAL, /* struct gw_interval */
	GW_FIELD_WORD,     /* an enum; name() returns its words */
	/* double[GW_LIST_SIZE]; for i < count, name(i) is the word of element i */
	GW_FIELD_LIST,
};

/* Describes one member of struct gw_energy, for programs that loop over all members, and for
 * other languages, which cannot include this header. */
struct gw_energy_field {
	const char *member; /* name of the member, such as "power_mean" */
	const char *key;    /* path in JSON, such as "power_watts.mean"; "": not in JSON */
	enum gw_field_kind kind;
	size_t offset;    /* offset of the member in struct gw_energy, in bytes */
	unsigned count;   /* for GW_FIELD_WORD and GW_FIELD_LIST: number of words */
	unsigned missing; /* for GW_FIELD_WORD: the enum value for which JSON has no word */
	/* for GW_FIELD_WORD and GW_FIELD_LIST: returns the word for a number */
	const char *(*name)(unsigned word);
};

/* Returns the description of member i of struct gw_energy; NULL past the last member. */
GW_API const struct gw_energy_field *gw_energy_field(unsigned i);

struct gw_meter_options {
	size_t size;          /* sizeof(struct gw_meter_options) */
	uint64_t interval_ns; /* time between readings of clock, temperature, ...; 0: 100 ms */
	uint64_t anchor_ns;   /* time between counter readings in long windows; 0: 10 s */
	/* the GPUs to measure: selectors for gw_device_matches(), with NULL at the end; NULL:
	 * all GPUs */
	const char *const *gpus;
	unsigned flags; /* set of enum gw_meter_flag */
	/* folder with the sensor profiles of gpuward-characterise(1); NULL: the default folder
	 * (XDG rules); "": use no profiles */
	const char *cache_dir;
};

enum gw_meter_flag {
	/* Read the processes on the GPUs once per second, to detect other processes
	 * (GW_CODE_FOREIGN_PROCESS). */
	GW_METER_PROCESSES = 1 << 1,
	GW_METER_MANUAL = 1 << 2, /* Start no threads: the caller calls gw_meter_poll(). */
};

struct gw_meter;
struct gw_window;

/* Starts a meter, which has one thread per GPU. Each thread samples its GPU at fixed times, so
 * that delays do not add up. ctx must outlive the meter. options may be NULL. On a machine
 * without GPUs the meter has no devices. Returns 0, and the caller owns *ret_meter until
 * gw_meter_stop(). Otherwise returns -GW_E_ARG (wrong size, unknown flag, interval_ns below 1
 * ms or anchor_ns below 1 s), -GW_E_NODEV (options->gpus is an empty list, or one of its
 * selectors matches no GPU) or -GW_E_NOMEM. */
GW_API int gw_meter_start(struct gw_ctx *ctx, const struct gw_meter_options *options,
			  struct gw_meter **ret_meter);

/* Ends the threads, then frees the meter and all windows of it that were not freed. No other
 * thread may use the meter during this call. NULL is allowed. Returns 0, or -GW_E_STATE if a
 * driver call has not returned. That call still uses the meter and ctx, so do not use or free
 * them any more. */
GW_API int gw_meter_stop(struct gw_meter *meter);

/* gw_meter_device_count() returns the number of devices that the meter measures.
 * gw_meter_device() returns the position of device i of the meter in snapshots of ctx;
 * UINT32_MAX past the end. */
GW_API unsigned gw_meter_device_count(const struct gw_meter *meter);
GW_API unsigned gw_meter_device(const struct gw_meter *meter, unsigned i);

/* For a meter with GW_METER_MANUAL: takes the readings that are due, and returns the monotonic
 * time in ns at which the caller must call again. */
GW_API uint64_t gw_meter_poll(struct gw_meter *meter);

/* Opens a window on all devices of the meter. The window begins now, or at the monotonic time
 * begin_ns if begin_ns is not 0; begin_ns may be at most 30 s ago. Windows may overlap. `label`
 * is copied and cut to at most 63 bytes, between two UTF-8 characters; NULL is the same as "".
 * The call does not wait for the GPU. Returns 0, and the caller owns *ret_window until
 * gw_window_free() or gw_meter_stop(). Otherwise returns -GW_E_ARG (begin_ns is in the future
 * or more than 30 s ago) or -GW_E_NOMEM. */
GW_API int gw_window_open(struct gw_meter *meter, const char *label, uint64_t begin_ns,
			  struct gw_window **ret_window);

/* Ends the window now, or at the monotonic time end_ns if end_ns is not 0. Any thread may call
 * this function. The call does not wait for the GPU. An end_ns that is more than 30 s ago can
 * be older than the stored power samples; the result then has the code GW_CODE_TRUNCATED and
 * only the energy of the counter, if there is one. Returns 0, -GW_E_STATE (already closed) or
 * -GW_E_ARG (end_ns is in the future or before the window begins). */
GW_API int gw_window_close(struct gw_window *window, uint64_t end_ns);

/* Waits until a power sample covers the end of the window, at most timeout_ns, and computes the
 * final result. Further calls return at once, with the same value. Returns 0, -GW_E_STATE (the
 * window is not closed), or -GW_E_TIMEOUT if that sample did not arrive in time; the result is
 * then computed without it and has the code GW_CODE_TRUNCATED. */
GW_API int gw_window_wait(struct gw_window *window, uint64_t timeout_ns);

/* Returns the energy of device i of the meter in this window; NULL past the end. Before
 * gw_window_wait(), each call computes the energy up to the last power sample that was read,
 * which is up to 1.5 s old; the member seconds is the time that this energy covers. In about
 * the first second of a window there is no sample: the energy is NAN and seconds is 0. The
 * struct is valid as long as the window. */
GW_API const struct gw_energy *gw_window_energy(struct gw_window *window, unsigned i);
GW_API const char *gw_window_label(const struct gw_window *window);
GW_API void gw_window_free(struct gw_window *window); /* NULL is allowed */

/* The readings of one GPU during a window that was opened with gw_window_open_recorded(). There
 * are two kinds of readings, with different times. There is a power sample for each new value
 * of the sensor. There is a tick (clock, temperature, ...) every interval_ns of the meter. The
 * last power sample before the window and the first one after it are included if they exist, so
 * that power can be integrated up to both edges. */
struct gw_series {
	uint64_t begin_ns;      /* monotonic time at which the window begins */
	uint64_t begin_wall_ns; /* the same moment on the wall clock */
	size_t room;            /* maximum of power_count, and maximum of tick_count */
	/* Number of readings that were not stored because the series was full; the series then
	 * ends earlier than the window. 0: the series is complete. The energy of the window
	 * does not depend on the series and is complete in both cases. */
	uint64_t dropped;
	size_t power_count;
	/* monotonic times of the power samples, corrected for the lag of the sensor */
	const uint64_t *power_ns;
	const double *power_w;
	size_t tick_count;
	const uint64_t *tick_ns; /* monotonic times of the ticks */
	/* The values at the ticks, one column per quantity. figure[i][k] is the value at tick k
	 * of the quantity figure_quantity[i] (enum gw_quantity), in the base unit of the
	 * quantity; NAN: unknown. */
	unsigned figure_count;
	const unsigned *figure_quantity;
	const double *const *figure;
};

/* Opens a window like gw_window_open(), and records the readings of each GPU until the window
 * is closed. `points` is the maximum number of power samples per GPU, and also the maximum
 * number of ticks; 0: 262,144, which is 87 minutes for a sensor with 50 values per second. The
 * call reserves address space for the readings (104 bytes per point and GPU); memory is used
 * only when readings arrive. The power samples begin at begin_ns, the ticks begin now. Returns
 * the same as gw_window_open(), and -GW_E_NOMEM if points is too large. */
GW_API int gw_window_open_recorded(struct gw_meter *meter, const char *label, uint64_t begin_ns,
				   size_t points, struct gw_window **ret_window);

/* Returns the readings of device i of the meter so far; NULL past the end, or if the window is
 * not recorded. The call is allowed while the window is open: the arrays keep their addresses,
 * and the counts in the struct change only at the next call. The readings are complete after
 * gw_window_wait(). The struct and its arrays are valid until gw_window_free() or
 * gw_meter_stop(). */
GW_API const struct gw_series *gw_window_series(struct gw_window *window, unsigned i);

/* One reading of a series: a power sample, or a tick. */
struct gw_reading {
	uint64_t t_ns;  /* monotonic time of the reading */
	double power_w; /* NAN for a tick */
	size_t tick;    /* position of the tick in the columns; SIZE_MAX for a power sample */
	/* number of power samples and of ticks up to this reading, including it */
	size_t powers, ticks;
};

/* Writes the next reading, in order of time, to *r. A power sample comes before a tick with the
 * same time. Set *r to { 0 } before the first call; *r also stores the position. Returns 1, or
 * 0 after the last reading. */
static inline int gw_series_next(const struct gw_series *s, struct gw_reading *r)
{
	int power =
		r->powers < s->power_count &&
		(r->ticks == s->tick_count || s->power_ns[r->powers] <= s->tick_ns[r->ticks]);

	if (!power && r->ticks == s->tick_count)
		return 0;
	r->tick = power ? SIZE_MAX : r->ticks;
	r->t_ns = power ? s->power_ns[r->powers] : s->tick_ns[r->ticks];
	r->power_w = power ? s->power_w[r->powers] : (double)NAN;
	r->powers += power != 0;
	r->ticks += power == 0;
	return 1;
}

/* What is known about the power sensor of a GPU. */
struct gw_sensor {
	size_t size;       /* sizeof(struct gw_sensor), set by the caller */
	enum gw_rung rung; /* the sources that the GPU offers */
	/* "assumed": nothing was measured on this GPU; "passive": only the sensor's periods
	 * were measured; "active": everything was measured (gpuward-characterise(1)) */
	const char *origin;
	/* "boxcar": a value is the mean over window_s; "lowpass": the sensor is a low-pass
	 * filter */
	const char *model;
	double period_s;   /* time between new values */
	double window_s;   /* averaging window of one value, or time constant of the filter */
	double lag_s;      /* delay of the values; the times in a series are corrected for it */
	double look_ratio; /* fraction of the time in which the sensor measures, 0 to 1 */
	/* GW_HAVE if there is an energy counter, otherwise why not */
	enum gw_absence counter_absence;
	double counter_tick_s; /* time between updates of the counter */
	/* An update contains the energy up to counter_lag_s before the update. */
	double counter_lag_s;
	int calibrated;            /* 1: compared with an external meter */
	double gain, offset_w;     /* true power is gain x reading + offset_w */
	double gain_u, offset_u_w; /* standard uncertainties */
	uint64_t wall_ns;          /* when the sensor was measured; 0: never */
};

/* Writes what is known about the sensor of device i of the meter. Set ret->size before the
 * call. When the first window opens, the meter learns whether the GPU has an energy counter.
 * Returns 0, -GW_E_NODEV (past the end) or -GW_E_ARG (wrong size). */
GW_API int gw_meter_sensor(struct gw_meter *meter, unsigned i, struct gw_sensor *ret);

/* ---- baselines ----------------------------------------------------------------------- */

enum gw_baseline_kind {
	GW_BASELINE_NO_CONTEXT,   /* no program has a context on the GPU */
	GW_BASELINE_CONTEXT_IDLE, /* this program has a context and is idle */
	GW_BASELINE_HOT_IDLE,     /* the GPU is idle just after a load */
	GW_BASELINE_KINDS
};

/* Returns "no-context", "context-idle" or "hot-idle"; "" for a number past the last kind. */
GW_API const char *gw_baseline_kind_name(unsigned kind);

/* The idle power of a GPU. */
struct gw_baseline {
	enum gw_baseline_kind kind;
	const char *uuid; /* UUID of the GPU */
	double power_w;   /* mean power */
	double u_w;       /* standard error of power_w */
	double seconds;   /* duration of the measurement */
	double temperature_c;
	double limit_w;   /* power limit of the GPU at that time */
	uint64_t wall_ns; /* when the baseline was measured */
	/* Set of enum gw_code. If codes is not 0, the GPU was not idle or the measurement was
	 * disturbed. */
	uint64_t codes;
	const char *evidence; /* what disturbed the measurement; "": nothing */
	int simulated;        /* 1: the GPU is simulated */
};

struct gw_baseline_options {
	size_t size; /* sizeof(struct gw_baseline_options) */
	enum gw_baseline_kind kind;
	double max_s; /* maximum duration of the measurement, at least 2; 0: 30 */
	double min_s; /* minimum duration of the measurement; 0: 10 */
	/* After min_s, the measurement ends when the half-width of its 95 % interval is at most
	 * half_width_w; 0: 1 W. */
	double half_width_w;
	/* Called once per second on the thread of the caller; may be NULL. A result other than
	 * 0 ends the measurement. */
	int (*progress)(void *arg, double seconds, double power_w, double half_width_w);
	void *arg;
};

/* Measures the idle power of device i of the meter, which must have been started with
 * GW_METER_PROCESSES. The call takes at most max_s seconds. options may be NULL. If the GPU was
 * not idle, the call still returns 0, and the members codes and evidence of the baseline say
 * what used the GPU. Returns 0, and the caller owns *ret_baseline until gw_baseline_free().
 * Otherwise returns -GW_E_NODEV (past the end), -GW_E_ARG, -GW_E_NOSUPPORT (no power reading),
 * -GW_E_LOST, -GW_E_STATE (progress ended the measurement, or the meter lacks
 * GW_METER_PROCESSES) or -GW_E_NOMEM. */
GW_API int gw_baseline_take(struct gw_meter *meter, unsigned i,
			    const struct gw_baseline_options *options,
			    struct gw_baseline **ret_baseline);

/* Loads a baseline that gw_baseline_save() or gpuward-baseline(1) stored for device i. The
 * driver, the power limit and the persistence mode must be the same as now, the temperature may
 * differ by at most 10 degrees, and the baseline may be at most max_age_s old (0: one hour).
 * dir is the folder; NULL: the default folder (XDG rules). If the GPU is simulated, dir must
 * not be NULL, because the default folder has no baselines of simulated GPUs. Returns 0, and
 * the caller owns *ret_baseline until gw_baseline_free(). Otherwise returns -GW_E_NODEV (past
 * the end), -GW_E_LOST, -GW_E_NOMEM, or -GW_E_NOENT if no stored baseline fits; gw_ctx_error()
 * says why. */
GW_API int gw_baseline_load(struct gw_meter *meter, unsigned i, enum gw_baseline_kind kind,
			    double max_age_s, const char *dir,
			    struct gw_baseline **ret_baseline);

/* Stores a baseline in the folder dir; NULL: the default folder (XDG rules). If the call fails,
 * gw_ctx_error(ctx) returns the reason; ctx may be NULL. Returns 0, -GW_E_STATE (the GPU was
 * not idle, or is simulated and dir is NULL), -GW_E_ARG (the GPU has no UUID), -GW_E_NOENT (no
 * folder is known), -GW_E_PERM, -GW_E_IO or -GW_E_NOMEM. */
GW_API int gw_baseline_save(struct gw_ctx *ctx, const struct gw_baseline *baseline,
			    const char *dir);
GW_API void gw_baseline_free(struct gw_baseline *baseline); /* NULL is allowed */

/* Energy above a baseline. */
struct gw_net_energy {
	size_t size;            /* sizeof(struct gw_net_energy), set by the caller */
	double baseline_joules; /* energy that the idle GPU would have used */
	/* energy of the window minus baseline_joules; may be below 0 */
	struct gw_interval net;
	double adjusted_joules; /* net.best, or 0 if net.best is below 0 */
	int floored;            /* 1: net.best is below 0 */
};

/* Subtracts idle energy from the energy of a window of the meter. If there is a baseline from
 * before and one from after the window, the mean of both is subtracted, and half their
 * difference is part of the uncertainty. `after` may be NULL. Set ret->size before the call. If
 * the energy or a baseline is unknown, the members of *ret are NAN. Returns 0, -GW_E_ARG (wrong
 * size), or -GW_E_STATE (a baseline was disturbed, or belongs to another GPU). */
GW_API int gw_baseline_apply(struct gw_meter *meter, const struct gw_energy *energy,
			     const struct gw_baseline *before, const struct gw_baseline *after,
			     struct gw_net_energy *ret);

/* ---- diagnosis ----------------------------------------------------------------------- */

struct gw_finding {
	enum gw_cause cause;
	enum gw_severity severity;
	int device;       /* position in the snapshot; -1: the whole machine */
	char detail[400]; /* what is wrong, with details of this machine */
};

struct gw_diagnosis;

/* Finds what is wrong on this machine, from the last gw_snapshot_take() of snap and from files
 * of the kernel. Take the snapshot with GW_TIERS_COMMON. gw_cause_info() says how to fix each
 * finding. Returns 0, and the caller owns *ret_diagnosis until gw_diagnosis_free(); or
 * -GW_E_NOMEM. */
GW_API int gw_diagnosis_new(struct gw_snapshot *snap, struct gw_diagnosis **ret_diagnosis);
GW_API void gw_diagnosis_free(struct gw_diagnosis *diagnosis); /* NULL is allowed */
GW_API unsigned gw_diagnosis_count(const struct gw_diagnosis *diagnosis);
/* Returns finding i; NULL past the end. Valid until gw_diagnosis_free(). */
GW_API const struct gw_finding *gw_diagnosis_get(const struct gw_diagnosis *diagnosis,
						 unsigned i);

#ifdef __cplusplus
}
#endif

#endif
