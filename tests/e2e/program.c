/* A program that uses the library: it includes only gpuward.h, and is valid C11 and valid
 * C++. */
#include <gpuward.h>

#include <stdio.h>
#include <string.h>

static void print_devices(const struct gw_snapshot *snap)
{
	for (unsigned i = 0; i < gw_snapshot_device_count(snap); i++) {
		const struct gw_device *d = gw_snapshot_device(snap, i);
		const char *name = gw_device_text(d, GW_T_NAME);
		double watts = -1;

		if (gw_device_value(d, GW_Q_POWER, &watts) != GW_HAVE)
			watts = -1;
		printf("%u %s %s %s %d\n", d->index, name ? name : "-",
		       gw_provenance_name(d->provenance), gw_device_state_name(d->state),
		       watts > 0);
	}
}

static int show(struct gw_ctx *ctx)
{
	struct gw_snapshot *snap = NULL;
	struct gw_process_list *list = NULL;
	struct gw_environment *env = NULL;
	struct gw_diagnosis *diagnosis = NULL;
	int bad = gw_snapshot_new(ctx, &snap) || gw_snapshot_take(snap, GW_TIERS_COMMON) ||
		  gw_process_list_new(ctx, &list) || gw_process_list_take(list) ||
		  gw_environment_new(ctx, &env) || gw_diagnosis_new(snap, &diagnosis);

	if (!bad) {
		print_devices(snap);
		printf("backend %s simulated %d\n", gw_snapshot_status(snap)->backend,
		       gw_snapshot_status(snap)->simulated);
		printf("processes %d\n", gw_process_list_count(list) > 0);
		printf("facts %d\n", gw_environment_count(env) > 10);
	}
	gw_diagnosis_free(diagnosis);
	gw_environment_free(env);
	gw_process_list_free(list);
	gw_snapshot_free(snap);
	return bad ? 1 : 0;
}

int main(int argc, char **argv)
{
	struct gw_options o;
	struct gw_ctx *ctx = NULL;
	int code;

	memset(&o, 0, sizeof(o));
	o.size = sizeof(o);
	o.backend = "nvml";
	o.nvml_library = argc > 1 ? argv[1] : NULL;
	if (gw_open(&o, &ctx) != 0)
		return 1;
	code = show(ctx);
	gw_close(ctx);
	return code;
}
