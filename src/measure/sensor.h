/* sensor: what is known of one GPU's own meters, learned on this card or assumed.
 *
 * Every figure that turns readings into joules is here: how often a value is new, what time it
 * averages, how late it is, how the counter ticks.  A sensor is plain data; it is kept per
 * uuid + driver + vbios and travels with every result. */
#ifndef GW_MEASURE_SENSOR_H
#define GW_MEASURE_SENSOR_H

#include <gpuward.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct report;
struct sampler_device;

enum sensor_origin {
	SENSOR_ASSUMED, /* by generation and driver; nothing was looked at          */
	SENSOR_PASSIVE, /* periods, tick and costs were measured, without a load    */
	SENSOR_ACTIVE,  /* windows and lags too, with a load of our own             */
};

enum sensor_model {
	SENSOR_BOXCAR,  /* mean of the last window_s             */
	SENSOR_LOWPASS, /* first order, time constant window_s   */
};

/* Standard uncertainties of a board's own sensor, 5 % and 5 W at 95 %, where no outside meter was held against it. */
#define SENSOR_GAIN_U     0.025
#define SENSOR_OFFSET_U_W 2.5

/* One way in which power is told.  NAN: not known. */
struct sensor_source {
	enum gw_absence why; /* GW_HAVE: the device has it                           */
	enum sensor_model model;
	double period_s;  /* between new values                                       */
	double window_s;  /* that a value covers, or the time constant                */
	double lag_s;     /* values are late by this: shift edges by it (for a boxcar half its
			    window plus the delay, for a low-pass time constant plus delay) */
	unsigned changes; /* what period_s was learned from; 0: assumed           */
	double call_p50_s, call_p99_s; /* what asking costs                                  */
};

/* One rate at which the counter was read, and what it then said.  NAN: not tried, or without a
 * result. */
struct sensor_rate {
	double every_s; /* between readings, as it came out                          */
	double counter_w, reference_w;
};

enum sensor_rate_index {
	SENSOR_1_HZ,
	SENSOR_10_HZ,
	SENSOR_100_HZ,
	SENSOR_FLAT_OUT,
	SENSOR_10_S, /* tried only where 1 Hz hurts */
	SENSOR_RATES
};

struct sensor {
	char uuid[96], driver[96], vbios[96]; /* whose it is; "" unknown                     */
	enum sensor_origin origin;
	struct sensor_source ring;    /* the driver's own buffer of power samples            */
	struct sensor_source instant; /* GW_Q_POWER_INSTANT                                  */
	struct sensor_source average; /* GW_Q_POWER_AVERAGE, or GW_Q_POWER where that is one */
	unsigned ring_entries;
	double ring_span_s;
	enum gw_absence counter; /* GW_HAVE: there is an energy counter                      */
	double tick_s;           /* between its steps                                        */
	double counter_lag_s;    /* a step tells the energy up to this long before it        */
	double counter_safe_s;   /* readings further apart than this do not hurt it; 1 unless
				    characterise demands more                                */
	bool counter_unsafe;     /* no rate that we tried is safe: samples take over         */
	unsigned ticks;          /* seen; 0: tick_s is assumed                               */
	double counter_p50_s, counter_p99_s;
	bool module_scope; /* power is of the module, CPU included                           */
	/* From an outside meter: true power is gain x reading + offset_w; 1 and 0 without. */
	bool calibrated;
	double gain, offset_w;
	double gain_u, offset_u_w; /* standard uncertainties                                 */
	double pivot_w; /* the reading at which offset_u_w holds and from which the gain's uncertainty
			   counts: a line is known best in the middle of its points; 0 without */
	double reference_u; /* relative standard uncertainty of the outside meter itself           */
	uint64_t wall_ns; /* when it was learned; 0: assumed                        */
	/* The evidence. */
	double ring_gap_p10_s, ring_gap_p90_s;
	bool ring_wall; /* its stamps are of the wall clock */
	struct sensor_rate rate[SENSOR_RATES];
};

/* ---- what is known without looking --------------------------------------------------- */

/* By generation, compute capability and driver version, as published; what r does not know is
 * filled with what is most common.  Everything else is NAN or 0 and origin SENSOR_ASSUMED.  Where
 * the driver has a power ring, that it answers is an assumption too. */
void sensor_assume(struct sensor *ret, const struct report *r);

/* What `average` is read from: GW_Q_POWER_AVERAGE, or GW_Q_POWER on a device without. */
unsigned sensor_average_quantity(const struct report *r);

/* Takes what an outside meter said from another. */
void sensor_calibrate(struct sensor *s, const struct sensor *from);

/* "boxcar", "assumed": the words of files and JSON. */
const char *sensor_model_name(enum sensor_model m);
const char *sensor_origin_name(enum sensor_origin o);

/* Why period_s rests on less than SENSOR_CHANGES changes; NULL where it does not. */
#define SENSOR_CHANGES 100
const char *sensor_source_note(const struct sensor_source *s);

/* ---- kept in a file ------------------------------------------------------------------ */

#define SENSOR_SCHEMA 1

/* $XDG_CACHE_HOME/gpuward/sensor, else ~/.cache/gpuward/sensor.  0 or -GW_E_NOENT: neither is
 * known, or -GW_E_SIZE. */
int sensor_directory(char *out, size_t size);

/* The file of s->uuid, driver and vbios below dir.  0, -GW_E_NOSUPPORT (no uuid) or -GW_E_SIZE. */
int sensor_key(const struct sensor *s, const char *dir, char *out, size_t size);

/* The text of such a file, with a hash in its first line, and back: every bit of s returns.  compose:
 * 0 or what out says went wrong.  parse: 0, -GW_E_PARSE or -GW_E_NOMEM with a sentence in why. */
struct buf;
int sensor_compose(struct buf *out, const struct sensor *s);
int sensor_parse(const char *text, size_t n, struct sensor *ret, char *why, size_t size);

/* Writes s whole or not at all; dir is made.  What s then holds comes back bit by bit.  0, as
 * sensor_key(), -GW_E_PERM, -GW_E_IO or -GW_E_NOMEM, with a sentence in message. */
int sensor_save(const struct sensor *s, const char *dir, char *message, size_t size);

/* Fills s from the file of s->uuid, driver and vbios.  0, -GW_E_NOENT (there is none), or
 * -GW_E_PARSE (a file that was cut, changed or of another version: it counts for nothing),
 * -GW_E_PERM, -GW_E_IO, -GW_E_NOMEM, with a sentence in message; s is then left alone. */
int sensor_load(struct sensor *s, const char *dir, char *message, size_t size);

/* ---- learned on the card ------------------------------------------------------------- */

/* A load of our own on the GPU.  It ends by itself, so that a program that dies leaves nothing
 * running.  Functions return 0 or a negative enum gw_error. */
struct sensor_drive {
	/* Gets ready on the GPU with this PCI id; a sentence in message where it cannot. */
	int (*open)(void *ctx, const char *pci, char *message, size_t size);
	/* Starts now and returns at once; ends at until_ns (monotonic).  *ret_begin_ns: when it
	 * began. */
	int (*on)(void *ctx, uint64_t until_ns, uint64_t *ret_begin_ns);
	void (*close)(void *ctx);
	void *ctx;
};

struct sensor_plan {
	const struct sensor_drive *drive; /* NULL: nothing is put on the GPU              */
	/* What is being done, and the share of all that is done.  NULL: nobody looks. */
	void (*progress)(void *ctx, const char *what, double done_ratio);
	void *ctx;
};

/* Learns for about half a minute, and with a drive for about another one, on the calling thread;
 * the time is that of the tap's clock.  Reads the counter faster than others may, for at most
 * 35 s.  0 and *ret, which is then of SENSOR_PASSIVE or SENSOR_ACTIVE; else *ret is left alone:
 * -GW_E_NOMEM, -GW_E_LOST, -GW_E_NOSUPPORT (no source of power at all), -GW_E_STATE (a drive is
 * given and another process is on the GPU), or what the drive says, with a sentence in message. */
int sensor_learn(struct sampler_device *t, const struct sensor_plan *plan, struct sensor *ret,
		 char *message, size_t size);

/* The same for a device of a context, by its position in a snapshot: for those above, who know no
 * taps.  Also -GW_E_NODEV. */
int sensor_characterise(struct gw_ctx *ctx, unsigned position, const struct sensor_plan *plan,
			struct sensor *ret, char *message, size_t size);

/* What is known of a device now: learned before and kept below dir (NULL: nowhere), or assumed.
 * Asks the ring once whether it is there.  0 and a sentence in note where a file was not used, or
 * -GW_E_NODEV. */
int sensor_known(struct gw_ctx *ctx, unsigned position, const char *dir, struct sensor *ret,
		 char *note, size_t size);

/* The same but for the ring, which whoever has the tap asks for more than that; and what it answered: a
 * number of samples or an error. */
int sensor_known_tap(struct sampler_device *t, const char *dir, struct sensor *ret, char *note,
		     size_t size);
void sensor_heard_ring(struct sensor *s, int n);

#endif
