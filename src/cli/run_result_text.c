/* run_result_text: prints the result of a measurement on standard error, because standard
 * output belongs to the command.  The result takes about one screen. */
#include "run_result.h"

#include "clean_room.h"
#include "output.h"

#include "base/number.h"
#include "base/utf8.h"
#include "measure/distribution.h"
#include "measure/stat.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define COLUMN   13
#define row(...) term_row(COLUMN, __VA_ARGS__)
/* Prints a row about one device.  If there are several GPUs, the title becomes a part of the
 * text. */
#define device_row(several, title, fmt, ...)                                \
	row((several) ? "" : (title), "%s%s" fmt, (several) ? (title) : "", \
	    (several) ? ": " : "", __VA_ARGS__)

static double half_width(const struct gw_interval *v)
{
	return (v->high - v->low) / 2;
}

static const char *interval_text(char out[static 80], const struct gw_interval *v)
{
	return term_interval(out, v->best, half_width(v), "J");
}

static enum term_style validity_style(enum gw_validity v)
{
	return v == GW_VALID ? TERM_GOOD : v == GW_SUSPECT ? TERM_WARN : TERM_BAD;
}

/* If there are several GPUs, prints that the energy is their sum. */
static void print_gpus(const struct measured_run *r)
{
	char text[1000];
	struct buf b;

	if (r->devices < 2)
		return;
	buf_init_fixed(&b, text, sizeof(text));
	for (unsigned i = 0; i < r->devices; i++)
		figure_add_gpu(&b, r->device[i].index, r->device[i].name,
			       i + 1 < r->devices ? r->device[i + 1].name : NULL);
	row("GPUs", "%s; the energy is the sum over these GPUs", text);
}

static void print_energy(const struct measured_run *r)
{
	char a[80], b[32];

	if (isnan(r->figures.energy_j.best)) {
		row("Energy", "unknown");
		return;
	}
	row("Energy", "%s (absolute); %s %s when compared with runs on the same GPU%s",
	    interval_text(a, &r->figures.energy_j), term_plain("±"),
	    term_half_width(b, half_width(&r->figures.energy_relative_j), "J"),
	    r->devices > 1 ? "s" : "");
}

/* Prints what the energy costs, if the user configured a price or a carbon intensity. */
static void print_cost(const struct measured *m, double joules)
{
	char text[ENERGY_COST_TEXT];

	energy_cost_text(&m->cost, joules, text);
	if (*text)
		row("Cost", "%s", text);
}

static void print_counted(const struct measured_count *c)
{
	char name[sizeof(c->name)], place[512], series[32] = "", fresh[64] = "",
						server[64] = "";

	if (!c->place || !c->series)
		return;
	utf8_clean(name, sizeof(name), *c->name ? c->name : "a number without a name");
	utf8_clean(place, sizeof(place), c->place);
	if (c->series > 1)
		snprintf(series, sizeof(series), ", %u series", c->series);
	if (c->fresh)
		snprintf(fresh, sizeof(fresh), " (%u appeared during the run)", c->fresh);
	if (c->servers)
		snprintf(server, sizeof(server), " (pid %lld, part of the measurement)",
			 (long long)c->server_pid[0]);
	row("Counted", "%s%s%s, at %s%s", name, series, fresh, place, server);
}

static void print_items(const struct measured_run *r)
{
	char a[80], b[32], c[32], d[32];

	if (!isnan(r->figures.iterations)) {
		bool spread = !isnan(r->figures.latency_p50_s);

		row("  iteration", "%s in %s%s%s%s%s (%.0f iterations)",
		    interval_text(a, &r->figures.energy_per_iteration_j),
		    term_quantity(b, r->figures.latency_s, "s"), spread ? ", p50 " : "",
		    spread ? term_quantity(c, r->figures.latency_p50_s, "s") : "",
		    spread ? ", p95 " : "",
		    spread ? term_quantity(d, r->figures.latency_p95_s, "s") : "",
		    r->figures.iterations);
	}
	if (!isnan(r->figures.tokens))
		row("  token", "%s (%.0f tokens)",
		    interval_text(a, &r->figures.energy_per_token_j), r->figures.tokens);
	print_counted(&r->count);
}

/* Writes the baselines, such as "no-context baseline of 80.0 W, 12 s old".  Returns NULL if
 * some GPU has no baseline. */
static const char *baseline_text(char out[static 96], const struct measured_run *r)
{
	double watts = 0, oldest_s = 0;
	char old[16];

	for (unsigned i = 0; i < r->devices; i++) {
		watts += r->device[i].baseline.power_w;
		oldest_s = fmax(oldest_s, r->device[i].baseline.age_s);
	}
	if (isnan(watts))
		return NULL;
	snprintf(out, 96, "%s baseline of %.1f W, %s old", r->figures.baseline_kind, watts,
		 figure_span(old, oldest_s));
	return out;
}

static const char no_baseline[] = "unknown: some GPU has no baseline";

static void print_net(const struct measured_run *r)
{
	char a[80], b[32], text[96];
	bool below;

	if (!r->figures.baseline_kind)
		return;
	if (!baseline_text(text, r)) {
		row("Above idle", "%s", no_baseline);
		return;
	}
	/* True only if the whole interval is below 0. Otherwise the energy may be 0 or more. */
	below = r->figures.energy_net_j.high < 0;
	row("Above idle", "%s (%s)%s%s", interval_text(a, &r->figures.energy_net_j), text,
	    below ? "; less than the baseline, which is therefore wrong; counted as " : "",
	    below ? term_quantity(b, r->figures.energy_adjusted_j, "J") : "");
}

static const char *samples_text(char out[static 64], const struct gw_energy *e)
{
	if (e->samples_collected == 0 && e->samples_expected == 0)
		snprintf(out, 64, "no sample");
	else if (e->samples_collected >= e->samples_expected)
		snprintf(out, 64, "all %llu samples", (unsigned long long)e->samples_expected);
	else
		snprintf(out, 64, "%llu of %llu samples",
			 (unsigned long long)e->samples_collected,
			 (unsigned long long)e->samples_expected);
	return out;
}

/* Writes where the figures of a GPU come from: energy source, what is known about the sensor,
 * and power limit.  Writes "" if the GPU has no energy source. */
static const char *source_text(const struct measured_device *d, char *text, size_t size)
{
	char limit[48] = "";

	text[0] = '\0';
	if (d->energy.meter == GW_METER_NONE)
		return text;
	if (!isnan(d->power_limit_w))
		snprintf(limit, sizeof(limit), "; power limit %.0f W", d->power_limit_w);
	snprintf(text, size, "%s, %s%s%s", gw_rung_name(d->energy.rung),
		 sensor_origin_words(d->sensor.origin),
		 d->sensor.origin == SENSOR_ACTIVE ? "" : "; typical delays used", limit);
	return text;
}

/* Prints the source of each GPU.  Prints it only once if all GPUs have the same. */
static void print_sources(const struct measured_run *run)
{
	char first[200], text[200];
	bool same = true;

	if (run->devices == 0)
		return;
	source_text(&run->device[0], first, sizeof(first));
	for (unsigned i = 1; i < run->devices; i++)
		same = same &&
		       strcmp(first, source_text(&run->device[i], text, sizeof(text))) == 0;
	for (unsigned i = 0; i < (same ? 1 : run->devices); i++)
		if (*source_text(&run->device[i], text, sizeof(text)) && same)
			row("Source", "%s", text);
		else if (*text)
			row(i ? "" : "Source", "GPU %u: %s", run->device[i].index, text);
}

/* Prints the calibration of a GPU that was stored earlier.  print_calibration() prints a
 * calibration that was made for this result. */
static void print_scale(const struct measured_device *d, bool several)
{
	char a[32];

	if (d->energy.calibrated)
		device_row(
			several, "Calibrated",
			"stored calibration: gain %.4f, offset %+.1f W; uncalibrated energy %s",
			d->sensor.calibration.gain,
			number_without_minus_zero(d->sensor.calibration.offset_w, 1),
			term_quantity(a, d->energy.raw_joules, "J"));
}

static void print_device(const struct measured_device *d, bool several)
{
	const struct gw_energy *e = &d->energy;
	bool agree = e->verdict == GW_VERDICT_AGREE;
	double apart = 100 * fabs(e->residual_ratio);
	char title[32], a[80], n[64], source[200];

	if (several) {
		snprintf(title, sizeof(title), "GPU %u", d->index);
		row(title, "%s, %s", d->name, interval_text(a, &e->joules));
	}
	if (!isnan(e->power_mean))
		device_row(several, "Power", "%.1f W mean, %.1f W s.d., %.1f to %.1f W",
			   e->power_mean, e->power_sd, e->power_min, e->power_max);
	if (e->meter == GW_METER_NONE)
		device_row(several, "Meter", "%s", "none");
	else if (e->verdict == GW_VERDICT_NONE)
		device_row(several, "Meter",
			   "%s; the window is shorter than the time between two samples",
			   gw_meter_kind_name(e->meter));
	else if (isnan(e->residual_ratio))
		device_row(several, "Meter", "%s (%s), %s", gw_meter_kind_name(e->meter),
			   gw_verdict_name(e->verdict), samples_text(n, e));
	else
		device_row(several, "Meter", "%s; meters %s: %.*f %% apart, %s; %s",
			   gw_meter_kind_name(e->meter), agree ? "consistent" : "inconsistent",
			   apart < 1 ? 2 : 1, apart,
			   agree ? "within their uncertainty" : "beyond their uncertainty",
			   samples_text(n, e));
	if (e->meter == GW_METER_SAMPLES && fabs(e->anchor_ratio - 1) > 0.0005)
		device_row(several, "Scaled",
			   "the energy of the samples is multiplied by %.4f, the ratio of "
			   "counter to samples in a longer time around or before the window; "
			   "the mean power is not multiplied",
			   e->anchor_ratio);
	if (*source_text(d, source, sizeof(source)))
		device_row(several, "Source", "%s", source);
	if (!isnan(e->temperature_max))
		device_row(several, "Temperature", "%.0f to %.0f %s, highest %.0f %s",
			   e->temperature_begin, e->temperature_end, term_plain("°C"),
			   e->temperature_max, term_plain("°C"));
}

static void print_calibration(const struct measured *m)
{
	const struct measured_calibration *c = m->calibration;
	const char *pm = term_plain("±");
	char a[32];

	if (!c)
		return;
	row("Calibrated", "gain %.4f %s %.4f, offset %+.1f W (%s %.1f W at %.0f W), from %s",
	    c->gain, pm, 1.96 * c->gain_u, number_without_minus_zero(c->offset_w, 1), pm,
	    1.96 * c->offset_u_w, c->pivot_w, c->trace);
	if (isnan(c->correlation))
		row("", "%zu points, residual %.1f W s.d.", c->points, c->residual_w);
	else
		row("", "%zu points, delay %.2f s, correlation %.4f, residual %.1f W s.d.",
		    c->points, c->lag_s, c->correlation, c->residual_w);
	if (m->runs == 1 && m->run[0].devices == 1)
		row("", "uncalibrated energy %s; the power figures are not calibrated",
		    term_quantity(a, m->run[0].device[0].energy.raw_joules, "J"));
	for (unsigned i = 0; i < MEASURED_NOTES && *c->note[i]; i++)
		row("", "%s", c->note[i]);
}

static void print_validity(enum gw_validity v)
{
	row("Validity", "%s%s%s", term_on(validity_style(v)), gw_validity_name(v), term_off());
}

static void print_codes(const struct measured_run *r)
{
	print_validity(r->validity);
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
		    term_quantity(a, r->host.joules, "J"));
	else if (r->devices == 0)
		row("Host", "unknown: %s%s%s",
		    r->host.why == GW_ABSENT_NOT_PRESENT ||
				    r->host.why == GW_ABSENT_NOT_SUPPORTED
			    ? "no CPU energy counter (RAPL)"
		    : r->part ? "known for the whole run only, not for the part"
			      : gw_absence_text(r->host.why),
		    r->host.remedy && *r->host.remedy ? "; " : "",
		    r->host.remedy ? r->host.remedy : "");
}

static const char *unknown_part(const struct measured_run *r, const struct measured_window *w)
{
	return r->devices == 0   ? "there is no GPU"
	       : r->window_s > 0 ? "the service measures only the whole run"
	       : !w->energy      ? gw_strerror(-GW_E_NOMEM)
				 : "the energy of this part is unknown for at least one GPU";
}

static void print_part(const char *title, const struct measured_run *r,
		       const struct measured_window *w)
{
	struct gw_interval joules = run_result_window_joules(r, w);
	const char *ended =
		w->unfinished ? " (unfinished: the run ended before the part ended)" : "";
	char a[80], b[32], label[256];

	utf8_clean(label, sizeof(label), w->label);
	term_quantity(b, w->seconds, "s");
	if (isnan(joules.best))
		row(title, "%s: %s%s; energy unknown: %s", label, b, ended, unknown_part(r, w));
	else
		row(title, "%s: %s in %s%s", label, interval_text(a, &joules), b, ended);
}

static void print_windows(const struct measured_run *r)
{
	for (unsigned i = 0; i < r->windows && i < 12; i++)
		print_part(i ? "" : "Parts", r, &r->window[i]);
	if (r->windows > 12)
		row("", "and %u more", r->windows - 12);
}

/* Prints the measured window if it is longer or shorter than the command. */
static void print_window(const struct measured_run *r)
{
	char a[32];

	if (r->window_s >= r->seconds)
		row("Window",
		    "%s longer than the command, because of the requests to the service",
		    term_quantity(a, r->window_s - r->seconds, "s"));
	else if (r->window_s > 0)
		row("Window", "only the first %s of the command",
		    term_quantity(a, r->window_s, "s"));
}

/* Prints one run.  If m is NULL, leaves out the lines that are equal in all runs. */
static void print_run(const struct measured_run *r, const struct measured *m)
{
	char a[32];

	if (r->part)
		row("Part", "%s", r->part);
	if (m)
		print_gpus(r);
	print_energy(r);
	if (m)
		print_cost(m, r->figures.energy_j.best);
	print_items(r);
	print_net(r);
	if (m && m->calibration)
		print_calibration(m);
	for (unsigned i = 0; m && !m->calibration && i < r->devices; i++)
		print_scale(&r->device[i], i > 0);
	row("Time", "%s", term_quantity(a, r->seconds, "s"));
	print_window(r);
	for (unsigned i = 0; i < r->devices; i++)
		print_device(&r->device[i], r->devices > 1);
	print_host(r);
	print_windows(r);
	print_codes(r);
}

static bool is_usable(const struct measured_run *r)
{
	return !isnan(r->figures.energy_j.best) && r->validity < GW_INVALID;
}

#define RUN(member) offsetof(struct measured_run, member)

static const void *member_of(const struct measured_run *r, size_t offset)
{
	return (const char *)r + offset;
}

/* Returns the mean of an energy over the usable runs, or NAN if a usable run does not have it.
 * `energy` is the offset of the energy in struct measured_run. If it is an energy per item,
 * `per` is the offset of the number of items; otherwise `per` is 0. */
static struct gw_interval mean_joules(const struct measured *m, size_t energy, size_t per,
				      double *ret_sd)
{
	struct run_mean mean;
	double best, reach;

	run_mean_init(&mean);
	for (unsigned i = 0; i < m->runs; i++) {
		const struct measured_run *r = &m->run[i];
		const struct gw_interval *joules = member_of(r, energy);
		double count = per ? *(const double *)member_of(r, per) : 1;

		if (is_usable(r))
			run_mean_add(&mean, joules->best,
				     interval_u(&r->figures.energy_relative_j) / count,
				     interval_u(joules));
	}
	best = moments_mean(&mean.moments);
	reach = run_mean_reach(&mean);
	*ret_sd = sqrt(moments_variance(&mean.moments));
	return (struct gw_interval){ best - reach, best, best + reach };
}

static double mean_value(const struct measured *m, size_t member)
{
	double sum = 0;
	unsigned n = 0;

	for (unsigned i = 0; i < m->runs; i++)
		if (is_usable(&m->run[i])) {
			sum += *(const double *)member_of(&m->run[i], member);
			n++;
		}
	return n ? sum / n : NAN;
}

static void print_mean_net(const struct measured *m)
{
	const struct measured_run *first = m->run;
	struct gw_interval mean;
	char a[80], text[96];
	double sd;

	while (!is_usable(first))
		first++;
	if (!first->figures.baseline_kind)
		return;
	mean = mean_joules(m, RUN(figures.energy_net_j), 0, &sd);
	if (!baseline_text(text, first))
		row("Above idle", "%s", no_baseline);
	else
		row("Above idle", "%s (%s)", interval_text(a, &mean), text);
}

/* Prints the mean over the usable runs; n is their number. */
static void print_mean(const struct measured *m, unsigned n)
{
	double sd;
	struct gw_interval all = mean_joules(m, RUN(figures.energy_j), 0, &sd);
	char a[80], b[32], c[32], title[32];

	snprintf(title, sizeof(title), "Mean of %u", n);
	row(title, "%s (95 %%, including the sensor error); %s s.d. from run to run; in %s",
	    interval_text(a, &all), term_half_width(b, sd, "J"),
	    term_quantity(c, mean_value(m, RUN(seconds)), "s"));
	print_cost(m, all.best);
	all = mean_joules(m, RUN(figures.energy_per_iteration_j), RUN(figures.iterations), &sd);
	if (!isnan(all.best))
		row("  iteration", "%s in %s (%.0f iterations per run)", interval_text(a, &all),
		    term_quantity(b, mean_value(m, RUN(figures.latency_s)), "s"),
		    mean_value(m, RUN(figures.iterations)));
	all = mean_joules(m, RUN(figures.energy_per_token_j), RUN(figures.tokens), &sd);
	if (!isnan(all.best))
		row("  token", "%s (%.0f tokens per run)", interval_text(a, &all),
		    mean_value(m, RUN(figures.tokens)));
	print_counted(&m->run[0].count);
	print_mean_net(m);
}

static void print_trials(const struct measured *m)
{
	char a[80], b[32];
	unsigned used = 0;

	if (m->run[0].part)
		row("Part", "%s", m->run[0].part);
	print_gpus(&m->run[0]);
	for (unsigned i = 0; i < m->runs; i++) {
		const struct measured_run *r = &m->run[i];
		char title[32];

		snprintf(title, sizeof(title), "Trial %u", r->trial);
		row(title, "%s, %s, %s%s%s", interval_text(a, &r->figures.energy_j),
		    term_quantity(b, r->seconds, "s"), term_on(validity_style(r->validity)),
		    gw_validity_name(r->validity), term_off());
		used += is_usable(r);
	}
	if (used > 1)
		print_mean(m, used);
	if (used == 0)
		row("", "no run is used: each is invalid, or its energy is unknown");
	else if (used < m->runs)
		row("",
		    "only %u of %u runs are used: the others are invalid, or their energy is "
		    "unknown",
		    used, m->runs);
}

static const struct measured_code *code_of(const struct measured_run *r, unsigned code)
{
	for (unsigned i = 0; i < r->codes; i++)
		if (r->code[i].code == code)
			return &r->code[i];
	return NULL;
}

static void print_all_codes(const struct measured *m)
{
	print_validity(m->validity);
	for (unsigned code = 0; code < GW_CODES; code++) {
		const struct measured_code *first = NULL;
		unsigned n = 0;

		for (unsigned i = 0; i < m->runs; i++) {
			const struct measured_code *c = code_of(&m->run[i], code);

			first = first ? first : c;
			n += c != NULL;
		}
		if (n)
			row("", "%s in %u of %u runs: %s%s%s", gw_code_info(code)->key, n,
			    m->runs, gw_code_info(code)->sentence,
			    *first->evidence ? "; first: " : "", first->evidence);
	}
}

void run_result_print(const struct measured *m, const struct cli *c)
{
	char label[512];

	utf8_clean(label, sizeof(label), m->label ? m->label : "");
	if (m->simulated)
		term_print_simulated(stderr);
	if (m->label)
		row("Label", "%s", label);
	if (m->service)
		row("Measured by", "the service on %s", m->service);
	clean_room_print(m->room, COLUMN);
	if (m->runs == 1) {
		print_run(&m->run[0], m);
		return;
	}
	print_trials(m);
	print_calibration(m);
	/* Print the sources once, because they are the same in all runs. */
	print_sources(&m->run[0]);
	print_all_codes(m);
	for (unsigned i = 0; i < m->runs && c->verbose; i++) {
		row("", "%s", "");
		row("Trial", "%u, %u of %u", m->run[i].trial, i + 1, m->runs);
		print_run(&m->run[i], NULL);
	}
}
