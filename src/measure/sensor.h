/* sensor: what is known about one GPU's power sensor, learned on this GPU or assumed.
 *
 * It holds every number that is needed to compute joules from readings: the time between new
 * values, the time over which a value is averaged, its delay, and how the counter is updated. A
 * sensor is plain data. It is stored per uuid, driver and vbios, and is part of every
 * result. */
#ifndef GW_MEASURE_SENSOR_H
#define GW_MEASURE_SENSOR_H

#include <gpuward.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct report;
struct sampler_device;

/* Where the properties of a sensor come from. */
enum sensor_origin {
	SENSOR_ASSUMED, /* assumed from generation and driver; nothing was measured */
	SENSOR_PASSIVE, /* periods, counter updates and costs were measured, without a load */
	SENSOR_ACTIVE,  /* averaging windows and lags were also measured, with our own load */
};

enum sensor_model {
	SENSOR_BOXCAR,  /* a value is the mean of the last window_s */
	SENSOR_LOWPASS, /* low-pass filter of first order with the time constant window_s */
};

/* Standard uncertainties of a board's own sensor that was not compared with an external meter:
 * half of the 95 % limits, which are 5 % and 5 W. */
#define SENSOR_GAIN_U     0.025
#define SENSOR_OFFSET_U_W 2.5

/* One source of power values. NAN: unknown. */
struct sensor_source {
	enum gw_absence why; /* GW_HAVE if the device has this source, otherwise why not */
	enum sensor_model model;
	double period_s; /* time between new values */
	double window_s; /* averaging window of one value, or the time constant */
	/* Delay of the values; the times of samples are corrected for it. It is the time until
	 * a value appears, plus half the window of a boxcar or the time constant of a low-pass
	 * filter. */
	double lag_s;
	/* number of observed changes from which period_s was computed; 0: it is assumed */
	unsigned changes;
	double call_p50_s, call_p99_s; /* duration of one read: median and 99th percentile */
};

/* The result of a test that reads the counter at one rate. NAN: not tested, or no result. */
struct sensor_rate {
	double every_s;     /* mean time between readings */
	double counter_w;   /* mean power by the counter when it is read at this rate */
	double reference_w; /* mean power by the samples at the same time */
};

enum sensor_rate_index {
	SENSOR_1_HZ,
	SENSOR_10_HZ,
	SENSOR_100_HZ,
	SENSOR_FLAT_OUT, /* as fast as possible, at most once per ms */
	SENSOR_10_S,     /* once per 10 s; tested only if 1 Hz disturbs the counter */
	SENSOR_RATES
};

/* The comparison with an external meter: true power is gain x reading + offset_w. */
struct sensor_calibration {
	bool done; /* false: there was no comparison; gain is 1 and offset_w is 0 */
	double gain, offset_w;
	double gain_u, offset_u_w; /* standard uncertainties */
	/* The reading at which offset_u_w holds. The uncertainty of the gain is multiplied by
	 * the distance from this reading, because a fitted line is known best in the middle of
	 * its points. 0 without an external meter. */
	double pivot_w;
	double reference_u; /* relative standard uncertainty of the external meter */
};

struct sensor {
	char uuid[96], driver[96], vbios[96]; /* these three identify the sensor; "": unknown */
	enum sensor_origin origin;
	struct sensor_source ring;    /* the driver's ring buffer of power samples */
	struct sensor_source instant; /* GW_Q_POWER_INSTANT */
	/* GW_Q_POWER_AVERAGE, or GW_Q_POWER if that is an average */
	struct sensor_source average;
	unsigned ring_entries;   /* entries of the ring buffer */
	double ring_span_s;      /* time between its oldest and its newest entry */
	enum gw_absence counter; /* GW_HAVE: there is an energy counter */
	double tick_s;           /* time between updates of the counter */
	/* An update contains the energy up to counter_lag_s before the update. */
	double counter_lag_s;
	/* Readings with at least this spacing do not disturb the counter; 1 s unless `gpuward
	 * characterise` found that more is needed. */
	double counter_safe_s;
	bool counter_unsafe; /* every tested rate disturbs the counter: use the samples */
	unsigned ticks;      /* number of observed counter updates; 0: tick_s is assumed */
	/* duration of one reading of the counter: median and 99th percentile */
	double counter_p50_s, counter_p99_s;
	bool module_scope; /* power includes the whole module with its CPU */
	struct sensor_calibration calibration;
	uint64_t wall_ns; /* when the sensor was measured; 0: it is assumed */
	/* The members below are only for reports. */
	double ring_gap_p10_s, ring_gap_p90_s; /* percentiles of the time between entries */
	bool ring_wall; /* timestamps of the ring buffer use the wall clock */
	struct sensor_rate rate[SENSOR_RATES];
};

/* Fills in the published values for the generation, compute capability and driver version of
 * the GPU; if r lacks one of these three, the most common value is used. All other members are
 * NAN or 0, and origin is SENSOR_ASSUMED. Assumes that the driver's ring buffer can be read,
 * without reading it. */
void sensor_assume(struct sensor *ret, const struct report *r);

/* Returns the quantity that sensor.average describes: GW_Q_POWER_AVERAGE, or GW_Q_POWER on a
 * device without that quantity. */
unsigned sensor_average_quantity(const struct report *r);

/* Return the name of a model or of an origin in files and JSON, such as "boxcar" and
 * "assumed". */
const char *sensor_model_name(unsigned model);
const char *sensor_origin_name(unsigned origin);

/* Returns the origin in words, for all texts and reports: "sensor not characterised", "sensor
 * periods measured" or "sensor characterised". sensor_origin_words_of() takes the name; an
 * unknown name counts as not characterised. */
const char *sensor_origin_words(enum sensor_origin origin);
const char *sensor_origin_words_of(const char *name);

/* Returns a phrase that explains why period_s is based on fewer than SENSOR_CHANGES changes of
 * the value. Returns NULL if it is based on at least that many. */
#define SENSOR_CHANGES 100
const char *sensor_source_note(const struct sensor_source *s);

#define SENSOR_SCHEMA 1

/* Writes the default folder: $XDG_CACHE_HOME/gpuward/sensor, or ~/.cache/gpuward/sensor if that
 * variable is not set. Returns 0, -GW_E_NOENT (no folder is known) or -GW_E_SIZE. */
int sensor_directory(char *out, size_t size);

/* Adds the uuid to a file name. Replaces special characters, so that the path stays inside its
 * folder. */
struct buf;
void sensor_add_uuid(struct buf *b, const char *uuid);

/* Writes the path of the file for s->uuid, driver and vbios below dir. Returns 0,
 * -GW_E_NOSUPPORT (no uuid) or -GW_E_SIZE. */
int sensor_key(const struct sensor *s, const char *dir, char *out, size_t size);

/* sensor_compose() adds the content of a sensor file to out, with a hash in the first line.
 * Returns 0 or the error of out. sensor_parse() reads this content; every number has the same
 * bits as in the struct that was written. Returns 0, or -GW_E_PARSE or -GW_E_NOMEM with a
 * sentence in `why`. */
int sensor_compose(struct buf *out, const struct sensor *s);
int sensor_parse(const char *text, size_t n, struct sensor *ret, char *why, size_t size);

/* Writes s completely or not at all; creates dir. Returns 0. Otherwise writes a message and
 * returns an error of sensor_key(), -GW_E_PERM, -GW_E_IO or -GW_E_NOMEM. */
int sensor_save(const struct sensor *s, const char *dir, char *message, size_t size);

/* Fills in s from the file for s->uuid, driver and vbios. Returns 0, or -GW_E_NOENT if there is
 * no such file. Every other error comes with a message: -GW_E_PARSE (the file is ignored,
 * because it is truncated, changed or of another version), -GW_E_ARG (it is not a regular
 * file), -GW_E_PERM, -GW_E_IO or -GW_E_NOMEM. After an error s is unchanged. */
int sensor_load(struct sensor *s, const char *dir, char *message, size_t size);

/* The functions that run our own load on the GPU. The load ends at its end time even if the
 * program is killed. The functions return 0 or a negative enum gw_error. */
struct sensor_drive {
	/* Prepares the GPU with this PCI id; writes a message on failure. */
	int (*open)(void *ctx, const char *pci, char *message, size_t size);
	/* Starts the load now and returns at once. The load stops at until_ns (monotonic).
	 * *ret_begin_ns is the time at which the load started. */
	int (*on)(void *ctx, uint64_t until_ns, uint64_t *ret_begin_ns);
	void (*close)(void *ctx);
	void *ctx;
};

struct sensor_plan {
	const struct sensor_drive *drive; /* NULL: no load */
	/* Reports the current activity and the completed share of the whole work. May be
	 * NULL. */
	void (*progress)(void *ctx, const char *what, double done_ratio);
	void *ctx;
};

/* Measures the properties of the sensor, on the calling thread and on the device's clock. This
 * takes about half a minute, and about one more minute if plan->drive is given. During at most
 * 35 s of this time, the function reads the counter more often than any other code is allowed
 * to. Returns 0 and *ret, with origin SENSOR_PASSIVE or SENSOR_ACTIVE. Otherwise leaves *ret
 * unchanged, writes a message and returns -GW_E_NOMEM, -GW_E_LOST, -GW_E_NOSUPPORT (no source
 * of power), -GW_E_STATE (a drive is given and another process is on the GPU), or the drive's
 * error. */
int sensor_learn(struct sampler_device *sd, const struct sensor_plan *plan, struct sensor *ret,
		 char *message, size_t size);

/* Works like sensor_learn(), for a device of a context, by its position in a snapshot. Also
 * returns -GW_E_NODEV. */
int sensor_characterise(struct gw_ctx *ctx, unsigned position, const struct sensor_plan *plan,
			struct sensor *ret, char *message, size_t size);

/* Gets the sensor of a device: the one that was stored below dir, or the assumed one. If dir is
 * NULL, no stored sensor is used. Reads the ring buffer once to see whether it exists. Returns
 * 0, with a sentence in note if a file was ignored, or -GW_E_NODEV. */
int sensor_known(struct gw_ctx *ctx, unsigned position, const char *dir, struct sensor *ret,
		 char *note, size_t size);

/* Works like sensor_known(), but does not read the ring buffer. The caller reads the ring
 * buffer anyway and passes the result (a number of samples or an error) to
 * sensor_note_ring(). */
int sensor_known_device(struct sampler_device *sd, const char *dir, struct sensor *ret,
			char *note, size_t size);
void sensor_note_ring(struct sensor *s, int n);

#endif
