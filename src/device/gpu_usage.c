/* Memory that a call thread may still write to after a late return belongs to the slot, not to
 * the caller. */
#include "gpu_usage.h"

#include "context.h"

#include <math.h>
#include <stdlib.h>

#define USES_MAX   1024              /* more than the driver keeps samples of */
#define LIST_NS    (500 * NS_PER_MS) /* maximum age of a list */
#define CHANGED_NS NS_PER_S          /* after a change, always list for this long */

static void query_use(struct slot *s, uint64_t since_us)
{
	struct device *d = s->d;

	s->uses = -GW_E_NOSUPPORT;
	if (!d->backend->ops->process_use)
		return;
	if (!s->process_use)
		s->process_use = calloc(USES_MAX, sizeof(*s->process_use));
	s->uses = s->process_use
			  ? d->backend->ops->process_use(d, since_us, s->process_use, USES_MAX)
			  : -GW_E_NOMEM;
}

static void query_memory(struct device *d)
{
	if (d->r.state != GW_DEVICE_OK || d->fresh)
		return;
	if (d->backend->ops->memory)
		d->backend->ops->memory(d);
	else
		d->backend->ops->read(d, GW_TIER_FAST);
}

static double memory_used(const struct device *d)
{
	return report_has(&d->r, GW_Q_MEMORY_USED) ? d->r.v[GW_Q_MEMORY_USED] : NAN;
}

/* Is the previous list as good as a new one? */
static bool list_is_current(const struct slot *s, uint64_t now_ns)
{
	return s->tiers == GPU_USAGE_MEMORY && s->listed_ns && s->usage_why == GW_HAVE &&
	       s->usage_error == 0 && s->d->r.state == GW_DEVICE_OK &&
	       memory_used(s->d) == s->listed_used_bytes && now_ns - s->listed_ns < LIST_NS &&
	       now_ns - s->changed_ns >= CHANGED_NS;
}

static void query_list(struct slot *s, uint64_t now_ns)
{
	const double used = memory_used(s->d);
	const unsigned count = s->usage.count;

	s->usage.count = 0;
	s->usage_error = 0;
	s->usage_why = s->d->backend->ops->processes(s->d, &s->usage, &s->usage_error);
	if (used != s->listed_used_bytes || count != s->usage.count || !s->listed_ns)
		s->changed_ns = now_ns;
	s->listed_used_bytes = used;
	s->listed_ns = now_ns;
}

/* Here the slot's now_ns carries since_us, and tiers the flags. */
static void query_slot(void *arg)
{
	struct slot *s = arg;
	struct device *d = s->d;
	const uint64_t now_ns = clock_mono_ns(d->backend->env->clock);

	s->uses = -GW_E_STATE;
	if (!d->backend->open) {
		s->usage.count = 0;
		s->usage_error = 0;
		s->usage_why = device_absence(d->r.state, d->r.cause);
		s->listed_ns = 0;
		return;
	}
	if (s->tiers & GPU_USAGE_MEMORY)
		query_memory(d);
	if (!list_is_current(s, now_ns))
		query_list(s, now_ns);
	if (s->now_ns && s->usage_why == GW_HAVE)
		query_use(s, s->now_ns);
}

static struct gpu_usage slot_usage(const struct gw_ctx *ctx, unsigned device)
{
	const struct slot *s = ctx->slot[device];

	if (s->stalled)
		return (struct gpu_usage){ .device = device,
					   .stalled = true,
					   .why = GW_ABSENT_STALLED,
					   .generation = ctx->generation,
					   .uses = -GW_E_STATE };
	return (struct gpu_usage){ .device = device,
				   .why = s->usage_why,
				   .partial = s->usage.partial,
				   .generation = ctx->generation,
				   .report = slot_report(s),
				   .usage = s->usage.p,
				   .count = s->usage_why == GW_HAVE ? s->usage.count : 0,
				   .use = s->process_use,
				   .uses = s->uses };
}

int gpu_usage_read(struct gw_ctx *ctx, unsigned flags, uint64_t since_us,
		   void (*fn)(void *arg, const struct gpu_usage *u), void *arg)
{
	int err;

	pthread_mutex_lock(&ctx->lock);
	err = context_refresh(ctx);
	if (!err)
		context_each(ctx, query_slot, flags, since_us);
	for (unsigned i = 0; i < ctx->slots && !err; i++)
		if (!ctx->slot[i]->stalled)
			err = ctx->slot[i]->usage_error;
	for (unsigned i = 0; i < ctx->slots && !err; i++) {
		const struct gpu_usage u = slot_usage(ctx, i);

		fn(arg, &u);
	}
	pthread_mutex_unlock(&ctx->lock);
	return err;
}
