/* api_parts: shared by api*.c, openapi.c and their tests; no other file includes it. */
#ifndef GW_SERVE_API_PARTS_H
#define GW_SERVE_API_PARTS_H

#include "api.h"
#include "render.h"

/* The handlers. */
#define R(id, method, path, handler, ...) route_fn api_##handler;
#include "routes.def"
#undef R

/* Is there a reading? If not, replies 503 with what the service waits for. */
bool api_has_reading(const struct api *a, struct reply *r);

/* ?gpu=SEL[,SEL]: *ret is filter, or NULL for all. False: 400 or 404 was replied, which lists
 * the GPUs. */
bool api_filter(const struct api *a, const struct request *q, struct reply *r,
		struct render_filter *filter, const struct render_filter **ret);

/* The index in the snapshot of the one GPU that selector names; -1: replied, with this status
 * if there is none. */
int api_find(const struct api *a, struct reply *r, int status, const char *selector);

/* A whole-number parameter; standard if absent. False: 400 was replied. */
bool api_number(const struct request *q, struct reply *r, const char *name, uint64_t standard,
		uint64_t most, uint64_t *ret);

/* ?name, ?name=1, ?name=true: on; ?name=0, false: off; absent: standard. */
bool api_flag(const struct request *q, const char *name, bool standard);

/* Begins the document of a reply, without a snapshot: schema_version and time_utc. Its object
 * stays open until api_end(). */
void api_begin(struct json *j, const struct api *a, struct reply *r);
void api_end(struct json *j);

/* Is word (n bytes) in the space-separated list? */
bool api_word_in(const char *list, const char *word, size_t n);

/* Is the Content-Type JSON? If not, replies 415. */
bool api_says_json(const struct request *q, struct reply *r);

struct json_request;
/* Reads the body, an object with keys of this list; close it with json_request_close(). NULL:
 * 400 was replied. */
struct json_request *api_body(const struct request *q, struct reply *r, const char *keys);

/* For requests without a body: it is absent or {}. If not, replies 400. */
bool api_no_body(const struct request *q, struct reply *r);

/* Checks the Content-Type, so that a foreign web page cannot send a body without CORS, and
 * whether an untrusted client may use windows. False: replied. */
bool api_may_measure(const struct api *a, const struct request *q, struct reply *r);

uint64_t api_now(const struct api *a);

#endif
