/* api_parts: declarations shared by api*.c, guard_doc.c and their tests; no other
 * file includes it. */
#ifndef GW_SERVE_API_PARTS_H
#define GW_SERVE_API_PARTS_H

#include "api.h"
#include "render.h"

/* The handlers, one per row of routes.def. */
#define R(id, method, path, handler, ...) route_fn api_##handler;
#include "routes.def"
#undef R

/* Ends the running simulation of POST /api/v1/guard/simulate, or frees an ended simulation with
 * a result that was not sent yet. */
void api_guard_simulate_done(struct api *a);

/* True if there is a reading. If not, replies 503 and says what the service waits for. */
bool api_has_reading(const struct api *a, struct reply *r);

/* True if `what` is not NULL. If it is NULL, replies 503 with the sentence `why`. */
bool api_was_read(const void *what, struct reply *r, const char *why);

/* Reads ?gpu=SEL[,SEL] into filter, and sets *ret to filter. If the parameter is absent, sets
 * *ret to NULL, which means all GPUs. Returns false after a reply with 400 or 404 that lists
 * the GPUs. */
bool api_filter(const struct api *a, const struct request *q, struct reply *r,
		struct render_filter *filter, const struct render_filter **ret);

/* Returns the snapshot index of the only GPU that selector names. If there is no such GPU,
 * sends an error reply with the status `status`. Returns -1 after an error reply. */
int api_find(const struct api *a, struct reply *r, int status, const char *selector);

/* Adds the GPUs that the selector matches to the filter. If the selector matches no GPU, sends
 * an error reply with the status `status` and returns false. */
bool api_select(const struct api *a, struct reply *r, int status, const char *selector,
		struct render_filter *filter);

/* Reads the whole number in parameter `name`, from 0 to `most`. Uses `standard` if the
 * parameter is absent. Returns false after a reply with 400. */
bool api_number(const struct request *q, struct reply *r, const char *name, uint64_t standard,
		uint64_t most, uint64_t *ret);

/* Reads a time (timespec_parse.h) in parameter `name`. Uses `standard` if the parameter is
 * absent. Returns false after a reply with 400. */
bool api_time(const struct api *a, const struct request *q, struct reply *r, const char *name,
	      uint64_t standard, uint64_t *ret_wall_ns);

/* Reads parameter `name`: true for ?name, ?name=1 and ?name=true, false for ?name=0 and
 * ?name=false, `standard` if the parameter is absent. Returns false after a reply with 400. */
bool api_flag(const struct request *q, struct reply *r, const char *name, bool standard,
	      bool *ret);

/* True if the utilisation of the processes is unknown because no client asked for it recently.
 * The reply then waits for the next reading, which begins at once. */
bool api_waits_for_use(const struct api *a, const struct request *q, struct reply *r);

/* True if counters or documents are not stored yet. The reply then waits until they are stored,
 * at most 0.3 s. */
bool api_waits_for_store(const struct api *a, const struct request *q, struct reply *r);

/* Begins a document without a snapshot: writes schema_version, time_utc and simulated. The
 * object stays open until api_end(). */
void api_begin(struct json *j, const struct api *a, struct reply *r);
void api_end(struct json *j);

struct json_request;
/* Reads the body. The body must be an object; it may have only the keys in `keys`, which are
 * separated by spaces. Returns NULL after a reply with 400 or 503. Free the result with
 * json_request_close(). */
struct json_request *api_body(const struct request *q, struct reply *r, const char *keys);

/* True if the body is absent or {}. If not, replies 400 or 503. */
bool api_no_body(const struct request *q, struct reply *r);

/* Replies 503, because the service is out of memory. */
void api_no_memory(struct reply *r);

/* Returns the value of a quantity; NAN: unknown. */
double api_figure(const struct gw_device *d, unsigned quantity);

/* Returns the monotonic time. */
uint64_t api_now(const struct api *a);

#endif
