/* health_fault: what is broken?  What drivers tell by events and by state, what each leads to, and the quarantine that
 * the worst of it means. */
#include "health_parts.h"

#include "device/nvml_abi.h"

#include <stdio.h>
#include <string.h>

#define SILENCE_NS (180 * NS_PER_S)  /* events closer than this are one incident */
#define RATE_NS    (1800 * NS_PER_S) /* corrected errors are counted over one or two of these */
#define RATE_WATCH 60                /* one a minute: far above what a sound board shows */

static const struct {
	enum ruling verdict;
	const char *advice;
} classes[XID_CLASSES] = {
	[XID_RESTART_APP] = { RULING_ALERT, "Start the program that failed again; the GPU is "
					    "not at fault unless it repeats." },
	[XID_RESET_GPU] = { RULING_QUARANTINE, "End what runs on it, then reset it: nvidia-smi "
					       "--gpu-reset -i UUID." },
	[XID_REBOOT] = { RULING_QUARANTINE,
			 "Reboot the machine; if it comes back, check power, "
			 "slot and cooling." },
	[XID_RESTART_VM] = { RULING_ALERT, "Restart the virtual machine." },
	[XID_MECHANICS] = { RULING_ALERT, "Check the power cables and the seat of the board." },
	[XID_UVM] = { RULING_ALERT, "If programs use unified memory, reset the GPU." },
	[XID_UPDATE] = { RULING_ALERT, "Update the driver or the firmware." },
	[XID_VENDOR] = { RULING_QUARANTINE, "Contact the vendor with nvidia-bug-report.sh's "
					    "output." },
	[XID_IGNORE] = { RULING_NONE, "" },
	[XID_WORKFLOW] = { RULING_ASK, "Look at the kernel log for what came before it." },
	[XID_RECOVERY] = { RULING_REREAD, "" },
	[XID_UNKNOWN] = { RULING_ALERT, "Look at the kernel log, and the number up in NVIDIA's "
					"Xid catalogue." },
};

static const char *const drain_advice = "End what runs on it, then reset it.";

static const struct {
	uint64_t type;
	enum ruling verdict;
	const char *what, *advice;
} kinds[] = {
	{ ABI_EVENT_ECC_DOUBLE, RULING_ASK_HARD, "An uncorrectable memory error",
	  "End what runs on it, then reset it; results since the error may be wrong." },
	{ ABI_EVENT_ECC_STORM, RULING_ALERT, "A storm of corrected memory errors",
	  "Watch it; run the vendor's diagnosis if it repeats." },
	{ ABI_EVENT_DRAM_RETIRED, RULING_ALERT, "Memory was retired",
	  "Reset the GPU when convenient." },
	{ ABI_EVENT_DRAM_RETIRE_FAILED, RULING_ALERT, "Retiring memory failed",
	  "Run the vendor's diagnosis; the board may have to be replaced." },
	{ ABI_EVENT_POISON, RULING_ASK, "Poisoned data reached a program",
	  "Start the program that failed again." },
	{ ABI_EVENT_POISON_FATAL, RULING_ASK_HARD, "Poisoned data was not contained",
	  "End what runs on it, then reset it; results since may be wrong." },
	{ ABI_EVENT_GPU_UNAVAILABLE, RULING_QUARANTINE, "The driver says it is not available",
	  "Look at the kernel log; reset it or reboot." },
	{ ABI_EVENT_RECOVERY_ACTION, RULING_REREAD, "", "" },
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
	{ GW_Q_ROWS_FAILED, "Remapping a memory row failed: the board is worn.",
	  "Run the vendor's diagnosis; the board may have to be replaced." },
	{ GW_Q_ROWS_PENDING, "A memory row waits to be remapped.",
	  "Reset the GPU when convenient; work may go on." },
	{ GW_Q_PAGES_PENDING, "A memory page waits to be retired.",
	  "Reload the driver or reboot when convenient; work may go on." },
	{ GW_Q_REPAIR_CHANNEL, "A memory channel waits to be repaired.",
	  "Reset the GPU when convenient; work may go on." },
	{ GW_Q_REPAIR_TPC, "A multiprocessor waits to be repaired.",
	  "Reset the GPU when convenient; work may go on." },
};

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
		h->worst = RULING_NONE;
	}
}

static void read_action(struct health *h, const struct gw_device *d)
{
	double action = health_value(d, GW_Q_RECOVERY_ACTION);
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
static enum ruling decided(const struct health *h, enum ruling v)
{
	if (v == RULING_ASK_HARD && !h->action_known)
		return RULING_QUARANTINE;
	return v == RULING_ASK || v == RULING_ASK_HARD ? RULING_ALERT : v;
}

static void judge(struct health *h, enum ruling v, const char *why, const char *advice,
		  uint64_t now)
{
	bool asks = v == RULING_ASK || v == RULING_ASK_HARD;

	if (v == RULING_NONE)
		return;
	if (v == RULING_REREAD || asks)
		await_action(h, now);
	if (v == RULING_REREAD)
		return;
	if (incident_over(h, now))
		h->worst = RULING_NONE;
	h->event_ns = now;
	if (h->read)
		v = decided(h, v);
	if (v >= h->worst) {
		h->worst = v;
		snprintf(h->event_why, sizeof(h->event_why), "%s", why);
		snprintf(h->event_advice, sizeof(h->event_advice), "%s", advice);
	}
	h->undecided = h->undecided || (asks && !h->read);
	if (v == RULING_QUARANTINE)
		quarantine(h, why, advice);
}

static void decide(struct health *h)
{
	if (!h->undecided)
		return;
	h->undecided = false;
	h->worst = decided(h, h->worst);
	if (h->worst == RULING_QUARANTINE)
		quarantine(h, h->event_why, h->event_advice);
}

enum xid_class health_xid_class(const struct health *h, unsigned xid)
{
	for (unsigned i = 0; h && i < h->o.xids; i++)
		if (h->o.xid[i].xid == xid)
			return h->o.xid[i].class;
	return xid_class_of(xid);
}

static void judge_xid(struct health *h, unsigned xid, uint64_t now)
{
	enum xid_class class = health_xid_class(h, xid);
	enum ruling v = classes[class].verdict;
	const char *advice = classes[class].advice;
	char why[200];

	if (class == XID_WORKFLOW && xid == 48) {
		v = RULING_ASK_HARD;
		advice = drain_advice;
	}
	snprintf(why, sizeof(why), "Xid %u: %s.", xid, xid_text(xid));
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
		double v = health_value(d, flags[i].quantity);

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
	double n = health_value(d, GW_Q_ECC_UNCORRECTED);
	char why[200];

	if (isnan(n))
		return;
	if (n > h->uncorrected) {
		snprintf(why, sizeof(why), "%.0f uncorrectable memory error%s since %.0f.",
			 n - h->uncorrected, n - h->uncorrected > 1 ? "s" : "", h->uncorrected);
		judge(h, RULING_ASK_HARD, why, drain_advice, now);
	}
	h->uncorrected = n;
}

/* Each of them was repaired; many in a short time are the sign of a board that wears out. */
static void read_corrected(struct health *h, const struct gw_device *d, uint64_t now)
{
	double n = health_value(d, GW_Q_ECC_CORRECTED);

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

/* ---- readings ---- */

void health_fault_lost(struct health *h, const struct gw_device *d)
{
	char why[200];

	snprintf(why, sizeof(why), "The GPU is lost: %.150s.",
		 d->message && *d->message ? d->message : "the driver no longer reaches it");
	quarantine(h, why, "Look at the kernel log; reset it or reboot the machine.");
}

void health_fault_read(struct health *h, const struct gw_device *d, uint64_t now)
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
	read_flags(h, d);
	read_errors(h, d, now);
	read_corrected(h, d, now);
	decide(h);
	end_quarantine(h, h->action == 0, now);
}

void health_fault_forget(struct health *h, uint64_t now)
{
	if (h->worst && incident_over(h, now))
		h->worst = RULING_NONE;
	if (h->awaited_ns && now - h->awaited_ns > TIER_NS + QUICK_NS)
		h->awaited_ns = 0;
}

int health_clear(struct health *h, uint64_t now_ns, char *message, size_t size)
{
	if (!h->quarantine)
		return 0;
	if (h->action || !h->answers) {
		snprintf(message, size, "%s", h->answers ? h->why : "The GPU does not answer.");
		return -GW_E_STATE;
	}
	h->quarantine = h->undecided = false;
	h->worst = RULING_NONE;
	h->clean_ns = 0;
	health_settle(h, now_ns);
	return 0;
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
	health_settle(h, e->mono_ns);
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
		health_settle(h, h->read_ns);
		return;
	}
	if (h->pasts == PASTS) /* the latest are those that may matter */
		memmove(h->past, h->past + 1, --h->pasts * sizeof(h->past[0]));
	h->past[h->pasts++] = *e;
}

/* ---- what is told ---- */

static void say(struct health_finding *f, const char *why, const char *advice)
{
	snprintf(f->why, sizeof(f->why), "%s", why);
	snprintf(f->advice, sizeof(f->advice), "%s", advice);
}

static enum health_level warns(bool on)
{
	return on ? HEALTH_WARN : HEALTH_OK;
}

enum health_level health_quarantine_level(const struct health *h)
{
	return h->quarantine ? HEALTH_QUARANTINE : HEALTH_OK;
}

void health_quarantine_tell(const struct health *h, struct health_finding *f)
{
	say(f, h->why, h->advice);
	snprintf(f->clears, sizeof(f->clears),
		 "when the driver has been clean for %g s, or by gpuward guard clear",
		 (double)clean_for(h) / (double)NS_PER_S);
	if (h->clean_ns)
		f->clears_ns = h->clean_ns + clean_for(h);
}

enum health_level health_incident_level(const struct health *h)
{
	return warns(h->worst >= RULING_ALERT);
}

void health_incident_tell(const struct health *h, struct health_finding *f)
{
	say(f, h->event_why, h->event_advice);
	snprintf(f->clears, sizeof(f->clears), "when nothing has come for %g s",
		 (double)SILENCE_NS / (double)NS_PER_S);
	f->clears_ns = h->event_ns + SILENCE_NS;
}

enum health_level health_fault_level(const struct health *h)
{
	return warns(h->fault);
}

void health_fault_tell(const struct health *h, struct health_finding *f)
{
	say(f, h->fault_why, "Look at the kernel log; run the vendor's diagnosis.");
}

enum health_level health_flags_level(const struct health *h)
{
	return warns(h->flag);
}

void health_flags_tell(const struct health *h, struct health_finding *f)
{
	unsigned i = 0;

	while (!(h->flag & 1u << i))
		i++;
	say(f, flags[i].what, flags[i].advice);
}

enum health_level health_wear_level(const struct health *h)
{
	return warns(h->corrected_new >= RATE_WATCH);
}

void health_wear_tell(const struct health *h, struct health_finding *f)
{
	char why[120];

	snprintf(why, sizeof(why), "%.0f corrected memory errors in %.0f min.",
		 h->corrected_new, ceil(h->corrected_min));
	say(f, why, "Watch it; run the vendor's diagnosis if it goes on.");
}
