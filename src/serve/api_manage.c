/* Reads, changes and restores GPU settings.
 *
 * Changes are refused unless [manage] enabled is set. A handler passes the change to the engine
 * and polls every 10 ms whether it is done. The engine writes the journal and emits the event
 * with the outcome, even if the client has disconnected. This file emits only the events for
 * requests and refusals. */
#include "api_parts.h"
#include "manage_doc.h"

#include "base/suggest.h"
#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define POLL_NS  (10 * NS_PER_MS)
#define KEPT_MAX 1024

#define RESET_WHY                                                                     \
	"gpuward does not reset GPUs: NVML has no call for it, and a reset ends all " \
	"programs on the GPU"
#define RESET_REMEDY                                                                        \
	"Stop every program that uses the GPU (GET /api/v1/processes lists them), release " \
	"the drivers (POST /api/v1/let-go), then run 'nvidia-smi --gpu-reset -i UUID' as "  \
	"root. Linked GPUs are reset together; if the driver refuses, restart the machine."

/* The stored changes of settings. gpuward will undo them. */
struct kept {
	struct manage_entry *p;
	unsigned count;
};

static void add_kept(void *arg, const char *id, const char *json)
{
	struct kept *k = arg;

	if (k->count < KEPT_MAX && manage_entry_read(id, json, &k->p[k->count]) == 0)
		k->count++;
}

static const struct manage_entry *find_kept(const struct kept *k, const char *uuid,
					    enum manage_what what)
{
	for (unsigned i = 0; i < k->count; i++)
		if (k->p[i].what == what && strcmp(k->p[i].uuid, uuid) == 0)
			return &k->p[i];
	return NULL;
}

/* Returns why this setting of this GPU cannot be changed; NULL: no reason is known. Does not
 * call the driver. */
static const char *why_not(const struct gw_device *d, enum manage_what what)
{
	const struct manage_info *i = manage_info(what);
	double unused, generation = api_figure(d, GW_Q_ARCHITECTURE);
	enum gw_absence why = gw_device_value(d, i->quantity, &unused);

	if (strcmp(d->backend, "nvml") != 0)
		return "only the backend nvml can change settings";
	if (d->state != GW_DEVICE_OK)
		return d->message;
	if (i->readable && (why == GW_ABSENT_NOT_SUPPORTED || why == GW_ABSENT_NO_SYMBOL))
		return gw_absence_text(why);
	if (what == MANAGE_GPU_CLOCKS && generation < 5)
		return "clocks can only be locked on Volta and later GPUs";
	if (what == MANAGE_MEMORY_CLOCKS && generation < 7)
		return "memory clocks can only be locked on Ampere and later GPUs";
	return NULL;
}

static void write_current(struct json *j, const struct gw_device *d, enum manage_what what)
{
	const struct manage_info *i = manage_info(what);
	double v[2] = { api_figure(d, i->quantity), NAN }, unused;
	enum gw_absence why = gw_device_value(d, i->quantity, &unused);

	if (what == MANAGE_CLEAR_ECC)
		v[1] = api_figure(d, GW_Q_ECC_UNCORRECTED);
	manage_value_write(j, "value", what, v);
	if (!i->readable)
		json_string(j, "value_absent", "the driver does not report locked clocks");
	else if (why != GW_HAVE)
		json_string(j, "value_absent", gw_absence_text(why));
}

static void write_bounds(struct json *j, const struct gw_device *d, enum manage_what what)
{
	const struct manage_info *i = manage_info(what);

	if (i->highest != GW_QUANTITIES) {
		json_double(j, "lowest", api_figure(d, i->lowest));
		json_double(j, "highest", api_figure(d, i->highest));
	}
	if (i->standard != GW_QUANTITIES)
		json_double(j, "default", api_figure(d, i->standard));
	if (what == MANAGE_COMPUTE_MODE) {
		json_array(j, "choices");
		json_string(j, NULL, "default");
		json_string(j, NULL, "exclusive_process");
		json_string(j, NULL, "prohibited");
		json_array_end(j);
	}
}

static void write_setting(struct json *j, const struct gw_device *d, enum manage_what what,
			  const struct kept *kept)
{
	const char *uuid = gw_device_text(d, GW_T_UUID), *reason = why_not(d, what);
	const struct manage_entry *e = uuid ? find_kept(kept, uuid, what) : NULL;

	json_object(j, manage_info(what)->word);
	json_bool(j, "supported", !reason);
	if (reason)
		json_string(j, "reason", reason);
	write_current(j, d, what);
	write_bounds(j, d, what);
	if (manage_info(what)->values) {
		json_bool(j, "changed", e != NULL);
		if (e) {
			manage_value_write(j, "before", what, e->before);
			json_string(j, "who", e->who);
		}
	}
	json_object_end(j);
}

static void list_settings(const struct api *a, const struct kept *kept, struct buf *out)
{
	const struct gw_snapshot *snap = a->view.snap;
	struct json j;

	json_init(&j, out, false);
	render_head(&j, snap);
	json_bool(&j, "simulated", view_simulated(&a->view));
	json_bool(&j, "enabled", a->manage);
	if (!a->manage)
		json_string(&j, "remedy", "Set [manage] enabled = true in gpuward.toml.");
	json_array(&j, "devices");
	for (unsigned i = 0; i < gw_snapshot_device_count(snap); i++) {
		const struct gw_device *d = gw_snapshot_device(snap, i);

		json_object(&j, NULL);
		json_uint(&j, "index", d->index);
		json_string(&j, "uuid", gw_device_text(d, GW_T_UUID));
		json_string(&j, "name", gw_device_text(d, GW_T_NAME));
		json_bool(&j, "simulated", d->provenance == GW_FROM_SIMULATOR);
		json_object(&j, "settings");
		for (unsigned w = 0; w < MANAGE_WHATS; w++)
			write_setting(&j, d, (enum manage_what)w, kept);
		json_object_end(&j);
		json_object_end(&j);
	}
	json_array_end(&j);
	json_string(&j, "reset", RESET_WHY ". " RESET_REMEDY);
	api_end(&j);
}

void api_manage_list(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	struct kept kept = { malloc(KEPT_MAX * sizeof(struct manage_entry)), 0 };

	(void)q;
	if (!kept.p) {
		api_no_memory(r);
		return;
	}
	if (api_has_reading(a, r)) {
		if (a->view.ops && a->view.ops->each_document)
			a->view.ops->each_document(a->view.engine, MANAGE_DOC_KIND, KEPT_MAX,
						   add_kept, &kept);
		list_settings(a, &kept, &r->body);
	}
	free(kept.p);
}

static void explain_reset(struct reply *r)
{
	reply_problem(r, 501, "not-supported", RESET_REMEDY, "%s", RESET_WHY);
}

void api_manage_reset(void *arg, const struct request *q, struct reply *r)
{
	(void)arg;
	(void)q;
	explain_reset(r);
}

struct wait {
	struct manage_change change;
	int ticket;
	uint64_t until_ns;
};

static void manage_emit(const struct api *a, const char *uuid, const char *severity,
			const char *fmt, ...) __attribute__((format(printf, 4, 5)));

static void manage_emit(const struct api *a, const char *uuid, const char *severity,
			const char *fmt, ...)
{
	char text[512];
	struct view_event e = {
		.kind = MANAGE_DOC_KIND, .uuid = uuid, .severity = severity, .text = text
	};
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (a->view.ops && a->view.ops->emit)
		a->view.ops->emit(a->view.engine, &e);
}

/* Returns the UUID of the GPU that selector names. Refuses a MIG instance, because settings
 * apply to the whole GPU. Returns NULL after an error reply. */
static const char *find_uuid(const struct api *a, struct reply *r, const char *selector)
{
	const char *uuid;
	int i;

	if (strncasecmp(selector, "MIG-", 4) == 0) {
		reply_problem(r, 404, "no-such-device", "GET /api/gpu/manage lists the GPUs.",
			      "settings apply to a whole GPU, not to a MIG instance");
		return NULL;
	}
	i = api_find(a, r, 404, selector);
	if (i < 0)
		return NULL;
	uuid = gw_device_text(gw_snapshot_device(a->view.snap, (unsigned)i), GW_T_UUID);
	if (!uuid)
		reply_problem(r, 501, "not-supported", NULL,
			      "this GPU reports no UUID, which is needed to change settings");
	return uuid;
}

static bool find_what(const char *word, struct manage_change *o, struct reply *r)
{
	const char *words[MANAGE_CLEAR_ECC], *near;

	o->what = manage_find(word);
	if (o->what < MANAGE_CLEAR_ECC)
		return true;
	if (strcmp(word, "reset") == 0) {
		explain_reset(r);
		return false;
	}
	for (unsigned i = 0; i < MANAGE_CLEAR_ECC; i++)
		words[i] = manage_info((enum manage_what)i)->word;
	near = suggest(word, words, MANAGE_CLEAR_ECC, sizeof(words[0]));
	reply_problem(r, 404, "no-such-setting", "GET /api/gpu/manage lists the settings.",
		      "unknown setting \"%.64s\"%s%s%s", word, near ? "; did you mean \"" : "",
		      near ? near : "", near ? "\"?" : "");
	return false;
}

/* Checks that changes are enabled and that the GPU exists. Returns false after an error
 * reply. */
static bool begin_order(const struct api *a, const struct request *q, struct reply *r,
			struct manage_change *o)
{
	const char *uuid;
	char path[160];

	*o = (struct manage_change){ .value = { NAN, NAN },
				     .ours = { NAN, NAN },
				     .earlier = { NAN, NAN } };
	snprintf(o->who, sizeof(o->who), "%s", q->who);
	if (!a->manage) {
		utf8_clean(path, sizeof(path), q->path);
		manage_emit(a, NULL, "warning", "%s requested %s, but changes are disabled",
			    q->who, path);
		reply_problem(r, 403, "management-off",
			      "Set [manage] enabled = true in gpuward.toml and reload the "
			      "service (systemctl reload gpuward, or SIGHUP).",
			      "changing GPU settings is disabled in this service");
		return false;
	}
	if (!api_has_reading(a, r))
		return false;
	uuid = find_uuid(a, r, q->arg[0]);
	if (uuid)
		snprintf(o->uuid, sizeof(o->uuid), "%s", uuid);
	return uuid != NULL;
}

static bool read_body(const struct api *a, const struct request *q, struct reply *r,
		      struct manage_change *o)
{
	char why[200];

	if (manage_body_read(q->body, q->size, o, why, sizeof(why)) == 0)
		return true;
	manage_emit(a, o->uuid, "warning", "%s requested %s, refused: %s", q->who,
		    manage_info(o->what)->word, why);
	reply_problem(r, 400, "bad-value",
		      "GET /api/gpu/manage shows the format of each setting.", "%s", why);
	return false;
}

static void emit_request(const struct api *a, const struct request *q,
			 const struct manage_change *o)
{
	char value[64];

	manage_text(o->what, o->value, value, sizeof(value));
	if (o->restore)
		manage_emit(a, o->uuid, "info", "%s requests to restore %s (request %s)",
			    o->who, manage_info(o->what)->word, q->id);
	else if (o->what == MANAGE_CLEAR_ECC)
		manage_emit(a, o->uuid, "info",
			    "%s requests to clear the ECC counters (request %s)", o->who,
			    q->id);
	else
		manage_emit(a, o->uuid, "info", "%s requests %s %s%s (request %s)", o->who,
			    manage_info(o->what)->word, value, o->keep ? ", permanently" : "",
			    q->id);
}

static void start_order(const struct api *a, const struct request *q, struct reply *r,
			const struct manage_change *o)
{
	const struct view_ops *ops = a->view.ops;
	struct wait *w = malloc(sizeof(*w));
	int ticket = w ? -GW_E_NOSUPPORT : -GW_E_NOMEM;

	emit_request(a, q, o);
	if (w && ops && ops->manage)
		ticket = ops->manage(a->view.engine, o);
	if (ticket <= 0) {
		free(w);
		reply_problem(r, 503, "not-now", "Try again in a few seconds.",
			      "the change could not be started: %s",
			      ticket == -GW_E_STATE ? "too many changes are running"
						    : gw_strerror(ticket));
		return;
	}
	*w = (struct wait){ *o, ticket, api_now(a) + MANAGE_DOC_WAIT_NS };
	*q->memory = w;
	reply_again(r, api_now(a) + POLL_NS);
}

static void reply_failure(const struct manage_result *got, struct reply *r)
{
	static const struct {
		int error, status;
		const char *word;
	} rows[] = {
		{ -GW_E_ARG, 400, "bad-value" },
		{ -GW_E_PERM, 403, "no-permission" },
		{ -GW_E_NODEV, 404, "no-such-device" },
		{ -GW_E_STATE, 409, "not-changed" },
		{ -GW_E_NOSUPPORT, 501, "not-supported" },
		{ -GW_E_TIMEOUT, 503, "driver-hangs" },
		{ -GW_E_LOST, 503, "device-lost" },
	};
	unsigned i = 0;

	while (i < sizeof(rows) / sizeof(rows[0]) && rows[i].error != got->error)
		i++;
	if (i < sizeof(rows) / sizeof(rows[0]))
		reply_problem(r, rows[i].status, rows[i].word, got->remedy, "%s", got->message);
	else
		reply_problem(r, 500, "driver-error", got->remedy, "%s", got->message);
}

static void reply_result(const struct api *a, const struct manage_change *o,
			 const struct manage_result *got, struct reply *r)
{
	struct json j;

	json_init(&j, &r->body, false);
	render_head(&j, a->view.snap);
	json_bool(&j, "simulated", view_simulated(&a->view));
	json_string(&j, "uuid", o->uuid);
	json_string(&j, "setting", manage_info(o->what)->word);
	manage_value_write(&j, "before", o->what, got->before);
	manage_value_write(&j, "after", o->what, got->after);
	if (!manage_info(o->what)->readable && !o->restore)
		manage_value_write(&j, "asked", o->what, o->value);
	json_bool(&j, "changed", got->outcome == MANAGE_CHANGED);
	json_bool(&j, "verified", got->verified);
	json_bool(&j, "restored_on_exit", got->restored_on_exit);
	json_string(&j, "message", got->message);
	api_end(&j);
}

static void poll_order(const struct api *a, const struct request *q, struct reply *r)
{
	const struct wait *w = *q->memory;
	struct manage_result got;
	uint64_t now = api_now(a);
	int done = a->view.ops->managed(a->view.engine, w->ticket, &got);

	if (done == 0 && now < w->until_ns)
		reply_again(r, now + POLL_NS);
	else if (done != 1)
		reply_problem(r, 503, "driver-hangs",
			      "GET /api/gpu/manage shows the current values.",
			      "the change was started, but its outcome is unknown");
	else if (got.error)
		reply_failure(&got, r);
	else
		reply_result(a, &w->change, &got, r);
}

void api_manage_set(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	struct manage_change o;

	if (*q->memory)
		poll_order(a, q, r);
	else if (begin_order(a, q, r, &o) && find_what(q->arg[1], &o, r) &&
		 read_body(a, q, r, &o))
		start_order(a, q, r, &o);
}

void api_manage_restore(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	struct manage_change o;

	if (*q->memory) {
		poll_order(a, q, r);
	} else if (begin_order(a, q, r, &o) && find_what(q->arg[1], &o, r) &&
		   api_no_body(q, r)) {
		o.restore = true;
		start_order(a, q, r, &o);
	}
}

void api_manage_clear_ecc(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	struct manage_change o;

	if (*q->memory) {
		poll_order(a, q, r);
	} else if (begin_order(a, q, r, &o) && api_no_body(q, r)) {
		o.what = MANAGE_CLEAR_ECC;
		start_order(a, q, r, &o);
	}
}
