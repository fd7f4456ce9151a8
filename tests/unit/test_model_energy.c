/* Tests how the energy of inference servers is charged to their models. */
#include "seed.h"

#include "measure/model_energy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define S   UINT64_C(1000000000)
#define GPU "GPU-a"

static struct model_energy *m;
static struct model_list list;

static int begin(void **state)
{
	(void)state;
	m = calloc(1, sizeof(*m));
	memset(&list, 0, sizeof(list));
	return m ? 0 : -1;
}

static int end(void **state)
{
	(void)state;
	free(m);
	return 0;
}

static struct model_worker *worker(const char *name)
{
	struct model_worker *w = model_energy_worker(m, name);

	assert_non_null(w);
	w->present = true;
	return w;
}

static void load(const char *model, int64_t pid, double prompt, double generated)
{
	struct model_report *x = &list.of[list.count++];

	*x = (struct model_report){ .pid = pid, .tokens = { prompt, generated } };
	snprintf(x->model, sizeof(x->model), "%s", model);
}

static void settle(const char *name, uint64_t seconds)
{
	model_energy_settle(m, worker(name), &list, seconds * S);
	list.count = 0;
}

static const struct model_row *row(const char *name, const char *model)
{
	const struct model_row *r;

	for (unsigned i = 0; (r = model_energy_row(m, i)); i++)
		if (strcmp(r->worker, name) == 0 && strcmp(r->model, model) == 0)
			return r;
	return NULL;
}

static double joules(const char *name, const char *model)
{
	return row(name, model) ? model_row_joules(row(name, model)) : 0;
}

static double generated(const char *name, const char *model)
{
	return row(name, model)->tokens[MODEL_GENERATED];
}

static void assert_near(double have, double want)
{
	if (fabs(have - want) <= 1e-9 * fmax(1, fabs(want)))
		return;
	print_message("have %.17g, want %.17g\n", have, want);
	fail();
}

static void a_single_model_gets_all_energy_of_its_server(void **state)
{
	struct model_span span;

	(void)state;
	load("a", 0, 10, 100);
	settle("w", 1); /* the counters began before this service */
	model_energy_add(m, worker("w"), 7, GPU, 30, "measured");
	model_energy_add(m, worker("w"), 8, "GPU-b", 20, "measured");
	assert_near(model_worker_pending(worker("w")), 50);
	load("a", 0, 15, 150);
	settle("w", 16);
	assert_near(joules("w", "a"), 50);
	assert_near(generated("w", "a"), 50);
	assert_near(row("w", "a")->tokens[MODEL_PROMPT], 5);
	assert_near(row("w", "a")->joules[1], 20);
	assert_string_equal(model_method_name(row("w", "a")->method), "only model");
	model_span_minute(row("w", "a"), &span);
	assert_near(span.joules_per_token, 1);
	assert_near(span.seconds, 15);
	model_span_start(row("w", "a"), &span);
	assert_near(span.joules_per_token, 1);
}

static void a_fallen_counter_was_reset(void **state)
{
	(void)state;
	list.fresh = true;
	load("a", 0, 0, 100);
	settle("w", 1);
	assert_near(generated("w", "a"), 100); /* the server is younger than the service */
	load("a", 0, 0, 30);
	settle("w", 2);
	assert_near(generated("w", "a"), 130);
	settle("w", 3); /* nothing is loaded */
	load("a", 0, 0, 60);
	settle("w", 4);
	assert_near(generated("w", "a"), 190);
	load("a", 0, NAN, NAN); /* no answer */
	settle("w", 5);
	load("a", 0, 0, 61);
	settle("w", 6);
	assert_near(generated("w", "a"), 191);
}

static void a_model_that_loads_later_counts_from_0(void **state)
{
	(void)state;
	load("a", 0, NAN, NAN);
	settle("w", 1);
	load("a", 0, 5, 500);
	load("b", 0, 6, 600);
	settle("w", 2);
	assert_near(generated("w", "a"), 0); /* the counter of `a` began before this service */
	assert_near(generated("w", "b"), 600);
}

static void models_with_processes_get_the_energy_of_their_process(void **state)
{
	(void)state;
	model_energy_add(m, worker("w"), 11, GPU, 3, "measured");
	model_energy_add(m, worker("w"), 12, GPU, 4, "measured");
	model_energy_add(m, worker("w"), 10, GPU, 5, "measured"); /* the router itself */
	load("a", 11, 1, 1);
	load("b", 12, 1, 99);
	settle("w", 1);
	assert_near(joules("w", "a"), 3);
	assert_near(joules("w", "b"), 4);
	assert_near(joules("w", ""), 5);
	assert_string_equal(model_method_name(row("w", "b")->method), "own process");
	assert_string_equal(model_method_name(row("w", "")->method), "no model");
}

static void models_of_one_process_share_by_tokens(void **state)
{
	(void)state;
	list.fresh = true;
	model_energy_add(m, worker("w"), 10, GPU, 40, "measured");
	load("a", 0, 10, 20);
	load("b", 0, 0, 10);
	settle("w", 1);
	assert_near(joules("w", "a"), 30);
	assert_near(joules("w", "b"), 10);
	assert_string_equal(model_method_name(row("w", "a")->method), "split by tokens");
	model_energy_add(m, worker("w"), 10, GPU, 7, "measured");
	load("a", 0, 10, 20);
	load("b", 0, 0, 10);
	settle("w", 2); /* no tokens: it is unknown which model used the energy */
	assert_near(joules("w", ""), 7);
}

static void unknown_tokens_have_a_reason(void **state)
{
	struct model_span span;

	(void)state;
	model_energy_add(m, worker("w"), 10, GPU, 40, "measured");
	load("a", 0, NAN, NAN);
	settle("w", 1);
	assert_near(joules("w", "a"), 40);
	assert_false(row("w", "a")->counted);
	model_span_start(row("w", "a"), &span);
	assert_true(isnan(span.joules_per_token));
	assert_string_equal(span.why, "the tokens are unknown");
	load("a", 0, 0, 0);
	settle("w", 2);
	model_span_start(row("w", "a"), &span);
	assert_string_equal(span.why, "no tokens were generated");
}

static void the_minute_forgets_what_is_older(void **state)
{
	struct model_span span;

	(void)state;
	list.fresh = true;
	for (unsigned i = 0; i <= 20; i++) {
		model_energy_add(m, worker("w"), 1, GPU, i < 10 ? 1000 : 15, "measured");
		load("a", 0, 0, 30.0 * i);
		settle("w", 100 + 15 * i);
	}
	model_span_minute(row("w", "a"), &span);
	assert_near(span.seconds, 60);
	assert_near(span.joules_per_token, 0.5);
	model_span_start(row("w", "a"), &span);
	assert_near(span.tokens, 600);
	assert_near(span.joules, 10000 + 11 * 15);
}

static void stored_totals_continue_and_do_not_belong_to_this_run(void **state)
{
	struct model_row *r = model_energy_restore(m, "w", "a");
	struct model_span span;

	(void)state;
	r->tokens[MODEL_GENERATED] = 1000;
	r->counted = true;
	r->joules[model_energy_gpu(m, GPU)] = 500;
	model_energy_restored(r);
	model_energy_add(m, worker("w"), 1, GPU, 3, "measured");
	list.fresh = true;
	load("a", 0, 0, 2);
	settle("w", 1);
	assert_near(generated("w", "a"), 1002);
	assert_near(joules("w", "a"), 503);
	model_span_start(row("w", "a"), &span);
	assert_near(span.joules_per_token, 1.5);
}

static unsigned below(uint64_t *seed, unsigned n)
{
	return (unsigned)(next(seed) % n);
}

/* With random servers, models, processes and restarts, and with more models than rows, no
 * energy is lost. */
static void models_and_the_rest_add_up_to_the_energy(void **state)
{
	uint64_t seed = seed_of_run();
	double added = 0, have = 0;
	const struct model_row *r;

	(void)state;
	for (unsigned step = 1; step < 3000; step++) {
		char name[8], model[16];

		snprintf(name, sizeof(name), "w%u", below(&seed, 4));
		for (unsigned i = below(&seed, 100); i > 0; i--) {
			const double j = (double)below(&seed, 1000);

			model_energy_add(m, worker(name), (int64_t)below(&seed, 200),
					 below(&seed, 2) ? GPU : "GPU-b", j, "measured");
			added += j;
		}
		for (unsigned i = below(&seed, 40); i > 0; i--) {
			snprintf(model, sizeof(model), "m%u-%u", step / 1000, i);
			load(model, below(&seed, 2) ? 100 + i : 0, (double)below(&seed, 50),
			     below(&seed, 5) ? 7 : (double)NAN);
		}
		if (below(&seed, 3))
			settle(name, step);
		list.count = 0;
	}
	for (unsigned i = 0; (r = model_energy_row(m, i)); i++)
		have += model_row_joules(r);
	for (unsigned i = 0; i < m->workers; i++)
		have += model_worker_pending(&m->worker[i]);
	assert_near(have, added);
	assert_non_null(row("other", "other"));
	assert_int_equal(m->rows, MODEL_ENERGY_ROWS);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, begin, end)
	const struct CMUnitTest tests[] = {
		T(a_single_model_gets_all_energy_of_its_server),
		T(a_fallen_counter_was_reset),
		T(a_model_that_loads_later_counts_from_0),
		T(models_with_processes_get_the_energy_of_their_process),
		T(models_of_one_process_share_by_tokens),
		T(unknown_tokens_have_a_reason),
		T(the_minute_forgets_what_is_older),
		T(stored_totals_continue_and_do_not_belong_to_this_run),
		T(models_and_the_rest_add_up_to_the_energy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
