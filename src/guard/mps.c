#include "mps.h"

#include <string.h>

/* nvidia-cuda-mps-server and -control, as the kernel cuts their names. */
#define SERVICE "nvidia-cuda-mps"

static bool is_service(const struct scene_process *p)
{
	return strncmp(p->name, SERVICE, strlen(SERVICE)) == 0;
}

bool mps_serves_worker(const struct scene *s, const struct verdict *v)
{
	uint64_t served = 0, used = 0; /* sets of GPUs */

	for (unsigned i = 0; i < s->processes; i++) {
		const struct scene_process *p = &s->process[i];
		bool worker = v[i].class == CLASS_WORKER;

		if (worker && p->type & GW_PROCESS_MPS)
			return true;
		if (p->gpu >= SCENE_GPUS)
			continue;
		used |= (uint64_t)worker << p->gpu;
		served |= (uint64_t)is_service(p) << p->gpu;
	}
	return (used & served) != 0;
}
