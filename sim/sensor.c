#include "sensor.h"

#include <math.h>

static uint64_t ms_to_ns(double ms)
{
	return ms <= 0 ? 0 : (uint64_t)(ms * 1e6 + 0.5);
}

static uint64_t sensor_before(uint64_t t_ns, double ms)
{
	uint64_t d = ms_to_ns(ms);

	return t_ns > d ? t_ns - d : 0;
}

static double sensor_calibrated(const struct sensor *s, double watts)
{
	double w = watts * s->p.gain + s->p.offset_w;

	return w > 0 ? w : 0;
}

/* Returns the last point of a grid at or before t. */
static uint64_t grid_before(uint64_t t_ns, double gap_ms, double phase_ms)
{
	uint64_t gap = ms_to_ns(gap_ms), phase;

	if (gap == 0)
		return t_ns;
	phase = ms_to_ns(phase_ms) % gap;
	return t_ns < phase ? 0 : t_ns - (t_ns - phase) % gap;
}

static void refresh_boxcars(struct sensor *s, const struct history *h, uint64_t now_ns)
{
	s->average_w = history_mean_w(h, sensor_before(now_ns, s->p.average_lag_ms),
				      ms_to_ns(s->p.average_ms));
	s->instant_w = history_mean_w(h, sensor_before(now_ns, s->p.instant_lag_ms),
				      ms_to_ns(s->p.instant_ms));
}

static void refresh_low_pass(struct sensor *s, const struct history *h, uint64_t now_ns)
{
	s->average_w = history_filtered_w(h, FILTER_READING,
					  sensor_before(now_ns, s->p.average_lag_ms));
	s->instant_w = history_filtered_w(h, FILTER_READING,
					  sensor_before(now_ns, s->p.instant_lag_ms));
}

static void refresh_samples(struct sensor *s, const struct history *h, uint64_t now_ns)
{
	uint64_t at_ns = grid_before(sensor_before(now_ns, s->p.sample.age_ms),
				     s->p.sample.gap_ms, s->p.sample.phase_ms);
	unsigned n = (unsigned)(s->p.average_ms / s->p.sample.gap_ms + 0.5);
	double sum = 0;

	s->instant_w = history_filtered_w(h, FILTER_READING, at_ns);
	for (unsigned i = 0; i < n; i++)
		sum += history_filtered_w(h, FILTER_READING,
					  sensor_before(at_ns, i * s->p.sample.gap_ms));
	s->average_w = n > 0 ? sum / n : s->instant_w;
}

void sensor_refresh(struct sensor *s, const struct history *h, uint64_t now_ns)
{
	if (s->p.own_time)
		now_ns = grid_before(now_ns, s->p.period_ms, 0);
	if (s->fresh && now_ns - s->refreshed_ns < ms_to_ns(s->p.period_ms))
		return;
	s->fresh = true;
	s->refreshed_ns = now_ns;
	if (s->p.low_pass_ms > 0)
		refresh_low_pass(s, h, now_ns);
	else if (s->p.sample.gap_ms > 0)
		refresh_samples(s, h, now_ns);
	else
		refresh_boxcars(s, h, now_ns);
	s->average_w = sensor_calibrated(s, s->average_w);
	s->instant_w = sensor_calibrated(s, s->instant_w + s->p.module_w);
}

/* Adds to lost_j the energy that this read removes from the counter because this read follows
 * another read too soon. */
static void apply_read_loss(struct sensor *s, double joules, uint64_t now_ns)
{
	double apart_ms = (double)(now_ns - s->counter_read_ns) * 1e-6;
	bool safe = s->p.read_safe_ms > 0 && apart_ms >= s->p.read_safe_ms;

	if (s->p.read_loss_ms <= 0 || !s->counter_read || apart_ms <= 0 || safe)
		return;
	s->lost_j += s->p.read_loss_ms / (s->p.read_loss_ms + apart_ms) *
		     (joules - s->counter_read_j);
}

static uint64_t sensor_wrapped(const struct sensor *s, double joules)
{
	uint64_t start = s->counter_epoch_mj, mj = (uint64_t)(fabs(joules) * 1e3);
	uint64_t sum = start + mj;

	if (joules < 0)
		sum = start > mj ? start - mj : 0;
	return s->p.counter_bits != 0 && s->p.counter_bits < 64
		       ? sum & ((UINT64_C(1) << s->p.counter_bits) - 1)
		       : sum;
}

uint64_t sensor_counter_mj(struct sensor *s, const struct history *h, uint64_t now_ns)
{
	uint64_t grid_ns = grid_before(now_ns, s->p.tick_ms, s->p.tick_phase_ms);
	uint64_t tick_ns = sensor_before(grid_ns, s->p.tick_lag_ms);
	double joules, epoch_s;

	if (tick_ns < s->counter_epoch_ns)
		tick_ns = s->counter_epoch_ns;
	joules = history_joules(h, tick_ns);
	apply_read_loss(s, joules, now_ns);
	s->counter_read = true;
	s->counter_read_ns = now_ns;
	s->counter_read_j = joules;

	epoch_s = (double)(tick_ns - s->counter_epoch_ns) * 1e-9;
	joules = (joules - s->lost_j + s->p.module_w * epoch_s) * s->p.gain +
		 s->p.offset_w * epoch_s;
	return sensor_wrapped(s, joules);
}

/* Returns a number in -1..1 that is always the same for sample k, so that the jitter of a
 * sample does not change between two reads. */
static double stable_jitter(uint64_t k)
{
	uint64_t x = k * UINT64_C(0x9E3779B97F4A7C15);

	x ^= x >> 29;
	x *= UINT64_C(0xBF58476D1CE4E5B9);
	x ^= x >> 32;
	return (double)(x >> 11) / (double)(UINT64_C(1) << 52) - 1;
}

static uint64_t ring_at_ns(const struct sensor *s, uint64_t k)
{
	double ms = s->p.ring.phase_ms + (double)k * s->p.ring.gap_ms;

	if (k != 0)
		ms += 0.5 * s->p.ring.jitter_ms * stable_jitter(k);
	return ms_to_ns(ms);
}

uint64_t sensor_ring_count(const struct sensor *s, uint64_t now_ns)
{
	uint64_t ready_ns = sensor_before(now_ns, s->p.ring.age_ms);
	uint64_t k = (uint64_t)((double)ready_ns / (s->p.ring.gap_ms * 1e6)) + 2;

	/* k can be too high by a few samples, because its computation ignores phase and jitter.
	 * Each of these is less than one gap. */
	while (k > 0 && ring_at_ns(s, k - 1) > ready_ns)
		k--;
	return k;
}

struct sensor_sample sensor_ring_sample(const struct sensor *s, const struct history *h,
					uint64_t k)
{
	uint64_t at_ns = ring_at_ns(s, k);
	double w = history_filtered_w(h, FILTER_RING, sensor_before(at_ns, s->p.ring.delay_ms));

	return (struct sensor_sample){ at_ns, sensor_calibrated(s, w) };
}

void sensor_counter_reset(struct sensor *s, const struct history *h, uint64_t now_ns)
{
	s->counter_epoch_ns = now_ns;
	s->counter_epoch_mj = 0;
	s->lost_j = history_joules(h, now_ns);
	s->counter_read = false;
}

void sensor_restart(struct sensor *s, const struct history *h, uint64_t now_ns)
{
	s->epoch_ns = now_ns;
	s->fresh = false;
	sensor_counter_reset(s, h, now_ns);
}
