#include "sampler_device.h"

#include "context.h"

#include "base/utf8.h"

#define REFRESH_NS NS_PER_S /* minimum time between searches for a driver that went away */

int sampler_device_init(struct sampler_device *sd, struct gw_ctx *ctx, unsigned position)
{
	*sd = (struct sampler_device){ .ctx = ctx, .clock = ctx->clock };
	pthread_mutex_lock(&ctx->lock);
	if (position < ctx->slots)
		sd->slot = ctx->slot[position];
	pthread_mutex_unlock(&ctx->lock);
	return sd->slot ? 0 : -GW_E_NODEV;
}

/* If the driver is open, takes exclusive use of the device and returns it; the caller ends the
 * use with slot_give(). Otherwise returns NULL. */
static struct device *sampler_device_hold(struct sampler_device *sd)
{
	struct device *d = sd->slot->d;

	slot_take(sd->slot);
	sd->opened = d->backend->opened;
	if (d->backend->open)
		return d;
	slot_give(sd->slot);
	return NULL;
}

/* Searches for a driver that went away, at most once per REFRESH_NS. A context that was
 * released stays released. */
static void refresh_driver(struct sampler_device *sd)
{
	struct backend *b = sd->slot->d->backend;
	uint64_t now = clock_mono_ns(sd->clock);
	bool open;

	slot_take(sd->slot);
	open = b->open && !atomic_load(&b->reopen);
	slot_give(sd->slot);
	if (open || (sd->refresh_ns && now - sd->refresh_ns < REFRESH_NS))
		return;
	sd->refresh_ns = now;
	pthread_mutex_lock(&sd->ctx->lock);
	(void)context_refresh(sd->ctx); /* If there is no memory, this is tried again later. */
	pthread_mutex_unlock(&sd->ctx->lock);
}

void sampler_device_read(struct sampler_device *sd, unsigned tiers, bool force,
			 struct report *ret)
{
	struct device *d;

	refresh_driver(sd);
	d = sampler_device_hold(sd);
	if (d) {
		unsigned due =
			force ? tiers : report_due(&d->r, tiers, clock_mono_ns(sd->clock));

		if (due || d->fresh)
			d->backend->ops->read(d, due);
	} else {
		d = sd->slot->d;
		slot_take(sd->slot);
	}
	*ret = d->r;
	slot_give(sd->slot);
}

void sampler_device_counter(struct sampler_device *sd, struct sampler_device_counter *ret)
{
	struct device *d = sampler_device_hold(sd);

	*ret = (struct sampler_device_counter){ .before_ns = clock_mono_ns(sd->clock),
						.why = GW_ABSENT_NO_DRIVER };
	ret->after_ns = ret->before_ns;
	if (!d)
		return;
	d->backend->ops->read(d, GW_TIER_ENERGY);
	ret->after_ns = clock_mono_ns(sd->clock);
	ret->why = (enum gw_absence)d->r.why[GW_Q_ENERGY];
	ret->joules = d->r.v[GW_Q_ENERGY];
	slot_give(sd->slot);
}

int sampler_device_ring(struct sampler_device *sd, struct power_sample *out, unsigned cap)
{
	struct device *d = sampler_device_hold(sd);
	int n;

	if (!d)
		return -GW_E_LOST;
	n = d->backend->ops->power_samples ? d->backend->ops->power_samples(d, 0, out, cap)
					   : -GW_E_NOSUPPORT;
	slot_give(sd->slot);
	return n;
}

enum gw_absence sampler_device_processes(struct sampler_device *sd, struct usage_list *l,
					 int *ret_error)
{
	struct device *d = sampler_device_hold(sd);
	enum gw_absence why;

	l->count = 0;
	*ret_error = 0;
	if (!d)
		return GW_ABSENT_NO_DRIVER;
	why = d->backend->ops->processes(d, l, ret_error);
	slot_give(sd->slot);
	return why;
}

int sampler_device_process_use(struct sampler_device *sd, uint64_t since_us,
			       struct process_use *out, unsigned cap)
{
	struct device *d = sampler_device_hold(sd);
	int n;

	if (!d)
		return -GW_E_LOST;
	n = d->backend->ops->process_use ? d->backend->ops->process_use(d, since_us, out, cap)
					 : -GW_E_NOSUPPORT;
	slot_give(sd->slot);
	return n;
}

struct proc_id sampler_device_proc_id(const struct sampler_device *sd, int64_t pid)
{
	struct proc_id id = { .pid = pid };

	if (proc_start_ticks(&sd->ctx->root, pid, &id.start_ticks) != 0)
		id.start_ticks = 0;
	return id;
}

bool sampler_device_in_tree(const struct sampler_device *sd, int64_t pid, int64_t ancestor)
{
	return proc_in_tree(&sd->ctx->root, pid, ancestor);
}

void sampler_device_process_name(const struct sampler_device *sd, int64_t pid, char *out,
				 size_t size)
{
	char path[64], name[64];

	out[0] = '\0';
	root_path(path, sizeof(path), "proc/%lld/comm", (long long)pid);
	if (root_read_line(&sd->ctx->root, path, name, sizeof(name)) > 0)
		utf8_clean(out, size, name);
}
