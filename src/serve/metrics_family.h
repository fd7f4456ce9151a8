/* metrics_family: has the table of all metric families with their groups, and decides which
 * families are served.
 *
 * Each family has a number. The order is: the rows of metric.def, GPU quantities, host
 * quantities, the rows of dcgm.def. Code that writes a family first calls page_family(), so
 * that an excluded family costs nothing. A struct metrics_choice of zeros is the default
 * set. */
#ifndef GW_SERVE_METRICS_FAMILY_H
#define GW_SERVE_METRICS_FAMILY_H

#include <gpuward.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum metric_group {
#define G(symbol, word, help) METRIC_GROUP_##symbol,
#include "metric.def"
#undef G
	METRIC_GROUPS
};

enum {
#define M(symbol, group, when, name, type, labels, help) M_##symbol,
#include "metric.def"
#undef M
	METRICS
};

enum {
	METRIC_DCGM_ROWS = 0
#define DCGM(name, type, source, factor, help) +1
#include "dcgm.def"
#undef DCGM
};

/* Sources in dcgm.def that are not quantities. */
enum { DCGM_LAST_XID = GW_QUANTITIES, DCGM_ENERGY };

/* Numbers of the families after the rows of metric.def. */
#define METRIC_OF_QUANTITY(q) (METRICS + (unsigned)(q))
#define METRIC_OF_HOST(h)     (METRICS + GW_QUANTITIES + (unsigned)(h))
#define METRIC_OF_DCGM(row)   (METRIC_OF_HOST(GW_HOST_QUANTITIES) + (unsigned)(row))
#define METRIC_FAMILIES       METRIC_OF_DCGM(METRIC_DCGM_ROWS)

/* METRIC_TALLY is a counter with a name that does not end in _total. OpenMetrics has no such
 * type. */
enum metric_type { METRIC_GAUGE, METRIC_COUNTER, METRIC_INFO, METRIC_UNKNOWN, METRIC_TALLY };

/* The condition under which a family is served if the configuration does not name it.
 * metric.def explains the values. */
enum metric_when { METRIC_ALWAYS, METRIC_ASKED, METRIC_WORKERS, METRIC_DCGM };

struct metric {
	/* the name without _total and _info; NULL: the family has no series */
	const char *name;
	const char *help;
	const char *labels; /* label names, separated by commas */
	enum metric_type type;
	enum metric_group group;
	enum metric_when when;
};

enum metric_how { NUMBER, WORDS };

/* Gets family i. Returns false if i is past the end. */
bool metrics_table(unsigned i, struct metric *ret);

/* Returns the family of a quantity. The name of the family is NULL if the quantity has no
 * series. */
struct metric metrics_quantity(unsigned q, enum metric_how *ret_how);

/* Returns "_total", "_info" or "". */
const char *metric_suffix(enum metric_type type);

const char *metric_group_word(enum metric_group group);

/* Whether the configuration names a family, and how. */
enum metric_wish { METRIC_UNNAMED, METRIC_INCLUDED, METRIC_EXCLUDED };

struct metrics_choice {
	uint8_t family[METRIC_FAMILIES]; /* values of enum metric_wish */
	bool dcgm;                       /* The metrics of dcgm-exporter are served too. */
	/* A metric with one series per word always has a series for the word that applies. If
	 * `zeros` is true, it also has a series with the value 0 for each other word. */
	bool zeros;
};

/* Sets *ret from two lists of words that end with NULL. A word is the name of a metric as on
 * the page, the word of a group, or a pattern with `*`. A name has priority over a group, and a
 * group over a pattern. If both lists name a family in the same way, the family is excluded. A
 * pattern that does not begin with DCGM matches no family of dcgm-exporter. If dcgm is true,
 * all families of dcgm-exporter that are not excluded are served. */
void metrics_choose(struct metrics_choice *ret, const char *const *include,
		    const char *const *exclude, bool dcgm);

/* True if the family is served. `workers` says whether the guard has a worker. */
bool metrics_chosen(const struct metrics_choice *c, unsigned family, bool workers);

/* True if a chosen family needs a reading of GW_TIER_PROFILE. */
bool metrics_need_profile(const struct metrics_choice *c);

/* True if the word is a group or names at least one family. If not, ret_near gets the most
 * similar name or group; "": none is similar. */
#define METRIC_NAME_SIZE 96
bool metrics_word_known(const char *word, char ret_near[static METRIC_NAME_SIZE]);

#endif
