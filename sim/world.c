#include "world.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

struct world *world_new(void)
{
	struct world *w = calloc(1, sizeof(*w));

	if (w == NULL)
		return NULL;
	w->rate = 1;
	w->stride = 24;
	w->privileged = true;
	w->cuda = 13000;
	w->utilization_entries = 72;
	w->utilization_history = 1;
	w->utilization_copies = 1;
	w->wall_ns = clock_wall_ns(clock_real());
	strcpy(w->driver, "580.159.04");
	strcpy(w->nvml, "13.580.159.04");
	return w;
}

static void device_done(struct device *d)
{
	for (size_t i = 0; i < d->n_loads; i++)
		load_done(&d->loads[i]);
	free(d->loads);
	free(d->processes);
	history_done(&d->history);
}

void world_free(struct world *w)
{
	if (w == NULL)
		return;
	for (unsigned i = 0; i < w->n_devices; i++)
		device_done(&w->devices[i]);
	for (size_t i = 0; i < w->n_missing; i++)
		free(w->missing[i]);
	free(w->missing);
	free(w->devices);
	free(w->actions);
	free(w->faults);
	free(w);
}

static void device_describe(struct device *d, const struct profile *p, unsigned index)
{
	*d = (struct device){ .p = *p, .id.index = index, .id.minor = index };
	snprintf(d->id.name, sizeof(d->id.name), "%s", p->name);
	snprintf(d->id.uuid, sizeof(d->id.uuid), "GPU-%08x-51d0-4000-8000-%012x",
		 0x51000000u + index * 0x01010101u, index + 1);
	snprintf(d->id.serial, sizeof(d->id.serial), "13%011u", 24000000u + index);
	d->id.bus = 0x06 + index * 4;
	if (d->id.bus > 0xff) {
		d->id.domain = d->id.bus >> 8;
		d->id.bus &= 0xff;
	}
	d->noise = 0.004;
	d->set.persistence = true;
	d->set.limit_w = p->limit.default_w;
}

struct device *world_add(struct world *w, const struct profile *p, unsigned n)
{
	unsigned first = w->n_devices;
	struct device *grown;

	if (n == 0 || first + n > WORLD_DEVICES_MAX)
		return NULL;
	grown = realloc(w->devices, (first + n) * sizeof(*grown));
	if (grown == NULL)
		return NULL;
	w->devices = grown;
	for (unsigned i = 0; i < n; i++)
		device_describe(&grown[first + i], p, first + i);
	w->n_devices = first + n;
	return &grown[first];
}

static int sooner_action(const void *a, const void *b)
{
	const struct action *x = a, *y = b;

	return x->at_ns < y->at_ns ? -1 : x->at_ns > y->at_ns;
}

static int start_device(struct world *w, struct device *d)
{
	d->sensor.p = d->p.sensor;
	d->sensor.counter_epoch_mj = d->sensor.p.counter_start_mj;
	d->history.filter_s[FILTER_READING] =
		(d->sensor.p.low_pass_ms > 0 ? d->sensor.p.low_pass_ms
					     : d->sensor.p.sample.filter_ms) *
		1e-3;
	d->history.filter_s[FILTER_RING] = d->sensor.p.ring.filter_ms * 1e-3;
	d->history.ambient_c = d->p.heat.ambient_c;
	d->history.c_per_w = d->p.heat.c_per_w;
	d->history.thermal_s = d->p.heat.constant_s;
	d->control.thermal_factor = 1;
	if (history_init(&d->history, d->p.idle_w) != 0)
		return -1;
	device_advance(w, d, 0);
	return 0;
}

int world_start(struct world *w)
{
	if (w->n_actions != 0)
		qsort(w->actions, w->n_actions, sizeof(*w->actions), sooner_action);
	for (unsigned i = 0; i < w->n_devices; i++)
		if (start_device(w, &w->devices[i]) != 0)
			return -1;
	w->start_ns = clock_mono_ns(clock_real());
	w->stepped_ns = w->begin_ns;
	return 0;
}

uint64_t world_now_ns(const struct world *w)
{
	uint64_t real_ns;

	if (w->mode == TIME_STEPPED)
		return w->stepped_ns;
	real_ns = clock_mono_ns(clock_real()) - w->start_ns;
	return w->begin_ns +
	       (w->mode == TIME_SCALED ? (uint64_t)((double)real_ns * w->rate) : real_ns);
}

uint64_t world_wall_ns(const struct world *w, uint64_t t_ns)
{
	uint64_t wall = w->wall_ns + t_ns - w->begin_ns;

	for (size_t i = 0; i < w->n_actions && w->actions[i].at_ns <= t_ns; i++)
		if (w->actions[i].kind == ACTION_WALL)
			wall += (uint64_t)w->actions[i].step_ns;
	return wall;
}

unsigned world_boots(const struct world *w, uint64_t t_ns, bool *gap)
{
	unsigned boots = 0;

	*gap = false;
	for (size_t i = 0; i < w->n_actions && w->actions[i].at_ns <= t_ns; i++) {
		const struct action *a = &w->actions[i];

		if (a->kind != ACTION_RELOAD)
			continue;
		boots++;
		*gap = t_ns - a->at_ns < a->length_ns;
	}
	return boots;
}

const char *world_driver(const struct world *w, uint64_t t_ns, bool nvml)
{
	const char *version = nvml ? w->nvml : w->driver;

	for (size_t i = 0; i < w->n_actions && w->actions[i].at_ns <= t_ns; i++) {
		const struct action *a = &w->actions[i];

		if (a->kind == ACTION_RELOAD && a->version[0] != 0)
			version = nvml ? a->nvml : a->version;
	}
	return version;
}

static bool fault_applies(const struct fault *f, int call, bool lifecycle, int device,
			  unsigned field, uint64_t t_ns)
{
	if (f->call < 0 ? lifecycle : f->call != call)
		return false;
	if (f->device >= 0 && f->device != device)
		return false;
	if (f->field != field)
		return false;
	if (t_ns < f->from_ns || (f->until_ns != 0 && t_ns >= f->until_ns))
		return false;
	return f->file[0] == 0 || access(f->file, F_OK) == 0;
}

struct fault world_fault(const struct world *w, int call, bool lifecycle, int device,
			 unsigned field, uint64_t t_ns)
{
	struct fault all = { .call = call, .device = device, .field = field };

	for (size_t i = 0; i < w->n_faults; i++) {
		const struct fault *f = &w->faults[i];

		if (!fault_applies(f, call, lifecycle, device, field, t_ns))
			continue;
		all.hang = all.hang || f->hang;
		if (f->delay_ns > all.delay_ns)
			all.delay_ns = f->delay_ns;
		if (f->has_code && !all.has_code) {
			all.has_code = true;
			all.code = f->code;
		}
		if (f->has_value && !all.has_value) {
			all.has_value = true;
			all.value = f->value;
		}
	}
	return all;
}
