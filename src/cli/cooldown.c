#include "cooldown.h"

#include "base/clock.h"

#include <math.h>

#define MOST_S   60
#define MARGIN_C 2.0 /* as cool as at the first start, within this */

int cooldown_init(struct cooldown *k)
{
	k->waited_s = 0;
	k->late = 0;
	k->now_c = k->late_c = NAN;
	k->late_gpu = -1;
	for (unsigned i = 0; i < COOLDOWN_DEVICES; i++)
		k->mark_c[i] = k->to_c;
	return gw_snapshot_new(k->ctx, &k->snap);
}

void cooldown_done(struct cooldown *k)
{
	gw_snapshot_free(k->snap);
	k->snap = NULL;
}

/* The GPU that is farthest above its mark. */
struct farthest {
	double over_c, now_c; /* NAN: none has a temperature */
	unsigned i, index;
};

static unsigned read_meter(struct cooldown *k, struct cooldown_gpu *ret)
{
	unsigned n = gw_meter_device_count(k->runner->meter), i;

	if (gw_snapshot_take(k->snap, GW_TIER_FAST) != 0)
		return 0;
	for (i = 0; i < n && i < COOLDOWN_DEVICES; i++) {
		const struct gw_device *d =
			gw_snapshot_device(k->snap, gw_meter_device(k->runner->meter, i));

		ret[i] = (struct cooldown_gpu){ d ? d->index : 0, NAN };
		if (d)
			gw_device_value(d, GW_Q_TEMPERATURE_GPU, &ret[i].c);
	}
	return i;
}

static void look(struct cooldown *k, struct farthest *f)
{
	struct cooldown_gpu gpu[COOLDOWN_DEVICES];
	unsigned n = k->read ? k->read(k->arg, gpu) : read_meter(k, gpu);

	*f = (struct farthest){ .over_c = NAN, .now_c = NAN };
	k->now_c = NAN;
	for (unsigned i = 0; i < n; i++) {
		double c = gpu[i].c;

		if (isnan(c))
			continue;
		k->now_c = fmax(k->now_c, c);
		if (isnan(k->mark_c[i])) /* the first start */
			k->mark_c[i] = c + MARGIN_C;
		if (!(c - k->mark_c[i] <= f->over_c))
			*f = (struct farthest){ c - k->mark_c[i], c, i, gpu[i].index };
	}
}

bool cooldown_wait(struct cooldown *k)
{
	uint64_t begin = clock_mono_ns(clock_real()), now = begin;
	struct farthest f;

	k->late_gpu = -1;
	look(k, &f);
	while (f.over_c > 0 && now - begin < MOST_S * NS_PER_S) {
		if (k->tell)
			k->tell(k->arg, f.index, f.now_c, k->mark_c[f.i]);
		if (runner_sleep(k->runner, now + NS_PER_S / 2))
			break;
		look(k, &f);
		now = clock_mono_ns(clock_real());
	}
	if (now > begin)
		k->waited_s += (double)(now - begin) * 1e-9;
	if (f.over_c > 0 && !k->runner->interrupted) {
		k->late++;
		k->mark_c[f.i] = k->late_c = f.now_c;
		k->late_gpu = (int)f.index;
	}
	return k->runner->interrupted != 0;
}
