/* Words parted by tabs; a text is the last word of its line, with control characters as blanks. */
#include "guard_trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS 10
#define FORM  2 /* of what is written; 1 had neither names nor records */

/* ---- writing ---- */

static void add_text(struct buf *out, const char *text)
{
	buf_addc(out, '\t');
	for (; text && *text; text++)
		buf_addc(out, (unsigned char)*text < ' ' ? ' ' : *text);
	buf_addc(out, '\n');
}

void guard_trace_begin(struct buf *out, uint64_t last_id)
{
	buf_addf(out, "begin\t%d\t%" PRIu64 "\n", FORM, last_id);
}

static void add_record(struct buf *out, const struct guard_record *r)
{
	buf_addf(out, "record\t%" PRIu32 "\t%u\t%d\t%" PRIu64 "\t%u\t%" PRIu64 "\t%" PRIu64,
		 r->mask, r->level, r->evicted, r->need_bytes, (unsigned)r->hold,
		 r->hold_until_wall_ns, r->wall_ns);
	add_text(out, r->worker);
	for (unsigned i = 0; i < r->gpus; i++) {
		buf_addf(out, "record-gpu\t%" PRIu64, r->gpu[i].need_bytes);
		add_text(out, r->gpu[i].uuid);
	}
	for (unsigned i = 0; i < r->put_away_count; i++)
		buf_addf(out, "record-process\t%" PRId64 "\t%" PRIu64 "\n", r->put_away[i].pid,
			 r->put_away[i].start_ticks);
}

void guard_trace_worker(struct buf *out, unsigned worker, const char *name,
			const struct guard_record *record)
{
	buf_addf(out, "worker\t%u", worker);
	add_text(out, name);
	if (record)
		add_record(out, record);
}

void guard_trace_outcome(struct buf *out, const struct guard_outcome *o, int worker,
			 uint64_t now_ns)
{
	buf_addf(out, "outcome\t%" PRIu64 "\t%d\t%d\t%d\t%d\t%d", now_ns, worker, o->ok,
		 o->retry, o->in_flight, o->no_answer);
	add_text(out, o->message);
}

void guard_trace_stop(struct buf *out, uint64_t now_ns)
{
	buf_addf(out, "stop\t%" PRIu64 "\n", now_ns);
}

void guard_trace_ask(struct buf *out, int worker, enum guard_ask what, uint64_t ttl_ns,
		     uint64_t now_ns)
{
	buf_addf(out, "ask\t%" PRIu64 "\t%d\t%u\t%" PRIu64 "\n", now_ns, worker, (unsigned)what,
		 ttl_ns);
}

void guard_trace_for(struct buf *out, int64_t uid, uint64_t now_ns)
{
	buf_addf(out, "for\t%" PRIu64 "\t%" PRId64 "\n", now_ns, uid);
}

void guard_trace_reason(struct buf *out, const char *gpu, enum guard_reason r, bool on,
			const char *evidence, uint64_t now_ns)
{
	buf_addf(out, "reason\t%" PRIu64 "\t%s\t%u\t%d", now_ns, gpu, (unsigned)r, on);
	add_text(out, evidence);
}

void guard_trace_trust(struct buf *out, const char *gpu, uint64_t now_ns)
{
	buf_addf(out, "trust\t%" PRIu64, now_ns);
	add_text(out, gpu);
}

void guard_trace_heat(struct buf *out, const char *gpu, unsigned heat, const char *why,
		      uint64_t now_ns)
{
	buf_addf(out, "heat\t%" PRIu64 "\t%s\t%u", now_ns, gpu, heat);
	add_text(out, why);
}

void guard_trace_reserve(struct buf *out, const char *gpu, uint64_t bytes, int64_t pid,
			 uint64_t ttl_ns, uint64_t now_ns)
{
	buf_addf(out, "reserve\t%" PRIu64 "\t%" PRIu64 "\t%" PRId64 "\t%" PRIu64, now_ns, bytes,
		 pid, ttl_ns);
	add_text(out, gpu);
}

void guard_trace_release(struct buf *out, uint64_t id, uint64_t now_ns)
{
	buf_addf(out, "release\t%" PRIu64 "\t%" PRIu64 "\n", now_ns, id);
}

void guard_trace_games(struct buf *out, unsigned count, uint64_t now_ns)
{
	buf_addf(out, "games\t%" PRIu64 "\t%u\n", now_ns, count);
}

/* Figures are of evidence alone, and are written as they are told there: in whole numbers. */
void guard_trace_economy(struct buf *out, unsigned worker, uint64_t after_ns, double idle_w,
			 double reload_j, uint64_t now_ns)
{
	buf_addf(out, "economy\t%" PRIu64 "\t%u\t%" PRIu64 "\t%.0f\t%.0f\n", now_ns, worker,
		 after_ns, idle_w, isnan(reload_j) ? 0 : reload_j);
}

/* ---- reading ---- */

struct guard_trace {
	const struct policy *policy;
	bool dry;
	struct guard *guard;
	struct scene scene;
	uint64_t wall_ns, mono_ns; /* of the last scene */
	uint64_t last_id;          /* before this run */
	unsigned form;
	/* Of form 2: where those of the recording stand in the policy (-1: nowhere), and what was known. */
	int position[POLICY_WORKERS];
	struct guard_record record[POLICY_WORKERS];
	unsigned records;
	struct guard_trace_counts counts;
};

struct words {
	char text[1024];
	const char *word[WORDS];
	unsigned count;
};

static int part(struct words *w, const char *line)
{
	char *p = w->text;

	if (strlen(line) >= sizeof(w->text))
		return -GW_E_PARSE;
	memcpy(w->text, line, strlen(line) + 1);
	w->count = 0;
	while (p && w->count < WORDS) {
		w->word[w->count++] = p;
		p = strchr(p, '\t');
		if (p)
			*p++ = '\0';
	}
	return p ? -GW_E_PARSE : 0;
}

static bool number(const char *s, uint64_t *ret)
{
	char *end;

	if (*s < '0' || *s > '9')
		return false;
	*ret = strtoull(s, &end, 10);
	return *end == '\0';
}

/* The whole numbers of a line, in the order of their words. */
static bool numbers(const struct words *w, const unsigned *at, unsigned n, uint64_t *ret)
{
	for (unsigned i = 0; i < n; i++)
		if (at[i] >= w->count || !number(w->word[at[i]], &ret[i]))
			return false;
	return true;
}

/* The guard is made with the first line after those that say what it begins with. */
static void begin(struct guard_trace *t, unsigned form, uint64_t last_id)
{
	guard_free(t->guard);
	t->guard = NULL;
	memset(&t->scene, 0, sizeof(t->scene));
	t->form = form;
	t->last_id = last_id;
	t->records = 0;
	for (int i = 0; i < POLICY_WORKERS; i++)
		t->position[i] = form == 1 ? i : -1;
}

static int make_guard(struct guard_trace *t)
{
	t->counts.runs++;
	return guard_new(t->policy, t->record, t->records, &t->guard);
}

static int read_begin(struct guard_trace *t, const struct words *w)
{
	uint64_t form, last_id = 0;

	if (w->count < 2 || w->count > 3 || !number(w->word[1], &form) || !form ||
	    (w->count == 3 && !number(w->word[2], &last_id)))
		return -GW_E_PARSE;
	if (form > FORM)
		return -GW_E_NOSUPPORT;
	begin(t, (unsigned)form, last_id);
	return 0;
}

static int read_worker(struct guard_trace *t, const struct words *w)
{
	uint64_t at;

	if (t->guard || w->count != 3 || !number(w->word[1], &at) || at >= POLICY_WORKERS)
		return -GW_E_PARSE;
	for (unsigned i = 0; i < t->policy->workers; i++)
		if (strcmp(t->policy->worker[i].name, w->word[2]) == 0)
			t->position[at] = (int)i;
	return 0;
}

static int read_record(struct guard_trace *t, const struct words *w)
{
	static const unsigned at[] = { 1, 2, 3, 4, 5, 6, 7 };
	struct guard_record *r = &t->record[t->records];
	uint64_t v[7];

	if (t->guard || t->records == POLICY_WORKERS || w->count != 9 ||
	    !numbers(w, at, 7, v) || v[0] > UINT32_MAX || v[1] >= GUARD_LEVELS ||
	    v[4] > HOLD_ACTIVE)
		return -GW_E_PARSE;
	*r = (struct guard_record){
		.mask = (uint32_t)v[0],
		.level = (unsigned)v[1],
		/* A policy that only says what it would do begins with whom it
				     * finds. */
		.evicted = v[2] && !t->dry,
		.need_bytes = v[3],
		.hold = (enum guard_hold)v[4],
		.hold_until_wall_ns = v[5],
		.wall_ns = v[6]
	};
	snprintf(r->worker, sizeof(r->worker), "%s", w->word[8]);
	t->records++;
	return 0;
}

/* Of the record before it. */
static struct guard_record *last_record(struct guard_trace *t)
{
	return t->guard || !t->records ? NULL : &t->record[t->records - 1];
}

static int read_record_gpu(struct guard_trace *t, const struct words *w)
{
	struct guard_record *r = last_record(t);
	uint64_t need;

	if (!r || r->gpus == POLICY_GPUS || w->count != 3 || !number(w->word[1], &need))
		return -GW_E_PARSE;
	r->gpu[r->gpus].need_bytes = need;
	snprintf(r->gpu[r->gpus].uuid, sizeof(r->gpu[0].uuid), "%s", w->word[2]);
	r->gpus++;
	return 0;
}

static int read_record_process(struct guard_trace *t, const struct words *w)
{
	static const unsigned at[] = { 1, 2 };
	struct guard_record *r = last_record(t);
	uint64_t v[2];

	if (!r || r->put_away_count == GUARD_TARGETS || w->count != 3 ||
	    !numbers(w, at, 2, v) || v[0] > INT64_MAX)
		return -GW_E_PARSE;
	r->put_away[r->put_away_count].pid = (int64_t)v[0];
	r->put_away[r->put_away_count++].start_ticks = v[1];
	return 0;
}

/* Where a worker of the recording stands now; -1: the policy has no such. */
static int position(const struct guard_trace *t, uint64_t worker)
{
	int at = worker < POLICY_WORKERS ? t->position[worker] : -1;

	return at < (int)t->policy->workers ? at : -1;
}

static int read_outcome(struct guard_trace *t, const struct words *w)
{
	static const unsigned at[] = { 1, 3, 4, 5, 6 };
	const bool first = t->form == 1;
	const unsigned n = first ? 4 : 5;
	struct guard_outcome o = { 0 };
	uint64_t v[5] = { 0 }, who = UINT64_MAX;

	if (w->count != n + 3 || !numbers(w, at, n, v) ||
	    (!number(w->word[2], &who) && (first || strcmp(w->word[2], "-1") != 0)))
		return -GW_E_PARSE;
	if (first) /* it named the order */
		o.order = who > t->last_id ? who - t->last_id : 0;
	else if (position(t, who) >= 0)
		o.order = guard_pending(t->guard, (unsigned)position(t, who));
	o.ok = v[1];
	o.retry = v[2];
	o.in_flight = v[3];
	o.no_answer = v[4];
	snprintf(o.message, sizeof(o.message), "%s", w->word[n + 2]);
	if (!t->dry)
		guard_outcome(t->guard, &o, v[0]);
	return 0;
}

static int read_stop(struct guard_trace *t, const struct words *w)
{
	uint64_t now_ns;

	if (w->count != 2 || !number(w->word[1], &now_ns))
		return -GW_E_PARSE;
	guard_stop(t->guard, now_ns);
	return 0;
}

static int read_ask(struct guard_trace *t, const struct words *w)
{
	static const unsigned at[] = { 1, 3, 4 };
	const bool all = w->count > 2 && strcmp(w->word[2], "-1") == 0;
	char message[200];
	uint64_t v[3], who = 0;

	if (w->count != 5 || !numbers(w, at, 3, v) || v[1] > ASK_RESUME_NOW ||
	    (!all && !number(w->word[2], &who)))
		return -GW_E_PARSE;
	if (!all && position(t, who) < 0) /* nobody whom this policy knows */
		guard_for(t->guard, -1);
	else
		guard_ask(t->guard, all ? -1 : position(t, who), (enum guard_ask)v[1], v[2],
			  v[0], message, sizeof(message));
	return 0;
}

static int read_for(struct guard_trace *t, const struct words *w)
{
	static const unsigned at[] = { 1, 2 };
	uint64_t v[2];

	if (w->count != 3 || !numbers(w, at, 2, v))
		return -GW_E_PARSE;
	guard_for(t->guard, (int64_t)v[1]);
	return 0;
}

static int read_reason(struct guard_trace *t, const struct words *w)
{
	static const unsigned at[] = { 1, 3, 4 };
	uint64_t v[3];

	if (w->count != 6 || !numbers(w, at, 3, v) || v[1] >= GUARD_REASONS)
		return -GW_E_PARSE;
	guard_reason_set(t->guard, w->word[2], (enum guard_reason)v[1], v[2], w->word[5], v[0]);
	return 0;
}

static int read_trust(struct guard_trace *t, const struct words *w)
{
	static const unsigned at[] = { 1 };
	uint64_t now;

	if (w->count != 3 || !numbers(w, at, 1, &now))
		return -GW_E_PARSE;
	(void)guard_trust(t->guard, w->word[2], now); /* where it was refused, it is again */
	return 0;
}

static int read_heat(struct guard_trace *t, const struct words *w)
{
	static const unsigned at[] = { 1, 3 };
	uint64_t v[2];

	if (w->count != 5 || !numbers(w, at, 2, v) || v[1] > (HEAT_THROTTLE | HEAT_WARM))
		return -GW_E_PARSE;
	guard_heat(t->guard, w->word[2], (unsigned)v[1], w->word[4]);
	return 0;
}

static int read_reserve(struct guard_trace *t, const struct words *w)
{
	static const unsigned at[] = { 1, 2, 4 };
	uint64_t v[3], id;

	if (w->count != 6 || !numbers(w, at, 3, v))
		return -GW_E_PARSE;
	guard_reserve(t->guard, *w->word[5] ? w->word[5] : NULL, v[1], atoll(w->word[3]), v[2],
		      v[0], &id);
	return 0;
}

static int read_release(struct guard_trace *t, const struct words *w)
{
	static const unsigned at[] = { 1, 2 };
	uint64_t v[2];

	if (w->count != 3 || !numbers(w, at, 2, v))
		return -GW_E_PARSE;
	guard_release(t->guard, v[1] > t->last_id ? v[1] - t->last_id : 0, v[0]);
	return 0;
}

static int read_games(struct guard_trace *t, const struct words *w)
{
	static const unsigned at[] = { 1, 2 };
	uint64_t v[2];

	if (w->count != 3 || !numbers(w, at, 2, v) || v[1] > UINT32_MAX)
		return -GW_E_PARSE;
	guard_games(t->guard, (unsigned)v[1]);
	return 0;
}

static int read_economy(struct guard_trace *t, const struct words *w)
{
	static const unsigned at[] = { 1, 2, 3, 4, 5 };
	uint64_t v[5];

	if (w->count != 6 || !numbers(w, at, 5, v) || v[1] > UINT32_MAX)
		return -GW_E_PARSE;
	if (position(t, v[1]) >= 0)
		guard_economy(t->guard, (unsigned)position(t, v[1]), v[2], (double)v[3],
			      v[4] ? (double)v[4] : (double)NAN);
	return 0;
}

static void place_roots(struct guard_trace *t)
{
	unsigned n = 0;

	for (unsigned i = 0; i < t->scene.roots; i++) {
		struct scene_root root = t->scene.root[i];
		int at = position(t, root.worker);

		if (at < 0)
			continue;
		root.worker = (unsigned)at;
		t->scene.root[n++] = root;
	}
	t->scene.roots = n;
}

static int read_scene(struct guard_trace *t, const char *line)
{
	int r = scene_read(&t->scene, line);

	if (r <= 0)
		return r;
	place_roots(t);
	t->wall_ns = t->scene.wall_ns;
	t->mono_ns = t->scene.mono_ns;
	t->counts.scenes++;
	guard_look(t->guard, &t->scene);
	return 0;
}

static int read_words(struct guard_trace *t, const char *line)
{
	static const struct {
		const char *word;
		int (*read)(struct guard_trace *t, const struct words *w);
		bool before; /* it is about what the guard begins with */
	} kinds[] = {
		{ "record", read_record, true },
		{ "record-gpu", read_record_gpu, true },
		{ "record-process", read_record_process, true },
		{ "begin", read_begin, true },
		{ "worker", read_worker, true },
		{ "outcome", read_outcome, false },
		{ "ask", read_ask, false },
		{ "for", read_for, false },
		{ "reason", read_reason, false },
		{ "reserve", read_reserve, false },
		{ "release", read_release, false },
		{ "games", read_games, false },
		{ "economy", read_economy, false },
		{ "heat", read_heat, false },
		{ "trust", read_trust, false },
		{ "stop", read_stop, false },
	};
	struct words w;
	int err = part(&w, line);

	for (size_t i = 0; !err && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strcmp(w.word[0], kinds[i].word) != 0)
			continue;
		if (!t->guard && !kinds[i].before)
			err = make_guard(t);
		return err ? err : kinds[i].read(t, &w);
	}
	return -GW_E_PARSE;
}

int guard_trace_line(struct guard_trace *t, const char *line)
{
	if (!*line)
		return 0;
	if (line[1] != '\t')
		return read_words(t, line);
	if (!t->guard && make_guard(t) != 0)
		return -GW_E_NOMEM;
	return read_scene(t, line);
}

bool guard_trace_decision(struct guard_trace *t, struct guard_decision *ret,
			  uint64_t *ret_wall_ns)
{
	struct guard_record record;
	struct guard_order order;

	if (!t->guard)
		return false;
	if (guard_next_decision(t->guard, ret)) {
		*ret_wall_ns = t->wall_ns + (ret->mono_ns - t->mono_ns);
		return true;
	}
	while (guard_next_record(t->guard, &record))
		;
	while (guard_next_order(t->guard, &order))
		;
	return false;
}

int guard_trace_new(const struct policy *p, bool dry, struct guard_trace **ret)
{
	struct guard_trace *t = calloc(1, sizeof(*t));

	if (!t)
		return -GW_E_NOMEM;
	t->policy = p;
	t->dry = dry;
	begin(t, 1, 0); /* a file whose beginning was cut off, or scenes alone */
	*ret = t;
	return 0;
}

void guard_trace_free(struct guard_trace *t)
{
	if (t)
		guard_free(t->guard);
	free(t);
}

struct guard_trace_counts guard_trace_counts(const struct guard_trace *t)
{
	return t->counts;
}

const struct guard *guard_trace_guard(const struct guard_trace *t)
{
	return t->guard;
}
