#include "h200.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sim.h"

#define TEXT_MAX (1u << 20)

/* The model that was fitted to the recordings; see test_sim_h200.c. */
#define FITTED                                                                           \
	{                                                                                \
		.sample_ms = 20, .sample_s = 0.004, .filter_ms = 10, .counter_s = 0.021, \
		.counter_lag_s = 0.008                                                   \
	}
const struct model MODEL_FITTED = FITTED;
struct model model = FITTED;
struct recording rec;

int h200_open(void)
{
	return sim_library_open();
}

FILE *open_data(const char *name, const char *suffix)
{
	const char *folder = getenv("GPUWARD_TEST_DATA");
	char path[4096];

	if (folder == NULL)
		return NULL;
	snprintf(path, sizeof(path), "%s/h200/%s%s", folder, name, suffix);
	return fopen(path, "re");
}

/* The recorder took the monotonic time before each row, and the driver set the timestamp of a
 * field during the row. The smallest difference of the two is the offset between the clocks. */
bool load_recording(const char *name)
{
	FILE *f = open_data(name, ".csv");
	double offset = INFINITY, real_s[ROWS_MAX];
	char line[256];

	rec.name = name;
	rec.n = 0;
	if (f == NULL) {
		print_message("skipped: no recording '%s' below GPUWARD_TEST_DATA\n", name);
		return false;
	}
	while (rec.n < ROWS_MAX && fgets(line, sizeof(line), f) != NULL) {
		struct row *r = &rec.row[rec.n];
		double field_us, mw[2], mj;

		if (sscanf(line, "%lf,%lf,%lf,%lf,%lf,%lf", &r->begin_s, &mw[0], &mw[1], &mj,
			   &field_us, &real_s[rec.n]) != 6)
			continue;
		r->average_w = mw[0] * 1e-3;
		r->instant_w = mw[1] * 1e-3;
		r->counter_j = mj * 1e-3;
		offset = fmin(offset, field_us * 1e-6 - r->begin_s);
		rec.n++;
	}
	fclose(f);
	for (int i = 0; i < rec.n; i++)
		rec.row[i].end_s = real_s[i] - offset;
	rec.zero_s = floor(rec.row[0].begin_s) - 3;
	return true;
}

double tick_before(double t_s)
{
	return floor((t_s - model.counter_s) / 0.1) * 0.1 + model.counter_s;
}

bool renewed(int i)
{
	return i > 0 && (rec.row[i].average_w != rec.row[i - 1].average_w ||
			 rec.row[i].instant_w != rec.row[i - 1].instant_w);
}

bool ticked(int i)
{
	return i > 0 && rec.row[i].counter_j != rec.row[i - 1].counter_j;
}

bool late(int i)
{
	double t = rec.row[i].begin_s;

	return t - tick_before(rec.row[i].end_s) > 0.007;
}

/* Computes the mean power of each counter tick. Subtracts the counter's lag from the times, so
 * that they are times of the load. */
static int tick_levels(struct level *out)
{
	double last_s = 0, last_j = 0;
	int n = 0;

	for (int i = 1; i < rec.n; i++) {
		double tick_s = tick_before(rec.row[i].end_s);

		if (!ticked(i))
			continue;
		if (last_s > 0 && tick_s - last_s > 0.05)
			out[n++] = (struct level){ last_s - model.counter_lag_s,
						   (rec.row[i].counter_j - last_j) /
							   (tick_s - last_s) };
		last_s = tick_s;
		last_j = rec.row[i].counter_j;
	}
	return n;
}

static void add_point(struct load *load, double at_s, double watts)
{
	assert_true(load->n < ROWS_MAX);
	load->point[load->n++] = (struct level){ at_s, watts };
}

void step_load(struct load *out)
{
	static struct level level[ROWS_MAX];
	int n = tick_levels(level);

	out->n = 0;
	add_point(out, rec.zero_s, level[0].watts);
	for (int i = 0; i < n; i++) {
		double l = i > 0 ? level[i - 1].watts : level[i].watts;
		double r = i + 1 < n ? level[i + 1].watts : level[i].watts;
		double share =
			(r - level[i].watts) / (r - l); /* share of the tick at level l */

		if (fabs(l - r) > 0.25 * fmax(l, r) && share > 0 && share < 1) {
			add_point(out, level[i].at_s, l);
			add_point(out, level[i].at_s + 0.1 * share, r);
		} else {
			add_point(out, level[i].at_s, level[i].watts);
		}
	}
}

struct burst {
	double on_s, off_s;
};

static int read_bursts(struct burst *out)
{
	FILE *f = open_data(rec.name, "-load.txt");
	char line[128];
	int n = 0;

	if (f == NULL)
		return 0;
	while (n < ROWS_MAX && fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "ON %lf %lf", &out[n].on_s, &out[n].off_s) == 2)
			n++;
	fclose(f);
	return n;
}

/* Returns for how long bursts are on within an interval. */
static double on_time(const struct burst *b, int n, double from_s, double to_s)
{
	double sum = 0;

	for (int i = 0; i < n; i++)
		sum += fmax(0, fmin(b[i].off_s, to_s) - fmax(b[i].on_s, from_s));
	return sum;
}

/* Computes for each counter tick the power while the load is on: the counter's energy minus the
 * energy of the off time. A result far from on_w comes from a late tick and is limited to 12 %
 * above or below on_w. */
static int on_levels(struct level *level, const struct burst *b, int n_bursts, double on_w,
		     double off_w)
{
	int n = tick_levels(level);

	for (int i = 0; i < n; i++) {
		double at_s = level[i].at_s;
		double on_s = on_time(b, n_bursts, at_s, at_s + 0.1);
		double w = (level[i].watts * 0.1 - off_w * (0.1 - on_s)) / on_s;

		level[i].watts = on_s > 0 ? fmin(fmax(w, 0.88 * on_w), 1.12 * on_w) : on_w;
	}
	return n;
}

/* Adds one burst to the load. The power within the burst changes at each counter tick that the
 * burst crosses. */
static void add_burst(struct load *out, const struct burst *b, const struct level *level, int n,
		      double on_w, double off_w)
{
	double w = on_w;

	for (int i = 0; i < n && level[i].at_s <= b->on_s; i++)
		w = level[i].at_s + 0.15 > b->on_s ? level[i].watts : on_w;
	add_point(out, b->on_s, w);
	for (int i = 0; i < n; i++)
		if (level[i].at_s > b->on_s && level[i].at_s < b->off_s)
			add_point(out, level[i].at_s, level[i].watts);
	add_point(out, b->off_s, off_w);
}

bool burst_load(struct load *out, double on_w, double off_w)
{
	static struct burst burst[ROWS_MAX];
	static struct level level[ROWS_MAX];
	int n_bursts = read_bursts(burst);
	int n = on_levels(level, burst, n_bursts, on_w, off_w);

	out->n = 0;
	add_point(out, rec.zero_s, off_w);
	for (int i = 0; i < n_bursts; i++)
		add_burst(out, &burst[i], level, n, on_w, off_w);
	return n_bursts > 0;
}

/* The driver renewed its values between the last read of the old values and the first read of
 * the new ones, 3 to 33 ms later. The exact time is unknown. The driver had read the sampler up
 * to 10 ms before that. WAYS has the two extreme cases. */
const struct timing USUAL = { 8, false };
static const struct timing WAYS[] = { { 10, true }, { 1, false } };
#define N_WAYS (sizeof(WAYS) / sizeof(WAYS[0]))

struct replay now_;
static struct replay way_[N_WAYS];

/* Writes the settings of the sampler that differ from the fitted model. The others come from
 * the profile, so that a wrong profile is noticed. */
static size_t other_sampler(char *out, size_t size)
{
	size_t at = 0;

	if (model.sample_ms != MODEL_FITTED.sample_ms)
		at += (size_t)snprintf(out, size, ", sample_ms = %.1f", model.sample_ms);
	if (model.filter_ms != MODEL_FITTED.filter_ms)
		at += (size_t)snprintf(out + at, size - at, ", sample_filter_ms = %.1f",
				       model.filter_ms);
	return at;
}

static void load_world(const struct load *load, struct timing how)
{
	static char toml[TEXT_MAX];
	double phase = fmod(rec.zero_s, 0.1);
	char error[512] = "";
	size_t at = (size_t)snprintf(
		toml, sizeof(toml),
		"[time]\nmode = \"stepped\"\n[[gpu]]\nprofile = \"h200\"\n"
		"noise = 0\nsensor = { period_ms = 1, own_time = false, sample_age_ms = %.3f, "
		"sample_phase_ms = %.3f, tick_phase_ms = %.3f, tick_lag_ms = %.3f",
		how.age_ms, 1e3 * fmod(0.2 + model.sample_s - phase, 0.02),
		1e3 * fmod(0.2 + model.counter_s - phase, 0.1), 1e3 * model.counter_lag_s);

	at += other_sampler(toml + at, sizeof(toml) - at);
	at += (size_t)snprintf(toml + at, sizeof(toml) - at,
			       " }\n[[gpu.load]]\nkind = \"trace\"\npoints = [");
	for (int i = 0; i < load->n; i++)
		at += (size_t)snprintf(toml + at, sizeof(toml) - at, "[%.6f, %.4f],",
				       load->point[i].at_s - rec.zero_s, load->point[i].watts);
	snprintf(toml + at, sizeof(toml) - at, "]\n");
	if (sim_load_text(rec.name, toml, error, sizeof(error)) != 0)
		fail_msg("%s", error);
}

static void go_to(double t_s)
{
	uint64_t ns = (uint64_t)((t_s - rec.zero_s) * 1e9), now = sim_now_ns();

	if (ns > now)
		sim_step(ns - now);
}

/* Replays a load and reads at the recorded times. With how.early, power is read one row before
 * the row in which the recording shows the new value. */
static void replay(struct replay *out, const struct load *load, struct timing how)
{
	abi_device d = NULL;

	load_world(load, how);
	assert_int_equal(nvml_init(), 0);
	assert_int_equal(nvml_by_index(0, &d), 0);
	for (int i = 0; i < rec.n; i++) {
		struct abi_field_value v[2] = { { .field = 185 }, { .field = 186 } };
		uint64_t mj = 0;
		int k = how.early ? i + 1 : i;

		if (k < rec.n && renewed(k)) {
			go_to(rec.row[i].begin_s);
			assert_int_equal(nvml_fields(d, 2, v), 0);
			out->average_w[k] = v[0].value.u32 * 1e-3;
			out->instant_w[k] = v[1].value.u32 * 1e-3;
		}
		go_to(rec.row[i].end_s);
		assert_int_equal(nvml_energy(d, &mj), 0);
		out->counter_j[i] = (double)mj * 1e-3;
	}
	nvml_shutdown();
}

void replay_usual(const struct load *load)
{
	replay(&now_, load, USUAL);
}

void replay_load(const struct load *load)
{
	for (size_t w = 0; w < N_WAYS; w++)
		replay(&way_[w], load, WAYS[w]);
	replay_usual(load);
}

void open_times(int i, double *from_s, double *to_s)
{
	*from_s = rec.row[i - 1].begin_s - 1e-3 * WAYS[0].age_ms;
	*to_s = rec.row[i].begin_s - 1e-3 * WAYS[1].age_ms;
}

void replay_moments(const struct load *load, const double *at_s, double *ret_w)
{
	abi_device d = NULL;

	load_world(load, (struct timing){ 0, false });
	assert_int_equal(nvml_init(), 0);
	assert_int_equal(nvml_by_index(0, &d), 0);
	for (int i = 0; i < rec.n; i++) {
		struct abi_field_value v = { .field = 186 };

		if (isnan(at_s[i]))
			continue;
		go_to(at_s[i] + 1e-5);
		assert_int_equal(nvml_fields(d, 1, &v), 0);
		ret_w[i] = v.value.u32 * 1e-3;
	}
	nvml_shutdown();
}

void judge(struct differences *t, const char *what, double t_s, double simulated,
	   double recorded, double bound)
{
	double error = simulated / recorded - 1;

	t->n++;
	t->sum += error;
	t->within += fabs(error) <= 0.05;
	if (fabs(error) > fabs(t->worst))
		t->worst = error;
	if (fabs(error) > bound) {
		t->beyond++;
		print_message("  %s %s at %.3f s: simulated %.1f, recorded %.1f (%+.1f %%)\n",
			      rec.name, what, t_s, simulated, recorded, 100 * error);
	}
}

void report(const struct differences *t, const char *what)
{
	print_message(
		"%s %s: %d ticks compared, %d within 5 %%, worst %+.1f %%, mean %+.2f %%; %d "
		"left out as edges\n",
		rec.name, what, t->n, t->within, 100 * t->worst, 100 * t->sum / fmax(t->n, 1),
		t->edges);
}

struct range {
	double low, high;
};

/* Returns the range of the instant value for all timings that the recording allows. */
static struct range open_range(int i)
{
	struct range r = { now_.instant_w[i], now_.instant_w[i] };

	for (size_t w = 0; w < N_WAYS; w++) {
		r.low = fmin(r.low, way_[w].instant_w[i]);
		r.high = fmax(r.high, way_[w].instant_w[i]);
	}
	return r;
}

bool settled(int i)
{
	struct range r = open_range(i);
	double a = now_.instant_w[i];

	return r.high - a <= 0.05 * a && a - r.low <= 0.05 * a;
}

/* True if the recorded instant value of row i lies in the range of open_range(), widened by
 * slack. */
static bool between(int i, double slack)
{
	struct range r = open_range(i);
	double v = rec.row[i].instant_w;

	return v >= r.low * (1 - slack) && v <= r.high * (1 + slack);
}

static void compare_power(struct score *s, int i, double from_s, bool always,
			  struct bounds bound)
{
	const struct row *r = &rec.row[i];
	double t = r->begin_s;

	if (t > from_s + 1.1)
		judge(&s->average, "average", t, now_.average_w[i], r->average_w,
		      bound.average);
	else
		s->average.edges++;
	judge(&s->any, "instant", t, now_.instant_w[i], r->instant_w, INFINITY);
	if (always || settled(i)) {
		judge(&s->instant, "instant", t, now_.instant_w[i], r->instant_w,
		      bound.instant);
	} else {
		s->instant.edges++;
		s->between += between(i, bound.edge);
		s->close += between(i, 0.05);
	}
}

struct score compare(double from_s, const bool *always, struct bounds bound)
{
	struct score s = { 0 };
	int last = -1;

	for (int i = 1; i < rec.n; i++) {
		double t = rec.row[i].begin_s;

		if (ticked(i) && last > 0 && t > from_s + 0.2) {
			if (late(i) || late(last))
				s.counter.edges++;
			else
				judge(&s.counter, "counter", t,
				      now_.counter_j[i] - now_.counter_j[last],
				      rec.row[i].counter_j - rec.row[last].counter_j,
				      bound.counter);
		}
		if (ticked(i))
			last = i;
		if (renewed(i) && t >= from_s)
			compare_power(&s, i, from_s, always != NULL && always[i], bound);
	}
	return s;
}

void expect(const struct score *s, struct bounds bound)
{
	report(&s->average, "average");
	report(&s->counter, "counter");
	report(&s->any, "instant, edges too");
	report(&s->instant, "instant");
	print_message("%s instant: %d of %d edges are within 5 %% of what timing allows, %d "
		      "within %.0f %%\n",
		      rec.name, s->close, s->instant.edges, s->between, 100 * bound.edge);
	assert_int_equal(s->average.beyond, 0);
	assert_int_equal(s->counter.beyond, 0);
	assert_int_equal(s->instant.beyond, 0);
	assert_true(s->between == s->instant.edges);
	assert_true(s->instant.within >= bound.share * s->instant.n);
}
