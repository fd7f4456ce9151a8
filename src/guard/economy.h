/* economy: when does it save energy to unload an idle model?  Pure.
 *
 * An idle model draws power; loading it again takes energy once.  After reload_j / idle_w
 * seconds both are equal: unloading then never costs more than twice the best choice, whenever
 * the next request comes.  Both numbers are learned from the power of the GPU; until then the
 * configuration's are used. */
#ifndef GW_GUARD_ECONOMY_H
#define GW_GUARD_ECONOMY_H

#include <stdbool.h>
#include <stdint.h>

#define ECONOMY_IDLE_W 43.0 /* measured on an H200 with a resident context */

struct economy_options {
	double idle_w;     /* until it is learned */
	double reload_j;   /* until it is learned; NAN: unknown */
	uint64_t after_ns; /* unload after this time; 0: decide by energy */
};

struct economy_input { /* of one worker */
	uint64_t now_ns;
	uint64_t bytes; /* of GPU memory */
	bool runs;      /* not evicted, and no order is under way */
	bool idle_out;  /* evicted because it was idle */
	bool idles;     /* idle for some seconds */
	bool alone;     /* no other process is on its GPUs */
	double power_w; /* of its GPUs; NAN: unknown */
};

struct economy_mean {
	double mean;
	unsigned count;
};

struct economy { /* of one worker; begins zeroed */
	uint64_t last_ns, peak_bytes;
	struct economy_mean resident; /* watts of its GPUs while it is idle */
	struct economy_mean empty;    /* watts of its GPUs without it */
	double reload_j;              /* learned; 0: not yet */
	/* While it loads. */
	bool loading;
	uint64_t load_ns;
	double load_j;
	/* In total. */
	double saved_j, spent_j;
	bool out;
};

void economy_update(struct economy *e, const struct economy_options *o,
		    const struct economy_input *in);

struct economy_figures {
	double idle_w, reload_j; /* reload_j NAN: unknown */
	bool idle_learned, reload_learned;
	uint64_t after_ns; /* unload after this time; UINT64_MAX: not known yet */
};
void economy_figures(const struct economy *e, const struct economy_options *o,
		     struct economy_figures *ret);

#endif
