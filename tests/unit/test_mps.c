#include "guard/classify.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

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

static void workers_without_the_service_are_not_served(void **state)
{
	(void)state;
	assert_false(classify_mps_serves_worker(&scene, verdict));
	process(0, "python", GW_PROCESS_COMPUTE, CLASS_WORKER);
	process(0, "other", GW_PROCESS_COMPUTE | GW_PROCESS_MPS, CLASS_CONTENDER);
	assert_false(classify_mps_serves_worker(&scene, verdict));
}

static void a_worker_that_is_listed_as_a_client_is_served(void **state)
{
	(void)state;
	process(0, "python", GW_PROCESS_COMPUTE | GW_PROCESS_MPS, CLASS_WORKER);
	assert_true(classify_mps_serves_worker(&scene, verdict));
}

static void the_service_counts_on_the_workers_gpu_alone(void **state)
{
	(void)state;
	process(1, "nvidia-cuda-mps-server", GW_PROCESS_COMPUTE, CLASS_SYSTEM);
	process(0, "python", GW_PROCESS_COMPUTE, CLASS_WORKER);
	assert_false(classify_mps_serves_worker(&scene, verdict));
	process(1, "python", GW_PROCESS_COMPUTE, CLASS_WORKER);
	assert_true(classify_mps_serves_worker(&scene, verdict));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(workers_without_the_service_are_not_served, begin),
		cmocka_unit_test_setup(a_worker_that_is_listed_as_a_client_is_served, begin),
		cmocka_unit_test_setup(the_service_counts_on_the_workers_gpu_alone, begin),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
