/* Carries out orders for one worker and prints each outcome as a line of JSON.
 *
 *     adapter kind=ollama url=http://127.0.0.1:11434 drain evict:2 resume
 *
 * Words with = describe the worker and the orders. The other words are orders, which are
 * carried out one after the other. pid=PID adds a target process with its current start time;
 * pid=PID:TICKS adds one with the given start time. root=PID names a root process of the
 * worker. */
#include "guard/action.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"

#include "device/proc.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static const char *const verbs[] = { [ORDER_CLOSE] = "close",
				     [ORDER_DRAIN] = "drain",
				     [ORDER_EVICT] = "evict",
				     [ORDER_OPEN] = "open",
				     [ORDER_RESUME] = "resume" };

#define ARGV_MAX 16

static struct policy policy;
static struct policy_worker *const worker = &policy.worker[0];
static struct guard_order order;
static uint64_t deadline_ns = 5 * NS_PER_S;
static const char *notes = "";
static struct worker_facts facts = { -1, -1, -1 };
static const char *evict_argv[ARGV_MAX + 1], *resume_argv[ARGV_MAX + 1];

static int find(const char *const *names, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(names[i], name) == 0)
			return (int)i;
	fprintf(stderr, "adapter: unknown word %s\n", name);
	exit(2);
}

static void set_kind(const char *name)
{
	int kind = policy_kind_find(name);

	if (kind < 0) {
		fprintf(stderr, "adapter: unknown kind of worker %s\n", name);
		exit(2);
	}
	worker->kind = (enum policy_kind)kind;
}

/* Parses PID or PID:TICKS. */
static void identify(const char *value, int64_t *ret_pid, uint64_t *ret_ticks)
{
	const char *ticks = strchr(value, ':');
	struct root root;

	if (root_open(&root, NULL) != 0)
		exit(2);
	*ret_pid = strtoll(value, NULL, 10);
	if (ticks)
		*ret_ticks = strtoull(ticks + 1, NULL, 10);
	else
		proc_start_ticks(&root, *ret_pid, ret_ticks);
	root_close(&root);
}

static void add_target(const char *value)
{
	identify(value, &order.target[order.targets].id.pid,
		 &order.target[order.targets].id.start_ticks);
	order.targets++;
}

static void add_root(const char *value)
{
	identify(value, &order.root[order.roots].id.pid,
		 &order.root[order.roots].id.start_ticks);
	order.roots++;
}

static void add_argument(const char **argv, const char *value)
{
	size_t n = 0;

	while (argv[n])
		n++;
	if (n < ARGV_MAX)
		argv[n] = value;
}

static void describe(const char *key, const char *value)
{
	long number = strtol(value, NULL, 10);

#define IS(name) (strcmp(key, name) == 0)
	if (IS("kind"))
		set_kind(value);
	else if (IS("url"))
		worker->url = value;
	else if (IS("token_file"))
		worker->token_file = value;
	else if (IS("model"))
		worker->model = value;
	else if (IS("unit"))
		worker->match.unit = value;
	else if (IS("container"))
		worker->match.container = value;
	else if (IS("level"))
		worker->level = (unsigned)number;
	else if (IS("lazy"))
		worker->resume = number ? RESUME_LAZY : RESUME_RESTORE;
	else if (IS("max_level"))
		worker->knobs.max_level = (unsigned)number;
	else if (IS("allow_kill"))
		worker->knobs.allow_kill = number != 0;
	else if (IS("evict_signal"))
		worker->evict_signal = (int)number;
	else if (IS("resume_signal"))
		worker->resume_signal = (int)number;
	else if (IS("evict_argv"))
		add_argument(evict_argv, value);
	else if (IS("resume_argv"))
		add_argument(resume_argv, value);
	else if (IS("observe"))
		policy.mode = number ? GUARD_OBSERVE : GUARD_ENFORCE;
	else if (IS("pid"))
		add_target(value);
	else if (IS("root"))
		add_root(value);
	else if (IS("bytes"))
		order.bytes = strtoull(value, NULL, 10);
	else if (IS("gpus"))
		snprintf(order.gpus, sizeof(order.gpus), "%s", value);
	else if (IS("reason"))
		snprintf(order.reason, sizeof(order.reason), "%s", value);
	else if (IS("start"))
		order.start = number != 0;
	else if (IS("deadline_ms"))
		deadline_ns = (uint64_t)number * NS_PER_MS;
	else if (IS("notes"))
		notes = value;
	else if (IS("companion"))
		policy.companion = value;
	else if (IS("persistence"))
		facts.persistence = (int)number;
	else
		find(NULL, 0, key);
#undef IS
}

static void print(struct action *a, const char *verb, const struct guard_outcome *o)
{
	char now[WORKER_NOTES_SIZE];
	struct buf b;
	struct json j;

	action_notes(a, 0, now, sizeof(now));
	buf_init(&b, 1u << 20);
	json_init(&j, &b, false);
	json_object(&j, NULL);
	json_string(&j, "verb", verb);
	json_uint(&j, "order", o->order);
	json_bool(&j, "ok", guard_outcome_ok(o) || o->ending == ENDING_IN_FLIGHT);
	json_bool(&j, "retry", o->ending == ENDING_BUSY);
	json_bool(&j, "in_flight", o->ending == ENDING_IN_FLIGHT);
	json_bool(&j, "no_answer", o->ending == ENDING_NO_ANSWER);
	json_bool(&j, "listed", o->ending == ENDING_LISTED);
	json_bool(&j, "refused", o->ending == ENDING_REFUSED);
	json_string(&j, "message", o->message);
	json_string(&j, "notes", now);
	json_object_end(&j);
	json_end(&j);
	fputs(b.p, stdout);
	fflush(stdout);
	buf_done(&b);
}

static void carry_out(struct action *a, int fd, const char *word)
{
	char verb[16];
	struct guard_outcome outcome;
	struct guard_order learnt;
	struct pollfd p = { .fd = fd, .events = POLLIN };
	size_t n = strcspn(word, ":");

	snprintf(verb, sizeof(verb), "%.*s", (int)n, word);
	order.id++;
	order.verb = (enum guard_verb)find(verbs, sizeof(verbs) / sizeof(*verbs), verb);
	order.level = word[n] ? (unsigned)strtoul(word + n + 1, NULL, 10) : 2;
	order.deadline_ns = clock_mono_ns(clock_real()) + deadline_ns;
	if (action_order(a, &order) != 0)
		exit(3);
	while (!action_next_outcome(a, &outcome)) {
		poll(&p, 1, -1);
		if (action_learnt(a, 0, &learnt))
			action_go_on(a, 0, NULL);
	}
	print(a, verb, &outcome);
}

int main(int argc, char **argv)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	struct action *a;

	policy.mode = GUARD_ENFORCE;
	policy.workers = 1;
	worker->name = "worker-under-test";
	worker->evict_argv = evict_argv;
	worker->resume_argv = resume_argv;
	for (int i = 1; i < argc; i++) {
		char *value = strchr(argv[i], '=');

		if (value && value != argv[i]) {
			*value = '\0';
			describe(argv[i], value + 1);
			argv[i] = NULL;
		}
	}
	if (action_new(&policy, &worker_all, fd, &a) != 0)
		return 3;
	action_set_notes(a, 0, notes);
	action_set_facts(a, &facts);
	for (int i = 1; i < argc; i++)
		if (argv[i])
			carry_out(a, fd, argv[i]);
	return action_free(a, NS_PER_S) ? 4 : 0;
}
