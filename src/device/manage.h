/* manage: changes a setting of a GPU, and proves that it was changed.
 *
 * Hides where a setting is read and written, who may, which values the driver takes, and that a
 * driver call can hang: the calls run on the device's lane, held by its `use`, as those of a
 * snapshot do, and the caller waits no longer than the context's deadline for each of its two
 * steps (look, then set).  Whether anything may be changed at all is for the caller to decide;
 * here nobody is asked.  Nothing that measures includes this. */
#ifndef GW_DEVICE_MANAGE_H
#define GW_DEVICE_MANAGE_H

#include <gpuward.h>

#include <stdbool.h>
#include <stddef.h>

struct root;

enum manage_what {
	MANAGE_PERSISTENCE,   /* 0 or 1                                                     */
	MANAGE_POWER_LIMIT,   /* watts                                                      */
	MANAGE_COMPUTE_MODE,  /* 0 default, 2 prohibited, 3 exclusive process               */
	MANAGE_GPU_CLOCKS,    /* hertz, lowest and highest; NVML cannot read a lock back    */
	MANAGE_MEMORY_CLOCKS, /* likewise                                                   */
	MANAGE_CLEAR_ECC,     /* no value; what is read: corrected, uncorrected since load  */
	MANAGE_WHATS
};

struct manage_info {
	const char *word;  /* "power-limit", as in paths      */
	const char *name;  /* "the power limit", in sentences */
	unsigned values;   /* that it is set to: 0, 1 or 2    */
	bool readable;     /* the driver tells what it is     */
	unsigned quantity; /* enum gw_quantity that shows it; GW_QUANTITIES: none */
	unsigned lowest, highest, standard; /* likewise: its bounds and what the driver sets */
};
const struct manage_info *manage_info(enum manage_what what); /* NULL: no such */
enum manage_what manage_find(const char *word);               /* MANAGE_WHATS: no such */

/* "400 W", "on", "exclusive_process", "210 MHz to 1980 MHz"; NAN: "unknown". */
void manage_text(enum manage_what what, const double value[2], char *out, size_t size);

/* Are both the same setting?  The driver counts whole milliwatts and megahertz.  NAN is only
 * like NAN. */
bool manage_same(enum manage_what what, const double a[2], const double b[2]);

/* What is to be done.  A plain order sets `value`.  One with `restore` puts back: where `kept`,
 * `value` (NAN: unlocked), provided that what is set now is `ours` or `earlier`, which we set;
 * else what the driver itself would set. */
struct manage_order {
	char uuid[96];
	enum manage_what what;
	double value[2];
	bool restore;
	bool keep; /* stays when the service ends */
	bool kept; /* of restore: the three below are known */
	double ours[2], earlier[2];
	char who[64]; /* for the audit */
};

struct manage_result {
	int error;                  /* 0 or a negative enum gw_error               */
	double before[2], after[2]; /* as the driver tells; NAN: it does not       */
	bool changed;               /* the driver was told, and said yes           */
	bool verified;              /* and was found to have done it               */
	bool foreign;               /* of restore: somebody else changed it        */
	bool uncertain;             /* it may have been changed, or may still be   */
	bool restored_on_exit;      /* by whoever keeps the journal                */
	char message[240];          /* one sentence                                */
	const char *remedy;         /* what to do; NULL when there is nothing      */
};

/* Keeps the value before it is changed, on the caller's thread.  Anything but 0: nothing is
 * changed.  Not called for an order with `keep` or `restore`, nor where nothing can be put back. */
struct manage_keeper {
	int (*keep)(void *arg, const struct manage_order *o, const double before[2]);
	void *arg;
};

/* Carries the order out; keeper may be NULL.  Setting what is set already changes nothing and
 * is a success.  Any thread; blocks.  Returns ret->error:
 * -GW_E_NODEV      no GPU has this uuid
 * -GW_E_NOSUPPORT  the GPU, its driver or its backend cannot
 * -GW_E_PERM       it takes root
 * -GW_E_ARG        the driver does not take this value; the sentence names the bounds
 * -GW_E_STATE      not now: let go, in use, changed by somebody else, or said yes and did nothing
 * -GW_E_TIMEOUT    a call has not returned; `uncertain` says whether it was the one that sets
 * -GW_E_LOST, -GW_E_IO, -GW_E_NOMEM */
int manage_run(struct gw_ctx *ctx, const struct manage_order *o,
	       const struct manage_keeper *keeper, struct manage_result *ret);

/* May a process with this effective uid and the capabilities of proc/self/status below root
 * change settings? */
bool manage_privileged(const struct root *root, unsigned euid);

#endif
