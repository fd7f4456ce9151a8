/* Handles faults: Xids, other events and states that drivers report. The tables say what each
 * of them causes. The worst faults cause a quarantine. */
#include "health_internal.h"

#include "device/nvml_abi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SILENCE_NS (180 * NS_PER_S) /* events with less time between them are one incident */
/* corrected errors are counted since a reading that is one to two such periods old: once per
 * period, a new reading replaces the older of two stored readings */
#define RATE_NS   (1800 * NS_PER_S)
#define RATE_WARN 60 /* this many corrected errors cause a warning; good boards have few */

struct xid_row {
	unsigned xid;
	enum xid_class class;
	const char *text;
};

static const struct xid_row xid_rows[] = {
#define XID_TABLE(version)
#define X(number, class, text) { number, XID_##class, text },
#include "xid.def"
#undef X
#undef XID_TABLE
};

static const char *const xid_class_names[XID_CLASSES] = {
	[XID_RESTART_APP] = "restart_app", [XID_RESET_GPU] = "reset_gpu",
	[XID_REBOOT] = "reboot",           [XID_RESTART_VM] = "restart_vm",
	[XID_MECHANICS] = "mechanics",     [XID_UVM] = "uvm",
	[XID_UPDATE] = "update",           [XID_VENDOR] = "vendor",
	[XID_IGNORE] = "ignore",           [XID_WORKFLOW] = "workflow",
	[XID_RECOVERY] = "recovery",       [XID_UNKNOWN] = "unknown",
};

static int compare_xid(const void *key, const void *row)
{
	unsigned a = *(const unsigned *)key, b = ((const struct xid_row *)row)->xid;

	return (a > b) - (a < b);
}

static const struct xid_row *find_xid(unsigned xid)
{
	return bsearch(&xid, xid_rows, COUNT(xid_rows), sizeof(xid_rows[0]), compare_xid);
}

enum xid_class xid_class_of(unsigned xid)
{
	const struct xid_row *r = find_xid(xid);

	return r ? r->class : XID_UNKNOWN;
}

const char *xid_text(unsigned xid)
{
	const struct xid_row *r = find_xid(xid);

	return r ? r->text : "unknown";
}

const char *xid_class_name(unsigned c)
{
	return c < XID_CLASSES ? xid_class_names[c] : "unknown";
}

int xid_rule_read(const char *text, struct xid_rule *ret)
{
	char *end;
	unsigned long xid;

	if (*text < '0' || *text > '9')
		return -GW_E_PARSE;
	xid = strtoul(text, &end, 10);
	if (*end != '=' || xid > UINT32_MAX)
		return -GW_E_PARSE;
	for (unsigned i = 0; i < XID_CLASSES; i++)
		if (strcmp(xid_class_names[i], end + 1) == 0) {
			*ret = (struct xid_rule){ (unsigned)xid, (enum xid_class)i };
			return 0;
		}
	return -GW_E_PARSE;
}

const char *xid_table_version(void)
{
#define XID_TABLE(version) version
#define X(number, class, text)
	return
#include "xid.def"
		;
#undef X
#undef XID_TABLE
}

static const struct {
	enum severity severity;
	const char *advice;
} classes[XID_CLASSES] = {
	[XID_RESTART_APP] = { SEVERITY_ALERT, "Start the failed program again; if the error "
					      "repeats, the GPU may be faulty." },
	[XID_RESET_GPU] = { SEVERITY_QUARANTINE,
			    "Stop the programs on the GPU, then reset the GPU: "
			    "nvidia-smi --gpu-reset -i UUID." },
	[XID_REBOOT] = { SEVERITY_QUARANTINE, "Reboot the machine; if the error repeats, check "
					      "power, slot and cooling." },
	[XID_RESTART_VM] = { SEVERITY_ALERT, "Restart the virtual machine." },
	[XID_MECHANICS] = { SEVERITY_ALERT,
			    "Check the power cables and the seat of the board." },
	[XID_UVM] = { SEVERITY_ALERT, "If programs use unified memory, reset the GPU." },
	[XID_UPDATE] = { SEVERITY_ALERT, "Update the driver or the firmware." },
	[XID_VENDOR] = { SEVERITY_QUARANTINE,
			 "Contact the vendor with the output of nvidia-bug-report.sh." },
	[XID_IGNORE] = { SEVERITY_NONE, "" },
	[XID_WORKFLOW] = { SEVERITY_ACTION_OR_ALERT,
			   "See the kernel log for an earlier error." },
	[XID_RECOVERY] = { SEVERITY_REREAD, "" },
	[XID_UNKNOWN] = { SEVERITY_ALERT, "See the kernel log, and look the number up in "
					  "NVIDIA's Xid catalogue." },
};

static const char *const drain_advice = "Stop the programs on the GPU, then reset the GPU.";

static const struct {
	uint64_t type;
	enum severity severity;
	const char *what, *advice;
} events[] = {
	{ ABI_EVENT_ECC_DOUBLE, SEVERITY_ACTION_OR_QUARANTINE,
	  "An uncorrectable memory error occurred",
	  "Stop the programs on the GPU, then reset the GPU; results since the error may be "
	  "wrong." },
	{ ABI_EVENT_ECC_STORM, SEVERITY_ALERT, "Many corrected memory errors occurred",
	  "Watch the GPU; run the vendor's diagnostics if the errors repeat." },
	{ ABI_EVENT_DRAM_RETIRED, SEVERITY_ALERT, "Memory was retired",
	  "Reset the GPU when convenient." },
	{ ABI_EVENT_DRAM_RETIRE_FAILED, SEVERITY_ALERT, "Retiring memory failed",
	  "Run the vendor's diagnostics; the board may have to be replaced." },
	{ ABI_EVENT_POISON, SEVERITY_ACTION_OR_ALERT, "Poisoned data reached a program",
	  "Start the failed program again." },
	{ ABI_EVENT_POISON_FATAL, SEVERITY_ACTION_OR_QUARANTINE,
	  "Poisoned data was not contained",
	  "Stop the programs on the GPU, then reset the GPU; results since the error may be "
	  "wrong." },
	{ ABI_EVENT_GPU_UNAVAILABLE, SEVERITY_QUARANTINE,
	  "The driver reports the GPU as unavailable",
	  "See the kernel log; reset the GPU or reboot the machine." },
	{ ABI_EVENT_RECOVERY_ACTION, SEVERITY_REREAD, "", "" },
};

static const struct {
	const char *what, *advice;
} actions[] = {
	[1] = { "reset the GPU",
		"Stop the programs on it, then: nvidia-smi --gpu-reset -i UUID." },
	[2] = { "reboot the machine", "Reboot the machine." },
	[3] = { "drain the GPU's peer-to-peer traffic",
		"Stop the programs that use it together with other GPUs." },
	[4] = { "drain and reset the GPU", "Start no new program on the GPU, stop the programs "
					   "on it, then reset the GPU." },
	[5] = { "recover the IMEX domain", "Restart the IMEX service of the domain." },
	[6] = { "reset the GPU's bus", "Reboot the machine, or reset the GPU's bus." },
	[7] = { "reboot the system", "Reboot the whole system." },
};

/* States of the memory and of multiprocessors. Each causes only a warning. */
static const struct {
	unsigned quantity;
	const char *what, *advice;
} memory_flags[] = {
	{ GW_Q_ROWS_FAILED, "Remapping a memory row failed: the board is worn out.",
	  "Run the vendor's diagnostics; the board may have to be replaced." },
	{ GW_Q_ROWS_PENDING, "A memory row waits to be remapped.",
	  "Reset the GPU when convenient; work may continue." },
	{ GW_Q_PAGES_PENDING, "A memory page waits to be retired.",
	  "Reload the driver or reboot when convenient; work may continue." },
	{ GW_Q_REPAIR_CHANNEL, "A memory channel waits to be repaired.",
	  "Reset the GPU when convenient; work may continue." },
	{ GW_Q_REPAIR_TPC, "A multiprocessor waits to be repaired.",
	  "Reset the GPU when convenient; work may continue." },
};

static void begin_quarantine(struct health *h, const char *why, const char *advice)
{
	struct health_quarantine *q = &h->quarantine;

	q->on = true;
	q->clean_ns = 0;
	snprintf(q->why, sizeof(q->why), "%s", why);
	snprintf(q->advice, sizeof(q->advice), "%s", advice);
}

/* Returns how long the driver must report no problem before a quarantine ends. A driver without
 * recovery actions cannot report that the GPU is well again. In that case at least SILENCE_NS
 * must pass, so that the incident has ended too. */
static uint64_t clean_ns(const struct health *h)
{
	return h->action_known || h->o.clean_ns > SILENCE_NS ? h->o.clean_ns : SILENCE_NS;
}

static void update_quarantine(struct health *h, bool clean, uint64_t now)
{
	struct health_quarantine *q = &h->quarantine;

	if (!clean) {
		q->clean_ns = 0;
	} else if (q->clean_ns == 0) {
		q->clean_ns = now;
	} else if (q->on && now - q->clean_ns >= clean_ns(h)) {
		q->on = false;
		h->incident.worst = SEVERITY_NONE;
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
	if (h->past.xids)
		snprintf(before, sizeof(before), ", after Xid %u", h->past.last_xid);
	if (h->action < COUNT(actions)) {
		snprintf(why, sizeof(why), "The driver asks to %s (recovery action %u%s).",
			 actions[h->action].what, h->action, before);
		begin_quarantine(h, why, actions[h->action].advice);
	} else {
		snprintf(why, sizeof(why), "The driver asks for recovery action %u%s.",
			 h->action, before);
		begin_quarantine(
			h, why,
			"See NVIDIA's documentation of the driver; a reset or a reboot may "
			"be needed.");
	}
}

static bool incident_over(const struct health *h, uint64_t now)
{
	return now >= h->incident.event_ns && now - h->incident.event_ns >= SILENCE_NS;
}

/* Returns what an event with severity s causes. Call it only after the first reading, which
 * shows whether the driver reports recovery actions. */
static enum severity decided(const struct health *h, enum severity s)
{
	if (s == SEVERITY_ACTION_OR_QUARANTINE && !h->action_known)
		return SEVERITY_QUARANTINE;
	return s == SEVERITY_ACTION_OR_ALERT || s == SEVERITY_ACTION_OR_QUARANTINE
		       ? SEVERITY_ALERT
		       : s;
}

static void add_event(struct health *h, enum severity s, const char *why, const char *advice,
		      uint64_t now)
{
	bool by_action = s == SEVERITY_ACTION_OR_ALERT || s == SEVERITY_ACTION_OR_QUARANTINE;
	struct health_incident *i = &h->incident;

	if (s == SEVERITY_REREAD || by_action)
		h->awaited_ns = now;
	if (s == SEVERITY_NONE || s == SEVERITY_REREAD)
		return;
	if (incident_over(h, now))
		i->worst = SEVERITY_NONE;
	i->event_ns = now;
	if (h->read_ns)
		s = decided(h, s);
	if (s >= i->worst) {
		i->worst = s;
		snprintf(i->why, sizeof(i->why), "%s", why);
		snprintf(i->advice, sizeof(i->advice), "%s", advice);
	}
	i->undecided = i->undecided || (by_action && !h->read_ns);
	if (s == SEVERITY_QUARANTINE)
		begin_quarantine(h, why, advice);
}

static void decide_incident(struct health *h)
{
	struct health_incident *i = &h->incident;

	if (!i->undecided)
		return;
	i->undecided = false;
	i->worst = decided(h, i->worst);
	if (i->worst == SEVERITY_QUARANTINE)
		begin_quarantine(h, i->why, i->advice);
}

enum xid_class health_xid_class(const struct health *h, unsigned xid)
{
	for (unsigned i = 0; h && i < h->o.xids; i++)
		if (h->o.xid[i].xid == xid)
			return h->o.xid[i].class;
	return xid_class_of(xid);
}

static void add_xid(struct health *h, unsigned xid, uint64_t now)
{
	enum xid_class class = health_xid_class(h, xid);
	enum severity s = classes[class].severity;
	const char *advice = classes[class].advice;
	char why[200];

	if (class == XID_WORKFLOW && xid == 48) {
		s = SEVERITY_ACTION_OR_QUARANTINE;
		advice = drain_advice;
	}
	snprintf(why, sizeof(why), "Xid %u: %s.", xid, xid_text(xid));
	add_event(h, s, why, advice, now);
}

static unsigned event_xid(const struct health_event *e)
{
	return e->data > UINT32_MAX ? UINT32_MAX : (unsigned)e->data;
}

/* Adds an Xid from before the service started. After the Xid, someone may have reset the GPU or
 * loaded its driver again; then the Xid must not put the GPU into quarantine. So the recovery
 * action of the driver decides whether the Xid still counts. If the driver reports no recovery
 * action, only an Xid younger than SILENCE_NS counts. */
static void add_past(struct health *h, const struct health_event *e)
{
	bool over = h->read_ns > e->mono_ns && h->read_ns - e->mono_ns >= SILENCE_NS;

	if (!h->action_known && !over)
		add_xid(h, event_xid(e), e->mono_ns);
}

static void add_all_past(struct health *h)
{
	for (unsigned i = 0; i < h->past.events; i++)
		add_past(h, &h->past.event[i]);
	h->past.events = 0;
}

static void read_flags(struct health *h, const struct gw_device *d)
{
	for (unsigned i = 0; i < COUNT(memory_flags); i++) {
		double v = health_value(d, memory_flags[i].quantity);

		if (isnan(v))
			continue; /* not read now, so the last value stays */
		if (v > 0)
			h->memory.flags |= 1u << i;
		else
			h->memory.flags &= ~(1u << i);
	}
}

/* Counts only errors since the start. For earlier errors the recovery action decides whether
 * they still matter. */
static void read_errors(struct health *h, const struct gw_device *d, uint64_t now)
{
	double n = health_value(d, GW_Q_ECC_UNCORRECTED);
	char why[200];

	if (isnan(n))
		return;
	if (n > h->memory.uncorrected) {
		snprintf(why, sizeof(why),
			 "%.0f new uncorrectable memory error%s; there were %.0f before.",
			 n - h->memory.uncorrected, n - h->memory.uncorrected > 1 ? "s" : "",
			 h->memory.uncorrected);
		add_event(h, SEVERITY_ACTION_OR_QUARANTINE, why, drain_advice, now);
	}
	h->memory.uncorrected = n;
}

/* Counts corrected errors. Many in a short time are a sign that the board wears out. */
static void read_corrected(struct health *h, const struct gw_device *d, uint64_t now)
{
	double n = health_value(d, GW_Q_ECC_CORRECTED);
	struct health_memory *m = &h->memory;

	if (isnan(n))
		return;
	if (!m->corrected[0].ns ||
	    n < m->corrected[1].count) { /* the first reading, or the driver began again at 0 */
		for (unsigned i = 0; i < 2; i++) {
			m->corrected[i].ns = now;
			m->corrected[i].count = n;
		}
	} else if (now - m->corrected[1].ns >= RATE_NS) {
		m->corrected[0] = m->corrected[1];
		m->corrected[1].ns = now;
		m->corrected[1].count = n;
	}
	m->corrected_new = n - m->corrected[0].count;
	m->corrected_min = (double)(now - m->corrected[0].ns) / (60. * (double)NS_PER_S);
}

void health_fault_lost(struct health *h, const struct gw_device *d)
{
	char why[200];

	snprintf(why, sizeof(why), "The GPU is lost: %.150s.",
		 d->message && *d->message ? d->message : "the driver no longer reaches it");
	begin_quarantine(h, why, "See the kernel log; reset the GPU or reboot the machine.");
}

void health_fault_read(struct health *h, const struct gw_device *d, uint64_t now)
{
	h->fault = d->state == GW_DEVICE_FAULT;
	if (h->fault)
		snprintf(h->fault_why, sizeof(h->fault_why), "%.190s",
			 d->message && *d->message ? d->message
						   : "The driver reports a hardware fault.");
	read_action(h, d);
	h->read_ns = now;
	add_all_past(h);
	read_flags(h, d);
	read_errors(h, d, now);
	read_corrected(h, d, now);
	decide_incident(h);
	update_quarantine(h, h->action == 0, now);
}

void health_fault_expire(struct health *h, uint64_t now)
{
	if (h->incident.worst && incident_over(h, now))
		h->incident.worst = SEVERITY_NONE;
	if (h->awaited_ns && now - h->awaited_ns > TIER_NS + QUICK_NS)
		h->awaited_ns = 0;
}

int health_clear(struct health *h, uint64_t now_ns, char *message, size_t size)
{
	if (!h->quarantine.on)
		return 0;
	if (h->action || !h->answers) {
		snprintf(message, size, "%s",
			 h->answers ? h->quarantine.why : "The GPU does not answer.");
		return -GW_E_STATE;
	}
	h->quarantine.on = h->incident.undecided = false;
	h->incident.worst = SEVERITY_NONE;
	h->quarantine.clean_ns = 0;
	health_update_level(h, now_ns);
	return 0;
}

void health_event(struct health *h, const struct health_event *e)
{
	char why[200];

	if (e->type & ABI_EVENT_XID) {
		h->incident.xids++;
		h->incident.last_xid = event_xid(e);
		add_xid(h, h->incident.last_xid, e->mono_ns);
	}
	for (unsigned i = 0; i < COUNT(events); i++) {
		if (!(e->type & events[i].type))
			continue;
		snprintf(why, sizeof(why), "%s.", events[i].what);
		add_event(h, events[i].severity, why, events[i].advice, e->mono_ns);
	}
	health_update_level(h, e->mono_ns);
}

void health_past(struct health *h, const struct health_event *e)
{
	struct health_past *p = &h->past;

	if (!(e->type & ABI_EVENT_XID))
		return;
	p->xids++;
	p->last_xid = event_xid(e);
	p->last_ns = e->mono_ns;
	if (h->read_ns) {
		add_past(h, e);
		health_update_level(h, h->read_ns);
		return;
	}
	if (p->events == PASTS) /* drop the oldest */
		memmove(p->event, p->event + 1, --p->events * sizeof(p->event[0]));
	p->event[p->events++] = *e;
}

static void set_finding(struct health_finding *f, const char *why, const char *advice)
{
	snprintf(f->why, sizeof(f->why), "%s", why);
	snprintf(f->advice, sizeof(f->advice), "%s", advice);
}

enum health_level health_check_quarantine(const struct health *h, struct health_finding *f)
{
	if (!h->quarantine.on)
		return HEALTH_OK;
	set_finding(f, h->quarantine.why, h->quarantine.advice);
	snprintf(f->clears, sizeof(f->clears),
		 "when the driver has reported no problem for %g s, or by gpuward guard clear",
		 (double)clean_ns(h) / (double)NS_PER_S);
	if (h->quarantine.clean_ns)
		f->clears_ns = h->quarantine.clean_ns + clean_ns(h);
	return HEALTH_QUARANTINE;
}

enum health_level health_check_incident(const struct health *h, struct health_finding *f)
{
	if (h->incident.worst < SEVERITY_ALERT)
		return HEALTH_OK;
	set_finding(f, h->incident.why, h->incident.advice);
	snprintf(f->clears, sizeof(f->clears), "when there has been no further event for %g s",
		 (double)SILENCE_NS / (double)NS_PER_S);
	f->clears_ns = h->incident.event_ns + SILENCE_NS;
	return HEALTH_WARN;
}

enum health_level health_check_fault(const struct health *h, struct health_finding *f)
{
	if (!h->fault)
		return HEALTH_OK;
	set_finding(f, h->fault_why, "See the kernel log; run the vendor's diagnostics.");
	return HEALTH_WARN;
}

enum health_level health_check_memory_flags(const struct health *h, struct health_finding *f)
{
	for (unsigned i = 0; i < COUNT(memory_flags); i++)
		if (h->memory.flags & 1u << i) {
			set_finding(f, memory_flags[i].what, memory_flags[i].advice);
			return HEALTH_WARN;
		}
	return HEALTH_OK;
}

enum health_level health_check_memory_wear(const struct health *h, struct health_finding *f)
{
	char why[120];

	if (h->memory.corrected_new < RATE_WARN)
		return HEALTH_OK;
	snprintf(why, sizeof(why), "%.0f corrected memory errors in %.0f min.",
		 h->memory.corrected_new, ceil(h->memory.corrected_min));
	set_finding(f, why,
		    "Watch the GPU; run the vendor's diagnostics if the errors continue.");
	return HEALTH_WARN;
}
