/* Tests of the guard: each gets a new world with one worker of 8 GiB on a GPU of 12 GiB. */
#ifndef GUARD_TEST_H
#define GUARD_TEST_H

#include "guard_world.h"

#define ANY        GUARD_STATES
#define CONTENTION (1u << REASON_CONTENTION)
#define MANUAL     (1u << REASON_MANUAL)

#define assert_state(o, state) assert_int_equal(world_state(o, 0), state)
/* Asserts how often the first worker had this decision; from, to and rule as in
 * world_decided(). */
#define assert_decided(o, times, from, to, rule) \
	assert_int_equal(world_decided(o, 0, from, to, rule), times)
#define assert_orders(o, times, verb) assert_int_equal((o)->w[0].verbs[ORDER_##verb], times)

static inline void assert_has(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("'%s' is not in '%s'", part, text);
}

/* Replaces the world by a new one. */
static inline void world_again(struct world *o, unsigned gpus, unsigned workers)
{
	world_done(o);
	world_init(o, gpus, workers);
}

/* Starts the guard and makes one observation. */
static inline void begin(struct world *o)
{
	world_begin(o);
	world_step(o);
}

static inline void on_gpu(struct world *o, unsigned worker, unsigned gpu)
{
	memset(o->w[worker].load, 0, sizeof(o->w[worker].load));
	o->w[worker].load[gpu] = 8 * GIB;
}

/* Adds the record that an earlier run left for the next worker. */
static inline struct guard_record *record(struct world *o, uint32_t mask, unsigned level)
{
	struct guard_record *r = &o->journal.disk[o->journal.on_disk++];

	*r = (struct guard_record){
		.mask = mask, .evicted = true, .level = level, .need_bytes = 8 * GIB, .gpus = 1
	};
	snprintf(r->worker, sizeof(r->worker), "w%u", o->journal.on_disk - 1);
	snprintf(r->gpu[0].uuid, sizeof(r->gpu[0].uuid), "GPU-0");
	r->gpu[0].need_bytes = 8 * GIB;
	return r;
}

static inline void ask_run(struct world *o, enum guard_request what, uint64_t ttl_ns,
			   uint64_t span_ns)
{
	assert_int_equal(world_ask(o, 0, what, ttl_ns), 0);
	world_run(o, span_ns);
}

static inline void until_ordered_to_leave(struct world *o)
{
	for (unsigned i = 0; !o->w[0].verbs[ORDER_EVICT]; i++) {
		assert_true(i < 1000);
		world_step(o);
	}
}

/* Sends a request for the first worker, but does not fetch orders and decisions. */
static inline void ask_only(struct world *o, enum guard_request what)
{
	char message[200];

	assert_int_equal(guard_request(o->g, 0, what, 0, o->now, message, sizeof(message)), 0);
}

/* Fetches and discards all records, then fetches the next order. */
static inline bool next_order(struct world *o, struct guard_order *ret)
{
	struct guard_record r;

	while (guard_next_record(o->g, &r))
		;
	return guard_next_order(o->g, ret);
}

/* Asserts that the worker runs as before its eviction. */
static inline void assert_awake(struct world *o)
{
	assert_state(o, STATE_ACTIVE);
	assert_false(o->w[0].asleep);
	assert_false(o->w[0].closed);
	assert_false(o->journal.disk[0].evicted);
}

/* A test with a new world o. GUARD_ROW() is for a test of rows of docs/GUARD-MACHINE.md; the
 * row numbers are printed with its name. */
#define GUARD_TEST(name) WORLD_TEST(name, #name, world_init(&o, 1, 1), world_done(&o))
#define GUARD_ROW(rows, name) \
	WORLD_TEST(name, #name " (" rows ")", world_init(&o, 1, 1), world_done(&o))

#endif
