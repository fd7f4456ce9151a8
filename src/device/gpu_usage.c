/* What a lane may still write to when a call comes back late belongs to the slot, not to who asked. */
#include "gpu_usage.h"

#include "context.h"

#include <math.h>
#include <stdlib.h>

#define USES_MAX    1024              /* more than the driver keeps samples of */
#define LIST_NS     (500 * NS_PER_MS) /* no list is older */
#define RESTLESS_NS NS_PER_S          /* after a change lists are asked for so long */

static void ask_use(struct slot *s, uint64_t since_us)
{
	struct device *d = s->d;

	s->uses = -GW_E_NOSUPPORT;
	if (!d->backend->ops->process_use)
		return;
	if (!s->use_of)
		s->use_of = calloc(USES_MAX, sizeof(*s->use_of));
	s->uses = s->use_of ? d->backend->ops->process_use(d, since_us, s->use_of, USES_MAX)
			    : -GW_E_NOMEM;
}

static void ask_memory(struct device *d)
{
	if (d->r.state != GW_DEVICE_OK || d->fresh)
		return;
	if (d->backend->ops->memory)
		d->backend->ops->memory(d);
	else
		d->backend->ops->read(d, GW_TIER_FAST);
}

static double used_on(const struct device *d)
{
	return report_has(&d->r, GW_Q_MEMORY_USED) ? d->r.v[GW_Q_MEMORY_USED] : NAN;
}

/* Is the list of the last time as good as a new one? */
static bool is_listed(const struct slot *s, uint64_t now_ns)
{
	return s->tiers == GPU_USAGE_MEMORY && s->listed_ns && s->usage_why == GW_HAVE &&
	       s->usage_error == 0 && s->d->r.state == GW_DEVICE_OK &&
	       used_on(s->d) == s->listed_used && now_ns - s->listed_ns < LIST_NS &&
	       now_ns - s->restless_ns >= RESTLESS_NS;
}

static void ask_list(struct slot *s, uint64_t now_ns)
{
	const double used = used_on(s->d);
	const unsigned count = s->usage.count;

	s->usage.count = 0;
	s->usage_error = 0;
	s->usage_why = s->d->backend->ops->processes(s->d, &s->usage, &s->usage_error);
	if (used != s->listed_used || count != s->usage.count || !s->listed_ns)
		s->restless_ns = now_ns;
	s->listed_used = used;
	s->listed_ns = now_ns;
}

/* now_ns of the slot carries since_us here, tiers the flags. */
static void ask_slot(void *arg)
{
	struct slot *s = arg;
	struct device *d = s->d;
	const uint64_t now_ns = clock_mono_ns(d->backend->env->clock);

	s->uses = -GW_E_STATE;
	if (!d->backend->open) {
		s->usage.count = 0;
		s->usage_error = 0;
		s->usage_why = device_silence(d->r.state, d->r.cause);
		s->listed_ns = 0;
		return;
	}
	if (s->tiers & GPU_USAGE_MEMORY)
		ask_memory(d);
	if (!is_listed(s, now_ns))
		ask_list(s, now_ns);
	if (s->now_ns && s->usage_why == GW_HAVE)
		ask_use(s, s->now_ns);
}

static struct gpu_usage answer(const struct gw_ctx *ctx, unsigned device)
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
				   .use = s->use_of,
				   .uses = s->uses };
}

int gpu_usage_read(struct gw_ctx *ctx, unsigned flags, uint64_t since_us,
		   void (*fn)(void *arg, const struct gpu_usage *c), void *arg)
{
	int err;

	pthread_mutex_lock(&ctx->lock);
	err = context_refresh(ctx);
	if (!err)
		context_each(ctx, ask_slot, flags, since_us);
	for (unsigned i = 0; i < ctx->slots && !err; i++)
		if (!ctx->slot[i]->stalled)
			err = ctx->slot[i]->usage_error;
	for (unsigned i = 0; i < ctx->slots && !err; i++) {
		const struct gpu_usage c = answer(ctx, i);

		fn(arg, &c);
	}
	pthread_mutex_unlock(&ctx->lock);
	return err;
}
