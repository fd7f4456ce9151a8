#include "health_parts.h"

#include "guard.h"

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

/* ---- readings ---- */

static enum health_level level_of(const struct health *h)
{
	enum health_level heat = health_heat_level(h);

	if (h->quarantine)
		return HEALTH_QUARANTINE;
	if (heat != HEALTH_OK)
		return heat;
	return health_fault_warns(h) ? HEALTH_WARN : HEALTH_OK;
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
				       .margin_source = health_heat_source(h),
				       .since_ns = h->since_ns,
				       .xids = h->xids,
				       .last_xid = h->last_xid,
				       .past_xids = h->past_xids,
				       .last_past_xid = h->last_past_xid,
				       .last_past_ns = h->last_past_ns };
	if (h->quarantine)
		health_quarantine_tell(h, ret);
	else if (ret->heat != HEALTH_OK)
		health_heat_tell(h, ret);
	else
		health_fault_tell(h, ret);
	if (ret->clears_ns && ret->clears_ns < now_ns)
		ret->clears_ns = now_ns; /* it is due at the next reading */
}

unsigned health_heat(const struct health_status *s)
{
	return (s->heat >= HEALTH_THROTTLE ? HEAT_THROTTLE : 0U) | (s->warm ? HEAT_WARM : 0U);
}

uint64_t health_interval_ns(const struct health *h)
{
	return h->margin_c <= h->o.warn_c || h->hw_thermal || h->awaited_ns ? QUICK_NS
									    : SLOW_NS;
}
