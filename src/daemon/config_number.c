/* Numbers of settings, with their units. */
#include "config_read.h"

#include "base/number.h"

#include <math.h>
#include <string.h>

/* Largest first: what is printed is a whole number of the largest that fits. */
struct unit {
	const char *name;
	double size;
};
static const struct unit times[] = { { "h", 3600e9 }, { "m", 60e9 }, { "s", 1e9 },
				     { "ms", 1e6 },   { "us", 1e3 }, { "ns", 1 },
				     { "", 1e9 },     { NULL, 0 } };
static const struct unit sizes[] = {
	{ "TiB", 0x1p40 }, { "GiB", 0x1p30 }, { "MiB", 0x1p20 }, { "KiB", 0x1p10 },
	{ "B", 1 },        { "TB", 1e12 },    { "GB", 1e9 },     { "MB", 1e6 },
	{ "kB", 1e3 },     { "", 1 },         { NULL, 0 },
};

/* strtod() reads it; nobody means it. */
static bool hexadecimal(const char *text)
{
	return strpbrk(text, "xX") != NULL;
}

static bool scaled(const char *text, const struct unit *units, double *ret)
{
	const char *end;
	double v = number_parse(text, &end);

	if (end == text || !isfinite(v) || v < 0 || hexadecimal(text))
		return false;
	while (*end == ' ')
		end++;
	for (; units->name; units++)
		if (strcmp(end, units->name) == 0) {
			*ret = v * units->size;
			return true;
		}
	return false;
}

static void print_scaled(struct buf *out, uint64_t v, const struct unit *units)
{
	const struct unit *u = units;

	while (v == 0 ? strcmp(u->name, "s") != 0 && strcmp(u->name, "B") != 0
		      : v % (uint64_t)u->size != 0)
		u++;
	buf_addf(out, "%llu%s", (unsigned long long)(v / (uint64_t)u->size), u->name);
}

void config_number_print(struct buf *out, const struct config_row *row, uint64_t v)
{
	print_scaled(out, v, row->type == CONFIG_BYTES ? sizes : times);
}

void config_number_show(const struct config_row *row, double v, char *out, size_t size)
{
	struct buf b;
	char text[NUMBER_SIZE];

	buf_init_fixed(&b, out, size);
	if (row->type == CONFIG_DURATION && v >= 0 && v < 1e9) {
		print_scaled(&b, (uint64_t)(v * 1e9 + 0.5), times);
	} else if (row->type == CONFIG_BYTES && v >= 0 && v < 1e18) {
		print_scaled(&b, (uint64_t)v, sizes);
	} else {
		number_format(v, text);
		buf_adds(&b, text);
	}
}

bool config_number_read(const struct config_row *row, const char *text, double *ret)
{
	static const struct unit plain[] = { { "", 1 }, { NULL, 0 } };
	const char *end;

	switch (row->type) {
	case CONFIG_DURATION:
		if (!scaled(text, times, ret))
			return false;
		*ret /= 1e9;
		return true;
	case CONFIG_BYTES: return scaled(text, sizes, ret);
	case CONFIG_COUNT:
		end = text + strspn(text, "0123456789");
		return *text && !*end && scaled(text, plain, ret);
	default:
		*ret = number_parse(text, &end);
		return end != text && !*end && isfinite(*ret) && !hexadecimal(text);
	}
}
