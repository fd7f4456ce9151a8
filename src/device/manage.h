/* manage: changes a setting of a GPU and verifies that it changed.
 *
 * Hides which calls read and write a setting, who may change it and which values the driver
 * accepts. Driver calls can hang, so they run on the device's call thread, like those of a
 * snapshot; the caller waits at most the context's deadline for each of the two steps (check,
 * then set). The caller decides whether a change is allowed; code that measures must not use
 * this module. */
#ifndef GW_DEVICE_MANAGE_H
#define GW_DEVICE_MANAGE_H

#include <gpuward.h>

#include <stdbool.h>
#include <stddef.h>

struct root;

#define MANAGE_HZ_PER_MHZ 1e6 /* drivers take clocks in MHz */

enum manage_what {
	MANAGE_PERSISTENCE,  /* 0 or 1 */
	MANAGE_POWER_LIMIT,  /* watts */
	MANAGE_COMPUTE_MODE, /* 0: default, 2: prohibited, 3: exclusive process */
	/* Lowest and highest clock, in hertz. NVML cannot read the lock back. */
	MANAGE_GPU_CLOCKS,
	MANAGE_MEMORY_CLOCKS, /* as MANAGE_GPU_CLOCKS, for the memory */
	/* Clears the ECC counters. Its "value" is the number of corrected and of uncorrected
	 * errors since the driver was loaded. */
	MANAGE_CLEAR_ECC,
	MANAGE_WHATS
};

struct manage_info {
	const char *word; /* name in URLs: "power-limit" */
	const char *name; /* name in sentences: "the power limit" */
	unsigned values;  /* number of values of the setting: 0, 1 or 2 */
	bool readable;    /* The driver reports the current value. */
	/* The quantities (enum gw_quantity) that report the current value, the bounds and the
	 * default. GW_QUANTITIES: there is no such quantity. */
	unsigned quantity, lowest, highest, standard;
};
/* Returns NULL if there is no such setting. */
const struct manage_info *manage_info(enum manage_what what);
/* Returns the setting with this word, or MANAGE_WHATS if there is none. */
enum manage_what manage_find(const char *word);

/* Writes a value as text: "400 W", "on", "exclusive_process", "210 MHz to 1980 MHz"; "unknown"
 * for NAN. */
void manage_text(enum manage_what what, const double value[2], char *out, size_t size);

/* True if a and b are the same setting. They are compared in whole milliwatts and megahertz,
 * the units of the driver. NAN equals only NAN. */
bool manage_same(enum manage_what what, const double a[2], const double b[2]);

/* The requested change.
 * Without `restore`, the setting gets `value`.
 * With `restore` and `kept`, the setting gets `value` again, or its lock is removed if `value`
 * is NAN. The setting is changed only if its current value is `ours` or `earlier`, which
 * gpuward set.
 * With `restore` alone, the setting gets the driver's default. */
struct manage_change {
	char uuid[96];
	enum manage_what what;
	double value
		[2]; /* A range of clocks has two numbers; other settings use only the first. */
	bool restore;
	bool keep; /* The service does not restore the old value when it stops. */
	bool kept; /* for restore: `value`, `ours` and `earlier` have values */
	double ours[2], earlier[2]; /* the last two values that gpuward set */
	char who[64];               /* who requested the change, for the audit log */
};

enum manage_outcome {
	MANAGE_UNCHANGED,
	MANAGE_FOREIGN, /* Not restored, because someone else changed the setting. */
	/* Nothing was changed: store `before`, and run the change again with `before` as
	 * `stored`. */
	MANAGE_UNSTORED,
	/* The call that sets the value has not returned: the value may have changed, or may
	 * still change. */
	MANAGE_UNCERTAIN,
	MANAGE_CHANGED, /* The driver accepted the change. */
};

struct manage_result {
	int error; /* 0 or a negative enum gw_error */
	/* Values before and after the change, as the driver reports them. NAN: unknown. */
	double before[2], after[2];
	enum manage_outcome outcome;
	bool verified; /* The driver reports the new value. */
	/* The service restores the setting when it stops. The code that calls manage_run() sets
	 * this member. */
	bool restored_on_exit;
	char message[240];  /* what happened, in one sentence */
	const char *remedy; /* what the user can do; NULL: nothing */
};

/* Carries out the change. `stored` is the old value that the caller has on disk (two numbers),
 * or NULL. If the service must restore the setting later and `stored` is not the present value,
 * the outcome is MANAGE_UNSTORED. This does not apply to a change with `keep` or `restore`, nor
 * to a setting that cannot be restored. If the setting already has the value, nothing is
 * changed and the result is success. May be called from any thread; blocks. Returns ret->error:
 *
 * -GW_E_NODEV: no GPU has this uuid.
 * -GW_E_NOSUPPORT: the GPU, its driver or its backend cannot change this setting.
 * -GW_E_PERM: root is required.
 * -GW_E_ARG: the driver does not accept the value; the message has the bounds.
 * -GW_E_STATE: not possible now: the driver is released, the GPU is in use, someone else
 * changed the setting, or the change had no effect.
 * -GW_E_TIMEOUT: a call has not returned; if it was the call that sets the value, `outcome` is
 * MANAGE_UNCERTAIN. Also -GW_E_LOST, -GW_E_IO, -GW_E_NOMEM. */
int manage_run(struct gw_ctx *ctx, const struct manage_change *c, const double *stored,
	       struct manage_result *ret);

/* True if a process with this effective uid may change settings. Its capabilities are read from
 * proc/self/status below root. */
bool manage_privileged(const struct root *root, unsigned euid);

#endif
