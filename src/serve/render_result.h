/* render_result: writes the result of a measurement as JSON, for compare, diff and report.
 *
 * The structs have the contents of a result. NAN and NULL are written as null, and the codes
 * say why a value is unknown. For schema_version, see render.h. */
#ifndef GW_SERVE_RENDER_RESULT_H
#define GW_SERVE_RENDER_RESULT_H

#include "render.h"

#include "guard/policy.h"
#include "measure/attribute.h"
#include "measure/event.h"
#include "measure/host_energy.h"
#include "measure/sensor.h"
#include "measure/run_trace.h"

#include <gpuward.h>

/* A code of a run. */
struct measured_code {
	unsigned code; /* enum gw_code */
	enum gw_validity level;
	int device; /* position in the devices of the run; -1: the whole run */
	char evidence[200];
};

/* The idle power of a GPU, and the energy above it. */
struct measured_baseline {
	const char *kind; /* NULL: there is no baseline, and the other members are not set */
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
	bool processes; /* The processes on the GPU were read. */
	struct attribute who;
	struct run_trace_copy series;
};

/* A part of a run, marked by the command. */
struct measured_window {
	const char *label;
	double begin_s, seconds; /* begin_s: time since the run began; seconds: duration */
	bool unfinished;         /* The run ended before the command ended the part. */
	const struct gw_energy *energy; /* one energy per device */
};

/* Iterations or tokens of a run, from a counter that was read before and after the run. */
struct measured_count {
	const char *source; /* the option that names the counter; NULL: no counter */
	/* Address or file from which the counter was read, without secrets. NULL: not part of
	 * the result. */
	const char *place;
	char name[640];  /* name of the counter with the selected labels; "": none */
	unsigned series; /* number of series in the sum; 0: unknown */
	bool iterations; /* True: the counter counts iterations. False: it counts tokens. */
	double number;   /* iterations or tokens of the run; NAN: unknown */
	/* estimate of the part of `number` that was counted outside of the run */
	double edge;
	/* Processes of this machine that serve the address `place`. They are part of the
	 * measured workload. */
	int64_t server_pid[METER_SERVERS];
	unsigned servers; /* entries of server_pid; 0: unknown, or on another machine */
	/* Number of series that began during the run, and the sum of their values. These series
	 * had no value before the run, so the whole sum belongs to the run. */
	unsigned fresh;
	double fresh_number;
	bool fresh_assumed; /* The server does not report when the series of `fresh` began. */
	char why[320];      /* why `number` is unknown */
};

/* Maximum number of codes. This is enough for every code on eight GPUs. Further codes are
 * dropped, except child-failed. */
#define MEASURED_CODES (8 * GW_CODES)

/* The figures of a run; run_figure.def describes the members. An unknown figure is NAN or
 * NULL. */
struct run_figures {
#define RUN_NUMBER                               double
#define RUN_INTERVAL                             struct gw_interval
#define RUN_FLAG                                 bool
#define RUN_TEXT                                 const char *
#define RUN_FIGURE(kind, member, key, help)      RUN_##kind member;
#define RUN_ENERGY_PER(items, member, key, help) struct gw_interval member;
#include "run_figure.def"
};

extern const struct run_figures run_figures_unknown;

struct measured_run {
	unsigned trial;
	/* Start of the run, in monotonic time and in wall time. */
	uint64_t begin_ns, begin_wall_ns;
	/* The run is only this marked part. NULL: the run is the whole command. */
	const char *part;
	/* Number of parts of the command with the name `part`. The run is the first of these
	 * parts. */
	unsigned parts;
	double seconds;
	double window_s; /* length of the energy window; 0: the same as `seconds` */
	/* exit_status -1: none; exit_signal 0: no signal ended the command */
	int exit_status, exit_signal;
	enum gw_validity validity;
	struct measured_code code[MEASURED_CODES];
	unsigned codes;
	struct run_figures figures;
	struct measured_count count;
	struct measured_device *device;
	unsigned devices;
	struct host_energy host;
	struct measured_window *window;
	unsigned windows;
};

/* A worker of the guard that was kept off the measured GPUs. */
struct measured_worker {
	char name[128];
	/* State and hold of the worker when the measurement began. hold is "none", "evicted" or
	 * "manual". */
	char state[24], hold[16];
	/* remaining time of the hold; NAN: the hold has no end, or there is none */
	double hold_left_s;
	/* True: the measurement made the hold of the worker. False: the hold existed before. */
	bool held;
	/* Why the worker was on the measured GPUs at some time. "": the worker was never on
	 * them. */
	char broken[200];
};

struct measured_room {
	bool asked; /* --clean-room was given. If not, the other members are not set. */
	double waited_s;
	struct measured_worker worker[POLICY_WORKERS];
	unsigned workers;
};

/* True if all workers were off the GPUs for the whole time. */
bool measured_room_kept(const struct measured_room *r);

/* Calibration of the sensor with an external meter. cli/calibrate.h explains the figures. */
#define MEASURED_NOTES 3
struct measured_calibration {
	const char *trace; /* path of the meter's file, as the user gave it */
	char sha256[65];
	/* number of points that were used, and number of lines that were not used */
	size_t points, passed_over;
	double lag_s, correlation, residual_w, span_s;
	double gain, gain_u, offset_w, offset_u_w, pivot_w, reference_u, measured_offset_w;
	bool offset_alone, wider;
	char note[MEASURED_NOTES][320]; /* The notes. "" after the last one. */
};

struct measured {
	uint64_t wall_ns;
	bool simulated;
	const char *label;
	const char *const *tags; /* "key=value" */
	unsigned tag_count;
	double model_size_bytes;
	double iterations, tokens; /* from the options; NAN: not given */
	const char *command_name;
	const char *command; /* NULL: not part of the result */
	const char *service; /* address of the service that measured; NULL: no service */
	/* The environment as JSON. NULL: render_result() writes its argument env. */
	const char *environment;
	enum gw_validity validity;
	const struct measured_room *room;
	struct measured_run *run;
	unsigned runs;
	/* version of the gpuward that made the measurement; NULL: this version */
	const char *version;
	const struct measured_calibration *calibration; /* NULL: none */
	struct energy_cost cost;
};

/* Write the keys of an energy, as the table energy.def lists them. render_energy() writes
 * validity, sources and energy; render_energy_detail() writes the details. render_energy_part()
 * writes the few keys of a part of a run. */
void render_energy(struct json *j, const struct gw_energy *e);
void render_energy_detail(struct json *j, const struct gw_energy *e);
void render_energy_part(struct json *j, const struct gw_energy *e);

/* Writes the energy per process as the array "processes". Writes null if `who` is NULL. */
void render_shares(struct json *j, const struct attribute *who);

/* Writes the keys of a set of codes, as the array "codes". */
void render_codes(struct json *j, uint64_t codes);

/* Writes the key "clean_room"; null if it was not requested. */
void render_room(struct json *j, const struct measured_room *r);

/* Writes the calibration; null if c is NULL. */
void render_calibration(struct json *j, const char *key, const struct measured_calibration *c);

/* Writes the whole document. env may be NULL. */
void render_result(struct json *j, const struct measured *m, const struct gw_environment *env,
		   const struct gw_snapshot *snap, const struct render_filter *filter);

#endif
