/* health_heat: how far is a GPU from its limit?  Which of the ways to know that it has, what is not to be believed,
 * and trips with hysteresis. */
#include "health_parts.h"

#include "device/nvml_abi.h"

#include <stdio.h>

#define ANY_THERMAL   (ABI_REASON_HW_THERMAL | ABI_REASON_SW_THERMAL)
#define THRESHOLD_LOW 40. /* a board that slows down below this does not exist */

static const enum health_level trip_level[TRIPS] = { HEALTH_WARN, HEALTH_THROTTLE,
						     HEALTH_EVICT };
static const char *const trip_advice[TRIPS] = {
	"Watch its cooling.",
	"New work is kept off it; check fans, filters and the room.",
	"Work is taken off it until it has cooled down; check fans, filters and the room.",
};

static const char *const source_name[] = { "", "margin", "thresholds", "override", "fallback" };

static double smaller(double a, double b) /* of which either may be unknown */
{
	return isnan(a) || b < a ? b : a;
}

static double threshold(const struct gw_device *d, unsigned q)
{
	double v = health_value(d, q);

	return v >= THRESHOLD_LOW ? v : NAN;
}

/* Degrees to the nearest threshold that the device names; NAN: it names none. */
static double margin_of_thresholds(const struct gw_device *d)
{
	double limit = smaller(threshold(d, GW_Q_TEMPERATURE_GPU_MAX),
			       threshold(d, GW_Q_TEMPERATURE_SLOWDOWN));
	double memory = threshold(d, GW_Q_TEMPERATURE_MEMORY_MAX) -
			health_value(d, GW_Q_TEMPERATURE_MEMORY);

	return smaller(limit - health_value(d, GW_Q_TEMPERATURE_GPU), memory);
}

/* Some H100 tell a margin of 0 or less while they are cold. */
static bool contradicts(const struct health *h, const struct gw_device *d, double margin)
{
	double t = health_value(d, GW_Q_TEMPERATURE_GPU), other = margin_of_thresholds(d);
	double reasons = health_value(d, GW_Q_CLOCK_REASONS);

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
	double t = health_value(d, GW_Q_TEMPERATURE_GPU);

	if (margin != h->told_margin_c || isnan(h->told_at_c) || now - h->told_ns >= TIER_NS) {
		h->told_margin_c = margin;
		h->told_at_c = t;
		h->told_ns = now;
	}
	return t > h->told_at_c ? margin - (t - h->told_at_c) : margin;
}

static void find_margin(struct health *h, const struct gw_device *d, uint64_t now)
{
	double t = health_value(d, GW_Q_TEMPERATURE_GPU),
	       told = health_value(d, GW_Q_TEMPERATURE_MARGIN);
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
	const double own[TRIPS_ALL] = { h->o.warn_c, h->o.throttle_c, h->o.evict_c,
					h->o.evict_c };

	if (h->source == SOURCE_OVERRIDE || h->source == SOURCE_FALLBACK)
		return i >= TRIP_EVICT ? 0 : NAN;
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

static bool is_hot(const struct health *h, unsigned i)
{
	double at = trip_at(h, i);

	if (h->hw_thermal)
		return true;
	if (i == TRIP_EVICT)
		return h->criticals >= h->o.critical;
	return i == TRIP_RETURN ? h->margin_c < at + h->o.clear_c : h->margin_c <= at;
}

static void not_cooler(struct health *h)
{
	for (unsigned i = 0; i < TRIPS_ALL; i++)
		h->trip[i].cool_ns = 0;
}

void health_heat_read(struct health *h, const struct gw_device *d, uint64_t now)
{
	double reasons = health_value(d, GW_Q_CLOCK_REASONS);

	find_margin(h, d, now);
	h->hw_thermal = !isnan(reasons) && ((unsigned)reasons & ABI_REASON_HW_THERMAL);
	if (isnan(h->margin_c) && !h->hw_thermal) { /* as it was, and not cooler */
		not_cooler(h);
		return;
	}
	h->criticals = h->margin_c <= trip_at(h, TRIP_EVICT) ? h->criticals + 1 : 0;
	for (unsigned i = 0; i < TRIPS_ALL; i++)
		step_trip(h, i, is_hot(h, i), now);
}

void health_heat_unknown(struct health *h)
{
	h->margin_c = h->temperature_c = NAN;
	h->source = SOURCE_NONE;
	not_cooler(h);
}

const char *health_heat_source(const struct health *h)
{
	return source_name[h->source];
}

static int hottest(const struct health *h)
{
	for (unsigned i = TRIPS; i-- > 0;)
		if (h->trip[i].on)
			return (int)i;
	return -1;
}

enum health_level health_heat_level(const struct health *h)
{
	int trip = hottest(h);

	return trip >= 0 ? trip_level[trip] : HEALTH_OK;
}

/* Where the memory is what is nearest to its limit, it is meant to warm up as the GPU does. */
double health_heat_evict_at(const struct health *h)
{
	if (!isnan(h->o.absolute_c))
		return h->o.absolute_c; /* whatever can be read */
	return h->temperature_c + h->margin_c - trip_at(h, TRIP_EVICT);
}

void health_heat_tell(const struct health *h, struct health_finding *f)
{
	const char *side = h->margin_c < 0 ? "above" : "below";
	int trip = hottest(h);
	char now[80] = "its temperature is not known now";

	if (!isnan(h->margin_c))
		snprintf(now, sizeof(now), "%.0f C %s its limit (%s), at %.0f C",
			 fabs(h->margin_c), side, source_name[h->source], h->temperature_c);
	if (!isnan(h->margin_c) && isnan(h->temperature_c))
		snprintf(now, sizeof(now), "%.0f C %s its limit (%s)", fabs(h->margin_c), side,
			 source_name[h->source]);
	if (trip < 0)
		return;
	snprintf(f->why, sizeof(f->why), "Too hot: %s%s.", now,
		 h->hw_thermal ? ", and the hardware slows itself down" : "");
	snprintf(f->advice, sizeof(f->advice), "%s", trip_advice[trip]);
	snprintf(f->clears, sizeof(f->clears),
		 "when it has been %g C or more below its limit for %g s",
		 trip_at(h, (unsigned)trip) + h->o.clear_c,
		 (double)h->o.clear_ns / (double)NS_PER_S);
	if (h->trip[trip].cool_ns)
		f->clears_ns = h->trip[trip].cool_ns + h->o.clear_ns;
}
