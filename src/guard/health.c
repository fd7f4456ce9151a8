#include "health_parts.h"

#include "guard.h"

#include "base/text.h"

#include <stdlib.h>

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

/* ---- rules ---- */

#define NO_REASON GUARD_REASONS

/* The first that holds gives the GPU its level and its words.  From HEALTH_EVICT on workers leave, for the
 * rule's reason. */
static const struct rule {
	enum health_level (*level)(const struct health *h);
	void (*tell)(const struct health *h, struct health_finding *f); /* where it holds */
	unsigned reason;
} rules[] = {
	{ health_quarantine_level, health_quarantine_tell, REASON_HEALTH },
	{ health_heat_level, health_heat_tell, REASON_THERMAL },
	{ health_incident_level, health_incident_tell, NO_REASON },
	{ health_fault_level, health_fault_tell, NO_REASON },
	{ health_flags_level, health_flags_tell, NO_REASON },
	{ health_wear_level, health_wear_tell, NO_REASON },
};

/* The first of this reason (NO_REASON: of any) that holds at this level or a higher one; NULL: none does. */
static const struct rule *first(const struct health *h, unsigned reason, enum health_level from)
{
	for (size_t i = 0; i < COUNT(rules); i++)
		if ((reason == NO_REASON || rules[i].reason == reason) &&
		    rules[i].level(h) >= from)
			return &rules[i];
	return NULL;
}

static void tell(const struct rule *rule, const struct health *h, uint64_t now,
		 struct health_finding *ret)
{
	*ret = (struct health_finding){ .clears_ns = 0 };
	if (rule)
		rule->tell(h, ret);
	if (ret->clears_ns && ret->clears_ns < now)
		ret->clears_ns = now; /* it is due at the next reading */
}

/* ---- readings ---- */

static enum health_level level_of(const struct health *h)
{
	const struct rule *worst = first(h, NO_REASON, HEALTH_WARN);

	return worst ? worst->level(h) : HEALTH_OK;
}

void health_settle(struct health *h, uint64_t now)
{
	enum health_level level = level_of(h);

	if (level != h->level || h->since_ns == 0)
		h->since_ns = now;
	h->level = level;
}

void health_read(struct health *h, const struct gw_device *d, uint64_t now_ns)
{
	h->answers = d->state == GW_DEVICE_OK || d->state == GW_DEVICE_FAULT;
	if (h->answers) {
		health_heat_read(h, d, now_ns);
		health_fault_read(h, d, now_ns);
	} else {
		health_heat_unknown(h);
		h->clean_ns = 0;
	}
	if (d->state == GW_DEVICE_LOST)
		health_fault_lost(h, d);
	health_fault_forget(h, now_ns);
	health_settle(h, now_ns);
}

/* ---- what is told ---- */

void health_status(const struct health *h, uint64_t now_ns, struct health_status *ret)
{
	*ret = (struct health_status){ .level = h->level,
				       .heat = health_heat_level(h),
				       .thermal = h->trip[TRIP_EVICT].on,
				       .warm = h->trip[TRIP_RETURN].on,
				       .quarantine = h->quarantine,
				       .margin_c = h->margin_c,
				       .evict_at_c = health_heat_evict_at(h),
				       .margin_source = health_heat_source(h),
				       .since_ns = h->since_ns,
				       .xids = h->xids,
				       .last_xid = h->last_xid,
				       .past_xids = h->past_xids,
				       .last_past_xid = h->last_past_xid,
				       .last_past_ns = h->last_past_ns };
	tell(first(h, NO_REASON, HEALTH_WARN), h, now_ns, &ret->worst);
}

void health_meaning(const struct health *h, uint64_t now_ns, struct health_meaning *ret)
{
	static const unsigned reasons[HEALTH_REASONS] = { REASON_THERMAL, REASON_HEALTH };
	struct health_finding heat;

	tell(first(h, REASON_THERMAL, HEALTH_WARN), h, now_ns, &heat);
	ret->heat = (health_heat_level(h) >= HEALTH_THROTTLE ? HEAT_THROTTLE : 0U) |
		    (h->trip[TRIP_RETURN].on ? HEAT_WARM : 0U);
	text_fit(ret->heat_why, sizeof(ret->heat_why), "%s", heat.why);
	for (unsigned i = 0; i < HEALTH_REASONS; i++) {
		const struct rule *rule = first(h, reasons[i], HEALTH_EVICT);

		ret->reason[i].reason = reasons[i];
		ret->reason[i].on = rule != NULL;
		tell(rule, h, now_ns, &ret->reason[i].found);
	}
}

uint64_t health_interval_ns(const struct health *h)
{
	return h->margin_c <= h->o.warn_c || h->hw_thermal || h->awaited_ns ? QUICK_NS
									    : SLOW_NS;
}
