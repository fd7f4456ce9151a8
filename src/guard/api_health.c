/* Reads the health of a guarded program's GPUs at its own interval and passes it to the guard as heat and reasons. */
#include "api.h"

#include "guard_input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct patient {
	char uuid[96];
	struct health *health;
	uint64_t due_ns;
};

struct guard_api_health {
	struct gw_snapshot *snap;
	struct health_options options;
	struct patient patient[SCENE_GPUS];
	unsigned patients;
};

int guard_api_health_new(struct gw_ctx *ctx, struct guard_api_health **ret)
{
	struct guard_api_health *h = calloc(1, sizeof(*h));
	int err = h ? gw_snapshot_new(ctx, &h->snap) : -GW_E_NOMEM;

	if (err) {
		free(h);
		return err;
	}
	health_options_init(&h->options);
	*ret = h;
	return 0;
}

void guard_api_health_free(struct guard_api_health *h)
{
	if (!h)
		return;
	for (unsigned i = 0; i < h->patients; i++)
		health_free(h->patient[i].health);
	gw_snapshot_free(h->snap);
	free(h);
}

/* NULL: too many GPUs, or out of memory; the next scene tries again. */
static struct patient *patient_of(struct guard_api_health *h, const char *uuid)
{
	struct patient *p;

	for (unsigned i = 0; i < h->patients; i++)
		if (strcmp(h->patient[i].uuid, uuid) == 0)
			return &h->patient[i];
	if (h->patients == SCENE_GPUS)
		return NULL;
	p = &h->patient[h->patients];
	if (health_new(&h->options, &p->health) != 0)
		return NULL;
	snprintf(p->uuid, sizeof(p->uuid), "%s", uuid);
	p->due_ns = 0;
	h->patients++;
	return p;
}

static void read_device(struct guard_api_health *h, const char *uuid, uint64_t now_ns)
{
	struct patient *p = patient_of(h, uuid);

	for (unsigned i = 0; p && i < gw_snapshot_device_count(h->snap); i++) {
		const struct gw_device *d = gw_snapshot_device(h->snap, i);
		const char *is = gw_device_text(d, GW_T_UUID);

		if (!is || strcmp(is, uuid) != 0)
			continue;
		health_read(p->health, d, now_ns);
		p->due_ns = now_ns + health_interval_ns(p->health);
	}
}

static bool is_due(struct guard_api_health *h, const char *uuid, uint64_t now_ns)
{
	struct patient *p = patient_of(h, uuid);

	return p && now_ns >= p->due_ns;
}

void guard_api_health_read(struct guard_api_health *h, const struct scene *s, uint64_t now_ns)
{
	bool due = false;

	for (unsigned i = 0; i < s->gpus; i++)
		due = due || is_due(h, s->gpu[i].uuid, now_ns);
	if (!due || gw_snapshot_take(h->snap, GW_TIERS_COMMON) != 0)
		return;
	for (unsigned i = 0; i < s->gpus; i++)
		if (is_due(h, s->gpu[i].uuid, now_ns))
			read_device(h, s->gpu[i].uuid, now_ns);
}

void guard_api_health_apply(struct guard_api_health *h, struct guard *g, uint64_t now_ns)
{
	for (unsigned i = 0; i < h->patients; i++) {
		struct patient *p = &h->patient[i];
		struct health_meaning m;

		health_meaning(p->health, now_ns, &m);
		guard_set_heat(g, p->uuid, m.heat, m.heat_why);
		for (unsigned r = 0; r < HEALTH_REASONS; r++) {
			const struct health_finding *f = &m.reason[r].found;

			guard_set_reason(g, p->uuid, m.reason[r].reason, m.reason[r].on, f->why,
					 now_ns);
			guard_set_reason_end(g, p->uuid, m.reason[r].reason, f->clears,
					     f->clears_ns);
		}
	}
}
