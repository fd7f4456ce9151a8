#include "guard_pump.h"

#include "base/text.h"

void guard_pump_orders(const struct guard_pump *p, void *ctx)
{
	struct guard_order o;

	while (p->next_order(ctx, &o)) {
		struct guard_outcome out = { .order = o.id };
		const char *why = p->start(ctx, &o);

		if (!why)
			continue;
		text_fit(out.message, sizeof(out.message), "%s", why);
		p->outcome(ctx, &out);
	}
}

void guard_pump(const struct guard_pump *p, void *ctx)
{
	struct guard_decision d;
	struct guard_record r;
	enum guard_kept kept;

	do {
		while (p->next_decision(ctx, &d))
			p->report(ctx, &d);
		while (p->next_record(ctx, &r))
			p->keep(ctx, &r);
		kept = p->kept(ctx);
		if (kept != KEPT_PENDING)
			guard_pump_orders(p, ctx);
	} while (kept == KEPT_NOW);
}
