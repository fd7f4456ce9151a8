#include "windows_impl.h"

#include "base/clock.h"
#include "base/sha256.h"
#include "measure/meter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

int windows_new(struct windows **ret)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : -GW_E_NOMEM;
}

void windows_stream(struct windows *w, struct stream *s)
{
	w->stream = s;
}

static void free_parts(struct windows *w, struct windows_entry *e)
{
	while (e->parts) {
		struct windows_part *p = e->parts;

		e->parts = p->next;
		gw_window_free(p->window);
		buf_done(&p->devices);
		free(p);
		w->parts--;
	}
	e->last = NULL;
}

/* Frees the meter's windows that belong to the entry. */
static void leave_meter(struct windows *w, struct windows_entry *e)
{
	free_parts(w, e);
	gw_window_free(e->window);
	e->window = NULL;
}

/* Frees the members that are no longer needed, because the document contains the same data. */
static void free_details(struct windows_entry *e)
{
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
	leave_meter(w, e);
	free_details(e);
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

static void move_to_front(struct windows *w, struct windows_entry *e)
{
	struct windows_entry **at = &w->first;

	while (*at != e)
		at = &(*at)->next;
	*at = e->next;
	e->next = w->first;
	w->first = e;
}

/* Removes the oldest ended windows if there are too many. Must not be called inside a loop
 * over the list. */
static void trim_ended(struct windows *w, const struct view *v)
{
	struct windows_entry *e = w->first, *next;
	unsigned ended = 0;

	for (; e; e = next) {
		next = e->next;
		if (e->state == WINDOWS_HAS_ENDED && ++ended > WINDOWS_ENDED_MAX)
			windows_forget(w, v, e);
	}
}

/* Reads what is known about the sensors again, because only the first reading of a GPU shows
 * that a counter is missing. */
static void learn_sensors(const struct windows *w, struct windows_entry *e)
{
	for (unsigned i = 0; e->window && i < e->devices; i++)
		e->device[i].sensor = meter_setup(w->meter, e->device[i].number).sensor;
}

/* Ends a window: makes its document from the data that has arrived, frees its windows in the
 * meter, and announces the end. */
static void finish_window(struct windows *w, const struct view *v, struct windows_entry *e)
{
	bool made;
	int err;

	if (e->window)
		gw_window_wait(e->window, 0);
	for (struct windows_part *p = e->parts; p; p = p->next)
		windows_settle_part(e, p);
	learn_sensors(w, e);
	windows_sum_up(e, e->window, &e->sum);
	e->state = WINDOWS_HAS_ENDED;
	made = windows_make_document(e) == 0;
	err = windows_keep(v, e);
	if (made)
		free_details(e);
	leave_meter(w, e);
	windows_announce(w, v, e, err);
	move_to_front(w, e);
}

static void set_end(struct windows_entry *e, uint64_t end_ns, const char *by)
{
	e->state = WINDOWS_IS_ENDING;
	e->ended_by = by;
	e->time.end_ns = end_ns > e->time.begin_ns ? end_ns : e->time.begin_ns + 1;
	e->last->end_ns =
		e->time.end_ns > e->last->begin_ns ? e->time.end_ns : e->last->begin_ns + 1;
}

static void close_at(struct windows_entry *e, uint64_t end_ns, const char *by, uint64_t now_ns)
{
	set_end(e, end_ns, by);
	e->time.wait_until_ns = now_ns + WINDOWS_WAIT_NS;
	window_hurry(e->window); /* A client may wait for the result. */
	if (e->marks) {
		gw_window_close(e->last->window, e->last->end_ns);
		/* Without marks, the only part is the whole window, so the part needs no result of its
	 * own. */
	} else {
		gw_window_free(e->last->window);
		e->last->window = NULL;
	}
	gw_window_close(e->window, e->time.end_ns);
}

static bool all_there(const struct windows_entry *e)
{
	for (const struct windows_part *p = e->parts; p; p = p->next)
		if (p->window && !window_done(p->window))
			return false;
	return window_done(e->window);
}

/* Ends the window if its limit or its lease has passed. Makes the result of an ended window
 * when all samples have arrived, or when the time to wait for them is over. Returns true if the
 * state is WINDOWS_HAS_ENDED. */
static bool advance_window(struct windows *w, const struct view *v, struct windows_entry *e,
			   uint64_t now_ns)
{
	if (e->state == WINDOWS_IS_OPEN && now_ns - e->time.begin_ns >= e->time.limit_ns)
		close_at(e, e->time.begin_ns + e->time.limit_ns, "limit", now_ns);
	if (e->state == WINDOWS_IS_OPEN && e->time.lease_ns &&
	    now_ns - e->time.asked_ns >= e->time.lease_ns)
		close_at(e, e->time.asked_ns + e->time.lease_ns, "lease", now_ns);
	for (struct windows_part *p = e->parts; p; p = p->next)
		if (p->window && p->end_ns && window_done(p->window))
			windows_settle_part(e, p);
	if (e->state == WINDOWS_IS_ENDING && (all_there(e) || now_ns >= e->time.wait_until_ns))
		finish_window(w, v, e);
	return e->state == WINDOWS_HAS_ENDED;
}

bool windows_stop(struct windows *w, const struct view *v, struct windows_entry *e,
		  uint64_t now_ns)
{
	if (e->state == WINDOWS_IS_OPEN)
		close_at(e, now_ns, "request", now_ns);
	if (e->state == WINDOWS_HAS_ENDED)
		return true;
	if (!advance_window(w, v, e, now_ns))
		return false;
	trim_ended(w, v);
	return true;
}

void windows_meter_gone(struct windows *w, const struct view *v)
{
	struct windows_entry *e = w->first, *next;

	for (; e; e = next) {
		next = e->next;
		if (e->state == WINDOWS_IS_OPEN) {
			uint64_t now = clock_mono_ns(meter_clock(w->meter));

			close_at(e, now, "meter", now);
		}
		if (e->state == WINDOWS_IS_ENDING)
			finish_window(w, v, e);
	}
	trim_ended(w, v);
	w->meter = NULL;
}

/* Sets the pointers to the meter's windows to NULL, because the meter has already freed these
 * windows. */
static void lose_windows(struct windows_entry *e)
{
	e->window = NULL;
	for (struct windows_part *p = e->parts; p; p = p->next)
		p->window = NULL;
}

/* Ends windows that no longer exist on the meter, because the meter was replaced without
 * notice. */
static void end_orphans(struct windows *w, const struct view *v, uint64_t now_ns)
{
	struct windows_entry *e = w->first, *next;

	for (; e; e = next) {
		next = e->next;
		if (e->state == WINDOWS_HAS_ENDED)
			continue;
		lose_windows(e);
		if (e->state == WINDOWS_IS_OPEN)
			set_end(e, now_ns, "meter");
		finish_window(w, v, e);
	}
}

void windows_forget(struct windows *w, const struct view *v, struct windows_entry *e)
{
	windows_unkeep(v, e);
	unlink_entry(w, e);
}

void windows_tick(struct windows *w, const struct view *v, uint64_t now_ns)
{
	struct windows_entry *e, *next;

	windows_load(w, v);
	if (w->meter && w->meter != v->meter)
		end_orphans(w, v, now_ns);
	w->meter = v->meter;
	for (e = w->first; e; e = next) {
		next = e->next;
		if (e->queued)
			windows_stored(v, e);
		if (e->state != WINDOWS_HAS_ENDED)
			advance_window(w, v, e, now_ns);
	}
	trim_ended(w, v);
}

unsigned windows_open_count(const struct windows *w)
{
	unsigned n = 0;

	for (const struct windows_entry *e = w->first; e; e = e->next)
		n += e->state != WINDOWS_HAS_ENDED;
	return n;
}

/* Makes an id. The id is random, because a client that knows the id may end the window. If no
 * random numbers are available, no window is opened. */
static int make_id(char *out, size_t size)
{
	unsigned char r[8];

	if (getrandom(r, sizeof(r), GRND_NONBLOCK) != sizeof(r))
		return -GW_E_IO;
	snprintf(out, size, "w%02x%02x%02x%02x%02x%02x%02x%02x", r[0], r[1], r[2], r[3], r[4],
		 r[5], r[6], r[7]);
	return 0;
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

static void fill_device(struct windows_device *d, const struct view *v, unsigned number,
			const struct gw_device *from)
{
	const char *uuid = gw_device_text(from, GW_T_UUID);
	const char *name = gw_device_text(from, GW_T_NAME);
	const char *driver = gw_snapshot_status(v->snap)->driver_version;

	d->number = number;
	d->power_limit_w = NAN;
	gw_device_value(from, GW_Q_POWER_LIMIT, &d->power_limit_w);
	d->sensor = meter_setup(v->meter, number).sensor;
	snprintf(d->driver, sizeof(d->driver), "%s", driver ? driver : "");
	d->index = from->index;
	d->provenance = from->provenance;
	snprintf(d->uuid, sizeof(d->uuid), "%s", uuid ? uuid : "");
	snprintf(d->name, sizeof(d->name), "%s", name ? name : "");
}

static int choose_devices(struct windows_entry *e, const struct view *v, const bool *position)
{
	unsigned n = v->meter && v->snap ? gw_meter_device_count(v->meter) : 0;

	e->device = calloc(n + 1, sizeof(*e->device));
	if (!e->device)
		return -GW_E_NOMEM;
	for (unsigned i = 0; i < n; i++) {
		unsigned at = gw_meter_device(v->meter, i);
		const struct gw_device *d = gw_snapshot_device(v->snap, at);

		if (d && (!position || (at < 256 && position[at])))
			fill_device(&e->device[e->devices++], v, i, d);
	}
	return e->devices ? 0 : -GW_E_NODEV;
}

static int add_part(struct windows *w, struct gw_meter *meter, struct windows_entry *e,
		    const char *label, uint64_t begin_ns)
{
	struct windows_part *p = w->parts < WINDOWS_PARTS_MAX ? calloc(1, sizeof(*p)) : NULL;
	int err;

	if (!p)
		return w->parts < WINDOWS_PARTS_MAX ? -GW_E_NOMEM : -GW_E_SIZE;
	err = gw_window_open(meter, label, begin_ns, &p->window);
	if (err) {
		free(p);
		return err;
	}
	buf_init(&p->devices, VIEW_DOCUMENT_MAX);
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

static int fill_entry(struct windows *w, const struct view *v, const struct windows_ask *ask,
		      uint64_t now_ns, struct windows_entry *e)
{
	int err = choose_devices(e, v, ask->position);

	if (err)
		return err;
	err = make_id(e->id, sizeof(e->id));
	if (err)
		return err;
	snprintf(e->label, sizeof(e->label), "%s", ask->label ? ask->label : "");
	e->time.begin_ns = now_ns;
	e->time.begin_wall_ns = clock_wall_ns(meter_clock(v->meter));
	e->time.limit_ns = ask->limit_ns;
	e->time.lease_ns = ask->lease_ns;
	e->time.asked_ns = now_ns;
	e->simulated = gw_snapshot_status(v->snap)->simulated;
	e->tags = tags_json(ask);
	if (!e->tags)
		return -GW_E_NOMEM;
	if (ask->key) {
		sha256_hex(ask->key, strlen(ask->key), e->key);
		sha256_hex(ask->request, ask->request_size, e->request);
	}
	err = gw_window_open(v->meter, ask->label, now_ns, &e->window);
	return err ? err : add_part(w, v->meter, e, NULL, now_ns);
}

/* Returns the window of this key; NULL: no such window. */
static struct windows_entry *find_by_key(struct windows *w, const struct windows_ask *ask)
{
	char key[65];

	if (!ask->key)
		return NULL;
	sha256_hex(ask->key, strlen(ask->key), key);
	for (struct windows_entry *e = w->first; e; e = e->next)
		if (strcmp(e->key, key) == 0)
			return e;
	return NULL;
}

int windows_open(struct windows *w, const struct view *v, const struct windows_ask *ask,
		 uint64_t now_ns, struct windows_entry **ret, bool *ret_new)
{
	struct windows_entry *e = find_by_key(w, ask);
	char request[65];
	int err;

	*ret_new = !e;
	if (e) {
		sha256_hex(ask->request, ask->request_size, request);
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
	err = fill_entry(w, v, ask, now_ns, e);
	if (err) {
		unlink_entry(w, e);
		return err;
	}
	w->meter = v->meter;
	windows_announce(w, v, e, windows_keep(v, e));
	*ret = e;
	return 0;
}

int windows_mark(struct windows *w, const struct view *v, struct windows_entry *e,
		 const char *label, uint64_t now_ns)
{
	struct windows_part *before = e->last;
	int err;

	if (e->state != WINDOWS_IS_OPEN)
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

struct windows_entry *windows_find(struct windows *w, const char *id)
{
	struct windows_entry *e = w->first;

	while (e && strcmp(e->id, id) != 0)
		e = e->next;
	return e;
}

void windows_asked(struct windows_entry *e, uint64_t now_ns)
{
	e->time.asked_ns = now_ns;
}

const char *windows_id(const struct windows_entry *e)
{
	return e->id;
}

bool windows_each(struct windows *w, bool open, unsigned ended,
		  bool (*each)(void *arg, const struct windows_entry *e), void *arg)
{
	for (const struct windows_entry *e = open ? w->first : NULL; e; e = e->next)
		if (e->state != WINDOWS_HAS_ENDED && !each(arg, e))
			return true;
	for (const struct windows_entry *e = w->first; e; e = e->next)
		if (e->state == WINDOWS_HAS_ENDED && (ended-- == 0 || !each(arg, e)))
			return true;
	return false;
}
