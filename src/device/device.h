/* device: one GPU as every backend describes it, and its readings.
 *
 * A report is plain data, copied out whole; whoever reads the hardware fills it, everyone
 * else gets a copy.  A figure that is not there has a reason (idea: absence is data). */
#ifndef GW_DEVICE_DEVICE_H
#define GW_DEVICE_DEVICE_H

#include <gpuward.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DEVICE_TEXT_SIZE 96
#define DEVICE_MIG_MAX   8 /* most instances that any board can be split into is 7 */
#define TIER_COUNT       7

struct report {
	unsigned index;
	enum gw_vendor vendor;
	enum gw_provenance provenance;
	enum gw_device_state state;
	enum gw_cause cause;
	char message[256];
	uint64_t begin_ns, end_ns;    /* around the FAST tier */
	uint64_t tier_ns[TIER_COUNT]; /* when each tier was last read, 0: never */
	char text[GW_TEXTS][DEVICE_TEXT_SIZE];
	uint8_t text_why[GW_TEXTS];
	double v[GW_QUANTITIES];
	uint8_t why[GW_QUANTITIES]; /* enum gw_absence */
	unsigned mig_count;
	struct gw_mig mig[DEVICE_MIG_MAX];
};

struct backend;

struct device {
	struct backend *backend;     /* borrowed                                          */
	struct report r;             /* written by whoever reads the hardware, alone      */
	_Atomic(const char *) *call; /* where the vendor call under way is named, NULL
					when none: own_call, or the backend's while it opens */
	_Atomic(const char *) own_call;
	uint64_t began_ns; /* when the call under way was made; of the thread that makes it */
	bool fresh; /* just opened: to be read once whatever the tiers, for its name     */
	void *priv; /* the backend's, freed by its close                                 */
};

/* Nothing known yet: every figure absent as not_read. */
void report_init(struct report *r, enum gw_vendor vendor, enum gw_provenance provenance);

/* Every figure of these tiers absent for this reason. */
void report_absent(struct report *r, unsigned tiers, enum gw_absence why);

/* The device as a whole: its state, and the sentence of cause with " (detail)" where detail is
 * not "".  GW_DEVICE_OK clears both. */
void report_state(struct report *r, enum gw_device_state state, enum gw_cause cause,
		  const char *detail);

/* Copies text cleaned for printing; NULL or nothing but blanks makes it absent as why. */
void report_text(struct report *r, enum gw_text t, const char *text, enum gw_absence why);

/* Why nothing can be had of a device in this state; GW_HAVE where it answers. */
enum gw_absence device_silence(enum gw_device_state state, enum gw_cause cause);

static inline void report_set(struct report *r, unsigned q, double v)
{
	r->v[q] = v;
	r->why[q] = GW_HAVE;
}

static inline void report_miss(struct report *r, unsigned q, enum gw_absence why)
{
	r->why[q] = (uint8_t)why;
}

static inline bool report_has(const struct report *r, unsigned q)
{
	return r->why[q] == GW_HAVE;
}

/* Which of the asked tiers are to be read now: those that are older than their cadence. */
unsigned report_due(const struct report *r, unsigned tiers, uint64_t now_ns);

/* Notes that tiers were read at now_ns. */
void report_stamp(struct report *r, unsigned tiers, uint64_t now_ns);

#endif
