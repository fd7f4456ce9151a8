#include "manage.h"

#include "context.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NONE          GW_QUANTITIES
#define CAP_SYS_ADMIN 21

static const struct manage_info infos[MANAGE_WHATS] = {
	[MANAGE_PERSISTENCE] = { "persistence-mode", "persistence mode", 1, true,
				 GW_Q_PERSISTENCE, NONE, NONE, NONE },
	[MANAGE_POWER_LIMIT] = { "power-limit", "the power limit", 1, true, GW_Q_POWER_LIMIT,
				 GW_Q_POWER_LIMIT_MIN, GW_Q_POWER_LIMIT_MAX,
				 GW_Q_POWER_LIMIT_DEFAULT },
	[MANAGE_COMPUTE_MODE] = { "compute-mode", "compute mode", 1, true, GW_Q_COMPUTE_MODE,
				  NONE, NONE, NONE },
	[MANAGE_GPU_CLOCKS] = { "gpu-clocks", "the GPU clock lock", 2, false, NONE, NONE,
				GW_Q_CLOCK_SM_MAX, NONE },
	[MANAGE_MEMORY_CLOCKS] = { "memory-clocks", "the memory clock lock", 2, false, NONE,
				   NONE, GW_Q_CLOCK_MEMORY_MAX, NONE },
	[MANAGE_CLEAR_ECC] = { "clear-ecc", "the ECC counters since driver load", 0, true,
			       GW_Q_ECC_CORRECTED, NONE, NONE, NONE },
};

const struct manage_info *manage_info(enum manage_what what)
{
	return (unsigned)what < MANAGE_WHATS ? &infos[what] : NULL;
}

enum manage_what manage_find(const char *word)
{
	unsigned i = 0;

	while (i < MANAGE_WHATS && strcmp(infos[i].word, word) != 0)
		i++;
	return (enum manage_what)i;
}

void manage_text(enum manage_what what, const double v[2], char *out, size_t size)
{
	if (isnan(v[0])) {
		snprintf(out, size, "unknown");
		return;
	}
	switch (what) {
	case MANAGE_PERSISTENCE: snprintf(out, size, v[0] != 0 ? "on" : "off"); break;
	case MANAGE_POWER_LIMIT: snprintf(out, size, "%.10g W", v[0]); break;
	case MANAGE_COMPUTE_MODE: gw_quantity_name(GW_Q_COMPUTE_MODE, v[0], out, size); break;
	case MANAGE_CLEAR_ECC:
		snprintf(out, size, "%.0f corrected and %.0f uncorrected errors", v[0], v[1]);
		break;
	default:
		snprintf(out, size, "%.10g MHz to %.10g MHz", v[0] / MANAGE_HZ_PER_MHZ,
			 v[1] / MANAGE_HZ_PER_MHZ);
	}
}

bool manage_same(enum manage_what what, const double a[2], const double b[2])
{
	double step = what == MANAGE_POWER_LIMIT ? 1e-3
		      : infos[what].values == 2  ? MANAGE_HZ_PER_MHZ
						 : 1;
	unsigned n = infos[what].values == 1 ? 1 : 2;

	for (unsigned i = 0; i < n; i++)
		if (isnan(a[i]) != isnan(b[i]) || fabs(a[i] - b[i]) >= 0.75 * step)
			return false;
	return true;
}

bool manage_privileged(const struct root *root, unsigned euid)
{
	char text[4096];
	const char *at;
	uint64_t set;

	if (euid == 0)
		return true;
	if (root_read(root, "proc/self/status", text, sizeof(text)) <= 0)
		return false;
	at = strstr(text, "\nCapEff:");
	return at && sscanf(at + 8, "%" SCNx64, &set) == 1 && set >> CAP_SYS_ADMIN & 1;
}

enum step { STEP_CHECK, STEP_SET, STEP_CANCELLED };

enum manage_action {
	ACTION_SET,    /* Set the value `target`. */
	ACTION_UNLOCK, /* Remove the clock lock. */
	ACTION_NONE, /* Do nothing: the value is already right, or the driver has no default. */
};

struct manage_job {
	struct manage_change c;
	struct manage_result r;
	const struct root *root;
	double target[2];
	enum manage_action action;
	/* The caller sets STEP_CANCELLED when it stops waiting. A step that has not started by
	 * then is not carried out. */
	_Atomic int step;
};

static int manage_refuse(struct manage_result *r, int error, const char *remedy,
			 const char *fmt, ...) __attribute__((format(printf, 4, 5)));

static int manage_refuse(struct manage_result *r, int error, const char *remedy,
			 const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r->message, sizeof(r->message), fmt, ap);
	va_end(ap);
	r->error = error;
	r->remedy = remedy;
	return error;
}

/* Returns what the user can do about an error of the driver. */
static const char *remedy_of(int error)
{
	switch (error) {
	case -GW_E_PERM:
		return "run the service as root or with CAP_SYS_ADMIN; in a container "
		       "give it that capability (--cap-add SYS_ADMIN)";
	case -GW_E_NOSUPPORT:
		return "this GPU or its driver does not have this setting; leave it unchanged";
	case -GW_E_STATE:
		return "stop the programs that use the GPU, or turn off MIG mode, and try "
		       "again";
	case -GW_E_LOST: return "check the state of the GPU and its driver with gpuward doctor";
	case -GW_E_TIMEOUT:
		return "the driver hangs; check the kernel log (dmesg) for its errors";
	default: return NULL;
	}
}

static void refuse_driver_error(struct manage_job *job, int error, const char *verb,
				const char *detail)
{
	manage_refuse(&job->r, error, remedy_of(error), "%s could not be %s: %s",
		      infos[job->c.what].name, verb, *detail ? detail : gw_strerror(error));
}

static bool check_device(struct manage_job *job, struct device *d)
{
	const struct backend *b = d->backend;
	const char *name = infos[job->c.what].name;

	if (!b->open) {
		manage_refuse(&job->r, -GW_E_LOST, remedy_of(-GW_E_LOST),
			      "the driver of this GPU is not open");
	} else if (!b->ops->set) {
		manage_refuse(&job->r, -GW_E_NOSUPPORT,
			      "use the backend nvml: only NVIDIA's library can change settings",
			      "%s cannot be changed through backend %s", name, b->ops->name);
	} else if (d->r.state == GW_DEVICE_LOST || d->r.state == GW_DEVICE_CLOSED) {
		manage_refuse(&job->r, -GW_E_LOST, remedy_of(-GW_E_LOST),
			      "the GPU does not answer: %s", d->r.message);
	} else if (!b->ops->can_set(d, job->c.what)) {
		manage_refuse(&job->r, -GW_E_NOSUPPORT, "install a newer driver",
			      "%s cannot be changed: this driver has no call for it", name);
	} else if (!atomic_load(&b->simulated) && !manage_privileged(job->root, geteuid())) {
		manage_refuse(&job->r, -GW_E_PERM, remedy_of(-GW_E_PERM),
			      "only root can change %s, and the service does not run as root",
			      name);
	}
	return job->r.error == 0;
}

static double manage_bound(const struct device *d, unsigned quantity)
{
	return quantity != NONE && report_has(&d->r, quantity) ? d->r.v[quantity] : NAN;
}

static void refuse_bounds(struct manage_job *job, double low, double high)
{
	const struct manage_info *i = &infos[job->c.what];
	bool clocks = i->values == 2;
	double unit = clocks ? MANAGE_HZ_PER_MHZ : 1;
	char value[64];

	manage_text(job->c.what, job->target, value, sizeof(value));
	manage_refuse(&job->r, -GW_E_ARG, "choose a value within the bounds",
		      "%s can be from %.10g %s to %.10g %s on this GPU; %s is outside", i->name,
		      low / unit, clocks ? "MHz" : "W", high / unit, clocks ? "MHz" : "W",
		      value);
}

static void check_value(struct manage_job *job, const struct device *d)
{
	const struct manage_info *i = &infos[job->c.what];
	double low = manage_bound(d, i->lowest), high = manage_bound(d, i->highest);
	const double *v = job->target;

	if (i->values == 2 && isnan(low))
		low = MANAGE_HZ_PER_MHZ;
	for (unsigned k = 0; k < i->values; k++)
		if (!isfinite(v[k]) || v[k] < 0 || v[k] > 4e12)
			manage_refuse(&job->r, -GW_E_ARG, "use a number that is not negative",
				      "%s does not accept this value", i->name);
	if (job->r.error)
		return;
	if (i->values == 2 && v[0] > v[1])
		manage_refuse(&job->r, -GW_E_ARG,
			      "exchange the two clocks: the lowest clock comes first",
			      "the lowest clock is above the highest");
	else if (v[0] < low || v[i->values == 2] > high)
		refuse_bounds(job, low, high);
	else if (job->c.what == MANAGE_COMPUTE_MODE && v[0] != 0 && v[0] != 2 && v[0] != 3)
		manage_refuse(&job->r, -GW_E_ARG,
			      "choose default, exclusive_process or prohibited",
			      "there is no compute mode %g", v[0]);
	else if (job->c.what == MANAGE_PERSISTENCE && v[0] != 0 && v[0] != 1)
		manage_refuse(&job->r, -GW_E_ARG, "use 1 (on) or 0 (off)",
			      "persistence mode can only be on or off, not %g", v[0]);
}

/* True if someone else set the current value; the setting is then not restored. */
static bool is_foreign(const struct manage_job *job)
{
	const struct manage_change *c = &job->c;

	return infos[c->what].readable && !manage_same(c->what, job->r.before, c->ours) &&
	       !manage_same(c->what, job->r.before, c->earlier);
}

static void refuse_foreign(struct manage_job *job)
{
	char now[64], ours[64];

	manage_text(job->c.what, job->r.before, now, sizeof(now));
	manage_text(job->c.what, job->c.ours, ours, sizeof(ours));
	job->r.outcome = MANAGE_FOREIGN;
	manage_refuse(&job->r, -GW_E_STATE,
		      "set the value again if you want to change it; otherwise do nothing",
		      "%s is %s; someone else changed it after gpuward set it to %s, so it is "
		      "left unchanged",
		      infos[job->c.what].name, now, ours);
}

/* Decides whether to restore the setting, and to which value. */
static void choose_restored(struct manage_job *job, const struct device *d)
{
	const struct manage_info *i = &infos[job->c.what];

	if (!i->readable)
		job->action = ACTION_UNLOCK;
	if (job->c.kept) {
		memcpy(job->target, job->c.value, sizeof(job->target));
		if (!i->readable)
			return;
		if (manage_same(job->c.what, job->r.before, job->target))
			job->action = ACTION_NONE;
		else if (is_foreign(job))
			refuse_foreign(job);
		return;
	}
	job->target[1] = NAN;
	job->target[0] = job->c.what == MANAGE_COMPUTE_MODE ? 0 : manage_bound(d, i->standard);
	if (i->readable && isnan(job->target[0]))
		job->action = ACTION_NONE;
}

static void check_step(void *arg)
{
	struct slot *s = arg;
	struct device *d = s->d;
	struct manage_job *job = s->job;
	char detail[96];
	int err;

	if (atomic_load(&job->step) == STEP_CANCELLED || !check_device(job, d))
		return;
	if (report_due(&d->r, GW_TIER_STATIC, clock_mono_ns(d->backend->env->clock)))
		d->backend->ops->read(d, GW_TIER_STATIC);
	if (!job->c.restore)
		check_value(job, d);
	if (job->r.error)
		return;
	err = d->backend->ops->get(d, job->c.what, job->r.before, detail, sizeof(detail));
	if (err)
		refuse_driver_error(job, err, "read", detail);
	else if (job->c.restore)
		choose_restored(job, d);
	else if (infos[job->c.what].values && infos[job->c.what].readable &&
		 manage_same(job->c.what, job->r.before, job->target))
		job->action = ACTION_NONE;
}

/* Reads the value back after the driver accepted the change. */
static void verify_change(struct manage_job *job, struct device *d)
{
	struct manage_result *r = &job->r;
	const struct manage_info *i = &infos[job->c.what];
	char detail[96], now[96];
	int err = d->backend->ops->get(d, job->c.what, r->after, detail, sizeof(detail));

	if (err) {
		refuse_driver_error(job, err, "read back", detail);
		return;
	}
	if (!i->readable)
		return;
	/* The counts need not be 0, only lower, because new errors may occur at any time. */
	if (job->c.what == MANAGE_CLEAR_ECC)
		r->verified = (r->before[0] == 0 || r->after[0] < r->before[0]) &&
			      (r->before[1] == 0 || r->after[1] < r->before[1]);
	else
		r->verified = manage_same(job->c.what, r->after, job->target);
	if (r->verified)
		return;
	manage_text(job->c.what, r->after, now, sizeof(now));
	manage_refuse(&job->r, -GW_E_STATE,
		      "check whether another program or the firmware of the board controls "
		      "this setting",
		      "the driver accepted the change, but %s %s still %s", i->name,
		      job->c.what == MANAGE_CLEAR_ECC ? "are" : "is", now);
}

static void set_step(void *arg)
{
	struct slot *s = arg;
	struct device *d = s->d;
	struct manage_job *job = s->job;
	int expected = STEP_CHECK, err;
	char detail[96];

	/* The driver may have been closed since the check. */
	if (!d->backend->open) {
		check_device(job, d);
		return;
	}
	if (!atomic_compare_exchange_strong(&job->step, &expected, STEP_SET))
		return;
	err = d->backend->ops->set(d, job->c.what,
				   job->action == ACTION_UNLOCK ? NULL : job->target, detail,
				   sizeof(detail));
	if (err) {
		refuse_driver_error(job, err, "changed", detail);
		return;
	}
	job->r.outcome = MANAGE_CHANGED;
	verify_change(job, d);
	/* Make the next snapshot read these tiers again. */
	report_stamp(&d->r, GW_TIER_HEALTH | GW_TIER_LIMITS, 0);
}

static struct slot *find_slot(struct gw_ctx *ctx, const char *uuid)
{
	for (unsigned i = 0; i < ctx->slots; i++) {
		const struct report *r = slot_report(ctx->slot[i]);

		if (r->text_why[GW_T_UUID] == GW_HAVE && strcmp(r->text[GW_T_UUID], uuid) == 0)
			return ctx->slot[i];
	}
	return NULL;
}

/* Runs a step. Returns false if the step was not started or has not finished; ret then has the
 * error, and the caller must not use the job any more. */
static bool run_step(struct gw_ctx *ctx, struct slot *s, void (*fn)(void *),
		     struct manage_job *job, struct manage_result *ret)
{
	const char *call;
	int err;

	pthread_mutex_lock(&ctx->lock);
	if (!s->thread || call_thread_wait(s->thread, 0)) {
		if (s->job != job)
			free(s->job); /* The job of an earlier call, which has returned late. */
		s->job = job;
	}
	err = context_one(ctx, s, fn);
	call = err ? atomic_load(s->d->call) : NULL;
	if (err != -GW_E_TIMEOUT && s->job == job)
		s->job = NULL;
	pthread_mutex_unlock(&ctx->lock);
	if (!err)
		return true;
	ret->error = -GW_E_TIMEOUT;
	ret->remedy = remedy_of(-GW_E_TIMEOUT);
	if (err != -GW_E_TIMEOUT)
		free(job);
	else if (atomic_exchange(&job->step, STEP_CANCELLED) == STEP_SET)
		ret->outcome = MANAGE_UNCERTAIN;
	snprintf(ret->message, sizeof(ret->message), "%s has not returned; %s",
		 call ? call : "a call on this GPU",
		 ret->outcome == MANAGE_UNCERTAIN ? "it is unknown whether the setting changed"
						  : "nothing was changed");
	return false;
}

/* True if the old value must be on disk before the setting is changed, but is not there yet. */
static bool must_store(const struct manage_job *job, const double *stored)
{
	const struct manage_change *c = &job->c;

	return !c->keep && !c->restore && infos[c->what].values > 0 &&
	       !(stored && manage_same(c->what, job->r.before, stored));
}

static void write_message(struct manage_job *job)
{
	struct manage_result *r = &job->r;
	const struct manage_info *i = &infos[job->c.what];
	const bool changed = r->outcome == MANAGE_CHANGED;
	char was[96], now[96];

	manage_text(job->c.what, r->before, was, sizeof(was));
	if (!changed)
		memcpy(r->after, r->before, sizeof(r->after));
	manage_text(job->c.what, i->readable ? r->after : job->target, now, sizeof(now));
	if (!changed && job->c.restore && !job->c.kept && isnan(job->target[0]))
		snprintf(r->message, sizeof(r->message),
			 "gpuward did not change %s: there is nothing to restore", i->name);
	else if (!changed)
		snprintf(r->message, sizeof(r->message), "%s is %s already", i->name, now);
	else if (job->action == ACTION_UNLOCK)
		snprintf(r->message, sizeof(r->message), "%s was removed", i->name);
	else if (!i->readable)
		snprintf(r->message, sizeof(r->message),
			 "%s was set to %s; the driver reports neither the old nor the new "
			 "value",
			 i->name, now);
	else if (job->c.what == MANAGE_CLEAR_ECC)
		snprintf(r->message, sizeof(r->message), "%s were cleared; there were %s",
			 i->name, was);
	else
		snprintf(r->message, sizeof(r->message), "%s is %s now; it was %s", i->name,
			 now, was);
	if (!changed && i->readable)
		r->verified = true;
}

int manage_run(struct gw_ctx *ctx, const struct manage_change *c, const double *stored,
	       struct manage_result *ret)
{
	struct manage_job *job;
	struct slot *s;
	bool released;

	*ret = (struct manage_result){ .before = { NAN, NAN }, .after = { NAN, NAN } };
	if ((unsigned)c->what >= MANAGE_WHATS)
		return manage_refuse(ret, -GW_E_ARG, NULL, "there is no such setting");
	pthread_mutex_lock(&ctx->lock);
	s = find_slot(ctx, c->uuid);
	released = ctx->released;
	pthread_mutex_unlock(&ctx->lock);
	if (released)
		return manage_refuse(ret, -GW_E_STATE,
				     "open the drivers again first: POST /api/v1/resume",
				     "gpuward has released the drivers");
	if (!s)
		return manage_refuse(ret, -GW_E_NODEV,
				     "use the UUID of a GPU that gpuward lists",
				     "no GPU has this UUID");
	job = calloc(1, sizeof(*job));
	if (!job)
		return manage_refuse(ret, -GW_E_NOMEM, NULL, "out of memory");
	job->c = *c;
	job->r = *ret;
	job->root = &ctx->root;
	memcpy(job->target, c->value, sizeof(job->target));
	if (!run_step(ctx, s, check_step, job, ret))
		return ret->error;
	memcpy(ret->before, job->r.before, sizeof(ret->before));
	if (!job->r.error && job->action != ACTION_NONE) {
		if (must_store(job, stored))
			job->r.outcome = MANAGE_UNSTORED;
		else if (!run_step(ctx, s, set_step, job, ret))
			return ret->error;
	}
	if (!job->r.error && job->r.outcome != MANAGE_UNSTORED)
		write_message(job);
	*ret = job->r;
	free(job);
	return ret->error;
}
