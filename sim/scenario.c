#include "scenario.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi.h"
#include "base/suggest.h"
#include "build.h"

/* Simulated pids start here, above the pids that Linux uses by default, so they are not pids of
 * real processes. */
#define FIRST_PID 4000000u

void *build_grow(void *array, size_t *n, size_t size)
{
	void **p = array;
	char *grown = reallocarray(*p, *n + 1, size);

	if (grown == NULL)
		return NULL;
	*p = grown;
	memset(grown + *n * size, 0, size);
	return grown + (*n)++ * size;
}

int build_no_memory(struct rows *r, const struct toml_node *node)
{
	return rows_fail(r, node, "out of memory");
}

/* Returns the number of a call, -1 for "*", or -2 with the error set if the symbol is
 * unknown. */
static int read_symbol(struct rows *r, const struct toml_node *node)
{
	const char *near;
	int call;

	if (node->type != TOML_STRING) {
		rows_want(r, node, "the name of an NVML function");
		return -2;
	}
	if (strcmp(node->v.string.text, "*") == 0)
		return -1;
	call = call_find(node->v.string.text);
	if (call >= 0)
		return call;
	near = suggest(node->v.string.text, call_symbols, N_CALLS, sizeof(call_symbols[0]));
	if (near != NULL)
		rows_fail(r, node, "no function is called '%s'; did you mean '%s'?",
			  node->v.string.text, near);
	else
		rows_fail(r, node, "no function is called '%s'", node->v.string.text);
	return -2;
}

static int read_call(struct rows *r, const struct toml_node *node, void *target)
{
	struct fault *f = target;

	f->call = read_symbol(r, node);
	return f->call < -1 ? -1 : 0;
}

static int read_code(struct rows *r, const struct toml_node *node, void *target)
{
	struct fault *f = target;

	if (node->type != TOML_INTEGER || node->v.integer < 0 || node->v.integer > 100000)
		return rows_want(r, node, "an NVML return code");
	f->has_code = true;
	f->code = (int)node->v.integer;
	return 0;
}

static int read_sentinel(struct rows *r, const struct toml_node *node, void *target)
{
	struct fault *f = target;

	if (node->type != TOML_INTEGER)
		return rows_want(r, node, "a whole number");
	f->has_value = true;
	f->value = (uint64_t)node->v.integer;
	return 0;
}

#define FAULT(member) offsetof(struct fault, member)
/* clang-format off */
static const struct key fault_keys[] = {
	{ .name = "call", .kind = KEY_READ, .read = read_call },
	{ .name = "gpu", .kind = KEY_INT, .offset = FAULT(device),
	  .max = WORLD_DEVICES_MAX - 1 },
	{ .name = "field", .kind = KEY_UINT, .offset = FAULT(field), .max = 100000 },
	{ .name = "from", .kind = KEY_SECONDS, .offset = FAULT(from_ns) },
	{ .name = "until", .kind = KEY_SECONDS, .offset = FAULT(until_ns) },
	{ .name = "while", .kind = KEY_TEXT, .offset = FAULT(file), .max = 256 },
	{ .name = "code", .kind = KEY_READ, .read = read_code },
	{ .name = "delay", .kind = KEY_SECONDS, .offset = FAULT(delay_ns) },
	{ .name = "hang", .kind = KEY_BOOL, .offset = FAULT(hang) },
	{ .name = "value", .kind = KEY_READ, .read = read_sentinel },
};
/* clang-format on */

static int read_fault(struct rows *r, const struct toml_node *table)
{
	struct world *w = building(r)->w;
	struct fault *f = build_grow(&w->faults, &w->n_faults, sizeof(*f));

	if (f == NULL)
		return build_no_memory(r, table);
	f->call = -2;
	f->device = -1;
	if (rows_table(r, table, fault_keys, COUNT(fault_keys), f) != 0)
		return -1;
	if (f->field != 0 && f->call == -2)
		f->call = CALL_nvmlDeviceGetFieldValues;
	if (f->call == -2)
		return rows_fail(r, table, "a fault needs a 'call' (or a 'field')");
	return 0;
}

/* The actions of a timeline: the name, what the action does, and which event it sends (0: none,
 * or the event that the key `type` names). */
static const struct {
	const char *word;
	enum action_kind kind;
	uint64_t type;
} actions[] = {
	{ "event", ACTION_EVENT, 0 },
	{ "xid", ACTION_EVENT, ABI_EVENT_XID },
	{ "lose", ACTION_LOSE, 0 },
	{ "heal", ACTION_HEAL, 0 },
	{ "reload", ACTION_RELOAD, 0 },
	{ "wall-step", ACTION_WALL, 0 },
	{ "counter-reset", ACTION_RESET, 0 },
	{ "counter-step", ACTION_COUNTER, 0 },
	{ "counter-freeze", ACTION_FREEZE, 0 },
	{ "counter-thaw", ACTION_THAW, 0 },
	{ "ecc-corrected", ACTION_ECC, ABI_EVENT_ECC_SINGLE },
	{ "ecc-uncorrected", ACTION_ECC, ABI_EVENT_ECC_DOUBLE },
	{ "recovery", ACTION_RECOVERY, ABI_EVENT_RECOVERY_ACTION },
	{ "mig-change", ACTION_MIG, ABI_EVENT_MIG_CHANGE },
};

static int read_do(struct rows *r, const struct toml_node *node, void *target)
{
	struct action *a = target;
	const char *near;

	if (node->type != TOML_STRING)
		return rows_want(r, node, "a word");
	for (size_t i = 0; i < COUNT(actions); i++) {
		if (strcmp(actions[i].word, node->v.string.text) != 0)
			continue;
		a->kind = actions[i].kind;
		if (actions[i].type != 0)
			a->type = actions[i].type;
		return 0;
	}
	near = suggest(node->v.string.text, &actions[0].word, COUNT(actions),
		       sizeof(actions[0]));
	return rows_fail(r, node, "there is no action '%s'; did you mean '%s'?",
			 node->v.string.text, near != NULL ? near : actions[0].word);
}

#define ACTION(member) offsetof(struct action, member)
/* clang-format off */
static const struct key action_keys[] = {
	{ .name = "at", .kind = KEY_SECONDS, .offset = ACTION(at_ns) },
	{ .name = "do", .kind = KEY_READ, .read = read_do },
	{ .name = "gpu", .kind = KEY_INT, .offset = ACTION(device),
	  .max = WORLD_DEVICES_MAX - 1 },
	{ .name = "type", .kind = KEY_BITS, .offset = ACTION(type) },
	{ .name = "data", .kind = KEY_BITS, .offset = ACTION(data) },
	{ .name = "length", .kind = KEY_SECONDS, .offset = ACTION(length_ns) },
	{ .name = "step", .kind = KEY_STEP, .offset = ACTION(step_ns) },
	{ .name = "joules", .kind = KEY_NUMBER, .offset = ACTION(step_j),
	  .min = -1e9, .max = 1e9 },
	{ .name = "version", .kind = KEY_TEXT, .offset = ACTION(version), .max = 32 },
};
/* clang-format on */

static int read_action(struct rows *r, const struct toml_node *table)
{
	struct world *w = building(r)->w;
	struct action *a = build_grow(&w->actions, &w->n_actions, sizeof(*a));

	if (a == NULL)
		return build_no_memory(r, table);
	a->device = -1;
	if (table->type == TOML_TABLE && toml_get(table, "do") == NULL)
		return rows_fail(r, table, "an entry of the timeline needs a 'do'");
	if (rows_table(r, table, action_keys, COUNT(action_keys), a) != 0)
		return -1;
	if (a->version[0] != 0)
		snprintf(a->nvml, sizeof(a->nvml), "13.%.28s", a->version);
	return 0;
}

static int read_missing(struct rows *r, const struct toml_node *node, void *target)
{
	struct world *w = target;

	if (node->type != TOML_ARRAY)
		return rows_want(r, node, "a list of NVML functions");
	for (const struct toml_node *c = node->child; c != NULL; c = c->next) {
		int call = read_symbol(r, c);
		char **name;

		if (call < 0)
			return call == -1 ? rows_fail(r, c, "'*' is not allowed here") : -1;
		name = build_grow(&w->missing, &w->n_missing, sizeof(*name));
		if (name == NULL || (*name = strdup(call_symbols[call])) == NULL)
			return build_no_memory(r, c);
	}
	return 0;
}

static int read_stride(struct rows *r, const struct toml_node *node, void *target)
{
	struct world *w = target;

	if (node->type != TOML_INTEGER ||
	    (node->v.integer != 16 && node->v.integer != 24 && node->v.integer != 32))
		return rows_fail(r, node, "'process_bytes' must be 16, 24 or 32");
	w->stride = (unsigned)node->v.integer;
	return 0;
}

#define WORLD(member) offsetof(struct world, member)
/* clang-format off */
static const struct key driver_keys[] = {
	{ .name = "version", .kind = KEY_TEXT, .offset = WORLD(driver), .max = 32 },
	{ .name = "nvml", .kind = KEY_TEXT, .offset = WORLD(nvml), .max = 32 },
	{ .name = "cuda", .kind = KEY_INT, .offset = WORLD(cuda), .max = 100000 },
	{ .name = "process_bytes", .kind = KEY_READ, .read = read_stride },
	{ .name = "privileged", .kind = KEY_BOOL, .offset = WORLD(privileged) },
	{ .name = "stub", .kind = KEY_BOOL, .offset = WORLD(stub) },
	{ .name = "measured_latency", .kind = KEY_BOOL, .offset = WORLD(measured_latency) },
	{ .name = "utilization_entries", .kind = KEY_UINT, .offset = WORLD(utilization_entries),
	  .max = 1000 },
	{ .name = "utilization_history", .kind = KEY_UINT, .offset = WORLD(utilization_history),
	  .min = 1, .max = 100 },
	{ .name = "utilization_copies", .kind = KEY_UINT, .offset = WORLD(utilization_copies),
	  .min = 1, .max = 10 },
	{ .name = "utilization_ignores_since", .kind = KEY_BOOL,
	  .offset = WORLD(utilization_ignores_since) },
	{ .name = "missing", .kind = KEY_READ, .read = read_missing },
	{ .name = NULL },
};
/* clang-format on */

static const char *const mode_words[] = { "real", "scaled", "stepped", NULL };
/* clang-format off */
static const struct key time_keys[] = {
	{ .name = "mode", .kind = KEY_CHOICE, .offset = WORLD(mode), .words = mode_words },
	{ .name = "rate", .kind = KEY_NUMBER, .offset = WORLD(rate),
	  .min = 0.001, .max = 100000 },
	{ .name = "wall", .kind = KEY_SECONDS, .offset = WORLD(wall_ns), .max = 9e9 },
	{ .name = "begin", .kind = KEY_SECONDS, .offset = WORLD(begin_ns), .max = 1e6 },
	{ .name = NULL },
};
/* clang-format on */

/* clang-format off */
static const struct key top_keys[] = {
	{ .name = "time", .kind = KEY_TABLE, .table = time_keys },
	{ .name = "driver", .kind = KEY_TABLE, .table = driver_keys },
	{ .name = "gpu", .kind = KEY_EACH, .each = build_gpu },
	{ .name = "fault", .kind = KEY_EACH, .each = read_fault },
	{ .name = "timeline", .kind = KEY_EACH, .each = read_action },
};
/* clang-format on */

struct world *scenario_parse(const char *name, const char *text, size_t size, char *error,
			     size_t error_size)
{
	struct build b = { .w = world_new(), .next_pid = FIRST_PID, .path = name };
	struct rows r = { name, error, error_size, &b };
	struct toml_error where;
	struct toml *doc = NULL;
	int code;

	if (b.w == NULL) {
		snprintf(error, error_size, "%s:0:0: out of memory", name);
		return NULL;
	}
	code = toml_parse(text, size, &doc, &where);
	if (code != 0)
		snprintf(error, error_size, "%s:%u:%u: %s", name, where.line, where.column,
			 where.text);
	else
		code = rows_table(&r, toml_top(doc), top_keys, COUNT(top_keys), b.w);
	toml_free(doc);
	if (code == 0 && (code = world_start(b.w)) != 0)
		snprintf(error, error_size, "%s:0:0: out of memory", name);
	if (code == 0)
		return b.w;
	world_free(b.w);
	return NULL;
}
