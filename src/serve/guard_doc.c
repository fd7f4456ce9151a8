#include "guard_doc.h"

#include "render.h"

#include "base/clock.h"
#include "base/number.h"
#include "base/suggest.h"
#include "guard/worker/checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define CONTENDERS_MAX 64 /* maximum length of the list "contenders" of a worker */

struct guard_moment guard_moment(const struct api *a)
{
	return (struct guard_moment){ clock_mono_ns(a->clock), clock_wall_ns(a->clock) };
}

void guard_doc_time(struct json *j, const char *name, uint64_t at_ns, struct guard_moment now)
{
	int64_t off = (int64_t)(at_ns - now.mono_ns);
	char utc[64], seconds[64];

	snprintf(utc, sizeof(utc), "%s_utc", name);
	snprintf(seconds, sizeof(seconds), "%s_seconds", name);
	if (at_ns == 0 || at_ns == UINT64_MAX) {
		json_null(j, utc);
		json_null(j, seconds);
		return;
	}
	json_time(j, utc, now.wall_ns + (uint64_t)off);
	json_double(j, seconds, rint(fabs((double)off) / 1e6) / 1e3);
}

void guard_doc_mask(struct json *j, const char *key, uint32_t mask)
{
	json_array(j, key);
	for (unsigned r = 0; r < GUARD_REASONS; r++)
		if (mask >> r & 1)
			json_string(j, NULL, guard_reason_name(r));
	json_array_end(j);
}

static void worker_identity(struct json *j, const struct policy_worker *p)
{
	json_string(j, "name", p->name);
	json_string(j, "kind", policy_kind_name(p->kind));
	json_int(j, "priority", p->priority);
	json_array(j, "gpus");
	for (unsigned i = 0; i < p->gpu_count; i++)
		json_string(j, NULL, p->gpus[i]);
	json_array_end(j);
	render_text(j, "configured", p->text);
}

/* Writes the worker's counters, which include those of earlier runs of the service. */
static void worker_counts(struct json *j, const struct counters_worker *t)
{
	json_uint(j, "evictions_total", t ? counters_evictions(t->cell) : 0);
	json_uint(j, "resumes_total", t ? t->cell[COUNTERS_RESUMES] : 0);
	json_uint(j, "would_evict_total", t ? t->cell[COUNTERS_WOULD_EVICT] : 0);
}

const char *guard_doc_no_gpu(const struct api *a, char *out, size_t size)
{
	const struct scene *scene = a->view.guard->scene;
	const char *message = a->view.snap ? gw_snapshot_status(a->view.snap)->message : NULL;

	if (scene && scene->gpus)
		return NULL;
	if (message && *message)
		snprintf(out, size, "no GPU can be read: %s", message);
	else
		snprintf(out, size, "no GPU can be read: none was read yet");
	return out;
}

/* Writes the memory of the worker. The values are null if no_gpu (from guard_doc_no_gpu()) is
 * not NULL. */
static void worker_memory(struct json *j, const struct guard_status *s, const char *no_gpu,
			  const struct counters_worker *t)
{
	json_uint_if(j, "resident_bytes", !no_gpu, s->resident_bytes);
	json_uint_if(j, "need_bytes", !no_gpu, s->need_bytes);
	json_uint_if(j, "residue_bytes", !no_gpu, s->residue_bytes);
	if (no_gpu)
		json_string(j, "memory_reason", no_gpu);
	json_double(j, "backoff", s->backoff);
	worker_counts(j, t);
	json_bool(j, "blind", s->blind);
	json_bool(j, "hung", s->hung);
	json_bool(j, "quarantine", s->quarantine);
}

#define DAY_NS (24 * 3600 * NS_PER_S)

/* Converts a span of local time that begins now to a span of real time. The two spans differ if
 * daylight saving time begins or ends within the span. The guard cannot convert spans, because
 * it knows the local time, but not the time zone. */
static uint64_t real_span_ns(uint64_t span_ns, uint64_t wall_ns)
{
	const time_t begin = (time_t)(wall_ns / NS_PER_S);
	struct tm local;
	time_t end;

	if (span_ns > 8 * DAY_NS || !localtime_r(&begin, &local))
		return span_ns;
	/* Add the span as minutes and seconds: mktime() of glibc counts minutes as local time,
	 * but seconds above 60 as real time. */
	local.tm_min += (int)(span_ns / NS_PER_S / 60);
	local.tm_sec += (int)(span_ns / NS_PER_S % 60);
	local.tm_isdst = -1;
	end = mktime(&local);
	return end > begin ? (uint64_t)(end - begin) * NS_PER_S + span_ns % NS_PER_S : span_ns;
}

bool guard_doc_explain(const struct guard_view *g, unsigned worker, enum guard_reason r,
		       struct guard_moment now, struct guard_explanation *ret)
{
	if (!guard_explain(g->guard, worker, r, ret))
		return false;
	if (r == REASON_SCHEDULE && ret->clears_ns > now.mono_ns)
		ret->clears_ns =
			now.mono_ns + real_span_ns(ret->clears_ns - now.mono_ns, now.wall_ns);
	/* The guard does not know who requested the hold or the eviction. */
	if (r == REASON_MANUAL)
		snprintf(ret->evidence, sizeof(ret->evidence), "requested by %s",
			 guard_view_requested_by(g, worker));
	return true;
}

static bool is_checkpoint(const struct guard_view *g, unsigned worker)
{
	return move_is_checkpoint(g->policy->worker[worker].kind);
}

static const struct move_worker *moves_of(const struct guard_view *g, unsigned worker)
{
	return moves_find(g->moves, g->policy->worker[worker].name);
}

/* Writes the last decision. If the decision followed a person's request, writes only who
 * requested it, because other keys of the document have the request and its reasons. */
static void why_text(const struct guard_view *g, unsigned worker, const struct guard_status *s,
		     char *out, size_t size)
{
	if (s->decided == DECISION_REQUESTED && s->mask >> REASON_MANUAL & 1)
		snprintf(out, size, "at the request of %.100s",
			 guard_view_requested_by(g, worker));
	else
		snprintf(out, size, "%s", s->why);
}

/* Writes the cause and the last decision in one sentence: "for game.exe (pid 4711, 13.0 GiB);
 * freed: 10240 MiB in 0.1 s". If the last decision is the return of the worker, also writes why
 * the worker had left. */
static void summary_text(const struct guard_view *g, unsigned worker, const char *cause,
			 const char *why, char *out, size_t size)
{
	const struct move *left =
		moves_last(moves_of(g, worker), MOVE_LEAVE, guard_view_simulated(g));
	const struct guard_view_decision *last = guard_view_last_decision(g, worker);
	const bool back = last && last->decision.from == STATE_VERIFY_UP &&
			  last->decision.to == STATE_ACTIVE;

	if (!*cause && back && left && *left->cause)
		snprintf(out, size, "%s; it had left %s", why, left->cause);
	else if (*cause && !strstr(why, cause))
		snprintf(out, size, "%s%s%s", cause, *why ? "; " : "", why);
	else
		snprintf(out, size, "%s", why);
}

/* Writes why the worker is in its state, as facts and in words. */
static void write_why(struct json *j, const struct guard_view *g, unsigned worker,
		      const struct guard_status *s)
{
	const struct guard_view_decision *last = guard_view_last_decision(g, worker);
	const bool requested = s->hold != HOLD_NONE || s->mask >> REASON_MANUAL & 1;
	char why[sizeof(s->why) + 120], cause[WORKER_STATS_CAUSE];
	char summary[sizeof(why) + WORKER_STATS_CAUSE + 20];

	why_text(g, worker, s, why, sizeof(why));
	guard_view_cause(g, worker, cause, sizeof(cause));
	summary_text(g, worker, cause, why, summary, sizeof(summary));
	render_text(j, "why", why);
	render_text(j, "why_rule", last ? last->decision.rule : NULL);
	render_text(j, "cause", cause);
	render_text(j, "summary", summary);
	render_text(j, "requested_by", requested ? guard_view_requested_by(g, worker) : NULL);
}

/* Writes the processes that need the worker's GPU now. */
static void write_contenders(struct json *j, const struct guard_view *g, unsigned worker)
{
	const struct scene *s;
	const struct verdict *v = guard_verdicts(g->guard, &s);

	json_array(j, "contenders");
	for (unsigned i = 0, n = 0; v && i < s->processes && n < CONTENDERS_MAX; i++) {
		const struct scene_process *p = &s->process[i];

		if (p->gpu >= s->gpus || !guard_view_contends(g, worker, i))
			continue;
		n++;
		json_object(j, NULL);
		json_int(j, "pid", p->id.pid);
		render_text(j, "name", p->name);
		render_text(j, "uuid", s->gpu[p->gpu].uuid);
		json_uint_if(j, "memory_bytes", p->bytes_known, p->bytes);
		json_object_end(j);
	}
	json_array_end(j);
}

/* Writes the process that causes the reason contention; null for other reasons. */
static void write_contender(struct json *j, const struct contender *c)
{
	if (!json_object_if(j, "contender", c->pid))
		return;
	json_int(j, "pid", c->pid);
	render_text(j, "name", c->name);
	json_uint_if(j, "memory_bytes", c->bytes_known, c->bytes);
	json_bool(j, "game", c->game);
	json_object_end(j);
}

/* Writes each reason, with its evidence and with a text that says what ends it. Also writes a
 * reason that a hold masks. */
static void write_reasons(struct json *j, const struct guard_view *g, unsigned worker,
			  struct guard_moment now)
{
	struct guard_explanation why;

	json_array(j, "reasons");
	for (unsigned r = 0; r < GUARD_REASONS; r++) {
		if (!guard_doc_explain(g, worker, r, now, &why))
			continue;
		json_object(j, NULL);
		json_string(j, "reason", guard_reason_name(r));
		json_bool(j, "masked", why.masked);
		guard_doc_time(j, "since", why.since_ns, now);
		render_text(j, "rule", why.rule);
		render_text(j, "evidence", why.evidence);
		write_contender(j, &why.contender);
		render_text(j, "clears", why.clears);
		guard_doc_time(j, "clears", why.clears_ns > now.mono_ns ? why.clears_ns : 0,
			       now);
		json_object_end(j);
	}
	json_array_end(j);
}

/* Returns the host memory pages that a checkpoint of this worker would use. */
static enum host_pages worker_pages(const struct guard_view *g, unsigned worker)
{
	return is_checkpoint(g, worker) ? host_memory_pages_now() : HOST_PAGES_UNKNOWN;
}

/* Returns why an estimate for a move of this worker has no meaning now, even if earlier moves
 * were measured. NULL: an estimate may be possible. */
static const char *no_question(const struct policy_worker *p, const struct guard_status *s,
			       const char *no_gpu, enum move_way way)
{
	if (no_gpu)
		return no_gpu;
	if (way == MOVE_LEAVE)
		return s->resident_bytes ? NULL : "the worker holds no GPU memory now";
	if (p->resume == RESUME_NEVER)
		return "the guard does not resume the worker (resume = \"never\")";
	if (p->resume == RESUME_LAZY)
		return "the worker loads its model with the next request (resume = \"lazy\")";
	return s->need_bytes ? NULL : "the worker has held no GPU memory yet";
}

/* Estimates the duration of a move. Returns NULL, or why the duration cannot be estimated. */
static const char *estimate(const struct guard_view *g, unsigned worker,
			    const struct guard_status *s, const char *no_gpu, enum move_way way,
			    struct move_estimate *ret)
{
	const struct policy_worker *p = &g->policy->worker[worker];
	const struct move_worker *w = moves_of(g, worker);
	const bool simulated = guard_view_simulated(g);
	const struct move *left = moves_last(w, MOVE_LEAVE, simulated);
	const char *why = no_question(p, s, no_gpu, way);

	*ret = (struct move_estimate){ .seconds = (double)NAN };
	if (why)
		return why;
	move_estimate(w,
		      &(struct move_question){
			      .way = way,
			      .level = way == MOVE_RETURN && left ? left->level
								  : policy_kind_level(p->kind),
			      .bytes = way == MOVE_LEAVE ? s->resident_bytes : s->need_bytes,
			      .pages = worker_pages(g, worker),
			      .simulated = simulated,
		      },
		      ret);
	return ret->basis == MOVE_BASIS_NONE ? "the guard has not seen the worker move yet"
					     : NULL;
}

/* Writes which earlier moves an estimate is based on; "" if there is no estimate. */
static void basis_text(const struct move_estimate *e, enum host_pages now, char *out,
		       size_t size)
{
	char pages[64] = "";

	*out = '\0';
	if (e->basis == MOVE_BASIS_H200)
		snprintf(out, size,
			 "estimated from figures of an H200 with transparent_hugepage=%s",
			 host_pages_name(e->pages));
	if (e->basis != MOVE_BASIS_OWN)
		return;
	if (e->pages != HOST_PAGES_UNKNOWN && e->pages != now)
		snprintf(pages, sizeof(pages), " with transparent_hugepage=%s (now %s)",
			 host_pages_name(e->pages), host_pages_name(now));
	snprintf(out, size, "estimated from %u earlier move%s of this worker%s", e->moves,
		 e->moves == 1 ? "" : "s", pages);
}

static double round_ms(double seconds)
{
	return rint(seconds * 1e3) / 1e3;
}

static void write_last(struct json *j, const struct move *last)
{
	if (!json_object_if(j, "last", last))
		return;
	json_time(j, "time_utc", last->wall_ns);
	json_uint(j, "level", last->level);
	json_uint(j, "bytes", last->bytes);
	json_double(j, "seconds", round_ms((double)last->ns * 1e-9));
	json_double(j, "bytes_per_second",
		    rint((double)last->bytes / ((double)last->ns * 1e-9)));
	render_text(j, "cause", last->cause);
	json_object_end(j);
}

/* Writes the members "leave" and "return" of a worker: an estimate of the next move and the
 * duration of the last one. no_gpu says why no GPU can be read; NULL: GPUs can be read. */
static void write_moves(struct json *j, const struct guard_view *g, unsigned worker,
			const struct guard_status *s, const char *no_gpu)
{
	static const char *const keys[] = { "leave", "return" };
	char text[160];

	for (unsigned way = 0; way < MOVE_WAYS; way++) {
		struct move_estimate e;
		const char *why = estimate(g, worker, s, no_gpu, way, &e);

		basis_text(&e, worker_pages(g, worker), text, sizeof(text));
		json_object(j, keys[way]);
		json_double(j, "estimate_seconds", round_ms(e.seconds));
		json_string(j, "estimate_basis", move_basis_name(e.basis));
		render_text(j, "estimate_text", text);
		json_uint(j, "estimate_moves", e.moves);
		json_string(j, "estimate_reason", why);
		write_last(j, moves_last(moves_of(g, worker), way, guard_view_simulated(g)));
		json_object_end(j);
	}
}

/* Writes how long the next move takes. If the worker holds its memory now, the next move is the
 * move off the GPU; otherwise it is the return to the GPU. Writes nothing if the duration is
 * unknown. */
static void say_estimate(const struct guard_view *g, unsigned worker,
			 const struct guard_status *s, const char *no_gpu, char *out,
			 size_t size)
{
	const enum move_way way =
		s->resident_bytes / 3 >= s->need_bytes / 4 ? MOVE_LEAVE : MOVE_RETURN;
	const uint64_t bytes = way == MOVE_LEAVE ? s->resident_bytes : s->need_bytes;
	struct move_estimate e;
	char text[160];

	if (estimate(g, worker, s, no_gpu, way, &e))
		return;
	basis_text(&e, worker_pages(g, worker), text, sizeof(text));
	snprintf(out, size, "%s takes about %.1f s (%.1f GiB), %s%s.",
		 way == MOVE_LEAVE ? "Leaving" : "Returning", e.seconds, (double)bytes / GIB,
		 text,
		 e.basis == MOVE_BASIS_H200
			 ? "; other machines differ, and the first move after "
			   "a boot is slower"
			 : "");
}

static void say_last(const struct guard_view *g, unsigned worker, enum move_way way, char *out,
		     size_t size)
{
	const struct move *last = moves_last(moves_of(g, worker), way, guard_view_simulated(g));
	char time[CLOCK_RFC3339_SIZE], rate[32] = "";

	if (!last)
		return;
	clock_format_rfc3339(last->wall_ns, time);
	/* If the duration is shown as 0.0 s, a rate would have no meaning. */
	if (last->ns >= 50 * NS_PER_MS)
		snprintf(rate, sizeof(rate), ", %.1f GiB/s",
			 (double)last->bytes / GIB / ((double)last->ns * 1e-9));
	snprintf(out, size, "The worker last %s at %s%s%s: %.1f GiB in %.1f s%s.",
		 way == MOVE_LEAVE ? "left its GPU" : "returned", time, *last->cause ? " " : "",
		 last->cause, (double)last->bytes / GIB, (double)last->ns * 1e-9, rate);
}

static unsigned processes_of(const struct guard_view *g, unsigned worker,
			     struct proc_id id[static GUARD_TARGETS])
{
	const struct scene *scene;
	const struct verdict *v = guard_verdicts(g->guard, &scene);
	unsigned n = 0;

	for (unsigned i = 0; v && i < scene->processes && n < GUARD_TARGETS; i++)
		if (v[i].class == CLASS_WORKER && v[i].worker == (int)worker)
			id[n++] = scene->process[i].id;
	return n;
}

/* Writes whether the host has enough free memory for a checkpoint of the worker. */
static void say_host(const struct guard_view *g, unsigned worker, const struct guard_status *s,
		     const char *no_gpu, char *out, size_t size)
{
	struct proc_id id[GUARD_TARGETS];
	double need = host_memory_need(s->resident_bytes), least;
	struct root root;

	if (!is_checkpoint(g, worker) || no_gpu || !s->resident_bytes ||
	    root_open(&root, NULL) != 0)
		return;
	least = host_memory_free(&root, id, processes_of(g, worker, id));
	root_close(&root);
	if (isnan(least))
		snprintf(out, size,
			 "A checkpoint of the worker needs %.1f GiB of free host memory; how "
			 "much is free cannot be read, so the guard cannot checkpoint it.",
			 need / GIB);
	else
		snprintf(out, size,
			 "A checkpoint of the worker needs %.1f GiB of free host memory; "
			 "%s%.1f GiB are free%s.",
			 need / GIB, least < need ? "only " : "", least / GIB,
			 least < need ? ", so the guard cannot checkpoint it now" : "");
}

static void say_pages(const struct guard_view *g, unsigned worker, char *out, size_t size)
{
	char unused[MOVE_ADVICE_SIZE];
	enum host_pages pages = worker_pages(g, worker);

	if (move_pages_advice(pages, unused))
		snprintf(out, size,
			 "A checkpoint is faster with transparent_hugepage=always (now %s): "
			 "gpuward doctor shows by how much and how to set it.",
			 host_pages_name(pages));
}

bool guard_doc_move_sentence(const struct guard_view *g, unsigned worker,
			     const struct guard_status *s, const char *no_gpu, unsigned i,
			     char *out, size_t size)
{
	*out = '\0';
	switch (i) {
	case 0: say_estimate(g, worker, s, no_gpu, out, size); return true;
	case 1: say_last(g, worker, MOVE_LEAVE, out, size); return true;
	case 2: say_last(g, worker, MOVE_RETURN, out, size); return true;
	case 3: say_host(g, worker, s, no_gpu, out, size); return true;
	case 4: say_pages(g, worker, out, size); return true;
	default: return false;
	}
}

void guard_doc_worker(struct json *j, const struct api *a, unsigned worker,
		      struct guard_moment now)
{
	const struct guard_view *g = a->view.guard;
	char text[300];
	const char *no_gpu = guard_doc_no_gpu(a, text, sizeof(text));
	struct guard_status s;
	bool timed;

	worker_identity(j, &g->policy->worker[worker]);
	if (guard_status(g->guard, worker, &s) != 0)
		return;
	timed = s.hold != HOLD_NONE || s.mask >> REASON_MANUAL & 1;
	json_string(j, "state", guard_state_name(s.state));
	guard_doc_time(j, "since", s.since_ns, now);
	json_bool(j, "dry_run", s.dry);
	json_string(j, "dry_run_why", guard_dry_name(s.dry));
	json_bool(j, "stays_evicted", s.stays_evicted);
	json_bool(j, "hypothetical", guard_view_hypothetical(&s));
	json_bool(j, "reload_storm", s.storm);
	guard_doc_mask(j, "mask", s.mask);
	write_reasons(j, g, worker, now);
	json_string(j, "hold", guard_holds[s.hold]);
	guard_doc_time(j, "hold_until", timed ? s.hold_until_ns : 0, now);
	guard_doc_time(j, "next", s.next_ns > now.mono_ns ? s.next_ns : 0, now);
	write_contenders(j, g, worker);
	write_why(j, g, worker, &s);
	render_text(j, "rail", s.limit);
	worker_memory(j, &s, no_gpu, counters_find(g->tally, g->policy->worker[worker].name));
	write_moves(j, g, worker, &s, no_gpu);
}

/* Writes GPU, evidence and result of a decision. */
static void decision_facts(struct json *j, const struct guard_decision *x)
{
	bool ended = x->result != RESULT_NONE;

	render_text(j, "uuid", x->gpu);
	json_uint_if(j, "other_processes", *x->gpu, x->others);
	json_double(j, "temperature_celsius", x->temperature_c);
	json_string(j, "result", ended ? guard_result_name(x->result) : NULL);
	json_uint_if(j, "level", ended, x->level);
	json_uint_if(j, "freed_bytes", x->result == RESULT_FREED, x->freed_bytes);
	json_double(j, "freed_seconds", x->freed_ns ? (double)x->freed_ns * 1e-9 : (double)NAN);
}

void guard_doc_decision(struct json *j, const struct guard_view *g,
			const struct guard_view_decision *d, struct guard_moment now)
{
	const struct guard_decision *x = &d->decision;

	json_object(j, NULL);
	json_uint(j, "id", d->id);
	json_time(j, "time_utc", d->wall_ns);
	json_string(j, "worker",
		    x->worker < g->policy->workers ? g->policy->worker[x->worker].name : NULL);
	json_string(j, "from", guard_state_name(x->from));
	json_string(j, "to", guard_state_name(x->to));
	guard_doc_mask(j, "mask", x->mask);
	json_bool(j, "dry_run", x->dry);
	render_text(j, "rule", x->rule);
	render_text(j, "evidence", x->evidence);
	render_text(j, "cause", d->cause);
	decision_facts(j, x);
	guard_doc_time(j, "next", x->next_ns > now.mono_ns ? x->next_ns : 0, now);
	json_object_end(j);
}

void guard_doc_room(struct json *j, const struct guard_reservation *room,
		    struct guard_moment now)
{
	char id[24];

	snprintf(id, sizeof(id), "%llu", (unsigned long long)room->id);
	json_string(j, "id", id);
	json_string(j, "gpu", room->gpu);
	json_uint(j, "bytes", room->bytes);
	json_uint(j, "left_bytes", room->left_bytes);
	json_int_if(j, "pid", room->pid > 0, room->pid);
	guard_doc_time(j, "until", room->until_ns, now);
}

static void write_process(struct json *j, const struct guard_view *g,
			  const struct scene_process *p, const struct verdict *v)
{
	json_object(j, NULL);
	json_int(j, "pid", p->id.pid);
	render_text(j, "name", p->name);
	json_int_if(j, "uid", p->uid >= 0, p->uid);
	json_bool(j, "program_seen", p->exe[0] != '\0');
	render_process_types(j, p->type);
	json_string(j, "class", guard_class_name(v->class));
	json_string(j, "action", guard_actions[v->action]);
	json_string(j, "worker",
		    v->worker >= 0 && (unsigned)v->worker < g->policy->workers
			    ? g->policy->worker[v->worker].name
			    : NULL);
	render_text(j, "rule", v->why);
	json_bool(j, "by_rule", v->rule >= 0);
	json_bool(j, "may_be_worker", v->maybe_worker);
	json_uint_if(j, "memory_bytes", p->bytes_known, p->bytes);
	json_double(j, "utilization_sm_ratio", p->sm_ratio);
	json_object_end(j);
}

void guard_doc_processes(struct json *j, const struct guard_view *g, unsigned gpu)
{
	const struct scene *s;
	const struct verdict *v = guard_verdicts(g->guard, &s);

	json_array(j, "processes");
	for (unsigned i = 0; i < s->processes; i++)
		if (s->process[i].gpu == gpu)
			write_process(j, g, &s->process[i], &v[i]);
	json_array_end(j);
}

static void write_whole(struct json *j, const char *key, double v)
{
	json_int_if(j, key, !isnan(v), isnan(v) ? 0 : llround(v));
}

/* Writes the keys of older clients, in which "mb" means 2^20 bytes and "gb" 2^30 bytes. */
void guard_doc_old_names(struct json *j, double total, double used, double free_bytes)
{
	write_whole(j, "total_memory_mb", total / MIB);
	write_whole(j, "used_memory_mb", used / MIB);
	write_whole(j, "free_memory_mb", free_bytes / MIB);
	json_double(j, "gpu_vram_gb", rint(total / GIB * 100) / 100);
}

const char *guard_doc_mode_note(const struct guard_view *g)
{
	return guard_view_simulated(g) && !g->policy->simulated_too
		       ? "The GPUs are simulated: in every mode, decisions are recorded, but "
			 "no worker is moved. To let the guard act, set simulated = true in "
			 "[guard]."
		       : NULL;
}

void guard_doc_mode(struct json *j, const struct guard_view *g)
{
	const struct guard_view_mode *m = g->mode;

	json_string(j, "mode", guard_modes[g->policy->mode]);
	json_string(j, "mode_note", guard_doc_mode_note(g));
	json_string(j, "mode_configured", m ? guard_modes[m->configured] : NULL);
	if (json_object_if(j, "mode_set", m && m->chosen)) {
		json_string(j, "mode", guard_modes[m->mode]);
		json_string(j, "set_by", m->who);
		json_time(j, "time_utc", m->wall_ns);
		json_object_end(j);
	}
}

const struct guard_view *guard_doc_there(const struct api *a, struct reply *r)
{
	if (a->view.guard && a->view.guard->guard)
		return a->view.guard;
	if (a->view.guarding || !a->view.tick)
		api_was_read(NULL, r,
			     "the guard has not started: the drivers are not open yet");
	else if (a->view.problems.guard)
		reply_problem(r, 503, "no-guard", "Free memory, or raise the limit of threads.",
			      "%s", a->view.problems.guard);
	else
		reply_problem(r, 503, "no-guard",
			      "See GET /api/v1/events for the cause; gpuward config check "
			      "checks the configuration.",
			      "the guard was not started");
	return NULL;
}

int guard_doc_find(const struct guard_view *g, struct reply *r, const char *name)
{
	const char *names[POLICY_WORKERS], *near;
	char text[POLICY_WORKERS * 70] = "";
	struct buf there;
	unsigned n = g->policy->workers;

	for (unsigned i = 0; i < n; i++) {
		names[i] = g->policy->worker[i].name;
		if (strcmp(names[i], name) == 0)
			return (int)i;
	}
	near = n ? suggest(name, names, n, sizeof(names[0])) : NULL;
	buf_init_fixed(&there, text, sizeof(text));
	for (unsigned i = 0; i < n && !near; i++)
		buf_addf(&there, "%s%.64s",
			 i       ? ", "
			 : n > 1 ? "; there are "
				 : "; there is ",
			 names[i]);
	reply_problem(r, 404, "no-such-worker", "GET /api/v1/guard lists all workers.",
		      "no worker \"%.64s\"%s%s%s", name,
		      !n     ? "; no worker is configured: run sudo gpuward setup, or see "
			       "gpuward.toml(5)"
		      : near ? "; did you mean \""
			     : text,
		      near ? near : "", near ? "\"?" : "");
	return -1;
}

void guard_doc_gpus(const struct api *a, const struct request *q, struct reply *r,
		    void (*head)(struct json *j, const struct api *a),
		    void (*one)(struct json *j, const struct api *a, unsigned i))
{
	struct render_filter f;
	const struct render_filter *filter;
	struct json j;

	if (!guard_doc_there(a, r) || !api_has_reading(a, r) ||
	    !api_filter(a, q, r, &f, &filter))
		return;
	api_begin(&j, a, r);
	if (head)
		head(&j, a);
	json_array(&j, "gpus");
	for (unsigned i = 0; i < gw_snapshot_device_count(a->view.snap); i++) {
		if (!render_shows(filter, i))
			continue;
		json_object(&j, NULL);
		one(&j, a, i);
		json_object_end(&j);
	}
	json_array_end(&j);
	api_end(&j);
}

const struct guard_view *guard_doc_may_ask(const struct api *a, struct reply *r)
{
	const struct guard_view *g = guard_doc_there(a, r);

	if (g && !a->view.guard_ops) {
		reply_problem(r, 503, "no-guard", NULL, "the guard accepts no requests");
		return NULL;
	}
	return g;
}

void guard_doc_who(const struct request *q, const char *reason, char *out, size_t size)
{
	const bool token = strcmp(q->who, "token") == 0;

	snprintf(out, size, "%.60s%s%s", token ? "a client with the token" : q->who,
		 *reason ? ": " : "", reason);
}

void guard_doc_too_often(const struct api *a, const struct guard_view *g,
			 const struct request *q, struct reply *r, const char *message)
{
	uint64_t wait = guard_user_wait_ns(g->guard, q->uid, clock_mono_ns(a->clock));
	char seconds[24];

	snprintf(seconds, sizeof(seconds), "%llu", (unsigned long long)(wait / NS_PER_S + 1));
	reply_header(r, "Retry-After", seconds);
	reply_problem(r, 429, "too-often",
		      "Try again after the time in Retry-After, or ask the operator to "
		      "raise guard.user_evictions.",
		      "%s",
		      *message ? message
			       : "workers would have to leave, and this user has reached its "
				 "limit of evictions per hour");
}
