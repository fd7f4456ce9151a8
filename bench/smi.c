/* smi: measures the cost of a scrape for an exporter that starts nvidia-smi for each scrape:
 * start, open NVML, read every GPU, print CSV, end.
 *
 * smi LIBRARY [peak]        peak: appends the peak resident size in KiB
 *
 * The real nvidia-smi does not run on the simulator. It loads more code, and an exporter asks it
 * for about a hundred fields instead of these seventeen: this program is the cheaper one. */
#include "bare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long peak_kib(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[256];
	long kib = 0;

	while (f && fgets(line, sizeof(line), f))
		if (strncmp(line, "VmHWM:", 6) == 0)
			kib = atol(line + 6);
	if (f)
		fclose(f);
	return kib;
}

static void print_gpu(struct bare *b, uint32_t index)
{
	char name[96] = "[N/A]", uuid[96] = "[N/A]";
	uint32_t limit = 0, generation = 0, width = 0;
	uint64_t energy = 0;

	b->nvml.call.name(b->device, name, sizeof(name));
	b->nvml.call.uuid(b->device, uuid, sizeof(uuid));
	b->nvml.call.energy(b->device, &energy);
	b->nvml.call.enforced_limit(b->device, &limit);
	b->nvml.call.pcie_generation(b->device, &generation);
	b->nvml.call.pcie_width(b->device, &width);
	bare_read(b);
	printf("%u, %s, %s, %.2f, %.2f, %llu, %llu, %llu, %u, %u, %u, %u, %u, %u, P%u, "
	       "0x%016llx, %u, %u\n",
	       index, name, uuid, b->power / 1e3, limit / 1e3, (unsigned long long)energy,
	       (unsigned long long)b->memory.total >> 20,
	       (unsigned long long)b->memory.used >> 20, b->utilization.gpu,
	       b->utilization.memory, b->temperature, b->clock[0], b->clock[1], b->clock[2],
	       b->pstate, (unsigned long long)b->reasons, generation, width);
}

int main(int argc, char **argv)
{
	struct bare b;
	uint32_t gpus = 0;

	if (bare_open(&b, argc > 1 ? argv[1] : NULL) != 0)
		return 1;
	b.nvml.call.count(&gpus);
	for (uint32_t i = 0; i < gpus; i++)
		if (b.nvml.call.by_index(i, &b.device) == ABI_SUCCESS)
			print_gpu(&b, i);
	bare_close(&b);
	if (argc > 2)
		printf("%ld\n", peak_kib());
	return 0;
}
