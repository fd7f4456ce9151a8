/* measured: a run that was made becomes a result, for files and for people. */
#ifndef GW_CLI_MEASURED_H
#define GW_CLI_MEASURED_H

#include "cli.h"
#include "run_baseline.h"
#include "runner.h"

#include "serve/render_result.h"

#define MEASURED_TRIALS 1000 /* runs of one result */

/* The codes of device i are told with the evidence that this has of `of`. */
typedef void measured_evidence(const void *of, unsigned i, const struct gw_energy *e,
			       unsigned code, char *out, size_t size);

/* The devices of a run that somebody else has measured, but for baselines and series. */
struct measured_there {
	const struct measured_device *device;
	unsigned devices;
	double seconds; /* of the window that the energies are of */
	measured_evidence *evidence;
	const void *of;
};

/* What a result is made from. */
struct measured_from {
	const struct cli *c;
	struct gw_meter *meter;
	struct run_trace *series;
	const struct run_baseline *baseline; /* one a device of the meter */
	double iterations, tokens;           /* as given; NAN: as marked */
	struct measured_count count;         /* ... or counted around the run */
	const char *part; /* the run is this marked part of it; NULL: all of it */
	const struct measured_there *there; /* in place of the meter's devices; NULL: those */
};

/* Takes all that is known of the run; it may be ended afterwards, but for its marks, whose
 * energies the result borrows.  host: what the machine used meanwhile.  0 or -GW_E_NOMEM; end
 * it with measured_run_done(). */
int measured_run(const struct measured_from *from, struct runner_run *run, unsigned trial,
		 const struct host_energy *host, struct measured_run *ret);
void measured_run_done(struct measured_run *r);

/* The parts of that: the codes of device i, with the evidence that `evidence` has of `of`;
 * then, with all devices there, the sums over them. */
void measured_codes(struct measured_run *r, unsigned i, measured_evidence *evidence,
		    const void *of);
void measured_add_up(struct measured_run *r);

/* The run as it is with the gain and offset of `to`, whatever it was measured with; baseline as
 * in measured_from. */
void measured_calibrate(struct measured_run *r, const struct sensor *to,
			const struct run_baseline *baseline);

/* What a part of the run took, on all its GPUs; NAN: not known. */
struct gw_interval measured_window_joules(const struct measured_run *r,
					  const struct measured_window *w);

/* Was somebody else on one of its GPUs? */
bool measured_shared(const struct measured_run *r);

/* The result on a screen, on standard error. */
void measured_print(const struct measured *m, const struct cli *c);

#endif
