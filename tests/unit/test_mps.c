#include "guard/classify.h"

#include "unit.h"

static struct scene scene;
static struct verdict verdict[4];

static void process(unsigned gpu, const char *name, unsigned type, enum guard_class class)
{
	struct scene_process *p = &scene.process[scene.processes];

	memset(p, 0, sizeof(*p));
	p->gpu = gpu;
	p->type = type;
	snprintf(p->name, sizeof(p->name), "%.15s", name);
	verdict[scene.processes++].class = class;
}

static int begin(void **state)
{
	(void)state;
	scene.processes = 0;
	return 0;
}

#define MPS_TEST(name) TEST_FIXTURE(name, begin, NULL)

MPS_TEST(workers_without_the_service_are_not_served)
{
	assert_false(classify_mps_serves_worker(&scene, verdict));
	process(0, "python", GW_PROCESS_COMPUTE, CLASS_WORKER);
	process(0, "other", GW_PROCESS_COMPUTE | GW_PROCESS_MPS, CLASS_CONTENDER);
	assert_false(classify_mps_serves_worker(&scene, verdict));
}

MPS_TEST(a_worker_that_is_listed_as_a_client_is_served)
{
	process(0, "python", GW_PROCESS_COMPUTE | GW_PROCESS_MPS, CLASS_WORKER);
	assert_true(classify_mps_serves_worker(&scene, verdict));
}

MPS_TEST(the_service_counts_on_the_workers_gpu_alone)
{
	process(1, "nvidia-cuda-mps-server", GW_PROCESS_COMPUTE, CLASS_SYSTEM);
	process(0, "python", GW_PROCESS_COMPUTE, CLASS_WORKER);
	assert_false(classify_mps_serves_worker(&scene, verdict));
	process(1, "python", GW_PROCESS_COMPUTE, CLASS_WORKER);
	assert_true(classify_mps_serves_worker(&scene, verdict));
}

UNIT_MAIN(NULL, NULL)
