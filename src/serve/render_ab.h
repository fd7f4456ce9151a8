/* render_ab: the document of a comparison of two commands.
 *
 * The structs hold the whole comparison as plain data; NAN and NULL become null.
 * schema_version as in render.h. */
#ifndef GW_SERVE_RENDER_AB_H
#define GW_SERVE_RENDER_AB_H

#include "render.h"
#include "render_result.h"

#include "measure/ab.h"

#include <gpuward.h>

#include <stdbool.h>
#include <stdint.h>

#define AB_LOOKS 16 /* maximum number of interim estimates; more than can occur */

/* One run of one of the commands. */
struct ab_record {
	struct ab_step step;
	bool used; /* the pair of this run counts in the comparison */
	uint64_t begin_wall_ns;
	double seconds, power_w;
	/* sum of all GPUs for comparisons: without the errors of gain and offset */
	struct gw_interval energy;
	/* sum of all GPUs with the errors of gain and offset; not in the document */
	struct gw_interval absolute;
	double u_j; /* standard uncertainty of the best value */
	/* energy from samples / energy from counter - 1; NAN: only one is known */
	double residual_ratio;
	double temperature_c;      /* temperature of the warmest GPU when the run began */
	enum gw_validity validity; /* worst of all GPUs */
	uint64_t codes;            /* codes of all GPUs together */
};

struct ab_side {
	const char *name;    /* name of the program */
	const char *command; /* the command line; NULL: not recorded */
};

struct ab_report {
	uint64_t wall_ns;
	bool simulated;
	struct ab_side side[2];
	const struct ab_config *config;
	const char *gate;  /* the gate as given on the command line; NULL: no gate */
	const char *part;  /* the compared part; NULL: whole runs */
	double iterations; /* iterations per run; NAN: not given */
	unsigned warmup;   /* number of warm-up runs of each command, which do not count */
	bool cooled;       /* the GPUs cool down before each run */
	/* temperature to cool down to before a run; NAN: the temperature at the first start */
	double cool_to_c;
	/* total time for which the comparison waited for the GPUs to cool down */
	double cool_s;
	unsigned cool_late; /* number of waits for cooling that ended by a time limit */
	const struct measured_room *room; /* NULL: none requested */
	struct ab_result result;
	struct ab_estimate look[AB_LOOKS];
	unsigned looks;
	struct ab_record *run; /* in order of execution */
	unsigned runs;
	bool failed; /* a command failed; the next three members describe it */
	enum ab_arm failed_arm;
	/* exit status of the command as in a shell; 0: it succeeded, but its run is unusable */
	int failed_status;
	char failure[160]; /* what happened */
	int interrupted;   /* signal that interrupted the comparison; 0: none */
	int exit_code;
};

/* Returns "passed", "failed" or "cannot-tell"; NULL without a gate. */
const char *ab_report_gate(const struct ab_report *r);

/* Returns the mean of an arm's runs in counted pairs; NAN if there are no such runs. */
double ab_report_mean(const struct ab_report *r, enum ab_arm arm, enum ab_metric metric);

/* Computes mean and standard deviation of residual_ratio over the counted runs; returns the
 * number of runs in which residual_ratio is known. */
unsigned ab_report_residual(const struct ab_report *r, double *ret_mean, double *ret_sd);

/* Returns the number of runs with this code. */
unsigned ab_report_code(const struct ab_report *r, unsigned code);

/* Writes the whole document. env may be NULL. */
void render_ab(struct json *j, const struct ab_report *r, const struct gw_environment *env,
	       const struct gw_snapshot *snap, const struct render_filter *filter);

#endif
