/* difference: in what two measurements differ, row by row.
 *
 * A row is one thing that both have: a setting, a fact of the machine, of a GPU or of its sensor, a figure,
 * a process, a code.  Which things, under which names and how far apart they may be without being called
 * different is in tables; energy, power and time are judged by comparison.h. */
#ifndef GW_CLI_DIFFERENCE_H
#define GW_CLI_DIFFERENCE_H

#include "comparison.h"
#include "evidence.h"

enum difference_section {
	SECTION_FIGURES,
	SECTION_CODES,
	SECTION_PROCESSES,
	SECTION_SETTINGS,
	SECTION_ENVIRONMENT,
	SECTION_GPU,
	SECTION_SENSOR,
	SECTIONS
};

/* "figures", ... for programs. */
const char *difference_section_name(enum difference_section s);

enum difference_state {
	STATE_EQUAL,
	STATE_DIFFERS,
	STATE_OPEN, /* differs, maybe by no more than is unknown of it: nothing can be said */
	STATE_UNKNOWN, /* one of them does not tell it */
};
const char *difference_state_name(enum difference_state s);

struct difference_value {
	const char *text; /* borrowed from the result; NULL: a number, or not known */
	double number;    /* NAN: a text, or not known */
	double low, high; /* 95 %; NAN where it has none */
};

struct difference_row {
	enum difference_section section;
	int device;        /* -1: of no one GPU */
	char key[96];      /* a figure's unit ends it */
	const char *title; /* for people */
	enum difference_state state;
	bool headline; /* shown in any case */
	struct difference_value a, b;
	struct compare_change change; /* NAN: none to tell */
};

struct difference {
	struct difference_row *rows;
	size_t nrows, room;
	size_t count[STATE_UNKNOWN + 1];
	struct result both[2]; /* under the names A and B */
	struct comparison comparison;
	const struct comparison_row *a, *b; /* of it; NULL: has no run at all */
	bool other_gpu, other_scale;
	int error;
};

/* Both are borrowed for its life.  0 or -GW_E_NOMEM. */
int difference_init(struct difference *d, const struct evidence *a, const struct evidence *b);
void difference_done(struct difference *d);

/* The answer in one sentence: is the energy another? */
void difference_verdict(const struct difference *d, char *out, size_t size);

/* What a reader must know beside the rows, a sentence each. */
void difference_notes(const struct difference *d, void (*say)(void *ctx, const char *sentence),
		      void *ctx);

#endif
