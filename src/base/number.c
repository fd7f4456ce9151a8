#include "number.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The C locale is a constant of libc: asking for it allocates nothing and does not fail. */
static locale_t c_locale(void)
{
	return newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

double number_parse(const char *text, const char **ret_end)
{
	locale_t c = c_locale();
	char *end;
	double v = strtod_l(text, &end, c);

	freelocale(c);
	*ret_end = end;
	return v;
}

void number_format(double v, char out[static NUMBER_SIZE])
{
	locale_t c, before;

	if (fabs(v) < 9007199254740992.0 && v == trunc(v)) {
		snprintf(out, NUMBER_SIZE, "%lld", (long long)v);
		return;
	}
	c = c_locale();
	before = uselocale(c);
	for (int digits = 6; digits <= 17; digits++) {
		snprintf(out, NUMBER_SIZE, "%.*g", digits, v);
		if (strtod(out, NULL) == v)
			break;
	}
	uselocale(before);
	freelocale(c);
}
