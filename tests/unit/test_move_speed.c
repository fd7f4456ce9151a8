/* Tests how moves are timed from decisions, and how the next move is estimated. */
#include "guard/worker_stats.h"

#include "base/clock.h"

#include <math.h>
#include <string.h>

#define TEST_SETUP fresh
#include "test.h"

#define S     NS_PER_S
#define GIB   (UINT64_C(1) << 30)
#define BYTES (16 * GIB)

static struct move_worker w;
static uint64_t now_ns;

static int fresh(void **state)
{
	memset(&w, 0, sizeof(w));
	now_ns = 1000 * S;
	return 0;
}

static bool near(double a, double b)
{
	return fabs(a - b) < 1e-6 * fabs(b);
}

/* Passes a decision that comes `seconds` after the previous one. If it ends a move, adds the
 * move and returns true. */
static bool decide(double seconds, enum guard_state from, enum guard_state to,
		   struct guard_decision d, uint64_t resident)
{
	struct guard_status s = { .resident_bytes = resident, .need_bytes = BYTES };
	enum move_way way;
	struct move one;

	now_ns += (uint64_t)(seconds * 1e9);
	d.mono_ns = now_ns;
	d.from = from;
	d.to = to;
	if (!moves_follow(&w, &d, &s, &way, &one))
		return false;
	moves_add(&w, way, &one);
	return true;
}

static const struct guard_decision none,
	freed = { .result = RESULT_FREED, .level = 3, .freed_bytes = BYTES };

static struct move_estimate estimated(enum move_way way, unsigned level, uint64_t bytes,
				      enum host_pages pages)
{
	struct move_estimate e;

	move_estimate(&w, &(struct move_question){ way, level, bytes, pages, false }, &e);
	return e;
}

static void add(enum move_way way, unsigned level, uint64_t bytes, double seconds,
		enum host_pages pages)
{
	moves_add(&w, way,
		  &(struct move){ .bytes = bytes,
				  .ns = (uint64_t)(seconds * 1e9),
				  .level = level,
				  .pages = pages });
}

TEST(a_move_lasts_from_the_order_until_the_memory_is_verified)
{
	assert_false(decide(0, STATE_ACTIVE, STATE_DRAIN, none, BYTES));
	assert_false(
		decide(5, STATE_DRAIN, STATE_EVICT, none, BYTES)); /* draining copies nothing */
	assert_false(decide(7, STATE_EVICT, STATE_VERIFY, none, BYTES));
	assert_true(decide(1, STATE_VERIFY, STATE_EVICTED, freed, 0));
	assert_int_equal(w.count[MOVE_LEAVE], 1);
	assert_int_equal(w.done[MOVE_LEAVE][0].ns, 8 * S);
	assert_int_equal(w.done[MOVE_LEAVE][0].bytes, BYTES);
	decide(60, STATE_QUIET, STATE_PRECHECK, none, 0);
	decide(0, STATE_PRECHECK, STATE_RESUME, none, 0);
	decide(3, STATE_RESUME, STATE_VERIFY_UP, none, 0);
	assert_true(decide(0.5, STATE_VERIFY_UP, STATE_ACTIVE, none, BYTES));
	assert_int_equal(w.done[MOVE_RETURN][0].ns, 3.5 * 1e9);
	/* the level of the eviction that this return undoes */
	assert_int_equal(w.done[MOVE_RETURN][0].level, 3);
}

TEST(only_whole_real_moves_count)
{
	struct guard_decision dry = freed, late = { .result = RESULT_NOT_FREED, .level = 2 };

	/* the beginning of this move was not observed */
	assert_false(decide(1, STATE_VERIFY, STATE_EVICTED, freed, 0));
	dry.dry = true;
	decide(1, STATE_DRAIN, STATE_EVICT, dry, BYTES);
	assert_false(decide(1, STATE_VERIFY, STATE_EVICTED, dry, 0));
	decide(1, STATE_PRECHECK, STATE_RESUME, none, 0);
	assert_false(decide(1, STATE_VERIFY_UP, STATE_ACTIVE, none, 0)); /* loads lazily */
	decide(1, STATE_PRECHECK, STATE_RESUME, none, 0);
	/* a new drain interrupts the return */
	decide(1, STATE_RESUME, STATE_DRAIN, none, BYTES);
	assert_false(decide(1, STATE_VERIFY_UP, STATE_ACTIVE, none, BYTES));
	decide(1, STATE_DRAIN, STATE_EVICT, none, BYTES);
	decide(1, STATE_EVICT, STATE_STUCK, none, BYTES);
	assert_false(decide(90, STATE_STUCK, STATE_EVICTED, freed, 0));
	decide(1, STATE_DRAIN, STATE_EVICT, none, BYTES);
	decide(5, STATE_EVICT, STATE_EVICT, none, BYTES);   /* the same level, tried again */
	decide(20, STATE_VERIFY, STATE_EVICT, late, BYTES); /* the next level begins here */
	assert_true(decide(2, STATE_VERIFY, STATE_EVICTED, freed, 0));
	assert_int_equal(w.count[MOVE_LEAVE], 1);
	assert_int_equal(w.done[MOVE_LEAVE][0].ns, 2 * S);
}

TEST(the_time_of_a_checkpoint_grows_with_its_bytes_and_others_do_not)
{
	struct move_estimate e;

	add(MOVE_LEAVE, 3, 8 * GIB, 4, HOST_PAGES_MADVISE);
	add(MOVE_LEAVE, 3, 8 * GIB, 12, HOST_PAGES_MADVISE); /* one slow move counts little */
	add(MOVE_LEAVE, 3, 16 * GIB, 8, HOST_PAGES_MADVISE);
	e = estimated(MOVE_LEAVE, 3, 32 * GIB, HOST_PAGES_MADVISE);
	assert_int_equal(e.basis, MOVE_BASIS_OWN);
	assert_int_equal(e.moves, 3);
	assert_true(near(e.seconds, 16));
	add(MOVE_LEAVE, 2, 8 * GIB, 1, HOST_PAGES_MADVISE);
	add(MOVE_LEAVE, 2, 8 * GIB, 2, HOST_PAGES_MADVISE);
	e = estimated(MOVE_LEAVE, 2, 32 * GIB, HOST_PAGES_UNKNOWN);
	assert_int_equal(e.moves, 2);
	assert_true(near(e.seconds, 1.5));
}

TEST(moves_with_the_present_page_mode_come_first)
{
	struct move_estimate e;

	add(MOVE_LEAVE, 3, GIB, 2, HOST_PAGES_MADVISE);
	add(MOVE_LEAVE, 3, GIB, 1, HOST_PAGES_ALWAYS);
	e = estimated(MOVE_LEAVE, 3, GIB, HOST_PAGES_ALWAYS);
	assert_true(near(e.seconds, 1) && e.moves == 1 && e.pages == HOST_PAGES_ALWAYS);
	/* an estimate from this machine is better */
	e = estimated(MOVE_LEAVE, 3, GIB, HOST_PAGES_NEVER);
	assert_int_equal(e.basis, MOVE_BASIS_OWN);
	assert_int_equal(e.moves, 2);
}

TEST(without_a_move_a_checkpoint_has_the_figures_of_an_h200_and_others_none)
{
	static const struct {
		enum move_way way;
		enum host_pages pages, of;
		double seconds; /* for 16.6 GiB */
	} rows[] = {
		{ MOVE_LEAVE, HOST_PAGES_MADVISE, HOST_PAGES_MADVISE, 7.9 },
		{ MOVE_LEAVE, HOST_PAGES_NEVER, HOST_PAGES_MADVISE, 7.9 },
		{ MOVE_LEAVE, HOST_PAGES_UNKNOWN, HOST_PAGES_MADVISE, 7.9 },
		{ MOVE_LEAVE, HOST_PAGES_ALWAYS, HOST_PAGES_ALWAYS, 5.4 },
		{ MOVE_RETURN, HOST_PAGES_MADVISE, HOST_PAGES_MADVISE, 3.4 },
		{ MOVE_RETURN, HOST_PAGES_ALWAYS, HOST_PAGES_ALWAYS, 2.5 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct move_estimate e =
			estimated(rows[i].way, 3, (uint64_t)(2 * MOVE_H200_GIB * (double)GIB),
				  rows[i].pages);

		assert_int_equal(e.basis, MOVE_BASIS_H200);
		assert_int_equal(e.pages, rows[i].of);
		assert_true(near(e.seconds, 2 * rows[i].seconds));
	}
	assert_int_equal(estimated(MOVE_LEAVE, 2, GIB, HOST_PAGES_ALWAYS).basis,
			 MOVE_BASIS_NONE);
	assert_true(isnan(estimated(MOVE_LEAVE, 2, GIB, HOST_PAGES_ALWAYS).seconds));
	assert_int_equal(estimated(MOVE_LEAVE, 3, 0, HOST_PAGES_ALWAYS).basis, MOVE_BASIS_NONE);
}

TEST(a_simulated_move_says_nothing_about_a_real_one)
{
	moves_add(&w, MOVE_LEAVE,
		  &(struct move){ .bytes = GIB, .ns = 1, .level = 3, .simulated = true });
	assert_int_equal(estimated(MOVE_LEAVE, 3, GIB, HOST_PAGES_UNKNOWN).basis,
			 MOVE_BASIS_H200);
	assert_null(moves_last(&w, MOVE_LEAVE, false));
	assert_non_null(moves_last(&w, MOVE_LEAVE, true));
}

TEST(the_latest_moves_are_kept_and_damaged_ones_are_not)
{
	for (unsigned i = 1; i <= MOVES_KEPT + 3; i++)
		add(MOVE_LEAVE, 3, i * GIB, 1, HOST_PAGES_MADVISE);
	assert_int_equal(w.count[MOVE_LEAVE], MOVES_KEPT);
	assert_int_equal(w.done[MOVE_LEAVE][0].bytes, 4 * GIB);
	assert_int_equal(moves_last(&w, MOVE_LEAVE, false)->bytes, (MOVES_KEPT + 3) * GIB);
	add(MOVE_LEAVE, 3, 0, 1, HOST_PAGES_MADVISE);
	add(MOVE_LEAVE, 3, GIB, 0, HOST_PAGES_MADVISE);
	assert_int_equal(moves_last(&w, MOVE_LEAVE, false)->bytes, (MOVES_KEPT + 3) * GIB);
}

TEST(advice_is_given_only_where_the_setting_can_be_better)
{
	char text[MOVE_ADVICE_SIZE];

	assert_false(move_pages_advice(HOST_PAGES_ALWAYS, text));
	assert_false(move_pages_advice(HOST_PAGES_UNKNOWN, text));
	assert_string_equal(text, "");
	assert_true(move_pages_advice(HOST_PAGES_NEVER, text));
	assert_in(text, "transparent_hugepage is \"never\"");
	assert_in(text,
		  "moving 16.6 GiB to the host took 5.4 s instead of 7.9 s, and moving them "
		  "back to the GPU took 2.5 s instead of 3.4 s, with 76 thousand page faults "
		  "instead of 4.4 million");
	assert_in(text, "first checkpoint in a virtual machine takes 2.4 s more");
	assert_in(text, "/etc/tmpfiles.d/transparent-hugepage.conf"); /* the path is not cut */
}

TEST_MAIN(NULL, NULL)
