#include "budgets.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GPUS 64

struct gpu_budget {
	char uuid[96];
	struct budget budget;
	bool reported, over;
};

struct budgets {
	struct budget_options options;
	struct store *store;
	struct gpu_budget gpu[GPUS];
	unsigned count;
};

int budgets_new(const struct budget_options *o, struct store *store, struct budgets **ret)
{
	struct budgets *b = calloc(1, sizeof(*b));

	if (!b)
		return -GW_E_NOMEM;
	b->options = *o;
	b->store = store;
	*ret = b;
	return 0;
}

void budgets_free(struct budgets *b)
{
	free(b);
}

static int64_t budgets_today(void)
{
	time_t t = time(NULL);
	struct tm local;

	return localtime_r(&t, &local) ? (local.tm_year + 1900) * 1000 + local.tm_yday : 0;
}

static const char *budgets_key(const struct gpu_budget *o, const char *what, char out[128])
{
	snprintf(out, 128, "budget_%s %s", what, o->uuid);
	return out;
}

/* The energy of a day that began in an earlier run of the service counts on. */
static struct gpu_budget *budgets_add(struct budgets *b, const char *uuid)
{
	struct gpu_budget *o = &b->gpu[b->count];
	char name[128];

	if (b->count == GPUS)
		return NULL;
	b->count++;
	snprintf(o->uuid, sizeof(o->uuid), "%s", uuid);
	o->budget.day = (int64_t)store_count(b->store, budgets_key(o, "day", name));
	o->budget.base_j = store_count(b->store, budgets_key(o, "base_joules", name));
	o->budget.begun = o->budget.day != 0;
	return o;
}

static struct gpu_budget *budgets_find(struct budgets *b, const char *uuid)
{
	for (unsigned i = 0; i < b->count; i++)
		if (strcmp(b->gpu[i].uuid, uuid) == 0)
			return &b->gpu[i];
	return budgets_add(b, uuid);
}

static void budgets_save(struct budgets *b, const struct gpu_budget *o)
{
	char name[128];

	store_set_count(b->store, budgets_key(o, "day", name), (double)o->budget.day);
	store_set_count(b->store, budgets_key(o, "base_joules", name), o->budget.base_j);
}

void budgets_tick(struct budgets *b, const struct view *v, uint64_t now_ns,
		  void (*changed)(void *arg, const char *uuid, bool over, const char *why),
		  void *arg)
{
	for (unsigned i = 0; v->snap && i < v->devices; i++) {
		const struct gw_device *d = gw_snapshot_device(v->snap, i);
		const char *uuid = gw_device_text(d, GW_T_UUID);
		struct gpu_budget *o = uuid ? budgets_find(b, uuid) : NULL;
		struct budget_look l = { .now_ns = now_ns,
					 .power_w = NAN,
					 .day = budgets_today() };
		char why[160];
		int64_t day;
		bool over;

		if (!o)
			continue;
		day = o->budget.day;
		(void)gw_device_value(d, GW_Q_POWER, &l.power_w);
		l.energy_j = v->device[i].energy_joules;
		over = budget_look(&o->budget, &b->options, &l, why, sizeof(why));
		if (o->budget.day != day && b->options.energy_j > 0)
			budgets_save(b, o);
		if (over != o->over || !o->reported)
			changed(arg, uuid, over, why);
		o->over = over;
		o->reported = true;
	}
}
