/* cost: measures what reading each quantity costs if it is read once per second.
 *
 * In a tight loop the driver answers from a cache, so a call seems to cost nothing. Therefore
 * every quantity is read once per second, and the medians of its CPU time and wall time are
 * printed. The tiers in quantity.def were chosen with these figures.
 *
 * bench-cost [LIBRARY] [SECONDS] */
#include "device/context.h"
#include "device/nvml.h"
#include "stats.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ROUNDS_MAX 60
#define ROWS_MAX   (GW_QUANTITIES + 1)

struct cost {
	const char *name, *tier;
	double cpu_us[ROUNDS_MAX], wall_us[ROUNDS_MAX];
};

static const struct {
	unsigned quantity;
	uint32_t id, scope;
} fields[] = {
#define FIELD(quantity, id, scope, scale, max) { GW_Q_##quantity, ABI_FIELD_##id, scope },
#include "device/nvml_readers.def"
#undef FIELD
};

static double now_us(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec * 1e-3;
}

static bool read_field(struct device *d, unsigned quantity)
{
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		struct abi_field_value v = { .field = fields[i].id, .scope = fields[i].scope };

		if (fields[i].quantity != quantity)
			continue;
		NVML(d, fields, nvml_device_of(d)->handle, 1, &v);
		return true;
	}
	return false;
}

static void read_quantity(struct device *d, unsigned q, struct cost *c, unsigned round)
{
	double wall = now_us(CLOCK_MONOTONIC), cpu = now_us(CLOCK_THREAD_CPUTIME_ID);

	if (!read_field(d, q))
		nvml_read_one(d, q);
	c->cpu_us[round] = now_us(CLOCK_THREAD_CPUTIME_ID) - cpu;
	c->wall_us[round] = now_us(CLOCK_MONOTONIC) - wall;
}

static const char *tier_name(unsigned tier)
{
	static const char *const names[] = { "static", "fast",    "slow",   "energy",
					     "health", "request", "limits", "profile" };

	return names[__builtin_ctz(tier)];
}

int main(int argc, char **argv)
{
	static struct cost cost[ROWS_MAX];
	struct gw_options o = { .size = sizeof(o),
				.backend = "nvml",
				.nvml_library = argc > 1 && *argv[1] ? argv[1] : NULL };
	unsigned rounds = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 10;
	struct gw_ctx *ctx;

	if (gw_open(&o, &ctx) != 0 || ctx->slots == 0 || rounds == 0 || rounds > ROUNDS_MAX) {
		fprintf(stderr, "cost: no GPU was found, or SECONDS is not from 1 to %d\n",
			ROUNDS_MAX);
		return 1;
	}
	for (unsigned r = 0; r < rounds; r++) {
		struct timespec second = { 1, 0 };

		nanosleep(&second, NULL);
		for (unsigned q = 0; q < GW_QUANTITIES; q++)
			read_quantity(ctx->slot[0]->d, q, &cost[q], r);
	}
	printf("%-36s %-7s %10s %10s\n", "quantity, read once per second", "tier", "CPU us",
	       "wall us");
	for (unsigned q = 0; q < GW_QUANTITIES; q++)
		printf("%-36s %-7s %10.1f %10.1f\n", gw_quantity_info(q)->key,
		       tier_name(gw_quantity_info(q)->tier),
		       stats_median(cost[q].cpu_us, rounds),
		       stats_median(cost[q].wall_us, rounds));
	gw_close(ctx);
	return 0;
}
