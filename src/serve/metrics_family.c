#include "metrics_family.h"

#include "base/array.h"
#include "base/suggest.h"

#include <stdio.h>
#include <string.h>

static const char *const family_groups[METRIC_GROUPS] = {
#define G(symbol, word, help) word,
#include "metric.def"
#undef G
};

static const struct metric family_rows[METRICS] = {
#define M(symbol, group, when, name, type, labels, help) \
	{ name, help, labels, METRIC_##type, METRIC_GROUP_##group, METRIC_##when },
#include "metric.def"
#undef M
};

#define TYPE_GAUGE   METRIC_GAUGE
#define TYPE_COUNTER METRIC_COUNTER
#define TYPE_FLAG    METRIC_GAUGE
#define TYPE_ENUM    METRIC_GAUGE
#define TYPE_MASK    METRIC_GAUGE

static const struct {
	const char *name, *help;
	enum metric_type type;
} family_quantities[GW_QUANTITIES] = {
#define Q(symbol, key, kind, tier, help) { "gpuward_gpu_" key, help, TYPE_##kind },
#include <gpuward/quantity.def>
#undef Q
};

static const struct {
	enum metric_group group;
	enum metric_when when;
} family_places[GW_QUANTITIES] = {
#define Q(symbol, group, when) [GW_Q_##symbol] = { METRIC_GROUP_##group, METRIC_##when },
#include "metric.def"
#undef Q
};

/* The number of Q rows. The assertion below fails if a quantity has no row; without it, the
 * quantity would silently get the first group. */
enum {
	FAMILY_PLACES = 0
#define Q(symbol, group, when) +1
#include "metric.def"
#undef Q
};
_Static_assert((int)FAMILY_PLACES == (int)GW_QUANTITIES,
	       "metric.def has one Q row per row of quantity.def");

static const struct metric family_hosts[GW_HOST_QUANTITIES] = {
#define H(symbol, key, kind, help) \
	{ "gpuward_host_" key, help, "", TYPE_##kind, METRIC_GROUP_HOST, METRIC_ALWAYS },
#include <gpuward/host.def>
#undef H
};

static const struct metric family_dcgm[METRIC_DCGM_ROWS] = {
#define DCGM(name, type, source, factor, help)                                             \
	{ name,                                                                            \
	  help,                                                                            \
	  "gpu,UUID,pci_bus_id,device,modelName,Hostname,hostname,DCGM_FI_DRIVER_VERSION", \
	  METRIC_##type,                                                                   \
	  METRIC_GROUP_DCGM,                                                               \
	  METRIC_DCGM },
#include "dcgm.def"
#undef DCGM
};

static const struct {
	unsigned quantity;
	const char *name;
	enum metric_how how;
} family_exceptions[] = {
#define N(symbol, name, how) { GW_Q_##symbol, name, how },
#include "metric.def"
#undef N
};

struct metric metrics_quantity(unsigned q, enum metric_how *ret_how)
{
	enum gw_kind kind = gw_quantity_info(q)->kind;
	struct metric m = {
		family_quantities[q].name, family_quantities[q].help, "uuid,gpu",
		family_quantities[q].type, family_places[q].group,    family_places[q].when
	};

	*ret_how = kind == GW_KIND_ENUM || kind == GW_KIND_MASK ? WORDS : NUMBER;
	for (size_t i = 0; i < COUNT(family_exceptions); i++) {
		if (family_exceptions[i].quantity != q)
			continue;
		m.name = family_exceptions[i].name;
		*ret_how = family_exceptions[i].how;
	}
	if (*ret_how == WORDS)
		m.labels = kind == GW_KIND_MASK ? "uuid,gpu,reason" : "uuid,gpu,state";
	return m;
}

bool metrics_table(unsigned i, struct metric *ret)
{
	enum metric_how how;

	if (i < METRICS)
		*ret = family_rows[i];
	else if (i < METRIC_OF_HOST(0))
		*ret = metrics_quantity(i - METRICS, &how);
	else if (i < METRIC_OF_DCGM(0))
		*ret = family_hosts[i - METRIC_OF_HOST(0)];
	else if (i < METRIC_FAMILIES)
		*ret = family_dcgm[i - METRIC_OF_DCGM(0)];
	else
		return false;
	return true;
}

const char *metric_suffix(enum metric_type type)
{
	return type == METRIC_COUNTER ? "_total" : type == METRIC_INFO ? "_info" : "";
}

const char *metric_group_word(enum metric_group group)
{
	return family_groups[group];
}

/* How metrics.include or metrics.exclude names a family. If both lists name a family, the list
 * with the greater value has priority. */
enum family_naming { NAMED_NOT, NAMED_BY_PATTERN, NAMED_BY_GROUP, NAMED_BY_NAME };

/* True if the pattern matches the whole text. `*` stands for any number of characters. */
static bool family_matches(const char *pattern, const char *text)
{
	const char *star = NULL, *again = NULL;

	while (*text) {
		if (*pattern == '*') {
			star = ++pattern;
			again = text;
		} else if (*pattern == *text) {
			pattern++;
			text++;
		} else if (star) {
			pattern = star;
			text = ++again;
		} else {
			return false;
		}
	}
	while (*pattern == '*')
		pattern++;
	return *pattern == '\0';
}

static void family_page_name(const struct metric *m, char out[static METRIC_NAME_SIZE])
{
	snprintf(out, METRIC_NAME_SIZE, "%s%s", m->name, metric_suffix(m->type));
}

static enum family_naming family_named(const char *word, const char *name,
				       enum metric_group group)
{
	if (strcmp(word, name) == 0)
		return NAMED_BY_NAME;
	if (strcmp(word, metric_group_word(group)) == 0)
		return NAMED_BY_GROUP;
	if (!strchr(word, '*') || (group == METRIC_GROUP_DCGM && strncmp(word, "DCGM", 4) != 0))
		return NAMED_NOT;
	return family_matches(word, name) ? NAMED_BY_PATTERN : NAMED_NOT;
}

static enum family_naming family_best(const char *const *words, const char *name,
				      enum metric_group group)
{
	enum family_naming best = NAMED_NOT;

	for (; *words; words++) {
		enum family_naming how = family_named(*words, name, group);

		best = how > best ? how : best;
	}
	return best;
}

static enum metric_wish family_wish(const char *const *include, const char *const *exclude,
				    const char *name, enum metric_group group)
{
	enum family_naming in = family_best(include, name, group);
	enum family_naming out = family_best(exclude, name, group);

	return in > out ? METRIC_INCLUDED : out ? METRIC_EXCLUDED : METRIC_UNNAMED;
}

void metrics_choose(struct metrics_choice *ret, const char *const *include,
		    const char *const *exclude, bool dcgm)
{
	char name[METRIC_NAME_SIZE];
	struct metric m;

	*ret = (struct metrics_choice){ .dcgm = dcgm };
	for (unsigned i = 0; metrics_table(i, &m); i++) {
		if (!m.name)
			continue;
		family_page_name(&m, name);
		ret->family[i] = (uint8_t)family_wish(include, exclude, name, m.group);
	}
	/* The group "states" has no family, so no name of a family includes it. Only the word
	 * "states" or the pattern "*" does. */
	ret->zeros = family_wish(include, exclude, "", METRIC_GROUP_STATES) == METRIC_INCLUDED;
}

bool metrics_chosen(const struct metrics_choice *c, unsigned family, bool workers)
{
	struct metric m;

	if (!metrics_table(family, &m))
		return false;
	if (c->family[family] != METRIC_UNNAMED)
		return c->family[family] == METRIC_INCLUDED;
	return m.when == METRIC_ALWAYS || (m.when == METRIC_WORKERS && workers) ||
	       (m.when == METRIC_DCGM && c->dcgm);
}

bool metrics_need_profile(const struct metrics_choice *c)
{
	static const unsigned sources[METRIC_DCGM_ROWS] = {
#define DCGM(name, type, source, factor, help) source,
#include "dcgm.def"
#undef DCGM
	};

	for (unsigned q = 0; q < GW_QUANTITIES; q++) {
		if (gw_quantity_info(q)->tier != GW_TIER_PROFILE)
			continue;
		if (metrics_chosen(c, METRIC_OF_QUANTITY(q), true))
			return true;
		for (unsigned i = 0; i < METRIC_DCGM_ROWS; i++)
			if (sources[i] == q && metrics_chosen(c, METRIC_OF_DCGM(i), true))
				return true;
	}
	return false;
}

bool metrics_word_known(const char *word, char ret_near[static METRIC_NAME_SIZE])
{
	char names[METRIC_FAMILIES][METRIC_NAME_SIZE];
	const char *candidates[METRIC_GROUPS + METRIC_FAMILIES] = { 0 }, *closest;
	struct metric m;

	ret_near[0] = '\0';
	for (unsigned g = 0; g < METRIC_GROUPS; g++) {
		candidates[g] = metric_group_word(g);
		if (strcmp(word, candidates[g]) == 0)
			return true;
	}
	for (unsigned i = 0; metrics_table(i, &m); i++) {
		if (!m.name)
			continue;
		family_page_name(&m, names[i]);
		if (family_named(word, names[i], m.group) != NAMED_NOT)
			return true;
		candidates[METRIC_GROUPS + i] = names[i];
	}
	closest = suggest(word, candidates, COUNT(candidates), sizeof(candidates[0]));
	if (closest)
		snprintf(ret_near, METRIC_NAME_SIZE, "%s", closest);
	return false;
}
