/* Replies of handlers, and how they are sent.
 *
 * An entry is a finished reply: its body (shared by all requests that still send it), the
 * compressed body, and the library's reply objects with all headers. An entry that is the same
 * for all clients is cached, so that the next request only adds a reference. */
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

/* ---- for handlers */

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

const char *status_title(int status)
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
	if ((status == 429 || status == 503) && !has_header(r->impl, "Retry-After"))
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

/* ---- bodies */

struct blob *blob_static(const void *p, size_t n)
{
	struct blob *b = malloc(sizeof(*b));

	if (b)
		*b = (struct blob){ .refs = 1, .size = n, .p = p };
	return b;
}

struct blob *blob_take(struct buf *b)
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

void blob_drop(struct blob *b)
{
	if (!b || --b->refs > 0)
		return;
	free(b->memory);
	free(b);
}

struct blob *blob_gzip(const struct blob *from)
{
	size_t room = from->size - from->size / 16; /* accept only a saving of 1/16 or more */
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

/* ---- entries */

static bool is_html(const char *type)
{
	return strncmp(type, "text/html", 9) == 0;
}

/* Two 64-bit lanes over words of 8 bytes. An entity tag has to differ when the content differs;
 * an attacker gains nothing from a collision. SHA-256 took 2 ms for the metrics page of 64
 * GPUs; this hash takes 0.1 ms. */
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

bool entry_wants_gzip(struct entry *e, const char *encoding)
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
				"ETag, Retry-After, X-Gpuward-Simulated, X-Request-Id");
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

static void drop_blob(void *b)
{
	blob_drop(b);
}

static struct MHD_Response *response_of(struct blob *b)
{
	/* Header and body are sent with one sendmsg(). A body in a file needs no copy, but the
	 * library then sends the header in its own packet and at most 128 KiB per call;
	 * measured, this costs more than copying up to 400 KiB (bench/run metrics). The cast is
	 * safe: the library does not write to the buffer. */
	struct MHD_Response *m = MHD_create_response_from_buffer_with_free_callback_cls(
		b->size, (void *)(uintptr_t)b->p, drop_blob, b);

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
	if (!same && is_html(e->type) && !has_header(&e->headers, "Content-Security-Policy"))
		MHD_add_response_header(m, "Content-Security-Policy", csp);
	if (id)
		MHD_add_response_header(m, "X-Request-Id", id);
	if (origin)
		add_cors(m, origin);
	return m;
}
