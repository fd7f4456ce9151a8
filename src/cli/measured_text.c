/* The result of a measurement as people read it: one screen on standard error, since standard
 * output is the command's. */
#include "measured.h"

#include "measure/stat.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define COLUMN 13

static void __attribute__((format(printf, 2, 3))) row(const char *title, const char *fmt, ...)
{
	char text[1024], left[64];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(left, sizeof(left), "%s%s%s", *title ? term_on(TERM_BOLD) : "", title,
		 *title ? term_off() : "");
	term_wrap(left, COLUMN, text, term_width());
}

static const char *plus_minus(void)
{
	return term_utf8() ? "±" : "+-";
}

/* The step of a thousand that reads best: whole numbers up to ten thousand. */
static unsigned step_of(double v, double *ret_scale)
{
	static const double scales[] = { 1e9, 1e6, 1e3, 1, 1e-3, 1e-6 };
	double size = fabs(v);
	unsigned i = 0;

	if (!(size >= 1e-9))
		i = 3;
	else
		while (i < 5 && size < scales[i] * (i < 3 ? 10 : 1))
			i++;
	*ret_scale = scales[i];
	return i;
}

static const char *const prefixes[] = { "G", "M", "k", "", "m", "u" };

/* "12.34 ms": four digits in a unit that fits. */
static const char *quantity(char out[static 32], double v, const char *unit)
{
	double scale, size;
	unsigned step = step_of(v, &scale);

	size = fabs(v) / scale;
	if (isnan(v))
		snprintf(out, 32, "unknown");
	else
		snprintf(out, 32, "%.*f %s%s",
			 size >= 1000  ? 0
			 : size >= 100 ? 1
			 : size >= 10  ? 2
				       : 3,
			 v / scale, prefixes[step], unit);
	return out;
}

static double half_width(const struct gw_interval *v)
{
	return (v->high - v->low) / 2;
}

/* "4003 J ± 102 J": in one unit, and no digit that the width makes void. */
static const char *interval(char out[static 80], const struct gw_interval *v)
{
	double scale, width;
	unsigned step = step_of(v->best, &scale);
	int digits;

	if (isnan(v->best))
		return "unknown";
	width = half_width(v) / scale;
	digits = width > 0 ? 1 - (int)floor(log10(width)) : 3;
	digits = digits < 0 ? 0 : digits > 6 ? 6 : digits;
	snprintf(out, 80, "%.*f %s %.*f %sJ", digits, v->best / scale, plus_minus(), digits,
		 width, prefixes[step]);
	return out;
}

static enum term_style validity_style(enum gw_validity v)
{
	return v == GW_VALID ? TERM_GOOD : v == GW_SUSPECT ? TERM_WARN : TERM_BAD;
}

/* ---- one run ---- */

static void print_energy(const struct measured_run *r)
{
	char a[80], b[32];

	if (isnan(r->joules.best)) {
		row("Energy", "unknown");
		return;
	}
	row("Energy", "%s; %s %s when compared with runs on the same GPU%s",
	    interval(a, &r->joules), plus_minus(),
	    quantity(b, half_width(&r->relative_joules), "J"), r->devices > 1 ? "s" : "");
}

static void print_items(const struct measured_run *r)
{
	char a[80], b[32], c[32], d[32];

	if (!isnan(r->iterations)) {
		bool spread = !isnan(r->latency_p50_s);

		row("  iteration", "%s in %s%s%s%s%s (%.0f of them)",
		    interval(a, &r->iteration_joules), quantity(b, r->latency_s, "s"),
		    spread ? ", p50 " : "", spread ? quantity(c, r->latency_p50_s, "s") : "",
		    spread ? ", p95 " : "", spread ? quantity(d, r->latency_p95_s, "s") : "",
		    r->iterations);
	}
	if (!isnan(r->tokens))
		row("  token", "%s (%.0f of them)", interval(a, &r->token_joules), r->tokens);
}

static void print_net(const struct measured_run *r)
{
	char a[80], b[32];

	if (!r->baseline_kind)
		return;
	row("Above idle", "%s (%s baseline)%s%s", interval(a, &r->net_joules), r->baseline_kind,
	    r->floored ? "; below idle, counted as " : "",
	    r->floored ? quantity(b, r->adjusted_joules, "J") : "");
}

static void print_device(const struct measured_device *d, bool several)
{
	const struct gw_energy *e = &d->energy;
	char title[32], a[80];

	if (several) {
		snprintf(title, sizeof(title), "GPU %u", d->index);
		row(title, "%s, %s", d->name, interval(a, &e->joules));
	}
	if (!isnan(e->power_mean))
		row(several ? "" : "Power", "%.1f W mean, %.1f W s.d., %.0f to %.0f W",
		    e->power_mean, e->power_sd, e->power_min, e->power_max);
	if (e->meter == GW_METER_NONE)
		row(several ? "" : "Meter", "none");
	else if (isnan(e->residual_ratio))
		row(several ? "" : "Meter", "%s (%s), %llu of %llu samples",
		    gw_meter_kind_name(e->meter), gw_verdict_name(e->verdict),
		    (unsigned long long)e->samples_collected,
		    (unsigned long long)e->samples_expected);
	else
		row(several ? "" : "Meter",
		    "%s; two meters %s, %+.2f %% apart; %llu of %llu samples",
		    gw_meter_kind_name(e->meter), gw_verdict_name(e->verdict),
		    100 * e->residual_ratio, (unsigned long long)e->samples_collected,
		    (unsigned long long)e->samples_expected);
	if (!isnan(e->temperature_max))
		row(several ? "" : "Temperature", "%.0f to %.0f %s, at most %.0f %s",
		    e->temperature_begin, e->temperature_end, term_plain("°C"),
		    e->temperature_max, term_plain("°C"));
}

static void print_codes(const struct measured_run *r)
{
	row("Validity", "%s%s%s", term_on(validity_style(r->validity)),
	    gw_validity_name(r->validity), term_off());
	for (unsigned i = 0; i < r->codes; i++) {
		const struct measured_code *c = &r->code[i];
		const struct gw_code_info *info = gw_code_info(c->code);
		char who[24] = "";

		if (c->device >= 0 && r->devices > 1)
			snprintf(who, sizeof(who), "GPU %u: ", r->device[c->device].index);
		row("", "%s%s: %s%s%s", who, info->key, info->sentence,
		    *c->evidence ? "; " : "", c->evidence);
	}
}

static void print_host(const struct measured_run *r)
{
	char a[32];

	if (r->host.why == GW_HAVE)
		row("Host", "%s (CPU packages and memory of the whole machine)",
		    quantity(a, r->host.joules, "J"));
	else if (r->devices == 0)
		row("Host", "unknown: %s%s%s", gw_absence_text(r->host.why),
		    r->host.remedy && *r->host.remedy ? "; " : "",
		    r->host.remedy ? r->host.remedy : "");
}

static void print_windows(const struct measured_run *r)
{
	char a[80], b[32];

	for (unsigned i = 0; i < r->windows && i < 12; i++) {
		const struct measured_window *w = &r->window[i];

		if (w->energy && r->devices == 1)
			row(i ? "" : "Parts", "%s: %s in %s", w->label,
			    interval(a, &w->energy[0].joules), quantity(b, w->seconds, "s"));
		else
			row(i ? "" : "Parts", "%s: %s", w->label, quantity(b, w->seconds, "s"));
	}
	if (r->windows > 12)
		row("", "and %u more", r->windows - 12);
}

static void print_run(const struct measured_run *r)
{
	char a[32];

	print_energy(r);
	print_items(r);
	print_net(r);
	row("Time", "%s", quantity(a, r->seconds, "s"));
	for (unsigned i = 0; i < r->devices; i++)
		print_device(&r->device[i], r->devices > 1);
	print_host(r);
	print_windows(r);
	print_codes(r);
}

/* ---- several ---- */

static void print_trials(const struct measured *m)
{
	struct moments joules, seconds;
	char a[80], b[32], c[32];
	unsigned used = 0;

	moments_init(&joules);
	moments_init(&seconds);
	for (unsigned i = 0; i < m->runs; i++) {
		const struct measured_run *r = &m->run[i];
		char title[32];

		snprintf(title, sizeof(title), "Trial %u", r->trial);
		row(title, "%s, %s, %s%s%s", interval(a, &r->joules),
		    quantity(b, r->seconds, "s"), term_on(validity_style(r->validity)),
		    gw_validity_name(r->validity), term_off());
		if (isnan(r->joules.best) || r->validity >= GW_INVALID)
			continue;
		moments_add(&joules, r->joules.best);
		moments_add(&seconds, r->seconds);
		used++;
	}
	if (used > 1)
		row("All", "%s mean, %s s.d. from run to run; %s mean",
		    quantity(a, moments_mean(&joules), "J"),
		    quantity(b, sqrt(moments_variance(&joules)), "J"),
		    quantity(c, moments_mean(&seconds), "s"));
	if (used < m->runs)
		row("", "%u of %u runs count: the others are not valid", used, m->runs);
}

void measured_print(const struct measured *m, const struct cli *c)
{
	if (m->simulated)
		fprintf(stderr, "%s SIMULATED %s no figure of these GPUs is real\n",
			term_on(TERM_MARK), term_off());
	if (m->label)
		row("Label", "%s", m->label);
	if (m->runs > 1)
		print_trials(m);
	if (m->runs > 1 && !c->verbose) {
		print_codes(&m->run[m->runs - 1]);
		return;
	}
	for (unsigned i = 0; i < m->runs; i++)
		print_run(&m->run[i]);
}
