#include "budgets.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GPUS 64

struct one {
	char uuid[96];
	struct budget budget;
	bool told, over;
};

struct budgets {
	struct budget_options options;
	struct store *store;
	struct one one[GPUS];
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

static int64_t today(void)
{
	time_t t = time(NULL);
	struct tm local;

	return localtime_r(&t, &local) ? (local.tm_year + 1900) * 1000 + local.tm_yday : 0;
}

static const char *key(const struct one *o, const char *what, char out[128])
{
	snprintf(out, 128, "budget_%s %s", what, o->uuid);
	return out;
}

/* A day that began in an earlier run goes on. */
static struct one *begin(struct budgets *b, const char *uuid)
{
	struct one *o = &b->one[b->count];
	char name[128];

	if (b->count == GPUS)
		return NULL;
	b->count++;
	snprintf(o->uuid, sizeof(o->uuid), "%s", uuid);
	o->budget.day = (int64_t)store_count(b->store, key(o, "day", name));
	o->budget.base_j = store_count(b->store, key(o, "base_joules", name));
	o->budget.begun = o->budget.day != 0;
	return o;
}

static struct one *find(struct budgets *b, const char *uuid)
{
	for (unsigned i = 0; i < b->count; i++)
		if (strcmp(b->one[i].uuid, uuid) == 0)
			return &b->one[i];
	return begin(b, uuid);
}

static void keep(struct budgets *b, const struct one *o)
{
	char name[128];

	store_set_count(b->store, key(o, "day", name), (double)o->budget.day);
	store_set_count(b->store, key(o, "base_joules", name), o->budget.base_j);
}

void budgets_tick(struct budgets *b, const struct view *v, uint64_t now_ns,
		  void (*changed)(void *arg, const char *uuid, bool over, const char *why),
		  void *arg)
{
	for (unsigned i = 0; v->snap && i < v->devices; i++) {
		const struct gw_device *d = gw_snapshot_device(v->snap, i);
		const char *uuid = gw_device_text(d, GW_T_UUID);
		struct one *o = uuid ? find(b, uuid) : NULL;
		struct budget_input l = { .now_ns = now_ns, .power_w = NAN, .day = today() };
		char why[160];
		int64_t day;
		bool over;

		if (!o)
			continue;
		day = o->budget.day;
		(void)gw_device_value(d, GW_Q_POWER, &l.power_w);
		l.energy_j = v->device[i].energy_joules;
		over = budget_update(&o->budget, &b->options, &l, why, sizeof(why));
		if (o->budget.day != day && b->options.energy_j > 0)
			keep(b, o);
		if (over != o->over || !o->told)
			changed(arg, uuid, over, why);
		o->over = over;
		o->told = true;
	}
}
