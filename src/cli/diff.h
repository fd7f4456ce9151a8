/* diff: compares two measurements, row by row.
 *
 * A row compares one property: a setting, a fact about the machine, a GPU or its sensor, a
 * figure, a process, a code.  diff_fields.h lists the properties with their tolerances;
 * comparison.h compares energy, power and time. */
#ifndef GW_CLI_DIFF_H
#define GW_CLI_DIFF_H

#include "comparison.h"
#include "bundle_open.h"

enum diff_section {
	SECTION_FIGURES,
	SECTION_CODES,
	SECTION_PROCESSES,
	SECTION_SETTINGS,
	SECTION_ENVIRONMENT,
	SECTION_GPU,
	SECTION_SENSOR,
	SECTIONS
};

enum diff_state {
	STATE_EQUAL,
	STATE_DIFFERS,
	STATE_OPEN,    /* the values differ, but perhaps only within the uncertainty */
	STATE_UNKNOWN, /* the value is unknown in A or in B */
};

struct diff_value {
	/* string, borrowed from the result; NULL: the value is a number or unknown */
	const char *text;
	double number;    /* NAN: the value is a text, or unknown */
	double low, high; /* 95 % coverage interval of number; NAN: there is none */
};

struct diff_row {
	enum diff_section section;
	int device;   /* index of the GPU; -1: the row is not about one GPU */
	char key[96]; /* name of the property; the key of a figure ends with its unit */
	const char *title;
	enum diff_state state;
	bool headline; /* the row is shown even if the values are equal */
	struct diff_value a, b;
	struct compare_change change; /* change from A to B; NAN: cannot be computed */
};

struct diff {
	struct diff_row *rows;
	unsigned nrows, room;
	size_t count[STATE_UNKNOWN + 1];
	struct result_file both[2]; /* copies of the results, with the labels A and B */
	struct comparison comparison;
	const struct comparison_row *a, *b; /* rows of `comparison`; NULL: A or B has no run */
	bool other_gpu, other_scale;
	int error;
};

/* Compares a and b, which must outlive d.  Returns 0 or -GW_E_NOMEM. */
int diff_init(struct diff *d, const struct bundle_opened *a, const struct bundle_opened *b);
void diff_done(struct diff *d);

#endif
