/* Simulates one GPU over time: load, power, clocks, temperature, processes and actions of the
 * timeline. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "device/nvml_abi.h"
#include "world.h"

/* Time between two steps in which the board controls its power and temperature. */
#define CONTROL_NS (100 * NS_PER_MS)
/* The power limit applies to the mean power over this time. */
#define CAPPED_NS (200 * NS_PER_MS)

bool process_alive(const struct process *p, uint64_t t_ns)
{
	return t_ns >= p->from_ns && (p->until_ns == 0 || t_ns < p->until_ns);
}

uint64_t process_bytes(const struct process *p, uint64_t t_ns)
{
	uint64_t bytes = p->bytes;

	if (p->bytes_per_s > 0 && t_ns > p->from_ns)
		bytes += (uint64_t)(p->bytes_per_s * (double)(t_ns - p->from_ns) * 1e-9);
	if (p->max_bytes != 0 && bytes > p->max_bytes)
		bytes = p->max_bytes;
	return bytes;
}

uint64_t device_total_bytes(const struct device *d)
{
	return d->p.memory_mib << 20;
}

uint64_t device_reserved_bytes(const struct device *d)
{
	return d->p.reserved_kib << 10;
}

uint64_t device_used_bytes(const struct device *d, const struct mig *mig)
{
	uint64_t total =
		mig != NULL ? mig->bytes : device_total_bytes(d) - device_reserved_bytes(d);
	uint64_t used = mig != NULL ? 0 : d->base_bytes;

	for (size_t i = 0; i < d->n_processes; i++) {
		const struct process *p = &d->processes[i];

		if (mig != NULL && p->gpu_instance != mig->gpu_instance)
			continue;
		if (process_alive(p, d->now_ns))
			used += process_bytes(p, d->now_ns);
	}
	return used < total ? used : total;
}

/* True if a process runs at t. Lowers *until_ns to the time at which that may change. */
static bool context_open(const struct device *d, uint64_t t_ns, uint64_t *until_ns)
{
	bool open = false;

	for (size_t i = 0; i < d->n_processes; i++) {
		const struct process *p = &d->processes[i];

		if (process_alive(p, t_ns)) {
			open = true;
			if (p->until_ns != 0)
				min_time(until_ns, p->until_ns);
		} else if (t_ns < p->from_ns) {
			min_time(until_ns, p->from_ns);
		}
	}
	return open;
}

/* Returns a number in -1..1 that is always the same for one device and control step. */
static double stable_noise(unsigned device, uint64_t step)
{
	uint64_t x = (step + 1) * UINT64_C(0x9E3779B97F4A7C15) +
		     device * UINT64_C(0xD1B54A32D192ED03);

	x ^= x >> 30;
	x *= UINT64_C(0x94D049BB133111EB);
	x ^= x >> 31;
	return (double)(x >> 11) / (double)(UINT64_C(1) << 52) - 1;
}

/* The power and the load that the device would have without limits. */
struct demand {
	double watts, load;
	bool open;   /* A process has a context on the device. */
	bool forced; /* A load is given in watts; limits do not reduce it. */
};

static struct demand demand_at(struct device *d, uint64_t t_ns, uint64_t *until_ns)
{
	struct demand q = { .open = context_open(d, t_ns, until_ns) };
	double range = d->p.max_w - d->p.context_w;

	for (size_t i = 0; i < d->n_loads; i++) {
		uint64_t until = 0;
		double level;
		bool there = load_at(&d->loads[i], t_ns, &level, &until);

		min_time(until_ns, until);
		if (there && d->loads[i].watts) {
			q.watts += level;
			q.forced = true;
		} else if (there) {
			q.load += level;
		}
	}
	q.load = fmin(fmax(q.load, 0), 1);
	if (q.forced) {
		q.load = fmin(fmax((q.watts - d->p.context_w) / range, 0), 1);
		return q;
	}
	if (q.load > 0)
		q.watts = d->p.context_w + q.load * range;
	else
		q.watts = q.open ? d->p.context_w : d->p.idle_w;
	q.watts *= 1 + d->noise * stable_noise(d->id.index, t_ns / CONTROL_NS);
	return q;
}

/* Runs once per control step. The power limit applies to the mean of several steps: an H200
 * draws 780 W for a while before it is limited to 700 W, and short bursts are allowed. From the
 * slowdown temperature on, heat lowers thermal_factor gradually; 3 degrees above that
 * temperature, thermal_factor becomes 0.5 at once. thermal_factor is the share of the power
 * range that is left. */
static void control_step(struct device *d, const struct demand *q, uint64_t t_ns)
{
	double celsius = history_celsius(&d->history, t_ns);
	double mean_w = history_mean_w(&d->history, t_ns, CAPPED_NS);

	d->control.capping = q->watts > d->set.limit_w && mean_w > 0.97 * d->set.limit_w;
	if (celsius >= d->p.heat.slowdown_c + 3)
		d->control.thermal_factor = 0.5;
	else if (celsius >= d->p.heat.slowdown_c)
		d->control.thermal_factor = fmax(d->control.thermal_factor * 0.97, 0.3);
	else if (celsius < d->p.heat.slowdown_c - 2)
		d->control.thermal_factor = fmin(d->control.thermal_factor * 1.01, 1);
}

static double clock_at(const struct device *d, const struct demand *q, double share)
{
	double mhz = d->p.mhz.sm;

	if (!q->open && q->load <= 0)
		mhz = d->p.mhz.idle_sm;
	else
		mhz *= cbrt(share);
	if (d->set.lock_sm_mhz[1] > 0)
		mhz = fmin(fmax(mhz, d->set.lock_sm_mhz[0]), d->set.lock_sm_mhz[1]);
	return round(mhz / 15) * 15;
}

/* Computes power, clock and throttle reasons from t on. Returns the time until which these
 * values are valid. */
static uint64_t device_evaluate(struct device *d, uint64_t t_ns)
{
	uint64_t until = t_ns - t_ns % CONTROL_NS + CONTROL_NS;
	struct demand q = demand_at(d, t_ns, &until);
	double watts = q.watts, share;

	if (t_ns % CONTROL_NS == 0)
		control_step(d, &q, t_ns);
	d->control.reasons = !q.open && q.load <= 0 ? ABI_REASON_IDLE : 0;
	if (!q.forced && d->control.thermal_factor < 1) {
		watts = fmin(watts, d->p.context_w + d->control.thermal_factor *
							     (d->p.max_w - d->p.context_w));
		if (watts < q.watts)
			d->control.reasons |= ABI_REASON_SW_THERMAL;
		if (history_celsius(&d->history, t_ns) >= d->p.heat.slowdown_c + 3)
			d->control.reasons |= ABI_REASON_HW_THERMAL | ABI_REASON_HW_SLOWDOWN;
	}
	if (!q.forced && d->set.lock_sm_mhz[1] > 0)
		watts = fmin(watts, q.watts * fmin(d->set.lock_sm_mhz[1] / d->p.mhz.sm, 1));
	if (!q.forced && d->control.capping && watts > d->set.limit_w) {
		watts = d->set.limit_w *
			(1 - 0.01 + d->noise * stable_noise(d->id.index, t_ns / CONTROL_NS));
		d->control.reasons |= ABI_REASON_SW_POWER_CAP;
	}
	share = q.watts > 0 ? watts / q.watts : 1;
	history_add(&d->history, t_ns, watts, q.load, clock_at(d, &q, share));
	return until;
}

/* Adds ns to the time of each reason that limits the clocks now. */
static void device_account(struct device *d, uint64_t ns)
{
	static const struct {
		uint64_t reason;
		enum limited counter;
	} map[] = {
		{ ABI_REASON_SW_POWER_CAP, LIMITED_POWER },
		{ ABI_REASON_SW_THERMAL | ABI_REASON_HW_THERMAL, LIMITED_THERMAL },
		{ ABI_REASON_SYNC_BOOST, LIMITED_SYNC_BOOST },
		{ ABI_REASON_SW_THERMAL, LIMITED_SOFTWARE_THERMAL },
		{ ABI_REASON_HW_THERMAL, LIMITED_HARDWARE_THERMAL },
		{ ABI_REASON_POWER_BRAKE, LIMITED_BRAKE },
	};

	for (size_t i = 0; i < sizeof(map) / sizeof(map[0]); i++)
		if (d->control.reasons & map[i].reason)
			d->control.limited_ns[map[i].counter] += ns;
}

/* Resets the counters and settings that a driver loses when it is loaded again. */
static void device_restart(struct device *d)
{
	sensor_restart(&d->sensor, &d->history, d->now_ns);
	memset(d->control.limited_ns, 0, sizeof(d->control.limited_ns));
	d->set.limit_w = d->p.limit.default_w;
	d->set.compute_mode = 0;
	d->counter.frozen = false;
	memset(d->set.lock_sm_mhz, 0, sizeof(d->set.lock_sm_mhz));
	memset(d->set.lock_memory_mhz, 0, sizeof(d->set.lock_memory_mhz));
}

static void execute_action(struct device *d, const struct action *a)
{
	switch (a->kind) {
	case ACTION_LOSE: d->lost = true; break;
	case ACTION_HEAL: d->lost = false; break;
	case ACTION_RELOAD: device_restart(d); break;
	case ACTION_COUNTER: d->sensor.lost_j -= a->step_j; break;
	case ACTION_RESET: sensor_counter_reset(&d->sensor, &d->history, d->now_ns); break;
	case ACTION_FREEZE:
		d->counter.frozen_mj = sensor_counter_mj(&d->sensor, &d->history, d->now_ns);
		d->counter.frozen = true;
		break;
	case ACTION_THAW: d->counter.frozen = false; break;
	case ACTION_ECC:
		if (a->type == ABI_EVENT_ECC_DOUBLE)
			d->errors.ecc_uncorrected += (unsigned)a->data;
		else
			d->errors.ecc_corrected += (unsigned)a->data;
		break;
	case ACTION_MIG:
		d->mig_generation++;
		if (a->data != 0 && a->data < d->n_migs)
			d->n_migs = (unsigned)a->data;
		break;
	case ACTION_RECOVERY: d->errors.recovery_action = (unsigned)a->data; break;
	case ACTION_EVENT:
	case ACTION_WALL: break;
	}
}

/* Executes the actions that are due at d->now_ns; returns the time of the next action. */
static uint64_t execute_due_actions(struct world *w, struct device *d)
{
	while (d->next_action < w->n_actions) {
		const struct action *a = &w->actions[d->next_action];

		if (a->at_ns > d->now_ns)
			return a->at_ns;
		if (a->device < 0 || (unsigned)a->device == d->id.index)
			execute_action(d, a);
		d->next_action++;
	}
	return WORLD_NEVER;
}

void device_advance(struct world *w, struct device *d, uint64_t t_ns)
{
	for (;;) {
		uint64_t to_ns;

		if (d->change_ns <= d->now_ns) {
			uint64_t action_ns = execute_due_actions(w, d);

			d->change_ns = device_evaluate(d, d->now_ns);
			min_time(&d->change_ns, action_ns);
		}
		if (d->now_ns >= t_ns)
			return;
		to_ns = d->change_ns < t_ns ? d->change_ns : t_ns;
		device_account(d, to_ns - d->now_ns);
		d->now_ns = to_ns;
	}
}

void device_changed(struct device *d)
{
	d->change_ns = d->now_ns;
}

uint64_t device_counter_mj(struct device *d)
{
	if (d->counter.frozen)
		return d->counter.frozen_mj;
	return sensor_counter_mj(&d->sensor, &d->history, d->now_ns);
}

unsigned device_pstate(const struct device *d)
{
	return d->control.reasons & ABI_REASON_IDLE ? d->p.idle_pstate : 0;
}

double device_memory_mhz(const struct device *d)
{
	double mhz = d->p.mhz.memory;

	if (device_pstate(d) >= 8)
		mhz = fmin(mhz, 405);
	if (d->set.lock_memory_mhz[1] > 0)
		mhz = fmin(mhz, d->set.lock_memory_mhz[1]);
	return mhz;
}

int device_set_process(struct device *d, uint32_t pid, uint64_t bytes, bool graphics)
{
	struct process *p = NULL;

	for (size_t i = 0; i < d->n_processes; i++)
		if (d->processes[i].pid == pid && process_alive(&d->processes[i], d->now_ns))
			p = &d->processes[i];
	if (p == NULL && bytes == 0)
		return 0;
	if (p == NULL) {
		struct process *grown =
			reallocarray(d->processes, d->n_processes + 1, sizeof(*grown));

		if (grown == NULL)
			return -1;
		d->processes = grown;
		p = &grown[d->n_processes++];
		*p = (struct process){ .pid = pid,
				       .from_ns = d->now_ns,
				       .copies = 1,
				       .share = 1,
				       .gpu_instance = UINT32_MAX,
				       .compute_instance = UINT32_MAX };
	}
	p->lists = graphics ? LIST_GRAPHICS : LIST_COMPUTE;
	p->bytes = bytes;
	p->max_bytes = bytes;
	p->bytes_per_s = 0;
	if (bytes == 0)
		*p = d->processes[--d->n_processes];
	device_changed(d);
	return 0;
}

/* Maximum number of files in the folder that the key `follow` of [[gpu]] names. In that folder,
 * each real process reports its GPU memory in a file that is named after its pid. */
#define FOLLOWED_MAX 256

struct followed {
	uint32_t pid;
	uint64_t bytes;
	bool graphics, hidden;
};

/* Reads the file of one process. Returns false if the file is empty, because the process has
 * not written it yet. Also returns false if the process has ended: a driver would not list
 * it. */
static bool followed_read(int dir, const char *name, struct followed *ret)
{
	char text[64], *end;
	unsigned long long pid = strtoull(name, &end, 10);
	int fd;
	ssize_t n;

	if (end == name || *end || pid == 0 || pid > INT32_MAX)
		return false;
	fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0 || (kill((pid_t)pid, 0) != 0 && errno == ESRCH))
		return false;
	text[n] = 0;
	ret->pid = (uint32_t)pid;
	ret->bytes = strtoull(text, &end, 10);
	ret->graphics = strstr(end, "graphics") != NULL;
	ret->hidden = strstr(end, "hidden") != NULL;
	return end != text;
}

static unsigned followed_list(const char *path, struct followed *found)
{
	DIR *dir = opendir(path);
	const struct dirent *e;
	unsigned n = 0;

	while (dir != NULL && n < FOLLOWED_MAX && (e = readdir(dir)) != NULL)
		if (followed_read(dirfd(dir), e->d_name, &found[n]))
			n++;
	if (dir != NULL)
		closedir(dir);
	return n;
}

static struct process *followed_process(struct device *d, uint32_t pid)
{
	for (size_t i = 0; i < d->n_processes; i++)
		if (d->processes[i].followed && d->processes[i].pid == pid)
			return &d->processes[i];
	return NULL;
}

static bool followed_has(const struct followed *found, unsigned n, uint32_t pid)
{
	for (unsigned i = 0; i < n; i++)
		if (found[i].pid == pid && found[i].bytes != 0)
			return true;
	return false;
}

/* The followed processes share the load of the device equally. */
static void share_load(struct device *d, unsigned n)
{
	for (size_t i = 0; i < d->n_processes; i++)
		if (d->processes[i].followed)
			d->processes[i].share = 1.0 / n;
}

void device_follow(struct device *d)
{
	struct followed found[FOLLOWED_MAX];
	unsigned n;

	if (d->follow[0] == 0)
		return;
	n = followed_list(d->follow, found);
	for (size_t i = d->n_processes; i-- > 0;)
		if (d->processes[i].followed && !followed_has(found, n, d->processes[i].pid))
			device_set_process(d, d->processes[i].pid, 0, false);
	for (unsigned i = 0; i < n; i++) {
		struct process *p = followed_process(d, found[i].pid);

		if (found[i].bytes == 0 || (p != NULL && p->bytes == found[i].bytes))
			continue;
		if (device_set_process(d, found[i].pid, found[i].bytes, found[i].graphics) == 0)
			for (size_t k = 0; k < d->n_processes; k++)
				if (d->processes[k].pid == found[i].pid) {
					d->processes[k].followed = true;
					d->processes[k].hidden = found[i].hidden;
					/* Processes that are found by the first reading count
					 * as started before the world began. */
					d->processes[k].from_ns =
						d->follows ? d->processes[k].from_ns : 0;
				}
	}
	d->follows = true;
	share_load(d, n);
}
