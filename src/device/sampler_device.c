#include "sampler_device.h"

#include "context.h"

#include "base/utf8.h"

#define LOOK_NS NS_PER_S /* for a driver that went away, at most this often */

int sampler_device_init(struct sampler_device *t, struct gw_ctx *ctx, unsigned position)
{
	*t = (struct sampler_device){ .ctx = ctx, .clock = ctx->clock };
	pthread_mutex_lock(&ctx->lock);
	if (position < ctx->slots)
		t->slot = ctx->slot[position];
	pthread_mutex_unlock(&ctx->lock);
	return t->slot ? 0 : -GW_E_NODEV;
}

/* The device, held, and with a driver behind it; NULL: there is none, and it is not held. */
static struct device *hold(struct sampler_device *t)
{
	struct device *d = t->slot->d;

	slot_take(t->slot);
	t->opened = d->backend->opened;
	if (d->backend->open)
		return d;
	slot_give(t->slot);
	return NULL;
}

/* The driver is looked for by whoever notices first; a context that was let go stays so. */
static void look_for_driver(struct sampler_device *t)
{
	struct backend *b = t->slot->d->backend;
	uint64_t now = clock_mono_ns(t->clock);
	bool open;

	slot_take(t->slot);
	open = b->open && !atomic_load(&b->reopen);
	slot_give(t->slot);
	if (open || (t->refresh_ns && now - t->refresh_ns < LOOK_NS))
		return;
	t->refresh_ns = now;
	pthread_mutex_lock(&t->ctx->lock);
	(void)context_refresh(t->ctx); /* no memory now: again in a second */
	pthread_mutex_unlock(&t->ctx->lock);
}

void sampler_device_read(struct sampler_device *t, unsigned tiers, bool force,
			 struct report *ret)
{
	struct device *d;

	look_for_driver(t);
	d = hold(t);
	if (d) {
		unsigned due =
			force ? tiers : report_due(&d->r, tiers, clock_mono_ns(t->clock));

		if (due || d->fresh)
			d->backend->ops->read(d, due);
	} else {
		d = t->slot->d;
		slot_take(t->slot);
	}
	*ret = d->r;
	slot_give(t->slot);
}

void sampler_device_counter(struct sampler_device *t, struct sampler_device_counter *ret)
{
	struct device *d = hold(t);

	*ret = (struct sampler_device_counter){ .before_ns = clock_mono_ns(t->clock),
						.why = GW_ABSENT_NO_DRIVER };
	ret->after_ns = ret->before_ns;
	if (!d)
		return;
	d->backend->ops->read(d, GW_TIER_ENERGY);
	ret->after_ns = clock_mono_ns(t->clock);
	ret->why = (enum gw_absence)d->r.why[GW_Q_ENERGY];
	ret->joules = d->r.v[GW_Q_ENERGY];
	slot_give(t->slot);
}

int sampler_device_ring(struct sampler_device *t, struct power_sample *out, unsigned cap)
{
	struct device *d = hold(t);
	int n;

	if (!d)
		return -GW_E_LOST;
	n = d->backend->ops->power_samples ? d->backend->ops->power_samples(d, 0, out, cap)
					   : -GW_E_NOSUPPORT;
	slot_give(t->slot);
	return n;
}

enum gw_absence sampler_device_processes(struct sampler_device *t, struct usage_list *l,
					 int *ret_error)
{
	struct device *d = hold(t);
	enum gw_absence why;

	l->count = 0;
	*ret_error = 0;
	if (!d)
		return GW_ABSENT_NO_DRIVER;
	why = d->backend->ops->processes(d, l, ret_error);
	slot_give(t->slot);
	return why;
}

int sampler_device_process_use(struct sampler_device *t, uint64_t since_us,
			       struct process_use *out, unsigned cap)
{
	struct device *d = hold(t);
	int n;

	if (!d)
		return -GW_E_LOST;
	n = d->backend->ops->process_use ? d->backend->ops->process_use(d, since_us, out, cap)
					 : -GW_E_NOSUPPORT;
	slot_give(t->slot);
	return n;
}

uint64_t sampler_device_start_ticks(const struct sampler_device *t, int64_t pid)
{
	uint64_t ticks = 0;

	return proc_start_ticks(&t->ctx->root, pid, &ticks) == 0 ? ticks : 0;
}

bool sampler_device_in_tree(const struct sampler_device *t, int64_t pid, int64_t ancestor)
{
	return proc_in_tree(&t->ctx->root, pid, ancestor);
}

void sampler_device_process_name(const struct sampler_device *t, int64_t pid, char *out,
				 size_t size)
{
	char path[64], name[64];

	out[0] = '\0';
	root_path(path, sizeof(path), "proc/%lld/comm", (long long)pid);
	if (root_read_line(&t->ctx->root, path, name, sizeof(name)) > 0)
		utf8_clean(out, size, name);
}
