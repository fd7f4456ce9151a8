/* unit: numbers with a unit behind them, as people write them: "1.5 h", "250ms", "4 GiB". */
#ifndef GW_BASE_UNIT_H
#define GW_BASE_UNIT_H

#include <stdbool.h>

struct unit { /* a table of these ends with a NULL name; "" is what a bare number means */
	const char *name;
	double size;
};

/* Largest first, then other spellings.  Nanoseconds (a bare number is seconds), and bytes: "G" is GiB. */
extern const struct unit unit_times[], unit_sizes[];

/* All of text must be a number that is not negative and perhaps a unit; false: it is not, *ret is as it was. */
bool unit_parse(const char *text, const struct unit *units, double *ret);

#endif
