/* Numbers of settings, with their units. */
#include "config_read.h"

#include "base/number.h"
#include "base/unit.h"

#include <math.h>
#include <string.h>

/* strtod() accepts hexadecimal; settings do not. */
static bool hexadecimal(const char *text)
{
	return strpbrk(text, "xX") != NULL;
}

/* Prints a whole number in the largest unit that divides it. */
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
	print_scaled(out, v, row->type == CONFIG_BYTES ? unit_sizes : unit_times);
}

void config_number_show(const struct config_row *row, double v, char *out, size_t size)
{
	struct buf b;
	char text[NUMBER_SIZE];

	buf_init_fixed(&b, out, size);
	if (row->type == CONFIG_DURATION && v >= 0 && v < 1e9) {
		print_scaled(&b, (uint64_t)(v * 1e9 + 0.5), unit_times);
	} else if (row->type == CONFIG_BYTES && v >= 0 && v < 1e18) {
		print_scaled(&b, (uint64_t)v, unit_sizes);
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
		if (!unit_parse(text, unit_times, ret))
			return false;
		*ret /= 1e9;
		return true;
	case CONFIG_BYTES: return unit_parse(text, unit_sizes, ret);
	case CONFIG_COUNT:
		end = text + strspn(text, "0123456789");
		return *text && !*end && unit_parse(text, plain, ret);
	default:
		*ret = number_parse(text, &end);
		return end != text && !*end && isfinite(*ret) && !hexadecimal(text);
	}
}
