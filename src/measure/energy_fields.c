/* The tables of a result: its codes, its words and the fields of struct gw_energy. */
#include "energy.h"
#include "event.h"

#include <math.h>
#include <stddef.h>

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

/* ---- words ---- */

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
	       "a list of struct gw_energy is too short for its words");

#define NAMES(list)                                                           \
	const char *gw_##list##_name(unsigned i)                              \
	{                                                                     \
		return i < COUNT(list##_words) ? list##_words[i] : "unknown"; \
	}

NAMES(validity)
NAMES(meter_kind)
NAMES(rung)
NAMES(verdict)
NAMES(budget)
NAMES(throttle)
NAMES(throttle_source)

/* ---- fields ---- */

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

void energy_unknown(struct gw_energy *e)
{
	const struct gw_energy_field *f;

	*e = (struct gw_energy){ .device = e->device };
	for (unsigned i = 0; (f = gw_energy_field(i)); i++) {
		void *at = (char *)e + f->offset;
		double *v = at;

		if (f->kind == GW_FIELD_WORD)
			*(unsigned *)at = f->missing;
		else if (f->kind == GW_FIELD_NUMBER)
			*v = NAN;
		else if (f->kind == GW_FIELD_INTERVAL)
			*(struct gw_interval *)at = (struct gw_interval){ NAN, NAN, NAN };
		else if (f->kind == GW_FIELD_LIST)
			for (unsigned k = 0; k < GW_LIST_SIZE; k++)
				v[k] = NAN;
	}
}

const unsigned event_quantity[FIGURES] = {
#define F(q) GW_Q_##q,
	EVENT_FIGURES(F)
#undef F
};
