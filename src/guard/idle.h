/* idle: computes when it saves energy to unload an idle model. Pure.
 *
 * An idle model draws power (idle_w), and loading it again takes energy (reload_j). The model
 * is unloaded after reload_j / idle_w seconds, because by then it has drawn as much energy as a
 * reload takes. Whenever the next request comes, this rule uses at most twice the energy of the
 * best choice. Both numbers are learned from the power of the GPU; until then the numbers of
 * the configuration are used. */
#ifndef GW_GUARD_IDLE_H
#define GW_GUARD_IDLE_H

#include <stdbool.h>
#include <stdint.h>

#define ECONOMY_IDLE_W 43.0 /* default of idle_w, measured on an H200 with a resident context */

struct idle_options {
	double idle_w;     /* power of an idle model, used until it is learned */
	double reload_j;   /* energy of a reload, used until it is learned; NAN: unknown */
	uint64_t after_ns; /* unload after this time; 0: decide by energy */
};

struct idle_input { /* input for one worker */
	uint64_t now_ns;
	uint64_t bytes; /* GPU memory of the worker */
	bool runs;      /* the worker is not evicted, and no order is under way */
	bool idle_out;  /* the worker is evicted because it was idle */
	bool idles;     /* the worker is on the GPU and has been idle for over ten seconds */
	bool alone;     /* no other process is on the worker's GPUs */
	double power_w; /* power of the worker's GPUs; NAN: unknown */
};

struct idle_mean {
	double mean;
	unsigned count; /* number of readings in the mean, up to a limit */
};

enum idle_model { ECONOMY_LOADED, ECONOMY_UNLOADED, ECONOMY_LOADING };

struct idle_economy {              /* state of one worker; begins zeroed */
	uint64_t last_ns;          /* monotonic time of the last input; 0: none */
	uint64_t peak_bytes;       /* memory that the worker last held with its model loaded */
	struct idle_mean resident; /* watts of the worker's GPUs while the worker is idle */
	/* watts of the worker's GPUs while the worker is not on them */
	struct idle_mean empty;
	double reload_j; /* learned energy of a reload; 0: not yet */
	enum idle_model model;
	uint64_t load_ns; /* when the present reload began */
	double load_j;    /* energy of the present reload so far */
	double saved_j; /* energy saved while models were unloaded, since the service started */
	double spent_j; /* energy spent on reloads, since the service started */
};

/* Adds one input. */
void idle_update(struct idle_economy *e, const struct idle_options *o,
		 const struct idle_input *in);

struct idle_figures {
	double idle_w;   /* power that an idle model draws */
	double reload_j; /* energy of a reload; NAN: unknown */
	/* true: the figure was measured; false: it comes from the configuration */
	bool idle_learned, reload_learned;
	uint64_t after_ns; /* unload after this time; UINT64_MAX: not known yet */
};
void idle_figures(const struct idle_economy *e, const struct idle_options *o,
		  struct idle_figures *ret);

#endif
