/* Prints the workload of each process on a GPU, one per line, for tests/workloads/run:
 *     workload_list NVML-LIBRARY [JOB-MAPPING-DIRECTORY]
 * A line is: pid, kind, id, namespace, name and part, separated by tabs. Waits at most 5 s for
 * the answers of container engines. */
#include "base/clock.h"
#include "base/loop.h"
#include "daemon/workload_names.h"

#include <gpuward.h>

#include <stdio.h>

static void write_log(void *arg, const char *sentence)
{
	(void)arg;
	fprintf(stderr, "%s\n", sentence);
}

/* Returns the number of workloads that have no name yet. */
static unsigned list(struct workload_names *n, const struct gw_process_list *l, FILE *out)
{
	unsigned unnamed = 0;

	for (unsigned i = 0; i < gw_process_list_count(l); i++) {
		const struct gw_process *p = gw_process_list_get(l, i);
		struct workload w;

		workload_names_resolve(n, p, &w);
		unnamed += !workload_is_named(&w);
		if (out)
			fprintf(out, "%lld\t%s\t%s\t%s\t%s\t%s\n", (long long)p->pid,
				workload_kind_word(w.kind), w.id, w.space, w.name, w.part);
	}
	return unnamed;
}

int main(int argc, char **argv)
{
	const struct gw_options o = { .size = sizeof(o),
				      .backend = "nvml",
				      .nvml_library = argc > 1 ? argv[1] : NULL };
	const uint64_t end_ns = clock_mono_ns(clock_real()) + 5 * NS_PER_S;
	struct workload_names_config config = { .hpc_job_mapping_dir =
							argc > 2 ? argv[2] : NULL,
						.log = write_log };
	struct gw_process_list *l = NULL;
	struct workload_names *n = NULL;
	struct gw_snapshot *s = NULL;
	struct gw_ctx *ctx = NULL;

	if (loop_new(&config.loop) != 0 || workload_names_new(&config, &n) != 0 ||
	    gw_open(&o, &ctx) != 0 || gw_snapshot_new(ctx, &s) != 0 ||
	    gw_snapshot_take(s, GW_TIER_STATIC) != 0 || gw_process_list_new(ctx, &l) != 0 ||
	    gw_process_list_take(l) != 0) {
		fprintf(stderr, "workload_list: the GPUs cannot be read\n");
		return 1;
	}
	while (list(n, l, NULL) > 0 && clock_mono_ns(clock_real()) < end_ns)
		loop_once(config.loop, NS_PER_S / 5);
	list(n, l, stdout);
	gw_process_list_free(l);
	gw_snapshot_free(s);
	gw_close(ctx);
	workload_names_free(n);
	loop_free(config.loop);
	return 0;
}
