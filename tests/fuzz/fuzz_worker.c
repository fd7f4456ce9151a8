/* Any answers of an inference server: each order to its adapter and each question about tokens
 * ends without a crash, with 0 or an error of the interface. The first byte of the input selects
 * the kind; form feeds separate the answers, and the first byte of an answer selects its status.
 *
 * This file replaces the functions of guard/worker/http.h; they answer from the input. */
#include "text.h"

#include "daemon/token_source.h"
#include "guard/worker/common.h"
#include "guard/worker/common.h"

#include <gpuward.h>

#include "../unit/tree.h"

struct worker_http {
	char *rest; /* answers that were not used yet */
	const char *body;
	int status;
};
static struct worker_http http;

int worker_http_new(const struct policy_worker *w, uint64_t deadline_ns,
		    struct worker_http **ret)
{
	(void)w;
	(void)deadline_ns;
	*ret = &http;
	return 0;
}

void worker_http_free(struct worker_http *h)
{
	(void)h;
}

void worker_http_admin_key(struct worker_http *h)
{
	(void)h;
}

void worker_http_socket(struct worker_http *h, const char *path)
{
	(void)h;
	(void)path;
}

void worker_http_deadline(struct worker_http *h, uint64_t deadline_ns)
{
	(void)h;
	(void)deadline_ns;
}

void worker_http_cancel(struct worker_http *h, const atomic_bool *cancelled)
{
	(void)h;
	(void)cancelled;
}

void worker_http_until(struct worker_http *h, const char *text)
{
	(void)h;
	(void)text;
}

int worker_http_do(struct worker_http *h, const char *method, const char *path,
		   const char *body, char *message, size_t size)
{
	static const int statuses[] = { 200, 404, 503, 409, 400, 401, 500 };
	char *end = h->rest + strcspn(h->rest, "\f");
	const unsigned first = (unsigned char)*h->rest;

	if (!*method || *path != '/' || (body && !*body))
		abort();
	if (!first || first == '!') {
		h->status = 0;
		h->body = "";
		snprintf(message, size, "no answer");
		return -GW_E_TIMEOUT;
	}
	h->status = first >= '0' && first < '7' ? statuses[first - '0'] : 200;
	h->body = h->rest + (first >= '0' && first < '7');
	h->rest = end + (*end != '\0');
	*end = '\0';
	return 0;
}

const char *worker_http_base(const struct worker_http *h)
{
	(void)h;
	return "http://127.0.0.1:8080";
}

int worker_http_status(const struct worker_http *h)
{
	return h->status;
}

const char *worker_http_body(const struct worker_http *h, size_t *ret_len)
{
	*ret_len = strlen(h->body);
	return h->body;
}

void worker_http_scrub(const struct worker_http *h, char *text)
{
	(void)h;
	(void)text;
}

static struct tree tree;

static void remove_tree(void)
{
	tree_done(&tree);
}

static void check_orders(enum policy_kind kind, char *answers)
{
	const struct worker_ops *o = worker_all.of(kind);
	char notes[WORKER_NOTES_SIZE] = "", message[300] = "";
	struct policy_worker w = { .name = "w", .kind = kind, .url = "http://127.0.0.1:8080" };
	struct guard_order order = { .roots = 1 };
	struct worker_call c = { .worker = &w,
				 .order = &order,
				 .http = &http,
				 .deadline_ns = 1, /* no adapter waits */
				 .notes = notes,
				 .notes_size = sizeof(notes),
				 .message = message,
				 .message_size = sizeof(message),
				 .root = &tree.root,
				 .set = &worker_all };
	int (*const step[])(struct worker_call * c) = { o->close,  o->learn, o->evict,
							o->resume, o->open,  o->alive };
	bool busy;

	http = (struct worker_http){ .rest = answers, .body = "" };
	if (o->drain)
		(void)o->drain(&c, &busy);
	if (o->busy_path)
		(void)worker_busy(&c, o, &busy);
	for (unsigned i = 0; i < sizeof(step) / sizeof(*step); i++)
		if (step[i] && step[i](&c) > 0)
			abort();
	for (unsigned i = 0; i < ORDER_VERBS; i++)
		if (o->posts[i] && worker_post_all(&c, o->posts[i]) > 0)
			abort();
	if (o->load)
		(void)worker_load_noted(&c, o->load);
	if (!memchr(notes, 0, sizeof(notes)) || !memchr(message, 0, sizeof(message)))
		abort();
}

static void check_tokens(enum policy_kind kind, char *answers)
{
	static struct token_answer a;
	struct token_query q = { .kind = kind, .url = "http://127.0.0.1:8080", .count = true };

	memset(&a, 0, sizeof(a));
	http = (struct worker_http){ .rest = answers, .body = "" };
	token_source_ask(&q, &tree.root, NULL, &a);
	if (a.result >= TOKEN_OFF && !*a.why)
		abort();
	for (unsigned i = 0; i < a.list.count; i++)
		if (!*a.list.of[i].model || !memchr(a.list.of[i].model, 0, MODEL_NAME))
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	enum policy_kind kind;
	char *text;

	if (size == 0)
		return 0;
	if (!tree.path[0]) {
		tree_init(&tree);
		atexit(remove_tree);
	}
	for (kind = data[0] % WORKER_KINDS; !token_kind(kind)->known;)
		kind = (kind + 1) % WORKER_KINDS;
	text = fuzz_text(data + 1, size - 1);
	check_orders(kind, text);
	free(text);
	text = fuzz_text(data + 1, size - 1);
	check_tokens(kind, text);
	free(text);
	return 0;
}
