#include "sampler.h"

#include <math.h>
#include <string.h>

/* Time between two reads of the ring buffer. A read takes 0.5 ms, and the ring buffer of an
 * H200 holds 2.36 s. */
#define DRAIN_NS     (1500 * NS_PER_MS)
#define DRAIN_ANY_NS NS_PER_S       /* used if the time span of the ring buffer is unknown */
#define PROCESSES_NS NS_PER_S       /* time between two reads of the processes */
#define USE_LASTS_NS (2 * NS_PER_S) /* how long a reading of the utilisation is used */
#define IDLE_NS      NS_PER_S       /* time between two ticks while no window is open */
/* Time between two ticks in a service while no window is open. This time is longer than
 * IDLE_NS, because the service also reads the values itself. */
#define UNWATCHED_NS (30 * NS_PER_S)
/* While no window is open, a service reads the counter less often by this factor. A reading
 * takes 3 to 14 ms. Between two readings, energy from the ring buffer differs from the counter
 * by less than 0.5 %. */
#define UNWATCHED_ANCHORS 3
/* If wall clock minus monotonic clock changes by more than this, the wall clock was set. */
#define STEP_NS ((int64_t)NS_PER_MS)
/* A ring buffer with a larger spacing than this is not used, because it does not show changes
 * of power. */
#define COARSE_S 0.5
/* At the latest this long after its timestamp, a sample is in the ring buffer. On an H200 the
 * newest sample is 10 to 18 ms old. */
#define RING_AGE_NS (20 * NS_PER_MS)
/* At the earliest this long after its timestamp, a sample is in the ring buffer. */
#define RING_YOUNG_NS (8 * NS_PER_MS)
/* A read of the ring buffer is not repeated within this time. */
#define FRESH_NS     (20 * NS_PER_MS)
#define SETTLE_TRIES 5 /* number of attempts to read both clocks at the same time */
/* Time between two reads while a caller waits for a sample. A read takes 0.3 ms. */
#define BOUNDARY_STEP_NS (2 * NS_PER_MS)
#define RING_FEW         10 /* with fewer entries, the spacing is uncertain */

static void sampler_emit(struct sampler *s, const struct event *e)
{
	s->emit(s->arg, e);
}

static uint64_t now_ns(const struct sampler *s)
{
	return clock_mono_ns(s->device.clock);
}

static void sampler_note(struct sampler *s, uint64_t t_ns, unsigned code)
{
	sampler_emit(s, &(struct event){ .type = EVENT_NOTE, .t_ns = t_ns, .u.code = code });
}

static double sampler_value(const struct report *r, unsigned q)
{
	return report_has(r, q) ? r->v[q] : NAN;
}

/* Returns the mean spacing of the entries. Entries with the same timestamp count once. NAN with
 * fewer than two entries. */
static double ring_spacing(const struct power_sample *p, int n)
{
	int distinct = 1;

	for (int i = 1; i < n; i++)
		distinct += p[i].wall_us != p[i - 1].wall_us;
	if (n < 2 || distinct < 2 || p[n - 1].wall_us <= p[0].wall_us)
		return NAN;
	return (double)(p[n - 1].wall_us - p[0].wall_us) * 1e-6 / (distinct - 1);
}

static void use_ring(struct sampler *s, enum energy_shape shape, double spacing_s)
{
	const struct sensor_source *src = &s->setup.sensor.ring;

	s->setup.shape = shape;
	s->setup.spacing_s = spacing_s;
	s->setup.window_s = isnan(src->window_s) ? spacing_s : src->window_s;
	s->setup.lag_s = isnan(src->lag_s) ? 0.5 * spacing_s : src->lag_s;
	s->setup.look_ratio = 1;
}

/* Sets up polling. A sensor that observes only part of its period is polled at changing phases,
 * an eighth of the period later each time, so that eight polls cover a load with the same
 * period. */
static void use_quantity(struct sampler *s, enum energy_shape shape, unsigned quantity,
			 const struct sensor_source *src)
{
	double period = isnan(src->period_s) ? 0.1 : src->period_s;
	double window = isnan(src->window_s) ? period : src->window_s;

	s->polled = true;
	s->quantity = quantity;
	s->setup.shape = shape;
	s->setup.look_ratio = fmin(1, window / period);
	s->setup.spacing_s = s->setup.look_ratio < 1 ? period * 9 / 8 : period;
	s->setup.window_s = window;
	s->setup.lag_s = isnan(src->lag_s) ? 0.5 * window : src->lag_s;
	s->poll_ns = (uint64_t)llround(s->setup.spacing_s * 1e9);
}

static void use_sysfs(struct sampler *s, double lag_s)
{
	struct sensor_source file = { .period_s = (double)s->opt.interval_ns * 1e-9,
				      .window_s = (double)s->opt.interval_ns * 1e-9,
				      .lag_s = lag_s };

	use_quantity(s, SHAPE_SYSFS, GW_Q_POWER, &file);
}

static void choose_ring(struct sampler *s)
{
	const struct sensor *sensor = &s->setup.sensor;
	bool text = s->r.provenance == GW_FROM_TEXT;
	int n = sampler_device_ring(&s->device, s->ring.entry, SAMPLER_RING);
	double spacing = ring_spacing(s->ring.entry, n);

	sensor_note_ring(&s->setup.sensor, n);
	s->ring.fetched = n;
	s->ring.fetched_ns = now_ns(s);
	if (n >= 0 && n < RING_FEW && sensor->ring.why == GW_HAVE)
		spacing = sensor->ring.period_s; /* the driver was just loaded */
	if (text && n >= 0)
		use_ring(s, SHAPE_TEXT, 0.1);
	else if (!text && spacing <= COARSE_S)
		use_ring(s, SHAPE_RING, spacing);
}

static void choose_quantity(struct sampler *s)
{
	const struct sensor *sensor = &s->setup.sensor;
	bool text = s->r.provenance == GW_FROM_TEXT, file = s->r.provenance == GW_FROM_SYSFS;

	/* The Intel backend computes power from the energy counter. The power is the mean since
	 * the previous reading, and the first reading has none. */
	if (s->r.vendor == GW_VENDOR_INTEL &&
	    (report_has(&s->r, GW_Q_POWER) || s->r.why[GW_Q_POWER] == GW_ABSENT_FIRST_READING))
		use_sysfs(s, 0.5e-9 * (double)s->opt.interval_ns);
	else if (file && report_has(&s->r, GW_Q_POWER))
		use_sysfs(s, 0);
	else if (report_has(&s->r, GW_Q_POWER_INSTANT))
		use_quantity(s, text ? SHAPE_TEXT : SHAPE_INSTANT, GW_Q_POWER_INSTANT,
			     &sensor->instant);
	else if (report_has(&s->r, GW_Q_POWER) && sensor->average.why == GW_HAVE)
		use_quantity(s, text ? SHAPE_TEXT : SHAPE_MEAN, GW_Q_POWER, &sensor->average);
	else if (report_has(&s->r, GW_Q_POWER))
		use_quantity(s, text ? SHAPE_TEXT : SHAPE_INSTANT, GW_Q_POWER,
			     &sensor->instant);
	else
		s->setup.spacing_s = (double)s->opt.interval_ns * 1e-9;
}

/* Fills in the sensor of the GPU: the stored sensor, or the one that is assumed for its
 * model. */
static void find_sensor(struct sampler *s)
{
	char dir[512], why[256];
	const char *from = s->opt.cache_dir;

	if (s->opt.sensor) {
		s->setup.sensor = *s->opt.sensor;
		return;
	}
	if (!from)
		from = sensor_directory(dir, sizeof(dir)) == 0 ? dir : NULL;
	sensor_known_device(&s->device, from && *from ? from : NULL, &s->setup.sensor, why,
			    sizeof(why));
}

/* Reads the counter now only if that is necessary, because a reading takes 3 to 14 ms and the
 * caller waits for it. If GPUs of this model have a counter, the first reading at the start of
 * sampling shows whether this GPU has one. */
static void check_counter(struct sampler *s)
{
	/* Without another power source, the counter must be checked now. */
	if (s->setup.sensor.counter != GW_HAVE || s->setup.shape == SHAPE_NONE) {
		sampler_device_counter(&s->device, &s->counter.first);
		s->setup.sensor.counter = s->counter.first.why;
	}
	s->setup.counter =
		s->setup.sensor.counter == GW_HAVE && !s->setup.sensor.counter_unsafe;
}

int sampler_init(struct sampler *s, struct gw_ctx *ctx, unsigned position,
		 const struct sampler_options *options,
		 void (*emit_fn)(void *arg, const struct event *e), void *arg)
{
	int err;

	memset(s, 0, sizeof(*s));
	err = sampler_device_init(&s->device, ctx, position);
	if (err)
		return err;
	s->opt = *options;
	s->emit = emit_fn;
	s->arg = arg;
	/* If the ring buffer provides power, no values are needed now: reading them takes 7 ms
	 * on an H200, and the caller waits. */
	sampler_device_read(&s->device, 0, false, &s->r);
	find_sensor(s);
	s->setup.shape = SHAPE_NONE;
	s->setup.spacing_s = 0.1;
	s->setup.look_ratio = 1;
	if (s->r.state == GW_DEVICE_OK)
		choose_ring(s);
	if (s->setup.shape == SHAPE_NONE) { /* there is no ring buffer: read the power */
		sampler_device_read(&s->device, GW_TIER_FAST, false, &s->r);
		find_sensor(s);
		sensor_note_ring(&s->setup.sensor, s->ring.fetched);
	}
	s->opened = s->device.opened;
	s->answers = s->r.state == GW_DEVICE_OK;
	s->setup.limit_w = sampler_value(&s->r, GW_Q_POWER_LIMIT);
	s->setup.mig = s->r.mig_count > 0;
	s->setup.why = device_absence(s->r.state, s->r.cause);
	if (!s->answers)
		return 0;
	s->setup.why = GW_HAVE;
	if (s->setup.shape == SHAPE_NONE) {
		s->setup.why = (enum gw_absence)s->r.why[GW_Q_POWER];
		choose_quantity(s);
	}
	check_counter(s);
	return 0;
}

void sampler_done(struct sampler *s)
{
	usage_done(&s->usage);
}

/* Returns wall clock minus monotonic clock, from the fastest of a few attempts. If the thread
 * were preempted between two readings, the clock would seem to have been set. */
static int64_t clock_offset(const struct sampler *s)
{
	uint64_t tightest = UINT64_MAX;
	int64_t offset = 0;

	for (int i = 0; i < SETTLE_TRIES && tightest > 20 * NS_PER_US; i++) {
		uint64_t before = now_ns(s), wall = clock_wall_ns(s->device.clock);
		uint64_t after_ns = now_ns(s);

		if (after_ns - before < tightest) {
			tightest = after_ns - before;
			offset = (int64_t)(wall - (before + (after_ns - before) / 2));
		}
	}
	return offset;
}

/* Returns how many of the n entries were processed before. ring.tail has the newest entries
 * that were processed. Searches for the last place at which ring.tail occurs: the entries up to
 * there were processed. Timestamps alone are not enough, because the wall clock may have been
 * set back. */
static unsigned already_taken(const struct sampler *s, int n)
{
	for (int end = n; end > 0 && s->ring.tail_count; end--) {
		unsigned k = 0;

		while (k < s->ring.tail_count && k < (unsigned)end &&
		       s->ring.entry[end - 1 - (int)k].wall_us ==
			       s->ring.tail[s->ring.tail_count - 1 - k].wall_us &&
		       s->ring.entry[end - 1 - (int)k].power_w ==
			       s->ring.tail[s->ring.tail_count - 1 - k].power_w)
			k++;
		if (k == s->ring.tail_count || k == (unsigned)end)
			return (unsigned)end;
	}
	return 0;
}

static void store_tail(struct sampler *s, int n)
{
	unsigned keep = n < SAMPLER_TAIL ? (unsigned)n : SAMPLER_TAIL;

	memcpy(s->ring.tail, s->ring.entry + n - (int)keep, keep * sizeof(s->ring.tail[0]));
	s->ring.tail_count = keep;
}

/* Returns the monotonic time of a timestamp, by the current offset of the wall clock. If the
 * time would then be out of order, uses the offset from before the clock was set. Returns 0 if
 * the time is out of order with both offsets. */
static uint64_t mono_of(const struct sampler *s, uint64_t wall_us, int64_t old, int64_t offset,
			uint64_t now)
{
	int64_t candidates[] = { offset, old };

	for (unsigned i = 0; i < 2; i++) {
		int64_t t = (int64_t)(wall_us * NS_PER_US) - candidates[i];

		if (t > (int64_t)s->ring.last_ns && t <= (int64_t)(now + RING_AGE_NS))
			return (uint64_t)t;
	}
	return 0;
}

/* Gets the entries of the ring buffer. A read takes 0.5 ms, so the read that chose the power
 * source is used again if it is recent. */
static int fetch_ring(struct sampler *s)
{
	int n = s->ring.fetched;

	s->ring.fetched = 0;
	if (n > 0 && now_ns(s) - s->ring.fetched_ns < FRESH_NS)
		return n;
	return sampler_device_ring(&s->device, s->ring.entry, SAMPLER_RING);
}

static void drain_ring(struct sampler *s)
{
	int n = fetch_ring(s);
	uint64_t now = now_ns(s);
	int64_t offset = clock_offset(s),
		old = s->ring.offset_known ? s->ring.offset_ns : offset;

	if (n == -GW_E_NOSUPPORT && !s->ring.broken && s->answers) {
		s->ring.broken = true;
		sampler_note(s, now, GW_CODE_SOURCE_CHANGED);
	}
	if (n <= 0)
		return;
	s->ring.broken = false;
	if (offset - old > STEP_NS || old - offset > STEP_NS) {
		sampler_note(s, now, GW_CODE_CLOCK_STEP);
		/* the present time, by the current setting of the wall clock */
		s->use.newest_us = (uint64_t)((int64_t)now + offset) / NS_PER_US;
	}
	for (int i = (int)already_taken(s, n); i < n; i++) {
		uint64_t t = mono_of(s, s->ring.entry[i].wall_us, old, offset, now);

		if (!t)
			continue;
		s->ring.last_ns = t;
		sampler_emit(s, &(struct event){ .type = EVENT_POWER,
						 .t_ns = t,
						 .u.power_w = s->ring.entry[i].power_w });
	}
	store_tail(s, n);
	s->ring.offset_ns = offset;
	s->ring.offset_known = true;
}

/* Reports a reloaded driver before any value of the new driver, because the counter of the new
 * driver is unrelated to the old counter. */
static void check_driver(struct sampler *s)
{
	if (s->device.opened == s->opened)
		return;
	s->opened = s->device.opened;
	sampler_note(s, now_ns(s), GW_CODE_DRIVER_RELOADED);
}

static void read_values(struct sampler *s, unsigned tiers)
{
	bool answered;

	sampler_device_read(&s->device, tiers, false, &s->r);
	answered = s->r.state == GW_DEVICE_OK;
	check_driver(s);
	if (s->answers && !answered)
		sampler_note(s, now_ns(s), GW_CODE_GPU_LOST);
	s->answers = answered;
}

/* Emits the values that were just read. */
static void emit_tick(struct sampler *s, unsigned missed)
{
	struct event e = { .type = EVENT_TICK, .t_ns = now_ns(s), .u.tick.missed = missed };

	for (unsigned i = 0; i < FIGURES; i++)
		e.u.tick.figure[i] = sampler_value(&s->r, event_quantity[i]);
	if (s->answers)
		sampler_emit(s, &e);
}

static void poll_power(struct sampler *s)
{
	uint64_t before = now_ns(s), after_ns;
	double w;

	read_values(s, GW_TIER_FAST);
	after_ns = now_ns(s);
	w = sampler_value(&s->r, s->quantity);
	if (!isnan(w))
		sampler_emit(s, &(struct event){ .type = EVENT_POWER,
						 .t_ns = before + (after_ns - before) / 2,
						 .u.power_w = w });
}

static void emit_counter(struct sampler *s, const struct sampler_device_counter *c)
{
	bool first = !s->counter.read_ns;

	s->counter.read_ns = c->before_ns;
	s->counter.returned_ns = c->after_ns;
	if (first && c->why != GW_HAVE) {
		s->setup.counter = false;
		s->setup.sensor.counter = c->why;
		sampler_emit(s, &(struct event){ .type = EVENT_NO_COUNTER,
						 .t_ns = c->before_ns,
						 .u.absence = c->why });
	}
	if (c->why == GW_HAVE)
		sampler_emit(s, &(struct event){ .type = EVENT_COUNTER,
						 .t_ns = c->before_ns,
						 .u.counter = { c->after_ns, c->joules } });
}

static void read_counter(struct sampler *s)
{
	uint64_t safe = (uint64_t)(fmax(1, s->setup.sensor.counter_safe_s) * 1e9);
	struct sampler_device_counter c;

	if (!s->setup.counter || (s->counter.read_ns && now_ns(s) < s->counter.read_ns + safe))
		return;
	sampler_device_counter(&s->device, &c);
	check_driver(s);
	emit_counter(s, &c);
}

/* Notes GW_CODE_CLOCK_CHANGED if the application clock changed. The change happened at an
 * unknown time since the clock was last read, so the note has the time of that reading and
 * applies to the windows that were open then. */
static void check_clocks(struct sampler *s, uint64_t now)
{
	double hz = sampler_value(&s->r, GW_Q_CLOCK_GRAPHICS_APPLICATION);

	if (s->application_ns && fabs(hz - s->application_hz) > 0.5e6)
		sampler_note(s, s->application_ns, GW_CODE_CLOCK_CHANGED);
	s->application_hz = hz;
	s->application_ns = now;
}

/* Reading the limits takes 2 ms. Windows that begin or end within LIMITS_NS use the same
 * reading. In long windows the reading is repeated every LIMITS_LONG_NS, for callers that query
 * an open window. */
#define LIMITS_NS      (100 * NS_PER_MS)
#define LIMITS_LONG_NS (60 * NS_PER_S)

static uint64_t limits_read_ns(const struct sampler *s)
{
	return s->r.tier_ns[__builtin_ctz(GW_TIER_LIMITS)];
}

static void read_limits(struct sampler *s)
{
	struct event e = { .type = EVENT_LIMITS };
	double *v = e.u.limits.seconds;
	uint64_t read_ns = limits_read_ns(s);

	/* Read the limits again only if the last reading is older than LIMITS_NS. The tier SLOW
	 * has the throttled times of the power cap and of sync boost. */
	sampler_device_read(&s->device, GW_TIER_LIMITS | GW_TIER_SLOW,
			    !read_ns || now_ns(s) > read_ns + LIMITS_NS, &s->r);
	e.t_ns = now_ns(s);
	v[GW_THROTTLE_POWER] = sampler_value(&s->r, GW_Q_LIMITED_POWER);
	v[GW_THROTTLE_SYNC_BOOST] = sampler_value(&s->r, GW_Q_LIMITED_SYNC_BOOST);
	v[GW_THROTTLE_THERMAL_SOFTWARE] = sampler_value(&s->r, GW_Q_LIMITED_THERMAL_SOFTWARE);
	v[GW_THROTTLE_THERMAL_HARDWARE] = sampler_value(&s->r, GW_Q_LIMITED_THERMAL_HARDWARE);
	v[GW_THROTTLE_BRAKE] = sampler_value(&s->r, GW_Q_LIMITED_POWER_BRAKE);
	/* Older drivers report only one thermal counter. */
	if (isnan(v[GW_THROTTLE_THERMAL_SOFTWARE]))
		v[GW_THROTTLE_THERMAL_SOFTWARE] = sampler_value(&s->r, GW_Q_LIMITED_THERMAL);
	e.u.limits.limit_w = sampler_value(&s->r, GW_Q_POWER_LIMIT);
	if (s->r.state != GW_DEVICE_OK)
		return;
	sampler_emit(s, &e);
	check_clocks(s, e.t_ns);
}

/* Returns true if the process is part of the measured program. meter_set_own_process() and
 * meter_set_servers() may write the pids meanwhile. */
static bool is_own(const struct sampler *s, int64_t pid)
{
	if (sampler_device_in_tree(&s->device, pid,
				   __atomic_load_n(&s->opt.own_pid, __ATOMIC_RELAXED)))
		return true;
	for (unsigned i = 0; i < METER_SERVERS; i++) {
		int64_t server = __atomic_load_n(&s->opt.server_pid[i], __ATOMIC_RELAXED);

		if (server && sampler_device_in_tree(&s->device, pid, server))
			return true;
	}
	return false;
}

static double use_ratio(const struct process_use *u, int n, int64_t pid)
{
	for (int i = 0; i < n; i++)
		if (u[i].pid == pid)
			return u[i].sm_ratio;
	return NAN;
}

/* Reads the utilisation of each process, if there are several processes; a read takes 2 ms. The
 * driver updates the utilisation a few times per second. Between updates the last values are
 * kept. */
static void read_use(struct sampler *s)
{
	struct process_use use[SAMPLER_USES];
	uint64_t now = now_ns(s);
	int n = s->usage.count > 1 ? sampler_device_process_use(&s->device, s->use.newest_us,
								use, SAMPLER_USES)
				   : 0;

	if (n <= 0) {
		if (now - s->use.read_ns > USE_LASTS_NS)
			s->use.count = 0;
		return;
	}
	memcpy(s->use.row, use, (size_t)n * sizeof(use[0]));
	s->use.count = n;
	s->use.read_ns = now;
	for (int i = 0; i < n; i++)
		if (use[i].wall_us > s->use.newest_us)
			s->use.newest_us = use[i].wall_us;
}

static void read_processes(struct sampler *s)
{
	struct event e = { .type = EVENT_PROCESS };
	int error;
	enum gw_absence why = sampler_device_processes(&s->device, &s->usage, &error);

	s->due.processes_ns = now_ns(s) + PROCESSES_NS;
	read_use(s);
	e.t_ns = now_ns(s);
	for (unsigned i = 0; i < s->usage.count; i++) {
		const struct usage *u = &s->usage.p[i];

		memset(&e.u, 0, sizeof(e.u));
		e.u.process.id = sampler_device_proc_id(&s->device, u->pid);
		e.u.process.memory_bytes = u->memory_why == GW_HAVE ? u->memory_bytes : 0;
		e.u.process.sm_ratio = use_ratio(s->use.row, s->use.count, u->pid);
		e.u.process.own = is_own(s, u->pid);
		if (*u->name)
			memcpy(e.u.process.name, u->name, sizeof(e.u.process.name));
		else
			sampler_device_process_name(&s->device, u->pid, e.u.process.name,
						    sizeof(e.u.process.name));
		sampler_emit(s, &e);
	}
	sampler_emit(s,
		     &(struct event){ .type = EVENT_PROCESS_LIST,
				      .t_ns = e.t_ns,
				      .u.process_list = { s->usage.count,
							  why != GW_HAVE || s->setup.mig } });
}

/* Returns the next deadline of a periodic action. *ret_missed is the number of deadlines that
 * were missed; ret_missed may be NULL. */
static uint64_t next_deadline(uint64_t due, uint64_t period, uint64_t now, unsigned *ret_missed)
{
	uint64_t late = now > due ? (now - due) / period : 0;

	if (ret_missed)
		*ret_missed = (unsigned)late;
	return due + (late + 1) * period;
}

static uint64_t sampler_earliest(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Sets the time of the next anchor, a regular counter reading. If anchors were a whole number
 * of counter updates apart, they would always find the counter at the same age, and the phase
 * of its updates would stay unknown. Therefore each anchor is delayed by another part of an
 * update period; the golden ratio spreads the delays most evenly. */
static void next_anchor(struct sampler *s)
{
	double part = fmod((double)s->counter.anchors++ * 0.6180339887, 1);
	const bool unwatched = s->opt.service && !s->active && !s->polled;

	s->due.anchor_ns = now_ns(s) + s->opt.anchor_ns * (unwatched ? UNWATCHED_ANCHORS : 1) +
			   (uint64_t)(part * fmax(0, s->setup.sensor.tick_s) * 1e9);
}

/* Returns the longest possible time from a moment to the timestamp of the sample that covers
 * this moment. */
static uint64_t reach_ns(const struct sampler *s)
{
	return (uint64_t)((s->setup.lag_s + s->setup.spacing_s) * 1e9);
}

/* Computes when the sample that covers the end of a window is available: at the earliest, and
 * at the latest. Samples come at regular times, within a few ms, so the timestamp of that
 * sample is known in advance. */
static void expect_sample(struct sampler *s, uint64_t end_ns)
{
	uint64_t step = (uint64_t)(s->setup.spacing_s * 1e9), stamp;

	stamp = s->ring.covered_ns = end_ns + (uint64_t)(s->setup.lag_s * 1e9);
	if (s->ring.last_ns && s->ring.last_ns < stamp)
		stamp = s->ring.last_ns + (stamp - s->ring.last_ns + step - 1) / step * step;
	s->due.drain_ns = sampler_earliest(s->due.drain_ns, stamp + RING_YOUNG_NS);
	s->ring.drain_until_ns = end_ns + reach_ns(s) + RING_AGE_NS;
}

void sampler_boundary(struct sampler *s, uint64_t end_ns, bool brief)
{
	/* When a window begins, the counter is read after everything else, because samples
	 * cover the time since the start. A window that ends before this reading does not need
	 * it. */
	s->counter.due = !end_ns && s->setup.shape == SHAPE_RING;
	if (!s->counter.due && !brief)
		read_counter(s);
	if (end_ns && !s->polled)
		/* A counter reading at the end is useful only if samples cover the time of the
		 * reading, too. */
		expect_sample(s, s->counter.returned_ns >= end_ns ? s->counter.returned_ns + 1
								  : end_ns);
	/* Read the ring buffer soon, because the GPU may be lost before the next regular
	 * read. */
	else if (!s->polled)
		s->due.drain_ns = sampler_earliest(s->due.drain_ns,
						   now_ns(s) + reach_ns(s) + RING_AGE_NS);
	read_limits(s);
	if (s->opt.processes)
		read_processes(s);
	if (s->opt.describe) /* this takes 7 ms, but no caller waits for it now */
		sampler_device_read(&s->device, GW_TIERS_COMMON & ~(unsigned)GW_TIER_FAST,
				    false, &s->r);
	s->opt.describe = false;
	next_anchor(s);
}

static uint64_t drain_period(const struct sampler *s)
{
	double span = s->setup.sensor.ring_span_s;
	uint64_t longest = span > 0 ? (uint64_t)(0.85e9 * span) : DRAIN_ANY_NS;

	return sampler_earliest(longest, DRAIN_NS);
}

/* Returns when to read the ring buffer next: together with the values if possible, so that the
 * thread wakes once for both. */
static uint64_t next_drain(const struct sampler *s, uint64_t now, uint64_t every)
{
	uint64_t due = now + drain_period(s);

	if (DRAIN_NS % every != 0 || s->due.tick_ns > due)
		return due;
	return s->due.tick_ns + (due - s->due.tick_ns) / every * every;
}

/* Returns the time between two readings of the values. */
static uint64_t tick_period(const struct sampler *s, bool active)
{
	uint64_t every = active || s->opt.always || s->opt.interval_ns > IDLE_NS
				 ? s->opt.interval_ns
			 : s->opt.service ? UNWATCHED_NS
					  : IDLE_NS;

	/* The driver updates a value at the first read after its period. Reading values between
	 * two polls would shift the phase of the polls, so values are read together with a
	 * poll. */
	return s->polled ? (every + s->poll_ns - 1) / s->poll_ns * s->poll_ns : every;
}

static void first_step(struct sampler *s, uint64_t now)
{
	s->due.tick_ns = s->due.poll_ns = s->due.drain_ns = s->due.processes_ns = now;
	next_anchor(s);
	if (s->setup.counter &&
	    s->counter.first.before_ns) /* sampler_init() read the counter */
		emit_counter(s, &s->counter.first);
	s->counter.due |= s->opt.service;
}

static void step_values(struct sampler *s, uint64_t now, uint64_t every)
{
	bool read = false;
	unsigned missed;

	if (s->polled && s->due.poll_ns <= now) {
		s->due.poll_ns = next_deadline(s->due.poll_ns, s->poll_ns, now, NULL);
		poll_power(s);
		read = true;
	}
	if (s->due.tick_ns <= now) {
		s->due.tick_ns = next_deadline(s->due.tick_ns, every, now, &missed);
		if (!read)
			read_values(s, GW_TIER_FAST);
		emit_tick(s, missed);
	}
}

static void step_ring(struct sampler *s, uint64_t now, uint64_t every)
{
	if (s->due.drain_ns > now)
		return;
	drain_ring(s);
	s->due.drain_ns = next_drain(s, now, every);
	/* A caller may wait for the sample that covers the end of a window. */
	if (s->ring.last_ns < s->ring.covered_ns && now < s->ring.drain_until_ns)
		s->due.drain_ns =
			sampler_earliest(now + BOUNDARY_STEP_NS, s->ring.drain_until_ns);
}

static void step_counter(struct sampler *s, uint64_t now, bool active)
{
	if (s->counter.due) {
		s->counter.due = false;
		read_counter(s);
	}
	if (!(active || s->opt.service) || s->due.anchor_ns > now)
		return;
	next_anchor(s);
	read_counter(s);
	if (active && now > limits_read_ns(s) + LIMITS_LONG_NS)
		read_limits(s);
}

static uint64_t next_step(const struct sampler *s, bool active, bool ring)
{
	uint64_t next = s->due.tick_ns;

	if (s->polled)
		next = sampler_earliest(next, s->due.poll_ns);
	if (ring)
		next = sampler_earliest(next, s->due.drain_ns);
	if (active || s->opt.service)
		next = sampler_earliest(next, s->due.anchor_ns);
	if (active && s->opt.processes)
		next = sampler_earliest(next, s->due.processes_ns);
	return next;
}

uint64_t sampler_step(struct sampler *s, bool active)
{
	uint64_t now = now_ns(s), every = tick_period(s, active);
	bool ring = !s->polled && s->setup.shape != SHAPE_NONE;

	if (!s->due.tick_ns)
		first_step(s, now);
	if (active && !s->active && s->due.tick_ns > now + every)
		s->due.tick_ns = s->polled ? s->due.poll_ns : now;
	if (active && !s->active)
		s->due.anchor_ns = sampler_earliest(s->due.anchor_ns, now + s->opt.anchor_ns);
	s->active = active;
	/* Read the ring buffer first: its samples are available, and the first read of the
	 * values takes 6 ms. */
	if (ring)
		step_ring(s, now, every);
	step_values(s, now, every);
	step_counter(s, now, active);
	if (active && s->opt.processes && s->due.processes_ns <= now)
		read_processes(s);
	return next_step(s, active, ring);
}
