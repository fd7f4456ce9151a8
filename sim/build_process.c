/* [[gpu.process]] and [[gpu.mig]] */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "build.h"

static int read_pid(struct rows *r, const struct toml_node *node, void *target)
{
	struct process *p = target;

	if (node->type == TOML_INTEGER && node->v.integer > 0 && node->v.integer < UINT32_MAX)
		p->pid = (uint32_t)node->v.integer;
	else if (node->type == TOML_STRING && strcmp(node->v.string.text, "self") == 0)
		p->pid = (uint32_t)getpid();
	else if (node->type == TOML_STRING && strcmp(node->v.string.text, "parent") == 0)
		p->pid = (uint32_t)getppid();
	else
		return rows_want(r, node, "a number, \"self\" or \"parent\"");
	return 0;
}

static int read_type(struct rows *r, const struct toml_node *node, void *target)
{
	static const char *const words[] = { "compute", "graphics", "both",
					     "mps",     "unlisted", NULL };
	static const unsigned lists[] = { LIST_COMPUTE, LIST_GRAPHICS,
					  LIST_COMPUTE | LIST_GRAPHICS, LIST_MPS, 0 };
	struct process *p = target;

	for (unsigned i = 0; node->type == TOML_STRING && words[i] != NULL; i++) {
		if (strcmp(words[i], node->v.string.text) == 0) {
			p->lists = lists[i];
			return 0;
		}
	}
	return rows_fail(
		r, node,
		"'type' is \"compute\", \"graphics\", \"both\", \"mps\" or \"unlisted\"");
}

#define PROCESS(member) offsetof(struct process, member)
/* clang-format off */
static const struct key process_keys[] = {
	{ .name = "pid", .kind = KEY_READ, .read = read_pid },
	{ .name = "name", .kind = KEY_TEXT, .offset = PROCESS(name), .max = 64 },
	{ .name = "type", .kind = KEY_READ, .read = read_type },
	{ .name = "from", .kind = KEY_SECONDS, .offset = PROCESS(from_ns) },
	{ .name = "until", .kind = KEY_SECONDS, .offset = PROCESS(until_ns) },
	{ .name = "memory", .kind = KEY_BYTES, .offset = PROCESS(bytes) },
	{ .name = "growth", .kind = KEY_SKIP },
	{ .name = "max_memory", .kind = KEY_BYTES, .offset = PROCESS(max_bytes) },
	{ .name = "share", .kind = KEY_NUMBER, .offset = PROCESS(share), .max = 1 },
	{ .name = "encoder", .kind = KEY_NUMBER, .offset = PROCESS(encoder), .max = 1 },
	{ .name = "decoder", .kind = KEY_NUMBER, .offset = PROCESS(decoder), .max = 1 },
	{ .name = "sm_percent", .kind = KEY_UINT, .offset = PROCESS(sm_percent), .max = 1e9 },
	{ .name = "hidden", .kind = KEY_BOOL, .offset = PROCESS(hidden) },
	{ .name = "no_memory", .kind = KEY_BOOL, .offset = PROCESS(no_memory) },
	{ .name = "copies", .kind = KEY_UINT, .offset = PROCESS(copies), .min = 1, .max = 100 },
	{ .name = "count", .kind = KEY_SKIP },
	{ .name = "gpu_instance", .kind = KEY_UINT, .offset = PROCESS(gpu_instance),
	  .max = 64 },
	{ .name = "compute_instance", .kind = KEY_UINT, .offset = PROCESS(compute_instance),
	  .max = 64 },
};
/* clang-format on */

/* Two keys that are no member as they stand. */
struct process_more {
	uint64_t growth;
	unsigned count;
};
/* clang-format off */
static const struct key process_more_keys[] = {
	{ .name = "growth", .kind = KEY_BYTES,
	  .offset = offsetof(struct process_more, growth) },
	{ .name = "count", .kind = KEY_UINT, .offset = offsetof(struct process_more, count),
	  .min = 1, .max = 2000 },
};
/* clang-format on */

static int read_process(struct rows *r, const struct toml_node *table)
{
	struct build *b = building(r);
	struct process_more more = { .count = 1 };

	if (rows_some(r, table, process_more_keys, N_ROWS(process_more_keys), &more) != 0)
		return -1;
	for (unsigned i = 0; i < more.count; i++) {
		struct process *p =
			build_grow(&b->d->processes, &b->d->n_processes, sizeof(*p));

		if (p == NULL)
			return build_no_memory(r, table);
		*p = (struct process){ .pid = b->next_pid++,
				       .name = "simulated",
				       .lists = LIST_COMPUTE,
				       .bytes = UINT64_C(512) << 20,
				       .copies = 1,
				       .bytes_per_s = (double)more.growth,
				       .gpu_instance = UINT32_MAX,
				       .compute_instance = UINT32_MAX };
		p->share = -1;
		if (rows_table(r, table, process_keys, N_ROWS(process_keys), p) != 0)
			return -1;
	}
	return 0;
}

int build_processes(struct rows *r, const struct toml_node *node, void *target)
{
	(void)target;
	return build_each(r, node, read_process);
}

#define MIG(member) offsetof(struct mig, member)
/* clang-format off */
static const struct key mig_keys[] = {
	{ .name = "index", .kind = KEY_UINT, .offset = MIG(index), .max = WORLD_MIGS_MAX - 1 },
	{ .name = "gpu_instance", .kind = KEY_UINT, .offset = MIG(gpu_instance), .max = 64 },
	{ .name = "compute_instance", .kind = KEY_UINT, .offset = MIG(compute_instance),
	  .max = 64 },
	{ .name = "slices", .kind = KEY_UINT, .offset = MIG(slices), .min = 1, .max = 8 },
	{ .name = "memory", .kind = KEY_BYTES, .offset = MIG(bytes) },
	{ .name = "uuid", .kind = KEY_TEXT, .offset = MIG(uuid), .max = 64 },
	{ .name = "profile", .kind = KEY_TEXT, .offset = MIG(profile), .max = 16 },
};
/* clang-format on */

static int read_mig(struct rows *r, const struct toml_node *table)
{
	struct device *d = building(r)->d;
	struct mig *m;

	if (d->n_migs == WORLD_MIGS_MAX)
		return rows_fail(r, table, "a GPU has at most %d instances", WORLD_MIGS_MAX);
	m = &d->migs[d->n_migs];
	*m = (struct mig){ .gpu_instance = d->n_migs + 1,
			   .index = d->n_migs,
			   .slices = 1,
			   .bytes = d->p.memory_mib / 8 << 20 };
	snprintf(m->uuid, sizeof(m->uuid), "MIG-%08x-51d0-5000-8000-%012x",
		 0x51000000u + d->index * 0x01010101u, d->n_migs + 1);
	if (rows_table(r, table, mig_keys, N_ROWS(mig_keys), m) != 0)
		return -1;
	if (m->profile[0] == 0)
		snprintf(m->profile, sizeof(m->profile), "%ug.%ugb", m->slices & 15,
			 (unsigned)(m->bytes >> 30) & 0xffff);
	d->mig_enabled = true;
	d->n_migs++;
	return 0;
}

int build_migs(struct rows *r, const struct toml_node *node, void *target)
{
	(void)target;
	return build_each(r, node, read_mig);
}
