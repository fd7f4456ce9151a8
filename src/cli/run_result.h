/* run_result: computes the result of a finished run, including the energy above the baseline,
 * and prints it. */
#ifndef GW_CLI_RUN_RESULT_H
#define GW_CLI_RUN_RESULT_H

#include "cli.h"
#include "runner.h"

#include "serve/render_result.h"
#include "measure/baseline.h"
#include "counter.h"

enum run_baseline_mode {
	RUN_BASELINE_KEPT, /* Use a stored baseline if one fits, else no baseline. */
	RUN_BASELINE_AUTO, /* Use a stored baseline if one fits, else measure one. */
	RUN_BASELINE_NEW,  /* Always measure a new baseline. */
	RUN_BASELINE_NONE,
	/* Use a stored baseline even if it is too old or was measured at another temperature,
	 * else none. */
	RUN_BASELINE_OLD,
};

/* The idle power from which the energy above idle is computed. */
struct run_baseline {
	bool have;
	struct baseline b;
	/* The baseline is too old or was measured at another temperature; `why` says which. */
	bool stale;
	char why[200]; /* Why there is no baseline. "": none was requested. */
};

/* Finds or measures the baseline of device i of the meter, and sets it in the meter. d is the
 * same device in the snapshot. Measuring takes at most half a minute. A signal ends the
 * measurement (r->interrupted). */
void run_baseline_get(struct runner *r, unsigned i, const struct gw_device *d,
		      enum run_baseline_mode mode, struct run_baseline *ret);

#define RUN_RESULT_TRIALS 1000 /* largest number of runs in a result */

/* Writes the evidence for a code of device i. `of` is the pointer that is stored next to the
 * function, as in run_result_remote. */
typedef void run_result_evidence(const void *of, unsigned i, const struct gw_energy *e,
				 unsigned code, char *out, size_t size);

/* The devices of a run that the service measured, without baselines and series. */
struct run_result_remote {
	const struct measured_device *device;
	unsigned devices;
	double seconds; /* Length of the window that the service measured. */
	run_result_evidence *evidence;
	const void *of;
};

/* The inputs of a result. */
struct run_result_from {
	const struct cli *c;
	struct gw_meter *meter;
	struct run_trace *series;
	const struct run_baseline *baseline; /* One baseline per device of the meter. */
	/* Values of the options. NAN: use the marks of the command. */
	double iterations, tokens;
	/* The count from a counter that is read before and after the run. */
	struct measured_count count;
	const char *part; /* Name of the marked part to report. NULL: the whole run. */
	/* The devices that the service measured; they replace the devices of the meter. NULL:
	 * this process measured. */
	const struct run_result_remote *remote;
};

/* Makes the result of a run. Afterwards the run may be freed, but not its marks, because the
 * result points to their energies. `host` is the energy of the machine during the run. Returns
 * 0 or -GW_E_NOMEM; free the result with run_result_done(). */
int run_result_make(const struct run_result_from *from, struct runner_run *run, unsigned trial,
		    const struct host_energy *host, struct measured_run *ret);
void run_result_done(struct measured_run *r);

/* run_result_codes() adds the codes of device i with their evidence.  run_result_sum() computes
 * the sums over the devices; call it after all devices are filled in.  run_result_make() calls
 * both. */
void run_result_codes(struct measured_run *r, unsigned i, run_result_evidence *evidence,
		      const void *of);
void run_result_sum(struct measured_run *r);

/* Recomputes the run with the gain and offset of `to`. baseline has the same meaning as in
 * struct run_result_from. */
void run_result_calibrate(struct measured_run *r, const struct sensor *to,
			  const struct run_baseline *baseline);

/* Returns the energy of a part of the run, summed over its GPUs.  NAN: unknown. */
struct gw_interval run_result_window_joules(const struct measured_run *r,
					    const struct measured_window *w);

/* Returns true if another process used one of the run's GPUs. */
bool run_result_shared(const struct measured_run *r);

/* Prints the result on standard error. */
void run_result_print(const struct measured *m, const struct cli *c);

/* run_count: reads a counter before and after each run (--count-cmd, --count-url), and prints
 * what is unknown or assumed. */

struct run_count {
	/* How the counter is read. NULL: there is no counter, and the functions do nothing. */
	const struct counter_kind *kind;
	const char *by;  /* The command or URL that gives the count. */
	bool iterations; /* True: the counter counts iterations. False: it counts tokens. */
	/* A signal to this runner ends the wait for a reading. */
	struct runner *runner;
	/* Private: */
	struct deadline_stop stop;
	struct counter_reading first, last;
	char place[2400]; /* Name of the source, for the result. */
	int64_t server_pid[METER_SERVERS];
	unsigned servers;
};

/* Reads the counter before a run starts, so that an error of the counter is found early. The
 * caller must fill in the public members and start the runner first. If `more` is true, there
 * was a run before this one. Returns an exit code. */
int run_count_before(struct run_count *c, bool more);

/* Reads the counter again.  Call it as soon as the command has ended, because the server may
 * continue to count. */
void run_count_after(struct run_count *c);

/* Computes the count of the run.  ret->place is borrowed from c.  If the count is unknown,
 * prints why and returns false. */
bool run_count_take(struct run_count *c, const struct runner_run *run,
		    struct measured_count *ret);

#endif
