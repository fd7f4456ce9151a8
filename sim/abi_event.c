/* NVML events, from the scenario's timeline.
 *
 * An event set stores its position in the timeline: earlier events were delivered, or they are
 * older than the registration and are never delivered. The first clock event is delivered at
 * once, then one every 100 ms, as on real GPUs. */
#include "abi.h"

#include "base/clock.h"

#define SETS_MAX 64
#define CLOCK_NS (100 * NS_PER_MS)

struct registration {
	uint64_t mask;
	uint64_t since_ns;
};

struct set {
	bool used;
	unsigned generation;
	struct registration on[WORLD_DEVICES_MAX];
	size_t next;            /* position in the timeline: the next action to deliver */
	uint64_t next_clock_ns; /* when the next clock event is due */
};

static struct set sets[SETS_MAX];

static abi_set handle_of(const struct set *s)
{
	return (abi_set)((uintptr_t)0x520000000000u | (uintptr_t)(s - sets + 1) << 4);
}

static struct set *set_of(abi_set handle)
{
	for (unsigned i = 0; i < SETS_MAX; i++)
		if (sets[i].used && handle_of(&sets[i]) == handle)
			return &sets[i];
	return NULL;
}

SYSTEM_CALL(nvmlEventSetCreate, (abi_set * out), out)
{
	if (out == NULL)
		return ABI_INVALID_ARGUMENT;
	for (unsigned i = 0; i < SETS_MAX; i++) {
		/* A set that was not freed becomes invalid when the driver is reloaded. */
		if (sets[i].used && sets[i].generation == sim.init_generation)
			continue;
		sets[i] = (struct set){ .used = true, .generation = sim.init_generation };
		*out = handle_of(&sets[i]);
		return ABI_SUCCESS;
	}
	return ABI_INSUFFICIENT_RESOURCES;
}

INIT_CALL(nvmlEventSetFree, (abi_set handle), handle)
{
	struct set *s;

	s = set_of(handle);
	if (s == NULL)
		return ABI_INVALID_ARGUMENT;
	s->used = false;
	pthread_cond_broadcast(&sim.moved);
	return ABI_SUCCESS;
}

DEVICE_CALL(nvmlDeviceRegisterEvents, (uint64_t mask, abi_set handle), mask, handle)
{
	uint64_t supported;
	struct set *s;

	s = set_of(handle);
	if (s == NULL)
		return ABI_INVALID_ARGUMENT;
	supported = c->d->p.traits & TRAIT_ROWS ? 0xFF9F : 0x1F;
	if (mask & ~supported)
		return ABI_NOT_SUPPORTED;
	s->on[c->d->id.index].mask |= mask;
	s->on[c->d->id.index].since_ns = c->now_ns;
	s->next_clock_ns = c->now_ns;
	return ABI_SUCCESS;
}

/* Returns the first device that is registered for the event of action a, or n_devices if there
 * is none. */
static unsigned wanted_by(const struct ctx *c, const struct set *s, const struct action *a)
{
	for (unsigned i = 0; i < c->w->n_devices; i++)
		if ((a->device < 0 || (unsigned)a->device == i) && s->on[i].mask & a->type &&
		    a->at_ns >= s->on[i].since_ns)
			return i;
	return c->w->n_devices;
}

/* Gets the next event that is due. If there is none, returns false and the time of the next
 * event in *when_ns (WORLD_NEVER: there is none). */
static bool next_event(struct ctx *c, struct set *s, struct abi_event_data *out,
		       uint64_t *when_ns)
{
	*when_ns = WORLD_NEVER;
	for (; s->next < c->w->n_actions; s->next++) {
		const struct action *a = &c->w->actions[s->next];
		unsigned device;

		if (a->at_ns > c->now_ns) {
			*when_ns = a->at_ns;
			break;
		}
		if (a->type == 0)
			continue;
		device = wanted_by(c, s, a);
		if (device == c->w->n_devices)
			continue;
		s->next++;
		*out = (struct abi_event_data){ abi_handle(c, device, 0), a->type,
						a->kind == ACTION_EVENT ? a->data : 0,
						ABI_NO_U32, ABI_NO_U32 };
		return true;
	}
	for (unsigned i = 0; i < c->w->n_devices; i++) {
		if (!(s->on[i].mask & ABI_EVENT_CLOCK))
			continue;
		if (s->next_clock_ns > c->now_ns) {
			if (s->next_clock_ns < *when_ns)
				*when_ns = s->next_clock_ns;
			break;
		}
		s->next_clock_ns = c->now_ns + CLOCK_NS;
		*out = (struct abi_event_data){ abi_handle(c, i, 0), ABI_EVENT_CLOCK, 0,
						ABI_NO_U32, ABI_NO_U32 };
		return true;
	}
	return false;
}

static abi_return wait_event(struct ctx *c, abi_set handle, struct abi_event_data *out,
			     uint32_t ms)
{
	uint64_t when_ns, end_ns = c->now_ns + ms * NS_PER_MS;

	if (out == NULL)
		return ABI_INVALID_ARGUMENT;
	for (;;) {
		/* The lock was released during the wait, so the set, the world and the driver
		 * may have changed. */
		struct set *s = set_of(handle);
		abi_return code;

		if (s == NULL || s->generation != sim.init_generation)
			return ABI_INVALID_ARGUMENT;
		code = abi_ready(c);
		if (code != ABI_SUCCESS)
			return code;
		if (next_event(c, s, out, &when_ns))
			return ABI_SUCCESS;
		if (c->now_ns >= end_ns)
			return ABI_TIMEOUT;
		abi_wait(when_ns < end_ns ? when_ns : end_ns);
		c->w = sim.world;
		c->now_ns = world_now_ns(c->w);
	}
}

SYSTEM_CALL(nvmlEventSetWait_v2, (abi_set set, struct abi_event_data *out, uint32_t ms), set,
	    out, ms)
{
	return wait_event(c, set, out, ms);
}

/* Version 1 of the event struct has no instance ids. */
SYSTEM_CALL(nvmlEventSetWait, (abi_set set, void *out, uint32_t ms), set, out, ms)
{
	struct abi_event_data data;
	abi_return code = wait_event(c, set, out != NULL ? &data : NULL, ms);
	struct {
		abi_device device;
		uint64_t type, data;
	} *old = out;

	if (code != ABI_SUCCESS)
		return code;
	old->device = data.device;
	old->type = data.type;
	old->data = data.data;
	return code;
}
