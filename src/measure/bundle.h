/* bundle: a measurement with all its evidence, in a folder.
 *
 *   manifest.toml      what was measured, when, by which version
 *   gpuN.setup.toml    how GPU N was measured
 *   gpuN.sensor.toml   what was known about its sensor
 *   gpuN.events        one line per reading and per change of a window (event.h); lines are
 *                      written every second, so only the last second is lost after kill -9
 *   windows.tsv        the result of each window, to the last bit
 *   *.json             result and environment, which the command adds
 *   SHA256SUMS         checksums of all files, written at the end, for sha256sum -c
 *
 * bundle_recompute() feeds the events to a window tracker again. The same version gives the
 * same joules to the last bit; a newer version may apply newer models. */
#ifndef GW_MEASURE_BUNDLE_H
#define GW_MEASURE_BUNDLE_H

#include "window_tracker.h"

#include <stddef.h>

/* The version of the format. It increases with every new figure in event.h, because an older
 * program does not know the new column. */
#define BUNDLE_SCHEMA (1 + FIGURES - EVENT_FIGURES_FIRST)

struct bundle;

struct bundle_about {
	const char *label; /* NULL: none */
	/* the part of the command line that may be recorded; NULL: record nothing */
	const char *command;
	/* the start of the measurement on the wall clock and on the monotonic clock */
	uint64_t wall_ns, mono_ns;
	bool simulated; /* a GPU of the measurement is simulated */
};

struct bundle_gpu {
	const char *uuid, *name, *driver; /* NULL: unknown */
	const struct energy_setup *setup;
	double interval_s; /* planned time between two ticks */
};

/* Creates dir, which must be missing or empty. Returns 0, or a gw_error with a message. The
 * caller ends *ret with bundle_close(). */
int bundle_create(const char *dir, const struct bundle_about *about, struct bundle **ret,
		  char *message, size_t size);

/* Adds device `number` of the meter, before its first event. Returns the same as
 * bundle_create(). */
int bundle_add(struct bundle *b, unsigned number, const struct bundle_gpu *gpu, char *message,
	       size_t size);

/* Records an event. This function is a meter_event_fn; its first argument is the bundle.
 * Failures are stored for bundle_close(). */
void bundle_event(void *bundle, unsigned device, const struct event *e);

/* Records the result of a window, for comparison by bundle_recompute(). For each device, only
 * one thread at a time may call this function or bundle_event(). */
void bundle_window(struct bundle *b, unsigned device, unsigned id, const char *label,
		   const struct gw_energy *e);

/* Adds another file to the bundle. Returns 0, or an error of file_replace() with a message. */
int bundle_file(struct bundle *b, const char *name, const char *text, size_t n, char *message,
		size_t size);

/* Ends the bundle: writes all data to disk, then the checksums. Returns 0, or the first error
 * since bundle_create(), with a message. */
int bundle_close(struct bundle *b, char *message, size_t size);

struct bundle_found {
	unsigned device, id;                      /* number of the device, and of the window */
	const char *label, *uuid, *name, *driver; /* "": unknown */
	const struct energy_setup *setup;
	double interval_s;
	struct gw_energy energy; /* the energy that is computed now from the bundle */
	const struct tracked_window *window;
	/* the bundle contains a result that was recorded during the measurement */
	bool recorded;
	struct gw_interval then; /* the result that was recorded during the measurement */
	/* low, best and high of both results are equal to the last bit */
	bool same;
	bool cut; /* the bundle's events end before the result was requested */
};

/* What the checksums of a bundle show. */
enum bundle_check {
	BUNDLE_UNFINISHED, /* there are no checksums: the bundle was not closed */
	BUNDLE_CHANGED,    /* a file has changed since the bundle was closed */
	BUNDLE_WHOLE,      /* no file has changed */
};

struct bundle_summary {
	unsigned devices, windows;
	/* number of windows for which the member of struct bundle_found with the same name is
	 * true */
	unsigned recorded, same, cut;
	uint64_t events;
	uint64_t bad_lines; /* lines that are not events and were ignored */
	enum bundle_check check;
	bool simulated;
	uint64_t mono_ns;      /* monotonic time of `created`; 0: unknown */
	char changed_file[64]; /* the first changed file */
	char version[32];      /* version of gpuward that wrote the bundle */
	char label[256], command[4096], created[64]; /* from the manifest; "": unknown */
};

/* Computes every window again and calls visit() for each. Returns 0, or -GW_E_NOENT,
 * -GW_E_PARSE, -GW_E_PERM, -GW_E_IO or -GW_E_NOMEM with a message. */
int bundle_recompute(const char *dir, void (*visit)(void *arg, const struct bundle_found *f),
		     void *arg, struct bundle_summary *ret, char *message, size_t size);

/* Compares the files with the checksums of the bundle. Returns 0, also if the bundle was not
 * closed and so has no checksums; -GW_E_PARSE with a message that names the changed file; or
 * the same as bundle_recompute(). */
int bundle_check_unchanged(const char *dir, char *message, size_t size);

/* Calls visit() with the power samples of one device (monotonic time and watts), for replay.
 * *ret_simulated is true if the GPU was simulated. Returns the same as bundle_recompute(),
 * -GW_E_NODEV if there is no such device, or -GW_E_PARSE if the times of the samples go
 * back. */
int bundle_power(const char *dir, unsigned device,
		 void (*visit)(void *arg, uint64_t t_ns, double watts), void *arg, char *name,
		 size_t name_size, bool *ret_simulated, char *message, size_t size);

#endif
