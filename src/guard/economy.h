/* economy: is a model that nobody uses worth its place?  Pure.
 *
 * A resident model draws power for nothing while it idles; loading it again takes energy once.  After
 * reload joules / idle watts of idling both are equal: whoever unloads then never spends more than twice
 * what the best choice would have, whenever the next request comes.  Both figures are learned from what
 * the card draws, and taken from the configuration until they are. */
#ifndef GW_GUARD_ECONOMY_H
#define GW_GUARD_ECONOMY_H

#include <stdbool.h>
#include <stdint.h>

#define ECONOMY_IDLE_W 43.0 /* measured: what a resident context costs an H200 */

struct economy_options {
	double idle_w;     /* until it is learned */
	double reload_j;   /* likewise; NAN: not known */
	uint64_t after_ns; /* fixed: unload after this, whatever it costs; 0: by energy */
};

struct economy_look { /* at one worker */
	uint64_t now_ns;
	uint64_t bytes; /* that it holds */
	bool runs;      /* it may be there: neither out nor on the way */
	bool idle_out;  /* it is out because it idled */
	bool idles;     /* for some seconds now */
	bool alone;     /* nobody else is on its GPUs */
	double power_w; /* of its GPUs; NAN: unknown */
};

struct economy_mean {
	double mean;
	unsigned count;
};

struct economy { /* of one worker; begins zeroed */
	uint64_t last_ns, peak_bytes;
	struct economy_mean resident,
		empty;   /* watts of its GPUs while it idles there, and without it */
	double reload_j; /* learned; 0: not yet */
	/* The load under way. */
	bool loading;
	uint64_t load_ns;
	double load_j;
	/* Since the start. */
	double saved_j, spent_j;
	bool out;
};

void economy_look(struct economy *e, const struct economy_options *o,
		  const struct economy_look *l);

struct economy_figures {
	double idle_w, reload_j; /* reload_j NAN: not known */
	bool idle_learned, reload_learned;
	uint64_t after_ns; /* unload after so long; UINT64_MAX: not yet known */
};
void economy_figures(const struct economy *e, const struct economy_options *o,
		     struct economy_figures *ret);

#endif
