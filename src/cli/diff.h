/* diff: compares two measurements, row by row.
 *
 * A row compares one property: a setting, a fact about the machine or the GPU or its sensor, a
 * figure, a process, or a code.  diff_fields.h lists the properties with their tolerances.
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
	STATE_OPEN, /* The values differ, but the difference may be within the uncertainty. */
	STATE_UNKNOWN, /* The value is unknown in A or in B. */
};

struct diff_value {
	/* A string that is borrowed from the result. NULL: the value is a number or unknown. */
	const char *text;
	double number;    /* NAN: the value is a string, or it is unknown. */
	double low, high; /* 95 % coverage interval of `number`. NAN: no interval is known. */
};

struct diff_row {
	enum diff_section section;
	int device;   /* Index of the GPU. -1: the row is not about a single GPU. */
	char key[96]; /* Name of the property. The key of a figure ends with its unit. */
	const char *title;
	enum diff_state state;
	bool headline; /* The row is shown even if both values are equal. */
	struct diff_value a, b;
	struct compare_change change; /* Change from A to B. NAN: it cannot be computed. */
};

struct diff {
	struct diff_row *rows;
	unsigned nrows, room;
	size_t count[STATE_UNKNOWN + 1];
	/* Copies of the results A and B. The copies have the labels "A" and "B". */
	struct result_file both[2];
	struct comparison comparison;
	/* The rows of `comparison` for A and B. NULL: the result has no run. */
	const struct comparison_row *a, *b;
	bool other_gpu, other_scale;
	int error;
};

/* Compares a and b, which must outlive d.  Returns 0 or -GW_E_NOMEM. */
int diff_init(struct diff *d, const struct bundle_opened *a, const struct bundle_opened *b);
void diff_done(struct diff *d);

#endif
