/* bundle: a measurement with all its evidence, in a folder.
 *
 *	manifest.toml      what was measured, when, by which version
 *	gpuN.setup.toml    how GPU N was measured
 *	gpuN.sensor.toml   what was known of its sensor
 *	gpuN.events        every reading and every window, a line each (event.h), appended as they
 *	                   come: readable after kill -9, but for the last second
 *	windows.tsv        what each window gave, to the last bit
 *	*.json             what the command adds: result, environment
 *	SHA256SUMS         written at the end: sha256sum -c checks it
 *
 * Recomputing feeds the events to a track again: the same joules to the bit by the same version,
 * what newer models say by a newer one. */
#ifndef GW_MEASURE_BUNDLE_H
#define GW_MEASURE_BUNDLE_H

#include "window_tracker.h"

#include <stddef.h>

#define BUNDLE_SCHEMA 1

struct bundle;

struct bundle_about {
	const char *label;         /* NULL: none */
	const char *command;       /* what may be told of it; NULL: nothing */
	uint64_t wall_ns, mono_ns; /* one moment on both clocks */
	bool simulated;
};

struct bundle_gpu {
	const char *uuid, *name, *driver; /* NULL: not known */
	const struct energy_setup *setup;
	double interval_s;
};

/* Makes dir, which must not exist or be empty.  0 and the caller ends *ret with bundle_close();
 * else a gw_error with a sentence in message. */
int bundle_create(const char *dir, const struct bundle_about *about, struct bundle **ret,
		  char *message, size_t size);

/* Device `number` of the meter, before its first event.  As bundle_create. */
int bundle_add(struct bundle *b, unsigned number, const struct bundle_gpu *gpu, char *message,
	       size_t size);

/* A meter_listener with the bundle as its argument.  Failures are remembered for bundle_close. */
void bundle_event(void *bundle, unsigned device, const struct event *e);

/* What a window gave, to be compared by bundle_recompute.  Each device by one thread at a time, as
 * bundle_event. */
void bundle_window(struct bundle *b, unsigned device, unsigned id, const char *label,
		   const struct gw_energy *e);

/* Another file of the bundle. */
int bundle_file(struct bundle *b, const char *name, const char *text, size_t n, char *message,
		size_t size);

/* Ends it: everything on the disk, and the sums.  0, or the first thing that went wrong since
 * bundle_create, with a sentence in message. */
int bundle_close(struct bundle *b, char *message, size_t size);

/* ---- reading ---- */

struct bundle_found {
	unsigned device, id;
	const char *label, *uuid, *name, *driver; /* "": unknown                       */
	const struct energy_setup *setup;
	double interval_s;
	struct gw_energy energy; /* as worked out now                          */
	const struct tracked_window *window;
	bool recorded;           /* the bundle says what it was then           */
	struct gw_interval then; /* the bundle's word                          */
	bool same;               /* low, best and high are the same bits       */
	bool cut;                /* the recording ended before its result was asked for */
};

struct bundle_summary {
	unsigned devices, windows, recorded, same, cut;
	uint64_t events, bad_lines;
	bool sums;  /* there is a list of sums: the bundle was closed */
	bool whole; /* and every file is as it was                    */
	bool simulated;
	uint64_t mono_ns; /* of `created`; 0: not told */
	char spoilt[64];  /* the first file that is not                */
	char version[32];
	char label[256], command[4096], created[64]; /* of the manifest; "": not told */
};

/* Works every window out again, calling visit for each.  0, -GW_E_NOENT, -GW_E_PARSE, -GW_E_PERM,
 * -GW_E_IO or -GW_E_NOMEM, with a sentence in message. */
int bundle_recompute(const char *dir, void (*visit)(void *arg, const struct bundle_found *f),
		     void *arg, struct bundle_summary *ret, char *message, size_t size);

/* Power samples of one device, in order: for replaying them.  visit gets the time (monotonic) and
 * watts.  As bundle_recompute; -GW_E_NODEV: no such device. */
int bundle_power(const char *dir, unsigned device,
		 void (*visit)(void *arg, uint64_t t_ns, double watts), void *arg, char *name,
		 size_t name_size, char *message, size_t size);

#endif
