/* Tests on which GPUs a service acts, in simulated time. The test decides which locks succeed. */
#include "daemon/guard_service_parts.h"

#include "daemon/guard_lock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test.h"

static struct {
	int err;     /* result of the next attempts */
	int64_t pid; /* holder of the lock */
	unsigned tries;
	char foreign[2][64]; /* the last holder reported to the guard, for GPU-0 and GPU-1 */
	unsigned foreign_reports, logged;
	char text[700]; /* last log line */
} seen;

static struct guard_service g;
static struct guard_settings settings;
static struct clock_stepped stepped;
static struct scene scene;

int guard_lock_take(const char *uuid, int *ret_fd, int64_t *ret_pid, char *message, size_t size)
{
	seen.tries++;
	snprintf(message, size, "lock of %s", uuid);
	*ret_pid = seen.pid;
	if (!seen.err)
		*ret_fd = dup(STDERR_FILENO);
	return seen.err;
}

void guard_service_foreign(struct guard_service *x, const char *uuid, const char *holder)
{
	assert_ptr_equal(x, &g);
	snprintf(seen.foreign[uuid[4] - '0'], sizeof(seen.foreign[0]), "%s",
		 holder ? holder : "");
	seen.foreign_reports++;
}

uint64_t guard_service_log(struct guard_service *x, const char *severity, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(seen.text, sizeof(seen.text), fmt, ap);
	va_end(ap);
	return ++seen.logged;
}

static void begin(unsigned gpus)
{
	memset(&seen, 0, sizeof(seen));
	memset(&g, 0, sizeof(g));
	memset(&scene, 0, sizeof(scene));
	unsetenv("RUNTIME_DIRECTORY");
	clock_stepped_init(&stepped, 100 * NS_PER_S, 100 * NS_PER_S);
	settings.policy.mode = GUARD_ENFORCE;
	g.settings = &settings;
	g.config.clock = &stepped.clock;
	scene.gpus = gpus;
	for (unsigned i = 0; i < gpus; i++)
		snprintf(scene.gpu[i].uuid, sizeof(scene.gpu[i].uuid), "GPU-%u", i);
}

static void look_after(uint64_t ns)
{
	clock_step(&stepped, ns);
	guard_service_lock_look(&g, &scene);
}

TEST(a_lock_that_is_held_is_not_requested_again)
{
	begin(2);
	for (unsigned i = 0; i < 20; i++)
		look_after(NS_PER_S);
	assert_int_equal(seen.tries, 2); /* one per GPU */
	assert_int_equal(seen.logged + seen.foreign_reports, 0);
	guard_service_lock_close(&g);
}

TEST(another_guard_is_logged_once_and_its_lock_tried_again_every_five_seconds)
{
	begin(1);
	seen.err = -GW_E_STATE;
	seen.pid = 4711;
	look_after(0);
	assert_string_equal(seen.foreign[0], "another gpuward (process 4711)");
	assert_in(seen.text, "guards GPU-0 (lock of GPU-0): this one only observes");
	for (unsigned i = 0; i < 49; i++)
		look_after(100 * NS_PER_MS);
	assert_int_equal(seen.tries, 1);
	look_after(100 * NS_PER_MS);
	assert_int_equal(seen.tries, 2);
	assert_int_equal(seen.logged, 1);
	seen.err = 0;
	look_after(4 * NS_PER_S);
	assert_int_equal(seen.foreign_reports, 1);
	look_after(NS_PER_S);
	assert_int_equal(seen.foreign_reports, 2);
	assert_string_equal(seen.foreign[0], "");
	assert_string_equal(seen.text,
			    "no other gpuward guards GPU-0 any more; this one takes over");
	guard_service_lock_close(&g);
}

TEST(if_no_lock_can_be_created_it_guards_and_logs_that_once)
{
	begin(2);
	seen.err = -GW_E_PERM;
	for (unsigned i = 0; i < 4; i++)
		look_after(5 * NS_PER_S);
	assert_int_equal(seen.tries, 8);
	assert_int_equal(seen.logged, 1);
	assert_int_equal(seen.foreign_reports, 0);
	assert_in(seen.text, "cannot create a lock");
}

TEST(a_service_that_only_observes_releases_its_locks)
{
	begin(1);
	look_after(0);
	assert_true(g.lock.of[0].fd >= 0);
	settings.policy.mode = GUARD_OBSERVE;
	look_after(NS_PER_S);
	assert_int_equal(g.lock.of[0].fd, -1);
	settings.policy.mode = GUARD_ENFORCE;
	look_after(5 * NS_PER_S);
	assert_true(g.lock.of[0].fd >= 0);
	guard_service_lock_close(&g);
	assert_int_equal(g.lock.of[0].fd, -1);
}

TEST(simulated_gpus_are_locked_only_where_a_folder_was_given)
{
	begin(1);
	scene.gpu[0].simulated = true;
	look_after(0);
	assert_int_equal(seen.tries, 0);
	setenv("RUNTIME_DIRECTORY", "/tmp", 1);
	look_after(0);
	assert_int_equal(seen.tries, 1);
	unsetenv("RUNTIME_DIRECTORY");
	guard_service_lock_close(&g);
}

TEST_MAIN(NULL, NULL)
