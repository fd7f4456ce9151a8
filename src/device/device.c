#include "device.h"

#include "base/clock.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

/* Maximum age of a tier before it is read again; indexed by bit number of enum gw_tier. */
static const uint64_t cadence_ns[TIER_COUNT] = {
	UINT64_MAX,    /* STATIC: once                                              */
	0,             /* FAST                                                      */
	NS_PER_S,      /* SLOW                                                      */
	NS_PER_S,      /* ENERGY: callers within a second share one costly reading  */
	10 * NS_PER_S, /* HEALTH                                                    */
	0,             /* ON_REQUEST                                                */
	10 * NS_PER_S, /* LIMITS                                                    */
	0,             /* PROFILE                                                   */
};

void report_init(struct report *r, enum gw_vendor vendor, enum gw_provenance provenance)
{
	memset(r, 0, sizeof(*r));
	r->vendor = vendor;
	r->provenance = provenance;
	memset(r->why, GW_ABSENT_NOT_READ, sizeof(r->why));
	memset(r->text_why, GW_ABSENT_NOT_READ, sizeof(r->text_why));
}

void report_absent(struct report *r, unsigned tiers, enum gw_absence why)
{
	for (unsigned q = 0; q < GW_QUANTITIES; q++)
		if (tiers & gw_quantity_info(q)->tier)
			report_miss(r, q, why);
	for (unsigned t = 0; t < GW_TEXTS && (tiers & GW_TIER_STATIC); t++)
		if (r->text_why[t] == GW_ABSENT_NOT_READ)
			r->text_why[t] = (uint8_t)why;
}

void report_state(struct report *r, enum gw_device_state state, enum gw_cause cause,
		  const char *detail)
{
	const char *sentence = gw_cause_info(cause)->sentence;

	r->state = state;
	r->cause = cause;
	r->message[0] = '\0';
	if (cause == GW_CAUSE_NONE)
		return;
	if (detail && *detail)
		snprintf(r->message, sizeof(r->message), "%s (%s)", sentence, detail);
	else
		snprintf(r->message, sizeof(r->message), "%s", sentence);
}

enum gw_absence device_absence(enum gw_device_state state, enum gw_cause cause)
{
	switch (state) {
	case GW_DEVICE_OK: return GW_HAVE;
	case GW_DEVICE_ASLEEP: return GW_ABSENT_ASLEEP;
	case GW_DEVICE_LOST: return GW_ABSENT_LOST;
	case GW_DEVICE_FAULT: return GW_ABSENT_ERROR;
	case GW_DEVICE_DENIED: return GW_ABSENT_NO_PERMISSION;
	case GW_DEVICE_STALLED: return GW_ABSENT_STALLED;
	case GW_DEVICE_CLOSED: break;
	}
	return cause == GW_CAUSE_LET_GO   ? GW_ABSENT_LET_GO
	       : cause == GW_CAUSE_ASLEEP ? GW_ABSENT_ASLEEP
					  : GW_ABSENT_NO_DRIVER;
}

void report_text(struct report *r, enum gw_text t, const char *text, enum gw_absence why)
{
	if (!text || !text[strspn(text, " ")]) {
		r->text[t][0] = '\0';
		r->text_why[t] = (uint8_t)why;
		return;
	}
	utf8_clean(r->text[t], sizeof(r->text[t]), text);
	r->text_why[t] = GW_HAVE;
}

unsigned report_due(const struct report *r, unsigned tiers, uint64_t now_ns)
{
	unsigned due = 0;

	for (unsigned i = 0; i < TIER_COUNT; i++) {
		uint64_t at = r->tier_ns[i];

		if ((tiers & 1u << i) && (at == 0 || now_ns - at >= cadence_ns[i]))
			due |= 1u << i;
	}
	return due;
}

void report_stamp(struct report *r, unsigned tiers, uint64_t now_ns)
{
	for (unsigned i = 0; i < TIER_COUNT; i++)
		if (tiers & 1u << i)
			r->tier_ns[i] = now_ns;
}
