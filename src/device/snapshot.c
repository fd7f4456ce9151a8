/* snapshot: a copy of everything that is known about the machine and its GPUs at one moment.
 *
 * Taking a snapshot again costs the vendor's calls, a copy of each report, and two clock
 * readings plus two per device. Memory is allocated only if there are more devices than
 * before. */
#include "context.h"

#include "base/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Minimum time between two readings of the host. Reading /proc takes 30 us, which is more than
 * all calls for a GPU that was read before. */
#define HOST_FRESH_NS NS_PER_S

struct entry {
	struct gw_device pub;
	struct report r;
	const char *text[GW_TEXTS];
	const struct gw_mig *mig[DEVICE_MIG_MAX];
};

struct gw_snapshot {
	struct gw_ctx *ctx;
	struct entry **entry; /* An entry never moves, because its member pub points into it. */
	unsigned count, cap;
	uint64_t mono_ns, wall_ns;
	struct host_report host;
	struct gw_status status;
	unsigned generation; /* generation of the context when status was filled in */
	char backend[64], message[400], library_path[256], missing[1024];
	char driver[80], nvml[80], cuda[16];
};

int gw_snapshot_new(struct gw_ctx *ctx, struct gw_snapshot **ret_snap)
{
	struct gw_snapshot *s;

	if (!ctx || !ret_snap)
		return context_fail_null(ctx, ctx ? "ret_snap" : "ctx");
	s = calloc(1, sizeof(*s));
	if (!s)
		return context_fail(ctx, -GW_E_NOMEM, NULL);
	s->ctx = ctx;
	pthread_mutex_lock(&ctx->lock);
	/* Differs from the context's generation, so that the first take fills in the status. */
	s->generation = ctx->generation - 1;
	pthread_mutex_unlock(&ctx->lock);
	memset(s->host.why, GW_ABSENT_NOT_READ, sizeof(s->host.why));
	s->status =
		(struct gw_status){ .backend = "none", .message = "", .missing_symbols = "" };
	*ret_snap = s;
	return 0;
}

void gw_snapshot_free(struct gw_snapshot *snap)
{
	if (!snap)
		return;
	for (unsigned i = 0; i < snap->cap; i++)
		free(snap->entry[i]);
	free(snap->entry);
	free(snap);
}

struct gw_ctx *snapshot_context(const struct gw_snapshot *snap)
{
	return snap->ctx;
}

static int reserve_entries(struct gw_snapshot *s, unsigned n)
{
	struct entry **p;

	if (n <= s->cap)
		return 0;
	p = realloc(s->entry, n * sizeof(struct entry *));
	if (!p)
		return -GW_E_NOMEM;
	s->entry = p;
	while (s->cap < n) {
		s->entry[s->cap] = calloc(1, sizeof(struct entry));
		if (!s->entry[s->cap])
			return -GW_E_NOMEM;
		s->cap++;
	}
	return 0;
}

static const char *copy_text(char *out, size_t size, const char *text)
{
	snprintf(out, size, "%s", text);
	return *out ? out : NULL;
}

static void join_backend(struct gw_snapshot *s, const char *name)
{
	size_t used = strlen(s->backend);

	snprintf(s->backend + used, sizeof(s->backend) - used, "%s%s", used ? "+" : "", name);
}

static void fill_status(struct gw_snapshot *s)
{
	struct gw_ctx *ctx = s->ctx;
	struct gw_status *st = &s->status;

	memset(st, 0, sizeof(*st));
	s->backend[0] = s->missing[0] = '\0';
	for (unsigned i = 0; i < ctx->openers; i++) {
		struct opener *o = ctx->opener[i];
		struct backend *b = &o->b;

		if (o->retry_ns && (!st->retry_ns || o->retry_ns < st->retry_ns))
			st->retry_ns = o->retry_ns;
		st->simulated |= atomic_load(&b->simulated);
		if (o->hung)
			continue;
		if (b->open && b->count)
			join_backend(s, b->ops->name);
		if (!st->library_path)
			st->library_path = copy_text(s->library_path, sizeof(s->library_path),
						     b->library_path);
		if (!st->driver_version)
			st->driver_version =
				copy_text(s->driver, sizeof(s->driver), b->driver_version);
		if (!st->nvml_version)
			st->nvml_version = copy_text(s->nvml, sizeof(s->nvml), b->nvml_version);
		if (!st->cuda_version)
			st->cuda_version = copy_text(s->cuda, sizeof(s->cuda), b->cuda_version);
		if (!s->missing[0])
			copy_text(s->missing, sizeof(s->missing), b->missing);
	}
	if (!s->backend[0])
		join_backend(s, "none");
	st->backend = s->backend;
	st->missing_symbols = s->missing;
	st->cause = context_cause(ctx, s->message, sizeof(s->message));
	st->message = s->message;
	st->opens = ctx->opens;
	s->generation = ctx->generation;
}

static void read_slot(void *arg)
{
	struct slot *s = arg;
	struct device *d = s->d;
	unsigned due = report_due(&d->r, s->tiers, s->now_ns);

	if ((due || d->fresh) && d->backend->open)
		d->backend->ops->read(d, due);
	if (due & GW_TIER_HEALTH)
		d->r.margin_at_c =
			(due & GW_TIER_FAST) && report_has(&d->r, GW_Q_TEMPERATURE_GPU)
				? d->r.v[GW_Q_TEMPERATURE_GPU]
				: (double)NAN;
}

/* Corrects the thermal margin in the copy of the report by the change of the temperature since
 * the margin was read. The margin is read every ten seconds, but the temperature each time, and
 * the two are shown together. Returns the margin as the driver reported it, or NAN if it is
 * unknown. */
static double correct_margin(struct report *r)
{
	double reported;

	if (!report_has(r, GW_Q_TEMPERATURE_MARGIN))
		return NAN;
	reported = r->v[GW_Q_TEMPERATURE_MARGIN];
	if (report_has(r, GW_Q_TEMPERATURE_GPU) && !isnan(r->margin_at_c))
		r->v[GW_Q_TEMPERATURE_MARGIN] -= r->v[GW_Q_TEMPERATURE_GPU] - r->margin_at_c;
	return reported;
}

/* Copies a report, but only those MIG instances that exist. */
static void copy_report(struct report *dst, const struct report *src)
{
	memcpy(dst, src, offsetof(struct report, mig) + src->mig_count * sizeof(src->mig[0]));
}

static void mark_hung(struct entry *e, struct slot *s)
{
	const char *call = atomic_load(s->d->call);

	report_state(&e->r, GW_DEVICE_STALLED, GW_CAUSE_STALLED, call);
	report_absent(&e->r, GW_TIERS_ALL & ~(unsigned)GW_TIER_STATIC, GW_ABSENT_STALLED);
	for (unsigned t = 0; t < GW_TEXTS; t++)
		if (e->r.text_why[t] == GW_ABSENT_NOT_READ)
			e->r.text_why[t] = GW_ABSENT_STALLED;
}

static void fill_entry(struct entry *e, struct slot *s, unsigned position, bool several)
{
	struct report *r = &e->r;

	copy_report(r, slot_report(s));
	if (s->reading == SLOT_STALLED)
		mark_hung(e, s);
	for (unsigned t = 0; t < GW_TEXTS; t++)
		e->text[t] = r->text[t];
	for (unsigned i = 0; i < r->mig_count; i++)
		e->mig[i] = &r->mig[i];
	e->pub = (struct gw_device){
		.index = several ? position : r->index,
		.vendor = r->vendor,
		.provenance = r->provenance,
		.state = r->state,
		.cause = r->cause,
		.message = r->message,
		.backend = s->d->backend->ops->name,
		.begin_ns = r->begin_ns,
		.end_ns = r->end_ns,
		.cuda_ordinal = s->cuda_ordinal,
		.mig_count = r->mig_count,
		.mig = e->mig,
		.text_count = GW_TEXTS,
		.value_count = GW_QUANTITIES,
		.text = e->text,
		.text_absence = r->text_why,
		.value = r->v,
		.value_absence = r->why,
		.reported_margin_c = correct_margin(r),
	};
}

/* True if the devices belong to two or more backends, each of which numbers its devices from
 * 0. */
static bool several_backends(const struct gw_ctx *ctx)
{
	for (unsigned i = 1; i < ctx->slots; i++)
		if (ctx->slot[i]->d->backend != ctx->slot[0]->d->backend)
			return true;
	return false;
}

static void refresh_host(struct gw_ctx *ctx, uint64_t now)
{
	if (ctx->host_ns && now - ctx->host_ns < HOST_FRESH_NS &&
	    ctx->host_report.why[GW_H_CPU_UTILIZATION] == GW_HAVE)
		return;
	host_read(&ctx->host, &ctx->host_report);
	ctx->host_ns = now;
}

int gw_snapshot_take(struct gw_snapshot *snap, unsigned tiers)
{
	struct gw_ctx *ctx = snap ? snap->ctx : NULL;
	int err;

	if (!snap)
		return context_fail_null(NULL, "snap");
	if (tiers & ~(unsigned)GW_TIERS_ALL)
		return context_fail(ctx, -GW_E_ARG,
				    "unknown tiers 0x%x; use values of enum gw_tier",
				    tiers & ~(unsigned)GW_TIERS_ALL);
	/* ON_REQUEST includes PROFILE, for programs that do not know the bit
	 * GW_TIER_PROFILE. */
	tiers |= tiers & GW_TIER_ON_REQUEST ? GW_TIER_PROFILE : 0;
	pthread_mutex_lock(&ctx->lock);
	err = context_refresh(ctx);
	if (!err)
		err = reserve_entries(snap, ctx->slots);
	if (err)
		goto out;
	snap->mono_ns = clock_mono_ns(ctx->clock);
	snap->wall_ns = clock_wall_ns(ctx->clock);
	/* Read the names first, so that a GPU that hangs afterwards has a name. */
	if (ctx->fresh) {
		ctx->fresh = false;
		context_each(ctx, read_slot, 0, snap->mono_ns);
	}
	context_each(ctx, read_slot, tiers, snap->mono_ns);
	context_number_cuda(ctx);
	for (unsigned i = 0; i < ctx->slots; i++)
		fill_entry(snap->entry[i], ctx->slot[i], i, several_backends(ctx));
	snap->count = ctx->slots;
	refresh_host(ctx, snap->mono_ns);
	snap->host = ctx->host_report;
	if (snap->generation != ctx->generation)
		fill_status(snap);
out:
	pthread_mutex_unlock(&ctx->lock);
	return err ? context_fail(ctx, err, NULL) : 0;
}

const struct gw_status *gw_snapshot_status(const struct gw_snapshot *snap)
{
	return &snap->status;
}

uint64_t gw_snapshot_mono_ns(const struct gw_snapshot *snap)
{
	return snap->mono_ns;
}

uint64_t gw_snapshot_wall_ns(const struct gw_snapshot *snap)
{
	return snap->wall_ns;
}

unsigned gw_snapshot_device_count(const struct gw_snapshot *snap)
{
	return snap->count;
}

const struct gw_device *gw_snapshot_device(const struct gw_snapshot *snap, unsigned i)
{
	return i < snap->count ? &snap->entry[i]->pub : NULL;
}

const struct gw_device *gw_snapshot_main_device(const struct gw_snapshot *snap)
{
	for (unsigned i = 0; i < snap->count; i++)
		if (snap->entry[i]->pub.state == GW_DEVICE_OK)
			return &snap->entry[i]->pub;
	return NULL;
}

static bool snapshot_has_cuda(const struct gw_snapshot *snap)
{
	for (unsigned i = 0; i < snap->count; i++)
		if (snap->entry[i]->pub.state == GW_DEVICE_OK &&
		    snap->entry[i]->pub.vendor == GW_VENDOR_NVIDIA)
			return true;
	return false;
}

/* Returns the reason for the missing values if no GPU answers. */
static enum gw_absence snapshot_silence(const struct gw_snapshot *snap)
{
	enum gw_cause cause = snap->status.cause;

	if (snap->count)
		return device_absence(snap->entry[0]->pub.state, snap->entry[0]->pub.cause);
	if (cause == GW_CAUSE_STALLED)
		return GW_ABSENT_STALLED;
	return gw_cause_info(cause)->severity == GW_SEVERITY_ERROR ? GW_ABSENT_NO_DRIVER
								   : GW_ABSENT_NOT_PRESENT;
}

enum gw_absence gw_snapshot_resource(const struct gw_snapshot *snap, unsigned resource,
				     double *ret)
{
	static const struct {
		unsigned quantity;
		double scale;
	} of[GW_RESOURCES] = {
		[GW_R_GPU_TOTAL_VRAM_GB] = { GW_Q_MEMORY_TOTAL, 1.0 / GIB },
		[GW_R_GPU_USED_VRAM_GB] = { GW_Q_MEMORY_USED, 1.0 / GIB },
		[GW_R_GPU_FREE_VRAM_GB] = { GW_Q_MEMORY_FREE, 1.0 / GIB },
		[GW_R_GPU_UTILIZATION_PERCENT] = { GW_Q_UTILIZATION_GPU, 100 },
		[GW_R_GPU_TEMPERATURE_C] = { GW_Q_TEMPERATURE_GPU, 1 },
		[GW_R_GPU_VRAM_GB] = { GW_Q_MEMORY_TOTAL, 1.0 / GIB },
	};
	const struct gw_device *d = gw_snapshot_main_device(snap);
	enum gw_absence why;
	double v = 0;

	if (resource >= GW_RESOURCES)
		return GW_ABSENT_NOT_SUPPORTED;
	if (!snap->mono_ns) /* The snapshot has not been taken yet. */
		return GW_ABSENT_NOT_READ;
	if (resource == GW_R_GPU_AVAILABLE) {
		*ret = d != NULL;
		return GW_HAVE;
	}
	if (resource == GW_R_GPU_COUNT) {
		*ret = snap->count;
		return GW_HAVE;
	}
	if (resource == GW_R_CUDA_AVAILABLE) {
		*ret = snapshot_has_cuda(snap);
		return GW_HAVE;
	}
	why = d ? gw_device_value(d, of[resource].quantity, &v) : snapshot_silence(snap);
	if (why == GW_HAVE)
		*ret = v * of[resource].scale;
	return why;
}

enum gw_absence gw_snapshot_host(const struct gw_snapshot *snap, unsigned quantity, double *ret)
{
	if (quantity >= GW_HOST_QUANTITIES)
		return GW_ABSENT_NOT_SUPPORTED;
	if (snap->host.why[quantity] == GW_HAVE)
		*ret = snap->host.v[quantity];
	return (enum gw_absence)snap->host.why[quantity];
}
