/* token_counter: counts the energy and the tokens of each model on the configured inference
 * servers.
 *
 * The engine calls it once per tick, after the guard. A separate thread queries the servers
 * (token_source.h): every interval_s while a server is busy, once more when it is idle again,
 * and never while the guard moves the server. The totals are in the store and continue after a
 * restart. */
#ifndef GW_DAEMON_TOKEN_COUNTER_H
#define GW_DAEMON_TOKEN_COUNTER_H

#include "store.h"

#include "base/loop.h"
#include "serve/view.h"

struct token_counter;

struct token_counter_config {
	struct loop *loop;
	/* The store must be readable, because the totals are loaded from it at the start. */
	struct store *store;
	/* Seconds between two queries to a server. 0: servers are not queried. */
	double interval_s;
	uint64_t (*emit)(void *arg, const struct view_event *e);
	void *arg;
};

/* Returns 0, -GW_E_NOMEM or -GW_E_IO. */
int token_counter_new(const struct token_counter_config *config, struct token_counter **ret);
/* Charges the energy that still waits for token counts (model_energy.h) to the models, and stops
 * the thread. If a request takes longer than timeout_ns, the thread ends later and frees t. */
void token_counter_free(struct token_counter *t, uint64_t timeout_ns);

void token_counter_set_interval(struct token_counter *t, double interval_s);

/* Adds the energy of a tick, and sets v->models. */
void token_counter_tick(struct token_counter *t, struct view *v);

#endif
