#include "number.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Returns the C locale. It is a constant of libc, so this allocates nothing and cannot fail. */
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

const char *bytes_text(char out[static BYTES_TEXT], double bytes, int decimals)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	static const double half[] = { .5, .05, .005 }; /* of the last digit */
	unsigned u = 0;
	int digits = 0;

	/* Use the next unit if rounding would print 1024. */
	while (bytes >= 1024 - half[digits] && u + 1 < sizeof(units) / sizeof(units[0])) {
		bytes /= 1024;
		digits = ++u < 3 ? decimals - 1 : decimals;
	}
	if (isnan(bytes))
		snprintf(out, BYTES_TEXT, "-");
	else
		snprintf(out, BYTES_TEXT, "%.*f %s", digits, bytes, units[u]);
	return out;
}

double number_without_minus_zero(double v, int decimals)
{
	double half = 0.5;

	while (decimals-- > 0)
		half /= 10;
	return fabs(v) <= half ? 0 : v;
}

bool number_u64(const char *text, uint64_t *ret)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*ret = strtoull(text, &end, 10);
	return *end == '\0' && errno == 0;
}

bool number_id(const char *text, uint64_t *ret)
{
	return (*text != '0' || text[1] == '\0') && number_u64(text, ret);
}

const struct unit unit_times[] = { { "h", 3600e9 }, { "m", 60e9 }, { "s", 1e9 }, { "ms", 1e6 },
				   { "us", 1e3 },   { "ns", 1 },   { "", 1e9 },  { NULL, 0 } };
const struct unit unit_sizes[] = {
	{ "TiB", 0x1p40 }, { "GiB", 0x1p30 }, { "MiB", 0x1p20 }, { "KiB", 0x1p10 }, { "B", 1 },
	{ "TB", 1e12 },    { "GB", 1e9 },     { "MB", 1e6 },     { "kB", 1e3 },     { "", 1 },
	{ "T", 0x1p40 },   { "G", 0x1p30 },   { "M", 0x1p20 },   { "K", 0x1p10 },   { NULL, 0 },
};

bool unit_parse(const char *text, const struct unit *units, double *ret)
{
	/* Ignore case only for sizes: for times, "m" and "M" could mean different units. */
	const bool any_case = units == unit_sizes;
	const char *end;
	double v = number_parse(text, &end);

	/* strtod() also reads hexadecimal, which is not allowed here. */
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
