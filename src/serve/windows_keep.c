/* Stores and loads windows, and emits events when one begins or ends. */
#include "windows_impl.h"

#include "stream.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIND      "window"      /* kind of stored documents */
#define KIND_OPEN "window-open" /* of open windows, reported after a crash */

/* ---- storing and events ---- */

static int put_document(const struct view *v, const char *kind, const struct windows_entry *e,
			const char *document)
{
	if (!v->ops || !v->ops->keep)
		return 0;
	return v->ops->keep(v->engine, kind, e->id, document, strlen(document));
}

static void delete_document(const struct view *v, const char *kind, const char *id)
{
	if (v->ops && v->ops->forget)
		v->ops->forget(v->engine, kind, id);
}

/* So that a crash does not lose it silently. */
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
	return err;
}

int windows_keep(const struct view *v, const struct windows_entry *e)
{
	int err;

	if (e->state != WINDOWS_HAS_ENDED)
		return keep_open(v, e);
	err = put_document(v, KIND, e, e->document);
	delete_document(v, KIND_OPEN, e->id);
	return err;
}

void windows_unkeep(const struct view *v, const struct windows_entry *e)
{
	delete_document(v, e->state == WINDOWS_HAS_ENDED ? KIND : KIND_OPEN, e->id);
}

static void sentence(const struct windows_entry *e, bool kept, char *out, size_t size)
{
	const char *more = kept ? "" : "; it could not be stored and is lost after a restart";
	size_t n = (size_t)snprintf(out, size, "window %s%s%s ", e->id, *e->label ? " " : "",
				    e->label);

	if (e->state != WINDOWS_HAS_ENDED)
		snprintf(out + n, size - n, "began");
	else if (isnan(e->sum.joules.best))
		snprintf(out + n, size - n, "ended without a result%s", more);
	else
		snprintf(out + n, size - n, "ended: %.1f J in %.3f s (%s)%s",
			 e->sum.joules.best, windows_seconds(e->begin_ns, e->end_ns),
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
	windows_json(&j, e, WINDOWS_SHORT, e->end_ns ? e->end_ns : e->begin_ns);
	if (!out.err)
		stream_push(w->stream, STREAM_WINDOW, "window", id, out.p, out.len);
	buf_done(&out);
}

static uint64_t emit_event(const struct view *v, const char *severity, const char *text)
{
	struct view_event event = { .kind = KIND, .severity = severity, .text = text };

	return v->ops && v->ops->tell ? v->ops->tell(v->engine, &event) : 0;
}

void windows_announce(struct windows *w, const struct view *v, const struct windows_entry *e,
		      bool kept)
{
	char text[256];

	sentence(e, kept, text, sizeof(text));
	push_document(w, e, emit_event(v, kept ? "info" : "warning", text));
}

/* ---- loading ---- */

/* They arrive oldest first: inserts each before the ended ones. */
static struct windows_entry *load_window(struct windows *w, const char *id, const char *json)
{
	struct windows_entry *e, **at = &w->first;
	char *document;

	if (windows_find(w, id) || strlen(id) >= sizeof(e->id))
		return NULL;
	e = calloc(1, sizeof(*e));
	document = e ? strdup(json) : NULL;
	if (!document) {
		free(e);
		return NULL;
	}
	windows_set_document(e, document);
	snprintf(e->id, sizeof(e->id), "%s", id);
	e->state = WINDOWS_HAS_ENDED;
	while (*at && (*at)->state != WINDOWS_HAS_ENDED)
		at = &(*at)->next;
	e->next = *at;
	*at = e;
	return e;
}

static void load_ended(void *arg, const char *id, const char *json)
{
	load_window(arg, id, json);
}

struct crashed {
	struct windows *w;
	struct windows_entry *found[WINDOWS_OPEN_MAX];
	unsigned count;
};

static void load_crashed(void *arg, const char *id, const char *json)
{
	struct crashed *c = arg;
	struct windows_entry *e = load_window(c->w, id, json);

	if (e && c->count < WINDOWS_OPEN_MAX)
		c->found[c->count++] = e;
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
	struct crashed c = { .w = w };

	if (w->loaded || !v->ops || !v->ops->kept)
		return;
	w->loaded = true;
	v->ops->kept(v->engine, KIND, WINDOWS_ENDED_MAX, load_ended, w);
	v->ops->kept(v->engine, KIND_OPEN, WINDOWS_OPEN_MAX, load_crashed, &c);
	for (unsigned i = 0; i < c.count; i++)
		report_crashed(w, v, c.found[i]);
}
