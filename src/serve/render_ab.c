#include "render_ab.h"

#include "measure/stat.h"

#include <math.h>

static const char *const verdicts[] = {
	[AB_INCONCLUSIVE] = "cannot-tell",
	[AB_BETTER] = "better",
	[AB_WORSE] = "worse",
};

/* Returns a word that says why the comparison ended: "decided", "precise", "budget", "invalid",
 * "shared", "failed", "interrupted". */
static const char *ab_report_ending(const struct ab_report *r)
{
	static const char *const words[] = {
		[AB_DECIDED] = "decided", [AB_PRECISE] = "precise", [AB_BUDGET] = "budget",
		[AB_INVALID] = "invalid", [AB_SHARED] = "shared",
	};

	if (r->failed)
		return "failed";
	return r->result.outcome == AB_RUNNING ? "interrupted" : words[r->result.outcome];
}

const char *ab_report_gate(const struct ab_report *r)
{
	static const char *const words[] = {
		[AB_INCONCLUSIVE] = "cannot-tell",
		[AB_BETTER] = "passed",
		[AB_WORSE] = "failed",
	};

	if (!r->config->gated)
		return NULL;
	return words[r->result.ab[r->config->gate.metric].verdict];
}

static double run_value(const struct ab_record *run, enum ab_metric metric)
{
	switch (metric) {
	case AB_ENERGY: return run->energy.best;
	case AB_TIME: return run->seconds;
	case AB_POWER: return run->power_w;
	case AB_EDP: return run->energy.best * run->seconds;
	case AB_METRICS: break;
	}
	return NAN;
}

double ab_report_mean(const struct ab_report *r, enum ab_arm arm, enum ab_metric metric)
{
	struct moments m;

	moments_init(&m);
	for (unsigned i = 0; i < r->runs; i++)
		if (r->run[i].used && r->run[i].step.phase == AB_PHASE_AB &&
		    r->run[i].step.arm == arm)
			moments_add(&m, run_value(&r->run[i], metric));
	return moments_mean(&m);
}

unsigned ab_report_residual(const struct ab_report *r, double *ret_mean, double *ret_sd)
{
	struct moments m;
	unsigned n = 0;

	moments_init(&m);
	for (unsigned i = 0; i < r->runs; i++)
		if (r->run[i].used && !isnan(r->run[i].residual_ratio)) {
			moments_add(&m, r->run[i].residual_ratio);
			n++;
		}
	*ret_mean = moments_mean(&m);
	*ret_sd = sqrt(moments_variance(&m));
	return n;
}

unsigned ab_report_code(const struct ab_report *r, unsigned code)
{
	unsigned n = 0;

	for (unsigned i = 0; i < r->runs; i++)
		n += (r->run[i].codes & UINT64_C(1) << code) != 0;
	return n;
}

static void write_interval(struct json *j, const char *key, struct ab_interval v)
{
	if (!json_object_if(j, key, !isnan(v.low) && !isnan(v.high)))
		return;
	json_double(j, "low", v.low);
	json_double(j, "high", v.high);
	json_object_end(j);
}

static void write_estimate(struct json *j, const struct ab_estimate *e)
{
	json_uint(j, "pairs", e->n);
	json_double(j, "ratio", e->ratio);
	write_interval(j, "interval", e->interval);
	json_string(j, "interval_kind", e->skewed ? "t+bca" : "t");
	json_double(j, "alpha", e->alpha);
	write_interval(j, "t", e->t);
	write_interval(j, "bca", e->bca);
	write_interval(j, "percentile", e->percentile);
	json_double(j, "mean_log", e->mean_log);
	json_double(j, "sd_log", e->sd_log);
	json_double(j, "skewness", e->skewness);
	json_double(j, "offset_uncertainty_log", e->offset_u_log);
	json_double(j, "smallest_effect_ratio", e->mde_ratio);
}

static void write_noise(struct json *j, const struct ab_report *r)
{
	json_object(j, "aa");
	for (unsigned m = 0; m < AB_METRICS; m++) {
		json_object(j, ab_metric_name((enum ab_metric)m));
		write_estimate(j, &r->result.aa[m]);
		json_object_end(j);
	}
	json_object_end(j);
}

static void write_metrics(struct json *j, const struct ab_report *r)
{
	static const char *const units[] = { "joules", "seconds", "watts", "joule_seconds" };

	json_object(j, "ab");
	for (unsigned i = 0; i < AB_METRICS; i++) {
		enum ab_metric m = (enum ab_metric)i;

		json_object(j, ab_metric_name(m));
		json_string(j, "unit", units[m]);
		json_double(j, "a_mean", ab_report_mean(r, AB_ARM_A, m));
		json_double(j, "b_mean", ab_report_mean(r, AB_ARM_B, m));
		json_string(j, "verdict", verdicts[r->result.ab[m].verdict]);
		write_estimate(j, &r->result.ab[m]);
		json_object_end(j);
	}
	json_object_end(j);
}

static void write_gate(struct json *j, const struct ab_report *r)
{
	const struct ab_gate *g = &r->config->gate;

	if (!json_object_if(j, "gate", r->config->gated))
		return;
	json_string(j, "text", r->gate);
	json_string(j, "metric", ab_metric_name(g->metric));
	json_string(j, "operator",
		    g->above      ? g->or_equal ? ">=" : ">"
		    : g->or_equal ? "<="
				  : "<");
	json_double(j, "change_ratio", g->change);
	json_string(j, "outcome", ab_report_gate(r));
	json_object_end(j);
}

static void write_config(struct json *j, const struct ab_report *r)
{
	const struct ab_config *c = r->config;

	json_object(j, "config");
	json_uint(j, "pairs_max", c->pairs_max);
	json_uint(j, "aa_pairs", c->aa_pairs);
	json_double(j, "target_ratio", c->target_ratio > 0 ? c->target_ratio : NAN);
	json_uint(j, "seed", c->seed);
	json_uint(j, "resamples", c->resamples);
	json_uint(j, "warmup", r->warmup);
	json_double(j, "iterations", r->iterations);
	json_string(j, "part", r->part);
	json_bool(j, "require_exclusive", c->require_exclusive);
	json_double(j, "offset_watts", c->offset_w);
	json_bool(j, "cooldown", r->cooled);
	json_double(j, "cooldown_to_celsius", r->cool_to_c);
	json_object_end(j);
}

static void write_looks(struct json *j, const struct ab_report *r)
{
	json_array(j, "looks");
	for (unsigned i = 0; i < r->looks; i++) {
		const struct ab_estimate *e = &r->look[i];

		json_object(j, NULL);
		json_uint(j, "pairs", e->n);
		json_double(j, "ratio", e->ratio);
		write_interval(j, "interval", e->interval);
		json_string(j, "interval_kind", e->skewed ? "t+bca" : "t");
		json_double(j, "alpha", e->alpha);
		json_string(j, "verdict", verdicts[e->verdict]);
		json_object_end(j);
	}
	json_array_end(j);
}

static const char *phase_name(enum ab_phase phase)
{
	return phase == AB_PHASE_AA ? "aa" : "ab";
}

static const char *arm_name(enum ab_arm arm)
{
	return arm == AB_ARM_A ? "a" : "b";
}

/* Writes the pairs that the comparison uses. The two runs of a pair are adjacent in the list of
 * runs. */
static void write_pairs(struct json *j, const struct ab_report *r)
{
	json_array(j, "pairs");
	for (unsigned i = 0; i + 1 < r->runs; i++) {
		const struct ab_record *first = &r->run[i], *second = &r->run[i + 1];
		bool a_first = first->step.arm == AB_ARM_A;

		if (!first->used)
			continue;
		i++;
		json_object(j, NULL);
		json_string(j, "phase", phase_name(first->step.phase));
		json_uint(j, "number", first->step.pair + 1);
		json_string(j, "first", arm_name(first->step.arm));
		for (unsigned m = 0; m < AB_METRICS; m++) {
			double a = run_value(a_first ? first : second, (enum ab_metric)m);
			double b = run_value(a_first ? second : first, (enum ab_metric)m);

			json_double(j, ab_metric_name((enum ab_metric)m), b / a);
		}
		json_object_end(j);
	}
	json_array_end(j);
}

static void write_runs(struct json *j, const struct ab_report *r)
{
	json_array(j, "runs");
	for (unsigned i = 0; i < r->runs; i++) {
		const struct ab_record *run = &r->run[i];

		json_object(j, NULL);
		json_string(j, "phase", phase_name(run->step.phase));
		json_uint(j, "pair", run->step.pair + 1);
		json_string(j, "arm", arm_name(run->step.arm));
		json_string(j, "command", arm_name(run->step.command));
		json_bool(j, "used", run->used);
		json_time(j, "begin_time", run->begin_wall_ns);
		json_double(j, "seconds", run->seconds);
		render_interval(j, "energy_relative_joules", &run->energy);
		json_double(j, "uncertainty_relative_joules", run->u_j);
		json_double(j, "power_mean_watts", run->power_w);
		json_double(j, "residual_ratio", run->residual_ratio);
		json_double(j, "temperature_begin_celsius", run->temperature_c);
		json_string(j, "validity", gw_validity_name(run->validity));
		render_codes(j, run->codes);
		json_object_end(j);
	}
	json_array_end(j);
}

static void write_codes(struct json *j, const struct ab_report *r)
{
	json_array(j, "codes");
	for (unsigned c = 0; c < GW_CODES; c++) {
		unsigned n = ab_report_code(r, c);

		if (n == 0)
			continue;
		json_object(j, NULL);
		json_string(j, "code", gw_code_info(c)->key);
		json_string(j, "sentence", gw_code_info(c)->sentence);
		json_uint(j, "runs", n);
		json_object_end(j);
	}
	json_array_end(j);
}

static void write_sides(struct json *j, const struct ab_report *r)
{
	for (unsigned i = 0; i < 2; i++) {
		json_object(j, arm_name((enum ab_arm)i));
		json_string(j, "command_name", r->side[i].name);
		json_string(j, "command", r->side[i].command);
		json_object_end(j);
	}
}

static void write_judgement(struct json *j, const struct ab_report *r)
{
	double mean, sd;
	unsigned n = ab_report_residual(r, &mean, &sd);

	json_string(j, "ending", ab_report_ending(r));
	json_int(j, "exit_code", r->exit_code);
	json_int_if(j, "interrupted_by", r->interrupted, r->interrupted);
	if (json_object_if(j, "failure", r->failed)) {
		json_string(j, "command", arm_name(r->failed_arm));
		json_int(j, "status", r->failed_status);
		json_string(j, "reason", r->failure);
		json_object_end(j);
	}
	write_gate(j, r);
	json_uint(j, "pairs_dropped", r->result.repeats);
	json_bool(j, "aa_alarm", r->result.aa_alarm);
	json_double(j, "smallest_effect_budget_ratio", r->result.mde_budget_ratio);
	json_double(j, "planned_pairs", r->result.planned_pairs);
	json_object(j, "residual");
	json_uint(j, "runs", n);
	json_double(j, "mean_ratio", mean);
	json_double(j, "sd_ratio", sd);
	json_object_end(j);
	json_double(j, "cooldown_seconds", r->cool_s);
	json_uint(j, "cooldown_timeouts", r->cool_late);
}

void render_ab(struct json *j, const struct ab_report *r, const struct gw_environment *env,
	       const struct gw_snapshot *snap, const struct render_filter *filter)
{
	render_kept_head(j, "comparison", NULL, r->wall_ns, r->simulated);
	write_sides(j, r);
	write_config(j, r);
	write_judgement(j, r);
	render_room(j, r->room);
	write_noise(j, r);
	write_metrics(j, r);
	write_looks(j, r);
	write_codes(j, r);
	write_pairs(j, r);
	write_runs(j, r);
	json_next_key(j, "environment");
	if (env)
		render_environment(j, env, snap, filter);
	else
		json_null(j, NULL);
	json_object_end(j);
}
