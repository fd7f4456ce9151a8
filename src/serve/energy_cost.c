#include "energy_cost.h"

#include "render_result.h"

#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define JOULES_PER_KWH 3.6e6

/* True if a price or a carbon intensity is configured. */
static bool energy_cost_known(const struct energy_cost *c)
{
	return c->price_per_kwh > 0 || c->gco2_per_kwh > 0;
}

/* Appends `before`, v with three significant digits and without an exponent, and the unit. */
static void add_amount(char *out, const char *before, double v, const char *unit)
{
	int decimals = v > 0 ? 2 - (int)floor(log10(v)) : 2;
	size_t n = strlen(out);

	decimals = decimals < 0 ? 0 : decimals > 12 ? 12 : decimals;
	snprintf(out + n, ENERGY_COST_TEXT - n, "%s%s%.*f%s%s", n ? ", " : "", before, decimals,
		 v, *unit ? " " : "", unit);
}

void energy_cost_text(const struct energy_cost *c, double joules,
		      char out[static ENERGY_COST_TEXT])
{
	double kwh = joules / JOULES_PER_KWH;
	char currency[ENERGY_COST_CURRENCY + 8];

	*out = '\0';
	if (!energy_cost_known(c) || isnan(joules))
		return;
	utf8_clean(currency, sizeof(currency), c->currency);
	add_amount(out, "", kwh, "kWh");
	if (c->price_per_kwh > 0)
		add_amount(out, *currency ? "" : "price ", kwh * c->price_per_kwh, currency);
	if (c->gco2_per_kwh > 0)
		add_amount(out, "", kwh * c->gco2_per_kwh, "g CO2");
}

static double or_unknown(double rate)
{
	return rate > 0 ? rate : NAN;
}

/* Writes the interval multiplied by the factor; null if the factor is not configured. */
static void render_times(struct json *j, const char *key, const struct gw_interval *v,
			 double factor)
{
	double by = or_unknown(factor) / JOULES_PER_KWH;

	render_interval(j, key,
			&(struct gw_interval){ v->low * by, v->best * by, v->high * by });
}

static void render_rates(struct json *j, const struct energy_cost *c)
{
	json_double(j, "price_per_kwh", or_unknown(c->price_per_kwh));
	json_string(j, "price_currency", *c->currency ? c->currency : NULL);
	json_double(j, "gco2_per_kwh", or_unknown(c->gco2_per_kwh));
}

void energy_cost_render(struct json *j, const struct energy_cost *c,
			const struct gw_interval *joules)
{
	if (!json_object_if(j, "cost", energy_cost_known(c)))
		return;
	render_times(j, "energy_kwh", joules, 1);
	render_times(j, "price", joules, c->price_per_kwh);
	render_times(j, "co2_grams", joules, c->gco2_per_kwh);
	render_rates(j, c);
	json_object_end(j);
}

void energy_cost_render_rates(struct json *j, const struct energy_cost *c)
{
	if (!json_object_if(j, "energy_cost", energy_cost_known(c)))
		return;
	render_rates(j, c);
	json_object_end(j);
}
