/* Data that two files share. health.c has the options, heat and the table of rules.
 * health_fault.c has Xids, other events, recovery actions, memory and quarantine. No other file
 * includes this header. A recovery action is what the driver asks a person to do, such as to
 * reset the GPU. */
#ifndef GW_GUARD_HEALTH_INTERNAL_H
#define GW_GUARD_HEALTH_INTERNAL_H

#include "health.h"

#include "base/array.h"
#include "base/clock.h"

#include <math.h>

#define QUICK_NS NS_PER_S        /* time between readings while a value may change soon */
#define TIER_NS  (10 * NS_PER_S) /* values of the HEALTH tier in a snapshot may be this old */
#define PASTS    8               /* maximum number of Xids from before the start */

/* What an event causes; a higher value is worse. */
enum severity {
	SEVERITY_NONE,
	SEVERITY_REREAD,          /* the recovery action must be read again */
	SEVERITY_ALERT,           /* a warning for people */
	SEVERITY_ACTION_OR_ALERT, /* a warning; a recovery action may cause a quarantine */
	/* like SEVERITY_ACTION_OR_ALERT, but a quarantine if the driver reports no recovery
	 * actions */
	SEVERITY_ACTION_OR_QUARANTINE,
	SEVERITY_QUARANTINE
};

/* TRIP_RETURN is not a health level: while this trip is on, the GPU is too warm for a worker to
 * return. */
enum { TRIP_WARN, TRIP_THROTTLE, TRIP_EVICT, TRIPS, TRIP_RETURN = TRIPS, TRIPS_ALL };
/* Where the thermal margin comes from. */
enum margin_source {
	MARGIN_UNKNOWN,
	MARGIN_DRIVER,     /* the driver reports the margin */
	MARGIN_THRESHOLDS, /* the driver's temperature limit minus the temperature */
	MARGIN_OVERRIDE,   /* health_options.absolute_c minus the temperature */
	MARGIN_FALLBACK    /* health_options.fallback_c minus the temperature */
};

struct health_heat {
	struct {
		bool on;
		/* since when the GPU is cool enough to end the trip; 0: it is too warm */
		uint64_t cool_ns;
	} trip[TRIPS_ALL];
	enum margin_source source;
	double margin_c, temperature_c; /* from the last reading; NAN: unknown */
	unsigned criticals;             /* readings in a row with a margin of evict_c or less */
	bool hw_thermal;                /* the hardware slows the GPU down because of heat */
};

struct health_memory {
	unsigned flags;     /* set of the rows of memory_flags that are true now */
	double uncorrected; /* uncorrected errors at the last reading; NAN: unknown */
	struct {
		uint64_t ns; /* time of the reading; 0: there was none yet */
		double count;
	} corrected[2]; /* the count of corrected errors at an earlier and a later reading */
	/* number of new errors, and of minutes, since the earlier reading */
	double corrected_new, corrected_min;
};

/* An incident: events with less than SILENCE_NS between them. The worst event decides. */
struct health_incident {
	enum severity worst;
	bool undecided;    /* the recovery action was not read yet, so worst is not final */
	uint64_t event_ns; /* time of the last event */
	char why[240], advice[200]; /* what the worst event was, and what to do */
	unsigned xids, last_xid;    /* number of Xids since the start, and the last one */
};

/* Xids from before the start. */
struct health_past {
	/* Xids that wait for the first reading of the recovery action */
	struct health_event event[PASTS];
	unsigned events;
	unsigned xids, last_xid;
	uint64_t last_ns; /* time of the last Xid */
};

struct health_quarantine {
	bool on;
	/* since when nothing requires the quarantine; 0: something requires it */
	uint64_t clean_ns;
	char why[240], advice[200];
};

struct health {
	struct health_options o;
	enum health_level level;
	uint64_t since_ns;
	struct health_heat heat;
	struct health_memory memory;
	struct health_incident incident;
	struct health_past past;
	struct health_quarantine quarantine;

	bool answers; /* the GPU answered the last reading */
	bool fault;   /* the driver reports a hardware fault */
	char fault_why[200];

	uint64_t read_ns;  /* when the recovery action was last read; 0: never */
	bool action_known; /* the driver reports recovery actions */
	unsigned action;   /* the driver's recovery action; 0: none */
	/* since when a new recovery action is expected, because of an event; 0: none is
	 * expected */
	uint64_t awaited_ns;
};

static inline double health_value(const struct gw_device *d, unsigned q)
{
	double v = NAN;

	return gw_device_value(d, q, &v) == GW_HAVE ? v : NAN;
}

/* health.c */
void health_update_level(struct health *h, uint64_t now);

/* health_fault.c */
void health_fault_read(struct health *h, const struct gw_device *d, uint64_t now);
void health_fault_lost(struct health *h, const struct gw_device *d);
void health_fault_expire(struct health *h, uint64_t now); /* ends an incident that is over */
/* The checks in the table of rules in health.c. Each returns its level. If the level is not
 * HEALTH_OK, it also writes its finding to *f, which begins zeroed. */
enum health_level health_check_quarantine(const struct health *h, struct health_finding *f);
enum health_level health_check_incident(const struct health *h, struct health_finding *f);
enum health_level health_check_fault(const struct health *h, struct health_finding *f);
enum health_level health_check_memory_flags(const struct health *h, struct health_finding *f);
enum health_level health_check_memory_wear(const struct health *h, struct health_finding *f);

#endif
