/* What the files of health share; nobody else includes this.
 *
 *   health.c        options, readings, and the table of rules, of which the verdict is made
 *   health_heat.c   how far a GPU is from its limit, and which trips that trips
 *   health_fault.c  Xids and other events, recovery actions, memory: alerts and quarantine
 */
#ifndef GW_GUARD_HEALTH_PARTS_H
#define GW_GUARD_HEALTH_PARTS_H

#include "health.h"

#include "base/clock.h"

#include <math.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define SLOW_NS  (10 * NS_PER_S)
#define QUICK_NS NS_PER_S
#define PASTS    8
#define TIER_NS  (10 * NS_PER_S) /* what a snapshot tells of HEALTH may be as old */

/* What an event leads to, the worse the higher. */
enum ruling {
	RULING_NONE,
	RULING_REREAD,   /* the recovery action has changed                            */
	RULING_ALERT,    /* people are told                                            */
	RULING_ASK,      /* the recovery action decides; where it cannot be read: alert */
	RULING_ASK_HARD, /* ... quarantine                                             */
	RULING_QUARANTINE
};

/* Beside the levels: whether it is cool enough for a worker to come back, whatever took it away. */
enum { TRIP_WARN, TRIP_THROTTLE, TRIP_EVICT, TRIPS, TRIP_RETURN = TRIPS, TRIPS_ALL };
enum source { SOURCE_NONE, SOURCE_MARGIN, SOURCE_THRESHOLDS, SOURCE_OVERRIDE, SOURCE_FALLBACK };

struct trip {
	bool on;
	uint64_t cool_ns; /* since when it is cool enough; 0: it is not */
};

struct health {
	struct health_options o;
	enum health_level level;
	uint64_t since_ns;

	/* Heat. */
	struct trip trip[TRIPS_ALL];
	enum source source;
	double margin_c, temperature_c;
	double told_margin_c, told_at_c; /* the driver's margin, and how hot it was then */
	uint64_t told_ns;
	unsigned criticals; /* readings in a row */
	bool hw_thermal;

	/* Memory. */
	unsigned flag; /* bits: rows of flags */
	double uncorrected;
	struct {
		uint64_t ns; /* 0: nothing was read yet */
		double count;
	} corrected[2]; /* some time ago, and later */
	double corrected_new,
		corrected_min; /* since the first of these, and in how many minutes */
	bool fault;            /* the driver names a hardware fault */
	char fault_why[200];

	/* Recovery action. */
	bool read, action_known;
	unsigned action;
	uint64_t awaited_ns; /* when the driver said that it changed; 0 */

	/* The incident: events without SILENCE_NS between them, and the worst of them. */
	enum ruling worst;
	bool undecided; /* the worst is ASK_HARD and nothing has been read yet */
	uint64_t event_ns;
	char event_why[240], event_advice[200];
	unsigned xids, last_xid;

	/* Before the start. */
	struct health_event past[PASTS]; /* of which the recovery action is not known yet */
	unsigned pasts, past_xids, last_past_xid;
	uint64_t last_past_ns, read_ns;

	/* Quarantine. */
	bool quarantine;
	bool answers;      /* the last reading was of a GPU that could be read */
	uint64_t clean_ns; /* since when nothing speaks for it; 0 */
	char why[240], advice[200];
};

static inline double health_value(const struct gw_device *d, unsigned q)
{
	double v = NAN;

	return gw_device_value(d, q, &v) == GW_HAVE ? v : NAN;
}

/* health.c */
void health_settle(struct health *h, uint64_t now); /* the level that follows */

/* health_heat.c */
void health_heat_read(struct health *h, const struct gw_device *d, uint64_t now);
void health_heat_unknown(struct health *h); /* it cannot be read: as it was, and not cooler */
enum health_level health_heat_level(const struct health *h);
const char *health_heat_source(const struct health *h);
double health_heat_evict_at(const struct health *h);
void health_heat_tell(const struct health *h, struct health_finding *f);

/* health_fault.c */
void health_fault_read(struct health *h, const struct gw_device *d, uint64_t now);
void health_fault_lost(struct health *h, const struct gw_device *d);
void health_fault_forget(struct health *h, uint64_t now); /* what is over */
enum health_level health_quarantine_level(const struct health *h);
void health_quarantine_tell(const struct health *h, struct health_finding *f);
enum health_level health_incident_level(const struct health *h);
void health_incident_tell(const struct health *h, struct health_finding *f);
enum health_level health_fault_level(const struct health *h);
void health_fault_tell(const struct health *h, struct health_finding *f);
enum health_level health_flags_level(const struct health *h);
void health_flags_tell(const struct health *h, struct health_finding *f);
enum health_level health_wear_level(const struct health *h);
void health_wear_tell(const struct health *h, struct health_finding *f);

#endif
