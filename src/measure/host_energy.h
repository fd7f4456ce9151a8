/* host_energy: joules of the machine's CPUs and memory between two readings. The counters cover
 * the whole machine, never one process. */
#ifndef GW_MEASURE_HOST_ENERGY_H
#define GW_MEASURE_HOST_ENERGY_H

#include <gpuward.h>

#define HOST_DOMAINS 64

struct host_domain {
	char name[32]; /* such as "package-0" or "dram" */
	double joules; /* NAN unless `why` is GW_HAVE */
	enum gw_absence why;
};

struct host_energy {
	double joules; /* sum of packages and their memory; NAN unless `why` is GW_HAVE */
	enum gw_absence why;
	const char *remedy; /* what the user can do if joules is unknown; "": nothing */
	unsigned count;
	struct host_domain domain[HOST_DOMAINS];
};

struct host_meter;

/* Creates a meter that counts from now on. ctx must outlive the meter. Returns NULL if there is
 * no memory. */
struct host_meter *host_meter_new(struct gw_ctx *ctx);
void host_meter_free(struct host_meter *m);

/* Gets the energy since host_meter_new(). Call it at least every half minute, because the
 * counters wrap. */
void host_meter_read(struct host_meter *m, struct host_energy *ret);

/* Computes the energy between two readings of one meter. */
void host_energy_between(const struct host_energy *begin, const struct host_energy *end,
			 struct host_energy *ret);

#endif
