/* health: is a GPU well (GUARD.md, Heat and faults)?  Pure: fed with reports and driver events, asked for a verdict.
 *
 * Xids are rows of xid.def.  Thermal trips have a margin, a hysteresis and a number of readings; what
 * quarantined a GPU ends by itself when it is over. */
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
/* A row that takes the place of the table's, as of "109=restart_app". */
struct xid_rule {
	unsigned xid;
	enum xid_class class;
};
/* 0, or -GW_E_PARSE: it is not NUMBER=CLASS, or there is no such class. */
int xid_rule_read(const char *text, struct xid_rule *ret);
enum xid_class xid_class_of(unsigned xid);
const char *xid_class_name(unsigned c); /* "reset_gpu", ...                 */
const char *xid_text(unsigned xid);     /* what NVIDIA calls it; "unknown"  */
const char *xid_table_version(void);    /* of the catalogue that it follows */

#define HEALTH_XIDS 16

struct health_options {
	double warn_c, throttle_c, evict_c; /* margins: 10, 5, 2 */
	double clear_c;                     /* above the trip: 5 */
	uint64_t clear_ns;                  /* for so long: 30 s */
	unsigned critical;                  /* readings in a row: 4 */
	double absolute_c; /* override of the original key; NAN: the device's own margins */
	double fallback_c; /* where the device has none: 85 */
	uint64_t clean_ns; /* quarantine ends after this: 60 s */
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
	uint64_t data; /* of an Xid: its number */
};

struct health; /* of one GPU */

int health_new(const struct health_options *o, struct health **ret);
void health_free(struct health *h);
/* Other options; what is known stays. */
void health_set_options(struct health *h, const struct health_options *o);

/* A reading of the device (snapshot) or an event of its driver. */
void health_read(struct health *h, const struct gw_device *d, uint64_t now_ns);
void health_event(struct health *h, const struct health_event *e);

/* An Xid of before the start, with its own time.  It is counted apart.  Where the driver tells a recovery
 * action, that says whether it still matters; where it cannot, an Xid is judged by the table until it is
 * three minutes old, as it would be had we been there, and not after. */
void health_past(struct health *h, const struct health_event *e);

/* By the options, else by the table; h may be NULL. */
enum xid_class health_xid_class(const struct health *h, unsigned xid);

/* An operator says that a quarantine may end: he has seen to its cause.  Also 0 where there is none; -GW_E_STATE
 * with a sentence: the driver still asks for something, or the GPU does not answer. */
int health_clear(struct health *h, uint64_t now_ns, char *message, size_t size);

/* One thing that is the matter, in words. */
struct health_finding {
	char why[240];      /* one sentence; "" when well */
	char advice[200];   /* what to do; "" */
	char clears[120];   /* what ends it, by the options: "when ..."; "": it is not known */
	uint64_t clears_ns; /* it can end then at the earliest; 0: no timer runs for it */
};

struct health_status {
	enum health_level level;
	enum health_level heat; /* of heat alone: OK to EVICT */
	bool thermal;           /* the evict trip holds */
	bool warm;              /* not as cool as it must be for workers to come back */
	bool quarantine;
	double margin_c;   /* NAN: unknown */
	double evict_at_c; /* temperature of the GPU from which on workers leave; NAN: unknown */
	const char *
		margin_source; /* "margin", "thresholds", "override", "fallback"; "": unknown */
	uint64_t since_ns;     /* it has its level; 0: not known */
	unsigned xids, last_xid; /* since the start; 0 */
	unsigned past_xids,
		last_past_xid; /* of before the start, as far as the kernel's log tells */
	uint64_t last_past_ns; /* when that was */
	struct health_finding worst;
};
void health_status(const struct health *h, uint64_t now_ns, struct health_status *ret);

/* What it means for the workers on it, all of which the guard is told after each reading and event. */
#define HEALTH_REASONS 2
struct health_meaning {
	unsigned heat; /* a set for guard_set_heat() */
	char heat_why[240];
	struct {
		unsigned
			reason; /* enum guard_reason: for guard_set_reason() and guard_set_reason_end() */
		bool on;
		struct health_finding found;
	} reason[HEALTH_REASONS];
};
void health_meaning(const struct health *h, uint64_t now_ns, struct health_meaning *ret);
/* When to read it again: 10 s, or 1 s while the margin is small or a recovery action is awaited.  Of a
 * snapshot the HEALTH tier (margin, recovery action) is renewed every 10 s, FAST (temperature, HW
 * thermal) each time: what the temperature rose since is taken off the margin. */
uint64_t health_interval_ns(const struct health *h);

#endif
