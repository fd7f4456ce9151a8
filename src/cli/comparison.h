/* comparison: loads the results that a command line names, and compares them as rows of trials,
 * with means, intervals and changes.
 *
 * A row has one label and, if the runs measured a marked part, one part.  Its trials are the
 * runs with this label in all files, except invalid runs.  The gain error of the sensor cancels
 * in a change on the same GPU with the same calibration; otherwise the interval of the change
 * includes it.  compare_format.c has the functions that write texts. */
#ifndef GW_CLI_COMPARISON_H
#define GW_CLI_COMPARISON_H

#include "cli.h"
#include "result_file.h"

#include "base/buf.h"
#include "measure/stat.h"

enum comparison_metric {
	METRIC_TIME,   /* seconds per iteration or per run */
	METRIC_POWER,  /* mean power in watts */
	METRIC_ENERGY, /* joules per iteration or per run */
	METRIC_NET,    /* joules above the baseline, per iteration or per run */
	METRIC_TOKEN,  /* joules per token */
	METRIC_SIZE,   /* size of the model in bytes */
	METRICS
};

/* One metric of a row.  Unknown values are NAN. */
struct comparison_figure {
	size_t n;    /* number of runs with a known value */
	double mean; /* mean over the n runs with a known value */
	/* Absolute 95 % interval, including the errors of the sensor's gain and offset. */
	double low, high;
	bool cut; /* True: `low` was below 0 and was set to 0. */
	/* 95 % interval for comparisons with runs on the same GPU. */
	double fair_low, fair_high;
	/* Change relative to the reference row. NAN in the reference row itself. */
	struct compare_change change;
};

struct comparison_run {
	const struct result_file *file;
	const struct result_run *run;
};

struct comparison_row {
	/* The label that is printed: "fp16", or "fp16 (inference)" for the part "inference". */
	char *label;
	/* Label and part of the runs. part is NULL if the row contains whole runs. */
	const char *name, *part;
	struct comparison_run *runs; /* All runs of the row, including invalid ones. */
	size_t nruns, used; /* Number of all runs, and number of runs that are not invalid. */
	/* Worst validity of the used runs. "invalid" if no run is used. */
	const char *validity;
	bool simulated; /* At least one result of the row comes from a simulated GPU. */
	bool other_gpu; /* The row and the reference were measured on different GPUs. */
	/* The sensors of the row and of the reference have different calibrations. */
	bool other_scale;
	/* rooms[i] is the number of used runs with the value i of enum result_room. */
	size_t rooms[ROOM_LOST + 1];
	/* Standard deviation of the power within a run: root mean square over the used runs. */
	double power_sd_w;
	struct comparison_figure figure[METRICS];
};

struct comparison {
	struct comparison_row *rows;
	size_t nrows;
	const struct comparison_row *reference; /* All changes are relative to this row. */
	bool reference_named; /* The user chose the reference with --reference. */
	/* The iterations of all usable runs are known, so time and energy are per iteration;
	 * otherwise they are per run. */
	bool per_iteration;
	bool iterations_partly; /* Iterations are known for some runs, but not for all. */
};

/* Compares the results, which are borrowed until comparison_done().  Changes are relative to
 * the row with the label `reference`; if it is NULL, to the first row with a known energy. If
 * `whole_runs` is true, compares whole runs even if the iterations are known.  Returns 0,
 * -GW_E_NOMEM, or -GW_E_NOENT if no row has that label.  After -GW_E_NOENT, `rows` is set, so
 * that a message can list the labels. */
int comparison_init(struct comparison *c, const struct result_file *results, size_t n,
		    const char *reference, bool whole_runs);
void comparison_done(struct comparison *c);

/* The row for --across-gpus in a table of options. */
#define ACROSS_GPUS_OPTION(at) \
	OPTION_ROW(FLAG, 0, "across-gpus", at, NULL, "also compare results of different GPUs")

/* The row for --reference in a table of options. */
#define REFERENCE_OPTION(at)                                                          \
	OPTION_ROW(TEXT, 0, "reference", at, "LABEL",                                 \
		   "changes are relative to this label (default: the first row that " \
		   "has an energy)")

struct result_set {
	struct result_file *v;
	size_t n;
};

/* Loads the result files that the command line names, and calls work() with them.  If a file
 * cannot be used, prints an error and does not call work().  `output` is the file that work()
 * writes (NULL: none); it must not be one of the result files. If `across` is true, results of
 * different GPUs are allowed.  Returns the exit code of work(), or that of the error. */
int result_set_with(const struct cli *c, const char *output, bool across,
		    int (*work)(const struct cli *c, const struct result_set *r));

/* Compares the results.  reference is the value of --reference, or NULL if it is not given.  If
 * no row has that label, or the row has no usable run, prints an error.  Returns an exit code.
 * Always call comparison_done() afterwards. */
int result_set_compare(const struct result_set *r, const char *reference,
		       struct comparison *ret);

/* Convert between a metric and its name: "latency", "power", "energy", "net", "token", "size".
 * comparison_metric_find() returns METRICS for an unknown name. */
const char *comparison_metric_name(enum comparison_metric m);
enum comparison_metric comparison_metric_find(const char *name);

/* Returns a title such as "Latency" or "Energy per iteration".  The title of the power also
 * says that the number in brackets is the standard deviation of the power, not an interval. */
const char *comparison_title(const struct comparison *c, enum comparison_metric m);

/* Returns the value of one run; NAN: unknown. Time and energy are per iteration if the
 * iterations of all runs are known, else per run. */
double comparison_value(const struct comparison *c, const struct comparison_run *r,
			enum comparison_metric m);

/* comparison_simulated() returns the number of rows with simulated results. If there are such
 * rows, comparison_simulated_text() returns a sentence that says whether the GPUs of all rows
 * or only of the marked rows are simulated. */
size_t comparison_simulated(const struct comparison *c);
const char *comparison_simulated_text(const struct comparison *c);

/* Returns true if power_sd_w is known for at least one row. */
bool comparison_knows_sd(const struct comparison *c);

/* Returns true if the metric is shown by default: at least one row has a value. Net energy is
 * an exception: it is shown only if every used run has it, because runs with and without a
 * baseline cannot be compared. */
bool comparison_has(const struct comparison *c, enum comparison_metric m);

/* Returns the number of GPUs over which power and energy of the row are summed; 0: unknown. */
size_t comparison_gpus(const struct comparison_row *row);

/* Returns the outcome of --clean-room for the runs of the row: "kept", "lost", "none", "mixed";
 * NULL if no run is used. */
const char *comparison_room(const struct comparison_row *row);
/* Returns true if any run was measured with --clean-room. */
bool comparison_has_rooms(const struct comparison *c);

/* How to print a column: value * factor with this number of decimals, then the unit. */
struct comparison_scale {
	double factor;
	int decimals;
	const char *unit;
};
struct comparison_scale comparison_scale(const struct comparison *c, enum comparison_metric m);
/* Returns a scale that suits all n intervals (NAN: unknown). Their typical size decides the
 * prefix of the unit, which is "s", "W" or "J". Numbers have about four digits. They have more
 * if this is necessary to show two digits of the half width of the narrowest interval. */
struct comparison_scale comparison_scale_of(const struct gw_interval *v, size_t n,
					    const char *unit);
/* Returns the value multiplied by the factor of the scale.  Returns 0 instead of a number that
 * would be printed as "-0.00". */
double comparison_scaled(const struct comparison_scale *s, double v);
/* Returns true if the interval is known and its ends differ when they are printed. */
bool comparison_has_width(const struct comparison_scale *s, double low, double high);

/* Writes bytes in the unit that gives a round number: "128 MB" or "128 MiB".  If there is none,
 * writes for example "117.7 MiB". */
void comparison_size_text(double bytes, char *out, size_t size);

/* Returns how many decimals to print for a change in percent: one for a change below 100 %,
 * else none. If an interval is known, more decimals are printed in three cases: everything
 * would be printed as 0; an interval that does not contain 0 would be printed as if it did; or
 * both ends would be printed as the same number. */
int comparison_change_decimals(const struct compare_change *c);

/* Returns a ratio in percent. Returns 0 instead of a number that would be printed as "-0.0". */
double comparison_per_cent(double ratio, int decimals);

/* Writes a change with its interval: "-12.3 % [-13.1, -11.5]".  Writes "-12.3 %" if the
 * interval is unknown or has no width, "no difference [within 0.001 %]" if everything is
 * printed as 0, and "" if the change is unknown. Returns false if it
 * wrote "no difference". */
bool comparison_change_text(const struct compare_change *change, char *out, size_t size);

/* Calls say() with each sentence that the reader needs to interpret the figures correctly. */
void comparison_notes(const struct comparison *c, void (*say)(void *ctx, const char *sentence),
		      void *ctx);

#endif
