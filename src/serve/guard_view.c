/* Computes from the guard which workers would leave, in which order, and how much memory is
 * free. */
#include "guard_view.h"

#include "view.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Bytes of a worker on a GPU of the scene. */
static uint64_t worker_bytes(const struct guard_view *g, unsigned worker, unsigned gpu)
{
	const struct scene *s;
	const struct verdict *v = guard_verdicts(g->guard, &s);
	uint64_t bytes = 0;

	for (unsigned i = 0; v && s && i < s->processes; i++)
		if (v[i].class == CLASS_WORKER && v[i].worker == (int)worker &&
		    s->process[i].gpu == gpu && s->process[i].bytes_known)
			bytes += s->process[i].bytes;
	return bytes;
}

static void add_worker(const struct guard_view *g, unsigned w, unsigned gpu,
		       struct capacity_gpu *ret)
{
	const struct policy_worker *p = &g->policy->worker[w];
	uint64_t bytes = worker_bytes(g, w, gpu);
	struct guard_status s;

	if (bytes == 0 || ret->workers == POLICY_WORKERS || guard_status(g->guard, w, &s) != 0)
		return;
	snprintf(ret->worker[ret->workers].name, sizeof(ret->worker[0].name), "%s", p->name);
	ret->worker[ret->workers].bytes = bytes;
	ret->worker[ret->workers].seconds = s.freed_ns ? (double)s.freed_ns * 1e-9 : NAN;
	ret->worker[ret->workers].movable = guard_movable(g->guard, w);
	ret->workers++;
}

static void add_health(const struct guard_view *g, unsigned i, uint64_t now_ns,
		       struct capacity_gpu *ret)
{
	struct health_status h;

	ret->margin_c = NAN;
	if (i >= g->devices || !g->health[i])
		return;
	health_status(g->health[i], now_ns, &h);
	ret->margin_c = h.margin_c;
	ret->quarantine = h.quarantine;
	ret->warm = h.heat >= HEALTH_THROTTLE;
}

/* Reserved on it and not taken yet. */
static uint64_t reserved(const struct guard_view *g, const char *uuid)
{
	struct guard_room room;
	uint64_t bytes = 0;

	for (unsigned i = 0; guard_room(g->guard, i, &room); i++)
		if (room.id && strcmp(room.gpu, uuid) == 0)
			bytes += room.left_bytes;
	return bytes;
}

void guard_view_capacity(const struct view *v, unsigned i, struct capacity_gpu *ret)
{
	const struct gw_device *d = gw_snapshot_device(v->snap, i);
	const char *uuid = gw_device_text(d, GW_T_UUID);
	const struct guard_view *g = v->guard;
	double total = 0, free_bytes = 0;
	int at;

	memset(ret, 0, sizeof(*ret));
	snprintf(ret->uuid, sizeof(ret->uuid), "%s", uuid ? uuid : "");
	ret->known = gw_device_value(d, GW_Q_MEMORY_TOTAL, &total) == GW_HAVE &&
		     gw_device_value(d, GW_Q_MEMORY_FREE, &free_bytes) == GW_HAVE;
	ret->total_bytes = (uint64_t)total;
	ret->free_bytes = (uint64_t)free_bytes;
	ret->margin_c = NAN;
	ret->blind = d->state != GW_DEVICE_OK;
	if (!g)
		return;
	ret->headroom_bytes = guard_headroom(g->guard, ret->total_bytes);
	ret->reserved_bytes = reserved(g, ret->uuid);
	add_health(g, i, gw_snapshot_mono_ns(v->snap), ret);
	at = guard_view_gpu(g->scene, uuid);
	if (at < 0)
		return;
	for (unsigned k = 0; k < g->policy->workers; k++)
		add_worker(g, guard_leaves_as(g->guard, k), (unsigned)at, ret);
}
