/* render_ab: the document of a comparison of two commands.
 *
 * The structs hold the whole comparison as plain data; NAN and NULL become null. For
 * schema_version, see render.h. */
#ifndef GW_SERVE_RENDER_AB_H
#define GW_SERVE_RENDER_AB_H

#include "render.h"
#include "render_result.h"

#include "measure/ab.h"

#include <gpuward.h>

#include <stdbool.h>
#include <stdint.h>

#define AB_LOOKS 16 /* maximum number of interim estimates; a comparison never reaches it */

/* One run of one of the commands. */
struct ab_record {
	struct ab_step step;
	bool used; /* The comparison uses the pair of this run. */
	uint64_t begin_wall_ns;
	double seconds, power_w;
	/* Energy of all GPUs. The interval does not include the errors of gain and offset,
	 * because these errors are the same in both runs of a pair. */
	struct gw_interval energy;
	/* energy of all GPUs, with the errors of gain and offset in the interval; not in the
	 * document */
	struct gw_interval absolute;
	double u_j; /* standard uncertainty of the best value */
	/* Energy from samples divided by energy from the counter, minus 1. NAN: one of the two
	 * energies is unknown. */
	double residual_ratio;
	double temperature_c;      /* temperature of the warmest GPU when the run began */
	enum gw_validity validity; /* the worst validity of all GPUs */
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
	/* number of warm-up runs of each command; the comparison does not use them */
	unsigned warmup;
	bool cooled; /* The comparison waits before each run until the GPUs have cooled down. */
	/* Before a run, the comparison waits until the GPUs have this temperature. NAN: the
	 * temperature at the start of the first run is used. */
	double cool_to_c;
	/* Total time for which the comparison waited until the GPUs had cooled down. */
	double cool_s;
	unsigned cool_late;               /* number of cool-down waits that timed out */
	const struct measured_room *room; /* NULL: none requested */
	struct ab_result result;
	struct ab_estimate look[AB_LOOKS];
	unsigned looks;
	struct ab_record *run; /* the runs, in order of execution */
	unsigned runs;
	bool failed; /* A command failed. The next three members describe the failure. */
	enum ab_arm failed_arm;
	/* Exit status of the command that failed, as in a shell. 0: the command succeeded, but
	 * its run cannot be used. */
	int failed_status;
	char failure[160]; /* a sentence about the failure */
	int interrupted;   /* signal that interrupted the comparison; 0: none */
	int exit_code;
};

/* Returns "passed", "failed" or "cannot-tell"; NULL without a gate. */
const char *ab_report_gate(const struct ab_report *r);

/* Returns the mean of a metric over the runs of an arm (one of the two commands), in the pairs
 * that the comparison uses. Returns NAN if there are no such runs. */
double ab_report_mean(const struct ab_report *r, enum ab_arm arm, enum ab_metric metric);

/* Computes the mean and the standard deviation of residual_ratio over the runs that the
 * comparison uses. Returns the number of those runs in which residual_ratio is known. */
unsigned ab_report_residual(const struct ab_report *r, double *ret_mean, double *ret_sd);

/* Returns the number of runs with this code. */
unsigned ab_report_code(const struct ab_report *r, unsigned code);

/* Writes the whole document. env may be NULL. */
void render_ab(struct json *j, const struct ab_report *r, const struct gw_environment *env,
	       const struct gw_snapshot *snap, const struct render_filter *filter);

#endif
