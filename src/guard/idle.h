/* idle: computes when it saves energy to unload an idle model. Pure.
 *
 * An idle model draws power (idle_w); loading it again takes energy once (reload_j). After
 * reload_j / idle_w seconds both energies are equal. If the model is unloaded at that time, the
 * energy is at most twice that of the best choice, whenever the next request comes. Both
 * numbers are learned from the power of the GPU; until then the numbers of the configuration
 * are used. */
#ifndef GW_GUARD_IDLE_H
#define GW_GUARD_IDLE_H

#include <stdbool.h>
#include <stdint.h>

#define ECONOMY_IDLE_W 43.0 /* default of idle_w, measured on an H200 with a resident context */

struct idle_options {
	double idle_w;     /* used until it is learned */
	double reload_j;   /* energy of a reload, used until it is learned; NAN: unknown */
	uint64_t after_ns; /* unload after this time; 0: decide by energy */
};

struct idle_input { /* input for one worker */
	uint64_t now_ns;
	uint64_t bytes; /* GPU memory of the worker */
	bool runs;      /* the worker is not evicted, and no order is under way */
	bool idle_out;  /* the worker is evicted because it was idle */
	bool idles;     /* the worker has been idle for some seconds */
	bool alone;     /* no other process is on the worker's GPUs */
	double power_w; /* power of the worker's GPUs; NAN: unknown */
};

struct idle_mean {
	double mean;
	unsigned count; /* readings in the mean */
};

enum idle_model { ECONOMY_LOADED, ECONOMY_UNLOADED, ECONOMY_LOADING };

struct idle_economy {              /* state of one worker; begins zeroed */
	uint64_t last_ns;          /* monotonic time of the last input; 0: none */
	uint64_t peak_bytes;       /* memory of the worker when it last ran with its model */
	struct idle_mean resident; /* watts of the worker's GPUs while the worker is idle */
	/* watts of the worker's GPUs while the worker is not on them */
	struct idle_mean empty;
	double reload_j; /* learned energy of a reload; 0: not yet */
	enum idle_model model;
	uint64_t load_ns; /* when the present reload began */
	double load_j;    /* energy of the present reload so far */
	double saved_j;   /* energy saved without the model, since the service started */
	double spent_j;   /* energy spent on reloads, since the service started */
};

/* Adds one input. */
void idle_update(struct idle_economy *e, const struct idle_options *o,
		 const struct idle_input *in);

struct idle_figures {
	double idle_w;   /* power that an idle model draws */
	double reload_j; /* energy of a reload; NAN: unknown */
	/* the figure was measured; else it is from the configuration */
	bool idle_learned, reload_learned;
	uint64_t after_ns; /* unload after this time; UINT64_MAX: not known yet */
};
void idle_figures(const struct idle_economy *e, const struct idle_options *o,
		  struct idle_figures *ret);

#endif
