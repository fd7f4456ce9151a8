#include "workload.h"

#include "base/cgroup_unit.h"

#include <stdio.h>
#include <string.h>

static const char *const kind_word[] = {
#define WORKLOAD(symbol, word, text) word,
#include "workload.def"
#undef WORKLOAD
};

const char *workload_kind_word(enum workload_kind kind)
{
	return kind_word[kind];
}

bool workload_equal(const struct workload *a, const struct workload *b)
{
	return a->kind == b->kind && strcmp(a->id, b->id) == 0;
}

void workload_from_cgroup(const char *cgroup, long uid, struct workload *ret)
{
	struct cgroup_unit u;

	memset(ret, 0, sizeof(*ret));
	(void)uid;
	if (!cgroup || !cgroup_unit_find(cgroup, &u) ||
	    !cgroup_unit_service(&u, ret->id, sizeof(ret->id)))
		return;
	ret->kind = WORKLOAD_UNIT;
	snprintf(ret->name, sizeof(ret->name), "%s", ret->id);
}
