/* Words parted by tabs; a text is the last word of its line, with control characters as blanks. */
#include "guard_trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS 8

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
	buf_adds(out, "begin\t1");
	if (last_id)
		buf_addf(out, "\t%" PRIu64, last_id);
	buf_addc(out, '\n');
}

void guard_trace_outcome(struct buf *out, const struct guard_outcome *o, uint64_t now_ns)
{
	buf_addf(out, "outcome\t%" PRIu64 "\t%" PRIu64 "\t%d\t%d\t%d", now_ns, o->order, o->ok,
		 o->retry, o->in_flight);
	add_text(out, o->message);
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

static int begin(struct guard_trace *t)
{
	guard_free(t->guard);
	t->guard = NULL;
	memset(&t->scene, 0, sizeof(t->scene));
	t->counts.runs++;
	return guard_new(t->policy, NULL, 0, &t->guard);
}

static int read_outcome(struct guard_trace *t, const struct words *w)
{
	static const unsigned at[] = { 1, 2, 3, 4, 5 };
	struct guard_outcome o = { 0 };
	uint64_t v[5];

	if (w->count != 7 || !numbers(w, at, 5, v))
		return -GW_E_PARSE;
	o.order = v[1] > t->last_id ? v[1] - t->last_id : 0;
	o.ok = v[2];
	o.retry = v[3];
	o.in_flight = v[4];
	snprintf(o.message, sizeof(o.message), "%s", w->word[6]);
	if (!t->dry)
		guard_outcome(t->guard, &o, v[0]);
	return 0;
}

static int read_ask(struct guard_trace *t, const struct words *w)
{
	static const unsigned at[] = { 1, 3, 4 };
	char message[200];
	uint64_t v[3];

	if (w->count != 5 || !numbers(w, at, 3, v) || v[1] > ASK_RESUME_NOW)
		return -GW_E_PARSE;
	/* With another policy there may be no such worker: then nobody was asked. */
	guard_ask(t->guard, atoi(w->word[2]), (enum guard_ask)v[1], v[2], v[0], message,
		  sizeof(message));
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
	guard_economy(t->guard, (unsigned)v[1], v[2], (double)v[3],
		      v[4] ? (double)v[4] : (double)NAN);
	return 0;
}

static int read_scene(struct guard_trace *t, const char *line)
{
	int r = scene_read(&t->scene, line);

	if (r <= 0)
		return r;
	t->wall_ns = t->scene.wall_ns;
	t->mono_ns = t->scene.mono_ns;
	t->counts.scenes++;
	guard_look(t->guard, &t->scene);
	return 0;
}

int guard_trace_line(struct guard_trace *t, const char *line)
{
	static const struct {
		const char *word;
		int (*read)(struct guard_trace *t, const struct words *w);
	} kinds[] = { { "outcome", read_outcome }, { "ask", read_ask },
		      { "for", read_for },         { "reason", read_reason },
		      { "reserve", read_reserve }, { "release", read_release },
		      { "games", read_games },     { "economy", read_economy },
		      { "heat", read_heat },       { "trust", read_trust } };
	struct words w;
	int err = 0;

	if (strncmp(line, "begin\t1", 7) == 0 && (!line[7] || line[7] == '\t')) {
		t->last_id = 0;
		return line[7] && !number(line + 8, &t->last_id) ? -GW_E_PARSE : begin(t);
	}
	if (!t->guard)
		err = begin(t); /* a file whose beginning was cut off, or scenes alone */
	if (err || !*line)
		return err;
	if (line[1] == '\t')
		return read_scene(t, line);
	err = part(&w, line);
	for (size_t i = 0; !err && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strcmp(w.word[0], kinds[i].word) == 0)
			return kinds[i].read(t, &w);
	return -GW_E_PARSE;
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
