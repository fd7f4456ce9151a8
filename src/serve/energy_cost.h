/* energy_cost: computes the cost of energy in money and CO2, from the price and the carbon
 * intensity that the user configures.
 *
 * Without this configuration no cost is shown. The energy is that of the GPU boards alone, not
 * of the whole machine. */
#ifndef GW_SERVE_ENERGY_COST_H
#define GW_SERVE_ENERGY_COST_H

#include "base/json.h"

#include <gpuward.h>

#include <stdbool.h>

/* bytes of a currency name: at most 16 characters, and the NUL */
#define ENERGY_COST_CURRENCY 17
#define ENERGY_COST_TEXT     160

struct energy_cost {
	double price_per_kwh;                /* 0: not configured */
	double gco2_per_kwh;                 /* g of CO2; 0: not configured */
	char currency[ENERGY_COST_CURRENCY]; /* "": not given */
};

/* Writes "0.00222 kWh, 0.000689 EUR, 0.844 g CO2".  Writes "" if nothing is configured or the
 * energy is unknown. */
void energy_cost_text(const struct energy_cost *c, double joules,
		      char out[static ENERGY_COST_TEXT]);

/* Writes the object "cost", or null if nothing is configured. Each figure has its coverage
 * interval. */
void energy_cost_render(struct json *j, const struct energy_cost *c,
			const struct gw_interval *joules);

/* Writes the configured price, currency and carbon intensity as the object "energy_cost"; null
 * if nothing is configured. */
void energy_cost_render_rates(struct json *j, const struct energy_cost *c);

#endif
