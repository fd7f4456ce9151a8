/* What a lane may still write to when a call comes back late belongs to the slot, not to who asked. */
#include "census.h"

#include "context.h"

#include <stdlib.h>

#define USES_MAX 1024 /* more than the driver keeps samples of */

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

/* now_ns of the slot carries since_us here, tiers whether memory is asked. */
static void ask_slot(void *arg)
{
	struct slot *s = arg;
	struct device *d = s->d;

	s->usage.count = 0;
	s->usage_error = 0;
	s->uses = -GW_E_STATE;
	if (!d->backend->open) {
		s->usage_why = device_silence(d->r.state, d->r.cause);
		return;
	}
	if (s->tiers)
		ask_memory(d);
	s->usage_why = d->backend->ops->processes(d, &s->usage, &s->usage_error);
	if (s->now_ns && s->usage_why == GW_HAVE)
		ask_use(s, s->now_ns);
}

static struct census answer(const struct gw_ctx *ctx, unsigned device)
{
	const struct slot *s = ctx->slot[device];

	if (s->stalled)
		return (struct census){ .device = device,
					.stalled = true,
					.why = GW_ABSENT_STALLED,
					.generation = ctx->generation,
					.uses = -GW_E_STATE };
	return (struct census){ .device = device,
				.why = s->usage_why,
				.generation = ctx->generation,
				.report = slot_report(s),
				.usage = s->usage.p,
				.count = s->usage_why == GW_HAVE ? s->usage.count : 0,
				.use = s->use_of,
				.uses = s->uses };
}

int census_take(struct gw_ctx *ctx, bool memory, uint64_t since_us,
		void (*fn)(void *arg, const struct census *c), void *arg)
{
	int err;

	pthread_mutex_lock(&ctx->lock);
	err = context_refresh(ctx);
	if (!err)
		context_each(ctx, ask_slot, memory ? GW_TIER_FAST : 0, since_us);
	for (unsigned i = 0; i < ctx->slots && !err; i++)
		if (!ctx->slot[i]->stalled)
			err = ctx->slot[i]->usage_error;
	for (unsigned i = 0; i < ctx->slots && !err; i++) {
		const struct census c = answer(ctx, i);

		fn(arg, &c);
	}
	pthread_mutex_unlock(&ctx->lock);
	return err;
}
