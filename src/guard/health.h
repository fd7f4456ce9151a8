/* health: decides whether a GPU is healthy (GUARD.md, Heat and faults). Pure: it takes readings
 * and driver events and returns a level with its reason.
 *
 * The margin is the number of degrees to the thermal limit. A trip is a level of heat. It
 * begins when the margin falls to a certain value, and ends after the margin has been larger
 * for a while. An Xid is an error number of NVIDIA's driver (xid.def). The worst faults put a
 * GPU into quarantine: no worker may run there until the fault is gone. */
#ifndef GW_GUARD_HEALTH_H
#define GW_GUARD_HEALTH_H

#include <gpuward.h>

#include <stdbool.h>
#include <stdint.h>

/* What to do about an Xid. xid.def explains the classes. */
enum xid_class {
	XID_RESTART_APP,
	XID_RESET_GPU,
	XID_REBOOT,
	XID_RESTART_VM,
	XID_MECHANICS,
	XID_UVM,
	XID_UPDATE,
	XID_VENDOR,
	XID_IGNORE,
	XID_WORKFLOW,
	XID_RECOVERY,
	XID_UNKNOWN,
	XID_CLASSES
};
/* Replaces the class of one Xid in the table, such as "109=restart_app". */
struct xid_rule {
	unsigned xid;
	enum xid_class class;
};
/* Reads NUMBER=CLASS. Returns 0, or -GW_E_PARSE if the format is wrong or the class is
 * unknown. */
int xid_rule_read(const char *text, struct xid_rule *ret);
enum xid_class xid_class_of(unsigned xid);
const char *xid_class_name(unsigned c); /* "reset_gpu", ... */
const char *xid_text(unsigned xid);     /* NVIDIA's name for the Xid, or "unknown" */
const char *xid_table_version(void);    /* version of the Xid catalogue that xid.def follows */

#define HEALTH_XIDS 16 /* maximum number of xid_rule in the options */

struct health_options {
	/* the trips begin at these margins; defaults 10, 5, 2 */
	double warn_c, throttle_c, evict_c;
	/* a trip begins at a temperature; it ends when the GPU has been at least clear_c
	 * degrees (default 5) below that temperature for clear_ns (default 30 s) */
	double clear_c;
	uint64_t clear_ns;
	/* workers leave after this many readings in a row with a margin of evict_c or less
	 * (default 4) */
	unsigned critical;
	double absolute_c; /* workers leave at this temperature; default NAN: margins decide */
	/* temperature limit of a device that reports no limit (default 85) */
	double fallback_c;
	/* a quarantine ends after this time without a cause (default 60 s) */
	uint64_t clean_ns;
	struct xid_rule xid[HEALTH_XIDS];
	unsigned xids;
};
void health_options_init(struct health_options *o);

enum health_level { HEALTH_OK, HEALTH_WARN, HEALTH_THROTTLE, HEALTH_EVICT, HEALTH_QUARANTINE };

const char *health_level_name(unsigned level);

struct health_event {
	uint64_t mono_ns;
	uint64_t type; /* a bit of NVML's event types (enum abi_event) */
	uint64_t data; /* the number of an Xid */
};

struct health; /* the health of one GPU */

int health_new(const struct health_options *o, struct health **ret);
void health_free(struct health *h);
/* Changes the options; the state stays. */
void health_set_options(struct health *h, const struct health_options *o);

/* Add a reading (a device of a snapshot), or an event of the driver. */
void health_read(struct health *h, const struct gw_device *d, uint64_t now_ns);
void health_event(struct health *h, const struct health_event *e);

/* Adds an Xid that occurred before the service started. Such Xids are counted separately. If
 * the driver reports recovery actions, the recovery action decides whether the Xid still
 * matters. If the driver reports none, the Xid counts like a new one until it is three minutes
 * old. */
void health_past(struct health *h, const struct health_event *e);

/* Returns the class of an Xid: from the options of h, or from the table if the options do not
 * name the Xid. h may be NULL. */
enum xid_class health_xid_class(const struct health *h, unsigned xid);

/* Ends a quarantine because a person has fixed its cause. Returns 0, also if there is no
 * quarantine. Returns -GW_E_STATE with a sentence if the driver still requests a recovery
 * action, or if the GPU does not answer. */
int health_clear(struct health *h, uint64_t now_ns, char *message, size_t size);

/* One problem, in words. */
struct health_finding {
	char why[240];      /* one sentence; "" when healthy */
	char advice[200];   /* what to do; "": nothing */
	char clears[120];   /* what ends the problem, beginning with "when"; "": unknown */
	uint64_t clears_ns; /* earliest time at which the problem ends; 0: no timer runs */
};

struct health_status {
	enum health_level level;
	enum health_level heat; /* level by heat alone: HEALTH_OK to HEALTH_EVICT */
	bool thermal;           /* the GPU is so hot that workers must leave */
	bool warm;              /* the GPU is too warm for workers to return */
	bool quarantine;
	double margin_c;   /* degrees up to the thermal limit; NAN: unknown */
	double evict_at_c; /* temperature of the GPU at which workers leave; NAN: unknown */
	/* "margin", "thresholds", "override", "fallback"; "": unknown */
	const char *margin_source;
	uint64_t since_ns; /* when this level began; 0: unknown */
	/* how many Xids occurred since the start, and the last Xid; 0: none */
	unsigned xids, last_xid;
	/* how many Xids occurred before the start according to the kernel log, and the last of
	 * these Xids; 0: none */
	unsigned past_xids, last_past_xid;
	uint64_t last_past_ns;       /* time of last_past_xid */
	struct health_finding worst; /* the problem that determines the level */
};
void health_status(const struct health *h, uint64_t now_ns, struct health_status *ret);

/* The heat and the reasons that follow from the health, for the workers on the GPU. The caller
 * passes them to the guard after each reading and event. */
#define HEALTH_REASONS 2
struct health_meaning {
	unsigned heat;      /* set of enum guard_heat, for guard_set_heat() */
	char heat_why[240]; /* evidence for heat */
	struct {
		unsigned reason; /* enum guard_reason, for guard_set_reason() */
		bool on;
		struct health_finding found;
	} reason[HEALTH_REASONS];
};
void health_meaning(const struct health *h, uint64_t now_ns, struct health_meaning *ret);
/* Returns the time to the next reading: 10 s, or 1 s while the margin is small, the hardware
 * slows down because of heat, or a recovery action is awaited. A snapshot reads the HEALTH tier
 * (margin, recovery action) every 10 s and the FAST tier (temperature, hardware slowdown) each
 * time, and corrects the margin by the change of the temperature. */
uint64_t health_interval_ns(const struct health *h);

#endif
