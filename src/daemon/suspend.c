#include "suspend.h"

#include "logind.h"

#include <gpuward.h>

#include <stdlib.h>

struct suspend {
	struct engine *engine;
	struct logind *logind;
	bool going;  /* the machine is about to suspend, or suspended */
	bool let_go; /* we requested the release: undo it */
	bool waited; /* logind waits for us */
	int number;  /* of the last request */
};

static bool request(struct suspend *d, enum view_request what)
{
	const struct view *v = engine_view(d->engine);
	int number = v->ops->ask(v->engine, what);

	if (number > 0)
		d->number = number;
	return number > 0;
}

static void allow_suspend(struct suspend *d)
{
	d->waited = false;
	logind_ready(d->logind);
}

/* Only trusts the view if no request is pending, because one could open the drivers. If the
 * request queue is full, the next view retries. */
static void begin_suspend(struct suspend *d)
{
	const struct view *v = engine_view(d->engine);

	if (v->let_go && v->asks == v->asked)
		allow_suspend(d);
	else
		d->let_go = request(d, VIEW_LET_GO) || d->let_go;
}

/* If the request queue is full, the next view retries. */
static void resume(struct suspend *d)
{
	if (!d->let_go || !request(d, VIEW_RESUME))
		return;
	d->let_go = false;
	engine_tell(d->engine, "service", NULL, "info",
		    "the machine resumed; the drivers are opened again");
}

static void logind_changed(void *arg, bool going)
{
	struct suspend *d = arg;

	d->going = d->waited = going; /* awake: logind does not wait */
	if (going)
		begin_suspend(d);
	else
		resume(d);
}

static void emit_suspend(const struct suspend *d, const struct view *v)
{
	if (v->let_go)
		engine_tell(d->engine, "service", NULL, "info",
			    "the machine suspends; the drivers are released");
	else
		engine_tell(d->engine, "service", NULL, "warning",
			    "the machine suspends while a driver is still open: %s",
			    gw_strerror(v->ask_error));
}

void suspend_tick(struct suspend *d)
{
	const struct view *v = d ? engine_view(d->engine) : NULL;

	if (!d)
		return;
	if (!d->going) {
		resume(d);
	} else if (d->waited && !d->let_go) {
		begin_suspend(d);
	} else if (d->waited && view_asked(v, d->number)) {
		emit_suspend(d, v);
		allow_suspend(d);
	}
}

int suspend_new(struct loop *loop, struct engine *engine, struct suspend **ret)
{
	struct suspend *d = calloc(1, sizeof(*d));

	if (!d)
		return -GW_E_NOMEM;
	d->engine = engine;
	if (logind_new(loop, logind_changed, d, &d->logind) != 0) {
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
