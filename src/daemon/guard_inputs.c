#include "games.h"
#include "guard_service_parts.h"

#include "base/clock.h"
#include "base/text.h"
#include "device/context.h"
#include "device/event_watch.h"
#include "device/nvml_abi.h"
#include "device/proc.h"
#include "guard/gpu_use.h"
#include "guard/idle.h"
#include "guard/kernel_log.h"
#include "serve/view.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GPUS    SCENE_GPUS
#define IDLE_NS (10 * NS_PER_S) /* After this time, the power of an idle GPU is steady. */
/* A learned figure of a worker is passed to the guard again if it changed by more than this
 * ratio. */
#define CHANGE 0.1

/* At the first tick, the kernel log has the Xids from before the start of the service. Of these
 * Xids, only those since the last load of the driver are used. The new entries of the log are
 * read at each tick, because some drivers report no events. If both the kernel log and the
 * driver report an Xid, the guard gets it once. The log of the real kernel never has Xids of
 * simulated GPUs. */

#define PAST 256 /* Maximum number of stored Xids from before the start. */
/* Number of recent Xids that are remembered. They show whether the other source (kernel log or
 * driver) has already reported the same Xid. */
#define RECENT 16
/* If both sources report the same Xid within this time, the two reports count as one Xid. */
#define SAME_NS (5 * NS_PER_S)

struct recent_xid {
	char uuid[96];
	unsigned xid;
	uint64_t ns; /* Monotonic time of the report. 0 if the slot is free. */
	bool by_log; /* True if the kernel log reported the Xid, false if the driver did. */
};

struct xid_log {
	struct kernel_log *log;
	bool real;       /* The log is that of this machine; false with --root. */
	bool begun;      /* The guard got the Xids from before the start. */
	char state[200]; /* "ok", or why the log cannot be read. */
	struct kernel_log_record past[PAST];
	unsigned pasts;
	struct recent_xid recent[RECENT];
	unsigned next;
};

/* Opens the log. An unreadable log is not an error: it counts as empty, and `state` says why it
 * is unreadable. */
static int xid_log_new(struct gw_ctx *ctx, struct xid_log **ret)
{
	struct xid_log *l = calloc(1, sizeof(*l));

	if (!l)
		return -GW_E_NOMEM;
	l->real = ctx->root.real;
	snprintf(l->state, sizeof(l->state), "ok");
	kernel_log_open(&ctx->root, &l->log, l->state, sizeof(l->state));
	*ret = l;
	return 0;
}

static void xid_log_free(struct xid_log *l)
{
	if (l)
		kernel_log_close(l->log);
	free(l);
}

/* Notes an Xid. Returns true if the other source (kernel log or driver) has not reported it
 * yet. One report cancels at most one report of the other source, so two equal Xids in a row
 * count as two. */
static bool note_xid(struct xid_log *l, const char *uuid, unsigned xid, bool by_log,
		     uint64_t ns)
{
	for (unsigned i = 0; i < RECENT; i++) {
		struct recent_xid *t = &l->recent[i];
		uint64_t apart = t->ns > ns ? t->ns - ns : ns - t->ns;

		if (t->ns && t->by_log != by_log && t->xid == xid && apart <= SAME_NS &&
		    strcmp(t->uuid, uuid) == 0) {
			t->ns = 0;
			return false;
		}
	}

	struct recent_xid *t = &l->recent[l->next++ % RECENT];

	snprintf(t->uuid, sizeof(t->uuid), "%s", uuid);
	t->xid = xid;
	t->ns = ns;
	t->by_log = by_log;
	return true;
}

static const char *xid_uuid(const struct xid_log *l, const struct view *v, const char *pci)
{
	for (unsigned i = 0; i < v->devices; i++) {
		const struct gw_device *d = gw_snapshot_device(v->snap, i);
		const char *own = gw_device_text(d, GW_T_PCI);

		if (own && kernel_log_same_pci(pci, own) &&
		    !(l->real && d->provenance == GW_FROM_SIMULATOR))
			return gw_device_text(d, GW_T_UUID);
	}
	return NULL;
}

static void xid_log_keep_past(struct xid_log *l, enum kernel_log_kind kind,
			      const struct kernel_log_record *r)
{
	if (kind == KERNEL_LOG_LOADED)
		l->pasts = 0;
	else
		l->past[l->pasts++ % PAST] = *r;
}

static bool xid_event(const struct xid_log *l, const struct view *v,
		      const struct kernel_log_record *r, uint64_t now_ns,
		      struct driver_event *ret)
{
	const char *uuid = xid_uuid(l, v, r->pci);

	if (!uuid)
		return false;
	*ret = (struct driver_event){ .type = ABI_EVENT_XID,
				      .data = r->xid,
				      .gpu_instance = -1,
				      .mono_ns = r->mono_ns < now_ns ? r->mono_ns : now_ns };
	snprintf(ret->uuid, sizeof(ret->uuid), "%s", uuid);
	return true;
}

static void xid_log_report_past(struct xid_log *l, const struct view *v, uint64_t now_ns,
				struct guard_service *g)
{
	unsigned first = l->pasts > PAST ? l->pasts - PAST : 0;
	struct driver_event e;

	for (unsigned i = first; i < l->pasts; i++)
		if (xid_event(l, v, &l->past[i % PAST], now_ns, &e))
			guard_service_xid(g, &e, true);
	l->begun = true;
}

/* Reads new entries and passes each Xid of a GPU in the view to g. */
static void xid_log_tick(struct xid_log *l, const struct view *v, uint64_t now_ns,
			 struct guard_service *g)
{
	struct kernel_log_record r;
	enum kernel_log_kind kind;
	struct driver_event e;

	if (!l->log || !v->snap || !v->devices)
		return;
	while (kernel_log_next(l->log, &kind, &r)) {
		if (!l->begun) {
			xid_log_keep_past(l, kind, &r);
		} else if (kind == KERNEL_LOG_XID && xid_event(l, v, &r, now_ns, &e)) {
			e.mono_ns = now_ns;
			if (note_xid(l, e.uuid, r.xid, true, now_ns))
				guard_service_xid(g, &e, false);
		}
	}
	if (!l->begun)
		xid_log_report_past(l, v, now_ns, g);
}

struct gpu_budget {
	char uuid[96];
	struct budget budget;
	bool reported; /* The guard got at least one report about this GPU. */
	bool over;     /* A cap was exceeded at the last report. */
};

/* The parts that a reload replaces. */
struct guard_inputs_parts {
	const struct policy *policy;
	struct idle_economy economy[POLICY_WORKERS];
	struct idle_figures reported[POLICY_WORKERS];
	struct budget_options caps;
	struct gpu_budget gpu[GPUS];
	unsigned gpus;
};

struct guard_inputs {
	struct guard_service *g;
	struct xid_log *xids;
	struct games *games;
	struct guard_inputs_parts *parts;
	struct unattributed_use unattributed[GPUS];
	char unattributed_why[GPUS][200];
	/* For each worker w: bit n is set if an event has reported that one process matches
	 * both w and worker n. */
	uint32_t conflicts[POLICY_WORKERS];
	/* Sums of saved_j and spent_j (struct idle_economy) of the workers that a reload
	 * removed. */
	double former_saved_j, former_spent_j;
};

static void inputs_emit(const struct guard_inputs *b, const char *kind, const char *uuid,
			const char *severity, const char *text)
{
	const struct guard_service_config *c = &b->g->config;

	c->emit(c->arg,
		&(struct view_event){
			.kind = kind, .uuid = uuid, .severity = severity, .text = text });
}

static void check_unattributed(struct guard_inputs *b, const struct view *v, unsigned i,
			       uint64_t now_ns)
{
	const struct gw_device *d = gw_snapshot_device(v->snap, i);
	const char *uuid = gw_device_text(d, GW_T_UUID);
	struct unattributed_use_facts f = { .busy_ratio = NAN, .unattributed_bytes = NAN };
	char why[sizeof(b->unattributed_why[0])];
	const struct scene *s;
	int at;

	guard_verdicts(b->g->guard, &s);
	at = guard_view_gpu(s, uuid);
	if (at < 0 || d->state != GW_DEVICE_OK)
		return;
	(void)gw_device_value(d, GW_Q_UTILIZATION_GPU, &f.busy_ratio);
	f.unattributed_bytes = guard_view_unattributed(s, (unsigned)at);
	f.hidden = s->gpu[at].hidden;
	for (unsigned k = 0; k < s->processes; k++)
		f.processes += s->process[k].gpu == (unsigned)at;
	unattributed_use_update(&b->unattributed[i], &f, now_ns, why, sizeof(why));
	if (*why && !*b->unattributed_why[i])
		inputs_emit(b, "health", uuid, "warning", why);
	memcpy(b->unattributed_why[i], why, sizeof(why));
}

/* Reports once per pair of workers that both workers match the same process. */
static void check_conflicts(struct guard_inputs *b, const struct guard_view *g)
{
	const struct scene *s;
	const struct verdict *v = guard_verdicts(g->guard, &s);
	char text[200];

	for (unsigned i = 0; i < s->processes; i++) {
		if (v[i].also < 0 || b->conflicts[v[i].worker] >> v[i].also & 1)
			continue;
		b->conflicts[v[i].worker] |= 1u << v[i].also;
		classify_conflict(g->policy, &s->process[i], &v[i], text, sizeof(text));
		inputs_emit(b, "guard", NULL, "warning", text);
	}
}

static int64_t today(void)
{
	time_t t = time(NULL);
	struct tm local;

	return localtime_r(&t, &local) ? (local.tm_year + 1900) * 1000 + local.tm_yday : 0;
}

static const char *budget_key(const struct gpu_budget *o, const char *what, char out[128])
{
	snprintf(out, 128, "budget_%s %s", what, o->uuid);
	return out;
}

/* Finds or adds the budget of a GPU. The store keeps the value that the energy counter had at
 * the beginning of the day. So the energy of the day is also known after a restart. */
static struct gpu_budget *find_budget(const struct guard_inputs *b, const char *uuid)
{
	struct guard_inputs_parts *p = b->parts;
	struct store *store = b->g->config.store;
	struct gpu_budget *o;
	char name[128];

	for (unsigned i = 0; i < p->gpus; i++)
		if (strcmp(p->gpu[i].uuid, uuid) == 0)
			return &p->gpu[i];
	if (p->gpus == GPUS)
		return NULL;
	o = &p->gpu[p->gpus++];
	snprintf(o->uuid, sizeof(o->uuid), "%s", uuid);
	o->budget.day = (int64_t)store_count(store, budget_key(o, "day", name));
	o->budget.base_j = store_count(store, budget_key(o, "base_joules", name));
	o->budget.begun = o->budget.day != 0;
	return o;
}

static void save_budget(struct store *store, const struct gpu_budget *o)
{
	char name[128];

	store_replace_count(store, budget_key(o, "day", name), (double)o->budget.day);
	store_replace_count(store, budget_key(o, "base_joules", name), o->budget.base_j);
}

/* Reports to the guard whether a cap of the GPU is exceeded: at the first tick of the GPU, and
 * each time the answer changes. */
static void check_caps(const struct guard_inputs *b, const struct view *v, unsigned i,
		       uint64_t now_ns)
{
	const struct gw_device *d = gw_snapshot_device(v->snap, i);
	const char *uuid = gw_device_text(d, GW_T_UUID);
	struct gpu_budget *o = uuid ? find_budget(b, uuid) : NULL;
	const struct budget_options *caps = &b->parts->caps;
	struct budget_input l = { .now_ns = now_ns,
				  .power_w = NAN,
				  .asleep = d->state == GW_DEVICE_ASLEEP,
				  .day = today() };
	struct budget before;
	char why[160];
	bool over;

	if (!o)
		return;
	before = o->budget;
	(void)gw_device_value(d, GW_Q_POWER, &l.power_w);
	l.energy_j = v->device[i].energy_joules;
	over = budget_update(&o->budget, caps, &l, why, sizeof(why));
	/* Also save at the first report: if the cap is new, the store has no value for this day
	 * yet. */
	if (caps->energy_j > 0 &&
	    (!o->reported || o->budget.day != before.day || o->budget.base_j != before.base_j))
		save_budget(b->g->config.store, o);
	if (over != o->over || !o->reported)
		guard_service_reason(b->g, uuid, REASON_BUDGET, over, why,
				     guard_service_time_ns(b->g));
	o->over = over;
	o->reported = true;
}

/* Reads the power of the worker's GPUs, and finds out whether the worker is alone on these
 * GPUs. An evicted worker is on no GPU; the GPU to which it will return is known only if the
 * machine has one GPU. */
static void read_gpus(const struct guard *guard, const struct view *v, unsigned worker,
		      struct idle_input *l)
{
	const struct scene *s;
	const struct verdict *verdict = guard_verdicts(guard, &s);
	uint64_t mine = 0, others = 0;

	for (unsigned i = 0; i < s->processes; i++) {
		bool own = verdict[i].class == CLASS_WORKER && verdict[i].worker == (int)worker;

		*(own ? &mine : &others) |= UINT64_C(1) << s->process[i].gpu;
	}
	if (!mine && s->gpus == 1)
		mine = 1;
	l->alone = mine && !(mine & others);
	l->power_w = mine ? 0 : (double)NAN;
	for (unsigned i = 0; i < v->devices; i++) {
		const struct gw_device *d = gw_snapshot_device(v->snap, i);
		int at = guard_view_gpu(s, gw_device_text(d, GW_T_UUID));
		double watts = NAN;

		if (at < 0 || !(mine >> at & 1))
			continue;
		(void)gw_device_value(d, GW_Q_POWER, &watts);
		l->power_w += watts;
	}
}

static bool differs(double a, double b)
{
	return isnan(a) != isnan(b) || fabs(a - b) > CHANGE * fabs(b);
}

static bool has_changed(const struct idle_figures *a, const struct idle_figures *b)
{
	return (a->after_ns == UINT64_MAX) != (b->after_ns == UINT64_MAX) ||
	       differs((double)a->after_ns, (double)b->after_ns) ||
	       differs(a->idle_w, b->idle_w) || differs(a->reload_j, b->reload_j);
}

/* Learns the idle power of a worker's model and the energy of loading the model. These figures
 * are lost when the service stops. */
static void learn_economy(const struct guard_inputs *b, const struct view *v, unsigned i,
			  uint64_t now_ns)
{
	struct guard_inputs_parts *p = b->parts;
	const struct guard *guard = b->g->guard;
	const struct policy_worker *w = &p->policy->worker[i];
	struct idle_options o = { w->idle_w, w->reload_j, w->idle_after_ns };
	uint64_t since = guard_idle_since(guard, i);
	struct idle_figures f;
	struct guard_status s;
	struct idle_input l;

	if ((!w->idle_economy && !w->idle_after_ns) || guard_status(guard, i, &s) != 0)
		return;
	l = (struct idle_input){
		.now_ns = now_ns,
		.bytes = s.resident_bytes,
		.runs = s.state == STATE_ACTIVE || s.state == STATE_SUSPECT,
		.idle_out = s.state == STATE_EVICTED && s.mask >> REASON_IDLE & 1,
		.idles = since && now_ns > since + IDLE_NS,
	};
	read_gpus(guard, v, i, &l);
	idle_update(&p->economy[i], &o, &l);
	idle_figures(&p->economy[i], &o, &f);
	if (!has_changed(&f, &p->reported[i]))
		return;
	p->reported[i] = f;
	/* The figures are rounded as in the recording, so that a replay makes the same
	 * decisions. */
	guard_service_economy(b->g, i, f.after_ns, rint(f.idle_w), rint(f.reload_j));
}

void guard_inputs_tick(struct guard_inputs *b, const struct view *v)
{
	uint64_t now = clock_mono_ns(clock_real());

	/* localtime_r() uses the time zone of the last tzset(), on this thread and on the scene
	 * thread. tzset() reads /etc/localtime only if that file has changed. */
	tzset();
	for (unsigned i = 0; v->snap && i < v->devices && i < GPUS; i++)
		check_unattributed(b, v, i, now);
	if (v->guard)
		check_conflicts(b, v->guard);
	xid_log_tick(b->xids, v, now, b->g);
	for (unsigned i = 0; v->snap && i < v->devices; i++)
		check_caps(b, v, i, now);
	for (unsigned i = 0; v->snap && i < b->parts->policy->workers; i++)
		learn_economy(b, v, i, now);
}

bool guard_inputs_note_xid(struct guard_inputs *b, const struct driver_event *e)
{
	return note_xid(b->xids, e->uuid, (unsigned)e->data, false, e->mono_ns);
}

int guard_inputs_game(struct guard_inputs *b, int64_t pid, uint64_t start_ticks,
		      uint64_t ttl_ns, int64_t uid, const char *who, bool *ret_kept)
{
	return games_begin(b->games, pid, start_ticks, ttl_ns, uid, who,
			   clock_mono_ns(clock_real()), ret_kept);
}

int guard_inputs_game_end(struct guard_inputs *b, int64_t pid, int64_t uid)
{
	return games_end(b->games, pid, uid);
}

void guard_inputs_show(const struct guard_inputs *b, struct guard_view *ret)
{
	ret->ghost = (const char(*)[200])b->unattributed_why;
	ret->games = games_list(b->games);
	ret->kernel_log = b->xids->state;
	ret->counts.idle_saved_joules = b->former_saved_j;
	ret->counts.idle_spent_joules = b->former_spent_j;
	for (unsigned i = 0; i < b->parts->policy->workers; i++) {
		ret->counts.idle_saved_joules += b->parts->economy[i].saved_j;
		ret->counts.idle_spent_joules += b->parts->economy[i].spent_j;
	}
}

int guard_inputs_prepare(const struct guard_settings *settings, struct guard_inputs_parts **ret)
{
	struct guard_inputs_parts *p = calloc(1, sizeof(*p));

	if (!p)
		return -GW_E_NOMEM;
	p->policy = &settings->policy;
	p->caps = settings->budget;
	*ret = p;
	return 0;
}

/* Copies the learned figures of each worker to the new configuration. Workers with the same
 * name are the same worker. */
static void keep_economy(struct guard_inputs *b, struct guard_inputs_parts *p)
{
	const struct policy *old = b->parts->policy;

	for (unsigned i = 0; i < old->workers; i++) {
		const struct idle_economy *e = &b->parts->economy[i];
		int at = policy_find_worker(p->policy, old->worker[i].name);

		if (at >= 0) {
			p->economy[at] = *e;
			continue;
		}
		b->former_saved_j += e->saved_j;
		b->former_spent_j += e->spent_j;
	}
}

/* Copies the energy that each GPU used today. If the caps change, the next tick checks whether
 * the new caps are exceeded. */
static void keep_budgets(struct guard_inputs_parts *p, const struct guard_inputs_parts *old)
{
	bool same = memcmp(&p->caps, &old->caps, sizeof(p->caps)) == 0;

	p->gpus = old->gpus;
	memcpy(p->gpu, old->gpu, sizeof(p->gpu));
	for (unsigned i = 0; i < p->gpus && !same; i++) {
		struct gpu_budget *o = &p->gpu[i];

		o->budget = (struct budget){ .begun = o->budget.begun,
					     .day = o->budget.day,
					     .base_j = o->budget.base_j };
		o->reported = o->over = false;
	}
}

void guard_inputs_change(struct guard_inputs *b, struct guard_inputs_parts *p)
{
	keep_economy(b, p);
	keep_budgets(p, b->parts);
	free(b->parts);
	b->parts = p;
	/* The reported conflicts belong to the old workers. */
	memset(b->conflicts, 0, sizeof(b->conflicts));
}

static void games_changed(void *arg, unsigned count, int64_t latest)
{
	struct guard_service *g = arg;
	struct scene_game game = { .pid = latest };
	struct proc p = { .name = "" };
	struct root root;

	if (latest && root_open(&root, NULL) == 0) {
		(void)proc_read(&root, latest, &p);
		root_close(&root);
	}
	text_fit(game.name, sizeof(game.name), "%s", p.name);
	guard_service_games(g, count, &game);
	/* g->scenes is NULL while the games of an earlier run are loaded at the start. */
	if (g->scenes)
		scene_thread_trigger(g->scenes);
}

/* Emits an event for each game of an earlier run that still runs. */
static void report_games(const struct guard_inputs *b)
{
	const struct guard_view_game *game = games_list(b->games);
	char text[80];

	for (unsigned i = 0; i < GUARD_VIEW_GAMES; i++) {
		if (!game[i].pid)
			continue;
		snprintf(text, sizeof(text), "process %lld is still registered as a game",
			 (long long)game[i].pid);
		inputs_emit(b, "guard", NULL, "info", text);
	}
}

int guard_inputs_new(struct guard_service *g, struct guard_inputs **ret)
{
	struct guard_inputs *b = calloc(1, sizeof(*b));
	int err;

	if (!b)
		return -GW_E_NOMEM;
	b->g = g;
	err = guard_inputs_prepare(g->settings, &b->parts);
	if (!err)
		err = games_new(g->config.loop, g->config.store, games_changed, g,
				clock_mono_ns(clock_real()), &b->games);
	if (!err)
		err = xid_log_new(g->config.ctx, &b->xids);
	if (err) {
		guard_inputs_free(b);
		return err;
	}
	report_games(b);
	*ret = b;
	return 0;
}

void guard_inputs_free(struct guard_inputs *b)
{
	if (!b)
		return;
	xid_log_free(b->xids);
	games_free(b->games);
	free(b->parts);
	free(b);
}
