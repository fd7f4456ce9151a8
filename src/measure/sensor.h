/* sensor: what is known of one GPU's own meters, learned on this card or assumed.
 *
 * Every figure that turns readings into joules is here: how often a value is new, what time it
 * averages, how late it is, how the counter ticks.  A sensor is plain data; it is kept per
 * uuid + driver + vbios and travels with every result. */
#ifndef GW_MEASURE_SENSOR_H
#define GW_MEASURE_SENSOR_H

#include <gpuward.h>

#include <stdbool.h>
#include <stdint.h>

enum sensor_origin {
	SENSOR_ASSUMED, /* by generation and driver; nothing was looked at          */
	SENSOR_PASSIVE, /* periods, tick and costs were measured, without a load    */
	SENSOR_ACTIVE,  /* windows and lags too, with a load of our own             */
};

enum sensor_model {
	SENSOR_BOXCAR,  /* mean of the last window_s             */
	SENSOR_LOWPASS, /* first order, time constant window_s   */
};

/* One way in which power is told.  NAN: not known. */
struct sensor_source {
	enum gw_absence why; /* GW_HAVE: the device has it                           */
	enum sensor_model model;
	double period_s; /* between new values                                       */
	double window_s; /* that a value covers, or the time constant                */
	double lag_s;    /* values are late by this: shift edges by it (for a boxcar half its
			    window plus the delay, for a low-pass time constant plus delay) */
	unsigned changes;            /* what period_s was learned from; 0: assumed           */
	double call_p50_s, call_p99_s; /* what asking costs                                  */
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
	/* From an outside meter; gain 1 and offset 0 without. */
	bool calibrated;
	double gain, offset_w;
	double gain_u, offset_u_w; /* standard uncertainties: 0.025 and 2.5 W without        */
	uint64_t wall_ns;          /* when it was learned; 0: assumed                        */
};

struct tap;
int sensor_directory(char *out, size_t size);
int sensor_known_tap(struct tap *t, const char *dir, struct sensor *ret, char *note, size_t size);

#endif
