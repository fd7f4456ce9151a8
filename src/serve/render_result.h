/* render_result: the document of a measurement, which compare and report read.
 *
 * The structs here are all that a result holds, as plain data; NAN and NULL become null, and the
 * codes beside them say why.  schema_version as in render.h. */
#ifndef GW_SERVE_RENDER_RESULT_H
#define GW_SERVE_RENDER_RESULT_H

#include "render.h"

#include "measure/attribute.h"
#include "measure/host_energy.h"
#include "measure/sensor.h"
#include "measure/course.h"

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
	struct course_copy series;
};

/* A part of a run that the command marked. */
struct measured_window {
	const char *label;
	double begin_s, seconds;
	bool unfinished;
	const struct gw_energy *energy; /* one a device */
};

/* Enough for every code on eight GPUs; of more the first are told, and child-failed always. */
#define MEASURED_CODES (8 * GW_CODES)

struct measured_run {
	unsigned trial;
	uint64_t begin_ns, begin_wall_ns; /* monotonic, wall */
	const char *part; /* it is this marked part of a run; NULL: all of one */
	unsigned parts;   /* so many of that name were marked; the first is told */
	double seconds;
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
	double iterations, tokens; /* as given or marked; NAN: unknown */
	double latency_s, latency_p50_s, latency_p95_s;
	struct gw_interval iteration_joules, token_joules;
	struct measured_device *device;
	unsigned devices;
	struct host_energy host;
	struct measured_window *window;
	unsigned windows;
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
	enum gw_validity validity;
	struct measured_run *run;
	unsigned runs;
};

/* {low, best, high}, or null where it is not known. */
void render_interval(struct json *j, const char *key, const struct gw_interval *v);

/* The keys of an energy: how good it is, where it comes from and how much it is; then what it is made
 * of and what went on meanwhile.  As in a part of a run: the first few alone. */
void render_energy(struct json *j, const struct gw_energy *e);
void render_energy_detail(struct json *j, const struct gw_energy *e);
void render_energy_part(struct json *j, const struct gw_energy *e);

/* Keys of a set of codes, as the array "codes". */
void render_codes(struct json *j, uint64_t codes);

/* The whole document.  env may be NULL. */
void render_result(struct json *j, const struct measured *m, const struct gw_environment *env,
		   const struct gw_snapshot *snap, const struct render_filter *filter);

#endif
