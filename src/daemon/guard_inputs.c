#include "guard_inputs.h"

#include "budgets.h"
#include "economy_learner.h"
#include "games.h"
#include "xid_log.h"

#include "base/clock.h"
#include "guard/unattributed_use.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPUS SCENE_GPUS

struct guard_inputs_parts { /* replaced by a reload */
	struct economy_learner *economies;
	struct budgets *budgets;
};

struct guard_inputs {
	struct guard_inputs_calls calls;
	struct store *store;
	struct xid_log *xids;
	struct games *games;
	struct guard_inputs_parts *parts;
	struct unattributed_use unattributed[GPUS];
	char unattributed_why[GPUS][200];
	uint32_t conflicts
		/* bit n: reported that one process matches this worker and worker n */
		[POLICY_WORKERS];
};

/* ---- unattributed use ---- */

static void check_unattributed(struct guard_inputs *b, const struct guard *guard,
			       const struct view *v, unsigned i, uint64_t now_ns)
{
	const struct gw_device *d = gw_snapshot_device(v->snap, i);
	const char *uuid = gw_device_text(d, GW_T_UUID);
	struct unattributed_use_facts f = { .busy_ratio = NAN, .unattributed_bytes = NAN };
	char why[sizeof(b->unattributed_why[0])];
	const struct scene *s;
	int at;

	guard_verdicts(guard, &s);
	at = guard_view_gpu(s, uuid);
	if (at < 0 || d->state != GW_DEVICE_OK)
		return;
	(void)gw_device_value(d, GW_Q_UTILIZATION_GPU, &f.busy_ratio);
	f.unattributed_bytes = guard_view_unattributed(s, (unsigned)at);
	f.hidden = s->gpu[at].hidden;
	for (unsigned k = 0; k < s->processes; k++)
		f.processes += s->process[k].gpu == (unsigned)at;
	unattributed_use_look(&b->unattributed[i], &f, now_ns, why, sizeof(why));
	if (*why && !*b->unattributed_why[i])
		b->calls.emit(b->calls.arg, &(struct view_event){ .kind = "health",
								  .uuid = uuid,
								  .severity = "warning",
								  .text = why });
	memcpy(b->unattributed_why[i], why, sizeof(why));
}

/* ---- conflicts ---- */

/* Two valid workers may still match the same process; each pair is reported once. */
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
		b->calls.emit(b->calls.arg, &(struct view_event){ .kind = "guard",
								  .severity = "warning",
								  .text = text });
	}
}

/* ---- ticks ---- */

static void cap_changed(void *arg, const char *uuid, bool over, const char *why)
{
	const struct guard_inputs *b = arg;

	b->calls.reason(b->calls.arg, uuid, REASON_BUDGET, over, why);
}

void guard_inputs_tick(struct guard_inputs *b, const struct guard *guard, const struct view *v)
{
	uint64_t now = clock_mono_ns(clock_real());

	for (unsigned i = 0; v->snap && i < v->devices && i < GPUS; i++)
		check_unattributed(b, guard, v, i, now);
	if (v->guard)
		check_conflicts(b, v->guard);
	xid_log_tick(b->xids, v, now, b->calls.xid, b->calls.arg);
	budgets_tick(b->parts->budgets, v, now, cap_changed, b);
	economy_learner_tick(b->parts->economies, guard, v, now, b->calls.economy,
			     b->calls.arg);
}

bool guard_inputs_is_new_xid(struct guard_inputs *b, const struct driver_event *e)
{
	return xid_log_is_new(b->xids, e);
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
	ret->kernel_log = xid_log_state(b->xids);
	economy_learner_count(b->parts->economies, &ret->counts);
}

/* ---- start and stop ---- */

void guard_inputs_parts_free(struct guard_inputs_parts *p)
{
	if (!p)
		return;
	economy_learner_free(p->economies);
	budgets_free(p->budgets);
	free(p);
}

int guard_inputs_prepare(const struct guard_inputs *b, const struct guard_settings *settings,
			 struct guard_inputs_parts **ret)
{
	struct guard_inputs_parts *p = calloc(1, sizeof(*p));
	int err = p ? economy_learner_new(&settings->policy, &p->economies) : -GW_E_NOMEM;

	if (!err)
		err = budgets_new(&settings->budget, b->store, &p->budgets);
	if (err)
		guard_inputs_parts_free(p);
	else
		*ret = p;
	return err;
}

void guard_inputs_change(struct guard_inputs *b, struct guard_inputs_parts *p)
{
	guard_inputs_parts_free(b->parts);
	b->parts = p;
	memset(b->conflicts, 0, sizeof(b->conflicts)); /* the workers changed */
}

/* Reports games of an earlier run. */
static void report_games(const struct guard_inputs *b)
{
	const struct guard_view_game *game = games_list(b->games);
	char text[80];

	for (unsigned i = 0; i < GUARD_VIEW_GAMES; i++) {
		if (!game[i].pid)
			continue;
		snprintf(text, sizeof(text), "process %lld is still registered as a game",
			 (long long)game[i].pid);
		b->calls.emit(b->calls.arg, &(struct view_event){ .kind = "guard",
								  .severity = "info",
								  .text = text });
	}
}

int guard_inputs_new(struct loop *loop, struct gw_ctx *ctx, struct store *store,
		     const struct guard_settings *settings,
		     const struct guard_inputs_calls *calls, struct guard_inputs **ret)
{
	struct guard_inputs *b = calloc(1, sizeof(*b));
	int err;

	if (!b)
		return -GW_E_NOMEM;
	b->calls = *calls;
	b->store = store;
	err = guard_inputs_prepare(b, settings, &b->parts);
	if (!err)
		err = games_new(loop, store, b->calls.games, b->calls.arg,
				clock_mono_ns(clock_real()), &b->games);
	if (!err)
		err = xid_log_new(ctx, &b->xids);
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
	guard_inputs_parts_free(b->parts);
	free(b);
}
