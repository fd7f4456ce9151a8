#include "health.h"

#include "base/clock.h"
#include "device/nvml_abi.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a)      (sizeof(a) / sizeof((a)[0]))
#define SILENCE_NS    (180 * NS_PER_S) /* events closer than this are one incident */
#define SLOW_NS       (10 * NS_PER_S)
#define QUICK_NS      NS_PER_S
#define PASTS         8
#define RATE_NS       (1800 * NS_PER_S) /* corrected errors are counted over one or two of these */
#define RATE_WATCH    60                /* one a minute: far above what a sound board shows */
#define TIER_NS       (10 * NS_PER_S) /* what a snapshot tells of HEALTH may be as old */
#define HW_THERMAL    0x40u           /* of GW_Q_CLOCK_REASONS */
#define ANY_THERMAL   0x60u
#define THRESHOLD_LOW 40. /* a board that slows down below this does not exist */

/* What an event leads to, the worse the higher. */
enum verdict {
	VERDICT_NONE,
	VERDICT_REREAD,   /* the recovery action has changed                            */
	VERDICT_ALERT,    /* people are told                                            */
	VERDICT_ASK,      /* the recovery action decides; where it cannot be read: alert */
	VERDICT_ASK_HARD, /* ... quarantine                                             */
	VERDICT_QUARANTINE
};

static const struct {
	enum verdict verdict;
	const char *advice;
} classes[XID_CLASSES] = {
	[XID_RESTART_APP] = { VERDICT_ALERT, "Start the program that failed again; the GPU is "
					     "not at fault unless it repeats." },
	[XID_RESET_GPU] = { VERDICT_QUARANTINE,
			    "End what runs on it, then reset it: nvidia-smi "
			    "--gpu-reset -i UUID." },
	[XID_REBOOT] = { VERDICT_QUARANTINE,
			 "Reboot the machine; if it comes back, check power, "
			 "slot and cooling." },
	[XID_RESTART_VM] = { VERDICT_ALERT, "Restart the virtual machine." },
	[XID_MECHANICS] = { VERDICT_ALERT,
			    "Check the power cables and the seat of the board." },
	[XID_UVM] = { VERDICT_ALERT, "If programs use unified memory, reset the GPU." },
	[XID_UPDATE] = { VERDICT_ALERT, "Update the driver or the firmware." },
	[XID_VENDOR] = { VERDICT_QUARANTINE, "Contact the vendor with nvidia-bug-report.sh's "
					     "output." },
	[XID_IGNORE] = { VERDICT_NONE, "" },
	[XID_WORKFLOW] = { VERDICT_ASK, "Look at the kernel log for what came before it." },
	[XID_RECOVERY] = { VERDICT_REREAD, "" },
	[XID_UNKNOWN] = { VERDICT_ALERT,
			  "Look at the kernel log, and the number up in NVIDIA's "
			  "Xid catalogue." },
};

static const char *const drain_advice = "End what runs on it, then reset it.";

static const struct {
	uint64_t type;
	enum verdict verdict;
	const char *what, *advice;
} kinds[] = {
	{ ABI_EVENT_ECC_DOUBLE, VERDICT_ASK_HARD, "An uncorrectable memory error",
	  "End what runs on it, then reset it; results since the error may be wrong." },
	{ ABI_EVENT_ECC_STORM, VERDICT_ALERT, "A storm of corrected memory errors",
	  "Watch it; run the vendor's diagnosis if it repeats." },
	{ ABI_EVENT_DRAM_RETIRED, VERDICT_ALERT, "Memory was retired",
	  "Reset the GPU when convenient." },
	{ ABI_EVENT_DRAM_RETIRE_FAILED, VERDICT_ALERT, "Retiring memory failed",
	  "Run the vendor's diagnosis; the board may have to be replaced." },
	{ ABI_EVENT_POISON, VERDICT_ASK, "Poisoned data reached a program",
	  "Start the program that failed again." },
	{ ABI_EVENT_POISON_FATAL, VERDICT_ASK_HARD, "Poisoned data was not contained",
	  "End what runs on it, then reset it; results since may be wrong." },
	{ ABI_EVENT_GPU_UNAVAILABLE, VERDICT_QUARANTINE, "The driver says it is not available",
	  "Look at the kernel log; reset it or reboot." },
	{ ABI_EVENT_RECOVERY_ACTION, VERDICT_REREAD, "", "" },
};

static const struct {
	const char *what, *advice;
} actions[] = {
	[1] = { "reset the GPU", "End what runs on it, then: nvidia-smi --gpu-reset -i UUID." },
	[2] = { "reboot the machine", "Reboot the machine." },
	[3] = { "drain its peer-to-peer traffic",
		"End the programs that use it together with other GPUs." },
	[4] = { "drain and reset it", "Give it no new work, end what runs, then reset it." },
	[5] = { "recover the IMEX domain", "Restart the IMEX service of the domain." },
	[6] = { "reset its bus", "Reboot the machine, or reset the GPU's bus." },
	[7] = { "reboot the system", "Reboot the whole system." },
};

/* Flags of the memory, none of which forbids work. */
static const struct {
	unsigned quantity;
	const char *what, *advice;
} flags[] = {
	{ GW_Q_ROWS_FAILED, "Remapping a memory row failed: the board is worn",
	  "Run the vendor's diagnosis; the board may have to be replaced." },
	{ GW_Q_ROWS_PENDING, "A memory row waits to be remapped",
	  "Reset the GPU when convenient; work may go on." },
	{ GW_Q_PAGES_PENDING, "A memory page waits to be retired",
	  "Reload the driver or reboot when convenient; work may go on." },
	{ GW_Q_REPAIR_CHANNEL, "A memory channel waits to be repaired",
	  "Reset the GPU when convenient; work may go on." },
	{ GW_Q_REPAIR_TPC, "A multiprocessor waits to be repaired",
	  "Reset the GPU when convenient; work may go on." },
};

enum { TRIP_WARN, TRIP_THROTTLE, TRIP_EVICT, TRIPS };
static const enum health_level trip_level[TRIPS] = { HEALTH_WARN, HEALTH_THROTTLE,
						     HEALTH_EVICT };
static const char *const trip_advice[TRIPS] = {
	"Watch its cooling.",
	"New work is kept off it; check fans, filters and the room.",
	"Work is taken off it until it has cooled down; check fans, filters and the room.",
};

enum source { SOURCE_NONE, SOURCE_MARGIN, SOURCE_THRESHOLDS, SOURCE_OVERRIDE, SOURCE_FALLBACK };
static const char *const source_name[] = { "", "margin", "thresholds", "override", "fallback" };

struct trip {
	bool on;
	uint64_t cool_ns; /* since when it is cool enough; 0: it is not */
};

struct health {
	struct health_options o;
	enum health_level level;
	uint64_t since_ns;

	/* Heat. */
	struct trip trip[TRIPS];
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
	enum verdict worst;
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
	uint64_t clean_ns; /* since when nothing speaks for it; 0 */
	char why[240], advice[200];
};

void health_options_init(struct health_options *o)
{
	*o = (struct health_options){ .warn_c = 10,
				      .throttle_c = 5,
				      .evict_c = 2,
				      .clear_c = 5,
				      .clear_ns = 30 * NS_PER_S,
				      .critical = 4,
				      .absolute_c = NAN,
				      .fallback_c = 85,
				      .clean_ns = 60 * NS_PER_S };
}

const char *health_level_name(unsigned level)
{
	static const char *const names[] = { "ok", "warn", "throttle", "evict", "quarantine" };

	return level < COUNT(names) ? names[level] : "unknown";
}

int health_new(const struct health_options *o, struct health **ret)
{
	struct health *h = calloc(1, sizeof(*h));

	if (!h)
		return -GW_E_NOMEM;
	if (o)
		h->o = *o;
	else
		health_options_init(&h->o);
	h->margin_c = h->temperature_c = h->told_margin_c = h->told_at_c = NAN;
	h->uncorrected = NAN;
	*ret = h;
	return 0;
}

void health_free(struct health *h)
{
	free(h);
}

void health_set_options(struct health *h, const struct health_options *o)
{
	h->o = *o;
}

static double value(const struct gw_device *d, unsigned q)
{
	double v = NAN;

	return gw_device_value(d, q, &v) == GW_HAVE ? v : NAN;
}

/* ---- heat ---- */

static double smaller(double a, double b) /* of which either may be unknown */
{
	return isnan(a) || b < a ? b : a;
}

static double threshold(const struct gw_device *d, unsigned q)
{
	double v = value(d, q);

	return v >= THRESHOLD_LOW ? v : NAN;
}

/* Degrees to the nearest threshold that the device names; NAN: it names none. */
static double margin_of_thresholds(const struct gw_device *d)
{
	double limit = smaller(threshold(d, GW_Q_TEMPERATURE_GPU_MAX),
			       threshold(d, GW_Q_TEMPERATURE_SLOWDOWN));
	double memory =
		threshold(d, GW_Q_TEMPERATURE_MEMORY_MAX) - value(d, GW_Q_TEMPERATURE_MEMORY);

	return smaller(limit - value(d, GW_Q_TEMPERATURE_GPU), memory);
}

/* Some H100 tell a margin of 0 or less while they are cold. */
static bool contradicts(const struct health *h, const struct gw_device *d, double margin)
{
	double t = value(d, GW_Q_TEMPERATURE_GPU), other = margin_of_thresholds(d);
	double reasons = value(d, GW_Q_CLOCK_REASONS);

	if (margin > 0 || isnan(t))
		return false;
	if (!isnan(reasons) && ((unsigned)reasons & ANY_THERMAL))
		return false;
	if (isnan(other))
		other = h->o.fallback_c - t;
	return other > h->o.warn_c;
}

/* The driver's margin is as old as ten seconds, the temperature is of now: what that rose since is
 * taken off.  What it fell is not added: for that a new margin is awaited. */
static double margin_told(struct health *h, const struct gw_device *d, double margin,
			  uint64_t now)
{
	double t = value(d, GW_Q_TEMPERATURE_GPU);

	if (margin != h->told_margin_c || isnan(h->told_at_c) || now - h->told_ns >= TIER_NS) {
		h->told_margin_c = margin;
		h->told_at_c = t;
		h->told_ns = now;
	}
	return t > h->told_at_c ? margin - (t - h->told_at_c) : margin;
}

static void find_margin(struct health *h, const struct gw_device *d, uint64_t now)
{
	double t = value(d, GW_Q_TEMPERATURE_GPU), told = value(d, GW_Q_TEMPERATURE_MARGIN);
	double other = margin_of_thresholds(d);

	h->temperature_c = t;
	if (!isnan(h->o.absolute_c)) {
		h->source = SOURCE_OVERRIDE;
		h->margin_c = h->o.absolute_c - t;
	} else if (!isnan(told) && !contradicts(h, d, told)) {
		h->source = SOURCE_MARGIN;
		h->margin_c = margin_told(h, d, told, now);
	} else if (!isnan(other)) {
		h->source = SOURCE_THRESHOLDS;
		h->margin_c = other;
	} else {
		h->source = SOURCE_FALLBACK;
		h->margin_c = h->o.fallback_c - t;
	}
	if (isnan(h->margin_c))
		h->source = SOURCE_NONE;
}

/* Margin at which a trip trips; NAN: there is no such trip.  A plain number of degrees, ours or the
 * user's, is one limit and not three. */
static double trip_at(const struct health *h, unsigned i)
{
	const double own[TRIPS] = { h->o.warn_c, h->o.throttle_c, h->o.evict_c };

	if (h->source == SOURCE_OVERRIDE || h->source == SOURCE_FALLBACK)
		return i == TRIP_EVICT ? 0 : NAN;
	return own[i];
}

static void step_trip(struct health *h, unsigned i, bool hot, uint64_t now)
{
	struct trip *t = &h->trip[i];
	double at = trip_at(h, i);

	if (isnan(at)) {
		*t = (struct trip){ 0 };
		return;
	}
	if (hot)
		t->on = true;
	if (!t->on || hot || h->hw_thermal || !(h->margin_c >= at + h->o.clear_c))
		t->cool_ns = 0;
	else if (t->cool_ns == 0)
		t->cool_ns = now;
	else if (now - t->cool_ns >= h->o.clear_ns)
		*t = (struct trip){ 0 };
}

static void read_heat(struct health *h, const struct gw_device *d, uint64_t now)
{
	double reasons = value(d, GW_Q_CLOCK_REASONS);

	find_margin(h, d, now);
	h->hw_thermal = !isnan(reasons) && ((unsigned)reasons & HW_THERMAL);
	if (isnan(h->margin_c) && !h->hw_thermal) { /* as it was, and not cooler */
		for (unsigned i = 0; i < TRIPS; i++)
			h->trip[i].cool_ns = 0;
		return;
	}
	h->criticals = h->margin_c <= trip_at(h, TRIP_EVICT) ? h->criticals + 1 : 0;
	for (unsigned i = 0; i < TRIPS; i++) {
		bool hot = i == TRIP_EVICT ? h->criticals >= h->o.critical
					   : h->margin_c <= trip_at(h, i);

		step_trip(h, i, hot || h->hw_thermal, now);
	}
}

/* ---- quarantine ---- */

static void quarantine(struct health *h, const char *why, const char *advice)
{
	h->quarantine = true;
	h->clean_ns = 0;
	snprintf(h->why, sizeof(h->why), "%s", why);
	snprintf(h->advice, sizeof(h->advice), "%s", advice);
}

/* Without a recovery action nobody says that all is well: the incident must be over too. */
static uint64_t clean_for(const struct health *h)
{
	return h->action_known || h->o.clean_ns > SILENCE_NS ? h->o.clean_ns : SILENCE_NS;
}

static void end_quarantine(struct health *h, bool clean, uint64_t now)
{
	if (!clean) {
		h->clean_ns = 0;
	} else if (h->clean_ns == 0) {
		h->clean_ns = now;
	} else if (h->quarantine && now - h->clean_ns >= clean_for(h)) {
		h->quarantine = false;
		h->worst = VERDICT_NONE;
	}
}

static void read_action(struct health *h, const struct gw_device *d)
{
	double action = value(d, GW_Q_RECOVERY_ACTION);
	char why[200], before[40] = "";

	h->action_known = !isnan(action);
	h->action = isnan(action) ? 0 : (unsigned)action;
	if (h->action == 0)
		return;
	if (h->past_xids)
		snprintf(before, sizeof(before), ", after Xid %u", h->last_past_xid);
	if (h->action < COUNT(actions)) {
		snprintf(why, sizeof(why), "The driver asks to %s (recovery action %u%s).",
			 actions[h->action].what, h->action, before);
		quarantine(h, why, actions[h->action].advice);
	} else {
		snprintf(why, sizeof(why), "The driver asks for recovery action %u%s.",
			 h->action, before);
		quarantine(h, why,
			   "Look it up in NVIDIA's documents of the driver; a reset or "
			   "a reboot may be needed.");
	}
}

/* ---- events ---- */

static bool incident_over(const struct health *h, uint64_t now)
{
	return now >= h->event_ns && now - h->event_ns >= SILENCE_NS;
}

static void await_action(struct health *h, uint64_t now)
{
	h->awaited_ns = now;
}

/* What an ASK comes to, now that it is known whether there is a recovery action. */
static enum verdict decided(const struct health *h, enum verdict v)
{
	if (v == VERDICT_ASK_HARD && !h->action_known)
		return VERDICT_QUARANTINE;
	return v == VERDICT_ASK || v == VERDICT_ASK_HARD ? VERDICT_ALERT : v;
}

static void judge(struct health *h, enum verdict v, const char *why, const char *advice,
		  uint64_t now)
{
	bool asks = v == VERDICT_ASK || v == VERDICT_ASK_HARD;

	if (v == VERDICT_NONE)
		return;
	if (v == VERDICT_REREAD || asks)
		await_action(h, now);
	if (v == VERDICT_REREAD)
		return;
	if (incident_over(h, now))
		h->worst = VERDICT_NONE;
	h->event_ns = now;
	if (h->read)
		v = decided(h, v);
	if (v >= h->worst) {
		h->worst = v;
		snprintf(h->event_why, sizeof(h->event_why), "%s", why);
		snprintf(h->event_advice, sizeof(h->event_advice), "%s", advice);
	}
	h->undecided = h->undecided || (asks && !h->read);
	if (v == VERDICT_QUARANTINE)
		quarantine(h, why, advice);
}

static void decide(struct health *h)
{
	if (!h->undecided)
		return;
	h->undecided = false;
	h->worst = decided(h, h->worst);
	if (h->worst == VERDICT_QUARANTINE)
		quarantine(h, h->event_why, h->event_advice);
}

static enum xid_class class_of(const struct health *h, unsigned xid, const char **ret_text)
{
	*ret_text = xid_text(xid);
	for (unsigned i = 0; i < h->o.xids; i++)
		if (h->o.xid[i].xid == xid) {
			if (h->o.xid[i].text)
				*ret_text = h->o.xid[i].text;
			return h->o.xid[i].class;
		}
	return xid_class_of(xid);
}

static void judge_xid(struct health *h, unsigned xid, uint64_t now)
{
	const char *text, *advice;
	enum xid_class class = class_of(h, xid, &text);
	enum verdict v = classes[class].verdict;
	char why[200];

	advice = classes[class].advice;
	if (class == XID_WORKFLOW && xid == 48) {
		v = VERDICT_ASK_HARD;
		advice = drain_advice;
	}
	snprintf(why, sizeof(why), "Xid %u: %s.", xid, text);
	judge(h, v, why, advice, now);
}

static unsigned xid_of(const struct health_event *e)
{
	return e->data > UINT32_MAX ? UINT32_MAX : (unsigned)e->data;
}

static void take_xid(struct health *h, const struct health_event *e)
{
	h->xids++;
	h->last_xid = xid_of(e);
	judge_xid(h, h->last_xid, e->mono_ns);
}

/* A GPU that was reset or whose driver was loaded again since has no trace of it, and must not be kept
 * from work for it. */
static void judge_past(struct health *h, const struct health_event *e)
{
	bool over = h->read_ns > e->mono_ns && h->read_ns - e->mono_ns >= SILENCE_NS;

	if (!h->action_known && !over)
		judge_xid(h, xid_of(e), e->mono_ns);
}

static void read_past(struct health *h)
{
	for (unsigned i = 0; i < h->pasts; i++)
		judge_past(h, &h->past[i]);
	h->pasts = 0;
}

/* ---- memory ---- */

static void read_flags(struct health *h, const struct gw_device *d)
{
	for (unsigned i = 0; i < COUNT(flags); i++) {
		double v = value(d, flags[i].quantity);

		if (isnan(v))
			continue; /* as it was */
		if (v > 0)
			h->flag |= 1u << i;
		else
			h->flag &= ~(1u << i);
	}
}

/* Growth alone: what there was at the start is older than we are, and the recovery action tells
 * whether it still matters. */
static void read_errors(struct health *h, const struct gw_device *d, uint64_t now)
{
	double n = value(d, GW_Q_ECC_UNCORRECTED);
	char why[200];

	if (isnan(n))
		return;
	if (n > h->uncorrected) {
		snprintf(why, sizeof(why), "%.0f uncorrectable memory error%s since %.0f.",
			 n - h->uncorrected, n - h->uncorrected > 1 ? "s" : "", h->uncorrected);
		judge(h, VERDICT_ASK_HARD, why, drain_advice, now);
	}
	h->uncorrected = n;
}

/* Each of them was repaired; many in a short time are the sign of a board that wears out. */
static void read_corrected(struct health *h, const struct gw_device *d, uint64_t now)
{
	double n = value(d, GW_Q_ECC_CORRECTED);

	if (isnan(n))
		return;
	if (!h->corrected[0].ns || n < h->corrected[1].count) { /* the driver counts anew */
		for (unsigned i = 0; i < 2; i++) {
			h->corrected[i].ns = now;
			h->corrected[i].count = n;
		}
	} else if (now - h->corrected[1].ns >= RATE_NS) {
		h->corrected[0] = h->corrected[1];
		h->corrected[1].ns = now;
		h->corrected[1].count = n;
	}
	h->corrected_new = n - h->corrected[0].count;
	h->corrected_min = (double)(now - h->corrected[0].ns) / (60. * (double)NS_PER_S);
}

static bool wears(const struct health *h)
{
	return h->corrected_new >= RATE_WATCH;
}

/* ---- readings ---- */

static enum health_level level_of(const struct health *h)
{
	if (h->quarantine)
		return HEALTH_QUARANTINE;
	for (unsigned i = TRIPS; i-- > 0;)
		if (h->trip[i].on)
			return trip_level[i];
	return h->flag || h->fault || wears(h) || h->worst >= VERDICT_ALERT ? HEALTH_WARN
									    : HEALTH_OK;
}

static void settle(struct health *h, uint64_t now)
{
	enum health_level level = level_of(h);

	if (level != h->level || h->since_ns == 0)
		h->since_ns = now;
	h->level = level;
}

static void read_lost(struct health *h, const struct gw_device *d)
{
	char why[200];

	snprintf(why, sizeof(why), "The GPU is lost: %.150s.",
		 d->message && *d->message ? d->message : "the driver no longer reaches it");
	quarantine(h, why, "Look at the kernel log; reset it or reboot the machine.");
	h->margin_c = h->temperature_c = NAN;
	h->source = SOURCE_NONE;
}

static void read_well(struct health *h, const struct gw_device *d, uint64_t now)
{
	h->fault = d->state == GW_DEVICE_FAULT;
	if (h->fault)
		snprintf(h->fault_why, sizeof(h->fault_why), "%.190s",
			 d->message && *d->message ? d->message
						   : "The driver names a hardware fault.");
	read_action(h, d);
	h->read = true;
	h->read_ns = now;
	read_past(h);
	read_heat(h, d, now);
	read_flags(h, d);
	read_errors(h, d, now);
	read_corrected(h, d, now);
	decide(h);
	end_quarantine(h, h->action == 0, now);
}

/* Nothing can be said of it: what was known stays so. */
static void read_nothing(struct health *h)
{
	h->margin_c = h->temperature_c = NAN;
	h->source = SOURCE_NONE;
	h->clean_ns = 0;
	for (unsigned i = 0; i < TRIPS; i++)
		h->trip[i].cool_ns = 0;
}

void health_read(struct health *h, const struct gw_device *d, uint64_t now_ns)
{
	if (d->state == GW_DEVICE_LOST)
		read_lost(h, d);
	else if (d->state == GW_DEVICE_OK || d->state == GW_DEVICE_FAULT)
		read_well(h, d, now_ns);
	else
		read_nothing(h);
	if (h->worst && incident_over(h, now_ns))
		h->worst = VERDICT_NONE;
	if (h->awaited_ns && now_ns - h->awaited_ns > TIER_NS + QUICK_NS)
		h->awaited_ns = 0;
	settle(h, now_ns);
}

void health_event(struct health *h, const struct health_event *e)
{
	char why[200];

	if (e->type & ABI_EVENT_XID)
		take_xid(h, e);
	for (unsigned i = 0; i < COUNT(kinds); i++) {
		if (!(e->type & kinds[i].type))
			continue;
		snprintf(why, sizeof(why), "%s.", kinds[i].what);
		judge(h, kinds[i].verdict, why, kinds[i].advice, e->mono_ns);
	}
	settle(h, e->mono_ns);
}

void health_past(struct health *h, const struct health_event *e)
{
	if (!(e->type & ABI_EVENT_XID))
		return;
	h->past_xids++;
	h->last_past_xid = xid_of(e);
	h->last_past_ns = e->mono_ns;
	if (h->read) {
		judge_past(h, e);
		settle(h, h->read_ns);
		return;
	}
	if (h->pasts == PASTS) /* the latest are those that may matter */
		memmove(h->past, h->past + 1, --h->pasts * sizeof(h->past[0]));
	h->past[h->pasts++] = *e;
}

/* ---- what is told ---- */

static int hottest(const struct health *h)
{
	for (unsigned i = TRIPS; i-- > 0;)
		if (h->trip[i].on)
			return (int)i;
	return -1;
}

static void tell_heat(const struct health *h, int trip, struct health_status *s)
{
	const char *side = h->margin_c < 0 ? "above" : "below";
	char now[80] = "its temperature is not known now";

	if (!isnan(h->margin_c))
		snprintf(now, sizeof(now), "%.0f C %s its limit (%s), at %.0f C",
			 fabs(h->margin_c), side, source_name[h->source], h->temperature_c);
	if (!isnan(h->margin_c) && isnan(h->temperature_c))
		snprintf(now, sizeof(now), "%.0f C %s its limit (%s)", fabs(h->margin_c), side,
			 source_name[h->source]);
	snprintf(s->why, sizeof(s->why), "Too hot: %s%s.", now,
		 h->hw_thermal ? ", and the hardware slows itself down" : "");
	snprintf(s->advice, sizeof(s->advice), "%s", trip_advice[trip]);
	if (h->trip[trip].cool_ns)
		s->clears_ns = h->trip[trip].cool_ns + h->o.clear_ns;
}

static void tell_rest(const struct health *h, struct health_status *s)
{
	if (h->worst >= VERDICT_ALERT) {
		snprintf(s->why, sizeof(s->why), "%s", h->event_why);
		snprintf(s->advice, sizeof(s->advice), "%s", h->event_advice);
		s->clears_ns = h->event_ns + SILENCE_NS;
		return;
	}
	if (h->fault) {
		snprintf(s->why, sizeof(s->why), "%s", h->fault_why);
		snprintf(s->advice, sizeof(s->advice),
			 "Look at the kernel log; run the vendor's diagnosis.");
		return;
	}
	for (unsigned i = 0; i < COUNT(flags); i++)
		if (h->flag & 1u << i) {
			snprintf(s->why, sizeof(s->why), "%s.", flags[i].what);
			snprintf(s->advice, sizeof(s->advice), "%s", flags[i].advice);
			return;
		}
	if (wears(h)) {
		snprintf(s->why, sizeof(s->why), "%.0f corrected memory errors in %.0f min.",
			 h->corrected_new, ceil(h->corrected_min));
		snprintf(s->advice, sizeof(s->advice),
			 "Watch it; run the vendor's diagnosis if it goes on.");
	}
}

void health_status(const struct health *h, uint64_t now_ns, struct health_status *ret)
{
	int trip = hottest(h);

	*ret = (struct health_status){ .level = h->level,
				       .heat = trip >= 0 ? trip_level[trip] : HEALTH_OK,
				       .thermal = h->trip[TRIP_EVICT].on,
				       .quarantine = h->quarantine,
				       .margin_c = h->margin_c,
				       .margin_source = source_name[h->source],
				       .since_ns = h->since_ns,
				       .xids = h->xids,
				       .last_xid = h->last_xid,
				       .past_xids = h->past_xids,
				       .last_past_xid = h->last_past_xid,
				       .last_past_ns = h->last_past_ns };
	if (h->quarantine) {
		snprintf(ret->why, sizeof(ret->why), "%s", h->why);
		snprintf(ret->advice, sizeof(ret->advice), "%s", h->advice);
		if (h->clean_ns)
			ret->clears_ns = h->clean_ns + clean_for(h);
	} else if (trip >= 0) {
		tell_heat(h, trip, ret);
	} else {
		tell_rest(h, ret);
	}
	if (ret->clears_ns && ret->clears_ns < now_ns)
		ret->clears_ns = now_ns; /* it is due at the next reading */
}

uint64_t health_interval_ns(const struct health *h)
{
	return h->margin_c <= h->o.warn_c || h->hw_thermal || h->awaited_ns ? QUICK_NS
									    : SLOW_NS;
}
