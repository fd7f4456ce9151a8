/* api_parts: what the files of the api share; for api*.c, openapi.c and their tests alone. */
#ifndef GW_SERVE_API_PARTS_H
#define GW_SERVE_API_PARTS_H

#include "api.h"
#include "render.h"

/* The handlers. */
#define R(id, method, path, handler, ...) route_fn api_##handler;
#include "routes.def"
#undef R

/* Is there a reading?  If not: 503, which says what is being waited for. */
bool api_has_reading(const struct api *a, struct reply *r);

/* ?gpu=SEL[,SEL]: *ret is filter, or NULL for all.  False: 400 or 404 was replied, which names what
 * there is. */
bool api_filter(const struct api *a, const struct request *q, struct reply *r,
		struct render_filter *filter, const struct render_filter **ret);

/* The position in the snapshot of the one GPU that selector names, or -1: replied, with this
 * status where there is none. */
int api_find(const struct api *a, struct reply *r, int status, const char *selector);

/* A whole number of a parameter, standard where it is not given.  False: 400 was replied. */
bool api_number(const struct request *q, struct reply *r, const char *name, uint64_t standard,
		uint64_t most, uint64_t *ret);

/* ?name, ?name=1, ?name=true: on; ?name=0, false: off; absent: standard. */
bool api_flag(const struct request *q, const char *name, bool standard);

/* Begins a document that is of no snapshot: schema_version and time_utc; its object stays open. */
void api_head(struct json *j, const struct api *a);

/* Words that a list, joined by blanks, holds: is word (n bytes) one of them? */
bool api_word_in(const char *list, const char *word, size_t n);

/* Does the body say that it is JSON?  If not: 415. */
bool api_says_json(const struct request *q, struct reply *r);

/* For what takes no body: there is none, or an empty object.  If not: 400. */
bool api_no_body(const struct request *q, struct reply *r);

/* A body must say that it is JSON, so that no foreign page can send one without asking first; and
 * who is not trusted may only where windows are open to all.  False: replied. */
bool api_may_measure(const struct api *a, const struct request *q, struct reply *r);

uint64_t api_now(const struct api *a);

#endif
