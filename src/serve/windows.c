#include "windows.h"

#include "render_result.h"
#include "stream.h"

#include "base/clock.h"
#include "base/sha256.h"
#include "measure/meter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define KIND         "window" /* of what is kept */
#define DOCUMENT_MAX (4u << 20)

enum state { STATE_OPEN, STATE_ENDING, STATE_ENDED };

struct device {          /* a GPU that is measured, as it was called then */
	unsigned number; /* in the meter */
	unsigned index;
	char uuid[96], name[96];
	enum gw_provenance provenance;
};

struct part {
	struct part *next;
	char label[64];
	bool labelled; /* false: what was before the first mark */
	uint64_t begin_ns, end_ns;
	struct gw_window *window; /* NULL: worked out */
	struct buf devices;       /* the array, once it is */
};

struct windows_entry {
	struct windows_entry *next;
	char id[20], label[64];
	char key[65], request[65]; /* hashes; "": none */
	enum state state;
	const char *ended_by; /* "request", "limit", "meter"; NULL: open */
	struct gw_window *window;
	struct part *parts, *last;
	unsigned marks;
	struct device *device;
	unsigned devices;
	char *tags; /* JSON */
	bool simulated;
	uint64_t begin_ns, begin_wall_ns, end_ns, limit_ns, give_up_ns;
	char *document; /* of one that has ended */
};

struct windows {
	struct windows_entry *first; /* the latest first */
	struct gw_meter *meter;      /* that the open ones live on */
	unsigned parts;
	bool loaded; /* what was kept was read */
	struct stream *stream;
};

int windows_new(struct windows **ret)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : -GW_E_NOMEM;
}

void windows_stream(struct windows *w, struct stream *s)
{
	w->stream = s;
}

/* ---- freeing ---- */

static void free_parts(struct windows *w, struct windows_entry *e)
{
	while (e->parts) {
		struct part *p = e->parts;

		e->parts = p->next;
		gw_window_free(p->window);
		buf_done(&p->devices);
		free(p);
		w->parts--;
	}
	e->last = NULL;
}

/* What it holds of the meter, and what its document was made of. */
static void let_loose(struct windows *w, struct windows_entry *e)
{
	free_parts(w, e);
	gw_window_free(e->window);
	e->window = NULL;
	free(e->device);
	e->device = NULL;
	e->devices = 0;
	free(e->tags);
	e->tags = NULL;
}

static void unlink_entry(struct windows *w, struct windows_entry *e)
{
	struct windows_entry **at = &w->first;

	while (*at != e)
		at = &(*at)->next;
	*at = e->next;
	let_loose(w, e);
	free(e->document);
	free(e);
}

void windows_free(struct windows *w)
{
	if (!w)
		return;
	while (w->first)
		unlink_entry(w, w->first);
	free(w);
}

/* ---- documents ---- */

static void when(struct json *j, const char *key, uint64_t wall_ns)
{
	char text[CLOCK_RFC3339_SIZE];

	clock_format_rfc3339(wall_ns, text);
	json_string(j, key, wall_ns ? text : NULL);
}

/* Over the devices, as a run adds them up: widths as they are where boards of one kind err alike,
 * else in quadrature; one that is not known makes the sum unknown. */
struct total {
	double best, below, above;
};

static void add(struct total *t, const struct gw_interval *v, bool alike)
{
	double below = v->best - v->low, above = v->high - v->best;

	t->best += v->best;
	t->below = alike ? t->below + below : hypot(t->below, below);
	t->above = alike ? t->above + above : hypot(t->above, above);
}

static void total_json(struct json *j, const char *key, const struct total *t, unsigned devices)
{
	struct gw_interval v = { t->best - t->below, t->best, t->best + t->above };

	if (devices == 0)
		v.best = NAN;
	render_interval(j, key, &v);
}

/* What is known of the whole, in one line each. */
struct whole {
	struct total joules, relative;
	double power_w;
	uint64_t codes;
	enum gw_validity validity;
};

static const struct gw_energy *energy_of(struct gw_window *w, const struct device *d)
{
	return w ? gw_window_energy(w, d->number) : NULL;
}

static void sum_up(struct windows_entry *e, struct whole *ret)
{
	memset(ret, 0, sizeof(*ret));
	for (unsigned i = 0; i < e->devices; i++) {
		const struct gw_energy *x = energy_of(e->window, &e->device[i]);

		if (!x) { /* its meter went away under it */
			ret->joules.best = ret->relative.best = ret->power_w = NAN;
			ret->codes |= UINT64_C(1) << GW_CODE_TRUNCATED;
			ret->validity = GW_NO_RESULT;
			continue;
		}
		add(&ret->joules, &x->joules, true);
		add(&ret->relative, &x->relative, false);
		ret->power_w += x->power_mean;
		ret->codes |= x->codes;
		ret->validity = x->validity > ret->validity ? x->validity : ret->validity;
	}
}

static void device_json(struct json *j, const struct device *d, const struct gw_energy *x)
{
	json_object(j, NULL);
	json_uint(j, "index", d->index);
	json_string(j, "uuid", *d->uuid ? d->uuid : NULL);
	json_string(j, "name", *d->name ? d->name : NULL);
	json_string(j, "provenance", gw_provenance_name(d->provenance));
	if (x) {
		render_energy(j, x);
		render_energy_detail(j, x);
	}
	json_object_end(j);
}

static void part_devices(struct json *j, const char *key, const struct windows_entry *e,
			 struct gw_window *w)
{
	json_array(j, key);
	for (unsigned i = 0; w && i < e->devices; i++) {
		json_object(j, NULL);
		json_uint(j, "index", e->device[i].index);
		render_energy_part(j, energy_of(w, &e->device[i]));
		json_object_end(j);
	}
	json_array_end(j);
}

static double seconds(uint64_t from_ns, uint64_t to_ns)
{
	return to_ns > from_ns ? (double)(to_ns - from_ns) / 1e9 : 0;
}

static void part_json(struct json *j, const struct windows_entry *e, const struct part *p,
		      uint64_t now_ns)
{
	json_object(j, NULL);
	json_string(j, "label", p->labelled ? p->label : NULL);
	json_double(j, "begin_seconds", seconds(e->begin_ns, p->begin_ns));
	json_double(j, "seconds", seconds(p->begin_ns, p->end_ns ? p->end_ns : now_ns));
	json_bool(j, "unfinished", p->end_ns == 0);
	if (p->window)
		part_devices(j, "devices", e, p->window);
	else
		json_raw(j, "devices", p->devices.len ? p->devices.p : "[]");
	json_object_end(j);
}

static void figures_json(struct json *j, struct windows_entry *e, uint64_t now_ns)
{
	struct whole sum;

	sum_up(e, &sum);
	json_string(j, "validity", gw_validity_name(sum.validity));
	render_codes(j, sum.codes);
	total_json(j, "energy_joules", &sum.joules, e->devices);
	total_json(j, "energy_relative_joules", &sum.relative, e->devices);
	json_double(j, "power_mean_watts", e->devices ? sum.power_w : (double)NAN);
	json_array(j, "devices");
	for (unsigned i = 0; i < e->devices; i++)
		device_json(j, &e->device[i], energy_of(e->window, &e->device[i]));
	json_array_end(j);
	json_array(j, "parts");
	for (const struct part *p = e->marks ? e->parts : NULL; p; p = p->next)
		part_json(j, e, p, now_ns);
	json_array_end(j);
}

void windows_json(struct json *j, struct windows_entry *e, uint64_t now_ns)
{
	static const char *const states[] = { "open", "ending", "ended" };
	uint64_t end_ns = e->end_ns ? e->end_ns : now_ns;

	if (e->document) {
		json_raw(j, NULL, e->document);
		return;
	}
	json_object(j, NULL);
	json_int(j, "schema_version", RENDER_SCHEMA_VERSION);
	json_string(j, "kind", "window");
	json_string(j, "id", e->id);
	json_string(j, "label", *e->label ? e->label : NULL);
	json_string(j, "state", states[e->state]);
	json_string(j, "ended_by", e->ended_by);
	when(j, "begin_time", e->begin_wall_ns);
	/* By the monotonic clock, so that a wall clock that is set makes no window longer. */
	when(j, "end_time", e->end_ns ? e->begin_wall_ns + (e->end_ns - e->begin_ns) : 0);
	json_double(j, "seconds", seconds(e->begin_ns, end_ns));
	json_double(j, "limit_seconds", (double)e->limit_ns / 1e9);
	json_raw(j, "tags", e->tags ? e->tags : "{}");
	json_bool(j, "simulated", e->simulated);
	figures_json(j, e, now_ns);
	json_object_end(j);
}

/* ---- ending ---- */

static void sentence(const struct windows_entry *e, const struct whole *sum, char *out,
		     size_t size)
{
	size_t n = (size_t)snprintf(out, size, "window %s%s%s ", e->id, *e->label ? " " : "",
				    e->label);

	if (!sum)
		snprintf(out + n, size - n, "began");
	else if (isnan(sum->joules.best))
		snprintf(out + n, size - n, "ended without a result");
	else
		snprintf(out + n, size - n, "ended: %.1f J in %.3f s (%s)", sum->joules.best,
			 seconds(e->begin_ns, e->end_ns), gw_validity_name(sum->validity));
}

/* The event, and to those who follow windows the document, under the event's id. */
static void tell(struct windows *w, const struct view *v, struct windows_entry *e,
		 const struct whole *sum)
{
	char text[256];
	struct view_event event = { .kind = KIND, .severity = "info", .text = text };
	struct buf out;
	struct json j;
	uint64_t id;

	if (!v->ops || !v->ops->tell)
		return;
	sentence(e, sum, text, sizeof(text));
	id = v->ops->tell(v->engine, &event);
	if (!w->stream || !id)
		return;
	buf_init(&out, DOCUMENT_MAX);
	json_init(&j, &out, false);
	windows_json(&j, e, e->end_ns ? e->end_ns : e->begin_ns);
	if (!out.err)
		stream_push(w->stream, STREAM_WINDOW, "window", id, out.p, out.len);
	buf_done(&out);
}

static void to_front(struct windows *w, struct windows_entry *e)
{
	struct windows_entry **at = &w->first;

	while (*at != e)
		at = &(*at)->next;
	*at = e->next;
	e->next = w->first;
	w->first = e;
}

/* The oldest that ended go when there are too many.  Not while somebody walks along the list. */
static void trim(struct windows *w, const struct view *v)
{
	struct windows_entry *e = w->first, *next;
	unsigned ended = 0;

	for (; e; e = next) {
		next = e->next;
		if (e->state == STATE_ENDED && ++ended > WINDOWS_ENDED_MAX)
			windows_forget(w, v, e);
	}
}

/* Works a part out once and for all. */
static void settle_part(const struct windows_entry *e, struct part *p)
{
	struct json j;

	if (!p->window)
		return;
	gw_window_wait(p->window, 0);
	json_init(&j, &p->devices, false);
	part_devices(&j, NULL, e, p->window);
	gw_window_free(p->window);
	p->window = NULL;
}

/* Everything is there, or will never be: the document, and nothing of the meter any more. */
static void finish(struct windows *w, const struct view *v, struct windows_entry *e)
{
	struct whole sum;
	struct buf text;
	struct json j;

	if (e->window)
		gw_window_wait(e->window, 0);
	for (struct part *p = e->parts; p; p = p->next)
		settle_part(e, p);
	e->state = STATE_ENDED;
	sum_up(e, &sum);
	buf_init(&text, DOCUMENT_MAX);
	json_init(&j, &text, false);
	windows_json(&j, e, e->end_ns);
	let_loose(w, e);
	e->document = text.err ? NULL : strdup(text.p);
	tell(w, v, e, &sum);
	if (e->document && v->ops && v->ops->keep)
		v->ops->keep(v->engine, KIND, e->id, text.p, text.len);
	buf_done(&text);
	to_front(w, e);
}

static void close_at(struct windows_entry *e, uint64_t end_ns, const char *by, uint64_t now_ns)
{
	e->state = STATE_ENDING;
	e->ended_by = by;
	e->end_ns = end_ns > e->begin_ns ? end_ns : e->begin_ns + 1;
	e->give_up_ns = now_ns + WINDOWS_WAIT_NS;
	gw_window_close(e->window, e->end_ns);
	e->last->end_ns = e->end_ns > e->last->begin_ns ? e->end_ns : e->last->begin_ns + 1;
	gw_window_close(e->last->window, e->last->end_ns);
}

static bool all_there(const struct windows_entry *e)
{
	for (const struct part *p = e->parts; p; p = p->next)
		if (p->window && !window_done(p->window))
			return false;
	return window_done(e->window);
}

/* Moves one on as far as it goes; false: it has not ended. */
static bool move_on(struct windows *w, const struct view *v, struct windows_entry *e,
		    uint64_t now_ns)
{
	if (e->state == STATE_OPEN && now_ns - e->begin_ns >= e->limit_ns)
		close_at(e, e->begin_ns + e->limit_ns, "limit", now_ns);
	for (struct part *p = e->parts; p; p = p->next)
		if (p->window && p->end_ns && window_done(p->window))
			settle_part(e, p);
	if (e->state == STATE_ENDING && (all_there(e) || now_ns >= e->give_up_ns))
		finish(w, v, e);
	return e->state == STATE_ENDED;
}

bool windows_stop(struct windows *w, const struct view *v, struct windows_entry *e,
		  uint64_t now_ns)
{
	if (e->state == STATE_OPEN)
		close_at(e, now_ns, "request", now_ns);
	if (e->state == STATE_ENDED)
		return true;
	if (!move_on(w, v, e, now_ns))
		return false;
	trim(w, v);
	return true;
}

void windows_meter_gone(struct windows *w, const struct view *v)
{
	struct windows_entry *e = w->first, *next;

	for (; e; e = next) {
		next = e->next;
		if (e->state == STATE_OPEN) {
			uint64_t now = clock_mono_ns(meter_clock(w->meter));

			close_at(e, now, "meter", now);
		}
		if (e->state == STATE_ENDING)
			finish(w, v, e);
	}
	trim(w, v);
	w->meter = NULL;
}

/* Its meter went away and nobody told us: what it held is gone with it. */
static void orphan(struct windows *w, const struct view *v, uint64_t now_ns)
{
	struct windows_entry *e = w->first, *next;

	for (; e; e = next) {
		next = e->next;
		if (e->state == STATE_ENDED)
			continue;
		e->window = NULL;
		for (struct part *p = e->parts; p; p = p->next) {
			p->window = NULL;
			p->end_ns = p->end_ns ? p->end_ns : now_ns;
		}
		e->end_ns = e->end_ns ? e->end_ns : now_ns;
		e->ended_by = "meter";
		finish(w, v, e);
	}
}

void windows_forget(struct windows *w, const struct view *v, struct windows_entry *e)
{
	if (e->state == STATE_ENDED && v->ops && v->ops->forget)
		v->ops->forget(v->engine, KIND, e->id);
	unlink_entry(w, e);
}

/* ---- what was kept ---- */

static void load_one(void *arg, const char *id, const char *json)
{
	struct windows *w = arg;
	struct windows_entry *e, **at = &w->first;

	if (windows_find(w, id) || strlen(id) >= sizeof(e->id))
		return;
	e = calloc(1, sizeof(*e));
	if (!e)
		return;
	e->document = strdup(json);
	if (!e->document) {
		free(e);
		return;
	}
	snprintf(e->id, sizeof(e->id), "%s", id);
	e->state = STATE_ENDED;
	while (*at)
		at = &(*at)->next;
	*at = e;
}

static void load(struct windows *w, const struct view *v)
{
	if (w->loaded || !v->ops || !v->ops->kept)
		return;
	w->loaded = true;
	v->ops->kept(v->engine, KIND, WINDOWS_ENDED_MAX, load_one, w);
}

void windows_tick(struct windows *w, const struct view *v, uint64_t now_ns)
{
	struct windows_entry *e, *next;

	load(w, v);
	if (w->meter && w->meter != v->meter)
		orphan(w, v, now_ns);
	w->meter = v->meter;
	for (e = w->first; e; e = next) {
		next = e->next;
		if (e->state != STATE_ENDED)
			move_on(w, v, e, now_ns);
	}
	trim(w, v);
}

/* ---- opening ---- */

unsigned windows_open_count(const struct windows *w)
{
	unsigned n = 0;

	for (const struct windows_entry *e = w->first; e; e = e->next)
		n += e->state != STATE_ENDED;
	return n;
}

static void digest(const char *p, size_t n, char out[static 65])
{
	struct sha256 s;

	sha256_init(&s);
	sha256_add(&s, p, n);
	sha256_end(&s, out);
}

/* Nobody can guess it: whoever knows it may end the window. */
static void make_id(char *out, size_t size)
{
	unsigned char r[8];

	if (getrandom(r, sizeof(r), GRND_NONBLOCK) != sizeof(r)) {
		uint64_t t = clock_mono_ns(clock_real());

		memcpy(r, &t, sizeof(r));
	}
	snprintf(out, size, "w%02x%02x%02x%02x%02x%02x%02x%02x", r[0], r[1], r[2], r[3], r[4],
		 r[5], r[6], r[7]);
}

static char *tags_json(const struct windows_ask *ask)
{
	struct buf text;
	struct json j;
	char *copy;

	buf_init(&text, 64 * 1024);
	json_init(&j, &text, false);
	json_object(&j, NULL);
	for (unsigned i = 0; i < ask->tags; i++)
		json_string(&j, ask->tag[i], ask->value[i]);
	json_object_end(&j);
	copy = text.err ? NULL : strdup(text.p);
	buf_done(&text);
	return copy;
}

static void remember(struct device *d, unsigned number, const struct gw_device *from)
{
	const char *uuid = gw_device_text(from, GW_T_UUID);
	const char *name = gw_device_text(from, GW_T_NAME);

	d->number = number;
	d->index = from->index;
	d->provenance = from->provenance;
	snprintf(d->uuid, sizeof(d->uuid), "%s", uuid ? uuid : "");
	snprintf(d->name, sizeof(d->name), "%s", name ? name : "");
}

static int choose(struct windows_entry *e, const struct view *v, const bool *position)
{
	unsigned n = v->meter && v->snap ? gw_meter_device_count(v->meter) : 0;

	e->device = calloc(n + 1, sizeof(*e->device));
	if (!e->device)
		return -GW_E_NOMEM;
	for (unsigned i = 0; i < n; i++) {
		unsigned at = gw_meter_device(v->meter, i);
		const struct gw_device *d = gw_snapshot_device(v->snap, at);

		if (d && (!position || (at < 256 && position[at])))
			remember(&e->device[e->devices++], i, d);
	}
	return e->devices ? 0 : -GW_E_NODEV;
}

static int add_part(struct windows *w, struct gw_meter *meter, struct windows_entry *e,
		    const char *label, uint64_t begin_ns)
{
	struct part *p = w->parts < WINDOWS_PARTS_MAX ? calloc(1, sizeof(*p)) : NULL;
	int err;

	if (!p)
		return w->parts < WINDOWS_PARTS_MAX ? -GW_E_NOMEM : -GW_E_SIZE;
	err = gw_window_open(meter, label, begin_ns, &p->window);
	if (err) {
		free(p);
		return err;
	}
	buf_init(&p->devices, DOCUMENT_MAX);
	p->labelled = label != NULL;
	p->begin_ns = begin_ns;
	snprintf(p->label, sizeof(p->label), "%s", label ? label : "");
	if (e->last)
		e->last->next = p;
	else
		e->parts = p;
	e->last = p;
	w->parts++;
	return 0;
}

static int fill(struct windows *w, const struct view *v, const struct windows_ask *ask,
		uint64_t now_ns, struct windows_entry *e)
{
	int err = choose(e, v, ask->position);

	if (err)
		return err;
	make_id(e->id, sizeof(e->id));
	snprintf(e->label, sizeof(e->label), "%s", ask->label ? ask->label : "");
	e->begin_ns = now_ns;
	e->begin_wall_ns = clock_wall_ns(meter_clock(v->meter));
	e->limit_ns = ask->limit_ns;
	e->simulated = gw_snapshot_status(v->snap)->simulated;
	e->tags = tags_json(ask);
	if (!e->tags)
		return -GW_E_NOMEM;
	if (ask->key) {
		digest(ask->key, strlen(ask->key), e->key);
		digest(ask->request, ask->request_size, e->request);
	}
	err = gw_window_open(v->meter, ask->label, now_ns, &e->window);
	return err ? err : add_part(w, v->meter, e, NULL, now_ns);
}

/* The window that this key opened; NULL: none. */
static struct windows_entry *by_key(struct windows *w, const struct windows_ask *ask)
{
	char key[65];

	if (!ask->key)
		return NULL;
	digest(ask->key, strlen(ask->key), key);
	for (struct windows_entry *e = w->first; e; e = e->next)
		if (strcmp(e->key, key) == 0)
			return e;
	return NULL;
}

int windows_open(struct windows *w, const struct view *v, const struct windows_ask *ask,
		 uint64_t now_ns, struct windows_entry **ret, bool *ret_new)
{
	struct windows_entry *e = by_key(w, ask);
	char request[65];
	int err;

	*ret_new = !e;
	if (e) {
		digest(ask->request, ask->request_size, request);
		*ret = e;
		return strcmp(request, e->request) == 0 ? 0 : -GW_E_ARG;
	}
	if (windows_open_count(w) >= WINDOWS_OPEN_MAX)
		return -GW_E_SIZE;
	e = calloc(1, sizeof(*e));
	if (!e)
		return -GW_E_NOMEM;
	e->next = w->first;
	w->first = e;
	err = fill(w, v, ask, now_ns, e);
	if (err) {
		unlink_entry(w, e);
		return err;
	}
	w->meter = v->meter;
	tell(w, v, e, NULL);
	*ret = e;
	return 0;
}

int windows_mark(struct windows *w, const struct view *v, struct windows_entry *e,
		 const char *label, uint64_t now_ns)
{
	struct part *before = e->last;
	int err;

	if (e->state != STATE_OPEN)
		return -GW_E_STATE;
	if (e->marks >= WINDOWS_MARKS_MAX)
		return -GW_E_SIZE;
	if (now_ns <= before->begin_ns)
		now_ns = before->begin_ns + 1;
	err = add_part(w, v->meter, e, label, now_ns);
	if (err)
		return err;
	before->end_ns = now_ns;
	gw_window_close(before->window, now_ns);
	e->marks++;
	return 0;
}

/* ---- looking ---- */

struct windows_entry *windows_find(struct windows *w, const char *id)
{
	struct windows_entry *e = w->first;

	while (e && strcmp(e->id, id) != 0)
		e = e->next;
	return e;
}

const char *windows_id(const struct windows_entry *e)
{
	return e->id;
}

void windows_each(struct windows *w, unsigned max,
		  void (*each)(void *arg, struct windows_entry *e), void *arg)
{
	for (unsigned ended = 0; ended < 2; ended++)
		for (struct windows_entry *e = w->first; e; e = e->next)
			if ((e->state == STATE_ENDED) == (ended == 1) && max && max--)
				each(arg, e);
}
