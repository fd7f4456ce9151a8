/* health: is a GPU healthy (GUARD.md, Heat and faults)?  Pure: it takes readings and driver
 * events and returns a level with its reason.
 *
 * Xids are rows of xid.def.  A thermal trip has a margin, a hysteresis and a number of
 * readings.  A quarantine ends when its cause is gone. */
#ifndef GW_GUARD_HEALTH_H
#define GW_GUARD_HEALTH_H

#include <gpuward.h>

#include <stdbool.h>
#include <stdint.h>

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
/* Replaces a row of the table, such as "109=restart_app". */
struct xid_rule {
	unsigned xid;
	enum xid_class class;
};
/* 0, or -GW_E_PARSE: it is not NUMBER=CLASS with a known class. */
int xid_rule_read(const char *text, struct xid_rule *ret);
enum xid_class xid_class_of(unsigned xid);
const char *xid_class_name(unsigned c); /* "reset_gpu", ...                 */
const char *xid_text(unsigned xid);     /* NVIDIA's name for it; "unknown" */
const char *xid_table_version(void);    /* of the Xid catalogue that it follows */

#define HEALTH_XIDS 16

struct health_options {
	double warn_c, throttle_c, evict_c; /* margins: 10, 5, 2 */
	double clear_c;                     /* a trip clears this far above it: 5 */
	uint64_t clear_ns;                  /* ... and for this long: 30 s */
	unsigned critical;                  /* readings in a row that trip eviction: 4 */
	double absolute_c; /* temperature that replaces the margins; NAN: use margins */
	double fallback_c; /* temperature limit of a device without margins: 85 */
	uint64_t clean_ns; /* a quarantine ends after this long without a cause: 60 s */
	struct xid_rule xid[HEALTH_XIDS];
	unsigned xids;
};
void health_options_init(struct health_options *o);

enum health_level { HEALTH_OK, HEALTH_WARN, HEALTH_THROTTLE, HEALTH_EVICT, HEALTH_QUARANTINE };

/* "ok", "warn", "throttle", "evict", "quarantine" */
const char *health_level_name(unsigned level);

struct health_event {
	uint64_t mono_ns;
	uint64_t type; /* a bit of NVML's event types (enum abi_event) */
	uint64_t data; /* the number of an Xid */
};

struct health; /* of one GPU */

int health_new(const struct health_options *o, struct health **ret);
void health_free(struct health *h);
/* Changes the options; the state stays. */
void health_set_options(struct health *h, const struct health_options *o);

/* Takes a device of a snapshot, or an event of its driver. */
void health_read(struct health *h, const struct gw_device *d, uint64_t now_ns);
void health_event(struct health *h, const struct health_event *e);

/* Takes an Xid from before the start, with its own time; it is counted separately.  If the
 * driver has recovery actions, these say whether it still matters.  If not, it counts like a
 * new one until it is three minutes old. */
void health_past(struct health *h, const struct health_event *e);

/* From the options, else from the table; h may be NULL. */
enum xid_class health_xid_class(const struct health *h, unsigned xid);

/* Ends a quarantine because an operator has fixed its cause.  0, also if there is none;
 * -GW_E_STATE with a sentence: the driver still requests a recovery action, or the GPU does not
 * answer. */
int health_clear(struct health *h, uint64_t now_ns, char *message, size_t size);

/* One problem, in words. */
struct health_finding {
	char why[240];      /* one sentence; "" when healthy */
	char advice[200];   /* what to do; "" */
	char clears[120];   /* what ends it: "when ..."; "": unknown */
	uint64_t clears_ns; /* earliest end; 0: no timer runs */
};

struct health_status {
	enum health_level level;
	enum health_level heat; /* by heat alone: OK to EVICT */
	bool thermal;           /* the evict trip is on */
	bool warm;              /* too warm for workers to return */
	bool quarantine;
	double margin_c;   /* NAN: unknown */
	double evict_at_c; /* temperature of the GPU at which workers leave; NAN: unknown */
	const char *
		margin_source; /* "margin", "thresholds", "override", "fallback"; "": unknown */
	uint64_t since_ns;     /* of this level; 0: unknown */
	unsigned xids, last_xid;           /* since the start; 0 */
	unsigned past_xids, last_past_xid; /* before the start, from the kernel log */
	uint64_t last_past_ns;             /* time of that one */
	struct health_finding worst;
};
void health_status(const struct health *h, uint64_t now_ns, struct health_status *ret);

/* What it means for the workers on the GPU: inputs of the guard after each reading and
 * event. */
#define HEALTH_REASONS 2
struct health_meaning {
	unsigned heat; /* a set for guard_set_heat() */
	char heat_why[240];
	struct {
		unsigned reason; /* enum guard_reason, for guard_set_reason() */
		bool on;
		struct health_finding found;
	} reason[HEALTH_REASONS];
};
void health_meaning(const struct health *h, uint64_t now_ns, struct health_meaning *ret);
/* Time to the next reading: 10 s, or 1 s while the margin is small or a recovery action is
 * awaited.  A snapshot renews the HEALTH tier (margin, recovery action) every 10 s and FAST
 * (temperature, hardware slowdown) each time: a rise of the temperature since then is
 * subtracted from the margin. */
uint64_t health_interval_ns(const struct health *h);

#endif
