#include "cost_options.h"

#include "cli.h"

#include "base/number.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RATE_MOST 1e6

/* Returns the value of the option, or else of the environment variable. *ret_name: name of the
 * option or variable that had the value. */
static const char *given_or_variable(const char *given, const char *option,
				     const char *variable, const char **ret_name)
{
	const char *v = given ? given : getenv(variable);

	*ret_name = given ? option : variable;
	return v && *v ? v : NULL;
}

static int read_rate(const char *given, const char *option, const char *variable,
		     const char *example, double *ret)
{
	const char *name, *end, *text = given_or_variable(given, option, variable, &name);
	double v;

	*ret = 0;
	if (!text)
		return given ? cli_usage("%s takes a number such as %s, not ''", name, example)
			     : EXIT_OK;
	v = number_parse(text, &end);
	/* strtod() also reads hexadecimal, "nan" and blanks. */
	if (end == text || *end || text[strspn(text, "0123456789.eE+-")] ||
	    !(v >= 0 && v <= RATE_MOST))
		return cli_usage("%s takes a number such as %s, not '%s'", name, example, text);
	*ret = v;
	return EXIT_OK;
}

static int read_currency(const char *given, char ret[static ENERGY_COST_CURRENCY])
{
	const char *name, *text = given_or_variable(given, "--price-currency",
						    "GPUWARD_ENERGY_PRICE_CURRENCY", &name);
	char clean[64];

	*ret = '\0';
	if (!text)
		return EXIT_OK;
	utf8_clean(clean, sizeof(clean), text);
	if (strlen(text) >= ENERGY_COST_CURRENCY || strcmp(clean, text) != 0)
		return cli_usage("%s takes a word of at most %d bytes such as EUR, not '%s'",
				 name, ENERGY_COST_CURRENCY - 1, clean);
	snprintf(ret, ENERGY_COST_CURRENCY, "%s", text);
	return EXIT_OK;
}

int cost_options_read(const struct cost_options *o, struct energy_cost *ret)
{
	int code = read_rate(o->price, "--price-per-kwh", "GPUWARD_ENERGY_PRICE_PER_KWH",
			     "0.31", &ret->price_per_kwh);

	if (code == EXIT_OK)
		code = read_rate(o->gco2, "--gco2-per-kwh", "GPUWARD_ENERGY_GCO2_PER_KWH",
				 "380", &ret->gco2_per_kwh);
	if (code == EXIT_OK)
		code = read_currency(o->currency, ret->currency);
	if (code == EXIT_OK && o->currency && !(ret->price_per_kwh > 0))
		code = cli_usage("--price-currency needs --price-per-kwh");
	return code;
}
