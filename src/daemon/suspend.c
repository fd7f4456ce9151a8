#include "suspend.h"

#include "logind.h"

#include <gpuward.h>

#include <stdlib.h>

struct suspend {
	struct engine *engine;
	struct logind *logind;
	bool going;  /* the machine is about to sleep, or does    */
	bool let_go; /* by us, or asked for: to be undone         */
	bool waited; /* logind waits until it is done             */
	int number;  /* of what was asked for last                */
};

static bool ask(struct suspend *d, enum view_request what)
{
	const struct view *v = engine_view(d->engine);
	int number = v->ops->ask(v->engine, what);

	if (number > 0)
		d->number = number;
	return number > 0;
}

static void may_sleep(struct suspend *d)
{
	d->waited = false;
	logind_ready(d->logind);
}

/* A view says how it was: where something is still to be done, it may be that they are opened.  No room for it among
 * what is asked: with the next view. */
static void fall_asleep(struct suspend *d)
{
	const struct view *v = engine_view(d->engine);

	if (v->let_go && v->asks == v->asked)
		may_sleep(d);
	else
		d->let_go = ask(d, VIEW_LET_GO) || d->let_go;
}

/* No room for it among what is asked: with the next view. */
static void wake(struct suspend *d)
{
	if (!d->let_go || !ask(d, VIEW_RESUME))
		return;
	d->let_go = false;
	engine_tell(d->engine, "service", NULL, "info",
		    "the machine is awake: the drivers are opened again");
}

static void turned(void *arg, bool going)
{
	struct suspend *d = arg;

	d->going = d->waited = going; /* who is awake waits for nothing */
	if (going)
		fall_asleep(d);
	else
		wake(d);
}

static void tell_how_it_sleeps(const struct suspend *d, const struct view *v)
{
	if (v->let_go)
		engine_tell(d->engine, "service", NULL, "info",
			    "the machine goes to sleep: the drivers are let go");
	else
		engine_tell(d->engine, "service", NULL, "warning",
			    "the machine goes to sleep while a driver is open: %s",
			    gw_strerror(v->ask_error));
}

void suspend_tick(struct suspend *d)
{
	const struct view *v = d ? engine_view(d->engine) : NULL;

	if (!d)
		return;
	if (!d->going) {
		wake(d);
	} else if (d->waited && !d->let_go) {
		fall_asleep(d);
	} else if (d->waited && view_asked(v, d->number)) {
		tell_how_it_sleeps(d, v);
		may_sleep(d);
	}
}

int suspend_new(struct loop *loop, struct engine *engine, struct suspend **ret)
{
	struct suspend *d = calloc(1, sizeof(*d));

	if (!d)
		return -GW_E_NOMEM;
	d->engine = engine;
	if (logind_new(loop, turned, d, &d->logind) != 0) {
		free(d);
		return -GW_E_NOMEM;
	}
	*ret = d;
	return 0;
}

void suspend_free(struct suspend *d)
{
	if (d)
		logind_free(d->logind);
	free(d);
}
