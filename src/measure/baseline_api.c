/* The functions gw_baseline_*() of gpuward.h. baseline.c measures, stores and subtracts
 * baselines. This file checks arguments, allocates the objects and writes error messages. */
#include "baseline.h"
#include "meter.h"

#include "base/clock.h"
#include "base/sized.h"
#include "device/context.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_AGE_S    3600.0
#define FOLDER_BYTES 512

struct owned_baseline {
	struct gw_baseline pub;
	struct baseline b;
};

/* Makes a public baseline from an internal one. */
static int own_baseline(struct gw_ctx *ctx, const struct baseline *b,
			enum gw_provenance provenance, struct gw_baseline **ret)
{
	struct owned_baseline *o = malloc(sizeof(*o));

	if (!o)
		return context_fail(ctx, -GW_E_NOMEM, NULL);
	o->b = *b;
	o->pub = (struct gw_baseline){ .kind = b->kind,
				       .uuid = o->b.uuid,
				       .power_w = b->power_w,
				       .u_w = b->u_w,
				       .seconds = b->seconds,
				       .temperature_c = b->temperature_c,
				       .limit_w = b->limit_w,
				       .wall_ns = b->wall_ns,
				       .codes = b->codes,
				       .evidence = o->b.evidence,
				       .simulated = provenance == GW_FROM_SIMULATOR };
	*ret = &o->pub;
	return 0;
}

static const struct baseline *baseline_of(const struct gw_baseline *pub)
{
	return pub ? &((const struct owned_baseline *)pub)->b : NULL;
}

static int baseline_fail(struct gw_meter *m, unsigned i, int err)
{
	const char *what = err == -GW_E_NODEV       ? "the meter has no such GPU"
			   : err == -GW_E_NOSUPPORT ? "the GPU has no power reading"
			   : err == -GW_E_LOST      ? "the GPU does not answer"
			   : err == -GW_E_STATE ? "the progress function ended the measurement"
						: gw_strerror(err);

	return context_fail(meter_context(m), err, "no baseline for device %u of the meter: %s",
			    i, what);
}

static bool baseline_continues(void *ctx, double seconds, double power_w, double half_width_w)
{
	const struct gw_baseline_options *o = ctx;

	return !o->progress || o->progress(o->arg, seconds, power_w, half_width_w) == 0;
}

int gw_baseline_take(struct gw_meter *m, unsigned i, const struct gw_baseline_options *options,
		     struct gw_baseline **ret_baseline)
{
	struct gw_baseline_options o;
	struct baseline_plan plan = { .progress = baseline_continues, .ctx = &o };
	enum gw_provenance provenance;
	struct baseline b;
	int err;

	if (!m || !ret_baseline)
		return context_fail_null(m ? meter_context(m) : NULL,
					 m ? "ret_baseline" : "meter");
	if (!sized_read(&o, sizeof(o), SIZED_FIRST(struct gw_baseline_options, arg), options))
		return context_fail_size(meter_context(m), "gw_baseline_options", options->size,
					 sizeof(o));
	if ((unsigned)o.kind >= GW_BASELINE_KINDS || !(o.max_s == 0 || o.max_s >= 2) ||
	    !(o.min_s >= 0) || !(o.half_width_w >= 0))
		return context_fail(meter_context(m), -GW_E_ARG,
				    "gw_baseline_options has an unknown kind, a max_s "
				    "below 2 s, or a negative number");
	if (!meter_reads_processes(m))
		return context_fail(meter_context(m), -GW_E_STATE,
				    "a baseline needs a meter that was started with "
				    "GW_METER_PROCESSES, to see whether the GPU is idle");
	plan.kind = o.kind;
	plan.max_s = o.max_s > 0 ? o.max_s : 30;
	plan.min_s = o.min_s > 0 ? o.min_s : 10;
	plan.half_width_w = o.half_width_w > 0 ? o.half_width_w : 1;
	err = baseline_state(m, i, plan.kind, &b, &provenance);
	if (!err)
		err = baseline_take(m, i, &plan, &b);
	return err ? baseline_fail(m, i, err)
		   : own_baseline(meter_context(m), &b, provenance, ret_baseline);
}

/* Copies dir, or the default folder, to out. */
static int baseline_folder(struct gw_ctx *ctx, const char *dir, char out[static FOLDER_BYTES])
{
	int err = 0;

	if (!dir)
		err = baseline_directory(out, FOLDER_BYTES);
	else if ((size_t)snprintf(out, FOLDER_BYTES, "%s", dir) >= FOLDER_BYTES)
		err = -GW_E_SIZE;
	return err ? context_fail(
			     ctx, err,
			     "no folder for baselines: %s; name one, or set XDG_CACHE_HOME",
			     gw_strerror(err))
		   : 0;
}

int gw_baseline_load(struct gw_meter *m, unsigned i, enum gw_baseline_kind kind,
		     double max_age_s, const char *dir, struct gw_baseline **ret_baseline)
{
	struct gw_ctx *ctx = m ? meter_context(m) : NULL;
	enum gw_provenance provenance;
	char folder[FOLDER_BYTES], why[256];
	struct baseline b;
	int err = (unsigned)kind < GW_BASELINE_KINDS && max_age_s >= 0 ? 0 : -GW_E_ARG;

	if (!m || !ret_baseline)
		return context_fail_null(ctx, m ? "ret_baseline" : "meter");
	if (!err)
		err = baseline_state(m, i, kind, &b, &provenance);
	if (err)
		return baseline_fail(m, i, err);
	err = baseline_folder(ctx, dir, folder);
	if (err)
		return err;
	err = baseline_load(&b, folder, max_age_s > 0 ? max_age_s : MAX_AGE_S,
			    clock_wall_ns(meter_clock(m)), why, sizeof(why));
	if (err)
		return context_fail(ctx, err, "no usable baseline: %s; measure a new one", why);
	return own_baseline(ctx, &b, provenance, ret_baseline);
}

int gw_baseline_save(struct gw_ctx *ctx, const struct gw_baseline *baseline, const char *dir)
{
	char folder[FOLDER_BYTES], message[400];
	int err;

	if (!baseline)
		return context_fail_null(ctx, "baseline");
	if (baseline->simulated && !dir)
		return context_fail(
			ctx, -GW_E_STATE,
			"the baseline of a simulated GPU is not stored in the folder of "
			"real GPUs; name another folder");
	err = baseline_folder(ctx, dir, folder);
	if (err)
		return err;
	err = baseline_save(baseline_of(baseline), folder, message, sizeof(message));
	return err ? context_fail(ctx, err, "the baseline was not stored: %s", message) : 0;
}

void gw_baseline_free(struct gw_baseline *baseline)
{
	free(baseline);
}

/* Returns why a baseline cannot be subtracted from the energy of the GPU with this sensor; NULL
 * if it can be subtracted. */
static const char *unusable(const struct gw_baseline *b, const struct sensor *s)
{
	if (b->codes >> GW_CODE_BASELINE_CONTENDED & 1)
		return b->evidence;
	return *s->uuid && strcmp(s->uuid, b->uuid) != 0 ? "the baseline belongs to another GPU"
							 : NULL;
}

int gw_baseline_apply(struct gw_meter *m, const struct gw_energy *energy,
		      const struct gw_baseline *before, const struct gw_baseline *after,
		      struct gw_net_energy *ret)
{
	struct gw_net_energy v;
	struct baseline_net net;
	struct energy_setup set;
	const char *why;

	if (!m || !energy || !before || !ret)
		return context_fail_null(m ? meter_context(m) : NULL, !m        ? "meter"
								      : !energy ? "energy"
								      : !before ? "before"
										: "ret");
	if (energy->device >= gw_meter_device_count(m))
		return context_fail(meter_context(m), -GW_E_ARG,
				    "the energy is that of device %u, but the meter has only "
				    "%u",
				    energy->device, gw_meter_device_count(m));
	set = meter_setup(m, energy->device);
	why = unusable(before, &set.sensor);
	if (!why && after)
		why = unusable(after, &set.sensor);
	if (why)
		return context_fail(meter_context(m), -GW_E_STATE,
				    "the baseline cannot be subtracted from this energy: %s",
				    why);
	baseline_net(energy, &set.sensor, baseline_of(before), baseline_of(after), &net);
	v = (struct gw_net_energy){ .baseline_joules = energy->joules.best - net.joules.best,
				    .net = net.joules,
				    .adjusted_joules = net.adjusted_joules,
				    .floored = net.floored };
	return sized_write(ret, &v, sizeof(v), SIZED_FIRST(struct gw_net_energy, floored))
		       ? 0
		       : context_fail_size(meter_context(m), "gw_net_energy", ret->size,
					   sizeof(v));
}
