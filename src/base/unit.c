#include "unit.h"

#include "number.h"

#include <math.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

const struct unit unit_times[] = { { "h", 3600e9 }, { "m", 60e9 }, { "s", 1e9 }, { "ms", 1e6 },
				   { "us", 1e3 },   { "ns", 1 },   { "", 1e9 },  { NULL, 0 } };
const struct unit unit_sizes[] = {
	{ "TiB", 0x1p40 }, { "GiB", 0x1p30 }, { "MiB", 0x1p20 }, { "KiB", 0x1p10 }, { "B", 1 },
	{ "TB", 1e12 },    { "GB", 1e9 },     { "MB", 1e6 },     { "kB", 1e3 },     { "", 1 },
	{ "T", 0x1p40 },   { "G", 0x1p30 },   { "M", 0x1p20 },   { "K", 0x1p10 },   { NULL, 0 },
};

bool unit_parse(const char *text, const struct unit *units, double *ret)
{
	const bool any_case = units == unit_sizes; /* of times "m" and "M" would differ */
	const char *end;
	double v = number_parse(text, &end);

	/* strtod() reads hexadecimal; nobody means it. */
	if (end == text || !isfinite(v) || v < 0 || strpbrk(text, "xX"))
		return false;
	while (*end == ' ')
		end++;
	for (; units->name; units++)
		if ((any_case ? strcasecmp : strcmp)(end, units->name) == 0) {
			*ret = v * units->size;
			return true;
		}
	return false;
}
