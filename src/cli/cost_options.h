/* cost_options: the options for the price and the carbon intensity of energy, which measure,
 * log and report share.
 *
 * An option that is not given on the command line is read from the environment variable that
 * the service uses for the same setting (GPUWARD_ENERGY_PRICE_PER_KWH). */
#ifndef GW_CLI_COST_OPTIONS_H
#define GW_CLI_COST_OPTIONS_H

#include "option.h"

#include "serve/render.h"

#include <stddef.h>

struct cost_options {
	const char *price, *currency, *gco2;
};

/* Rows for a table of options; type.member is a struct cost_options. */
#define COST_OPTIONS(type, member)                                                             \
	OPTION_ROW(TEXT, 0, "price-per-kwh", offsetof(type, member.price), "PRICE",            \
		   "price of a kilowatt-hour; the energy is then also shown in kWh and as "    \
		   "costs"),                                                                   \
		OPTION_ROW(TEXT, 0, "price-currency", offsetof(type, member.currency), "WORD", \
			   "currency of that price, such as EUR"),                             \
		OPTION_ROW(TEXT, 0, "gco2-per-kwh", offsetof(type, member.gco2), "GRAMS",      \
			   "grams of CO2 per kilowatt-hour; the energy is then also shown as " \
			   "CO2")

/* Parses the options.  Returns EXIT_OK, or prints an error and returns EXIT_USAGE. */
int cost_options_read(const struct cost_options *o, struct energy_cost *ret);

#endif
