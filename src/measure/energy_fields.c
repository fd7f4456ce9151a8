/* The words of the measuring tables. */
#include "event.h"

#include <gpuward.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Levels as code.def spells them. */
#define LEVEL_VALID     GW_VALID
#define LEVEL_SUSPECT   GW_SUSPECT
#define LEVEL_INVALID   GW_INVALID
#define LEVEL_NO_RESULT GW_NO_RESULT

const struct gw_code_info *gw_code_info(unsigned code)
{
	static const struct gw_code_info rows[] = {
#define R(symbol, key, level, sentence) { key, sentence, LEVEL_##level },
#include <gpuward/code.def>
#undef R
	};

	_Static_assert(GW_CODES <= 64, "codes are bits of a set");
	return code < COUNT(rows) ? &rows[code] : NULL;
}

#define NAMES(function, ...)                                        \
	const char *function(unsigned i)                            \
	{                                                           \
		static const char *const names[] = { __VA_ARGS__ }; \
                                                                    \
		return i < COUNT(names) ? names[i] : "unknown";     \
	}

NAMES(gw_validity_name, "valid", "suspect", "invalid", "no-result")
NAMES(gw_meter_kind_name, "none", "counter", "samples")
NAMES(gw_rung_name, "counter+ring", "counter+polled", "ring", "polled", "mean", "text", "sysfs",
      "none")
NAMES(gw_verdict_name, "none", "agree", "disagree", "counter-only", "samples-only", "polled",
      "mean-only", "text", "sysfs")
NAMES(gw_budget_name, "edges", "gaps", "coverage", "residual", "gain", "offset")
NAMES(gw_throttle_name, "power_cap", "sync_boost", "thermal_software", "thermal_hardware",
      "power_brake")

const unsigned event_quantity[FIGURES] = {
#define F(q) GW_Q_##q,
	EVENT_FIGURES(F)
#undef F
};
