/* Any content of one file of an AMD or Intel GPU: no crash, and every figure is a possible
 * number or has an absence reason. The first byte of the input selects the file. */
#include "device/backend.h"

#include "../unit/tree.h"

#include <math.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define AMD   "sys/bus/pci/devices/0000:03:00.0/"
#define INTEL "sys/bus/pci/devices/0000:04:00.0/"

static const struct tree_row files[] = {
	{ AMD "vendor", "0x1002\n" },
	{ AMD "device", "0x740f\n" },
	{ AMD "class", "0x038000\n" },
	{ AMD "driver", "-> ../../drivers/amdgpu" },
	{ AMD "mem_info_vram_total", "25753026560\n" },
	{ AMD "hwmon/hwmon1/name", "amdgpu\n" },
	{ AMD "hwmon/hwmon1/temp1_label", "edge\n" },
	{ INTEL "vendor", "0x8086\n" },
	{ INTEL "device", "0xe20b\n" },
	{ INTEL "class", "0x030000\n" },
	{ INTEL "driver", "-> ../../drivers/xe" },
	{ INTEL "hwmon/hwmon2/name", "xe\n" },
	{ INTEL "hwmon/hwmon2/energy1_label", "card\n" },
	{ INTEL "hwmon/hwmon2/energy1_input", "5000000\n" },
	{ INTEL "drm/renderD129/dev", "226:129\n" },
	{ "proc/10/fd/3", "-> /dev/dri/renderD129" },
	{ "proc/11/fd/3", "-> /dev/dri/renderD129" },
	{ "proc/11/fdinfo/3",
	  "drm-pdev:\t0000:04:00.0\ndrm-client-id:\t4\ndrm-resident-vram0:\t1024 KiB\n"
	  "drm-cycles-ccs:\t8\ndrm-total-cycles-ccs:\t99\n" },
	{ 0 },
};

/* The files that get the input as content. */
static const char *const targets[] = {
	"proc/10/fdinfo/3",
	AMD "gpu_metrics",
	AMD "pp_dpm_sclk",
	AMD "current_link_speed",
	AMD "mem_info_vram_used",
	AMD "hwmon/hwmon1/temp1_input",
	AMD "ras/umc_err_count",
	INTEL "hwmon/hwmon2/energy1_input",
	INTEL "tile0/physical_vram_size_bytes",
};

static struct {
	struct tree tree;
	struct clock_stepped clock;
	struct backend_env env;
	struct backend amd, intel;
} world;

static void remove_tree(void)
{
	tree_done(&world.tree);
}

static void start(void)
{
	tree_init(&world.tree);
	atexit(remove_tree);
	tree_fill(&world.tree, "", files);
	clock_stepped_init(&world.clock, NS_PER_S, NS_PER_S);
	world.env =
		(struct backend_env){ .clock = &world.clock.clock, .root = &world.tree.root };
	world.amd = (struct backend){ .ops = &backend_amdgpu, .env = &world.env };
	world.intel = (struct backend){ .ops = &backend_intel, .env = &world.env };
	if (world.amd.ops->open(&world.amd) < 0 || world.intel.ops->open(&world.intel) < 0 ||
	    world.amd.count != 1 || world.intel.count != 1)
		abort();
}

static void check(struct backend *b)
{
	const struct report *r = &b->slot[0]->r;
	struct usage_list l = { 0 };
	int err;

	b->ops->read(b->slot[0], GW_TIERS_ALL);
	for (unsigned q = 0; q < GW_QUANTITIES; q++)
		if (r->why[q] == GW_HAVE && !(isfinite(r->v[q]) && r->v[q] >= 0))
			abort();
	if (r->why[GW_Q_UTILIZATION_GPU] == GW_HAVE && r->v[GW_Q_UTILIZATION_GPU] > 1)
		abort();
	if (r->why[GW_Q_MEMORY_USED] == GW_HAVE && r->why[GW_Q_MEMORY_FREE] == GW_HAVE &&
	    r->v[GW_Q_MEMORY_USED] > r->v[GW_Q_MEMORY_TOTAL])
		abort();
	b->ops->processes(b->slot[0], &l, &err);
	usage_done(&l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *file;

	if (size == 0)
		return 0;
	if (!world.env.clock)
		start();
	file = targets[data[0] % (sizeof(targets) / sizeof(targets[0]))];
	tree_bytes(&world.tree, file, (const char *)data + 1, size - 1);
	clock_step(&world.clock, NS_PER_S);
	check(&world.amd);
	check(&world.intel);
	unlinkat(world.tree.root.fd, file, 0);
	return 0;
}
