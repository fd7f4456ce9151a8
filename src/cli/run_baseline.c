#include "run_baseline.h"

#include "base/clock.h"
#include "measure/meter.h"

#include <math.h>
#include <stdio.h>

static const struct measured_baseline none = { .power_w = NAN,
					       .u_w = NAN,
					       .age_s = NAN,
					       .seconds = NAN,
					       .net_joules = { NAN, NAN, NAN },
					       .adjusted_joules = NAN };

#define TTL_S 3600.0

static bool go_on(void *ctx, double seconds, double power_w, double half_width_w)
{
	struct runner *r = ctx;

	(void)seconds;
	(void)power_w;
	(void)half_width_w;
	return !runner_sleep(r, 0);
}

/* One of this card, driver, limit and mode, however old and whatever its temperature. */
static void load_old(const char *dir, struct run_baseline *ret)
{
	struct baseline any = ret->b;
	char why[200];

	any.temperature_c = NAN;
	if (baseline_load(&any, dir, INFINITY, clock_wall_ns(clock_real()), why, sizeof(why)) !=
	    0)
		return;
	ret->b = any;
	ret->have = ret->stale = true;
}

static void take(struct runner *r, unsigned i, const char *dir, struct run_baseline *ret)
{
	struct baseline_plan plan = { .kind = BASELINE_NO_CONTEXT,
				      .max_s = 30,
				      .min_s = 10,
				      .half_width_w = 1,
				      .progress = go_on,
				      .ctx = r };
	char message[160];
	int err = baseline_take(r->meter, i, &plan, &ret->b);

	if (err)
		snprintf(ret->why, sizeof(ret->why), "it could not be taken: %s",
			 gw_strerror(err));
	else if (ret->b.codes)
		snprintf(ret->why, sizeof(ret->why), "the GPU was not idle: %s",
			 ret->b.evidence);
	ret->have = !err && !ret->b.codes;
	if (ret->have && dir)
		baseline_save(&ret->b, dir, message,
			      sizeof(message)); /* or it is taken again */
}

void run_baseline_get(struct runner *r, unsigned i, const struct gw_device *d,
		      enum run_baseline_mode mode, struct run_baseline *ret)
{
	char dir[512];
	bool kept = baseline_directory(dir, sizeof(dir)) == 0;

	*ret = (struct run_baseline){ .have = false };
	if (mode == RUN_BASELINE_NONE)
		return;
	baseline_key(d, BASELINE_NO_CONTEXT, &ret->b);
	if (mode != RUN_BASELINE_NEW && kept)
		ret->have = baseline_load(&ret->b, dir, TTL_S, clock_wall_ns(clock_real()),
					  ret->why, sizeof(ret->why)) == 0;
	if (!ret->have && mode == RUN_BASELINE_OLD && kept)
		load_old(dir, ret);
	if (!ret->have && (mode == RUN_BASELINE_AUTO || mode == RUN_BASELINE_NEW))
		take(r, i, kept ? dir : NULL, ret);
	if (ret->have)
		meter_set_baseline(r->meter, i, ret->b.power_w, NAN);
}

void run_baseline_net(const struct run_baseline *b, const struct gw_energy *gross,
		      const struct sensor *sensor, struct measured_baseline *ret)
{
	struct baseline_net net;

	*ret = none;
	if (!b->have)
		return;
	baseline_net(gross, sensor, &b->b, NULL, &net);
	ret->kind = baseline_kind_name(b->b.kind);
	ret->power_w = b->b.power_w;
	ret->u_w = b->b.u_w;
	ret->seconds = b->b.seconds;
	ret->age_s = ((double)clock_wall_ns(clock_real()) - (double)b->b.wall_ns) * 1e-9;
	ret->net_joules = net.joules;
	ret->adjusted_joules = net.adjusted_joules;
	ret->floored = net.floored;
}
