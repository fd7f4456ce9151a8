/* Makes and sends replies.
 *
 * An entry is a finished reply: its body, the gzipped body, and the library's reply objects
 * with all headers. Requests share these by reference counts. An entry that is the same for all
 * clients is cached, so that the next request only adds a reference. */
#include "http_impl.h"

#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include <zlib.h>

static const char csp[] =
	"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
	"connect-src 'self'; font-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
	"form-action 'none'";

void reply_init(struct reply *r, struct reply_impl *impl)
{
	*impl = (struct reply_impl){ 0 };
	*r = (struct reply){ .status = 200, .type = "application/json", .impl = impl };
	buf_init(&r->body, REPLY_MAX);
}

static void drop_headers(struct reply_impl *impl)
{
	for (unsigned i = 0; i < impl->headers; i++) {
		free(impl->header[i].name);
		free(impl->header[i].value);
	}
	impl->headers = 0;
}

void reply_done(struct reply *r)
{
	drop_headers(r->impl);
	buf_done(&r->body);
}

void reply_header(struct reply *r, const char *name, const char *value)
{
	struct reply_impl *impl = r->impl;
	char *n = strdup(name), *v = strdup(value);

	if (!n || !v || !impl || impl->headers == REPLY_HEADERS) {
		free(n);
		free(v);
		return;
	}
	impl->header[impl->headers].name = n;
	impl->header[impl->headers++].value = v;
}

static const struct {
	int status;
	const char *title;
} titles[] = {
	{ 400, "Bad request" },
	{ 401, "Unauthorized" },
	{ 403, "Forbidden" },
	{ 404, "Not found" },
	{ 405, "Method not allowed" },
	{ 406, "Not acceptable" },
	{ 408, "Request timeout" },
	{ 409, "Conflict" },
	{ 410, "Gone" },
	{ 413, "Content too large" },
	{ 415, "Unsupported media type" },
	{ 421, "Misdirected request" },
	{ 422, "Unprocessable content" },
	{ 429, "Too many requests" },
	{ 500, "Internal error" },
	{ 501, "Not implemented" },
	{ 503, "Service unavailable" },
	{ 504, "Gateway timeout" },
};

static const char *status_title(int status)
{
	for (unsigned i = 0; i < sizeof(titles) / sizeof(titles[0]); i++)
		if (titles[i].status == status)
			return titles[i].title;
	return "Error";
}

static void problem_json(struct buf *out, int status, const char *word, const char *remedy,
			 const char *detail)
{
	char type[128] = "about:blank";
	struct json j;

	if (word)
		snprintf(type, sizeof(type), "tag:gpuward,2026:%s", word);
	json_init(&j, out, false);
	json_object(&j, NULL);
	json_string(&j, "type", type);
	json_string(&j, "title", status_title(status));
	json_int(&j, "status", status);
	json_string(&j, "detail", detail);
	if (remedy)
		json_string(&j, "remedy", remedy);
	json_object_end(&j);
	json_end(&j);
}

static bool has_header(const struct reply_impl *impl, const char *name)
{
	for (unsigned i = 0; impl && i < impl->headers; i++)
		if (strcasecmp(impl->header[i].name, name) == 0)
			return true;
	return false;
}

void reply_problem(struct reply *r, int status, const char *word, const char *remedy,
		   const char *detail, ...)
{
	struct buf sentence;
	va_list ap;

	buf_init(&sentence, 4096);
	va_start(ap, detail);
	buf_addv(&sentence, detail, ap);
	va_end(ap);
	buf_clear(&r->body);
	problem_json(&r->body, status, word, remedy, sentence.p);
	buf_done(&sentence);
	r->status = status;
	r->type = "application/problem+json";
	if ((status == 429 || status == 503) && !has_header(r->impl, "Retry-After") &&
	    !(word &&
	      strcmp(word, "no-gpu") == 0)) /* A later attempt would find no GPU either. */
		reply_header(r, "Retry-After", status == 429 ? "10" : "1");
}

void reply_static(struct reply *r, const char *type, const void *p, size_t n, const void *gz,
		  size_t gz_n)
{
	struct reply_impl *impl = r->impl;

	impl->is_static = true;
	impl->p = p;
	impl->n = n;
	impl->gz = gz;
	impl->gz_n = gz_n;
	r->type = type;
}

void reply_again(struct reply *r, uint64_t at_ns)
{
	((struct reply_impl *)r->impl)->again_ns = at_ns ? at_ns : 1;
}

void reply_stream(struct reply *r, struct stream *s, uint64_t after, unsigned topics)
{
	struct reply_impl *impl = r->impl;

	impl->stream = s;
	impl->after = after;
	impl->topics = topics;
	r->type = "text/event-stream";
}

static struct blob *blob_static(const void *p, size_t n)
{
	struct blob *b = malloc(sizeof(*b));

	if (b)
		*b = (struct blob){ .refs = 1, .size = n, .p = p };
	return b;
}

/* Moves the contents of b into a new blob; b is then empty. Returns NULL if out of memory. */
static struct blob *blob_take(struct buf *b)
{
	struct blob *blob = blob_static(NULL, b->len);

	if (!blob)
		return NULL;
	if (b->heap && b->cap > 0) {
		blob->memory = realloc(b->p, b->len + 1);
		if (!blob->memory)
			blob->memory = b->p;
		buf_init(b, b->max);
	}
	blob->p = blob->memory ? blob->memory : "";
	return blob;
}

/* The argument is a void pointer, because the library also calls this function. */
static void blob_drop(void *arg)
{
	struct blob *b = arg;

	if (!b || --b->refs > 0)
		return;
	free(b->memory);
	free(b);
}

static struct blob *blob_gzip(const struct blob *from)
{
	/* The gzipped body is used only if it is at least 1/16 smaller than the plain body. */
	size_t room = from->size - from->size / 16;
	z_stream z = { .next_in = (z_const Bytef *)from->p, .avail_in = (uInt)from->size };
	struct blob *b = blob_static(NULL, 0);

	if (b)
		b->p = b->memory = malloc(room);
	if (!b || !b->memory ||
	    deflateInit2(&z, 5, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
		blob_drop(b);
		return NULL;
	}
	z.next_out = b->memory;
	z.avail_out = (uInt)room;

	int r = deflate(&z, Z_FINISH);

	b->size = z.total_out;
	deflateEnd(&z);
	if (r != Z_STREAM_END) {
		blob_drop(b);
		return NULL;
	}
	return b;
}

/* The state of the hash for ETags: two 64-bit lanes over words of 8 bytes. The hash is not
 * cryptographic, because an attacker gains nothing from a collision. SHA-256 took 2 ms for the
 * metrics page of 64 GPUs; this hash takes 0.1 ms. */
struct digest {
	uint64_t a, b;
};

static void digest_word(struct digest *d, uint64_t word)
{
	d->a = (d->a ^ word) * 0x9e3779b97f4a7c15;
	d->a ^= d->a >> 32;
	d->b = ((d->b << 29 | d->b >> 35) + word) * 0xc2b2ae3d27d4eb4f;
}

static void digest_add(struct digest *d, const void *p, size_t n)
{
	const char *at = p;
	uint64_t word;

	digest_word(d, n);
	for (; n >= sizeof(word); n -= sizeof(word), at += sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		digest_word(d, word);
	}
	word = 0;
	memcpy(&word, at, n);
	digest_word(d, word);
}

static void set_etag(struct entry *e)
{
	struct digest d = { 0, 0 };

	digest_add(&d, e->type, strlen(e->type));
	digest_add(&d, e->plain->p, e->plain->size);
	snprintf(e->etag, sizeof(e->etag), "\"%016llx%08llx", (unsigned long long)d.a,
		 (unsigned long long)(d.b >> 32));
}

struct entry *entry_new(struct reply *r, unsigned flags)
{
	struct reply_impl *impl = r->impl;
	struct entry *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->plain = impl->is_static ? blob_static(impl->p, impl->n) : blob_take(&r->body);
	if (impl->is_static && impl->gz)
		e->gzip = blob_static(impl->gz, impl->gz_n);
	if (!e->plain) {
		entry_free(e);
		return NULL;
	}
	e->status = r->status;
	e->flags = flags;
	snprintf(e->type, sizeof(e->type), "%s", r->type ? r->type : "");
	e->headers = *impl;
	impl->headers = 0;
	if (r->status == 200 && (flags & (ROUTE_TICK | ROUTE_STATIC)))
		set_etag(e);
	return e;
}

void entry_free(struct entry *e)
{
	if (!e)
		return;
	for (unsigned i = 0; i < 2; i++) {
		if (e->ready[i])
			MHD_destroy_response(e->ready[i]);
		if (e->same[i])
			MHD_destroy_response(e->same[i]);
	}
	blob_drop(e->plain);
	blob_drop(e->gzip);
	drop_headers(&e->headers);
	free(e->accept);
	free(e);
}

bool entry_use_gzip(struct entry *e, const char *encoding)
{
	if (!encoding || !check_gzip(encoding))
		return false;
	if (!e->gzip && !e->gzip_tried && e->plain->size > GZIP_LEAST) {
		e->gzip_tried = true;
		e->gzip = blob_gzip(e->plain);
	}
	return e->gzip != NULL;
}

static void full_etag(const struct entry *e, bool gzip, char out[static ETAG_SIZE])
{
	snprintf(out, ETAG_SIZE, "%.30s%s\"", e->etag, gzip ? "-gz" : "");
}

bool entry_is_same(const struct entry *e, bool gzip, const char *match)
{
	char etag[ETAG_SIZE];

	if (!match || !e->etag[0])
		return false;
	full_etag(e, gzip, etag);
	return check_etag(match, etag);
}

void add_common_headers(struct MHD_Response *m)
{
	MHD_add_response_header(m, "X-Content-Type-Options", "nosniff");
	MHD_add_response_header(m, "Referrer-Policy", "no-referrer");
	MHD_add_response_header(m, "X-Frame-Options", "DENY");
}

static void add_cors(struct MHD_Response *m, const char *origin)
{
	MHD_add_response_header(m, "Access-Control-Allow-Origin", origin);
	MHD_add_response_header(m, "Access-Control-Expose-Headers",
				"ETag, Retry-After, X-Gpuward-Simulated, "
				"X-Gpuward-Stored, X-Request-Id");
}

static void add_form_headers(struct MHD_Response *m, const struct entry *e, bool gzip,
			     bool vary_origin)
{
	char text[ETAG_SIZE];

	if (gzip)
		MHD_add_response_header(m, "Content-Encoding", "gzip");
	snprintf(text, sizeof(text), "Accept-Encoding%s%s",
		 e->flags & ROUTE_TEXT ? ", Accept" : "", vary_origin ? ", Origin" : "");
	MHD_add_response_header(m, "Vary", text);
	if (e->etag[0]) {
		full_etag(e, gzip, text);
		MHD_add_response_header(m, "ETag", text);
	}
	if (!has_header(&e->headers, "Cache-Control"))
		MHD_add_response_header(m, "Cache-Control",
					e->flags & ROUTE_STATIC ? "no-cache" : "no-store");
}

static struct MHD_Response *response_of(struct blob *b)
{
	/* From a buffer, the library sends header and body with one sendmsg(). From a file, it
	 * needs no copy of the body, but it sends the header in its own packet, and at most 128
	 * KiB per call. That costs more than a copy of up to 400 KiB (measured with bench/run
	 * metrics). The cast is safe: the library does not write to the buffer. */
	struct MHD_Response *m = MHD_create_response_from_buffer_with_free_callback_cls(
		b->size, (void *)(uintptr_t)b->p, blob_drop, b);

	if (m)
		b->refs++;
	return m;
}

static struct MHD_Response *empty_response(void)
{
	return MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
}

struct MHD_Response *entry_response(struct entry *e, bool gzip, bool same, const char *id,
				    const char *origin, bool vary_origin)
{
	struct MHD_Response *m =
		same ? empty_response() : response_of(gzip ? e->gzip : e->plain);

	if (!m)
		return NULL;
	add_common_headers(m);
	add_form_headers(m, e, gzip, vary_origin);
	for (unsigned i = 0; i < e->headers.headers; i++)
		MHD_add_response_header(m, e->headers.header[i].name,
					e->headers.header[i].value);
	if (!same && e->type[0])
		MHD_add_response_header(m, "Content-Type", e->type);
	if (!same && strncmp(e->type, "text/html", 9) == 0 &&
	    !has_header(&e->headers, "Content-Security-Policy"))
		MHD_add_response_header(m, "Content-Security-Policy", csp);
	if (id)
		MHD_add_response_header(m, "X-Request-Id", id);
	if (origin)
		add_cors(m, origin);
	return m;
}

void send_count_status(struct http *h, unsigned status)
{
	h->counts.requests[status >= 100 && status < 600 ? status / 100 : 5]++;
}

void send_count(struct conn *c, int status, size_t bytes)
{
	c->replied = true;
	send_count_status(c->http, (unsigned)status);
	c->http->counts.bytes_sent += bytes;
}

void send_log(struct http *h, const struct request *q, int status, const char *type,
	      size_t bytes, double seconds)
{
	struct reply r = { .status = status, .type = type };

	r.body.len = bytes;
	/* Round to microseconds, because the time has no higher precision. */
	h->hook.log(h->hook.arg, q, &r, (double)(uint64_t)(seconds * 1e6 + 0.5) / 1e6);
}

/* Returns the library's reply for the entry. Makes it at the first use; later requests share
 * it. */
static struct MHD_Response *ready_response(struct http *h, struct entry *e, bool gzip,
					   bool same)
{
	struct MHD_Response **m = same ? &e->same[gzip] : &e->ready[gzip];

	if (!*m)
		*m = entry_response(e, gzip, same, NULL, NULL,
				    h->settings.origins && h->settings.origins[0]);
	return *m;
}

enum MHD_Result send_cached(struct conn *c, struct entry *e, const char *url)
{
	const struct heads *heads = &c->heads;
	struct http *h = c->http;
	bool gzip = entry_use_gzip(e, heads->encoding);
	bool same = heads->match && entry_is_same(e, gzip, heads->match);
	int status = same ? 304 : e->status;
	size_t bytes = same ? 0 : gzip ? e->gzip->size : e->plain->size;
	struct MHD_Response *m = ready_response(h, e, gzip, same);

	if (!m)
		return MHD_NO;
	conn_set_state(c, CONN_BUSY);
	send_count(c, status, bytes);
	if (h->hook.log) {
		struct request q = {
			.method = HTTP_GET, .path = url, .body = "", .who = "anyone", .id = ""
		};

		send_log(h, &q, status, e->type, bytes, 0);
	}
	return MHD_queue_response(c->mhd, (unsigned)status, m);
}

/* True if the entry may still be sent. The entry expires after CACHE_NS even if no tick comes,
 * because a hanging driver call delays the next tick, and the ages in the reply would be
 * wrong. */
static bool is_current(const struct http *h, const struct entry *e)
{
	return (e->flags & ROUTE_STATIC) ||
	       (e->tick == h->tick && h->now_ns - e->made_ns < CACHE_NS);
}

struct entry *cache_find(struct http *h, int route, const char *accept)
{
	for (struct entry *e = h->cache[route]; e; e = e->next) {
		if (!is_current(h, e))
			continue;
		if (!e->accept || strcmp(e->accept, accept ? accept : "") == 0)
			return e;
	}
	return NULL;
}

void cache_drop(struct http *h, int route, bool all)
{
	struct entry **link = &h->cache[route];

	while (*link) {
		struct entry *e = *link;

		if (all || !is_current(h, e)) {
			*link = e->next;
			entry_free(e);
		} else {
			link = &e->next;
		}
	}
}

/* Adds the entry to the cache if its route allows it. */
static bool cache_keep(struct http *h, const struct call *k, struct entry *e)
{
	const char *accept = k->conn->heads.accept ? k->conn->heads.accept : "";
	unsigned count = 0;

	if (k->route < 0 || !(e->flags & (ROUTE_TICK | ROUTE_STATIC)) || e->status != 200 ||
	    k->q.method != HTTP_GET || k->params > 0 || strchr(h->route[k->route].path, '{') ||
	    strchr(h->route[k->route].path, '*'))
		return false;
	cache_drop(h, k->route, false);
	for (struct entry *o = h->cache[k->route]; o; o = o->next)
		count++;
	if (e->flags & ROUTE_TEXT) {
		if (count >= 8 || strlen(accept) > 512 || !(e->accept = strdup(accept)))
			return false;
	} else if (count > 0) {
		return false;
	}
	e->tick = h->tick;
	e->made_ns = h->now_ns;
	e->next = h->cache[k->route];
	h->cache[k->route] = e;
	return true;
}

enum MHD_Result send_entry(struct conn *c, struct entry *e)
{
	struct http *h = c->http;
	struct call *k = c->call;
	bool gzip = entry_use_gzip(e, c->heads.encoding);
	bool same = k->q.method == HTTP_GET && entry_is_same(e, gzip, c->heads.match);
	bool cors = c->heads.origin && admit_listed(h->settings.origins, c->heads.origin);
	int status = same ? 304 : e->status;
	size_t bytes = same ? 0 : gzip ? e->gzip->size : e->plain->size;
	struct MHD_Response *m =
		entry_response(e, gzip, same, k->id, cors ? c->heads.origin : NULL,
			       h->settings.origins && h->settings.origins[0]);
	enum MHD_Result r;

	if (!m)
		return MHD_NO;
	conn_set_state(c, CONN_BUSY);
	send_count(c, status, bytes);
	if (h->hook.log)
		send_log(h, &k->q, status, e->type, bytes,
			 (double)(clock_mono_ns(clock_real()) - k->start_ns) * 1e-9);
	r = MHD_queue_response(c->mhd, (unsigned)status, m);
	MHD_destroy_response(m);
	return r;
}

enum MHD_Result send_reply(struct conn *c, struct reply *r)
{
	struct http *h = c->http;
	struct call *k = c->call;
	unsigned flags = k->route >= 0 ? h->route[k->route].flags : 0;
	enum MHD_Result result = MHD_NO;
	struct entry *e;

	if (h->hook.mark)
		h->hook.mark(h->hook.arg, r);
	if (r->body.err)
		reply_problem(r, 500, "no-memory", NULL,
			      "The answer is too large for the available memory.");
	if (r->status == 200 && !check_accepts(c->heads.accept, r->type))
		reply_problem(r, 406, "not-acceptable", "Omit Accept, or include that type.",
			      "The answer is %s, which Accept excludes.", r->type);
	if (r->status >= 400)
		((struct reply_impl *)r->impl)->is_static = false;
	e = entry_new(r, flags);
	reply_done(r);
	if (!e)
		return MHD_NO;
	bool kept = cache_keep(h, k, e);

	result = send_entry(c, e);
	if (!kept)
		entry_free(e);
	return result;
}

__attribute__((format(printf, 5, 6))) enum MHD_Result send_refusal(struct conn *c, int status,
								   const char *word,
								   const char *remedy,
								   const char *detail, ...)
{
	struct reply_impl impl;
	struct reply r;
	char text[1024];
	va_list ap;

	va_start(ap, detail);
	vsnprintf(text, sizeof(text), detail, ap);
	va_end(ap);
	reply_init(&r, &impl);
	if (c->closing)
		reply_header(&r, "Connection", "close");
	if (status == 401)
		reply_header(&r, "WWW-Authenticate", "Bearer realm=\"gpuward\"");
	reply_problem(&r, status, word, remedy, "%s", text);
	return send_reply(c, &r);
}
