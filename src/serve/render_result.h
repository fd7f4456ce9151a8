/* render_result: the document of a measurement, which compare and report read.
 *
 * The structs here are all that a result holds, as plain data; NAN and NULL become null, and the
 * codes beside them say why.  schema_version as in render.h. */
#ifndef GW_SERVE_RENDER_RESULT_H
#define GW_SERVE_RENDER_RESULT_H

#include "render.h"

#include "guard/policy.h"
#include "measure/attribute.h"
#include "measure/host_energy.h"
#include "measure/sensor.h"
#include "measure/run_trace.h"

#include <gpuward.h>

/* Something to know about a run. */
struct measured_code {
	unsigned code; /* enum gw_code */
	enum gw_validity level;
	int device; /* position in the run's devices; -1: of the run */
	char evidence[200];
};

/* What a GPU drew when it did nothing, and what was above it. */
struct measured_baseline {
	const char *kind; /* NULL: none, and the rest says nothing */
	double power_w, u_w, age_s, seconds;
	struct gw_interval net_joules;
	double adjusted_joules;
	bool floored;
};

struct measured_device {
	unsigned index;
	char uuid[96], name[96], driver[96]; /* "": unknown */
	enum gw_provenance provenance;
	struct gw_energy energy;
	struct measured_baseline baseline;
	double power_limit_w;
	struct sensor sensor;
	bool processes; /* who was there was asked */
	struct attribute who;
	struct run_trace_copy series;
};

/* A part of a run that the command marked. */
struct measured_window {
	const char *label;
	double begin_s, seconds;
	bool unfinished;
	const struct gw_energy *energy; /* one a device */
};

/* What was counted before and after a run, and so of it. */
struct measured_count {
	const char *source; /* the option that says by what; NULL: nothing was */
	const char *place;  /* what was asked, without its secrets; NULL: it is not told */
	char name[640];     /* of the counter, with the labels that chose; "": it has none */
	unsigned series;    /* so many were added up; 0: unknown        */
	bool iterations;    /* and no tokens                            */
	double number;      /* NAN: unknown                             */
	double edge;        /* so many of them may be too many: they were made around the run */
	unsigned fresh;     /* series that were not told before, and counted whole */
	double fresh_number;
	bool fresh_assumed; /* the server does not say that they began in the run */
	char why[320];      /* it is unknown                            */
};

/* Enough for every code on eight GPUs; of more the first are told, and child-failed always. */
#define MEASURED_CODES (8 * GW_CODES)

struct measured_run {
	unsigned trial;
	uint64_t begin_ns, begin_wall_ns; /* monotonic, wall */
	const char *part; /* it is this marked part of a run; NULL: all of one */
	unsigned parts;   /* so many of that name were marked; the first is told */
	double seconds;
	double window_s;              /* that the energies are of; 0: of the seconds above */
	int exit_status, exit_signal; /* -1, 0: none */
	enum gw_validity validity;
	struct measured_code code[MEASURED_CODES];
	unsigned codes;
	/* Sums over the devices. */
	struct gw_interval joules, relative_joules, net_joules;
	double adjusted_joules;
	bool floored;
	const char *baseline_kind;
	double power_mean_w, power_sd_w;
	double iterations, tokens; /* as given, marked or counted; NAN: unknown */
	struct measured_count count;
	double latency_s, latency_p50_s, latency_p95_s;
	struct gw_interval iteration_joules, token_joules;
	struct measured_device *device;
	unsigned devices;
	struct host_energy host;
	struct measured_window *window;
	unsigned windows;
};

/* A worker of the guard that was kept off the measured GPUs. */
struct measured_worker {
	char name[128];
	char state[24],
		hold[16];   /* when it was found: its state; "none", "evicted", "manual" */
	double hold_left_s; /* of that hold; NAN: it has no end, or there was none */
	bool held;          /* by us; else by who held it before */
	char broken[200];   /* it was not kept off all the time: why; "": it was */
};

struct measured_room {
	bool asked; /* for a clean room; else the rest says nothing */
	double waited_s;
	struct measured_worker worker[POLICY_WORKERS];
	unsigned workers;
};

/* Was nobody of them there from the beginning to the end? */
bool measured_room_kept(const struct measured_room *r);

/* What an outside meter said of the sensor; figures as in cli/calibrate.h. */
#define MEASURED_NOTES 3
struct measured_calibration {
	const char *trace; /* its file, as given */
	char sha256[65];
	size_t points, passed_over; /* used; lines that were not */
	double lag_s, correlation, residual_w, span_s;
	double gain, gain_u, offset_w, offset_u_w, pivot_w, reference_u, measured_offset_w;
	bool offset_alone, wider;
	char note[MEASURED_NOTES][320]; /* what to know of it; "" behind the last */
};

struct measured {
	uint64_t wall_ns;
	bool simulated;
	const char *label;
	const char *const *tags; /* "key=value" */
	unsigned tag_count;
	double model_size_bytes;
	double iterations, tokens; /* as given; NAN: not */
	const char *command_name;
	const char *command; /* NULL: not to be kept */
	const char
		*service; /* where the service listens that measured it; NULL: gpuward itself */
	const char *environment; /* as JSON, in place of env; NULL: that */
	enum gw_validity validity;
	const struct measured_room *room;
	struct measured_run *run;
	unsigned runs;
	const char *version;                            /* that measured it; NULL: this one */
	const struct measured_calibration *calibration; /* NULL: none */
};

/* {low, best, high}, or null where it is not known. */
void render_interval(struct json *j, const char *key, const struct gw_interval *v);

/* The keys of an energy: how good it is, where it comes from and how much it is; then what it is made
 * of and what went on meanwhile.  As in a part of a run: the first few alone. */
void render_energy(struct json *j, const struct gw_energy *e);
void render_energy_detail(struct json *j, const struct gw_energy *e);
void render_energy_part(struct json *j, const struct gw_energy *e);

/* Whose the joules were, as the array "processes"; NULL: nobody knows, null. */
void render_shares(struct json *j, const struct attribute *who);

/* Keys of a set of codes, as the array "codes". */
void render_codes(struct json *j, uint64_t codes);

/* As the key "clean_room"; NULL, or none was asked for: null. */
void render_room(struct json *j, const struct measured_room *r);

/* Null, where c is NULL. */
void render_calibration(struct json *j, const char *key, const struct measured_calibration *c);

/* The whole document.  env may be NULL. */
void render_result(struct json *j, const struct measured *m, const struct gw_environment *env,
		   const struct gw_snapshot *snap, const struct render_filter *filter);

#endif
