/* tables: makes the tables for the functions of gpuward.h, and the names of enum values, from
 * the .def files. */
#include "tables.h"

#include "context.h"

#include <gpuward.h>

#include "base/array.h"
#include "base/buf.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const struct gw_quantity_info quantities[] = {
#define Q(symbol, key, kind, tier, help) { key, help, GW_KIND_##kind, GW_TIER_##tier },
#include <gpuward/quantity.def>
#undef Q
};

static const struct gw_quantity_info host_quantities[] = {
#define H(symbol, key, kind, help) { key, help, GW_KIND_##kind, GW_TIER_FAST },
#include <gpuward/host.def>
#undef H
};

static const struct gw_quantity_info resources[] = {
#define R(symbol, key, kind, help) { key, help, GW_KIND_##kind, GW_TIER_FAST },
#include <gpuward/resource.def>
#undef R
};

static const char *const texts[] = {
#define T(symbol, key) key,
#include <gpuward/text.def>
#undef T
};

static const struct {
	const char *key, *text;
} absences[] = {
	{ "have", "present" },
#define A(symbol, key, sentence) { key, sentence },
#include <gpuward/absence.def>
#undef A
};

static const struct gw_cause_info causes[] = {
#define C(symbol, key, severity, sentence, remedy) \
	{ key, sentence, remedy, GW_SEVERITY_##severity },
#include <gpuward/cause.def>
#undef C
};

_Static_assert(COUNT(quantities) == GW_QUANTITIES, "one row per quantity");
_Static_assert(COUNT(causes) == GW_CAUSES, "one row per cause");
_Static_assert(GW_ABSENCES < 256, "an absence fits a byte");

const struct gw_quantity_info *gw_quantity_info(unsigned quantity)
{
	return quantity < GW_QUANTITIES ? &quantities[quantity] : NULL;
}

const struct gw_quantity_info *gw_host_quantity_info(unsigned quantity)
{
	return quantity < GW_HOST_QUANTITIES ? &host_quantities[quantity] : NULL;
}

const struct gw_quantity_info *gw_resource_info(unsigned resource)
{
	return resource < GW_RESOURCES ? &resources[resource] : NULL;
}

const char *gw_text_key(unsigned text)
{
	return text < GW_TEXTS ? texts[text] : NULL;
}

int gw_quantity_find(const char *key)
{
	if (!key)
		return context_fail_null(NULL, "key");
	for (unsigned q = 0; q < GW_QUANTITIES; q++)
		if (strcmp(quantities[q].key, key) == 0)
			return (int)q;
	return context_fail(NULL, -GW_E_NOENT,
			    "there is no quantity \"%.64s\"; gw_quantity_info() lists all",
			    key);
}

const char *gw_absence_key(unsigned absence)
{
	return absence < COUNT(absences) ? absences[absence].key : "error";
}

const char *gw_absence_text(unsigned absence)
{
	return absence < COUNT(absences) ? absences[absence].text : "the query failed";
}

const struct gw_cause_info *gw_cause_info(unsigned cause)
{
	return &causes[cause < GW_CAUSES ? cause : GW_CAUSE_NONE];
}

struct value_name {
	unsigned quantity;
	unsigned value;
	const char *name;
};

static const struct value_name value_names[] = {
	{ GW_Q_ARCHITECTURE, 2, "Kepler" },
	{ GW_Q_ARCHITECTURE, 3, "Maxwell" },
	{ GW_Q_ARCHITECTURE, 4, "Pascal" },
	{ GW_Q_ARCHITECTURE, 5, "Volta" },
	{ GW_Q_ARCHITECTURE, 6, "Turing" },
	{ GW_Q_ARCHITECTURE, 7, "Ampere" },
	{ GW_Q_ARCHITECTURE, 8, "Ada" },
	{ GW_Q_ARCHITECTURE, 9, "Hopper" },
	{ GW_Q_ARCHITECTURE, 10, "Blackwell" },
	{ GW_Q_COMPUTE_MODE, 0, "default" },
	{ GW_Q_COMPUTE_MODE, 1, "exclusive_thread" },
	{ GW_Q_COMPUTE_MODE, 2, "prohibited" },
	{ GW_Q_COMPUTE_MODE, 3, "exclusive_process" },
	{ GW_Q_VIRTUALIZATION, 0, "bare_metal" },
	{ GW_Q_VIRTUALIZATION, 1, "pass_through" },
	{ GW_Q_VIRTUALIZATION, 2, "vgpu" },
	{ GW_Q_VIRTUALIZATION, 3, "vgpu_host" },
	{ GW_Q_VIRTUALIZATION, 4, "vsga_host" },
	{ GW_Q_RECOVERY_ACTION, 0, "none" },
	{ GW_Q_RECOVERY_ACTION, 1, "reset_gpu" },
	{ GW_Q_RECOVERY_ACTION, 2, "reboot_node" },
	{ GW_Q_RECOVERY_ACTION, 3, "drain_p2p" },
	{ GW_Q_RECOVERY_ACTION, 4, "drain_and_reset" },
	{ GW_Q_RECOVERY_ACTION, 5, "recover_imex_domain" },
	{ GW_Q_CLOCK_REASONS, 0x1, "idle" },
	{ GW_Q_CLOCK_REASONS, 0x2, "application_clocks" },
	{ GW_Q_CLOCK_REASONS, 0x4, "sw_power_cap" },
	{ GW_Q_CLOCK_REASONS, 0x8, "hw_slowdown" },
	{ GW_Q_CLOCK_REASONS, 0x10, "sync_boost" },
	{ GW_Q_CLOCK_REASONS, 0x20, "sw_thermal" },
	{ GW_Q_CLOCK_REASONS, 0x40, "hw_thermal" },
	{ GW_Q_CLOCK_REASONS, 0x80, "power_brake" },
	{ GW_Q_CLOCK_REASONS, 0x100, "display" },
};

static const char *value_name_find(unsigned quantity, unsigned value)
{
	for (size_t i = 0; i < COUNT(value_names); i++)
		if (value_names[i].quantity == quantity && value_names[i].value == value)
			return value_names[i].name;
	return NULL;
}

static void name_enum(struct buf *b, unsigned quantity, unsigned value)
{
	const char *value_name = value_name_find(quantity, value);

	if (quantity == GW_Q_PERFORMANCE_STATE && value < 16)
		buf_addf(b, "P%u", value);
	else if (value_name)
		buf_adds(b, value_name);
	else
		buf_addf(b, "unknown(%u)", value);
}

static void name_mask(struct buf *b, unsigned quantity, uint64_t mask)
{
	for (unsigned bit = 0; bit < 32; bit++) {
		const char *value_name = value_name_find(quantity, 1u << bit);

		if (!(mask & UINT64_C(1) << bit) || !value_name)
			continue;
		buf_addf(b, "%s%s", b->len ? "," : "", value_name);
		mask &= ~(UINT64_C(1) << bit);
	}
	if (mask)
		buf_addf(b, "%sunknown(0x%llx)", b->len ? "," : "", (unsigned long long)mask);
}

int gw_quantity_name(unsigned quantity, double value, char *out, size_t size)
{
	struct buf b;

	if (!out)
		return context_fail_null(NULL, "out");
	if (quantity >= GW_QUANTITIES)
		return context_fail(NULL, -GW_E_ARG, "there is no quantity number %u",
				    quantity);
	if (size == 0)
		return context_fail(NULL, -GW_E_ARG, "gw_quantity_name(): size must not be 0");
	if (!(value >= 0 && value < 9.0e15) ||
	    (quantities[quantity].kind == GW_KIND_ENUM && value > UINT32_MAX))
		return context_fail(NULL, -GW_E_ARG, "%g is not a value of %s", value,
				    quantities[quantity].key);
	buf_init_fixed(&b, out, size);
	switch (quantities[quantity].kind) {
	case GW_KIND_ENUM: name_enum(&b, quantity, (unsigned)value); break;
	case GW_KIND_MASK: name_mask(&b, quantity, (uint64_t)value); break;
	default:
		return context_fail(NULL, -GW_E_ARG, "the values of %s have no names",
				    quantities[quantity].key);
	}
	return b.err ? context_fail(NULL, b.err,
				    "the name of a value of %s needs more than %zu bytes",
				    quantities[quantity].key, size)
		     : 0;
}

static const char *name_in(const char *const *names, size_t n, unsigned i)
{
	return i < n ? names[i] : "unknown";
}

const char *gw_vendor_name(unsigned vendor)
{
	static const char *const names[] = { "nvidia", "amd", "intel", "other" };

	return name_in(names, COUNT(names), vendor);
}

const char *gw_provenance_name(unsigned provenance)
{
	static const char *const names[] = { "driver", "text", "sysfs", "simulated" };

	return name_in(names, COUNT(names), provenance);
}

const char *gw_device_state_name(unsigned state)
{
	static const char *const names[] = { "ok",     "asleep",  "lost",  "fault",
					     "denied", "stalled", "closed" };

	return name_in(names, COUNT(names), state);
}

/* The words and fields of a result, from words.def and energy.def. */
#define ROW(symbol, key, help) key,

static const char *const validity_words[] = {
#define GW_VALIDITY ROW
#include <gpuward/words.def>
};
static const char *const meter_kind_words[] = {
#define GW_METER_KIND ROW
#include <gpuward/words.def>
};
static const char *const rung_words[] = {
#define GW_RUNG ROW
#include <gpuward/words.def>
};
static const char *const verdict_words[] = {
#define GW_VERDICT ROW
#include <gpuward/words.def>
};
static const char *const budget_words[] = {
#define GW_BUDGET ROW
#include <gpuward/words.def>
};
static const char *const throttle_words[] = {
#define GW_THROTTLE ROW
#include <gpuward/words.def>
};
static const char *const throttle_source_words[] = {
#define GW_THROTTLE_SOURCE ROW
#include <gpuward/words.def>
};

_Static_assert(GW_BUDGETS <= GW_LIST_SIZE && GW_THROTTLES <= GW_LIST_SIZE,
	       "GW_LIST_SIZE is too small for the lists of struct gw_energy");

#define NAMES(list)                                                   \
	const char *gw_##list##_name(unsigned i)                      \
	{                                                             \
		return name_in(list##_words, COUNT(list##_words), i); \
	}

NAMES(validity)
NAMES(meter_kind)
NAMES(rung)
NAMES(verdict)
NAMES(budget)
NAMES(throttle)
NAMES(throttle_source)

/* Converts the levels in code.def to values of enum gw_validity. */
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

const struct gw_energy_field *gw_energy_field(unsigned i)
{
	static const struct gw_energy_field rows[] = {
#define AT(member) offsetof(struct gw_energy, member)
#define GW_FIELD(kind, member, key, help, diff) \
	{ #member, key, GW_FIELD_##kind, AT(member), 0, 0, NULL },
#define GW_WORD(list, member, key, missing, help, diff)                                       \
	{ #member,         key, GW_FIELD_WORD, AT(member), COUNT(list##_words), GW_##missing, \
	  gw_##list##_name },
#define GW_LIST(list, member, key, help, diff) \
	{ #member, key, GW_FIELD_LIST, AT(member), COUNT(list##_words), 0, gw_##list##_name },
#include <gpuward/energy.def>
	};

	return i < COUNT(rows) ? &rows[i] : NULL;
}

const char *gw_strerror(int error)
{
	static const char *const names[] = {
		"success",
		"invalid argument",
		"out of memory or threads",
		"no such file, program, device or name",
		"permission denied",
		"reading, writing or starting something failed",
		"the text is malformed",
		"too large",
		"timed out",
		"no such GPU",
		"not supported here",
		"the device or the driver went away",
		"not possible in this state",
	};

	return name_in(names, COUNT(names), error < 0 ? 0u - (unsigned)error : (unsigned)error);
}

const char *gw_version(void)
{
	return GPUWARD_VERSION;
}

const char *process_type_name(unsigned i)
{
	static const char *const names[] = { "compute", "graphics", "mps" };

	return i < COUNT(names) ? names[i] : NULL;
}

unsigned process_type_named(const char *name)
{
	for (unsigned i = 0; process_type_name(i); i++)
		if (strcmp(process_type_name(i), name) == 0)
			return 1u << i;
	return 0;
}
