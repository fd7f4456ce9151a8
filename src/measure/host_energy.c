#include "host_energy.h"

#include "device/context.h"
#include "device/rapl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct host_meter {
	struct rapl rapl;
};

void host_meter_read(struct host_meter *m, struct host_energy *ret)
{
	struct rapl_total total;

	rapl_read(&m->rapl);
	total = rapl_total(&m->rapl);
	memset(ret, 0, sizeof(*ret));
	ret->joules = total.joules;
	ret->why = total.why;
	ret->remedy = total.remedy;
	for (unsigned i = 0; i < m->rapl.count && i < HOST_DOMAINS; i++) {
		const struct rapl_counter *c = &m->rapl.counter[i];
		struct host_domain *d = &ret->domain[ret->count++];

		snprintf(d->name, sizeof(d->name), "%s", c->d.name);
		d->why = c->why;
		d->joules = c->why == GW_HAVE ? c->joules : NAN;
	}
}

struct host_meter *host_meter_new(struct gw_ctx *ctx)
{
	struct host_meter *m = calloc(1, sizeof(*m));

	if (m)
		rapl_open(&m->rapl, &ctx->root);
	return m;
}

void host_meter_free(struct host_meter *m)
{
	if (m)
		rapl_close(&m->rapl);
	free(m);
}

static double joules_between(double a, enum gw_absence why_a, double b, enum gw_absence *why)
{
	if (*why == GW_HAVE)
		*why = why_a;
	return *why == GW_HAVE ? b - a : NAN;
}

void host_energy_between(const struct host_energy *a, const struct host_energy *b,
			 struct host_energy *ret)
{
	*ret = *b;
	ret->joules = joules_between(a->joules, a->why, b->joules, &ret->why);
	for (unsigned i = 0; i < ret->count; i++) {
		struct host_domain *d = &ret->domain[i];

		if (i >= a->count)
			*d = (struct host_domain){ .joules = NAN, .why = GW_ABSENT_NOT_READ };
		else
			d->joules = joules_between(a->domain[i].joules, a->domain[i].why,
						   d->joules, &d->why);
	}
}
