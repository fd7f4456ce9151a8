/* comparison: results laid side by side: rows of trials, their means, intervals and changes.
 *
 * A row is a label and, where runs are of a marked part of the command, that part; files with
 * the same label, and the runs inside a file, are its trials.  Runs that are invalid are left
 * out of every figure.  Changes are against the reference, the first row that knows its energy,
 * from the energies in which the gain of the sensor cancels; rows of another GPU than it get
 * the whole uncertainty instead, since there it does not. */
#ifndef GW_CLI_COMPARISON_H
#define GW_CLI_COMPARISON_H

#include "result.h"

#include "base/buf.h"
#include "measure/compare.h"

enum comparison_metric {
	METRIC_TIME,   /* s per iteration, or of a whole run                 */
	METRIC_POWER,  /* W, mean                                            */
	METRIC_ENERGY, /* J per iteration, or of a whole run                 */
	METRIC_TOKEN,  /* J per token                                        */
	METRIC_SIZE,   /* bytes of the model                                 */
	METRICS
};

/* What is not known is NAN. */
struct comparison_figure {
	size_t n;         /* runs that have it                                        */
	double mean;      /* over them                                                */
	double low, high; /* 95 %, of the true value: gain and offset included        */
	double fair_low, fair_high;   /* 95 %, against other runs on the same GPU       */
	struct compare_change change; /* against the reference; NAN in that itself   */
};

struct comparison_run {
	const struct result *file;
	const struct result_run *run;
};

struct comparison_row {
	char *label;                 /* as it is shown: "fp16", "fp16 (inference)" */
	const char *name, *part;     /* of which it is made; part is NULL for whole runs */
	struct comparison_run *runs; /* all, also those left out */
	size_t nruns, used;
	const char *validity; /* the worst of the runs that are used; "invalid" where none is */
	bool simulated;
	bool other_gpu;   /* than the reference's */
	bool other_scale; /* the same, calibrated otherwise: its gain does not cancel either */
	size_t rooms[ROOM_LOST + 1]; /* runs that are used, by enum result_room */
	double power_sd_w;           /* of the load inside a run, over all runs */
	struct comparison_figure figure[METRICS];
};

struct comparison {
	struct comparison_row *rows;
	size_t nrows;
	const struct comparison_row *reference; /* what changes are against */
	bool per_iteration; /* every run knows its iterations; else whole runs are compared */
};

/* Compares.  The results are borrowed for its life.  0 or -GW_E_NOMEM. */
int comparison_init(struct comparison *c, const struct result *results, size_t n);
void comparison_done(struct comparison *c);

/* Are the results of different GPUs?  Then says in `sentence` which file has which. */
bool comparison_mixes_gpus(const struct result *results, size_t n, struct buf *sentence);

/* "latency", "power", "energy", "token", "size"; METRICS where there is no such. */
const char *comparison_metric_name(enum comparison_metric m);
enum comparison_metric comparison_metric_find(const char *name);

/* "Latency", "Energy per inference" and the like; that of power says what stands in brackets
 * behind the mean: how the load varied, which is no interval. */
const char *comparison_title(const struct comparison *c, enum comparison_metric m);

/* Does any row have it? */
bool comparison_has(const struct comparison *c, enum comparison_metric m);

/* Whether the row's runs had a clean room: "kept", "lost", "none", "mixed"; NULL where no run
 * is used. */
const char *comparison_room(const struct comparison_row *row);
/* Had any run of any row one, kept or not?  Else there is nothing to show. */
bool comparison_has_rooms(const struct comparison *c);

/* One unit for a whole column: value * factor, with so many decimals, then the unit. */
struct comparison_scale {
	double factor;
	int decimals;
	const char *unit;
};
struct comparison_scale comparison_scale(const struct comparison *c, enum comparison_metric m);
/* The same for any numbers of this size; unit is "s", "W" or "J". */
struct comparison_scale comparison_scale_of(double typical, const char *unit);

/* Bytes in the units in which they were likely given: "128 MB" where that is exact, else "128
 * MiB" or, of no round number, "117.7 MiB". */
void comparison_size_text(double bytes, char *out, size_t size);

/* "-12.3 % [-13.1, -11.5]"; empty where there is no change to tell. */
void comparison_change_text(const struct compare_change *change, char *out, size_t size);

/* What a reader must know beside the figures, a sentence each. */
void comparison_notes(const struct comparison *c, void (*say)(void *ctx, const char *sentence),
		      void *ctx);

#endif
