/* Reads a recording: passes each line to a guard as the recorded guard received it. */
#include "recording.h"

#include "base/member.h"
#include "base/number.h"
#include "base/text.h"
#include "guard/guard_input.h"
#include "guard/guard_query.h"
#include "guard/guard_state.h"
#include "guard/policy_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS 10

/* Number of reservations that the reader remembers. This is more than can exist at the same
 * time. */
#define RESERVATIONS 64

struct recording_reader {
	/* A copy of the policy that the caller gave. The copy has no workers if the caller gave
	 * no policy. */
	struct policy given;
	/* The policy of the recording. NULL if the recording has none, or if the replay is
	 * dry. */
	struct policy *own;
	/* The next policy of the recording. Set while the lines between swap and swapped are
	 * read. */
	struct policy *coming;
	struct buf text; /* Lines of a policy that is being read. */
	bool dry;
	struct guard *guard;
	struct scene scene;
	/* Times of the run's last scene. 0 if no scene was read yet. */
	uint64_t wall_ns, mono_ns;
	uint64_t last_id; /* The last id before this run. */
	unsigned form;    /* Format version of this run; see RECORDING_FORM. */
	bool swapping;    /* True between swap and swapped. */
	bool in_state;    /* True between the first and the last state line. */
	struct guard_state_reader state;
	/* The workers that the run had before a swap, one bit per position in the policy. */
	uint32_t known;
	/* Maps reservation ids of the recording (theirs) to ids of this replay (ours). If the
	 * replay uses another policy, the ids differ, because the other policy leads to other
	 * orders. */
	struct {
		uint64_t theirs, ours;
	} reservation[RESERVATIONS];
	unsigned reservations; /* Number of reservations so far. The array is a ring. */
	/* Used from format version 2 on. position has, for each recorded worker, the position
	 * of the worker with the same name in the policy of the replay (-1: none). record has
	 * the records of the workers. */
	int position[POLICY_WORKERS];
	struct guard_record record[POLICY_WORKERS];
	unsigned records;
	struct recording_counts counts;
};

/* policy() returns the current policy. next_policy() returns the policy to which the lines
 * between swap and swapped refer. */
static struct policy *policy(struct recording_reader *t)
{
	return t->own ? t->own : &t->given;
}

static struct policy *next_policy(struct recording_reader *t)
{
	return t->coming ? t->coming : policy(t);
}

static void drop_policy(struct policy **p)
{
	if (*p)
		policy_done(*p);
	free(*p);
	*p = NULL;
}

struct words {
	char text[1024];
	const char *word[WORDS];
	uint64_t number[WORDS]; /* Value of each word that is a number; see words_fit(). */
	unsigned count;
};

static int split_words(struct words *w, const char *line)
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

/* Reads the words at these positions as numbers. */
static bool read_numbers(const struct words *w, const unsigned *at, unsigned n, uint64_t *ret)
{
	for (unsigned i = 0; i < n; i++)
		if (at[i] >= w->count || !number_u64(w->word[at[i]], &ret[i]))
			return false;
	return true;
}

/* Checks the words of a line and converts its numbers. form has one letter per word after the
 * first: n for a number, t for a text. */
static bool words_fit(struct words *w, const char *form)
{
	if (w->count != strlen(form) + 1)
		return false;
	for (unsigned i = 1; i < w->count; i++)
		if (form[i - 1] == 'n' && !number_u64(w->word[i], &w->number[i]))
			return false;
	return true;
}

/* Reads a name, or a number if the format version is below 5. */
static bool read_enum(unsigned form, const char *word, const char *const *names, unsigned *ret)
{
	const struct member m = { .kind = MEMBER_NAME, .size = sizeof(*ret), .names = names };
	uint64_t number;
	unsigned count = 0;

	if (form >= 5)
		return member_take(&word, &m, ret) == 0;
	while (names[count])
		count++;
	if (!number_u64(word, &number) || number >= count)
		return false;
	*ret = (unsigned)number;
	return true;
}

/* Reads a bit set, which is written as names, or as a number if the format version is below
 * 5. */
static bool read_set(unsigned form, const char *word, const char *const *names, uint64_t most,
		     uint32_t *ret)
{
	const struct member m = { .kind = form < 5 ? MEMBER_UNSIGNED : MEMBER_SET,
				  .size = sizeof(*ret),
				  .names = names,
				  .max = most };

	return member_take(&word, &m, ret) == 0;
}

static const char *const reasons[] = {
#define R(symbol, name, held, rule, clears) [REASON_##symbol] = #name,
#include "guard/reason.def"
	NULL
};

/* Begins a run. The guard is created later, at the first line that needs it. */
static void run_begin(struct recording_reader *t, unsigned form, uint64_t last_id)
{
	guard_free(t->guard);
	t->guard = NULL;
	drop_policy(&t->own);
	drop_policy(&t->coming);
	buf_clear(&t->text);
	memset(&t->scene, 0, sizeof(t->scene));
	t->form = form;
	t->last_id = last_id;
	t->records = t->reservations = 0;
	t->wall_ns = t->mono_ns = 0;
	t->swapping = t->in_state = false;
	for (int i = 0; i < POLICY_WORKERS; i++)
		t->position[i] = form == 1 ? i : -1;
}

static int make_guard(struct recording_reader *t)
{
	int err = !policy(t)->workers && !t->own
			  ? -GW_E_NOENT
			  : guard_new(policy(t), t->record, t->records, &t->guard);

	t->counts.runs++;
	if (!err && t->form >= 3)
		guard_set_last_id(t->guard, t->last_id);
	return err;
}

static bool read_mode(struct recording_reader *t, unsigned form, const char *word)
{
	unsigned mode;

	if (!read_enum(form, word, guard_modes, &mode))
		return false;
	if (!t->dry)
		next_policy(t)->mode = (enum guard_mode)mode;
	return true;
}

static int read_begin(struct recording_reader *t, const struct words *w)
{
	uint64_t form, last_id = 0;

	if (w->count < 2 || !number_u64(w->word[1], &form) || !form)
		return -GW_E_PARSE;
	if (form > RECORDING_FORM)
		return -GW_E_NOSUPPORT;
	if (w->count > (form < 3 ? 3 : 4) ||
	    (w->count > 2 && !number_u64(w->word[2], &last_id)))
		return -GW_E_PARSE;
	/* This call drops the policy of the previous run. */
	run_begin(t, (unsigned)form, last_id);
	return w->count > 3 && !read_mode(t, (unsigned)form, w->word[3]) ? -GW_E_PARSE : 0;
}

/* True if a line that describes a new guard or a new policy is allowed here. */
static bool may_describe(const struct recording_reader *t)
{
	return !t->guard || t->swapping;
}

static int read_worker(struct recording_reader *t, const struct words *w)
{
	const uint64_t at = w->number[1];

	if (!may_describe(t) || at >= POLICY_WORKERS)
		return -GW_E_PARSE;
	for (unsigned i = 0; i < next_policy(t)->workers; i++)
		if (strcmp(next_policy(t)->worker[i].name, w->word[2]) == 0)
			t->position[at] = (int)i;
	return 0;
}

static int read_record(struct recording_reader *t, const struct words *w)
{
	struct guard_record *r = &t->record[t->records];
	unsigned hold;
	uint32_t mask;

	if (!may_describe(t) || t->records == POLICY_WORKERS ||
	    !read_set(t->form, w->word[1], reasons, UINT32_MAX, &mask) ||
	    !read_enum(t->form, w->word[5], guard_holds, &hold) || w->number[2] >= GUARD_LEVELS)
		return -GW_E_PARSE;
	*r = (struct guard_record){ .mask = mask,
				    .level = (unsigned)w->number[2],
				    /* A dry replay begins with the workers as the first scene
				     * shows them. */
				    .evicted = w->number[3] && !t->dry,
				    .need_bytes = w->number[4],
				    .hold = (enum guard_hold)hold,
				    .hold_until_wall_ns = w->number[6],
				    .wall_ns = w->number[7] };
	snprintf(r->worker, sizeof(r->worker), "%s", w->word[8]);
	t->records++;
	return 0;
}

/* Returns the record to which this line adds, or NULL if there is none. */
static struct guard_record *last_record(struct recording_reader *t)
{
	return !may_describe(t) || !t->records ? NULL : &t->record[t->records - 1];
}

static int read_record_manual(struct recording_reader *t, const struct words *w)
{
	struct guard_record *r = last_record(t);

	if (!r)
		return -GW_E_PARSE;
	r->manual_wall_ns = w->number[1];
	return 0;
}

static int read_record_gpu(struct recording_reader *t, const struct words *w)
{
	struct guard_record *r = last_record(t);

	if (!r || r->gpus == POLICY_GPUS)
		return -GW_E_PARSE;
	r->gpu[r->gpus].need_bytes = w->number[1];
	snprintf(r->gpu[r->gpus].uuid, sizeof(r->gpu[0].uuid), "%s", w->word[2]);
	r->gpus++;
	return 0;
}

static int add_process(const struct words *w, struct proc_id *list, unsigned *count,
		       unsigned most)
{
	if (*count == most || w->number[1] > INT64_MAX)
		return -GW_E_PARSE;
	list[(*count)++] = (struct proc_id){ (int64_t)w->number[1], w->number[2] };
	return 0;
}

static int read_record_process(struct recording_reader *t, const struct words *w)
{
	struct guard_record *r = last_record(t);

	return r ? add_process(w, r->put_away, &r->put_away_count, GUARD_TARGETS) : -GW_E_PARSE;
}

static int read_record_root(struct recording_reader *t, const struct words *w)
{
	struct guard_record *r = last_record(t);

	return r ? add_process(w, r->root, &r->roots, GUARD_ROOTS) : -GW_E_PARSE;
}

/* Returns the position of a recorded worker in the policy, or -1 if the policy has no such
 * worker. */
static int policy_position(const struct recording_reader *t, uint64_t worker)
{
	const struct policy *p = recording_reader_policy(t);
	int at = worker < POLICY_WORKERS ? t->position[worker] : -1;

	return at < (int)p->workers ? at : -1;
}

/* Returns the workers of the policy that the recording has named, one bit per worker. */
static uint32_t known_workers(const struct recording_reader *t)
{
	uint32_t set = 0;

	for (unsigned i = 0; i < POLICY_WORKERS; i++)
		if (policy_position(t, i) >= 0)
			set |= UINT32_C(1) << policy_position(t, i);
	return set;
}

static int read_swap(struct recording_reader *t, const struct words *w)
{
	(void)w;
	if (t->swapping)
		return -GW_E_PARSE;
	t->known = known_workers(t);
	t->swapping = true;
	t->records = 0;
	for (int i = 0; i < POLICY_WORKERS; i++)
		t->position[i] = -1;
	return 0;
}

/* A recording before version 9 does not say when orders were fetched. The guard of those
 * versions made a difference between fetched orders and other orders only in guard_stop() and
 * in guard_change_policy(). */
static void assume_fetched(struct recording_reader *t, bool fetched)
{
	for (unsigned i = 0; t->form < 9 && !t->dry && i < policy(t)->workers; i++)
		guard_set_fetched(t->guard, i, fetched);
}

/* Adds the workers in set to the guard as new workers. At this line, the recorded configuration
 * added these workers, but the policy of this replay has had them from the start. So the guard
 * first gets the policy without these workers, and then the whole policy. */
static int swap_without(struct recording_reader *t, uint32_t set, uint64_t now_ns)
{
	struct policy *p = malloc(sizeof(*p));
	int err;

	if (!p)
		return -GW_E_NOMEM;
	*p = *policy(t);
	p->workers = 0;
	for (unsigned i = 0; i < policy(t)->workers; i++)
		if (!(set >> i & 1))
			p->worker[p->workers++] = policy(t)->worker[i];
	err = guard_change_policy(t->guard, p, NULL, 0, now_ns);
	if (!err)
		err = guard_change_policy(t->guard, policy(t), t->record, t->records, now_ns);
	free(p);
	return err;
}

/* Changes to the recorded policy, as the recorded guard did. */
static int swap_to(struct recording_reader *t, uint64_t now_ns)
{
	int err = guard_change_policy(t->guard, t->coming, t->record, t->records, now_ns);

	if (err)
		return err;
	drop_policy(&t->own);
	t->own = t->coming;
	t->coming = NULL;
	return 0;
}

static int read_swapped(struct recording_reader *t, const struct words *w)
{
	const uint64_t now_ns = w->number[1];
	int err;

	if (!t->swapping || !read_mode(t, t->form, w->word[2]))
		return -GW_E_PARSE;
	t->swapping = false;
	/* The recorded guard changed its policy, so none of its orders was fetched. */
	assume_fetched(t, false);
	err = t->coming ? swap_to(t, now_ns)
			: swap_without(t, known_workers(t) & ~t->known, now_ns);
	if (err) { /* Free the guard, too: it may still borrow the policy that is freed here. */
		guard_free(t->guard);
		t->guard = NULL;
		drop_policy(&t->coming);
	}
	return err;
}

enum guard_ending recording_ending(const uint64_t flag[6])
{
	if (flag[0])
		return flag[2] ? ENDING_IN_FLIGHT : flag[4] ? ENDING_LISTED : ENDING_DONE;
	return flag[3]   ? ENDING_NO_ANSWER
	       : flag[5] ? ENDING_REFUSED
	       : flag[1] ? ENDING_BUSY
	       : flag[2] ? ENDING_IN_FLIGHT
			 : ENDING_FAILED;
}

static int read_outcome(struct recording_reader *t, const struct words *w)
{
	static const unsigned at[] = { 1, 3, 4, 5, 6, 7, 8 };
	const bool first = t->form == 1;
	/* Older recordings do not have the last two numbers. */
	const unsigned n = first ? 4 : w->count == 10 ? 7 : 5;
	struct guard_outcome o = { 0 };
	uint64_t v[7] = { 0 }, number = UINT64_MAX;

	if (w->count != n + 3 || !read_numbers(w, at, n, v) ||
	    (!number_u64(w->word[2], &number) && (first || strcmp(w->word[2], "-1") != 0)))
		return -GW_E_PARSE;
	if (first) /* In format version 1 the number is the order. Later it is the worker. */
		o.order = number > t->last_id ? number - t->last_id : 0;
	else if (policy_position(t, number) >= 0)
		o.order = guard_order_pending(t->guard, (unsigned)policy_position(t, number));
	o.ending = recording_ending(v + 1);
	snprintf(o.message, sizeof(o.message), "%s", w->word[n + 2]);
	if (!t->dry)
		guard_outcome(t->guard, &o, v[0]);
	return 0;
}

static int read_fetched(struct recording_reader *t, const struct words *w)
{
	const int at = policy_position(t, w->number[2]);

	if (at >= 0)
		guard_set_fetched(t->guard, (unsigned)at, true);
	return 0;
}

static int read_stop(struct recording_reader *t, const struct words *w)
{
	static const unsigned at[] = { 1, 2 };
	const unsigned n = t->form < 8 ? 1 : 2;
	/* A recording before version 8 does not say which orders were under way. Assume that
	 * all were, because most were. */
	uint64_t v[2] = { 0, UINT32_MAX };

	if (w->count != n + 1 || !read_numbers(w, at, n, v))
		return -GW_E_PARSE;
	for (unsigned i = 0; !t->dry && i < POLICY_WORKERS; i++)
		if (policy_position(t, i) >= 0)
			guard_set_fetched(t->guard, (unsigned)policy_position(t, i),
					  v[1] >> i & 1);
	guard_stop(t->guard, v[0]);
	return 0;
}

static int read_request(struct recording_reader *t, const struct words *w)
{
	const bool all = strcmp(w->word[2], "-1") == 0;
	char message[200];
	unsigned what;
	uint64_t worker = 0;

	if (!read_enum(t->form, w->word[3], recording_requests, &what) ||
	    (!all && !number_u64(w->word[2], &worker)))
		return -GW_E_PARSE;
	if (!all && policy_position(t, worker) < 0) /* The current policy has no such worker. */
		guard_set_requester(t->guard, -1);
	else
		guard_request(t->guard, all ? -1 : policy_position(t, worker),
			      (enum guard_request)what, w->number[4], w->number[1], message,
			      sizeof(message));
	return 0;
}

static int read_for(struct recording_reader *t, const struct words *w)
{
	uint64_t uid = 0;

	if (!number_u64(w->word[2], &uid) && strcmp(w->word[2], "-1") != 0)
		return -GW_E_PARSE;
	guard_set_requester(t->guard, w->word[2][0] == '-' ? -1 : (int64_t)uid);
	return 0;
}

static int read_foreign(struct recording_reader *t, const struct words *w)
{
	guard_set_foreign(t->guard, w->word[2], *w->word[3] ? w->word[3] : NULL, w->number[1]);
	return 0;
}

static int read_reason(struct recording_reader *t, const struct words *w)
{
	unsigned reason;

	if (!read_enum(t->form, w->word[3], reasons, &reason))
		return -GW_E_PARSE;
	guard_set_reason(t->guard, w->word[2], (enum guard_reason)reason, w->number[4],
			 w->word[5], w->number[1]);
	return 0;
}

static int read_trust(struct recording_reader *t, const struct words *w)
{
	/* Ignore the error: if the recorded guard refused the request, this guard refuses it
	 * again. */
	(void)guard_trust_gpu(t->guard, w->word[2], w->number[1]);
	return 0;
}

static int read_heat(struct recording_reader *t, const struct words *w)
{
	uint32_t heat;

	if (!read_set(t->form, w->word[3], guard_heats, HEAT_THROTTLE | HEAT_WARM, &heat))
		return -GW_E_PARSE;
	guard_set_heat(t->guard, w->word[2], heat, w->word[4]);
	return 0;
}

static void note_reservation(struct recording_reader *t, uint64_t theirs, uint64_t ours)
{
	t->reservation[t->reservations % RESERVATIONS].theirs = theirs;
	t->reservation[t->reservations++ % RESERVATIONS].ours = ours;
}

static uint64_t find_reservation(const struct recording_reader *t, uint64_t theirs)
{
	/* In a recording before version 3, the line that made the reservation has no id. */
	if (t->form < 3)
		return theirs > t->last_id ? theirs - t->last_id : 0;
	for (unsigned i = 0; i < t->reservations && i < RESERVATIONS; i++)
		if (t->reservation[i].theirs == theirs)
			return t->reservation[i].ours;
	return 0;
}

static int read_reserve(struct recording_reader *t, const struct words *w)
{
	static const unsigned at[] = { 1, 2, 4, 5 };
	const unsigned n = t->form < 3 ? 3 : 4;
	uint64_t v[4], id = 0;
	const char *gpu;

	if (w->count != n + 3 || !read_numbers(w, at, n, v))
		return -GW_E_PARSE;
	gpu = w->word[n + 2];
	if (guard_reserve(t->guard, *gpu ? gpu : NULL, v[1], atoll(w->word[3]), v[2], v[0],
			  &id) == 0 &&
	    n == 4 && v[3])
		note_reservation(t, v[3], id);
	return 0;
}

static int read_reserve_restore(struct recording_reader *t, const struct words *w)
{
	struct guard_reservation r = { .id = w->number[1],
				       .bytes = w->number[2],
				       .pid = atoll(w->word[3]),
				       .until_ns = w->number[4] };

	snprintf(r.gpu, sizeof(r.gpu), "%s", w->word[5]);
	if (guard_reserve_restore(t->guard, &r) != 0)
		return -GW_E_PARSE;
	note_reservation(t, r.id, r.id);
	return 0;
}

static int read_release(struct recording_reader *t, const struct words *w)
{
	guard_release(t->guard, find_reservation(t, w->number[2]), w->number[1]);
	return 0;
}

static int read_games(struct recording_reader *t, const struct words *w)
{
	static const unsigned at[] = { 1, 2, 3 };
	/* From version 6 on, the line has the name of the game. From version 10 on, pid and
	 * name of the game are two words. */
	const unsigned count = t->form < 6 ? 3 : t->form < 10 ? 4 : 5;
	struct scene_game game = { .pid = 0 };
	uint64_t v[3] = { 0 };

	if (w->count != count || !read_numbers(w, at, count == 5 ? 3 : 2, v) ||
	    v[1] > UINT32_MAX || v[2] > INT64_MAX)
		return -GW_E_PARSE;
	game.pid = (int64_t)v[2];
	if (count == 4)
		guard_state_old_game(w->word[3], &game);
	else if (count == 5)
		text_fit(game.name, sizeof(game.name), "%s", w->word[4]);
	guard_set_games(t->guard, (unsigned)v[1], &game);
	return 0;
}

static int read_economy(struct recording_reader *t, const struct words *w)
{
	const uint64_t *v = w->number;

	if (v[2] > UINT32_MAX)
		return -GW_E_PARSE;
	if (policy_position(t, v[2]) >= 0)
		guard_set_idle_economy(t->guard, (unsigned)policy_position(t, v[2]), v[3],
				       (double)v[4], v[5] ? (double)v[5] : (double)NAN);
	return 0;
}

/* Reads the collected text when the policy is complete. */
static int take_policy(struct recording_reader *t)
{
	struct policy *p = calloc(1, sizeof(*p));
	int err = p ? policy_text_read(t->text.p, p) : -GW_E_NOMEM;

	buf_clear(&t->text);
	if (err) {
		drop_policy(&p);
		return err;
	}
	drop_policy(t->swapping ? &t->coming : &t->own);
	*(t->swapping ? &t->coming : &t->own) = p;
	return 0;
}

static int read_policy(struct recording_reader *t, const char *line)
{
	if (!may_describe(t))
		return -GW_E_PARSE;
	if (t->dry)
		return 0;
	if (!*line)
		return t->text.err ? -GW_E_PARSE : take_policy(t);
	buf_adds(&t->text, line + 1);
	buf_addc(&t->text, '\n');
	return 0;
}

/* Reads one line of the guard's state. If the replay uses another policy, skips these lines.
 * The guard then begins with the workers as the first scene shows them, as it does after a
 * restart. */
static int read_state(struct recording_reader *t, const char *line)
{
	const struct scene *s;
	int r;

	if (!t->own || t->swapping)
		return t->dry ? 0 : -GW_E_PARSE;
	if (!t->guard && make_guard(t) != 0)
		return -GW_E_NOMEM;
	r = guard_state_read(&t->state, t->guard, line);
	/* r > 0: this was the last line of the state. After an error in_state stays true, so
	 * that other lines are refused until the next "begin". */
	t->in_state = r <= 0;
	if (r <= 0)
		return r;
	guard_verdicts(t->guard, &s);
	t->wall_ns = s->wall_ns;
	t->mono_ns = s->mono_ns;
	return 0;
}

/* Replaces the worker index of each root process by the worker's position in this policy, and
 * drops roots of unknown workers. If s is the scene of the reader, the caller restores it
 * afterwards, because the next line may describe only a change of the recorded scene. */
static void place_roots(const struct recording_reader *t, struct scene *s)
{
	unsigned n = 0;

	for (unsigned i = 0; i < s->roots; i++) {
		struct scene_root root = s->root[i];
		int at = policy_position(t, root.worker);

		if (at < 0)
			continue;
		root.worker = (unsigned)at;
		s->root[n++] = root;
	}
	s->roots = n;
}

static int read_scene(struct recording_reader *t, const char *line)
{
	struct scene_root root[SCENE_ROOTS];
	int r = scene_read(&t->scene, line);
	unsigned roots = t->scene.roots;

	if (r <= 0)
		return r;
	memcpy(root, t->scene.root, sizeof(root));
	place_roots(t, &t->scene);
	t->wall_ns = t->scene.wall_ns;
	t->mono_ns = t->scene.mono_ns;
	t->counts.scenes++;
	guard_observe(t->guard, &t->scene);
	memcpy(t->scene.root, root, sizeof(root));
	t->scene.roots = roots;
	return 0;
}

static int read_words(struct recording_reader *t, const char *line)
{
	static const struct {
		/* The form of the line for words_fit(). NULL if the line has several forms;
		 * read() then checks the words. */
		const char *word, *form;
		int (*read)(struct recording_reader *t, const struct words *w);
		bool before; /* Allowed before the guard exists. */
	} kinds[] = {
		{ "record", "tnnntnnt", read_record, true },
		{ "record-manual", "n", read_record_manual, true },
		{ "record-gpu", "nt", read_record_gpu, true },
		{ "record-process", "nn", read_record_process, true },
		{ "record-root", "nn", read_record_root, true },
		{ "begin", NULL, read_begin, true },
		{ "worker", "nt", read_worker, true },
		{ "swap", "", read_swap, false },
		{ "swapped", "nt", read_swapped, false },
		{ "foreign", "ntt", read_foreign, false },
		{ "room", "nntnt", read_reserve_restore, false },
		{ "outcome", NULL, read_outcome, false },
		{ "fetched", "nn", read_fetched, false },
		{ "ask", "nttn", read_request, false },
		{ "for", "nt", read_for, false },
		{ "reason", "nttnt", read_reason, false },
		{ "reserve", NULL, read_reserve, false },
		{ "release", "nn", read_release, false },
		{ "games", NULL, read_games, false },
		{ "economy", "nnnnn", read_economy, false },
		{ "heat", "nttt", read_heat, false },
		{ "trust", "nt", read_trust, false },
		{ "stop", NULL, read_stop, false },
	};
	struct words w;
	int err = split_words(&w, line);

	for (size_t i = 0; !err && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strcmp(w.word[0], kinds[i].word) != 0)
			continue;
		if (t->swapping && !kinds[i].before && kinds[i].read != read_swapped)
			return -GW_E_PARSE;
		if (!t->guard && !kinds[i].before)
			err = make_guard(t);
		if (!err && kinds[i].form && !words_fit(&w, kinds[i].form))
			err = -GW_E_PARSE;
		return err ? err : kinds[i].read(t, &w);
	}
	return -GW_E_PARSE;
}

int recording_read(struct recording_reader *t, const char *line)
{
	int err = 0;

	if (!*line)
		return 0;
	if (strncmp(line, "policy", 6) == 0 && (!line[6] || line[6] == '\t'))
		return read_policy(t, line + 6);
	if (strncmp(line, "state\t", 6) == 0)
		return read_state(t, line + 6);
	if (t->in_state && strncmp(line, "begin\t", 6) != 0)
		return -GW_E_PARSE;
	if (t->guard)
		assume_fetched(t, true);
	if (line[1] != '\t')
		return read_words(t, line);
	if (t->swapping)
		return -GW_E_PARSE;
	if (!t->guard)
		err = make_guard(t);
	return err ? err : read_scene(t, line);
}

/* Reads a line that is a scene or names the workers; skips any other line. Returns 1 if *ret is
 * a new scene, 0 if *ret is unchanged, or an error. */
static int read_only_scene(struct recording_reader *t, const char *line, struct scene *ret)
{
	struct words w;
	int got;

	if (*line && line[1] == '\t') {
		/* This line has only the changes to an earlier scene, and that scene is
		 * missing. */
		if (line[0] == 'D' && !t->scene.whole)
			return 0;
		got = scene_read(&t->scene, line);
		if (got == 1) {
			*ret = t->scene;
			place_roots(t, ret);
		}
		return got;
	}
	if (strncmp(line, "begin\t", 6) != 0 && strncmp(line, "worker\t", 7) != 0 &&
	    strcmp(line, "swap") != 0)
		return 0;
	if (split_words(&w, line) != 0)
		return -GW_E_PARSE;
	if (*line == 'w')
		return words_fit(&w, "nt") ? read_worker(t, &w) : -GW_E_PARSE;
	t->swapping = false;
	return *line == 'b' ? read_begin(t, &w) : read_swap(t, &w);
}

int recording_last_scene(const char *lines, const struct policy *p, struct scene *ret,
			 unsigned *ret_line)
{
	struct recording_reader *t;
	char line[SCENE_LINE_MAX];
	bool whole = false;
	int got = recording_reader_new(p, true, &t);

	if (got)
		return got;
	for (*ret_line = 1; *lines && got >= 0; ++*ret_line) {
		size_t n = strcspn(lines, "\n");

		snprintf(line, sizeof(line), "%.*s", (int)(n < sizeof(line) ? n : 0), lines);
		lines += n + (lines[n] == '\n');
		got = read_only_scene(t, line, ret);
		whole = whole || got == 1;
	}
	recording_reader_free(t);
	if (got >= 0 && whole)
		return 0;
	*ret_line = got < 0 ? *ret_line - 1 : 0;
	return -GW_E_PARSE;
}

uint64_t recording_wall_ns(const struct recording_reader *t, uint64_t mono_ns)
{
	return t->wall_ns ? t->wall_ns + (mono_ns - t->mono_ns) : 0;
}

bool recording_next_decision(struct recording_reader *t, struct guard_decision *ret,
			     uint64_t *ret_wall_ns)
{
	if (!t->guard)
		return false;
	if (guard_next_decision(t->guard, ret)) {
		*ret_wall_ns = recording_wall_ns(t, ret->mono_ns);
		return true;
	}
	/* Do not fetch orders here. If an order had no outcome when the policy changed, it was
	 * not fetched from the recorded guard either, and both guards withdraw the order. */
	return false;
}

int recording_reader_new(const struct policy *p, bool dry, struct recording_reader **ret)
{
	struct recording_reader *t = calloc(1, sizeof(*t));

	if (!t)
		return -GW_E_NOMEM;
	if (p)
		t->given = *p;
	t->dry = dry;
	buf_init(&t->text, 1 << 20);
	run_begin(t, 1, 0); /* A file may have no "begin" line before its first scene. */
	*ret = t;
	return 0;
}

void recording_reader_free(struct recording_reader *t)
{
	if (!t)
		return;
	run_begin(t, 1, 0); /* Frees everything that belongs to a run. */
	buf_done(&t->text);
	free(t);
}

struct recording_counts recording_counts(const struct recording_reader *t)
{
	return t->counts;
}

const struct guard *recording_reader_guard(const struct recording_reader *t)
{
	return t->guard;
}

const struct policy *recording_reader_policy(const struct recording_reader *t)
{
	return t->own ? t->own : &t->given;
}
