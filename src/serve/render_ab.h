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

#define AB_LOOKS 16 /* more than possible */

/* One run of one of the commands. */
struct ab_record {
	struct ab_step step;
	bool used; /* its pair is counted */
	uint64_t begin_wall_ns;
	double seconds, power_w;
	struct gw_interval energy; /* of all GPUs, for comparisons: without gain and offset */
	double u_j;                /* standard uncertainty of the best value */
	double residual_ratio;     /* samples / counter - 1; NAN: only one meter */
	double temperature_c;      /* of the warmest GPU at the begin */
	enum gw_validity validity; /* worst of all GPUs */
	uint64_t codes;            /* of any GPU                                          */
};

struct ab_side {
	const char *name;    /* of the program */
	const char *command; /* NULL: not recorded */
};

struct ab_report {
	uint64_t wall_ns;
	bool simulated;
	struct ab_side side[2];
	const struct ab_config *config;
	const char *gate;  /* as written, NULL: none             */
	const char *part;  /* the compared part; NULL: whole runs */
	double iterations; /* per run; NAN: not given */
	unsigned warmup;
	bool cooled;
	double cool_to_c; /* NAN: as at the first start */
	double cool_s;    /* total waiting time */
	unsigned cool_late;
	const struct measured_room *room; /* NULL: none requested */
	struct ab_result result;
	struct ab_estimate look[AB_LOOKS];
	unsigned looks;
	struct ab_record *run; /* in order of execution */
	unsigned runs;
	bool failed; /* a command failed: */
	enum ab_arm failed_arm;
	int failed_status; /* as in a shell; 0: it succeeded, but its run is unusable */
	char failure[160]; /* what happened */
	int interrupted;   /* by this signal; 0: not interrupted */
	int exit_code;
};

/* The reason for the end, in one word: "decided", "precise", "budget", "invalid", "shared",
 * "failed", "interrupted". */
const char *ab_report_ending(const struct ab_report *r);

/* "passed", "failed", "cannot-tell"; NULL without a gate. */
const char *ab_report_gate(const struct ab_report *r);

/* Mean of an arm's runs in counted pairs; NAN: none. */
double ab_report_mean(const struct ab_report *r, enum ab_arm arm, enum ab_metric metric);

/* Difference of the two meters in counted runs: mean and s.d. of residual_ratio; returns the
 * number of runs that have one. */
unsigned ab_report_residual(const struct ab_report *r, double *ret_mean, double *ret_sd);

/* Number of runs with this code. */
unsigned ab_report_code(const struct ab_report *r, unsigned code);

/* The whole document.  env may be NULL. */
void render_ab(struct json *j, const struct ab_report *r, const struct gw_environment *env,
	       const struct gw_snapshot *snap, const struct render_filter *filter);

#endif
