/* guard_pump: carries out what a guard decided. It reports decisions and keeps records; an
 * order starts only after the record of its worker is kept.
 *
 * The service and the library drive their guards with it. They differ in the functions below:
 * the service writes records to its journal and records the guard's input; the library has no
 * journal. */
#ifndef GW_GUARD_GUARD_PUMP_H
#define GW_GUARD_GUARD_PUMP_H

#include "guard.h"

/* Whether the fetched records are on the disk. */
enum guard_kept {
	KEPT_NOTHING_NEW, /* no record was fetched */
	KEPT_NOW,
	KEPT_PENDING, /* not yet: orders wait until guard_pump_orders() is called */
};

struct guard_pump {
	bool (*next_decision)(void *ctx, struct guard_decision *ret);
	void (*report)(void *ctx, const struct guard_decision *d);
	bool (*next_record)(void *ctx, struct guard_record *ret);
	void (*keep)(void *ctx, const struct guard_record *r);
	enum guard_kept (*kept)(void *ctx);
	bool (*next_order)(void *ctx, struct guard_order *ret);
	/* Starts an order. Returns NULL, or the reason why it cannot start. */
	const char *(*start)(void *ctx, const struct guard_order *o);
	void (*outcome)(void *ctx, const struct guard_outcome *o);
};

/* Reports the decisions, keeps the records and starts the orders that follow from the last
 * input. */
void guard_pump(const struct guard_pump *p, void *ctx);
/* Starts the orders that are due. An order that cannot start gets its outcome here. */
void guard_pump_orders(const struct guard_pump *p, void *ctx);

#endif
