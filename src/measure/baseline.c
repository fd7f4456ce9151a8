#include "baseline.h"

#include "distribution.h"
#include "energy.h"
#include "meter.h"
#include "stat.h"

#include "base/array.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "base/toml_write.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BATCH_NS NS_PER_S
#define BATCHES  600
/* A measurement is a series of batches of one second. It waits at most this long for the sample
 * that covers the end of a batch. */
#define WAIT_NS    (5 * NS_PER_S)
#define BUSY_RATIO 0.02 /* a GPU with a higher utilisation is not idle */

/* Clock reasons that count as throttling: slowdown, sync boost, thermal, brake. Idle,
 * application clocks and display are normal for an idle GPU. The power cap does not count: for
 * a while after a load, an H200 reports it although power is only 80 W and the cap is 700 W. A
 * GPU that is really at its cap is visibly busy. */
#define THROTTLED UINT64_C(0xf8)

const char *gw_baseline_kind_name(unsigned kind)
{
	static const char *const names[GW_BASELINE_KINDS] = {
		[GW_BASELINE_NO_CONTEXT] = "no-context",
		[GW_BASELINE_CONTEXT_IDLE] = "context-idle",
		[GW_BASELINE_HOT_IDLE] = "hot-idle",
	};

	return kind < GW_BASELINE_KINDS ? names[kind] : "";
}

static void copy_text(char *out, size_t size, const struct gw_device *d, unsigned text)
{
	const char *s = gw_device_text(d, text);

	snprintf(out, size, "%s", s ? s : "");
}

static double baseline_value(const struct gw_device *d, unsigned quantity)
{
	double v = NAN;

	return gw_device_value(d, quantity, &v) == GW_HAVE ? v : NAN;
}

void baseline_key(const struct gw_device *d, enum gw_baseline_kind kind, struct baseline *ret)
{
	double persistence = baseline_value(d, GW_Q_PERSISTENCE);

	memset(ret, 0, sizeof(*ret));
	copy_text(ret->uuid, sizeof(ret->uuid), d, GW_T_UUID);
	copy_text(ret->driver, sizeof(ret->driver), d, GW_T_DRIVER);
	copy_text(ret->vbios, sizeof(ret->vbios), d, GW_T_VBIOS);
	ret->kind = kind;
	ret->limit_w = baseline_value(d, GW_Q_POWER_LIMIT);
	ret->persistence = isnan(persistence) ? -1 : persistence != 0;
	ret->temperature_c = baseline_value(d, GW_Q_TEMPERATURE_GPU);
	ret->power_w = ret->u_w = ret->seconds = NAN;
}

void baseline_estimate(const double *batch_w, unsigned n, struct baseline_estimate *ret)
{
	struct moments m;

	moments_init(&m);
	for (unsigned i = 0; i < n; i++)
		moments_add(&m, batch_w[i]);
	ret->power_w = moments_mean(&m);
	ret->u_w = sqrt(moments_variance(&m) / n);
	ret->half_width_w = n > 1 ? student_factor(0.05, n - 1) * ret->u_w : NAN;
}

struct measurement {
	struct gw_meter *meter;
	unsigned device;
	struct baseline_plan plan;
	struct gw_window *whole;
	uint64_t begin_ns;
	unsigned batches;
	double batch_w[BATCHES];
	struct baseline_estimate now;
	struct baseline *ret;
};

static void set_contended(struct measurement *t, const char *what)
{
	t->ret->codes |= code_bit(GW_CODE_BASELINE_CONTENDED);
	snprintf(t->ret->evidence, sizeof(t->ret->evidence), "%s", what);
}

static void set_contended_process(struct measurement *t, const char *name, int64_t pid)
{
	char text[128];

	snprintf(text, sizeof(text), "%s (pid %lld) was using the GPU",
		 *name ? name : "a process", (long long)pid);
	set_contended(t, text);
}

static void set_contended_reasons(struct measurement *t, uint64_t reasons)
{
	char text[160], names[96];

	if (gw_quantity_name(GW_Q_CLOCK_REASONS, (double)reasons, names, sizeof(names)) != 0)
		names[0] = '\0';
	snprintf(text, sizeof(text), "the clocks of the GPU were throttled (%s)", names);
	set_contended(t, text);
}

/* Returns true if the GPU was idle so far. Otherwise stores the evidence. */
static bool is_idle(struct measurement *t)
{
	struct window_activity a;
	char text[96];

	window_activity(t->whole, t->device, &a);
	if (t->plan.kind == GW_BASELINE_NO_CONTEXT && a.first)
		set_contended_process(t, a.first_name, a.first);
	else if (a.foreign)
		set_contended_process(t, a.foreign_name, a.foreign);
	else if (t->plan.kind == GW_BASELINE_CONTEXT_IDLE && !a.first)
		set_contended(t, "the process that should have a context on the GPU has none");
	else if (a.reasons & THROTTLED)
		set_contended_reasons(t, a.reasons & THROTTLED);
	else if (a.utilization_max > BUSY_RATIO) {
		snprintf(text, sizeof(text), "the utilisation of the GPU was %.0f %%",
			 100 * a.utilization_max);
		set_contended(t, text);
	}
	return !(t->ret->codes & code_bit(GW_CODE_BASELINE_CONTENDED));
}

static int add_batch(struct measurement *t, const struct gw_energy *r)
{
	if (r->codes & (code_bit(GW_CODE_GPU_LOST) | code_bit(GW_CODE_DRIVER_RELOADED)))
		return -GW_E_LOST;
	if (isnan(r->power_mean))
		return r->samples_collected == 0 && t->batches > 0 ? -GW_E_LOST
								   : -GW_E_NOSUPPORT;
	t->batch_w[t->batches++] = r->power_mean;
	return 0;
}

/* Measures the next second. Batches follow each other without a gap, even if the wait for the
 * previous batch was long. */
static int take_batch(struct measurement *t)
{
	uint64_t begin = t->begin_ns + t->batches * BATCH_NS;
	struct gw_window *w;
	int err = gw_window_open(t->meter, "", begin, &w);

	if (err)
		return err;
	meter_wait(t->meter, begin + BATCH_NS);
	err = gw_window_close(w, begin + BATCH_NS);
	if (!err)
		err = gw_window_wait(w, WAIT_NS);
	if (!err || err == -GW_E_TIMEOUT)
		err = add_batch(t, gw_window_energy(w, t->device));
	gw_window_free(w);
	return err;
}

static bool is_enough(const struct measurement *t)
{
	double s = t->batches;

	return s + 1 > t->plan.max_s || t->batches == BATCHES ||
	       (s >= t->plan.min_s && t->now.half_width_w <= t->plan.half_width_w);
}

static int take_batches(struct measurement *t)
{
	int err;

	do {
		err = take_batch(t);
		if (err)
			return err;
		baseline_estimate(t->batch_w, t->batches, &t->now);
		if (!is_idle(t))
			return 0;
		if (t->plan.progress && !t->plan.progress(t->plan.ctx, t->batches,
							  t->now.power_w, t->now.half_width_w))
			return -GW_E_STATE;
	} while (!is_enough(t));
	return 0;
}

static void fill_result(struct measurement *t)
{
	const struct gw_energy *r;
	struct window_activity a;
	struct baseline *b = t->ret;

	gw_window_close(t->whole, 0);
	gw_window_wait(t->whole, WAIT_NS);
	r = gw_window_energy(t->whole, t->device);
	b->power_w = t->now.power_w;
	b->u_w = t->now.u_w;
	b->seconds = t->batches;
	b->codes |= r->codes & ~code_bit(GW_CODE_SHORT);
	if (!isnan(r->temperature_begin))
		b->temperature_c = 0.5 * (r->temperature_begin + r->temperature_end);
	if (b->codes & code_bit(GW_CODE_LIMIT_CHANGED) && !*b->evidence)
		set_contended(t, "the power limit of the GPU changed");
	window_activity(t->whole, t->device, &a);
	if (a.hidden && !*b->evidence)
		snprintf(b->evidence, sizeof(b->evidence),
			 "the processes on the GPU are not visible; the utilisation shows that "
			 "the GPU was idle");
	b->wall_ns = clock_wall_ns(meter_clock(t->meter));
}

int baseline_state(struct gw_meter *m, unsigned i, enum gw_baseline_kind kind,
		   struct baseline *ret, enum gw_provenance *ret_provenance)
{
	const struct gw_device *d;
	struct gw_snapshot *snap;
	int err = gw_snapshot_new(meter_context(m), &snap);

	if (err)
		return err;
	err = gw_snapshot_take(snap, GW_TIERS_COMMON);
	d = err ? NULL : gw_snapshot_device(snap, gw_meter_device(m, i));
	if (!err && !d)
		err = -GW_E_NODEV;
	else if (!err && d->state != GW_DEVICE_OK)
		err = -GW_E_LOST;
	if (!err)
		baseline_key(d, kind, ret);
	if (!err && ret_provenance)
		*ret_provenance = d->provenance;
	gw_snapshot_free(snap);
	return err;
}

int baseline_take(struct gw_meter *m, unsigned i, const struct baseline_plan *plan,
		  struct baseline *ret)
{
	struct baseline b;
	struct measurement t = { .meter = m, .device = i, .plan = *plan, .ret = &b };
	int err;

	if (i >= gw_meter_device_count(m))
		return -GW_E_NODEV;
	if (!(plan->max_s >= 2) || plan->kind >= GW_BASELINE_KINDS)
		return -GW_E_ARG;
	err = baseline_state(m, i, plan->kind, &b, NULL);
	if (err)
		return err;
	t.begin_ns = clock_mono_ns(meter_clock(m));
	err = gw_window_open(m, "baseline", t.begin_ns, &t.whole);
	if (err)
		return err;
	err = take_batches(&t);
	if (!err) {
		fill_result(&t);
		*ret = b;
	}
	gw_window_free(t.whole);
	return err;
}

/* Returns a term that is added in quadrature to the uncertainty of the gross energy, to get the
 * uncertainty of the net energy. Both uncertainties have a part from the gain: the uncertainty
 * of the gain times a distance of the power. For the gross energy, this is the distance from
 * the pivot of the calibration; for the net energy, it is the distance from the baseline. So
 * the returned term is the root of the difference of the squares; 0 if this difference is
 * negative. */
static double gain_u(const struct gw_energy *gross, const struct sensor *sensor, double base_w)
{
	double s = gross->seconds, raw = gross->raw_joules;
	double from_pivot = raw - sensor->calibration.pivot_w * s, from_base = raw - base_w * s;

	return sensor->calibration.gain_u *
	       sqrt(fmax(0, from_base * from_base - from_pivot * from_pivot));
}

void baseline_net(const struct gw_energy *gross, const struct sensor *sensor,
		  const struct baseline *before, const struct baseline *after,
		  struct baseline_net *ret)
{
	double s = gross->seconds, base_w = before->power_w, u_w = before->u_w, drift_w = 0;
	double gain_j = 0, best, below, above, base_u;

	if (after) { /* the mean of a straight line between the two baselines */
		base_w = 0.5 * (before->power_w + after->power_w);
		u_w = 0.5 * hypot(before->u_w, after->u_w);
		drift_w = 0.5 * fabs(after->power_w - before->power_w);
	}
	/* A stored baseline is not calibrated. Apply the calibration of gross to the baseline,
	 * too. */
	if (gross->calibrated) {
		gain_j = gain_u(gross, sensor, base_w);
		base_w = gross->gain * base_w + gross->offset_watts;
		u_w *= gross->gain;
		drift_w *= gross->gain;
	}
	best = gross->joules.best - base_w * s;
	base_u = K95 * hypot(gain_j, hypot(u_w * s, drift_w * s));
	/* The interval of gross can be wider than its uncertainty (code sub-period), and its
	 * lower end is never below 0. */
	below = fmax(gross->joules.best - gross->joules.low, K95 * gross->u_absolute);
	above = fmax(gross->joules.high - gross->joules.best, K95 * gross->u_absolute);
	ret->joules = (struct gw_interval){ best - hypot(below, base_u), best,
					    best + hypot(above, base_u) };
	ret->floored = best < 0;
	ret->adjusted_joules = ret->floored ? 0 : best;
}

/* Files of baselines: one per state in which a GPU was idle. The name contains the GPU, the
 * kind and a hash of the other members of the key, so one open() finds a baseline. If there is
 * no such file, the wanted state is compared with another file of the same GPU and kind, so
 * that a message can name the difference. The first line is a hash of the other lines, so that
 * a truncated file is ignored. */
#define FILE_BYTES 4096
#define PATH_BYTES 1024
#define DEGREES    10.0 /* a baseline is used if the temperature differs by at most this */
#define SAME_W     0.5  /* two power limits are equal if they differ by at most this */
#define HEAD       "# gpuward baseline "
/* The first line is HEAD, the hash in 16 hexadecimal digits, and a newline. */
#define HEAD_BYTES (sizeof(HEAD) - 1 + 16 + 1)

int baseline_directory(char *out, size_t size)
{
	return file_cache_directory("baseline", out, size);
}

/* Writes "DIR/UUID.KIND.HASH.toml". Returns 0 or -GW_E_SIZE. */
static int file_path(const struct baseline *key, const char *dir, char out[static PATH_BYTES])
{
	char state[512];
	struct buf b;
	long long deciwatts = isnan(key->limit_w) ? -1 : llround(10 * key->limit_w);
	int n = snprintf(state, sizeof(state), "%s\n%s\n%s\n%lld\n%d", key->uuid, key->driver,
			 key->vbios, deciwatts, key->persistence);

	buf_init_fixed(&b, out, PATH_BYTES);
	buf_addf(&b, "%s/", dir);
	sensor_add_uuid(&b, key->uuid);
	buf_addf(&b, ".%s.%016" PRIx64 ".toml", gw_baseline_kind_name(key->kind),
		 text_hash(TEXT_HASH_START, state, (size_t)n));
	return b.err;
}

#define FIELD(kind, key, member) TOML_FIELD(kind, "", key, struct baseline, member)

static const struct toml_field fields[] = {
	FIELD(TEXT, "uuid", uuid),
	FIELD(TEXT, "driver", driver),
	FIELD(TEXT, "vbios", vbios),
	TOML_ENUM("", "kind", struct baseline, kind, gw_baseline_kind_name, GW_BASELINE_KINDS),
	FIELD(REAL, "limit_watts", limit_w),
	FIELD(INT, "persistence", persistence),
	FIELD(REAL, "power_watts", power_w),
	FIELD(REAL, "standard_error_watts", u_w),
	FIELD(REAL, "seconds", seconds),
	FIELD(REAL, "temperature_celsius", temperature_c),
	FIELD(U64, "taken_unix_ns", wall_ns),
	FIELD(U64, "codes", codes),
};
#define FIELDS COUNT(fields)

int baseline_save(const struct baseline *v, const char *dir, char *message, size_t size)
{
	char path[PATH_BYTES], text[FILE_BYTES], head[HEAD_BYTES + 1];
	struct buf b;
	int err;

	if (v->codes & code_bit(GW_CODE_BASELINE_CONTENDED)) {
		snprintf(message, size, "the GPU was not idle: %s", v->evidence);
		return -GW_E_STATE;
	}
	if (!*v->uuid) {
		snprintf(message, size,
			 "the GPU reports no UUID, which is part of the file name");
		return -GW_E_ARG;
	}
	buf_init_fixed(&b, text, sizeof(text));
	snprintf(head, sizeof(head), HEAD "%016x\n", 0u);
	buf_adds(&b, head);
	toml_write_fields(&b, fields, FIELDS, v);
	err = b.err ? b.err : file_path(v, dir, path);
	if (err) {
		snprintf(message, size, "the path of the baseline file is too long");
		return err;
	}
	snprintf(head, sizeof(head), HEAD "%016" PRIx64 "\n",
		 text_hash(TEXT_HASH_START, text + HEAD_BYTES, b.len - HEAD_BYTES));
	memcpy(text, head, HEAD_BYTES);
	err = file_make_directory(dir, message, size);
	return err ? err : file_replace(path, text, b.len, message, size);
}

/* Reads a baseline from its file. Returns 0, -GW_E_NOENT, or -GW_E_PARSE or -GW_E_ARG with the
 * reason in `why`. */
static int read_file(const char *path, struct baseline *ret, char *why, size_t size)
{
	char text[FILE_BYTES], head[HEAD_BYTES + 1];
	struct toml_error error;
	struct toml *doc;
	int err = 0;
	ssize_t n = file_read_regular(path, text, sizeof(text), why, size);

	if (n < 0)
		return n == -GW_E_ARG ? -GW_E_ARG : -GW_E_NOENT;
	snprintf(why, size, "%s is damaged and was ignored", path);
	if (n <= (ssize_t)HEAD_BYTES)
		return -GW_E_PARSE;
	snprintf(head, sizeof(head), HEAD "%016" PRIx64 "\n",
		 text_hash(TEXT_HASH_START, text + HEAD_BYTES, (size_t)n - HEAD_BYTES));
	if (memcmp(text, head, HEAD_BYTES) != 0 ||
	    toml_parse(text, (size_t)n, &doc, &error) != 0)
		return -GW_E_PARSE;
	memset(ret, 0, sizeof(*ret));
	if (toml_read_fields(toml_top(doc), fields, FIELDS, ret) || ret->persistence < -1 ||
	    !(ret->power_w >= 0 && ret->power_w < 1e5 && ret->u_w >= 0 && ret->seconds > 0))
		err = -GW_E_PARSE;
	toml_free(doc);
	return err;
}

static bool same_limit(double a, double b)
{
	return (isnan(a) && isnan(b)) || fabs(a - b) <= SAME_W;
}

/* Writes why baseline a cannot be used for the state in key. Writes "" if it can be used. */
static void explain_difference(const struct baseline *a, const struct baseline *key,
			       double ttl_s, uint64_t now_ns, char *why, size_t size)
{
	double age_s = ((double)now_ns - (double)a->wall_ns) * 1e-9;
	bool other_driver = strcmp(a->driver, key->driver) != 0;

	why[0] = '\0';
	if (a->kind != key->kind || strcmp(a->uuid, key->uuid) != 0)
		snprintf(why, size, "the stored baseline belongs to another GPU or kind");
	else if (other_driver || strcmp(a->vbios, key->vbios) != 0)
		snprintf(why, size, "the stored baseline belongs to another %s (%s, now %s)",
			 other_driver ? "driver" : "VBIOS", other_driver ? a->driver : a->vbios,
			 other_driver ? key->driver : key->vbios);
	else if (!same_limit(a->limit_w, key->limit_w))
		snprintf(why, size,
			 "the stored baseline is for a limit of %.0f W, but the limit is %.0f "
			 "W now",
			 a->limit_w, key->limit_w);
	else if (a->persistence != key->persistence)
		snprintf(why, size,
			 "persistence mode has changed since the stored baseline was taken");
	else if (age_s < 0)
		snprintf(why, size,
			 "the wall clock was set back since the stored baseline was taken");
	else if (age_s > ttl_s)
		snprintf(why, size,
			 "the stored baseline is %.0f minutes old; the maximum is %.0f",
			 age_s / 60, ttl_s / 60);
	else if (fabs(a->temperature_c - key->temperature_c) > DEGREES)
		snprintf(why, size,
			 "the stored baseline was taken at %.0f degrees Celsius, but the GPU "
			 "has %.0f now",
			 a->temperature_c, key->temperature_c);
}

/* Returns true if the file holds a baseline of that GPU and kind. If uuid is NULL, any GPU and
 * kind match. */
static bool file_matches(const char *name, const char *uuid, const char *kind)
{
	char start[256];
	size_t n = strlen(name);
	struct buf b;

	if (n < 5 || strcmp(name + n - 5, ".toml") != 0)
		return false;
	if (!uuid)
		return true;
	buf_init_fixed(&b, start, sizeof(start));
	sensor_add_uuid(&b, uuid);
	buf_addf(&b, ".%s", kind);
	return !b.err && strncmp(name, start, b.len) == 0;
}

/* Writes why no stored baseline matches the state in key. */
static void explain_missing(const struct baseline *key, const char *dir, double ttl_s,
			    uint64_t now_ns, char *why, size_t size)
{
	char path[PATH_BYTES], unused[PATH_BYTES + 64];
	struct baseline other;
	struct dirent *e;
	DIR *d = opendir(dir);

	snprintf(why, size, "no baseline of this GPU and kind is stored");
	while (d && (e = readdir(d))) {
		int n = snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);

		if (file_matches(e->d_name, key->uuid, gw_baseline_kind_name(key->kind)) &&
		    n > 0 && (size_t)n < sizeof(path) &&
		    read_file(path, &other, unused, sizeof(unused)) == 0) {
			explain_difference(&other, key, ttl_s, now_ns, why, size);
			break;
		}
	}
	if (d)
		closedir(d);
}

int baseline_load(struct baseline *key, const char *dir, double ttl_s, uint64_t wall_now_ns,
		  char *why, size_t size)
{
	char path[PATH_BYTES];
	struct baseline found;
	int err = file_path(key, dir, path);

	if (!err)
		err = read_file(path, &found, why, size);
	if (err == -GW_E_PARSE || err == -GW_E_ARG)
		return -GW_E_NOENT;
	if (err) {
		explain_missing(key, dir, ttl_s, wall_now_ns, why, size);
		return -GW_E_NOENT;
	}
	explain_difference(&found, key, ttl_s, wall_now_ns, why, size);
	if (*why)
		return -GW_E_NOENT;
	*key = found;
	return 0;
}

bool baseline_kept(const char *uuid, enum gw_baseline_kind kind, const char *dir)
{
	bool found = false;
	struct dirent *e;
	DIR *d = opendir(dir);

	while (d && !found && (e = readdir(d)))
		found = file_matches(e->d_name, uuid, gw_baseline_kind_name(kind));
	if (d)
		closedir(d);
	return found;
}

unsigned baseline_clear(const char *uuid, const char *dir)
{
	unsigned deleted = 0;
	struct dirent *e;
	DIR *d = opendir(dir);

	while (d && (e = readdir(d)))
		if (file_matches(e->d_name, uuid, "") && unlinkat(dirfd(d), e->d_name, 0) == 0)
			deleted++;
	if (d)
		closedir(d);
	return deleted;
}
