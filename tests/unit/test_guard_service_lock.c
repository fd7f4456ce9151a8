/* Tests on which GPUs a service acts, in simulated time, with lock files in a folder of the
 * test. */
#include "daemon/guard_service_parts.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEST_SETUP    setup
#define TEST_TEARDOWN teardown
#include "test.h"

static struct {
	char foreign[2][64]; /* the last holder reported to the guard, for GPU-0 and GPU-1 */
	unsigned foreign_reports, logged;
	char text[700]; /* last log line */
} seen;

#include "guard_log.h"

static char folder[64];
static struct guard_service g;
static struct guard_settings settings;
static struct clock_stepped stepped;
static struct scene scene;

void guard_service_foreign(struct guard_service *x, const char *uuid, const char *holder)
{
	assert_ptr_equal(x, &g);
	snprintf(seen.foreign[uuid[4] - '0'], sizeof(seen.foreign[0]), "%s",
		 holder ? holder : "");
	seen.foreign_reports++;
}

static int setup(void **state)
{
	memset(&seen, 0, sizeof(seen));
	memset(&g, 0, sizeof(g));
	memset(&scene, 0, sizeof(scene));
	snprintf(folder, sizeof(folder), "/tmp/gpuward-lock-XXXXXX");
	assert_non_null(mkdtemp(folder));
	clock_stepped_init(&stepped, 100 * NS_PER_S, 100 * NS_PER_S);
	settings.policy.mode = GUARD_ENFORCE;
	g.settings = &settings;
	g.config.clock = &stepped.clock;
	scene.gpus = 2;
	for (unsigned i = 0; i < scene.gpus; i++)
		snprintf(scene.gpu[i].uuid, sizeof(scene.gpu[i].uuid), "GPU-%u", i);
	return setenv("RUNTIME_DIRECTORY", folder, 1);
}

static int teardown(void **state)
{
	char command[128];

	guard_service_lock_close(&g);
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command);
}

static void look_after(uint64_t ns)
{
	clock_step(&stepped, ns);
	guard_service_lock_look(&g, &scene);
}

static const char *path_of(const char *uuid)
{
	static char path[160];

	snprintf(path, sizeof(path), "%s/gpuward-guard-%s.lock", folder, uuid);
	return path;
}

/* Locks GPU-0 as process 4711 would. Closing the descriptor releases the lock. */
static int lock_as_another_guard(void)
{
	int fd = open(path_of("GPU-0"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
	assert_int_equal(dprintf(fd, "4711\n"), 5);
	return fd;
}

TEST(a_lock_that_is_held_is_kept)
{
	int fd;

	look_after(0);
	fd = g.lock.of[0].fd;
	assert_true(fd >= 0 && g.lock.of[1].fd >= 0);
	for (unsigned i = 0; i < 20; i++)
		look_after(NS_PER_S);
	assert_int_equal(g.lock.of[0].fd, fd);
	assert_int_equal(seen.logged + seen.foreign_reports, 0);
}

TEST(another_guard_is_logged_once_and_its_lock_tried_again_every_five_seconds)
{
	int other = lock_as_another_guard();

	look_after(0);
	assert_string_equal(seen.foreign[0], "another gpuward (process 4711)");
	assert_in(seen.text, "guards GPU-0 (");
	assert_in(seen.text, "gpuward-guard-GPU-0.lock: locked): this gpuward only observes");
	assert_true(g.lock.of[1].fd >= 0);
	look_after(5 * NS_PER_S);
	assert_int_equal(seen.logged, 1);
	close(other);
	for (unsigned i = 0; i < 49; i++)
		look_after(100 * NS_PER_MS);
	assert_int_equal(seen.foreign_reports, 1);
	look_after(100 * NS_PER_MS);
	assert_int_equal(seen.foreign_reports, 2);
	assert_string_equal(seen.foreign[0], "");
	assert_string_equal(
		seen.text,
		"no other gpuward guards GPU-0 any more; this gpuward guards it now");
}

static void remove_locks(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", folder);
	assert_int_equal(system(command), 0);
}

TEST(a_lock_whose_file_was_removed_is_taken_again_at_the_next_scene)
{
	int other;

	look_after(0);
	remove_locks();
	look_after(100 * NS_PER_MS);
	other = open(path_of("GPU-0"), O_RDWR | O_CLOEXEC);
	assert_true(other >= 0);
	assert_int_not_equal(flock(other, LOCK_EX | LOCK_NB), 0);
	close(other);
	assert_int_equal(seen.logged + seen.foreign_reports, 0);
}

TEST(if_another_guard_locks_the_new_file_first_this_one_only_observes)
{
	int other;

	look_after(0);
	assert_int_equal(unlink(path_of("GPU-0")), 0);
	other = lock_as_another_guard();
	look_after(100 * NS_PER_MS);
	assert_string_equal(seen.foreign[0], "another gpuward (process 4711)");
	assert_int_equal(g.lock.of[0].fd, -1);
	close(other);
}

TEST(if_no_lock_can_be_created_it_guards_and_logs_that_once)
{
	struct rlimit old, none;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	none = (struct rlimit){ 0, old.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	for (unsigned i = 0; i < 4; i++)
		look_after(5 * NS_PER_S);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(g.lock.of[0].fd, -1);
	assert_int_equal(seen.logged, 1);
	assert_int_equal(seen.foreign_reports, 0);
	assert_in(seen.text, "cannot create a lock");
}

TEST(a_service_that_only_observes_releases_its_locks)
{
	look_after(0);
	assert_true(g.lock.of[0].fd >= 0);
	settings.policy.mode = GUARD_OBSERVE;
	look_after(NS_PER_S);
	assert_int_equal(g.lock.of[0].fd, -1);
	close(lock_as_another_guard());
	settings.policy.mode = GUARD_ENFORCE;
	look_after(5 * NS_PER_S);
	assert_true(g.lock.of[0].fd >= 0);
	guard_service_lock_close(&g);
	assert_int_equal(g.lock.of[0].fd, -1);
}

TEST(simulated_gpus_are_locked_only_where_a_folder_was_given)
{
	scene.gpu[0].simulated = scene.gpu[1].simulated = true;
	unsetenv("RUNTIME_DIRECTORY");
	look_after(0);
	assert_int_equal(g.lock.count, 0);
	setenv("RUNTIME_DIRECTORY", folder, 1);
	look_after(0);
	assert_true(g.lock.of[0].fd >= 0);
}

TEST(a_symbolic_link_in_place_of_the_lock_file_is_not_followed)
{
	char target[160];

	snprintf(target, sizeof(target), "%s/victim", folder);
	assert_int_equal(symlink(target, path_of("GPU-0")), 0);
	look_after(0);
	assert_int_not_equal(access(target, F_OK), 0);
}

TEST(a_uuid_does_not_lead_out_of_the_folder)
{
	snprintf(scene.gpu[0].uuid, sizeof(scene.gpu[0].uuid), "../../x");
	look_after(0);
	assert_int_equal(access(path_of(".._.._x"), F_OK), 0);
}

TEST_MAIN(NULL, NULL)
