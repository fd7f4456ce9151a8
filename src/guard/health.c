#include "health_internal.h"

#include "guard.h"

#include "base/text.h"

#include "device/nvml_abi.h"

#include <stdio.h>
#include <stdlib.h>

#define SLOW_NS       (10 * NS_PER_S) /* time between readings of a GPU without a problem */
#define ANY_THERMAL   (ABI_REASON_HW_THERMAL | ABI_REASON_SW_THERMAL)
#define THRESHOLD_MIN 40. /* a lower threshold is not valid: no board slows down below this */

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
	h->heat.margin_c = h->heat.temperature_c = NAN;
	h->memory.uncorrected = NAN;
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

static const enum health_level trip_level[TRIPS] = { HEALTH_WARN, HEALTH_THROTTLE,
						     HEALTH_EVICT };
static const char *const trip_advice[TRIPS] = {
	"Watch its cooling.",
	"It gets no new work; check fans, filters and the room.",
	"Workers leave it until it has cooled down; check fans, filters and the room.",
};

static const char *const source_name[] = { "", "margin", "thresholds", "override", "fallback" };

/* Returns the smaller value. If one value is NAN, returns the other. */
static double smaller(double a, double b)
{
	return isnan(a) || b < a ? b : a;
}

static double read_threshold(const struct gw_device *d, unsigned q)
{
	double v = health_value(d, q);

	return v >= THRESHOLD_MIN ? v : NAN;
}

/* Returns the degrees to the nearest threshold of the device; NAN: the device has none. */
static double threshold_margin(const struct gw_device *d)
{
	double limit = smaller(read_threshold(d, GW_Q_TEMPERATURE_GPU_MAX),
			       read_threshold(d, GW_Q_TEMPERATURE_SLOWDOWN));
	double memory = read_threshold(d, GW_Q_TEMPERATURE_MEMORY_MAX) -
			health_value(d, GW_Q_TEMPERATURE_MEMORY);

	return smaller(limit - health_value(d, GW_Q_TEMPERATURE_GPU), memory);
}

/* True if the driver's margin cannot be right. Some H100 report a margin of 0 or less while
 * they are cold. */
static bool is_implausible(const struct health *h, const struct gw_device *d, double margin)
{
	double t = health_value(d, GW_Q_TEMPERATURE_GPU), other = threshold_margin(d);
	double reasons = health_value(d, GW_Q_CLOCK_REASONS);

	if (margin > 0 || isnan(t))
		return false;
	if (!isnan(reasons) && ((uint64_t)reasons & ANY_THERMAL))
		return false;
	if (isnan(other))
		other = h->o.fallback_c - t;
	return other > h->o.warn_c;
}

static void find_margin(struct health *h, const struct gw_device *d)
{
	double t = health_value(d, GW_Q_TEMPERATURE_GPU);
	double reported = health_value(d, GW_Q_TEMPERATURE_MARGIN);
	double other = threshold_margin(d);

	h->heat.temperature_c = t;
	if (!isnan(h->o.absolute_c)) {
		h->heat.source = MARGIN_OVERRIDE;
		h->heat.margin_c = h->o.absolute_c - t;
	} else if (!isnan(reported) && !is_implausible(h, d, reported)) {
		h->heat.source = MARGIN_DRIVER;
		h->heat.margin_c = reported;
	} else if (!isnan(other)) {
		h->heat.source = MARGIN_THRESHOLDS;
		h->heat.margin_c = other;
	} else {
		h->heat.source = MARGIN_FALLBACK;
		h->heat.margin_c = h->o.fallback_c - t;
	}
	if (isnan(h->heat.margin_c))
		h->heat.source = MARGIN_UNKNOWN;
}

/* Returns the margin at which a trip begins; NAN: there is no such trip. If the limit is a
 * fixed temperature (MARGIN_OVERRIDE, MARGIN_FALLBACK), there are only TRIP_EVICT and
 * TRIP_RETURN. */
static double trip_at(const struct health *h, unsigned i)
{
	const double own[TRIPS_ALL] = { h->o.warn_c, h->o.throttle_c, h->o.evict_c,
					h->o.evict_c };

	if (h->heat.source == MARGIN_OVERRIDE || h->heat.source == MARGIN_FALLBACK)
		return i >= TRIP_EVICT ? 0 : NAN;
	return own[i];
}

static bool is_hot(const struct health *h, unsigned i)
{
	double at = trip_at(h, i);

	if (h->heat.hw_thermal)
		return true;
	if (i == TRIP_EVICT)
		return h->heat.criticals >= h->o.critical;
	return i == TRIP_RETURN ? h->heat.margin_c < at + h->o.clear_c : h->heat.margin_c <= at;
}

/* Ends a trip when the GPU has been cool enough for clear_ns. */
static void cool_trip(struct health *h, unsigned i, uint64_t now)
{
	uint64_t *cool_ns = &h->heat.trip[i].cool_ns;

	if (*cool_ns == 0) {
		*cool_ns = now;
	} else if (now - *cool_ns >= h->o.clear_ns) {
		h->heat.trip[i].on = false;
		*cool_ns = 0;
	}
}

static void update_trip(struct health *h, unsigned i, uint64_t now)
{
	bool *on = &h->heat.trip[i].on, hot = is_hot(h, i);
	uint64_t *cool_ns = &h->heat.trip[i].cool_ns;
	double at = trip_at(h, i);

	if (isnan(at)) {
		*on = false;
		*cool_ns = 0;
		return;
	}
	*on |= hot;
	if (!*on || hot || h->heat.hw_thermal || !(h->heat.margin_c >= at + h->o.clear_c))
		*cool_ns = 0;
	else
		cool_trip(h, i, now);
}

/* Restarts the cool-down timer of every trip. Without a reading, no trip begins or ends. */
static void restart_cooling(struct health *h)
{
	for (unsigned i = 0; i < TRIPS_ALL; i++)
		h->heat.trip[i].cool_ns = 0;
}

/* A GPU that is suspended has almost no power, so it is cool. */
static void cool_asleep(struct health *h, uint64_t now)
{
	h->heat.hw_thermal = false;
	h->heat.criticals = 0;
	for (unsigned i = 0; i < TRIPS_ALL; i++)
		if (h->heat.trip[i].on)
			cool_trip(h, i, now);
}

static void read_heat(struct health *h, const struct gw_device *d, uint64_t now)
{
	double reasons = health_value(d, GW_Q_CLOCK_REASONS);

	find_margin(h, d);
	h->heat.hw_thermal = !isnan(reasons) && ((uint64_t)reasons & ABI_REASON_HW_THERMAL);
	if (isnan(h->heat.margin_c) && !h->heat.hw_thermal) {
		restart_cooling(h);
		return;
	}
	h->heat.criticals =
		h->heat.margin_c <= trip_at(h, TRIP_EVICT) ? h->heat.criticals + 1 : 0;
	for (unsigned i = 0; i < TRIPS_ALL; i++)
		update_trip(h, i, now);
}

static int hottest_trip(const struct health *h)
{
	for (unsigned i = TRIPS; i-- > 0;)
		if (h->heat.trip[i].on)
			return (int)i;
	return -1;
}

static enum health_level heat_level(const struct health *h)
{
	int trip = hottest_trip(h);

	return trip >= 0 ? trip_level[trip] : HEALTH_OK;
}

/* Returns the temperature of the GPU at which workers leave. If the memory is nearest to its
 * limit, the result assumes that the memory warms up as fast as the GPU. */
static double evict_at_c(const struct health *h)
{
	if (!isnan(h->o.absolute_c))
		return h->o.absolute_c;
	return h->heat.temperature_c + h->heat.margin_c - trip_at(h, TRIP_EVICT);
}

static enum health_level check_heat(const struct health *h, struct health_finding *f)
{
	const struct health_heat *heat = &h->heat;
	char now[80] = "its temperature is not known now", at[16] = "";
	int trip = hottest_trip(h);

	if (trip < 0)
		return HEALTH_OK;
	if (!isnan(heat->temperature_c))
		snprintf(at, sizeof(at), ", at %.0f C", heat->temperature_c);
	if (!isnan(heat->margin_c))
		snprintf(now, sizeof(now), "%.0f C %s its limit (%s)%s", fabs(heat->margin_c),
			 heat->margin_c < 0 ? "above" : "below", source_name[heat->source], at);
	snprintf(f->why, sizeof(f->why), "%s: %s%s.",
		 heat->hw_thermal || !(heat->margin_c > trip_at(h, (unsigned)trip))
			 ? "Too hot"
			 : "Was too hot and is cooling down",
		 now, heat->hw_thermal ? ", and the hardware slows itself down" : "");
	snprintf(f->advice, sizeof(f->advice), "%s", trip_advice[trip]);
	snprintf(f->clears, sizeof(f->clears),
		 "when it has been %g C or more below its limit for %g s",
		 trip_at(h, (unsigned)trip) + h->o.clear_c,
		 (double)h->o.clear_ns / (double)NS_PER_S);
	if (heat->trip[trip].cool_ns)
		f->clears_ns = heat->trip[trip].cool_ns + h->o.clear_ns;
	return trip_level[trip];
}

#define NO_REASON GUARD_REASONS

/* The first rule with a level above HEALTH_OK sets the level and the finding of the GPU. At
 * HEALTH_EVICT and above, workers leave the GPU, for the reason in the row. */
static const struct {
	enum health_level (*check)(const struct health *h, struct health_finding *f);
	unsigned reason;
} rules[] = {
	{ health_check_quarantine, REASON_HEALTH }, { check_heat, REASON_THERMAL },
	{ health_check_incident, NO_REASON },       { health_check_fault, NO_REASON },
	{ health_check_memory_flags, NO_REASON },   { health_check_memory_wear, NO_REASON },
};

/* Finds the first rule with this reason (NO_REASON: with any reason) and a level of `from` or
 * higher. Returns the level of this rule and writes its finding. Returns HEALTH_OK if there is
 * no such rule. */
static enum health_level first_finding(const struct health *h, unsigned reason,
				       enum health_level from, uint64_t now,
				       struct health_finding *ret)
{
	for (size_t i = 0; i < COUNT(rules); i++) {
		enum health_level level;

		if (reason != NO_REASON && rules[i].reason != reason)
			continue;
		*ret = (struct health_finding){ .clears_ns = 0 };
		level = rules[i].check(h, ret);
		if (level < from)
			continue;
		if (ret->clears_ns && ret->clears_ns < now)
			ret->clears_ns = now; /* the next reading ends the problem */
		return level;
	}
	*ret = (struct health_finding){ .clears_ns = 0 };
	return HEALTH_OK;
}

void health_update_level(struct health *h, uint64_t now)
{
	struct health_finding unused;
	enum health_level level = first_finding(h, NO_REASON, HEALTH_WARN, now, &unused);

	if (level != h->level || h->since_ns == 0)
		h->since_ns = now;
	h->level = level;
}

void health_read(struct health *h, const struct gw_device *d, uint64_t now_ns)
{
	h->answers = d->state == GW_DEVICE_OK || d->state == GW_DEVICE_FAULT;
	if (h->answers) {
		read_heat(h, d, now_ns);
		health_fault_read(h, d, now_ns);
	} else {
		h->heat.margin_c = h->heat.temperature_c = NAN;
		h->heat.source = MARGIN_UNKNOWN;
		if (d->state == GW_DEVICE_ASLEEP)
			cool_asleep(h, now_ns);
		else
			restart_cooling(h);
		h->quarantine.clean_ns = 0;
	}
	if (d->state == GW_DEVICE_LOST)
		health_fault_lost(h, d);
	health_fault_expire(h, now_ns);
	health_update_level(h, now_ns);
}

void health_status(const struct health *h, uint64_t now_ns, struct health_status *ret)
{
	*ret = (struct health_status){ .level = h->level,
				       .heat = heat_level(h),
				       .thermal = h->heat.trip[TRIP_EVICT].on,
				       .warm = h->heat.trip[TRIP_RETURN].on,
				       .quarantine = h->quarantine.on,
				       .margin_c = h->heat.margin_c,
				       .evict_at_c = evict_at_c(h),
				       .margin_source = source_name[h->heat.source],
				       .since_ns = h->since_ns,
				       .xids = h->incident.xids,
				       .last_xid = h->incident.last_xid,
				       .past_xids = h->past.xids,
				       .last_past_xid = h->past.last_xid,
				       .last_past_ns = h->past.last_ns };
	first_finding(h, NO_REASON, HEALTH_WARN, now_ns, &ret->worst);
}

void health_meaning(const struct health *h, uint64_t now_ns, struct health_meaning *ret)
{
	static const unsigned reasons[HEALTH_REASONS] = { REASON_THERMAL, REASON_HEALTH };
	struct health_finding heat;

	first_finding(h, REASON_THERMAL, HEALTH_WARN, now_ns, &heat);
	ret->heat = (heat_level(h) >= HEALTH_THROTTLE ? HEAT_THROTTLE : 0U) |
		    (h->heat.trip[TRIP_RETURN].on ? HEAT_WARM : 0U);
	text_fit(ret->heat_why, sizeof(ret->heat_why), "%s", heat.why);
	for (unsigned i = 0; i < HEALTH_REASONS; i++) {
		ret->reason[i].reason = reasons[i];
		ret->reason[i].on = first_finding(h, reasons[i], HEALTH_EVICT, now_ns,
						  &ret->reason[i].found) != HEALTH_OK;
	}
}

uint64_t health_interval_ns(const struct health *h)
{
	return h->heat.margin_c <= h->o.warn_c || h->heat.hw_thermal || h->awaited_ns ? QUICK_NS
										      : SLOW_NS;
}
