/* Keeps reserved memory free for a process.
 *
 * A reservation marks workers that must leave, the lowest priority first. It marks workers
 * until two amounts of memory together are enough for the reservation and the headroom: the
 * free memory, and the memory of the marked workers that may leave. Free memory that a
 * returning worker will still allocate does not count, unless that worker is marked. The marks
 * stay until the reservation ends. A reservation limits only the guard's workers: another
 * process may take the memory. */
#include "guard_internal.h"

#include <string.h>

/* True if the owner of the reservation is a process of the worker, or an ancestor of such a
 * process. A worker neither leaves for its own reservation nor waits for it. */
static bool is_own(const struct guard *g, const struct guard_worker *w,
		   const struct reservation *r)
{
	const unsigned worker = worker_number(g, w);

	for (unsigned i = 0; r->pid > 0 && i < g->scene.roots; i++)
		if (scene_root_of(&g->scene.root[i], worker) &&
		    g->scene.root[i].id.pid == r->pid)
			return true;
	for (unsigned i = 0; r->pid > 0 && i < g->scene.processes; i++)
		if (g->verdict[i].class == CLASS_WORKER &&
		    g->verdict[i].worker == (int)worker &&
		    scene_generations(&g->scene.process[i], r->pid) != SCENE_FAR)
			return true;
	return false;
}

uint64_t guard_loading_bytes(const struct guard_worker *w, unsigned slot)
{
	const uint64_t need = w->observed.need_on[slot], held = w->observed.held[slot];
	const bool loads = worker_is_returning(w) && w->intent.stage != STAGE_OUT &&
			   !worker_loads_lazily(w) && !w->dry;

	return loads && need > held ? need - held : 0;
}

/* Returns the bytes that the owner has not allocated yet. */
static uint64_t outstanding(const struct guard *g, const struct reservation *r)
{
	uint64_t taken = 0;

	for (unsigned i = 0; r->pid > 0 && i < g->scene.processes; i++) {
		const struct scene_process *p = &g->scene.process[i];

		if ((int)p->gpu == g->gpu[r->gpu].at && p->bytes_known &&
		    scene_generations(p, r->pid) != SCENE_FAR)
			taken += p->bytes;
	}
	return r->bytes > taken ? r->bytes - taken : 0;
}

uint64_t guard_promised(const struct guard *g, const struct guard_worker *w, unsigned slot,
			char *text, size_t size)
{
	const struct reservation *one = NULL;
	uint64_t sum = 0;
	unsigned n = 0;

	for (unsigned i = 0; i < GUARD_RESERVATIONS; i++) {
		const struct reservation *r = &g->reservation[i];

		if (!r->id || r->gpu != (int)slot || is_own(g, w, r))
			continue;
		sum += outstanding(g, r);
		one = r;
		n++;
	}
	text[0] = '\0';
	if (sum >= MIB && n == 1 && one->pid > 0)
		text_fit(text, size, ", of which %llu MiB are reserved for pid %lld",
			 (unsigned long long)(sum / MIB), (long long)one->pid);
	else if (sum >= MIB)
		text_fit(text, size, ", of which %llu MiB are reserved (%u reservation%s)",
			 (unsigned long long)(sum / MIB), n, n == 1 ? "" : "s");
	return sum;
}

/* Returns the bytes on the GPU of r that earlier reservations reserve. */
static uint64_t reserved_before(const struct guard *g, const struct reservation *r)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < GUARD_RESERVATIONS; i++) {
		const struct reservation *o = &g->reservation[i];

		if (o->id && o->id < r->id && o->gpu == r->gpu)
			sum += outstanding(g, o);
	}
	return sum;
}

static uint64_t without(uint64_t bytes, uint64_t reserved)
{
	return bytes > reserved ? bytes - reserved : 0;
}

/* False if the worker is held active. False also if it is stuck, because its memory may never
 * become free. */
static bool may_leave(const struct guard_worker *w)
{
	return !worker_is_held_active(w) && worker_state(w) != STATE_STUCK;
}

static bool movable(const struct guard_worker *w, unsigned slot)
{
	return (w->observed.held[slot] || guard_loading_bytes(w, slot)) && may_leave(w);
}

/* Returns the bytes that returning workers will still allocate on the GPU of r, without those
 * of r's own worker. */
static uint64_t loading_bytes(const struct guard *g, const struct reservation *r)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < g->workers; i++)
		if (!is_own(g, &g->worker[i], r))
			sum += guard_loading_bytes(&g->worker[i], (unsigned)r->gpu);
	return sum;
}

bool guard_movable(const struct guard *g, unsigned worker)
{
	return g->p->mode == GUARD_ENFORCE && worker < g->workers &&
	       may_leave(&g->worker[worker]);
}

unsigned guard_leaves_nth(const struct guard *g, unsigned i)
{
	return g->order[i];
}

uint64_t guard_headroom(const struct guard *g, uint64_t total_bytes)
{
	return demand_headroom(&g->p->standard, total_bytes);
}

/* Returns how much memory can become free for r (NULL: for a new reservation). */
static uint64_t most_free(const struct guard *g, unsigned slot, const struct reservation *r)
{
	uint64_t sum = g->gpu[slot].free_bytes, loading = 0;

	for (unsigned i = 0; i < g->workers; i++) {
		const struct guard_worker *w = &g->worker[i];

		if (r && is_own(g, w, r))
			continue;
		if (movable(w, slot))
			sum += w->observed.held[slot];
		else
			loading += guard_loading_bytes(w, slot);
	}
	return without(sum, loading);
}

static uint64_t headroom(const struct guard *g, unsigned slot)
{
	const struct scene_gpu *n = g->gpu[slot].now;

	return n ? guard_headroom(g, n->total_bytes) : 0;
}

/* Marks the workers that must leave for r, the reservation at place i, unless the user of r may
 * cause no eviction now. Adds to u->promised the bytes that the owner of r has not allocated
 * yet. */
static void reservation_mark(struct guard *g, struct reservation *r, unsigned i)
{
	struct guard_gpu *u = &g->gpu[r->gpu];
	unsigned slot = (unsigned)r->gpu;
	const uint64_t before = reserved_before(g, r);
	const bool limited = guard_user_wait_ns(g, r->uid, g->now_ns) != 0;
	uint64_t want = outstanding(g, r) + before, have = u->free_bytes;
	uint64_t loading = loading_bytes(g, r);

	r->most_bytes = without(most_free(g, slot, r), before);
	u->promised += outstanding(g, r);
	if (!u->now || !u->now->memory_known || r->most_bytes < outstanding(g, r))
		return; /* not enough memory can become free, so no worker leaves */
	want += headroom(g, slot);
	for (unsigned k = 0; k < g->workers; k++) {
		const struct guard_worker *w = &g->worker[k];

		if (!worker_is_leaving(w) && !(w->reasons.reservations && may_leave(w)))
			continue;
		have += w->observed.held[slot];
		loading -= is_own(g, w, r) ? 0 : guard_loading_bytes(w, slot);
	}
	for (unsigned k = 0; k < g->workers && have < want + loading && !limited; k++) {
		struct guard_worker *w = &g->worker[g->order[k]];

		if (!movable(w, slot) || worker_is_leaving(w) || w->reasons.reservations ||
		    is_own(g, w, r))
			continue;
		w->reasons.reservations |= BIT(i);
		rate_take(&g->rate, r->uid, g->now_ns);
		have += w->observed.held[slot];
		loading -= guard_loading_bytes(w, slot);
	}
}

/* Ends a reservation and removes its marks. A worker without any mark no longer has to leave
 * for a reservation. */
static void reservation_end(struct guard *g, unsigned i)
{
	g->reservation[i].id = 0;
	for (unsigned k = 0; k < g->workers; k++) {
		struct worker_reasons *r = &g->worker[k].reasons;

		r->reservations &= ~BIT(i);
		if (!r->reservations)
			r->mask &= ~BIT(REASON_RESERVED);
	}
}

void guard_update_reservations(struct guard *g)
{
	for (unsigned i = 0; i < g->gpus; i++)
		g->gpu[i].promised = 0;
	/* End all expired reservations before new marks are made. Then a worker with the mark
	 * of an expired reservation can get the mark of one that lasts. */
	for (unsigned i = 0; i < GUARD_RESERVATIONS; i++)
		if (g->reservation[i].id && g->reservation[i].until_ns <= g->now_ns)
			reservation_end(g, i);
	for (unsigned i = 0; i < GUARD_RESERVATIONS; i++)
		if (g->reservation[i].id)
			reservation_mark(g, &g->reservation[i], i);
}

/* Returns the GPU on which the most unreserved memory can become free. */
static int most_free_gpu(const struct guard *g)
{
	int best = -1;
	uint64_t most = 0;

	for (unsigned i = 0; i < g->gpus; i++) {
		const struct guard_gpu *u = &g->gpu[i];
		const uint64_t bytes = without(most_free(g, i, NULL), u->promised);

		if (!u->now || u->lost || u->blind || (best >= 0 && bytes <= most))
			continue;
		best = (int)i;
		most = bytes;
	}
	return best;
}

/* True if a worker must be evicted for a new reservation. */
static bool must_leave(const struct guard *g, const struct reservation *r)
{
	const struct guard_gpu *u = &g->gpu[r->gpu];

	return u->free_bytes < outstanding(g, r) + u->promised + loading_bytes(g, r) +
				       headroom(g, (unsigned)r->gpu);
}

/* Returns the reservation with this id; NULL: there is none. With id 0, returns the first
 * unused entry. */
static struct reservation *reservation_find(struct guard *g, uint64_t id)
{
	for (unsigned i = 0; i < GUARD_RESERVATIONS; i++)
		if (g->reservation[i].id == id)
			return &g->reservation[i];
	return NULL;
}

int guard_reserve(struct guard *g, const char *gpu, uint64_t bytes, int64_t pid,
		  uint64_t ttl_ns, uint64_t now_ns, uint64_t *ret_id)
{
	struct reservation *r = reservation_find(g, 0), made = {
		.gpu = gpu && *gpu ? guard_slot(g, gpu, false) : most_free_gpu(g),
		.bytes = bytes,
		.pid = pid,
		.uid = g->requester,
		.until_ns = ttl_ns && ttl_ns < FOR_EVER - now_ns ? now_ns + ttl_ns : FOR_EVER
	};

	g->requester = -1;
	if (made.gpu < 0)
		return -GW_E_NODEV;
	if (must_leave(g, &made) && guard_user_wait_ns(g, made.uid, now_ns))
		return -GW_E_PERM;
	if (!r)
		return -GW_E_SIZE;
	*ret_id = made.id = ++g->next_id;
	*r = made;
	guard_advance(g, now_ns);
	guard_update_reservations(g);
	guard_update_reasons(g);
	guard_steps(g);
	return 0;
}

/* True if a worker that is marked for the reservation may still free memory: it is neither
 * evicted nor absent, and it may leave. */
static bool is_being_freed(const struct guard *g, const struct reservation *r)
{
	uint32_t bit = BIT((unsigned)(r - g->reservation));

	for (unsigned i = 0; i < g->workers; i++) {
		const struct guard_worker *w = &g->worker[i];
		const enum guard_state s = worker_state(w);

		if (w->reasons.reservations & bit && may_leave(w) && s != STATE_EVICTED &&
		    s != STATE_ABSENT)
			return true;
	}
	return false;
}

int guard_reservation_ready(const struct guard *g, uint64_t id, char *message, size_t size)
{
	const struct reservation *r = id ? reservation_find((struct guard *)g, id) : NULL;

	if (!r) {
		text_fit(message, size, "no such reservation: it ended or never existed");
		return -GW_E_NOENT;
	}

	const struct guard_gpu *u = &g->gpu[r->gpu];
	const uint64_t before = reserved_before(g, r), want = outstanding(g, r),
		       have = u->now ? without(u->now->free_bytes, before + loading_bytes(g, r))
				     : 0;
	unsigned long long mib = want / MIB;
	char reserved[60] = "";

	if (have >= want &&
	    (have >= want + headroom(g, (unsigned)r->gpu) || !is_being_freed(g, r))) {
		text_fit(message, size, "%llu MiB are free on %s",
			 (unsigned long long)(have / MIB), u->uuid);
		return 1;
	}
	if (u->now && u->now->memory_known && r->most_bytes < want) {
		if (before)
			text_fit(reserved, sizeof(reserved),
				 " (%llu MiB are reserved for others)",
				 (unsigned long long)(before / MIB));
		text_fit(message, size,
			 "insufficient_vram: needs %llu MiB, only %llu MiB can become free on "
			 "%s%s; try again in %llu s",
			 mib, (unsigned long long)(r->most_bytes / MIB), u->uuid, reserved,
			 (unsigned long long)(g->p->standard.quiet_ns / NS_PER_S));
		return -GW_E_SIZE;
	}
	text_fit(message, size, "needs %llu MiB, %llu MiB are free on %s: workers are leaving",
		 mib, (unsigned long long)(have / MIB), u->uuid);
	return 0;
}

void guard_release(struct guard *g, uint64_t id, uint64_t now_ns)
{
	struct reservation *r = id ? reservation_find(g, id) : NULL;

	if (!r)
		return;
	reservation_end(g, (unsigned)(r - g->reservation));
	guard_advance(g, now_ns);
	guard_update_reservations(g);
	guard_update_reasons(g);
	guard_steps(g);
}

bool guard_reservation_at(const struct guard *g, unsigned i, struct guard_reservation *ret)
{
	const struct reservation *r = &g->reservation[i];

	if (i >= GUARD_RESERVATIONS)
		return false;
	memset(ret, 0, sizeof(*ret));
	if (!r->id)
		return true;
	*ret = (struct guard_reservation){ .id = r->id,
					   .bytes = r->bytes,
					   .left_bytes = outstanding(g, r),
					   .most_bytes = r->most_bytes,
					   .until_ns = r->until_ns,
					   .pid = r->pid,
					   .uid = r->uid };
	text_fit(ret->gpu, sizeof(ret->gpu), "%s", g->gpu[r->gpu].uuid);
	return true;
}

int guard_reserve_restore(struct guard *g, const struct guard_reservation *room)
{
	int slot = g->scenes ? -1 : guard_slot(g, room->gpu, true);
	struct reservation *r = reservation_find(g, 0);
	const int64_t uid = g->requester;

	g->requester = -1;
	if (slot < 0 || !r || !room->id || reservation_find(g, room->id))
		return -GW_E_STATE;
	*r = (struct reservation){ .id = room->id,
				   .gpu = slot,
				   .bytes = room->bytes,
				   .pid = room->pid,
				   .uid = uid,
				   .until_ns = room->until_ns };
	if (room->id > g->next_id)
		g->next_id = room->id;
	return 0;
}

void guard_set_last_id(struct guard *g, uint64_t last_id)
{
	if (last_id > g->next_id)
		g->next_id = last_id;
}
