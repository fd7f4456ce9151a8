/* [[gpu.load]] */
#include <errno.h>
#include <libgen.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "build.h"

#define TRACE_POINTS_MAX 1000000u

struct load_words {
	struct load load;
	double level, duty, offset_s;
	unsigned kind, unit;
};

static int add_point(struct rows *r, const struct toml_node *node, struct load *l, double at_s,
		     double level)
{
	uint64_t at_ns = at_s > 0 ? (uint64_t)llround(at_s * 1e9) : 0;

	if (l->n_points != 0 && at_ns < l->points[l->n_points - 1].at_ns)
		return rows_fail(r, node, "times of a load must not go back (%g s)", at_s);
	/* Room in powers of two: a trace can be long. */
	if ((l->n_points & (l->n_points - 1)) == 0) {
		size_t room = l->n_points == 0 ? 1 : 2 * l->n_points;
		struct load_point *grown = reallocarray(l->points, room, sizeof(*grown));

		if (grown == NULL || room > TRACE_POINTS_MAX)
			return build_no_memory(r, node);
		l->points = grown;
	}
	l->points[l->n_points++] = (struct load_point){ at_ns, level };
	return 0;
}

static int read_pair(struct rows *r, const struct toml_node *pair, double out[2])
{
	if (pair->type != TOML_ARRAY || pair->count != 2 ||
	    !rows_number(pair->child, &out[0]) || !rows_number(pair->child->next, &out[1]))
		return rows_fail(r, pair, "a point is a list of two numbers");
	return 0;
}

static int read_points(struct rows *r, const struct toml_node *node, void *target)
{
	struct load *l = &((struct load_words *)target)->load;
	double v[2];

	if (node->type != TOML_ARRAY)
		return rows_want(r, node, "a list of points");
	for (const struct toml_node *c = node->child; c != NULL; c = c->next)
		if (read_pair(r, c, v) != 0 || add_point(r, c, l, v[0], v[1]) != 0)
			return -1;
	return 0;
}

static int read_bursts(struct rows *r, const struct toml_node *node, void *target)
{
	struct load *l = &((struct load_words *)target)->load;
	double v[2];

	if (node->type != TOML_ARRAY)
		return rows_want(r, node, "a list of [start, end]");
	for (const struct toml_node *c = node->child; c != NULL; c = c->next)
		if (read_pair(r, c, v) != 0 || add_point(r, c, l, v[0], 1) != 0 ||
		    add_point(r, c, l, v[1], 0) != 0)
			return -1;
	return 0;
}

/* A trace beside the scenario: lines of "seconds,watts", or of "ON start end" for bursts; what
 * does not look like one is a heading or a remark. */
static int read_file(struct rows *r, const struct toml_node *node, void *target)
{
	struct load_words *words = target;
	char path[4096], line[256], *base = strdup(building(r)->path);
	double a, b, shift = words->offset_s;
	FILE *f;
	int result = 0;

	if (node->type != TOML_STRING || base == NULL) {
		free(base);
		return rows_want(r, node, "a string");
	}
	if (node->v.string.text[0] == '/')
		snprintf(path, sizeof(path), "%s", node->v.string.text);
	else
		snprintf(path, sizeof(path), "%s/%s", dirname(base), node->v.string.text);
	free(base);
	f = fopen(path, "re");
	if (f == NULL)
		return rows_fail(r, node, "cannot read '%s': %s", path, strerror(errno));
	while (result == 0 && fgets(line, sizeof(line), f) != NULL) {
		if (sscanf(line, "ON %lf %lf", &a, &b) == 2) {
			result = add_point(r, node, &words->load, a - shift, 1);
			if (result == 0)
				result = add_point(r, node, &words->load, b - shift, 0);
		} else if (sscanf(line, "%lf,%lf", &a, &b) == 2) {
			result = add_point(r, node, &words->load, a - shift, b);
		}
	}
	fclose(f);
	return result;
}

static const char *const kind_words[] = { "constant", "steps", "square", "ramp",
					  "bursts",   "trace", NULL };
static const char *const unit_words[] = { "load", "watts", NULL };

#define LOAD(member) offsetof(struct load_words, member)
#define LOAD_LEVEL(key, member, highest)                                                \
	{                                                                               \
		.name = key, .kind = KEY_NUMBER, .offset = LOAD(member), .max = highest \
	}
#define LOAD_TIME(key, member)                                                \
	{                                                                     \
		.name = key, .kind = KEY_SECONDS, .offset = LOAD(load.member) \
	}
/* clang-format off */
static const struct key load_keys[] = {
	{ .name = "kind", .kind = KEY_CHOICE, .offset = LOAD(kind), .words = kind_words },
	{ .name = "unit", .kind = KEY_CHOICE, .offset = LOAD(unit), .words = unit_words },
	LOAD_LEVEL("level", level, 1e5),
	LOAD_LEVEL("low", load.low, 1e5),
	LOAD_LEVEL("high", load.high, 1e5),
	LOAD_LEVEL("duty", duty, 1),
	LOAD_LEVEL("offset", offset_s, 1e9),
	LOAD_TIME("from", from_ns),
	LOAD_TIME("until", until_ns),
	LOAD_TIME("period", period_ns),
	LOAD_TIME("length", ramp_ns),
	{ .name = "points", .kind = KEY_READ, .read = read_points },
	{ .name = "on", .kind = KEY_READ, .read = read_bursts },
	{ .name = "file", .kind = KEY_READ, .read = read_file },
};
/* clang-format on */

static int finish_load(struct rows *r, const struct toml_node *table,
		       const struct load_words *words, struct load *l)
{
	static const enum load_kind kinds[] = { LOAD_CONSTANT, LOAD_STEPS,  LOAD_SQUARE,
						LOAD_RAMP,     LOAD_BURSTS, LOAD_STEPS };

	l->kind = kinds[words->kind];
	l->watts = words->unit == 1 || words->kind == 5;
	if (l->kind == LOAD_CONSTANT)
		l->high = words->level;
	l->on_ns = (uint64_t)((double)l->period_ns * words->duty);
	if (l->kind == LOAD_SQUARE && l->period_ns == 0)
		return rows_fail(r, table, "a square load wants a 'period'");
	if (l->period_ns != 0 && l->period_ns < 1000000)
		return rows_fail(r, table, "a 'period' is at least 0.001 s");
	if (l->kind == LOAD_RAMP && l->ramp_ns == 0)
		return rows_fail(r, table, "a ramp wants a 'length'");
	if ((l->kind == LOAD_STEPS || l->kind == LOAD_BURSTS) && l->n_points == 0)
		return rows_fail(r, table, "'%s' wants 'points', 'on' or a 'file'",
				 kind_words[words->kind]);
	return 0;
}

static int read_load(struct rows *r, const struct toml_node *table)
{
	struct device *d = building(r)->d;
	struct load_words words = { .level = 1, .load.high = 1, .duty = 0.5 };
	struct load *l = build_grow(&d->loads, &d->n_loads, sizeof(*l));
	const struct toml_node *offset;
	int code;

	if (l == NULL)
		return build_no_memory(r, table);
	if (toml_get(table, "kind") == NULL)
		return rows_fail(r, table, "a load wants a 'kind'");
	/* It shifts a file, whichever of the two stands first. */
	offset = toml_get(table, "offset");
	if (offset != NULL && !rows_number(offset, &words.offset_s))
		return rows_want(r, offset, "a number");
	code = rows_table(r, table, load_keys, N_ROWS(load_keys), &words);
	*l = words.load; /* also on failure: its points belong to the device now */
	return code != 0 ? code : finish_load(r, table, &words, l);
}

int build_loads(struct rows *r, const struct toml_node *node, void *target)
{
	(void)target;
	return build_each(r, node, read_load);
}
