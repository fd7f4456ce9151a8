/* Simulates what the guard would decide in a given situation. A separate guard computes it; the
 * running one is not affected. */
#include "guard_doc.h"
#include "guard_question.h"

#include "guard/what_if.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct answer {
	struct json *j;
	const struct policy *policy;
	double left_s[POLICY_WORKERS]; /* time of the first eviction; NAN: none */
	char rule[POLICY_WORKERS][64];
};

static double rounded(uint64_t ns)
{
	return rint((double)ns / 1e6) / 1e3;
}

static void decision(void *arg, const struct guard_decision *d)
{
	struct answer *a = arg;
	bool leaves = d->to == STATE_DRAIN && d->from != STATE_DRAIN;

	if (d->worker >= a->policy->workers)
		return;
	if ((leaves || d->result == RESULT_WITHHELD) && isnan(a->left_s[d->worker])) {
		a->left_s[d->worker] = leaves ? rounded(d->mono_ns) : (double)NAN;
		snprintf(a->rule[d->worker], sizeof(a->rule[0]), "%s", d->rule);
	}
	json_object(a->j, NULL);
	json_double(a->j, "at_seconds", rounded(d->mono_ns));
	json_string(a->j, "worker", a->policy->worker[d->worker].name);
	json_string(a->j, "from", guard_state_name(d->from));
	json_string(a->j, "to", guard_state_name(d->to));
	guard_doc_mask(a->j, "mask", d->mask);
	guard_doc_text(a->j, "rule", d->rule);
	guard_doc_text(a->j, "evidence", d->evidence);
	json_object_end(a->j);
}

static void workers(const struct answer *a, const struct what_if *t)
{
	struct guard_status s;

	json_array(a->j, "workers");
	for (unsigned i = 0; i < a->policy->workers; i++) {
		if (guard_status(what_if_guard(t), i, &s) != 0)
			continue;
		json_object(a->j, NULL);
		json_string(a->j, "name", a->policy->worker[i].name);
		json_bool(a->j, "evicted", !isnan(a->left_s[i]));
		json_double(a->j, "evicted_after_seconds", a->left_s[i]);
		guard_doc_text(a->j, "rule", a->rule[i]);
		json_string(a->j, "state", guard_state_name(s.state));
		guard_doc_mask(a->j, "mask", s.mask);
		json_uint(a->j, "need_bytes", s.need_bytes);
		guard_doc_text(a->j, "why", s.why);
		json_object_end(a->j);
	}
	json_array_end(a->j);
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

static void write_answer(const struct api *a, const struct guard_view *g, struct what_if *t,
			 double seconds, struct reply *r)
{
	struct answer answer = { .policy = g->policy };
	struct json j;

	answer.j = &j;
	for (unsigned i = 0; i < POLICY_WORKERS; i++)
		answer.left_s[i] = NAN;
	api_begin(&j, a, r);
	json_string(&j, "mode", guard_modes[g->policy->mode]);
	json_array(&j, "decisions");
	what_if_run(t, (uint64_t)(seconds * 1e9), decision, &answer);
	json_array_end(&j);
	json_double(&j, "seconds", rounded(what_if_span_ns(t)));
	json_uint(&j, "looks", what_if_scenes(t));
	workers(&answer, t);
	write_gpus(&j, g, t);
	api_end(&j);
}

/* ---- the policy ---- */

/* Changes the worker indices of the scene's roots from those of policy `from` to those of
 * policy `to`. Drops roots of workers that `to` does not have. */
static void renumber(struct scene *s, const struct policy *from, const struct policy *to)
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

/* Everything for one request, in one allocation. */
struct simulation_request {
	struct guard_view view; /* view of the running guard, with the policy of the request */
	/* policy of the request; policy.memory is NULL if the request has no policy */
	struct policy policy;
	struct scene now, before;
	struct guard_question question;
};

/* Uses the policy of the request if there is one, else the running one. */
static int choose_policy(struct simulation_request *x, const struct api *a,
			 const struct request *q, char *message, size_t size)
{
	char *toml = guard_question_policy(q->body, q->size);
	int err = 0;

	if (toml && !a->view.guard_ops->policy)
		err = -GW_E_NOSUPPORT;
	else if (toml)
		err = a->view.guard_ops->policy(toml, strlen(toml), &x->policy, message, size);
	if (toml && !err) {
		x->view.policy = &x->policy;
		renumber(&x->now, a->view.guard->policy, &x->policy);
	}
	free(toml);
	return err;
}

static int prepare(struct simulation_request *x, const struct api *a, const struct request *q,
		   struct what_if **ret, char *message, size_t size)
{
	const struct scene *now = a->view.guard->scene;
	int err;

	x->view = *a->view.guard;
	if (now)
		x->now = *now;
	err = choose_policy(x, a, q, message, size);
	if (!err)
		err = guard_question_read(q->body, q->size, x->view.policy,
					  now ? &x->now : NULL, &x->question, message, size);
	if (err)
		return err;
	if (x->question.made_up)
		what_if_before(x->view.policy, &x->question.scene, &x->before);
	else
		x->before = x->now;
	return what_if_new(x->view.policy, &x->before, &x->question.scene, ret);
}

void api_guard_simulate(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	struct simulation_request *x = NULL;
	struct what_if *t = NULL;
	char message[256] = "";
	int err;

	if (!guard_doc_may_ask(a, q, r))
		return;
	x = calloc(1, sizeof(*x));
	err = x ? prepare(x, a, q, &t, message, sizeof(message)) : -GW_E_NOMEM;
	if (!err)
		write_answer(a, &x->view, t, x->question.seconds, r);
	else if (err == -GW_E_PARSE)
		reply_problem(r, 400, "bad-body", NULL, "%s", message);
	else
		reply_problem(r, 503, "no-reading", "Try again in a moment, or send \"gpus\".",
			      "%s",
			      err == -GW_E_STATE ? "the guard has not observed a scene yet"
						 : gw_strerror(err));
	what_if_free(t);
	if (x)
		policy_done(&x->policy);
	free(x);
}
