/* result_file: reads a result file of `gpuward measure` into plain structs.
 *
 * A value that is missing or null in the file is NAN or NULL in the struct.  Unknown keys are
 * ignored, because a newer gpuward may add some.  docs/schema/measure.json is the schema. */
#ifndef GW_CLI_RESULT_FILE_H
#define GW_CLI_RESULT_FILE_H

#include "serve/render_result.h"

#include <gpuward.h>

#include <stdbool.h>
#include <stddef.h>

#define RESULT_SCHEMA_VERSION 1

struct json_doc;

/* A problem or a note about a run. */
struct result_code {
	const char *code, *level, *sentence, *evidence;
	double device; /* Index of the GPU. NAN: the code is about the whole run. */
};

/* One fact about the environment as text: the key "host.kernel" and the text "6.1.0". */
struct result_fact {
	const char *key, *text;
};

struct result_facts {
	const struct result_fact *v;
	size_t n;
};

/* Power samples, and the readings at each tick.  Times are in seconds since the start of the
 * window, or of the part if the run describes a part.  A value may be NAN.  throttle[i] is NULL
 * or the causes, separated by commas. */
struct result_series {
	const double *power_t, *power_w;
	size_t power_n;
	const double *tick_t, *temperature_c;
	const char *const *throttle;
	size_t tick_n;
};

/* What is known about a GPU's power sensor, and the source of the power readings. */
struct result_sensor {
	/* How the sensor was characterised: "assumed" (not at all), "passive" or "active". */
	const char *origin;
	/* "ring", "instant" or "average". NULL: there is no source, or it is unknown. */
	const char *source;
	/* Period, averaging window and delay of `source`, in seconds. */
	double period_s, window_s, lag_s;
	/* Time between two updates of the energy counter. NAN: unknown. */
	double tick_s;
	/* Calibration with an external meter. Without a calibration, gain is 1, offset_w is 0,
	 * and the uncertainties are those of a typical board. */
	double gain, offset_w, gain_u, offset_u_w, pivot_w;
};

/* The fields of struct gw_energy as read from a file.  A missing count is NAN.  A field with a
 * fixed list of words stays a string, because a newer gpuward may have more words.  Members
 * without a key are not set. */
struct result_energy {
#define RESULT_INDEX double
#define RESULT_TIME  double
#define RESULT_FLAG  bool
#define RESULT_COUNT double
/* The member `codes` is not used, because struct result_run has the codes. */
#define RESULT_CODES                                    unsigned char
#define RESULT_NUMBER                                   double
#define RESULT_INTERVAL                                 struct gw_interval
#define GW_FIELD(kind, member, key, help, diff)         RESULT_##kind member;
#define GW_WORD(list, member, key, missing, help, diff) const char *member;
#define GW_LIST(list, member, key, help, diff)          double member[GW_LIST_SIZE];
#include <gpuward/energy.def>
};

struct result_device {
	double index;
	const char *uuid, *name, *provenance, *driver_version;
	struct result_energy energy;
	const char *baseline_kind;
	double baseline_w, baseline_age_s, power_limit_w;
	struct result_sensor sensor;
	struct result_series series;
};

/* A part of a run that the command marked. */
struct result_window {
	const char *label;
	double begin_s, seconds;
	bool unfinished; /* The command did not mark the end of the part. */
	/* Sum over the devices. NAN if the energy of one device is unknown. */
	double energy_best_j;
};

struct result_run {
	double trial, seconds;
	const char *validity;
	/* Name of the marked part that the run describes. NULL: it describes the whole
	 * command. */
	const char *part;
	/* Start of the part, in seconds on the clock of the windows. 0 if the run describes the
	 * whole command. */
	double zero_s;
	/* Iterations and tokens are those of the result if the run does not state them. */
	struct run_figures figures;
	double host_j;

	const struct result_code *codes;
	const struct result_device *devices;
	const struct result_window *windows;
	size_t ncodes, ndevices, nwindows;
};

/* Whether the guard's workers were kept off the GPUs (--clean-room). */
enum result_room {
	/* --clean-room was not given, or the gpuward that wrote the result did not have this
	 * option. */
	ROOM_NONE,
	ROOM_KEPT, /* The workers stayed off the GPUs during the whole measurement. */
	ROOM_LOST, /* A worker was on a GPU during a part of the measurement. */
};

struct result_worker {
	const char *name;
	const char *held_by; /* Who held the worker: "measurement" or "others". */
	const char *broken; /* Why the worker did not stay off the GPUs. NULL: it stayed off. */
};

struct result_file {
	const char *path; /* The path that the user gave. */
	/* Never NULL. If the result has no label, this is the name of the file. */
	const char *label;
	const char *time, *tool_version, *command_name;
	bool simulated;
	double model_size_bytes, iterations, tokens;
	struct result_facts tags, environment;
	/* Whether the clean room was kept in all runs. */
	enum result_room room;
	const struct result_worker *workers; /* The workers that had to stay off the GPUs. */
	size_t nworkers;
	const struct result_run *runs;
	size_t nruns;
	struct result_memory *memory; /* Owns all memory that the pointers refer to. */
};

/* Reads a result from text, which has n bytes, or from the file at path if text is NULL.  path
 * may also be the folder of a bundle.  Returns 0; then free the result with result_file_free(),
 * and path must outlive it.  On error returns -1, with a sentence in error that begins with the
 * path (and with line and column, if they are known); then there is nothing to free. */
int result_file_read(struct result_file *ret, const char *path, const char *text, size_t n,
		     char *error, size_t size);
void result_file_free(struct result_file *r);

/* Returns the whole document, for values that have no member here. */
const struct json_doc *result_file_document(const struct result_file *r);

/* Returns true if both documents are equal, for example a result and a copy of it. */
bool result_file_same(const struct result_file *a, const struct result_file *b);

/* Returns the consequence of the code for its run: "suspect", "invalid", or "note" if it has
 * none. */
const char *result_code_level(const struct result_code *code);

/* Returns true if the run may be used for statistics, because it is not "invalid". */
bool result_run_usable(const struct result_run *run);

#endif
