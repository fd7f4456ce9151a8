/* Writes the documents of windows, computes sums over GPUs, stores and loads windows, and emits
 * an event when a window begins or ends. */
#include "windows_impl.h"

#include "render_result.h"
#include "render_sensor.h"
#include "stream.h"

#include "base/json_doc.h"
#include "measure/energy.h"
#include "measure/meter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first key after the head of a document; the parts follow. Only a key at the top level is
 * this key, because a client can choose the same text as the key of a tag. */
#define HEAD_END   ",\"parts_left_out\":"
#define NO_PARTS   HEAD_END "false,\"parts\":[]"
#define LEFT_OUT   HEAD_END "true,\"parts\":[]"
#define PART_BYTES 200 /* maximum bytes of a part without label and devices */
#define TAIL_BYTES \
	100 /* maximum bytes of everything in a document that is not in head, parts or details */
#define OPEN_BYTES 640 /* maximum bytes of a device in an unfinished part */

static const struct gw_energy *energy_of(struct gw_window *w, const struct windows_device *d)
{
	return w ? gw_window_energy(w, d->number) : NULL;
}

static void add_device(struct windows_sum *sum, const struct gw_energy *x)
{
	if (!x) { /* The meter of the window no longer exists. */
		sum->joules.best = sum->relative.best = sum->power_w = NAN;
		sum->codes |= UINT64_C(1) << GW_CODE_TRUNCATED;
		sum->validity = GW_NO_RESULT;
		return;
	}
	energy_interval_add(&sum->joules, &x->joules, true);
	energy_interval_add(&sum->relative, &x->relative, false);
	sum->power_w += x->power_mean;
	sum->seconds += x->seconds;
	sum->codes |= x->codes;
	sum->validity = x->validity > sum->validity ? x->validity : sum->validity;
}

void windows_sum_up(const struct windows_entry *e, struct gw_window *w, struct windows_sum *ret)
{
	*ret = (struct windows_sum){ .validity = GW_VALID };
	if (e->devices == 0) /* A window without devices has no result. */
		add_device(ret, NULL);
	for (unsigned i = 0; i < e->devices; i++)
		add_device(ret, energy_of(w, &e->device[i]));
	ret->seconds = isnan(ret->joules.best) ? 0 : ret->seconds / e->devices;
}

static void device_json(struct json *j, const struct windows_device *d,
			const struct gw_energy *x)
{
	json_object(j, NULL);
	json_uint(j, "index", d->index);
	render_text(j, "uuid", d->uuid);
	render_text(j, "name", d->name);
	json_string(j, "provenance", gw_provenance_name(d->provenance));
	if (x) {
		render_energy(j, x);
		render_energy_detail(j, x);
	}
	json_object_end(j);
}

static void devices_json(struct json *j, const struct windows_entry *e, struct gw_window *w)
{
	json_array(j, "devices");
	for (unsigned i = 0; i < e->devices; i++)
		device_json(j, &e->device[i], energy_of(w, &e->device[i]));
	json_array_end(j);
}

static void part_devices(struct json *j, const char *key, const struct windows_entry *e,
			 struct gw_window *w)
{
	json_array(j, key);
	for (unsigned i = 0; i < e->devices; i++) {
		json_object(j, NULL);
		json_uint(j, "index", e->device[i].index);
		render_energy_part(j, energy_of(w, &e->device[i]));
		json_object_end(j);
	}
	json_array_end(j);
}

void windows_settle_part(const struct windows_entry *e, struct windows_part *p)
{
	struct json j;

	if (!p->window)
		return;
	gw_window_wait(p->window, 0);
	json_init(&j, &p->devices, false);
	part_devices(&j, NULL, e, p->window);
	if (p->devices.err) /* Truncated JSON is invalid, so write nothing. */
		buf_done(&p->devices);
	gw_window_free(p->window);
	p->window = NULL;
}

static double windows_seconds(uint64_t from_ns, uint64_t to_ns)
{
	return to_ns > from_ns ? (double)(to_ns - from_ns) / 1e9 : 0;
}

static void part_json(struct json *j, const struct windows_entry *e,
		      const struct windows_part *p)
{
	struct windows_sum sum = { .seconds = windows_seconds(p->begin_ns, p->end_ns) };

	if (!p->end_ns)
		windows_sum_up(e, p->window, &sum);
	json_object(j, NULL);
	json_string(j, "label", p->labelled ? p->label : NULL);
	json_double(j, "begin_seconds", windows_seconds(e->time.begin_ns, p->begin_ns));
	json_double(j, "seconds", sum.seconds);
	json_bool(j, "unfinished", p->end_ns == 0);
	if (p->window)
		part_devices(j, "devices", e, p->window);
	else
		json_raw(j, "devices", p->devices.len ? p->devices.p : "[]");
	json_object_end(j);
}

/* Returns an upper bound of the bytes of all parts, before they are written. */
static size_t parts_bytes(const struct windows_entry *e)
{
	size_t sum = 0;

	for (const struct windows_part *p = e->parts; p; p = p->next)
		sum += PART_BYTES + strlen(p->label) * JSON_ESCAPE_MAX +
		       (p->window ? e->devices * OPEN_BYTES : p->devices.len);
	return sum;
}

static void parts_json(struct json *j, const struct windows_entry *e, bool left_out)
{
	json_bool(j, "parts_left_out", left_out);
	json_array(j, "parts");
	for (const struct windows_part *p = left_out || !e->marks ? NULL : e->parts; p;
	     p = p->next)
		part_json(j, e, p);
	json_array_end(j);
}

static void evidence_json(struct json *j, const struct windows_device *d, struct gw_window *w)
{
	const struct gw_energy *x = energy_of(w, d);
	char text[200];

	json_object(j, "evidence");
	for (unsigned c = 0; x && c < GW_CODES; c++) {
		if (!(x->codes & UINT64_C(1) << c))
			continue;
		window_evidence(w, d->number, x, c, text, sizeof(text));
		if (*text)
			json_string(j, gw_code_info(c)->key, text);
	}
	json_object_end(j);
}

/* Returns the shares of processes; NULL: the window has not ended, or they are unknown. */
static const struct attribute *process_shares(const struct windows_device *d,
					      struct gw_window *w)
{
	const struct attribute *who = w ? window_processes(w, d->number) : NULL;

	return who && !isnan(energy_of(w, d)->joules.best) &&
			       (who->count > 0 || who->idle_joules > 0 ||
				who->unattributed_joules > 0)
		       ? who
		       : NULL;
}

/* Writes the details of a device. w is the completed window on the meter; NULL if the window
 * has not ended or the meter no longer exists. */
static void detail_json(struct json *j, const struct windows_device *d, struct gw_window *w)
{
	json_object(j, NULL);
	json_uint(j, "index", d->index);
	render_text(j, "driver_version", d->driver);
	json_double(j, "power_limit_watts", d->power_limit_w);
	evidence_json(j, d, w);
	sensor_json(j, "sensor", &d->sensor);
	render_shares(j, process_shares(d, w));
	json_object_end(j);
}

/* Writes the details of each device in addition to its energy. Writes nothing if the details
 * have more than `most` bytes. */
static void details_json(struct buf *out, const struct windows_entry *e, size_t most)
{
	struct gw_window *w = e->state == WINDOWS_HAS_ENDED ? e->window : NULL;
	struct json j;

	buf_init(out, most);
	if (!most)
		return;
	json_init(&j, out, false);
	json_array(&j, NULL);
	for (unsigned i = 0; i < e->devices && !out->err; i++)
		detail_json(&j, &e->device[i], w);
	json_array_end(&j);
	if (out->err) /* Truncated JSON is invalid, so write nothing. */
		buf_done(out);
}

/* Returns by how many bytes a document of this size may still grow. */
static size_t bytes_left(size_t bytes)
{
	return bytes < VIEW_DOCUMENT_MAX ? VIEW_DOCUMENT_MAX - bytes : 0;
}

static void head_json(struct json *j, const struct windows_entry *e, const char *state,
		      const char *ended_by)
{
	json_int(j, "schema_version", RENDER_SCHEMA_VERSION);
	json_string(j, "kind", "window");
	json_string(j, "id", e->id);
	render_text(j, "label", e->label);
	json_string(j, "state", state);
	json_string(j, "ended_by", ended_by);
	json_time(j, "begin_time", e->time.begin_wall_ns);
}

static void settings_json(struct json *j, const struct windows_entry *e)
{
	json_double(j, "limit_seconds", (double)e->time.limit_ns / 1e9);
	json_double(j, "lease_seconds",
		    e->time.lease_ns ? (double)e->time.lease_ns / 1e9 : NAN);
	json_raw(j, "tags", e->tags ? e->tags : "{}");
	json_bool(j, "simulated", e->simulated);
	json_uint(j, "marks", e->marks);
}

static void sum_json(struct json *j, const struct windows_sum *sum)
{
	json_string(j, "validity", gw_validity_name(sum->validity));
	render_codes(j, sum->codes);
	render_interval(j, "energy_joules", &sum->joules);
	render_interval(j, "energy_relative_joules", &sum->relative);
	json_double(j, "power_mean_watts", sum->power_w);
}

static void render_window(struct json *j, const struct windows_entry *e, enum windows_form form)
{
	static const char *const states[] = { "open", "ending", "ended" };
	size_t begin = j->out->len, left;
	struct windows_sum sum = e->sum;
	struct buf details;
	bool left_out;

	if (e->state != WINDOWS_HAS_ENDED)
		windows_sum_up(e, e->window, &sum);
	json_object(j, NULL);
	head_json(j, e, states[e->state], e->ended_by);
	/* Computed from the monotonic clock, so that setting the wall clock does not change the
	 * duration. */
	json_time(j, "end_time",
		  e->time.end_ns ? e->time.begin_wall_ns + (e->time.end_ns - e->time.begin_ns)
				 : 0);
	json_double(j, "seconds",
		    e->time.end_ns ? windows_seconds(e->time.begin_ns, e->time.end_ns)
				   : sum.seconds);
	settings_json(j, e);
	sum_json(j, &sum);
	devices_json(j, e, e->window);
	left = bytes_left(j->out->len - begin + TAIL_BYTES);
	details_json(&details, e, form == WINDOWS_WHOLE ? left : 0);
	left -= details.len;
	left_out = form == WINDOWS_SHORT || !e->parts || parts_bytes(e) >= left;
	parts_json(j, e, e->marks && left_out);
	if (form == WINDOWS_WHOLE)
		json_raw(j, "details", details.len ? details.p : "null");
	json_object_end(j);
	buf_done(&details);
}

void windows_json(struct json *j, const struct windows_entry *e, enum windows_form form)
{
	if (!e->document) {
		render_window(j, e, form);
	} else if (form == WINDOWS_WHOLE || !e->head_bytes) {
		json_raw(j, NULL, e->document);
	} else {
		json_raw(j, NULL, "");
		buf_add(j->out, e->document, e->head_bytes);
		buf_adds(j->out, e->cut ? LEFT_OUT "}" : NO_PARTS "}");
	}
}

void windows_mark_json(struct json *j, const struct windows_entry *e)
{
	uint64_t begin_ns = e->last->begin_ns - e->time.begin_ns;

	json_object(j, NULL);
	json_int(j, "schema_version", RENDER_SCHEMA_VERSION);
	json_string(j, "kind", "mark");
	json_string(j, "id", e->id);
	json_string(j, "label", e->last->label);
	json_time(j, "time", e->time.begin_wall_ns + begin_ns);
	json_bool(j, "simulated", e->simulated);
	json_double(j, "begin_seconds", (double)begin_ns / 1e9);
	json_uint(j, "marks", e->marks);
	json_object_end(j);
}

/* Writes the document that represents an open window after a crash of the service. */
static void windows_crash_json(struct json *j, const struct windows_entry *e)
{
	struct windows_sum sum = { .validity = GW_VALID };

	add_device(&sum, NULL);
	json_object(j, NULL);
	head_json(j, e, "ended", "crash");
	json_null(j, "end_time"); /* The end is unknown after a crash. */
	json_null(j, "seconds");
	settings_json(j, e);
	sum_json(j, &sum);
	devices_json(j, e, NULL);
	parts_json(j, e, false);
	json_object_end(j);
}

/* Returns where the head of a document ends; NULL: the document does not have HEAD_END. */
static const char *find_head_end(const char *document)
{
	unsigned depth = 0;
	bool quoted = false;

	for (const char *p = document; *p; p++) {
		if (depth == 1 && !quoted && strncmp(p, HEAD_END, strlen(HEAD_END)) == 0)
			return p;
		if (quoted && *p == '\\' && p[1])
			p++;
		else if (*p == '"')
			quoted = !quoted;
		else if (!quoted && (*p == '{' || *p == '['))
			depth++;
		else if (!quoted && (*p == '}' || *p == ']'))
			depth--;
	}
	return NULL;
}

/* Takes ownership of a document. */
static void windows_set_document(struct windows_entry *e, char *document)
{
	const char *end = find_head_end(document);

	free(e->document);
	e->document = document;
	e->head_bytes = end ? (size_t)(end - document) : 0;
	e->cut = end && strncmp(end, NO_PARTS, strlen(NO_PARTS)) != 0;
}

int windows_make_document(struct windows_entry *e)
{
	struct buf text;
	struct json j;
	char *copy;
	int err;

	buf_init(&text, VIEW_DOCUMENT_MAX + 1);
	json_init(&j, &text, false);
	render_window(&j, e, WINDOWS_WHOLE);
	copy = text.err ? NULL : strdup(text.p);
	err = text.err ? text.err : copy ? 0 : -GW_E_NOMEM;
	buf_done(&text);
	if (copy)
		windows_set_document(e, copy);
	return err;
}

/* Kinds of the stored documents. KIND: ended windows. KIND_OPEN: open windows, which are
 * reported after a crash. KIND_KEY: the hashes of the Idempotency-Key and of the request, for
 * ended and for open windows. */
#define KIND      "window"
#define KIND_OPEN "window-open"
#define KIND_KEY  "window-key"

static int put_document(const struct view *v, const char *kind, const struct windows_entry *e,
			const char *document)
{
	if (!v->ops || !v->ops->put_document)
		return 0;
	return v->ops->put_document(v->engine, kind, e->id, document, strlen(document));
}

static void delete_document(const struct view *v, const char *kind, const char *id)
{
	if (v->ops && v->ops->delete_document)
		v->ops->delete_document(v->engine, kind, id);
}

/* Stores the hashes of a window. They are not in the document of the window, because clients
 * see the document. */
static int keep_key(const struct view *v, const struct windows_entry *e)
{
	char text[200];
	struct buf b;
	struct json j;

	if (!e->key[0])
		return 0;
	buf_init_fixed(&b, text, sizeof(text));
	json_init(&j, &b, false);
	json_object(&j, NULL);
	json_string(&j, "key", e->key);
	json_string(&j, "request", e->request);
	json_object_end(&j);
	return b.err ? b.err : put_document(v, KIND_KEY, e, text);
}

/* Stores an open window, so that a crash does not lose it silently. */
static int keep_open(const struct view *v, const struct windows_entry *e)
{
	struct buf text;
	struct json j;
	int err;

	buf_init(&text, VIEW_DOCUMENT_MAX);
	json_init(&j, &text, false);
	windows_crash_json(&j, e);
	err = text.err ? text.err : put_document(v, KIND_OPEN, e, text.p);
	buf_done(&text);
	return err ? err : keep_key(v, e);
}

static const char *store_problem(const struct view *v)
{
	return v->ops && v->ops->store_problem ? v->ops->store_problem(v->engine) : NULL;
}

int windows_keep(const struct view *v, const struct windows_entry *e)
{
	int err;

	if (e->state != WINDOWS_HAS_ENDED) {
		err = keep_open(v, e);
	} else {
		/* If the document cannot be made, the window is lost. Also in this case, delete
		 * the stored record of the open window, because the window did not end with a
		 * crash. */
		err = e->document ? put_document(v, KIND, e, e->document) : -GW_E_NOMEM;
		delete_document(v, KIND_OPEN, e->id);
	}
	return !err && store_problem(v) ? -GW_E_IO : err;
}

void windows_unkeep(const struct view *v, const struct windows_entry *e)
{
	delete_document(v, e->state == WINDOWS_HAS_ENDED ? KIND : KIND_OPEN, e->id);
	if (e->key[0])
		delete_document(v, KIND_KEY, e->id);
}

#define NOT_STORED                                                                           \
	"could not be stored and is lost if the service restarts before the history can be " \
	"written"

static void event_sentence(const struct windows_entry *e, int err, char *out, size_t size)
{
	const char *more = !err              ? ""
			   : err == -GW_E_IO ? "; it " NOT_STORED
					     : "; it could not be stored and is lost after a "
					       "restart";
	size_t n = (size_t)snprintf(out, size, "window %s%s%s ", e->id, *e->label ? " " : "",
				    e->label);

	if (e->state != WINDOWS_HAS_ENDED)
		snprintf(out + n, size - n, "began%s", more);
	else if (isnan(e->sum.joules.best))
		snprintf(out + n, size - n, "ended without a result%s", more);
	else
		snprintf(out + n, size - n, "ended: %.1f J in %.3f s (%s)%s",
			 e->sum.joules.best, windows_seconds(e->time.begin_ns, e->time.end_ns),
			 gw_validity_name(e->sum.validity), more);
}

/* Sends the document to the stream, with the id of the event. */
static void push_document(struct windows *w, const struct windows_entry *e, uint64_t id)
{
	struct buf out;
	struct json j;

	if (!w->stream || !id)
		return;
	buf_init(&out, VIEW_DOCUMENT_MAX);
	json_init(&j, &out, false);
	windows_json(&j, e, WINDOWS_SHORT);
	if (!out.err)
		stream_push(w->stream, STREAM_WINDOW, "window", id, out.p, out.len);
	buf_done(&out);
}

static uint64_t emit_event(const struct view *v, const char *severity, const char *text)
{
	struct view_event event = { .kind = KIND, .severity = severity, .text = text };

	return v->ops && v->ops->emit ? v->ops->emit(v->engine, &event) : 0;
}

void windows_announce(struct windows *w, const struct view *v, struct windows_entry *e, int err)
{
	char text[320];

	event_sentence(e, err, text, sizeof(text));
	e->queued = !err;
	push_document(w, e, emit_event(v, err ? "warning" : "info", text));
}

bool windows_stored(const struct view *v, struct windows_entry *e)
{
	const char *problem = store_problem(v);
	bool stored = !problem && (!v->ops || !v->ops->stored || v->ops->stored(v->engine));
	char text[200];

	if (e && e->queued && problem) {
		snprintf(text, sizeof(text), "window %s " NOT_STORED, e->id);
		emit_event(v, "warning", text);
	}
	if (e && (problem || stored))
		e->queued = false;
	return stored;
}

struct loading {
	struct windows *w;
	const struct view *v;
	/* The windows that are loaded were still open when the service ended, so the service
	 * crashed. */
	bool open;
	struct windows_entry *crashed[WINDOWS_OPEN_MAX];
	unsigned count;
};

/* True if the text is not a JSON object, because the file was damaged or changed. */
static bool is_damaged(const char *json)
{
	struct json_doc *o = NULL;
	char why[160];
	int err = json_doc_new(json, strlen(json), &o, why, sizeof(why));
	bool damaged = err == -GW_E_PARSE || (o && json_doc_type(o, "") != JSON_DOC_OBJECT);

	json_doc_free(o);
	return damaged;
}

static void drop_damaged(const struct loading *l, const char *id)
{
	char text[160];

	snprintf(text, sizeof(text),
		 "the stored document of window %.64s is damaged; it was deleted", id);
	delete_document(l->v, l->open ? KIND_OPEN : KIND, id);
	emit_event(l->v, "warning", text);
}

/* Adds a stored window to the list before the ended windows, because stored windows arrive
 * oldest first and the list has the latest first. */
static void load_window(void *arg, const char *id, const char *json)
{
	struct loading *l = arg;
	struct windows_entry *e, **at = &l->w->first;
	char *document;

	if (windows_find(l->w, id) || strlen(id) >= sizeof(e->id))
		return;
	if (is_damaged(json)) {
		drop_damaged(l, id);
		return;
	}
	e = calloc(1, sizeof(*e));
	document = e ? strdup(json) : NULL;
	if (!document) {
		free(e);
		return;
	}
	windows_set_document(e, document);
	snprintf(e->id, sizeof(e->id), "%s", id);
	e->state = WINDOWS_HAS_ENDED;
	while (*at && (*at)->state != WINDOWS_HAS_ENDED)
		at = &(*at)->next;
	e->next = *at;
	*at = e;
	if (l->open && l->count < WINDOWS_OPEN_MAX)
		l->crashed[l->count++] = e;
}

struct keys {
	struct windows *w;
	const struct view *v;
};

/* Gives a loaded window its hashes. Deletes the hashes of a window that is not stored. */
static void load_key(void *arg, const char *id, const char *json)
{
	const struct keys *k = arg;
	struct windows_entry *e = windows_find(k->w, id);
	struct json_doc *o = NULL;
	char why[160];
	const char *key, *request;

	if (!e) {
		delete_document(k->v, KIND_KEY, id);
		return;
	}
	if (json_doc_new(json, strlen(json), &o, why, sizeof(why)) != 0)
		return;
	key = json_doc_string(o, "key");
	request = json_doc_string(o, "request");
	if (key && request) {
		snprintf(e->key, sizeof(e->key), "%s", key);
		snprintf(e->request, sizeof(e->request), "%s", request);
	}
	json_doc_free(o);
}

static void report_crashed(struct windows *w, const struct view *v,
			   const struct windows_entry *e)
{
	char text[160];

	snprintf(text, sizeof(text),
		 "window %s was open when the service crashed: it has no result", e->id);
	windows_keep(v, e);
	push_document(w, e, emit_event(v, "warning", text));
}

void windows_load(struct windows *w, const struct view *v)
{
	struct loading l = { .w = w, .v = v };

	if (w->loaded || !v->ops || !v->ops->each_document)
		return;
	w->loaded = true;
	v->ops->each_document(v->engine, KIND, WINDOWS_ENDED_MAX, load_window, &l);
	l.open = true;
	v->ops->each_document(v->engine, KIND_OPEN, WINDOWS_OPEN_MAX, load_window, &l);
	v->ops->each_document(v->engine, KIND_KEY, WINDOWS_OPEN_MAX + WINDOWS_ENDED_MAX,
			      load_key, &(struct keys){ w, v });
	for (unsigned i = 0; i < l.count; i++)
		report_crashed(w, v, l.crashed[i]);
}
