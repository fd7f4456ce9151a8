/* gpuward: what this machine's GPUs are and do.
 *
 *	struct gw_ctx *ctx;
 *	struct gw_snapshot *snap;
 *	double watts;
 *
 *	if (gw_open(NULL, &ctx) == 0 && gw_snapshot_new(ctx, &snap) == 0) {
 *		gw_snapshot_take(snap, GW_TIERS_COMMON);
 *		for (unsigned i = 0; i < gw_snapshot_device_count(snap); i++) {
 *			const struct gw_device *d = gw_snapshot_device(snap, i);
 *			if (gw_device_value(d, GW_Q_POWER, &watts) == GW_HAVE)
 *				printf("%s %.1f W\n", gw_device_text(d, GW_T_NAME), watts);
 *		}
 *	}
 *	gw_snapshot_free(snap);
 *	gw_close(ctx);
 *
 * Rules that hold everywhere:
 * - Functions return 0 or a negative enum gw_error; results go to ret_ parameters, which are
 *   left alone on failure.  gw_strerror() spells a code.
 * - A machine without GPUs, without a driver or with a broken one is no error: there are no
 *   devices, and gw_snapshot_status() says why and what to do.
 * - What is not known is never 0.  Each figure is there (GW_HAVE) or has a reason why not.
 * - Structs that you fill begin with their size; those that the library hands out may grow at
 *   the end, so never copy them by sizeof.
 * - A context may be used from several threads; a snapshot or list by one at a time.
 * - After fork() a context is of use in the parent only.
 * - The library never prints, never exits, installs no signal handler, and starts another
 *   program only with GW_ALLOW_EXEC.
 * - Link with -lgpuward; it needs libc alone. */
#ifndef GPUWARD_H
#define GPUWARD_H

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

/* "1.2.3", of the library that runs. */
GW_API const char *gw_version(void);

/* One code for each thing a caller could do differently.  Numbers are permanent. */
enum gw_error {
	GW_E_ARG = 1,   /* an argument makes no sense */
	GW_E_NOMEM = 2, /* no memory */
	GW_E_NOENT = 3, /* no such file, program, device or name */
	GW_E_PERM = 4,  /* not allowed */
	GW_E_IO = 5,    /* reading, writing or starting something failed */
	GW_E_PARSE = 6, /* a text is not what it should be */
	GW_E_SIZE = 7,  /* it does not fit */
	GW_E_TIMEOUT = 8,
	GW_E_NODEV = 9,      /* no such GPU */
	GW_E_NOSUPPORT = 10, /* the device, driver or build cannot do this */
	GW_E_LOST = 11,      /* the device or the driver went away */
	GW_E_STATE = 12,     /* not now: let go, stalled or already closed */
};

/* A short phrase for a code, negative or positive.  Never NULL. */
GW_API const char *gw_strerror(int error);

/* ---- what is measured ---------------------------------------------------------------- */

/* GW_Q_POWER, GW_Q_MEMORY_USED, ...: the table in gpuward/quantity.def.  Values are doubles
 * in base units (watts, bytes, ratios 0 to 1, hertz, seconds, joules, degrees Celsius); every
 * integer the driver has fits exactly. */
enum gw_quantity {
#define Q(symbol, key, kind, tier, help) GW_Q_##symbol,
#include <gpuward/quantity.def>
#undef Q
	GW_QUANTITIES
};

/* GW_H_CPU_UTILIZATION, ...: figures of the machine; gpuward/host.def. */
enum gw_host_quantity {
#define H(symbol, key, kind, help) GW_H_##symbol,
#include <gpuward/host.def>
#undef H
	GW_HOST_QUANTITIES
};

/* GW_T_NAME, GW_T_UUID, ...: words about a device; gpuward/text.def. */
enum gw_text {
#define T(symbol, key) GW_T_##symbol,
#include <gpuward/text.def>
#undef T
	GW_TEXTS
};

/* Why a figure is missing; GW_HAVE (0) when it is there.  gpuward/absence.def. */
enum gw_absence {
	GW_HAVE = 0,
#define A(symbol, key, sentence) GW_ABSENT_##symbol,
#include <gpuward/absence.def>
#undef A
	GW_ABSENCES
};

enum gw_kind { GW_KIND_GAUGE, GW_KIND_COUNTER, GW_KIND_FLAG, GW_KIND_ENUM, GW_KIND_MASK };

/* How often a quantity is worth asking; a set of them says what a snapshot reads. */
enum gw_tier {
	GW_TIER_STATIC = 1 << 0,
	GW_TIER_FAST = 1 << 1,
	GW_TIER_SLOW = 1 << 2,
	GW_TIER_ENERGY = 1 << 3, /* costs 3 ms on an H200, more elsewhere */
	GW_TIER_HEALTH = 1 << 4,
	GW_TIER_ASKED = 1 << 5,  /* may sleep 20 ms */
	GW_TIER_LIMITS = 1 << 6, /* what holds the clocks back; 2 ms on an H200 */
};
/* STATIC, SLOW, HEALTH and LIMITS are kept and asked again only when they are older than their tier
 * allows, so this is what a program polls with. */
#define GW_TIERS_COMMON \
	(GW_TIER_STATIC | GW_TIER_FAST | GW_TIER_SLOW | GW_TIER_HEALTH | GW_TIER_LIMITS)
#define GW_TIERS_ALL (GW_TIERS_COMMON | GW_TIER_ENERGY | GW_TIER_ASKED)

struct gw_quantity_info {
	const char *key; /* "power_watts" */
	const char *help;
	enum gw_kind kind;
	enum gw_tier tier;
};

/* Row of the table; NULL past its end. */
GW_API const struct gw_quantity_info *gw_quantity_info(unsigned quantity);
GW_API const struct gw_quantity_info *gw_host_quantity_info(unsigned quantity);
GW_API const char *gw_text_key(unsigned text);

/* Number of a quantity by its key, or -GW_E_NOENT. */
GW_API int gw_quantity_find(const char *key);

/* Spells the value of an ENUM ("Hopper", "unknown(77)") or a MASK ("sw_power_cap,idle", ""
 * when empty) into out.  Returns 0, -GW_E_ARG for other kinds, or -GW_E_SIZE. */
GW_API int gw_quantity_name(unsigned quantity, double value, char *out, size_t size);

/* "not_supported" and "this device does not have it".  Never NULL. */
GW_API const char *gw_absence_key(unsigned absence);
GW_API const char *gw_absence_text(unsigned absence);

/* ---- what is wrong ------------------------------------------------------------------- */

/* GW_CAUSE_NO_DRIVER, ...: what can be wrong and what to do; gpuward/cause.def. */
enum gw_cause {
#define C(symbol, key, severity, sentence, remedy) GW_CAUSE_##symbol,
#include <gpuward/cause.def>
#undef C
	GW_CAUSES
};

enum gw_severity { GW_SEVERITY_OK, GW_SEVERITY_NOTE, GW_SEVERITY_ERROR };

struct gw_cause_info {
	const char *key;      /* "no_driver" */
	const char *sentence; /* what is wrong, no capital, no full stop */
	const char *remedy;   /* what to do, whole sentences, may be "" */
	enum gw_severity severity;
};

/* Row of the table; GW_CAUSE_NONE's past its end.  Never NULL. */
GW_API const struct gw_cause_info *gw_cause_info(unsigned cause);

/* ---- opening ------------------------------------------------------------------------- */

enum gw_flag {
	GW_ALLOW_EXEC = 1 << 0, /* may start nvidia-smi where the library cannot be loaded */
	GW_WAKE = 1 << 1,       /* may open a GPU that is asleep, which wakes it */
	GW_TRIM = 1 << 2,       /* nobody else in this process uses NVML: memory that its library
	                           cleared and does not use goes back to the kernel (13 of 21 MiB
	                           on an H200; takes 2 ms) */
	GW_LEAVE = 1 << 3,      /* the process ends after gw_close(), which leaves closing NVML to
	                           the kernel (its own shutdown takes 4 ms) */
};

struct gw_options {
	size_t size;              /* sizeof(struct gw_options) */
	unsigned flags;           /* enum gw_flag */
	const char *backend;      /* "auto" (or NULL), "all", "nvml", "nvidia-smi", "amdgpu",
	                             "intel", "none"; auto: the first of these that has a GPU */
	const char *nvml_library; /* NULL: look for it */
	const char *root;         /* read /proc and /sys below this; NULL: "/" */
	uint64_t deadline_ns;     /* 0: driver calls run on the caller's thread, however long.
	                             Else they run on threads of the library; one that is not
	                             back in time leaves its device GW_DEVICE_STALLED */
};

struct gw_ctx;

/* Finds and opens the GPUs.  options may be NULL; strings are copied.  A machine without GPUs
 * opens: see gw_snapshot_status().  0 and the caller owns *ret_ctx until gw_close(); -GW_E_ARG
 * (unknown backend or flag, a size that no version had), -GW_E_NOENT, -GW_E_PERM or -GW_E_IO (the
 * root cannot be opened), or -GW_E_NOMEM (no memory, or no thread). */
GW_API int gw_open(const struct gw_options *options, struct gw_ctx **ret_ctx);

/* Closes every driver handle.  Snapshots and lists of ctx must be freed before.  NULL is fine.
 * A device whose driver call has not returned is left behind: it cannot be taken back. */
GW_API void gw_close(struct gw_ctx *ctx);

/* Closes every handle on every driver, so that it can be unloaded, reset or upgraded.  Until
 * gw_resume() the devices stay listed and their figures are absent (let_go).  gw_let_go: 0, or
 * -GW_E_STATE when a driver call that has not returned keeps a driver open; others may be closed
 * by then and are opened again by the next snapshot.  gw_resume: 0 or -GW_E_NOMEM. */
GW_API int gw_let_go(struct gw_ctx *ctx);
GW_API int gw_resume(struct gw_ctx *ctx);

/* What was opened, or why nothing was. */
struct gw_status {
	const char *backend;         /* "nvml", ..., several joined by '+', "none" */
	enum gw_cause cause;         /* GW_CAUSE_NONE when a driver is open */
	const char *message;         /* the sentence, with the facts of this machine; "" for NONE */
	const char *library_path;    /* of the NVML library, NULL when not loaded */
	const char *driver_version;  /* NULL when unknown */
	const char *nvml_version;    /* NULL when unknown */
	const char *cuda_version;    /* the driver's ceiling such as "13.0", NULL when unknown */
	const char *missing_symbols; /* names joined by blanks, "" when none */
	int simulated;               /* nothing is real: a simulator, or another root */
	uint64_t retry_ns;           /* monotonic time of the next try to open, 0: none */
	unsigned opens;              /* times a driver was opened with success */
};

/* As of the last gw_snapshot_take(); lives until the next one.  Before the first take it knows
 * nothing (backend "none"). */
struct gw_snapshot;
GW_API const struct gw_status *gw_snapshot_status(const struct gw_snapshot *snap);

/* ---- snapshots ----------------------------------------------------------------------- */

enum gw_vendor { GW_VENDOR_NVIDIA, GW_VENDOR_AMD, GW_VENDOR_INTEL, GW_VENDOR_OTHER };

/* Where figures come from. */
enum gw_provenance {
	GW_FROM_DRIVER,    /* the vendor's library */
	GW_FROM_TEXT,      /* what nvidia-smi prints */
	GW_FROM_SYSFS,     /* the kernel's files */
	GW_FROM_SIMULATOR, /* nothing of it is real */
};

enum gw_device_state {
	GW_DEVICE_OK,
	GW_DEVICE_ASLEEP,  /* suspended; not opened */
	GW_DEVICE_LOST,    /* off the bus or needs a reset; watched for its return */
	GW_DEVICE_FAULT,   /* the driver names a hardware fault */
	GW_DEVICE_DENIED,  /* we may not open it */
	GW_DEVICE_STALLED, /* a call on it has not returned */
	GW_DEVICE_CLOSED,  /* let go, or the driver went away */
};

/* "nvidia", "driver", "ok": the words JSON uses. */
GW_API const char *gw_vendor_name(unsigned vendor);
GW_API const char *gw_provenance_name(unsigned provenance);
GW_API const char *gw_device_state_name(unsigned state);

/* Part of a GPU with its own memory (MIG).  Power and energy are only known for the board. */
struct gw_mig {
	unsigned index;
	unsigned gpu_instance, compute_instance; /* UINT32_MAX: unknown */
	char uuid[96];
	char name[96];                                   /* "NVIDIA A100 ... MIG 1g.5gb", or "" */
	uint64_t memory_total_bytes, memory_used_bytes, memory_free_bytes;
	enum gw_absence memory_absence;
};

struct gw_device {
	unsigned index;      /* the driver's number (the position, where several backends have
	                        devices); a convenience, GW_T_UUID is the identity */
	enum gw_vendor vendor;
	enum gw_provenance provenance;
	enum gw_device_state state;
	enum gw_cause cause; /* why state is not GW_DEVICE_OK */
	const char *message; /* the sentence; "" when all is well */
	const char *backend;
	uint64_t begin_ns, end_ns; /* monotonic time around the reading of the FAST tier */
	int cuda_ordinal;    /* its number for CUDA programs under CUDA_VISIBLE_DEVICES, -1 not
	                        visible, -2 not known (CUDA's order may differ from the driver's) */
	unsigned mig_count;
	const struct gw_mig *mig;
	/* Use the functions below. */
	unsigned text_count, value_count;
	const char *const *text;
	const uint8_t *text_absence;
	const double *value;
	const uint8_t *value_absence;
};

/* Memory for a snapshot, taken empty.  Borrows ctx.  0 or -GW_E_NOMEM. */
GW_API int gw_snapshot_new(struct gw_ctx *ctx, struct gw_snapshot **ret_snap);
GW_API void gw_snapshot_free(struct gw_snapshot *snap);

/* Reads the tiers (enum gw_tier) of every device and the host.  ENERGY and ASKED are read
 * only when named.  A driver that is absent is looked for again, with back-off; devices that
 * came or went are seen.  Allocates nothing unless there are more devices than before.
 * 0 (devices may be broken each on its own: see their state), -GW_E_NOMEM or -GW_E_ARG. */
GW_API int gw_snapshot_take(struct gw_snapshot *snap, unsigned tiers);

GW_API uint64_t gw_snapshot_mono_ns(const struct gw_snapshot *snap);
GW_API uint64_t gw_snapshot_wall_ns(const struct gw_snapshot *snap);
GW_API unsigned gw_snapshot_device_count(const struct gw_snapshot *snap);

/* NULL past the end.  Lives until the next take. */
GW_API const struct gw_device *gw_snapshot_device(const struct gw_snapshot *snap, unsigned i);

/* Figure of the machine: GW_HAVE and *ret, or why not. */
GW_API enum gw_absence gw_snapshot_host(const struct gw_snapshot *snap, unsigned quantity,
					double *ret);

/* GW_HAVE and *ret, or why not (and *ret is left alone). */
static inline enum gw_absence gw_device_value(const struct gw_device *d, unsigned quantity,
					      double *ret)
{
	if (quantity >= d->value_count)
		return GW_ABSENT_NOT_SUPPORTED;
	if (d->value_absence[quantity] == GW_HAVE)
		*ret = d->value[quantity];
	return (enum gw_absence)d->value_absence[quantity];
}

/* The word, or NULL; the reason is in gw_device_text_absence(). */
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

/* Does selector name this device: its index, its UUID or the beginning of it (4 or more
 * characters after "GPU-"), its PCI id in either form, "cuda:N", the UUID of one of its MIG
 * instances, or "visible" (CUDA_VISIBLE_DEVICES).  1 yes, 0 no, -GW_E_ARG no selector. */
GW_API int gw_device_matches(const struct gw_device *d, const char *selector);

/* ---- processes ----------------------------------------------------------------------- */

enum gw_process_type {
	GW_PROCESS_COMPUTE = 1 << 0,
	GW_PROCESS_GRAPHICS = 1 << 1,
	GW_PROCESS_MPS = 1 << 2,
};

struct gw_process {
	unsigned device;      /* index of its device in the snapshot */
	unsigned type;        /* set of enum gw_process_type */
	int64_t pid;          /* process (thread group) id in our pid namespace */
	uint64_t start_ticks; /* of /proc/pid/stat: pid and start are the identity; 0 unknown */
	int64_t parent;       /* 0 unknown */
	int64_t uid;          /* -1 unknown */
	const char *user;     /* NULL when unknown */
	const char *name;     /* comm, cleaned for printing; NULL when unknown */
	const char *command;  /* arguments joined by blanks, cut; NULL when unknown */
	const char *cgroup;   /* NULL when unknown */
	const char *container;/* short id or name, NULL when in none */
	int orphan;           /* listed by the driver, absent from /proc */
	int mig_gpu_instance; /* -1: not on an instance */
	enum gw_absence memory_absence;
	uint64_t memory_bytes;
};

struct gw_process_list;

/* Who is on the devices, each process once per device.  The list borrows ctx and is the caller's
 * until gw_process_list_free(); new makes it empty, take fills it.  0 (see the absence per
 * device) or -GW_E_NOMEM. */
GW_API int gw_process_list_new(struct gw_ctx *ctx, struct gw_process_list **ret_list);
GW_API int gw_process_list_take(struct gw_process_list *list);
GW_API void gw_process_list_free(struct gw_process_list *list);
GW_API unsigned gw_process_list_count(const struct gw_process_list *list);
GW_API const struct gw_process *gw_process_list_get(const struct gw_process_list *list,
						    unsigned i);
/* Whether the list of a device could be read, and whether we see all of it: GW_HAVE, or why
 * not.  In a child pid namespace processes outside it are invisible: see gw_diagnosis_new(). */
GW_API enum gw_absence gw_process_list_absence(const struct gw_process_list *list,
					       unsigned device);

/* ---- the machine --------------------------------------------------------------------- */

enum gw_fact_type { GW_FACT_TEXT, GW_FACT_NUMBER, GW_FACT_FLAG };

/* One fact about the machine; section and key name it ("cpu", "model"). */
struct gw_fact {
	const char *section, *key;
	enum gw_fact_type type;
	enum gw_absence absence;
	const char *text; /* GW_FACT_TEXT */
	double number;    /* GW_FACT_NUMBER; FLAG: 0 or 1 */
};

struct gw_environment;

/* Collects what a result should carry about its machine, GPUs aside: those are in a
 * snapshot.  0 or -GW_E_NOMEM. */
GW_API int gw_environment_new(struct gw_ctx *ctx, struct gw_environment **ret_env);
GW_API void gw_environment_free(struct gw_environment *env);
GW_API unsigned gw_environment_count(const struct gw_environment *env);
GW_API const struct gw_fact *gw_environment_get(const struct gw_environment *env, unsigned i);

/* ---- energy -------------------------------------------------------------------------- */

/* What can be wrong with a window: bit GW_CODE_x of a 64-bit set; gpuward/code.def. */
enum gw_code {
#define R(symbol, key, level, sentence) GW_CODE_##symbol,
#include <gpuward/code.def>
#undef R
	GW_CODES
};

/* The words of a result: gpuward/words.def has a sentence for each. */
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

enum gw_verdict { /* GW_VERDICT_AGREE, ...: whether the two meters agree */
#define GW_VERDICT(symbol, key, help) GW_VERDICT_##symbol,
#include <gpuward/words.def>
	GW_VERDICTS
};

enum gw_budget { /* GW_BUDGET_EDGES, ...: contributions to the uncertainty */
#define GW_BUDGET(symbol, key, help) GW_BUDGET_##symbol,
#include <gpuward/words.def>
	GW_BUDGETS
};

enum gw_throttle { /* GW_THROTTLE_POWER, ...: what can hold the clocks back */
#define GW_THROTTLE(symbol, key, help) GW_THROTTLE_##symbol,
#include <gpuward/words.def>
	GW_THROTTLES
};

enum gw_throttle_source { /* GW_THROTTLE_SOURCE_COUNTERS, ... */
#define GW_THROTTLE_SOURCE(symbol, key, help) GW_THROTTLE_SOURCE_##symbol,
#include <gpuward/words.def>
	GW_THROTTLE_SOURCES
};

struct gw_code_info {
	const char *key; /* "meters-disagree" */
	const char *sentence;
	enum gw_validity level;
};

/* Row of the table of codes; NULL past its end. */
GW_API const struct gw_code_info *gw_code_info(unsigned code);

/* The word in JSON: "valid", "counter+ring", "power_cap".  "unknown" past the last; never NULL. */
GW_API const char *gw_validity_name(unsigned validity);
GW_API const char *gw_meter_kind_name(unsigned meter);
GW_API const char *gw_rung_name(unsigned rung);
GW_API const char *gw_verdict_name(unsigned verdict);
GW_API const char *gw_budget_name(unsigned item);
GW_API const char *gw_throttle_name(unsigned cause);
GW_API const char *gw_throttle_source_name(unsigned source);

/* A value and the interval that contains the true value with 95 % probability; NAN: unknown. */
struct gw_interval {
	double low, best, high;
};

/* Room for the contributions to the uncertainty and for the causes of throttling, now and later.
 * Elements past the last word are NAN. */
#define GW_LIST_SIZE 16

/* Energy of one GPU over one window.  The members are the rows of gpuward/energy.def, which
 * describes each of them.  Doubles are NAN where a value is unknown; the codes say why. */
struct gw_energy {
#define GW_TYPE_INDEX    unsigned
#define GW_TYPE_TIME     uint64_t
#define GW_TYPE_FLAG     int
#define GW_TYPE_COUNT    uint64_t
#define GW_TYPE_CODES    uint64_t
#define GW_TYPE_NUMBER   double
#define GW_TYPE_INTERVAL struct gw_interval
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
	GW_FIELD_FLAG,   /* int, 0 or 1 */
	GW_FIELD_COUNT,    /* uint64_t */
	GW_FIELD_CODES,    /* uint64_t, set of enum gw_code */
	GW_FIELD_NUMBER,   /* double */
	GW_FIELD_INTERVAL, /* struct gw_interval */
	GW_FIELD_WORD,     /* an enum; name() has its words */
	GW_FIELD_LIST,     /* double[GW_LIST_SIZE]; count words of name() */
};

/* A member of struct gw_energy, for programs that go through all of them or that have no
 * header. */
struct gw_energy_field {
	const char *member; /* "power_mean" */
	const char *key;    /* path in JSON: "power_watts.mean"; "": not in JSON */
	enum gw_field_kind kind;
	size_t offset;
	unsigned count;     /* WORD and LIST: how many words there are */
	unsigned missing;   /* WORD: the value that stands for no word */
	const char *(*name)(unsigned word);
};

/* Field i of the table; NULL past its end. */
GW_API const struct gw_energy_field *gw_energy_field(unsigned i);

struct gw_meter_options {
	size_t size;           /* sizeof(struct gw_meter_options) */
	uint64_t interval_ns;  /* of clocks, temperature, ...; 0: 100 ms */
	uint64_t anchor_ns;    /* between counter readings inside long windows; 0: 10 s */
	const char *const *gpus; /* selectors as of gw_device_matches(), NULL-terminated; NULL: all */
	unsigned flags;        /* enum gw_meter_flag */
	const char *cache_dir; /* of sensor profiles; NULL: as XDG says; "": none */
};

enum gw_meter_flag {
	GW_METER_PROCESSES = 1 << 1, /* who was on the GPUs, and each one's share  */
	GW_METER_MANUAL = 1 << 2,    /* no threads: the caller calls gw_meter_poll() */
};

struct gw_meter;
struct gw_window;

/* Starts measuring: one thread for each GPU, which reads it on absolute deadlines of the
 * monotonic clock.  Borrows ctx.  options may be NULL.  A machine without GPUs has a meter
 * without devices.  0 and the caller owns *ret_meter until gw_meter_stop(); -GW_E_ARG,
 * -GW_E_NODEV (a selector that names no GPU) or -GW_E_NOMEM. */
GW_API int gw_meter_start(struct gw_ctx *ctx, const struct gw_meter_options *options,
			  struct gw_meter **ret_meter);

/* Ends the threads and frees the meter and its windows.  NULL is fine.  0, or -GW_E_STATE: a driver
 * call has not returned; its thread is left behind with the meter, which must not be used. */
GW_API int gw_meter_stop(struct gw_meter *meter);

/* Devices it measures, and what each is called in the context's snapshots. */
GW_API unsigned gw_meter_device_count(const struct gw_meter *meter);
GW_API unsigned gw_meter_device(const struct gw_meter *meter, unsigned i);

/* Only with GW_METER_MANUAL: does what is due and returns when to call again (monotonic ns). */
GW_API uint64_t gw_meter_poll(struct gw_meter *meter);

/* Opens a window that begins now (or at begin_ns, not longer ago than half a minute).  Windows
 * may be nested and may overlap.  label is copied, cut at 63 bytes.  Thread-safe, takes no
 * time: nothing is read from the GPU by the caller.  0, -GW_E_ARG or -GW_E_NOMEM. */
GW_API int gw_window_open(struct gw_meter *meter, const char *label, uint64_t begin_ns,
			  struct gw_window **ret_window);

/* Ends it now (or at end_ns).  Thread-safe, takes no time.  0, -GW_E_STATE (ended already) or
 * -GW_E_ARG (before its begin). */
GW_API int gw_window_close(struct gw_window *window, uint64_t end_ns);

/* Waits until the sample that covers its end has come, at most timeout_ns, and works the
 * result out.  0, -GW_E_STATE (not closed) or -GW_E_TIMEOUT: what is known is then there,
 * coded truncated. */
GW_API int gw_window_wait(struct gw_window *window, uint64_t timeout_ns);

/* What it took on device i of the meter; NULL past the end.  Before gw_window_wait() it is what
 * is known so far.  Lives as long as the window. */
GW_API const struct gw_energy *gw_window_energy(struct gw_window *window, unsigned i);
GW_API const char *gw_window_label(const struct gw_window *window);
GW_API void gw_window_free(struct gw_window *window);

/* ---- the guard ----------------------------------------------------------------------- */

/* A program that holds GPU memory and can give it up, such as an inference worker, starts a
 * guard: it is called back to leave when somebody else needs the GPU, and to come back when they
 * have gone.
 *
 *	static int evict(void *arg, uint64_t bytes, uint64_t deadline_ns)  { free the memory; }
 *	static int resume(void *arg, uint64_t deadline_ns)                 { take it again;   }
 *
 *	struct gw_guard_options o = { .size = sizeof(o), .name = "chat", .evict = evict,
 *				      .resume = resume };
 *	gw_guard_start(ctx, &o, &guard);
 *	while (next(&job)) {
 *		gw_guard_wait(guard, UINT64_MAX);
 *		run(&job);
 *	}
 *	gw_guard_stop(guard, 5000000000);
 *
 * One guard is one worker: this process and all below it, which never contend.  Whether memory was
 * freed is seen in the driver's lists and not believed; whether it fits is checked before resume
 * is called.  Nothing outlives the process: there is no journal. */

/* What is done with decisions. */
enum gw_guard_mode {
	GW_GUARD_ENFORCE, /* callbacks are called */
	GW_GUARD_DRY_RUN, /* decisions are told, nothing is called, gw_guard_allowed() stays 1 */
	GW_GUARD_OBSERVE, /* likewise */
};

enum gw_guard_flag {
	GW_GUARD_ANY = 1 << 0,          /* any other process is demand, however small, the
	                                   desktop too, but for those to ignore */
	GW_GUARD_NAMED = 1 << 1,        /* only who is named to contend does */
	GW_GUARD_UNATTRIBUTED = 1 << 2, /* memory that no visible process owns contends: for
	                                   containers, which do not see the others */
	GW_GUARD_LEAVE_BLIND = 1 << 3,  /* leave a GPU that cannot be read any more; else what
	                                   was decided last stays */
	GW_GUARD_HEALTH = 1 << 4,       /* leave a GPU that is too hot or needs a reset */
	GW_GUARD_SIMULATED = 1 << 5,    /* act on simulated GPUs too, for tests; else dry there */
};

enum gw_worker_state {
	GW_WORKER_RECONCILE, /* nothing was seen yet */
	GW_WORKER_ACTIVE,    /* it may run */
	GW_WORKER_SUSPECT,   /* somebody came; is it demand? */
	GW_WORKER_DRAIN,     /* it must leave: no new work */
	GW_WORKER_EVICT,     /* evict was called */
	GW_WORKER_VERIFY,    /* evict has returned 0; is the memory free? */
	GW_WORKER_EVICTED,
	GW_WORKER_QUIET,     /* nobody needs the GPU any more; is it so for long enough? */
	GW_WORKER_PRECHECK,  /* would it fit? */
	GW_WORKER_RESUME,    /* resume was called */
	GW_WORKER_VERIFY_UP, /* resume has returned 0; is it back? */
	GW_WORKER_STUCK,     /* evict failed or freed nothing; tried again every 30 s */
	GW_WORKER_ABSENT,    /* of other processes; never this one's */
	GW_WORKER_STATES
};

/* Why it may not run: bits 1 << GW_REASON_x of a set; it may only when the set is empty. */
enum gw_worker_reason {
	GW_REASON_CONTENTION, /* somebody else needs the GPU */
	GW_REASON_MANUAL,     /* gw_guard_ask() */
	GW_REASON_THERMAL,    /* GW_GUARD_HEALTH: too hot */
	GW_REASON_HEALTH,     /* the GPU is lost, or GW_GUARD_HEALTH: in quarantine */
	GW_REASON_SCHEDULE,   /* of the service alone, as those are without a word here */
	GW_REASON_BATTERY,
	GW_REASON_BLIND,      /* GW_GUARD_LEAVE_BLIND */
	GW_REASON_BUDGET,
	GW_REASON_RESERVED,
	GW_REASON_IDLE,
	GW_WORKER_REASONS
};

/* "active", "contention": the words JSON uses.  "?" past the last. */
GW_API const char *gw_worker_state_name(unsigned state);
GW_API const char *gw_worker_reason_name(unsigned reason);

/* One thing that was decided.  Lives for the call. */
struct gw_guard_decision {
	uint64_t mono_ns;
	enum gw_worker_state from, to;
	unsigned reasons;     /* set of enum gw_worker_reason, after it */
	int dry;              /* nothing is done */
	const char *rule;     /* what led to it: "contend-now chrome" */
	const char *evidence; /* "pid 4711 game 5120 MiB on GPU-..." */
	const char *text;     /* all of it in one line */
};

struct gw_guard_options {
	size_t size;              /* sizeof(struct gw_guard_options) */
	const char *name;         /* for decisions; NULL: "worker" */
	const char *const *gpus;  /* it is guarded on these alone, by number, UUID or the beginning
	                             of one; NULL-terminated; NULL: wherever it holds memory */
	enum gw_guard_mode mode;
	unsigned flags;           /* enum gw_guard_flag */
	/* Leave: free all GPU memory, about so many bytes.  NULL: the program watches
	 * gw_guard_allowed() and frees it by itself, within five seconds. */
	int (*evict)(void *arg, uint64_t bytes, uint64_t deadline_ns);
	/* Come back: take the memory again.  NULL: it does so by itself when it is allowed to. */
	int (*resume)(void *arg, uint64_t deadline_ns);
	/* Something was decided; NULL: nobody wants to know.  On the guard's thread, which looks at
	 * nothing meanwhile: be quick. */
	void (*decided)(void *arg, const struct gw_guard_decision *decision);
	void *arg;                /* of all three; borrowed until gw_guard_stop() */
	uint64_t min_vram_bytes;  /* who holds less and does not work is no contender; 0: 512 MiB */
	uint64_t headroom_bytes;  /* left free for others; 0: 2 GiB, or 10 % where that is more */
	uint64_t debounce_ns;     /* demand must last so long; 0: 300 ms */
	uint64_t quiet_ns;        /* nobody must have needed it for so long; 0: 30 s; doubled, up to
	                             10 min, for who comes and goes */
	uint64_t resident_ns;     /* once back it stays so long, unless pressed; 0: 60 s */
	uint64_t poll_ns;         /* between looks, 1 ms or more; 0: 100 ms, 1 s while it holds
	                             nothing */
	/* Names of processes, the kernel's 15 bytes, may have * and ?; NULL-terminated or NULL.
	 * A name counts in the first list that has it. */
	const char *const *ignore;      /* never contend */
	const char *const *contend_now; /* contend at once, without debounce and however small */
	const char *const *contend;     /* contend, for GW_GUARD_NAMED */
};

struct gw_guard;

/* Starts guarding: one thread that looks and decides, and with the first order one that calls evict
 * and resume: never on a caller's thread, and one at a time.  They have until deadline_ns
 * (monotonic; 10 s for evict, 120 s for resume) and return 0, or a negative number: it failed.  evict
 * is then tried twice more and, after that, every 30 s; where it returns -GW_E_STATE (not now) as
 * often as it takes within 30 s; resume is tried again later and later.  Where evict returned 0 and
 * the memory was not freed, resume is called all the same when nobody needs the GPU any more; where
 * evict failed each time, it is not.  options may be NULL, which
 * calls nothing; strings are copied.  Borrows ctx, which should have a deadline_ns: without one
 * a driver that hangs hangs the guard.  A machine without a driver or a GPU has a guard that is
 * blind, allows everything and goes on looking for one.  0 and the caller owns *ret_guard until
 * gw_guard_stop(); -GW_E_ARG, -GW_E_SIZE (more than 16 GPUs or 64 names), -GW_E_NOMEM (no memory, or
 * no thread) or -GW_E_IO. */
GW_API int gw_guard_start(struct gw_ctx *ctx, const struct gw_guard_options *options,
			  struct gw_guard **ret_guard);

/* Ends the guard and calls nothing: a worker that is out may come back as it likes.  A callback or a
 * driver call that is under way is waited for, at most timeout_ns.  NULL is fine.  0; -GW_E_STATE:
 * it has not returned and is left behind, with the guard, which must not be used, with arg and with
 * ctx; -GW_E_ARG: called by a callback, nothing was done.  No other thread may use the guard. */
GW_API int gw_guard_stop(struct gw_guard *guard, uint64_t timeout_ns);

/* May it use the GPU now?  1 or 0; NULL is 1.  One atomic read, for a worker's loop.  Not from the
 * moment that it must leave until resume has returned 0.  Before the first look, and where nobody
 * can tell, it may. */
GW_API int gw_guard_allowed(const struct gw_guard *guard);

/* Waits until it may, at most timeout_ns (UINT64_MAX: for ever).  0 or -GW_E_TIMEOUT. */
GW_API int gw_guard_wait(struct gw_guard *guard, uint64_t timeout_ns);

enum gw_guard_ask {
	GW_ASK_EVICT,        /* leave; ttl_ns 0: until it is asked back */
	GW_ASK_RESUME,       /* come back once every check passes */
	GW_ASK_HOLD_EVICTED, /* stay out, whatever happens */
	GW_ASK_HOLD_ACTIVE,  /* stay in, but for heat and health */
	GW_ASK_RELEASE,      /* of a hold */
	GW_ASK_RESUME_NOW,   /* come back without the quiet period */
};

/* Asks for something as a person would; a hold needs a time, UINT64_MAX is for ever.  message, of
 * size bytes, gets a sentence where it is refused; NULL: none.  A callback may call it.  0, -GW_E_ARG,
 * or -GW_E_STATE: it cannot be now. */
GW_API int gw_guard_ask(struct gw_guard *guard, enum gw_guard_ask what, uint64_t ttl_ns,
			char *message, size_t size);

enum gw_worker_hold { GW_HOLD_NONE, GW_HOLD_EVICTED, GW_HOLD_ACTIVE };
enum gw_worker_call { GW_CALL_NONE, GW_CALL_EVICT, GW_CALL_RESUME };

/* How the worker stands; times are monotonic. */
struct gw_guard_status {
	size_t size;                 /* sizeof(struct gw_guard_status), set by the caller */
	enum gw_worker_state state;
	unsigned reasons;            /* set of enum gw_worker_reason */
	enum gw_worker_hold hold;
	enum gw_worker_call call;    /* the callback that is under way ... */
	uint64_t call_deadline_ns;   /* ... and when it must have returned */
	int overdue;                 /* it has not */
	int allowed;                 /* as gw_guard_allowed() */
	int dry;                     /* by mode, or because GPUs are simulated */
	int blind;                   /* a GPU of it, or every GPU, cannot be read: why */
	int hung;                    /* a driver call has not returned */
	int quarantine;              /* a GPU of it is lost or needs a reset */
	uint64_t since_ns;           /* in this state */
	uint64_t next_ns;            /* it can change by itself then, at the earliest; 0: unknown */
	uint64_t hold_until_ns;      /* 0: no end, or no hold */
	uint64_t resident_bytes;     /* that it holds on its GPUs */
	uint64_t need_bytes;         /* at most while it ran: what must fit */
	uint64_t residue_bytes;      /* that it kept when it left */
	double backoff_ratio;        /* times the quiet period */
	uint64_t looks;              /* since the start */
	unsigned evictions, resumes; /* likewise, that were proven */
	unsigned would_evict;        /* likewise, while dry */
	char why[320];               /* of the state, one sentence */
};

/* 0 or -GW_E_ARG (a size that no version had). */
GW_API int gw_guard_status(struct gw_guard *guard, struct gw_guard_status *ret_status);

/* ---- diagnosis ----------------------------------------------------------------------- */

struct gw_finding {
	enum gw_cause cause;
	enum gw_severity severity;
	int device;       /* position in the snapshot, or -1: the machine */
	char detail[400]; /* the sentence with this machine's facts */
};

struct gw_diagnosis;

/* What is missing on this machine and how to mend it.  0 or -GW_E_NOMEM. */
GW_API int gw_diagnosis_new(struct gw_snapshot *snap, struct gw_diagnosis **ret_diagnosis);
GW_API void gw_diagnosis_free(struct gw_diagnosis *diagnosis);
GW_API unsigned gw_diagnosis_count(const struct gw_diagnosis *diagnosis);
GW_API const struct gw_finding *gw_diagnosis_get(const struct gw_diagnosis *diagnosis,
						 unsigned i);

#ifdef __cplusplus
}
#endif

#endif
