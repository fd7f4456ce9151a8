#include "move_doc.h"

#include "base/clock.h"
#include "base/number.h"
#include "guard/worker/checkpoint.h"

#include <math.h>
#include <stdio.h>

static bool is_checkpoint(const struct guard_view *g, unsigned worker)
{
	return move_is_checkpoint(g->policy->worker[worker].kind);
}

static const struct move_worker *moves_of(const struct guard_view *g, unsigned worker)
{
	return moves_find(g->moves, g->policy->worker[worker].name);
}

/* Returns which host memory pages a checkpoint would use. Reads below the real root even if the
 * GPUs are simulated, because the workers are processes of this machine. */
static enum host_pages pages_now(const struct guard_view *g, unsigned worker)
{
	enum host_pages pages = HOST_PAGES_UNKNOWN;
	struct root root;

	if (!is_checkpoint(g, worker) || root_open(&root, NULL) != 0)
		return pages;
	pages = host_memory_pages(&root);
	root_close(&root);
	return pages;
}

/* Returns why a move of this worker cannot be estimated, even if earlier moves were measured;
 * NULL: an estimate may be possible. */
static const char *no_question(const struct policy_worker *p, const struct guard_status *s,
			       const char *no_gpu, enum move_way way)
{
	if (no_gpu)
		return no_gpu;
	if (way == MOVE_LEAVE)
		return s->resident_bytes ? NULL : "it holds no GPU memory now";
	if (p->resume == RESUME_NEVER)
		return "the guard does not resume it (resume = \"never\")";
	if (p->resume == RESUME_LAZY)
		return "it loads with its next request (resume = \"lazy\")";
	return s->need_bytes ? NULL : "it has held no GPU memory yet";
}

/* Estimates the duration of a move. Returns NULL, or why it cannot be estimated. */
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
			      .pages = pages_now(g, worker),
			      .simulated = simulated,
		      },
		      ret);
	return ret->basis == MOVE_BASIS_NONE ? "the guard has not seen it move yet" : NULL;
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
	json_object_end(j);
}

void move_doc_write(struct json *j, const struct guard_view *g, unsigned worker,
		    const struct guard_status *s, const char *no_gpu)
{
	static const char *const keys[] = { "leave", "return" };
	char text[160];

	for (unsigned way = 0; way < MOVE_WAYS; way++) {
		struct move_estimate e;
		const char *why = estimate(g, worker, s, no_gpu, way, &e);

		basis_text(&e, pages_now(g, worker), text, sizeof(text));
		json_object(j, keys[way]);
		json_double(j, "estimate_seconds", round_ms(e.seconds));
		json_string(j, "estimate_basis", move_basis_name(e.basis));
		json_string(j, "estimate_text", *text ? text : NULL);
		json_uint(j, "estimate_moves", e.moves);
		json_string(j, "estimate_reason", why);
		write_last(j, moves_last(moves_of(g, worker), way, guard_view_simulated(g)));
		json_object_end(j);
	}
}

/* Writes how long the next move takes: leaving if the worker holds its memory now, else
 * returning. Writes nothing if the duration is unknown. */
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
	basis_text(&e, pages_now(g, worker), text, sizeof(text));
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
	snprintf(out, size, "It last %s at %s: %.1f GiB in %.1f s%s.",
		 way == MOVE_LEAVE ? "left" : "returned", time, (double)last->bytes / GIB,
		 (double)last->ns * 1e-9, rate);
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
			 "A checkpoint of it needs %.1f GiB of free host memory; how much is "
			 "free cannot be read, so the guard cannot checkpoint it.",
			 need / GIB);
	else
		snprintf(
			out, size,
			"A checkpoint of it needs %.1f GiB of free host memory; %s%.1f GiB are "
			"free%s.",
			need / GIB, least < need ? "only " : "", least / GIB,
			least < need ? ", so the guard cannot checkpoint it now" : "");
}

static void say_pages(const struct guard_view *g, unsigned worker, char *out, size_t size)
{
	char unused[MOVE_ADVICE_SIZE];
	enum host_pages pages = pages_now(g, worker);

	if (move_pages_advice(pages, unused))
		snprintf(out, size,
			 "A checkpoint is faster with transparent_hugepage=always (now %s): "
			 "gpuward doctor shows by how much and how to set it.",
			 host_pages_name(pages));
}

bool move_doc_sentence(const struct guard_view *g, unsigned worker,
		       const struct guard_status *s, const char *no_gpu, unsigned i, char *out,
		       size_t size)
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
