/* device: one GPU as every backend describes it, and its readings.
 *
 * A report is plain data. The code that reads the hardware fills it; everyone else gets a copy.
 * A value that is missing has a reason instead (absence is data). */
#ifndef GW_DEVICE_DEVICE_H
#define GW_DEVICE_DEVICE_H

#include <gpuward.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DEVICE_TEXT_SIZE 96
#define DEVICE_MIG_MAX   8 /* a board has at most 7 instances */
#define TIER_COUNT       8

struct report {
	unsigned index;
	enum gw_vendor vendor;
	enum gw_provenance provenance;
	enum gw_device_state state;
	enum gw_cause cause;
	char message[256];
	uint64_t begin_ns, end_ns; /* monotonic time before and after the FAST tier was read */
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
	struct backend *backend; /* borrowed                                          */
	struct report r;         /* written only by the thread that reads the hardware */
	/* Points to own_call or, while the backend opens, to the backend's `call`. The value
	 * there is the name of the running vendor call; NULL: no call is running. */
	_Atomic(const char *) *call;
	_Atomic(const char *) own_call;
	_Atomic(uint64_t) began_ns; /* start of the last vendor call; 0: not recorded */
	/* In a series of calls without other work in between: end of the previous call, which is
	 * the start of the next one; 0: no series. Spares a clock reading per call. */
	uint64_t series_ns;
	bool fresh; /* just opened: the next read also fetches the name */
	void *priv; /* the backend's data; its close() frees it */
};

/* Starts an empty report: every value is absent with reason not_read. */
void report_init(struct report *r, enum gw_vendor vendor, enum gw_provenance provenance);

/* Marks every value of these tiers as absent for this reason. */
void report_absent(struct report *r, unsigned tiers, enum gw_absence why);

/* Sets the state of the device and its message: the sentence of cause, followed by " (detail)"
 * if detail is not "". GW_DEVICE_OK clears both. */
void report_state(struct report *r, enum gw_device_state state, enum gw_cause cause,
		  const char *detail);

/* Copies text, cleaned for printing. NULL or blank text makes it absent with reason why. */
void report_text(struct report *r, enum gw_text t, const char *text, enum gw_absence why);

/* Returns why a device in this state has no values; GW_HAVE if the device answers. */
enum gw_absence device_absence(enum gw_device_state state, enum gw_cause cause);

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

/* Returns the requested tiers with values older than the tier's interval, which must be read
 * now. */
unsigned report_due(const struct report *r, unsigned tiers, uint64_t now_ns);

/* Records that tiers were read at now_ns. */
void report_stamp(struct report *r, unsigned tiers, uint64_t now_ns);

#endif
