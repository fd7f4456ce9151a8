/* Simulates what the guard would decide in a given situation. A separate guard computes the
 * decisions; the running guard is not affected.
 *
 * The request can contain any patterns, and comparing them with command lines can take long.
 * Therefore a thread compares them and runs the guard, with a limit of CPU time, while the main
 * thread answers other requests. One simulation runs at a time. */
#include "guard_doc.h"
#include "guard_question.h"

#include "guard/guard_query.h"

#include "base/mailbox.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CPU_MOST_NS (2 * NS_PER_S)
#define POLL_NS     (10 * NS_PER_MS)
/* maximum time that a request waits until the simulation of another client ends */
#define WAIT_MOST_NS  (10 * NS_PER_S)
#define STOP_MOST_NS  (1 * NS_PER_S)
#define DECISIONS_MAX ((size_t)1 << 20) /* maximum bytes of the decisions as JSON */

/* One simulation, in one allocation. The main thread uses only the mailbox until the thread of
 * the simulation has ended. */
struct simulation {
	struct mailbox box;
	uint64_t number;
	struct guard_view view; /* copy of the running guard's view, with the policy below */
	/* the policy in the request, or a copy of the running guard's policy */
	struct policy policy;
	struct scene now, before;
	struct guard_question question;
	struct what_if *what_if;
	/* The simulation is aborted when the CPU clock of its thread reaches this time. */
	uint64_t cpu_end_ns;
	int error;     /* 0, or -GW_E_TIMEOUT: the limit of CPU time was reached */
	struct json j; /* The writer of `decisions`. */
	struct buf decisions;
	/* Simulated time of the first eviction of each worker, in seconds; NAN: not evicted. */
	double left_s[POLICY_WORKERS];
	char rule[POLICY_WORKERS][64];
};

static double rounded_seconds(uint64_t ns)
{
	return rint((double)ns / 1e6) / 1e3;
}

static void write_decision(void *arg, const struct guard_decision *d)
{
	struct simulation *x = arg;
	bool leaves = d->to == STATE_DRAIN && d->from != STATE_DRAIN;

	if (d->worker >= x->policy.workers)
		return;
	if ((leaves || d->result == RESULT_WITHHELD) && isnan(x->left_s[d->worker])) {
		x->left_s[d->worker] = leaves ? rounded_seconds(d->mono_ns) : (double)NAN;
		snprintf(x->rule[d->worker], sizeof(x->rule[0]), "%s", d->rule);
	}
	json_object(&x->j, NULL);
	json_double(&x->j, "at_seconds", rounded_seconds(d->mono_ns));
	json_string(&x->j, "worker", x->policy.worker[d->worker].name);
	json_string(&x->j, "from", guard_state_name(d->from));
	json_string(&x->j, "to", guard_state_name(d->to));
	guard_doc_mask(&x->j, "mask", d->mask);
	render_text(&x->j, "rule", d->rule);
	render_text(&x->j, "evidence", d->evidence);
	json_object_end(&x->j);
}

static void write_workers(struct json *j, const struct simulation *x)
{
	struct guard_status s;

	json_array(j, "workers");
	for (unsigned i = 0; i < x->policy.workers; i++) {
		if (guard_status(what_if_guard(x->what_if), i, &s) != 0)
			continue;
		json_object(j, NULL);
		json_string(j, "name", x->policy.worker[i].name);
		json_bool(j, "evicted", !isnan(x->left_s[i]));
		json_double(j, "evicted_after_seconds", x->left_s[i]);
		render_text(j, "rule", x->rule[i]);
		json_string(j, "state", guard_state_name(s.state));
		guard_doc_mask(j, "mask", s.mask);
		json_uint(j, "need_bytes", s.need_bytes);
		render_text(j, "why", s.why);
		json_object_end(j);
	}
	json_array_end(j);
}

static void write_gpus(struct json *j, const struct guard_view *g, const struct what_if *t)
{
	struct guard_view of = { .policy = g->policy,
				 .guard = (struct guard *)what_if_guard(t) };
	const struct scene *s;

	guard_verdicts(of.guard, &s);
	json_array(j, "gpus");
	for (unsigned i = 0; i < s->gpus; i++) {
		json_object(j, NULL);
		json_string(j, "uuid", s->gpu[i].uuid);
		json_uint(j, "index", s->gpu[i].index);
		json_double(j, "memory_free_bytes",
			    s->gpu[i].memory_known ? (double)s->gpu[i].free_bytes
						   : (double)NAN);
		guard_doc_processes(j, &of, i);
		json_object_end(j);
	}
	json_array_end(j);
}

static void write_answer(const struct api *a, const struct simulation *x, struct reply *r)
{
	struct json j;

	api_begin(&j, a, r);
	json_string(&j, "mode", guard_modes[x->policy.mode]);
	json_raw(&j, "decisions", x->decisions.p);
	json_double(&j, "seconds", rounded_seconds(what_if_span_ns(x->what_if)));
	json_uint(&j, "looks", what_if_scenes(x->what_if));
	write_workers(&j, x);
	write_gpus(&j, &x->view, x->what_if);
	api_end(&j);
}

static void write_error(struct reply *r, int err, const char *message)
{
	if (err == -GW_E_PARSE)
		reply_problem(r, 400, "bad-body", NULL, "%s", message);
	else if (err == -GW_E_TIMEOUT)
		reply_problem(r, 400, "too-much-work",
			      "Send fewer processes and rules, or simpler patterns in "
			      "match.command.",
			      "the simulation was ended after %d s of CPU time",
			      (int)(CPU_MOST_NS / NS_PER_S));
	else if (err == -GW_E_STATE)
		reply_problem(r, 503, "no-reading", "Try again in a moment, or send \"gpus\".",
			      "the guard has not observed a scene yet");
	else
		reply_problem(r, 503, "not-done", "Try again in a moment.",
			      "the simulation failed: %s", gw_strerror(err));
}

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static bool simulation_continues(void *arg)
{
	struct simulation *x = arg;

	return cpu_ns() < x->cpu_end_ns && !mailbox_stopping(&x->box);
}

/* Compares every command line of the scene with the patterns. This is done once, and the guard
 * uses the results in each scene of the simulation. */
static int match_commands(struct simulation *x)
{
	struct scene *s = &x->question.scene;
	struct classifier *c = NULL;
	int err = classifier_new(&x->policy, &c);

	for (unsigned i = 0; !err && i < s->processes; i++) {
		if (s->process[i].command_match != COMMAND_MATCHED)
			classifier_match_command(c, &s->process[i]);
		if (!simulation_continues(x))
			err = -GW_E_TIMEOUT;
	}
	classifier_free(c);
	return err;
}

/* Makes the first scene of the simulation. The guard observes it before the scene of the
 * request. */
static void make_before(struct simulation *x)
{
	const struct scene *s = &x->question.scene;

	if (x->question.made_up) {
		what_if_before(&x->policy, s, &x->before);
		return;
	}
	x->before = x->now;
	/* In the scene of the request, the processes of the current scene come first and have
	 * the same indices. */
	for (unsigned i = 0; i < x->now.processes; i++) {
		x->before.process[i].command_match = s->process[i].command_match;
		memcpy(x->before.process[i].patterns, s->process[i].patterns,
		       sizeof(s->process[i].patterns));
	}
}

static void simulation_run(void *arg)
{
	struct simulation *x = arg;

	x->cpu_end_ns = cpu_ns() + CPU_MOST_NS;
	x->error = match_commands(x);
	if (x->error)
		return;
	make_before(x);
	x->error = what_if_new(&x->policy, &x->before, &x->question.scene, &x->what_if);
	if (x->error)
		return;
	json_init(&x->j, &x->decisions, false);
	json_array(&x->j, NULL);
	if (!what_if_run(x->what_if, (uint64_t)(x->question.seconds * 1e9), write_decision,
			 simulation_continues, x)) {
		x->error = -GW_E_TIMEOUT;
		return;
	}
	json_array_end(&x->j);
	x->error = json_end(&x->j);
}

static void simulation_free(void *arg)
{
	struct simulation *x = arg;

	what_if_free(x->what_if);
	policy_done(&x->policy);
	buf_done(&x->decisions);
	mailbox_done(&x->box);
	free(x);
}

/* Waits up to STOP_MOST_NS for the thread to end, then frees the simulation. */
static void simulation_end(struct simulation *x)
{
	/* If the thread has not ended within this time, the thread frees the simulation
	 * itself. */
	if (mailbox_stop(&x->box, STOP_MOST_NS) == 0)
		simulation_free(x);
}

/* Changes the worker indices of the scene's roots from those of policy `from` to those of
 * policy `to`. Drops roots of workers that `to` does not have. */
static void renumber_roots(struct scene *s, const struct policy *from, const struct policy *to)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < s->roots; i++)
		for (unsigned w = 0; w < to->workers; w++) {
			if (s->root[i].worker >= from->workers ||
			    strcmp(from->worker[s->root[i].worker].name, to->worker[w].name) !=
				    0)
				continue;
			s->root[kept] = s->root[i];
			s->root[kept++].worker = w;
			break;
		}
	s->roots = kept;
}

/* Uses the policy of the request. If there is none, copies the running policy, because a reload
 * can free the original while the thread runs. */
static int choose_policy(struct simulation *x, const struct api *a, const struct request *q,
			 char *message, size_t size)
{
	char *toml = guard_question_policy(q->body, q->size);
	int err;

	if (!toml)
		err = policy_copy(&x->policy, a->view.guard->policy);
	else if (!a->view.guard_ops->policy)
		err = -GW_E_NOSUPPORT;
	else
		err = a->view.guard_ops->policy(toml, strlen(toml), &x->policy, message, size);
	x->view.policy = &x->policy;
	if (toml && !err) {
		renumber_roots(&x->now, a->view.guard->policy, &x->policy);
		for (unsigned i = 0; i < x->now.processes; i++)
			x->now.process[i].command_match = COMMAND_UNMATCHED;
	}
	free(toml);
	return err;
}

static int prepare_simulation(struct simulation *x, const struct api *a,
			      const struct request *q, char *message, size_t size)
{
	const struct scene *now = a->view.guard->scene;
	int err;

	x->view = *a->view.guard;
	if (now)
		x->now = *now;
	for (unsigned i = 0; i < POLICY_WORKERS; i++)
		x->left_s[i] = NAN;
	err = choose_policy(x, a, q, message, size);
	return err ? err
		   : guard_question_read(q->body, q->size, &x->policy, a->view.guard_ops,
					 now ? &x->now : NULL, &x->question, message, size);
}

/* The data that a waiting request keeps between the calls of its handler. */
struct wait {
	/* The request waits for the end of another simulation until this monotonic time. */
	uint64_t until_ns;
	/* Number of the simulation that this request started; 0: the request has not started a
	 * simulation yet. */
	uint64_t number;
};

static bool simulation_runs(struct simulation *x)
{
	bool runs;

	mailbox_lock(&x->box);
	runs = x->box.running > 0;
	mailbox_unlock(&x->box);
	return runs;
}

static void simulation_start(struct api *a, const struct request *q, struct wait *w,
			     struct reply *r)
{
	struct simulation *x = calloc(1, sizeof(*x));
	char message[256] = "";
	int err;

	if (!x) {
		write_error(r, -GW_E_NOMEM, "");
		return;
	}
	mailbox_init(&x->box, 0);
	buf_init(&x->decisions, DECISIONS_MAX);
	err = prepare_simulation(x, a, q, message, sizeof(message));
	if (!err)
		err = mailbox_start(&x->box, 0, simulation_run, simulation_free, x);
	if (err) {
		simulation_free(x);
		write_error(r, err, message);
		return;
	}
	x->number = w->number = ++a->simulations;
	a->simulation = x;
	reply_again(r, api_now(a) + POLL_NS);
}

void api_guard_simulate_done(struct api *a)
{
	if (a->simulation)
		simulation_end(a->simulation);
	a->simulation = NULL;
}

void api_guard_simulate(void *arg, const struct request *q, struct reply *r)
{
	struct api *a = arg;
	struct wait *w = *q->memory;

	if (!guard_doc_may_ask(a, r))
		return;
	if (!w)
		*q->memory = w = calloc(1, sizeof(*w));
	if (!w) {
		write_error(r, -GW_E_NOMEM, "");
	} else if (a->simulation && simulation_runs(a->simulation)) {
		if (!w->until_ns)
			w->until_ns = api_now(a) + WAIT_MOST_NS;
		if (w->number || api_now(a) < w->until_ns)
			reply_again(r, api_now(a) + POLL_NS);
		else
			reply_problem(r, 503, "busy", "Try again in a moment.",
				      "another simulation is running, and only one can run at "
				      "a time");
	} else if (a->simulation && a->simulation->number == w->number) {
		if (a->simulation->error)
			write_error(r, a->simulation->error, "");
		else
			write_answer(a, a->simulation, r);
		api_guard_simulate_done(a);
	} else {
		/* If a->simulation is set, it has ended, and its client has disconnected. */
		api_guard_simulate_done(a);
		simulation_start(a, q, w, r);
	}
}
