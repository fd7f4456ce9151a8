/* Tests scenes from the simulator and from small /proc trees: which processes they list, which
 * worker a process belongs to, what cannot be read, and what triggers a scene. */
#define TEST_SETUP    begin
#define TEST_TEARDOWN end
#include "simtest.h"
#include "alloc_fail.h"
#include "tree.h"

#include "device/driver_call.h"
#include "guard/scene_builder.h"
#include "guard/device_node_watch.h"
#include "guard/worker_finder.h"
#include "guard/process_cache.h"

#include <arpa/inet.h>
#include <math.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#define MIB  (UINT64_C(1) << 20)
#define GIB  (UINT64_C(1) << 30)
#define TAIL "1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 "

static struct tree tree;
static struct policy policy;
static struct scene scene;
static struct verdict verdict[SCENE_PROCESSES];
static struct scene_builder *builder;

static int begin(void **state)
{
	memset(&policy, 0, sizeof(policy));
	/* the builder must overwrite all contents of the scene */
	memset(&scene, 0xA5, sizeof(scene));
	policy.unknown_contends = true;
	builder = NULL;
	tree_init(&tree);
	tree_put(&tree, "proc/self", "-> 77");
	return 0;
}

static int end(void **state)
{
	scene_builder_free(builder);
	builder = NULL;
	tree_done(&tree);
	return sim_teardown(state);
}

static void put_process(int64_t pid, int64_t parent, unsigned start, const char *exe,
			const char *cgroup)
{
	const char *name = strrchr(exe, '/') + 1;
	char folder[64], stat[256], status[256], link[256], group[256], comm[64];
	const struct tree_row rows[] = { { "stat", stat },
					 { "status", status },
					 { "comm", comm },
					 { "exe", link },
					 { "cmdline", exe },
					 { "cgroup", group },
					 { 0 } };

	snprintf(folder, sizeof(folder), "proc/%lld/", (long long)pid);
	snprintf(stat, sizeof(stat), "%lld (%s) S %lld " TAIL "%u 1 2\n", (long long)pid, name,
		 (long long)parent, start);
	snprintf(status, sizeof(status), "Name:\t%s\nTgid:\t%lld\nUid:\t1000\t1000\t0\t0\n",
		 name, (long long)pid);
	snprintf(comm, sizeof(comm), "%.15s\n", name);
	snprintf(link, sizeof(link), "-> %s", exe);
	snprintf(group, sizeof(group), "0::%s\n", cgroup);
	tree_fill(&tree, folder, rows);
}

static void put_zombie(int64_t pid, unsigned start)
{
	char path[64], stat[256];

	snprintf(path, sizeof(path), "proc/%lld/stat", (long long)pid);
	snprintf(stat, sizeof(stat), "%lld (gone) Z 1 " TAIL "%u 1 2\n", (long long)pid, start);
	tree_put(&tree, path, stat);
	snprintf(path, sizeof(path), "proc/%lld/cmdline", (long long)pid);
	tree_put(&tree, path, "");
}

static void open_builder(const char *scenario_text)
{
	sim_text(scenario_text);
	sim_open_with(tree.path, 0, 0);
	assert_int_equal(scene_builder_new(sim.ctx, &policy, &builder), 0);
}

static void take(void)
{
	assert_int_equal(scene_builder_take(builder, &scene, false), 0);
	classify(&policy, &scene, verdict);
}

static void take_after(uint64_t ns)
{
	sim_step(ns);
	take();
}

static void first_scene(const char *scenario_text)
{
	open_builder(scenario_text);
	take();
}

static void first_scene_of(const char *scenario)
{
	sim_scenario(scenario);
	sim_open_with(tree.path, 0, 0);
	assert_int_equal(scene_builder_new(sim.ctx, &policy, &builder), 0);
	take();
}

static bool unknown(double v)
{
	return isnan(v) != 0;
}

static const struct scene_process *process(int64_t pid)
{
	for (unsigned i = 0; i < scene.processes; i++)
		if (scene.process[i].id.pid == pid)
			return &scene.process[i];
	return NULL;
}

static enum guard_class class_of(int64_t pid)
{
	const struct scene_process *p = process(pid);

	assert_non_null(p);
	return verdict[p - scene.process].class;
}

/* Asserts the classes of processes, such as "500 worker, 600 contender". */
static void assert_classes(const char *text)
{
	long long pid;
	char name[16];
	int n;

	while (sscanf(text, "%lld %15[a-z]%n", &pid, name, &n) == 2) {
		assert_string_equal(guard_class_name(class_of(pid)), name);
		text += n;
		text += strspn(text, ", ");
	}
	assert_int_equal(*text, 0);
}

static unsigned roots_of(enum scene_how how)
{
	unsigned n = 0;

	for (unsigned i = 0; i < scene.roots; i++)
		n += scene.root[i].how == how;
	return n;
}

static void assert_roots(unsigned found, unsigned former)
{
	assert_int_equal(roots_of(ROOT_FOUND), found);
	assert_int_equal(roots_of(ROOT_FORMER), former);
}

static struct policy_match *worker(const char *name)
{
	struct policy_worker *w = &policy.worker[policy.workers++];

	w->name = name;
	w->kind = WORKER_EXEC;
	w->match.uid = -1;
	return &w->match;
}

#define GPU "[[gpu]]\nprofile = \"h200\"\n"
#define ON(pid, memory) \
	"[[gpu.process]]\npid = " #pid "\nmemory = \"" memory "\"\nname = \"listed\"\n"
#define SLICE   "/system.slice/w.service"
#define SESSION "/user.slice/user-1000.slice/session-2.scope"

/* Makes worker "w" with a pidfile that names process 500. */
static void put_pidfile_worker(const char *exe)
{
	worker("w")->pidfile = "/run/w.pid";
	tree_put(&tree, "run/w.pid", "500\n");
	put_process(500, 1, 50, exe, SESSION);
}

TEST(a_game_that_starts_is_listed_with_its_bytes)
{
	const struct scene_process *p;

	first_scene_of("game-start");
	assert_int_equal(scene.gpus, 1);
	assert_int_equal(scene.processes, 2);
	assert_true(scene.gpu[0].simulated && scene.gpu[0].memory_known);
	assert_int_equal(scene.gpu[0].health, SCENE_OK);
	assert_false(unknown(scene.gpu[0].temperature_c));
	assert_in(scene.gpu[0].uuid, "GPU-");
	assert_true(scene.gpu[0].used_bytes >= 18 * GIB);
	assert_true(scene.gpu[0].used_bytes + scene.gpu[0].free_bytes <=
		    scene.gpu[0].total_bytes);
	assert_string_equal(scene.process[0].name, "ollama");
	assert_false(scene.process[0].orphan);
	assert_true(unknown(scene.process[0].sm_ratio));
	take_after(12 * NS_PER_S);
	assert_int_equal(scene.processes, 3);
	p = &scene.process[2];
	assert_string_equal(p->name, "game.exe");
	assert_int_equal(p->type, GW_PROCESS_GRAPHICS);
	assert_true(p->bytes_known && p->bytes > 300 * MIB);
	assert_int_equal(verdict[2].class, CLASS_CONTENDER);
	assert_int_equal(verdict[1].class, CLASS_SYSTEM); /* Xorg */
}

TEST(memory_shared_with_the_host_is_unknown)
{
	first_scene_of("shared-memory");
	assert_int_equal(scene.gpus, 1);
	assert_false(scene.gpu[0].memory_known);
	assert_int_equal(scene.gpu[0].errors, 0); /* unknown memory is not an error */
	assert_int_equal(scene.processes, 1);
	assert_int_equal(scene.process[0].bytes, 40 * GIB);
}

/* Row a05 of GUARD-MACHINE.md. */
TEST(a_process_in_two_lists_is_one_and_unknown_bytes_are_zero)
{
	first_scene(GPU "[[gpu.process]]\npid = 4100001\ntype = \"both\"\nmemory = \"3 GiB\"\n"
			"[[gpu.process]]\npid = 4100002\nno_memory = true\n");
	assert_int_equal(scene.processes, 2);
	assert_int_equal(process(4100001)->type, GW_PROCESS_COMPUTE | GW_PROCESS_GRAPHICS);
	assert_int_equal(process(4100001)->bytes, 3 * GIB);
	assert_false(process(4100002)->bytes_known);
	assert_int_equal(process(4100002)->bytes, 0);
}

/* Checks a scene with this many processes. The last process has the most memory. */
static void check_many(unsigned count)
{
	char text[256] = GPU;

	if (count > 1)
		snprintf(text, sizeof(text),
			 GPU "[[gpu.process]]\nmemory = \"1 MiB\"\ncount = %u\n", count - 1);
	if (count > 0)
		strcat(text, ON(4300000, "9 GiB"));
	first_scene(text);
	assert_int_equal(scene.processes, count < SCENE_PROCESSES ? count : SCENE_PROCESSES);
	assert_int_equal(scene.left_out, count - scene.processes);
	if (count > 0) /* the large process is not displaced by the small ones */
		assert_int_equal(process(4300000)->bytes, 9 * GIB);
	scene_builder_free(builder);
	builder = NULL;
	sim_close();
}

TEST(any_number_of_processes_is_handled)
{
	static const unsigned counts[] = { 0, 1, 200, 2000 };

	for (unsigned i = 0; i < 4; i++)
		check_many(counts[i]);
}

TEST(many_changing_processes_are_followed)
{
	first_scene_of("crowd");
	assert_int_equal(scene.processes, 80 + 1 + 8);
	take_after(2 * NS_PER_S);
	assert_int_equal(process(4200000)->bytes, 300 * MIB);
	take_after(3 * NS_PER_S);
	assert_int_equal(process(4200000)->bytes, 900 * MIB);
}

TEST(names_are_cleaned)
{
	first_scene_of("odd-names");
	assert_int_equal(scene.gpus, 3);
	assert_string_equal(scene.process[0].name, "a b?c\"d\\e<scrip");
}

TEST(a_thread_and_its_process_are_one)
{
	put_process(4100001, 1, 5, "/usr/bin/game", SESSION);
	put_process(4100009, 1, 6, "/usr/bin/game", SESSION);
	tree_put(&tree, "proc/4100009/status", "Tgid:\t4100001\nUid:\t1\t1\t1\t1\n");
	first_scene(GPU ON(4100009, "2 GiB") ON(4100001, "3 GiB"));
	assert_int_equal(scene.processes, 1);
	assert_int_equal(scene.process[0].id.pid, 4100001);
	assert_int_equal(scene.process[0].id.start_ticks, 5);
	assert_int_equal(scene.process[0].bytes, 3 * GIB);
}

TEST(a_process_on_two_instances_of_a_board_holds_the_sum)
{
	put_process(4100001, 1, 5, "/usr/bin/game", SESSION);
	first_scene(GPU
		    "[[gpu.process]]\npid = 4100001\ngpu_instance = 1\nmemory = \"1 GiB\"\n"
		    "[[gpu.process]]\npid = 4100001\ngpu_instance = 2\nmemory = \"2 GiB\"\n");
	assert_int_equal(scene.processes, 1);
	assert_int_equal(scene.process[0].bytes, 3 * GIB);
}

TEST(utilisation_is_reported_on_request)
{
	open_builder(GPU "[[gpu.load]]\nkind = \"constant\"\nlevel = 0.8\n"
			 "[[gpu.process]]\npid = 4100001\nshare = 1.0\n");
	sim_step(10 * NS_PER_S);
	assert_int_equal(scene_builder_take(builder, &scene, true), 0);
	assert_true(scene.process[0].sm_ratio > 0.3 && scene.process[0].sm_ratio <= 1);
	assert_int_equal(scene_builder_take(builder, &scene, false), 0);
	assert_true(unknown(scene.process[0].sm_ratio));
}

/* Row a06 of GUARD-MACHINE.md. */
TEST(a_reused_pid_is_another_process)
{
	put_process(4100001, 1, 5, "/usr/bin/first", SESSION);
	first_scene(GPU ON(4100001, "1 GiB"));
	assert_string_equal(scene.process[0].name, "first");
	assert_string_equal(scene.process[0].exe, "/usr/bin/first");
	assert_string_equal(scene.process[0].cgroup, SESSION);
	assert_int_equal(scene.process[0].uid, 1000);
	put_process(4100001, 1, 6, "/usr/bin/second", SESSION);
	take();
	assert_string_equal(scene.process[0].name, "second");
	assert_int_equal(scene.process[0].id.start_ticks, 6);
}

TEST(an_exec_is_noticed)
{
	put_process(4100001, 1, 5, "/usr/bin/sh", SESSION);
	first_scene(GPU ON(4100001, "1 GiB"));
	put_process(4100001, 1, 5, "/usr/bin/game", SESSION);
	take_after(PROCESS_CACHE_REFRESH_YOUNG_NS);
	assert_string_equal(scene.process[0].exe, "/usr/bin/game");
}

TEST(a_process_that_ended_is_counted_and_only_later_an_orphan)
{
	struct scene_builder_stats stats;

	put_process(4100001, 1, 5, "/usr/bin/game", SESSION);
	first_scene(GPU ON(4100001, "1 GiB"));
	tree_remove(&tree, "proc/4100001");
	take();
	assert_int_equal(scene.processes, 0);
	scene_builder_stats(builder, &stats);
	assert_int_equal(stats.vanished, 1);
	take_after(PROCESS_CACHE_ORPHAN_NS);
	assert_int_equal(class_of(4100001), CLASS_ORPHAN);
	assert_int_equal(process(4100001)->bytes, GIB);
	put_process(4100001, 1, 9, "/usr/bin/next", SESSION);
	take();
	assert_int_equal(class_of(4100001), CLASS_CONTENDER);
}

TEST(the_process_cache_never_overflows)
{
	struct process_cache *t;
	uint64_t now = NS_PER_S;

	assert_int_equal(process_cache_new(&tree.root, NULL, &t), 0);
	for (int64_t round = 0; round < 5; round++, now += 100 * NS_PER_MS)
		for (int64_t i = 1; i <= SCENE_PROCESSES; i++)
			assert_non_null(process_cache_find(t, round * 100000 + i, now));
	assert_non_null(process_cache_find(t, 1, now));
	for (int64_t i = 2; i <= SCENE_PROCESSES; i++)
		assert_non_null(process_cache_find(t, i, now));
	/* one process too many at the same time */
	assert_null(process_cache_find(t, 99999, now));
	process_cache_forget(t, now + PROCESS_CACHE_FORGET_NS + 1);
	assert_non_null(process_cache_find(t, 99999, now + PROCESS_CACHE_FORGET_NS + 1));
	process_cache_free(t);
}

/* Row a02 of GUARD-MACHINE.md. */
TEST(a_tree_below_a_pidfile_is_never_a_contender)
{
	put_pidfile_worker("/usr/bin/python3");
	put_process(501, 500, 51, "/usr/bin/python3", SESSION);
	put_process(502, 501, 52, "/usr/bin/python3", SESSION);
	put_process(600, 1, 60, "/usr/bin/python3", SESSION);
	first_scene(GPU ON(500, "1 GiB") ON(501, "1 GiB") ON(502, "1 GiB") ON(600, "1 GiB"));
	assert_int_equal(scene.roots, 1);
	assert_int_equal(scene.root[0].id.pid, 500);
	assert_int_equal(scene.root[0].id.start_ticks, 50);
	for (int64_t pid = 500; pid <= 502; pid++)
		assert_int_equal(class_of(pid), CLASS_WORKER);
	assert_int_equal(class_of(600), CLASS_CONTENDER);
}

TEST(a_child_without_parents_stays_the_workers)
{
	put_pidfile_worker("/usr/bin/server");
	put_process(501, 500, 51, "/usr/bin/sh", SESSION);
	put_process(502, 501, 52, "/usr/bin/runner", SESSION);
	first_scene(GPU ON(502, "1 GiB"));
	assert_int_equal(class_of(502), CLASS_WORKER);
	/* the process called setsid, and init adopted it */
	put_process(502, 1, 52, "/usr/bin/runner", SESSION);
	tree_remove(&tree, "proc/501");
	take_after(PROCESS_CACHE_REFRESH_YOUNG_NS);
	assert_int_equal(process(502)->ancestor[0], 1);
	assert_int_equal(class_of(502), CLASS_WORKER);
	tree_remove(&tree, "proc/500");
	take_after(PROCESS_CACHE_REFRESH_YOUNG_NS);
	assert_int_equal(class_of(502), CLASS_WORKER);
	put_process(502, 1, 99, "/usr/bin/runner",
		    SESSION); /* another process with the same pid */
	take();
	assert_int_equal(class_of(502), CLASS_CONTENDER);
}

TEST(a_member_of_a_units_cgroup_is_the_workers)
{
	worker("w")->unit = "w.service";
	put_process(500, 1, 50, "/usr/bin/w", SLICE);
	put_process(502, 1, 52, "/usr/bin/runner", SLICE "/models");
	put_process(600, 1, 60, "/usr/bin/runner", SESSION);
	first_scene(GPU ON(502, "1 GiB") ON(600, "1 GiB"));
	assert_classes("502 worker, 600 contender");
	/* one of them is the root process that is on no GPU */
	assert_int_equal(scene.roots, 2);
	assert_int_equal(scene.root[0].id.pid + scene.root[1].id.pid, 500 + 502);
}

TEST(a_stale_pidfile_names_no_process)
{
	put_pidfile_worker("/usr/bin/w");
	first_scene(GPU ON(500, "1 GiB"));
	assert_int_equal(class_of(500), CLASS_WORKER);
	put_process(500, 1, 70, "/usr/bin/game", SESSION); /* the pid was reused */
	take_after(2 * NS_PER_S);
	assert_int_equal(class_of(500), CLASS_CONTENDER);
	assert_int_equal(scene.roots, 0);
	tree_put(&tree, "run/w.pid", "no number\n");
	take();
	assert_int_equal(scene.roots, 0);
}

static void write_at(const char *path, time_t seconds)
{
	const struct timespec times[2] = { { .tv_sec = seconds }, { .tv_sec = seconds } };

	assert_int_equal(utimensat(tree.root.fd, path, times, 0), 0);
}

/* The machine booted at 1000000 s; a tick is 10 ms. */
TEST(a_pidfile_that_others_can_write_names_no_process)
{
	put_pidfile_worker("/usr/bin/w");
	assert_int_equal(fchmodat(tree.root.fd, "run", 0777, 0), 0);
	first_scene(GPU ON(500, "1 GiB"));
	assert_int_equal(scene.roots, 0);
	assert_int_equal(fchmodat(tree.root.fd, "run", 0755, 0), 0);
	take_after(NS_PER_S);
	assert_int_equal(scene.roots, 1);
}

TEST(a_process_younger_than_the_pidfile_did_not_write_it)
{
	worker("w")->pidfile = "/run/w.pid";
	tree_put(&tree, "proc/stat", "cpu 1 2 3\nbtime 1000000\n");
	tree_put(&tree, "run/w.pid", "500\n");
	write_at("run/w.pid", 1000100);
	/* the process started 2 s after the file was written */
	put_process(500, 1, 10200, "/usr/bin/game", SESSION);
	first_scene(GPU ON(500, "1 GiB"));
	assert_int_equal(class_of(500), CLASS_CONTENDER);
	assert_int_equal(scene_builder_policy(builder, &policy), 0);
	take();
	assert_int_equal(class_of(500), CLASS_CONTENDER);
	write_at("run/w.pid", 1000102); /* the clock of files is coarser than ticks */
	take_after(2 * NS_PER_S);
	assert_int_equal(class_of(500), CLASS_WORKER);
}

TEST(the_writer_of_a_pidfile_is_known_to_the_next_policy)
{
	static struct policy next;

	put_pidfile_worker("/usr/bin/w");
	first_scene(GPU ON(500, "1 GiB"));
	assert_int_equal(class_of(500), CLASS_WORKER);
	put_process(500, 1, 70, "/usr/bin/game", SESSION);
	next = policy;
	next.worker[1] = next.worker[0]; /* its position changed */
	next.worker[0].match.pidfile = "/run/other.pid";
	next.workers = 2;
	assert_int_equal(scene_builder_policy(builder, &next), 0);
	take_after(2 * NS_PER_S);
	assert_int_equal(scene.roots, 0);
}

TEST(neither_init_nor_our_ancestors_are_a_worker)
{
	static const char *const number[] = { "0\n", "1\n", "70\n", "77\n" };

	worker("w")->pidfile = "/run/w.pid";
	put_process(1, 0, 1, "/sbin/init", "/");
	put_process(70, 1, 5, "/usr/bin/shell", SESSION);
	put_process(77, 70, 7, "/usr/bin/gpuward", SESSION);
	put_process(90, 1, 9, "/usr/bin/game", SESSION);
	put_process(91, 70, 9, "/usr/bin/game", SESSION);
	tree_put(&tree, "run/w.pid", "1\n");
	open_builder(GPU ON(90, "1 GiB") ON(91, "1 GiB"));
	for (size_t i = 0; i < COUNT_OF(number); i++) {
		tree_put(&tree, "run/w.pid", number[i]);
		take_after(2 * NS_PER_S);
		assert_int_equal(scene.roots, 0);
		assert_classes("90 contender, 91 contender");
	}
}

#define TCP_HEAD \
	"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt uid\n"
#define TCP_ROW(local, state, inode)                                                           \
	"   0: " local " 00000000:0000 " state " 00000000:00000000 00:00000000 00000000  1000" \
	"        0 " inode " 1 0000000000000000 100 0 0 10 0\n"
#define ANY6 "00000000000000000000000000000000"

/* Makes worker "w" with a port on which the socket 333 listens. */
static void put_port_worker(void)
{
	worker("w")->port = 0x2CAA; /* 11434 */
	tree_put(&tree, "proc/net/tcp", TCP_HEAD TCP_ROW("0100007F:2CAA", "0A", "333"));
}

TEST(a_listener_is_found_by_its_port)
{
	struct scene_builder_stats before, after;

	worker("w")->port = 0x2CAA; /* 11434 */
	tree_put(&tree, "proc/net/tcp",
		 TCP_HEAD TCP_ROW("0100007F:2CAA", "01", "111")
			 TCP_ROW("0100007F:2CAB", "0A", "222"));
	tree_put(&tree, "proc/net/tcp6", TCP_HEAD TCP_ROW(ANY6 ":2CAA", "0A", "333"));
	put_process(500, 1, 50, "/usr/bin/w", SESSION);
	put_process(501, 500, 51, "/usr/bin/w", SESSION);
	put_process(600, 1, 60, "/usr/bin/w", SESSION);
	tree_put(&tree, "proc/500/fd/3", "-> socket:[333]");
	tree_put(&tree, "proc/501/fd/3", "-> socket:[333]"); /* inherited */
	tree_put(&tree, "proc/600/fd/3", "-> socket:[111]"); /* a client of the worker */
	tree_put(&tree, "proc/600/fd/4", "-> socket:[222]");
	first_scene(GPU ON(501, "1 GiB") ON(600, "1 GiB"));
	assert_classes("501 worker, 600 contender");
	scene_builder_stats(builder, &before);
	for (unsigned i = 0; i < 30;
	     i++) /* the port's owner is found once and kept while its socket is open */
		take_after(NS_PER_S);
	scene_builder_stats(builder, &after);
	assert_int_equal(after.searches, before.searches);
	assert_int_equal(class_of(501), CLASS_WORKER);
	tree_put(&tree, "proc/net/tcp6", TCP_HEAD TCP_ROW(ANY6 ":2CAA", "0A", "444"));
	tree_put(&tree, "proc/500/fd/3",
		 /* the worker closed its port, and another process listens on it now */
		 "-> pipe:[9]");
	tree_put(&tree, "proc/600/fd/5", "-> socket:[444]");
	take_after(5 * NS_PER_S);
	assert_int_equal(class_of(600), CLASS_WORKER);
}

/* Adds a process of another user: without privileges its program and its open files are
 * hidden. */
static void put_unseen(int64_t pid, unsigned start, const char *exe)
{
	char path[64];

	put_process(pid, 1, start, exe, SESSION);
	snprintf(path, sizeof(path), "proc/%lld/exe", (long long)pid);
	tree_remove(&tree, path);
}

TEST(a_hidden_process_is_no_contender_while_a_worker_of_its_user_is_missing)
{
	put_port_worker();
	put_unseen(500, 50, "/usr/bin/runner");
	put_unseen(600, 60, "/usr/bin/game");
	tree_put(&tree, "proc/600/status", "Name:\tgame\nTgid:\t600\nUid:\t7\t7\t7\t7\n");
	put_process(700, 1, 70, "/usr/bin/seen", SESSION);
	first_scene(GPU ON(500, "1 GiB") ON(600, "1 GiB") ON(700, "1 GiB"));
	assert_int_equal(class_of(500), CLASS_UNKNOWN); /* same user as the listening socket */
	assert_int_equal(class_of(600), CLASS_CONTENDER); /* another user */
	/* this process is visible and does not listen */
	assert_int_equal(class_of(700), CLASS_CONTENDER);
	/* no socket listens: the worker does not run */
	tree_put(&tree, "proc/net/tcp", TCP_HEAD);
	take_after(5 * NS_PER_S);
	assert_int_equal(class_of(500), CLASS_CONTENDER);
}

TEST(a_socket_that_init_also_holds_belongs_to_the_other)
{
	put_port_worker();
	put_process(1, 0, 1, "/sbin/init", "/");
	put_process(500, 1, 50, "/usr/bin/w", SESSION);
	put_process(600, 1, 60, "/usr/bin/game", SESSION);
	tree_put(&tree, "proc/1/fd/3", "-> socket:[333]");
	tree_put(&tree, "proc/500/fd/3", "-> socket:[333]");
	first_scene(GPU ON(500, "1 GiB") ON(600, "1 GiB"));
	assert_classes("500 worker, 600 contender");
}

TEST(a_worker_that_starts_late_is_found_when_it_is_on_a_gpu)
{
	worker("w")->port = 0x2CAA;
	put_process(600, 1, 60, "/usr/bin/other", SESSION);
	first_scene(GPU ON(600, "1 GiB"));
	sim_step(300 * NS_PER_MS);
	tree_put(&tree, "proc/net/tcp", TCP_HEAD TCP_ROW("0100007F:2CAA", "0A", "333"));
	put_process(500, 1, 50, "/usr/bin/w", SESSION);
	tree_put(&tree, "proc/500/fd/3", "-> socket:[333]");
	assert_int_equal(sim_process(0, 500, GIB, 0), 0);
	take(); /* the next regular check would be much later */
	assert_classes("500 worker, 600 contender");
}

TEST(a_worker_on_no_gpu_is_found_by_name)
{
	*worker("w") = (struct policy_match){ .uid = -1, .name = "server", .exe = "/srv/*" };
	put_process(500, 1, 50, "/srv/bin/server", SESSION);
	put_process(600, 1, 60, "/home/u/server", SESSION);
	first_scene(GPU);
	assert_int_equal(scene.processes, 0);
	assert_int_equal(scene.roots, 1);
	assert_int_equal(scene.root[0].id.pid, 500);
	tree_remove(&tree, "proc/500");
	take();
	assert_int_equal(scene.roots, 0);
}

static void become(int64_t pid, const char *command)
{
	char path[64];

	snprintf(path, sizeof(path), "proc/%lld/cmdline", (long long)pid);
	tree_put(&tree, path, command);
}

/* Same pid, start, name and path: only the arguments differ. */
TEST(a_process_that_becomes_another_program_is_no_worker)
{
	worker("w")->command = "serve --model";
	put_process(500, 1, 50, "/usr/bin/python3", SESSION);
	put_process(501, 500, 51, "/usr/bin/python3", SESSION);
	become(500, "python3 serve --model x");
	first_scene(GPU ON(500, "1 GiB") ON(501, "1 GiB"));
	assert_classes("500 worker, 501 worker");
	become(500, "python3 serve --model y"); /* still a match */
	take_after(PROCESS_CACHE_REFRESH_OLD_NS);
	assert_int_equal(roots_of(ROOT_FOUND), 1);
	become(500, "python3 game");
	take_after(NS_PER_S);
	assert_roots(0, 1);
	take_after(PROCESS_CACHE_REFRESH_OLD_NS);
	assert_int_equal(class_of(500), CLASS_CONTENDER);
	/* the process was a descendant of the worker */
	assert_int_equal(class_of(501), CLASS_WORKER);
	take_after(60 * NS_PER_S);
	assert_int_equal(class_of(500), CLASS_CONTENDER);
	become(500, "python3 serve --model x");
	take_after(60 * NS_PER_S);
	assert_int_equal(class_of(500), CLASS_WORKER);
	assert_int_equal(roots_of(ROOT_FORMER), 0);
}

/* A process that ends loses its arguments first and releases its memory later. */
TEST(a_process_that_is_ending_stays_the_workers)
{
	worker("w")->command = "serve";
	put_process(500, 1, 50, "/usr/bin/python3", SESSION);
	become(500, "python3 serve");
	first_scene(GPU ON(500, "1 GiB"));
	become(500, "");
	tree_remove(&tree, "proc/500/exe");
	take_after(PROCESS_CACHE_REFRESH_OLD_NS);
	assert_int_equal(class_of(500), CLASS_WORKER);
	assert_int_equal(roots_of(ROOT_FOUND), 1);
	tree_put(&tree, "proc/500/stat", "500 (python3) Z 1 " TAIL "50 1 2\n");
	take_after(NS_PER_S);
	assert_int_equal(scene.roots, 0); /* a zombie has ended */
}

TEST(an_empty_pidfile_keeps_the_root)
{
	static const char *const moment[] = { "", "\n", "no number\n", "4000000\n", NULL };

	put_pidfile_worker("/usr/bin/w");
	first_scene(GPU ON(500, "1 GiB"));
	for (size_t i = 0; i < COUNT_OF(moment); i++) {
		if (moment[i])
			tree_put(&tree, "run/w.pid", moment[i]);
		else
			tree_remove(&tree, "run/w.pid");
		take_after(2 * NS_PER_S);
		assert_int_equal(class_of(500), CLASS_WORKER);
		assert_int_equal(roots_of(ROOT_FOUND), 1);
	}
	become(500, "game"); /* now neither pidfile nor program match */
	take_after(PROCESS_CACHE_REFRESH_OLD_NS);
	assert_int_equal(class_of(500), CLASS_CONTENDER);
	assert_int_equal(roots_of(ROOT_FORMER), 1);
}

TEST(a_pidfile_that_names_another_replaces_the_root)
{
	put_pidfile_worker("/usr/bin/w");
	put_process(600, 1, 60, "/usr/bin/w", SESSION);
	first_scene(GPU ON(500, "1 GiB") ON(600, "1 GiB"));
	assert_int_equal(class_of(500), CLASS_WORKER);
	tree_put(&tree, "run/w.pid", "600\n");
	take_after(2 * NS_PER_S);
	assert_classes("600 worker, 500 contender");
	assert_roots(1, 1);
	tree_remove(&tree, "proc/500");
	take();
	assert_int_equal(roots_of(ROOT_FORMER), 0);
}

TEST(a_pid_followed_by_a_nul_is_invalid)
{
	worker("w")->pidfile = "/run/w.pid";
	tree_bytes(&tree, "run/w.pid", "500\0\n", 5);
	put_process(500, 1, 50, "/usr/bin/w", SESSION);
	first_scene(GPU ON(500, "1 GiB"));
	assert_int_equal(class_of(500), CLASS_CONTENDER);
}

/* No descriptor is free, so no file can be opened. The workers that were found are kept. */
TEST(without_free_descriptors_no_worker_is_lost)
{
	static int taken[1 << 16];
	struct rlimit limit, few;
	unsigned n = 0;

	worker("p")->pidfile = "/run/w.pid";
	worker("l")->port = 0x2CAA;
	worker("n")->command = "third";
	tree_put(&tree, "run/w.pid", "500\n");
	tree_put(&tree, "proc/net/tcp", TCP_HEAD TCP_ROW("0100007F:2CAA", "0A", "333"));
	put_process(500, 1, 50, "/usr/bin/first", SESSION);
	put_process(600, 1, 60, "/usr/bin/second", SESSION);
	put_process(700, 1, 70, "/usr/bin/third", SESSION);
	tree_put(&tree, "proc/600/fd/3", "-> socket:[333]");
	first_scene(GPU ON(500, "1 GiB") ON(600, "1 GiB") ON(700, "1 GiB"));
	assert_int_equal(roots_of(ROOT_FOUND), 3);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	few = limit;
	few.rlim_cur = 256;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	while (n < COUNT_OF(taken) && (taken[n] = dup(0)) >= 0)
		n++;
	for (unsigned i = 0; i < 6; i++) {
		take_after(PROCESS_CACHE_REFRESH_OLD_NS);
		assert_int_equal(roots_of(ROOT_FOUND), 3);
		for (int64_t pid = 500; pid <= 700; pid += 100)
			assert_int_equal(class_of(pid), CLASS_WORKER);
		assert_string_equal(process(700)->command, "/usr/bin/third");
		assert_int_equal(process(700)->id.start_ticks, 70);
		/* the process closed its port, but the socket's owner cannot be read */
		if (i == 3)
			tree_remove(&tree, "proc/600/fd/3");
	}
	while (n > 0)
		close(taken[--n]);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

TEST(a_worker_that_closed_its_port_stays_one_until_it_ends)
{
	put_port_worker();
	put_process(500, 1, 50, "/usr/bin/w", SESSION);
	put_process(600, 1, 60, "/usr/bin/w", SESSION);
	tree_put(&tree, "proc/500/fd/3", "-> socket:[333]");
	first_scene(GPU ON(500, "1 GiB") ON(600, "1 GiB"));
	tree_put(&tree, "proc/net/tcp", TCP_HEAD);
	tree_remove(&tree, "proc/500/fd/3");
	take_after(PROCESS_CACHE_REFRESH_OLD_NS);
	assert_int_equal(class_of(500), CLASS_WORKER);
	tree_put(&tree, "proc/net/tcp", TCP_HEAD TCP_ROW("0100007F:2CAA", "0A", "444"));
	tree_put(&tree, "proc/600/fd/3", "-> socket:[444]");
	take_after(5 * NS_PER_S);
	assert_classes("600 worker, 500 contender");
	assert_int_equal(roots_of(ROOT_FORMER), 1);
}

TEST(a_worker_that_closed_its_port_by_an_exec_is_lost)
{
	put_port_worker();
	put_process(500, 1, 50, "/usr/bin/w", SESSION);
	tree_put(&tree, "proc/500/fd/3", "-> socket:[333]");
	first_scene(GPU ON(500, "1 GiB"));
	become(500, "game");
	tree_put(&tree, "proc/net/tcp", TCP_HEAD);
	tree_remove(&tree, "proc/500/fd/3");
	take_after(NS_PER_S);
	assert_int_equal(roots_of(ROOT_FOUND), 0);
	assert_int_equal(class_of(500), CLASS_CONTENDER);
}

TEST(a_root_that_a_new_policy_does_not_find_is_a_former_one)
{
	static struct policy wrong;

	worker("v")->pidfile = "/run/v.pid";
	put_pidfile_worker("/usr/bin/w");
	first_scene(GPU ON(500, "1 GiB"));
	wrong = policy;
	wrong.worker[0] = policy.worker[1];
	wrong.worker[0].match.pidfile = "/run/typo.pid";
	wrong.workers = 1;
	/* the former root is kept when the policy changes again */
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(scene_builder_policy(builder, &wrong), 0);
		take_after(NS_PER_S);
		assert_int_equal(scene.roots, 1);
		assert_int_equal(scene.root[0].how, ROOT_FORMER);
		assert_int_equal(scene.root[0].worker, 0);
		assert_int_equal(scene.root[0].id.pid, 500);
		assert_int_equal(scene.root[0].id.start_ticks, 50);
		assert_int_equal(class_of(500), CLASS_CONTENDER);
	}
	assert_int_equal(scene_builder_policy(builder, &policy), 0);
	take();
	assert_roots(1, 0);
	assert_int_equal(class_of(500), CLASS_WORKER);
}

/* Three roots of an earlier run: one lives, the pid of one was reused, one ended. */
TEST(a_root_of_an_earlier_run_is_a_former_one)
{
	const struct scene_builder_formers known = { .of = { { 0, { 500, 50 } },
							     { 0, { 501, 50 } },
							     { 0, { 502, 50 } },
							     { 99, { 500, 50 } } },
						     .count = 4 };

	worker("w")->pidfile = "/run/w.pid";
	put_process(500, 1, 50, "/usr/bin/w", SESSION);
	put_process(501, 1, 60, "/usr/bin/other", SESSION);
	open_builder(GPU ON(500, "1 GiB"));
	scene_builder_recall(builder, &known);
	take();
	assert_int_equal(scene.roots, 1);
	assert_int_equal(scene.root[0].how, ROOT_FORMER);
	assert_int_equal(scene.root[0].id.pid, 500);
	tree_put(&tree, "run/w.pid", "500\n");
	take_after(NS_PER_S);
	assert_roots(1, 0);
}

/* Sets the same policy with another worker before the first one. */
static void read_policy_again(void)
{
	static struct policy again;

	again = policy;
	again.worker[1] = policy.worker[0];
	again.worker[0].name = "new";
	again.worker[0].match.pidfile = "/run/new.pid";
	again.workers = 2;
	assert_int_equal(scene_builder_policy(builder, &again), 0);
	sim_step(2 * NS_PER_S);
	assert_int_equal(scene_builder_take(builder, &scene, false), 0);
	classify(&again, &scene, verdict);
	assert_int_equal(scene.roots, 1);
	assert_int_equal(scene.root[0].worker, 1);
	assert_int_equal(scene_builder_policy(builder, &policy), 0);
	take_after(2 * NS_PER_S);
}

TEST(a_worker_without_its_pidfile_is_kept_over_the_same_policy)
{
	static const char *const moment[] = { "", "no number\n", NULL };

	put_pidfile_worker("/usr/bin/w");
	first_scene(GPU ON(500, "1 GiB"));
	for (size_t i = 0; i < COUNT_OF(moment); i++) {
		if (moment[i])
			tree_put(&tree, "run/w.pid", moment[i]);
		else
			tree_remove(&tree, "run/w.pid");
		read_policy_again();
		assert_int_equal(class_of(500), CLASS_WORKER);
		assert_roots(1, 0);
	}
	become(500, "game"); /* the arguments of the process are checked, as in any scene */
	take_after(PROCESS_CACHE_REFRESH_OLD_NS);
	assert_int_equal(class_of(500), CLASS_CONTENDER);
	assert_int_equal(roots_of(ROOT_FORMER), 1);
}

TEST(a_worker_without_its_port_is_kept_over_the_same_policy)
{
	put_port_worker();
	tree_put(&tree, "proc/500/fd/3", "-> socket:[333]");
	put_process(500, 1, 50, "/usr/bin/w", SESSION);
	first_scene(GPU ON(500, "1 GiB"));
	assert_int_equal(class_of(500), CLASS_WORKER);
	tree_remove(&tree, "proc/500/fd/3");
	tree_put(&tree, "proc/net/tcp", TCP_HEAD);
	read_policy_again();
	assert_int_equal(class_of(500), CLASS_WORKER);
	assert_int_equal(roots_of(ROOT_FOUND), 1);
}

TEST(a_child_without_parents_is_kept_over_the_same_policy)
{
	static struct policy other;

	put_pidfile_worker("/usr/bin/server");
	put_process(502, 500, 52, "/usr/bin/runner", SESSION);
	first_scene(GPU ON(502, "1 GiB"));
	put_process(502, 1, 52, "/usr/bin/runner", SESSION);
	tree_remove(&tree, "proc/500");
	take_after(PROCESS_CACHE_REFRESH_YOUNG_NS);
	read_policy_again();
	assert_int_equal(class_of(502), CLASS_WORKER);
	assert_int_equal(roots_of(ROOT_KEPT), 1);
	other = policy;
	other.worker[0].match.pidfile = "/run/other.pid";
	assert_int_equal(scene_builder_policy(builder, &other), 0);
	take();
	assert_int_equal(class_of(502), CLASS_CONTENDER);
}

/* Killed and not reaped: only its pid is left. */
TEST(a_zombie_is_no_worker)
{
	static const struct policy_match by[] = {
		{ .uid = -1, .pidfile = "/run/w.pid" },
		{ .uid = -1, .name = "python3" },
		{ .uid = -1, .pidfile = "/run/w.pid", .name = "python3" },
	};

	for (size_t i = 0; i < COUNT_OF(by); i++) {
		*worker("w") = by[i];
		tree_put(&tree, "run/w.pid", "500\n");
		put_process(500, 1, 50, "/usr/bin/python3", SESSION);
		first_scene(GPU ON(600, "1 GiB"));
		assert_int_equal(roots_of(ROOT_FOUND), 1);
		put_zombie(500, 50);
		for (unsigned n = 0; n < 3; n++) { /* the worker is not found again */
			take_after(6 * NS_PER_S);
			assert_int_equal(scene.roots, 0);
		}
		assert_int_equal(scene_builder_policy(builder, &policy), 0);
		take();
		assert_int_equal(scene.roots, 0);
		end(state);
		begin(state);
	}
}

TEST(a_process_without_its_first_thread_lives)
{
	put_pidfile_worker("/usr/bin/w");
	tree_put(&tree, "proc/500/stat",
		 "500 (w) Z 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 2 0 50 1 2\n");
	first_scene(GPU ON(500, "1 GiB"));
	assert_int_equal(class_of(500), CLASS_WORKER);
	assert_int_equal(roots_of(ROOT_FOUND), 1);
}

TEST(a_zombie_child_is_not_kept)
{
	put_pidfile_worker("/usr/bin/server");
	put_process(502, 500, 52, "/usr/bin/runner", SESSION);
	first_scene(GPU ON(502, "1 GiB"));
	tree_remove(&tree, "proc/500");
	put_zombie(502, 52);
	take();
	assert_int_equal(scene.roots, 0);
	assert_int_equal(scene.processes, 0); /* as if the process had ended */
	take_after(PROCESS_CACHE_ORPHAN_NS);
	assert_int_equal(class_of(502), CLASS_ORPHAN);
}

TEST(a_search_of_many_processes_is_bounded)
{
	struct scene_builder_stats stats;
	char path[64];

	worker("w")->name = "server";
	for (int64_t i = 1; i <= WORKER_FINDER_PROCESSES + 50; i++) {
		snprintf(path, sizeof(path), "proc/%lld/comm", (long long)i);
		tree_put(&tree, path, "x\n");
	}
	put_process(9000, 1, 5, "/srv/server", SESSION);
	open_builder(GPU);
	for (unsigned i = 0; i < 20; i++) { /* within two seconds there is only one search */
		take();
		sim_step(100 * NS_PER_MS);
	}
	scene_builder_stats(builder, &stats);
	assert_int_equal(stats.searches, 1);
}

TEST(a_real_proc_is_searched_completely)
{
	char name[32];
	FILE *f = fopen("/proc/self/comm", "r");

	assert_non_null(f);
	assert_non_null(fgets(name, sizeof(name), f));
	fclose(f);
	name[strcspn(name, "\n")] = '\0';
	worker("w")->name = name;
	sim_text(GPU);
	sim_open_with(NULL, 0, 0);
	assert_int_equal(scene_builder_new(sim.ctx, &policy, &builder), 0);
	take();
	for (unsigned i = 0; i < scene.roots; i++)
		if (scene.root[i].id.pid == getpid())
			return;
	fail_msg("we were not found among %u", scene.roots);
}

/* Acts as a real worker: it listens, and its child forks a runner that leaves the session.
 * Writes the three pids to out; ends when `until` is closed. */
static void be_a_worker(int out, int until)
{
	pid_t pid[3] = { getpid() };
	char byte;
	int inner[2];

	if (pipe(inner) < 0)
		_exit(1);
	pid[1] = fork();
	if (pid[1] == 0) {
		pid_t runner = fork();

		if (runner == 0) {
			setsid();
			(void)!read(until, &byte, 1);
			_exit(0);
		}
		(void)!write(inner[1], &runner, sizeof(runner));
		(void)!read(until, &byte, 1);
		_exit(0);
	}
	(void)!read(inner[0], &pid[2], sizeof(pid[2]));
	(void)!write(out, pid, sizeof(pid));
	(void)!read(until, &byte, 1);
	_exit(0);
}

static int listen_somewhere(unsigned *ret_port)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	socklen_t n = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (const struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
	*ret_port = ntohs(a.sin_port);
	return fd;
}

TEST(a_real_worker_tree_is_found_by_its_port)
{
	int pids[2], until[2], listening;
	unsigned port = 0;
	pid_t pid[3], child;

	assert_int_equal(pipe(pids) + pipe(until), 0);
	listening = listen_somewhere(&port);
	child = fork();
	if (child == 0) {
		close(until[1]);
		be_a_worker(pids[1], until[0]);
	}
	close(listening); /* now only the worker has the socket */
	assert_int_equal(read(pids[0], pid, sizeof(pid)), sizeof(pid));
	assert_int_equal(pid[0], child);
	worker("w")->port = port;
	sim_text(GPU);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(sim_process(0, (uint32_t)pid[i], GIB, 0), 0);
	assert_int_equal(sim_process(0, (uint32_t)getpid(), MIB, 0), 0);
	sim_open_with(NULL, 0, 0);
	assert_int_equal(scene_builder_new(sim.ctx, &policy, &builder), 0);
	take();
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(class_of(pid[i]), CLASS_WORKER);
	assert_int_equal(class_of(getpid()), CLASS_SELF);
	assert_true(process(pid[2])->id.start_ticks > 0);
	assert_int_equal(process(pid[2])->uid, geteuid());
	close(until[1]);
	close(until[0]);
	close(pids[0]);
	close(pids[1]);
	assert_int_equal(waitpid(child, NULL, 0), child);
}

TEST(our_tree_and_our_services_cgroup_are_own)
{
	worker("w")->name = "started";
	put_process(77, 1, 7, "/usr/bin/gpuward", "/system.slice/gpuward.service");
	put_process(78, 77, 8, "/usr/bin/helper", SESSION);
	put_process(79, 1, 9, "/usr/bin/helper", "/system.slice/gpuward.service");
	put_process(80, 77, 10, "/usr/bin/started", "/system.slice/gpuward.service");
	put_process(90, 1, 11, "/usr/bin/game", SESSION);
	first_scene(GPU ON(77, "1 MiB") ON(78, "1 MiB") ON(79, "1 MiB") ON(80, "1 GiB")
			    ON(90, "1 MiB"));
	assert_classes("77 self, 78 self, 79 self");
	/* a worker, although this program started it */
	assert_int_equal(class_of(80), CLASS_WORKER);
	assert_int_equal(class_of(90), CLASS_CONTENDER);
}

TEST(below_a_worker_our_own_tree_is_own)
{
	worker("w")->name = "vllm"; /* the first process of the container */
	put_process(1, 0, 1, "/usr/bin/vllm", "/");
	put_process(77, 1, 7, "/usr/bin/gpuward", "/");
	put_process(78, 77, 8, "/usr/bin/helper", "/");
	put_process(90, 1, 9, "/usr/bin/rank", "/");
	first_scene(GPU ON(1, "1 GiB") ON(77, "1 MiB") ON(78, "1 MiB") ON(90, "1 GiB"));
	assert_classes("1 worker, 77 self, 78 self, 90 worker");
}

TEST(as_first_process_of_a_container_only_we_are_own)
{
	tree_put(&tree, "proc/self", "-> 1");
	put_process(1, 0, 1, "/usr/bin/gpuward", "/");
	put_process(90, 1, 9, "/usr/bin/game", "/");
	first_scene(GPU ON(1, "1 MiB") ON(90, "1 GiB"));
	assert_classes("1 self, 90 contender");
}

TEST(the_cgroup_of_a_session_is_not_own)
{
	put_process(77, 1, 7, "/usr/bin/gpuward", SESSION);
	put_process(90, 1, 11, "/usr/bin/game", SESSION);
	first_scene(GPU ON(77, "1 MiB") ON(90, "1 MiB"));
	assert_classes("77 self, 90 contender");
}

TEST(a_worker_inside_this_process_is_a_worker)
{
	worker("inner");
	policy.worker[0].kind = WORKER_CALLBACK;
	put_process(77, 1, 7, "/usr/bin/app", SESSION);
	first_scene(GPU ON(77, "1 GiB"));
	assert_int_equal(class_of(77), CLASS_WORKER);
}

TEST(a_new_policy_finds_its_own_workers)
{
	static struct policy other;

	worker("w")->name = "server";
	put_process(500, 1, 50, "/srv/server", SESSION);
	put_process(501, 500, 51, "/srv/runner", SESSION);
	first_scene(GPU ON(501, "1 GiB"));
	assert_int_equal(class_of(501), CLASS_WORKER);
	other = policy;
	other.workers = 0;
	assert_int_equal(scene_builder_policy(builder, &other), 0);
	assert_int_equal(scene_builder_take(builder, &scene, false), 0);
	assert_int_equal(scene.roots, 0);
}

TEST(in_a_namespace_other_processes_are_hidden)
{
	tree_remove(&tree, "proc/self");
	tree_put(&tree, "proc/self/ns/pid", "-> pid:[4026532001]");
	first_scene_of("container");
	assert_true(scene.gpu[0].hidden);
	assert_true(scene.gpu[0].used_bytes > 50 * GIB); /* memory of hidden processes */
}

/* Builds a scene as the first process of a namespace; returns its findings as a number. */
static int build_as_first_process(void)
{
	char place[128];

	snprintf(place, sizeof(place), "%s/proc", tree.path);
	tree_remove(&tree, "proc");
	if (mkdir(place, 0755) < 0 || mount("proc", place, "proc", 0, NULL) < 0)
		return 77;
	sim_open_with(tree.path, 0, 0);
	if (scene_builder_new(sim.ctx, &policy, &builder) != 0 ||
	    scene_builder_take(builder, &scene, false) != 0)
		return 1;
	if (!scene.gpu[0].hidden || scene.gpu[0].used_bytes < 2 * GIB)
		return 2;
	return scene.processes == 1 && scene.process[0].self ? 0 : 3;
}

TEST(in_a_real_namespace_we_see_only_ourselves)
{
	/* valgrind replaces the exit status of a child that did not free its memory */
	int *found = mmap(NULL, sizeof(*found), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t child;
	int status;

	assert_ptr_not_equal(found, MAP_FAILED);
	*found = 4;
	sim_text(GPU ON(1, "1 MiB")); /* this process; the driver translates its pid to 1 */
	sim_process(0, 3999999, 3 * GIB, 0);
	child = fork();
	if (child == 0) {
		if (unshare(CLONE_NEWPID | CLONE_NEWNS) < 0 ||
		    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
			*found = 77;
		else if (fork() == 0)
			*found = build_as_first_process();
		else
			wait(NULL);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	status = *found;
	munmap(found, sizeof(*found));
	if (status == 77)
		skip(); /* a namespace is not allowed here */
	assert_int_equal(status, 0);
}

TEST(outside_a_namespace_nothing_is_hidden)
{
	tree_remove(&tree, "proc/self");
	tree_put(&tree, "proc/self/ns/pid", "-> pid:[4026531836]");
	first_scene(GPU);
	assert_false(scene.gpu[0].hidden);
}

/* An old driver lists pids of the host. In this namespace, other processes may have these
 * pids. */
TEST(pids_of_the_host_are_not_looked_up_in_our_namespace)
{
	static const struct {
		const char *version;
		bool foreign;
	} rows[] = { { "535.54.03", true },
		     { "525.147.05", true },
		     { "535.113.01", false },
		     { "580.159.04", false } };

	tree_remove(&tree, "proc/self");
	tree_put(&tree, "proc/self/ns/pid", "-> pid:[4026532001]");
	put_process(500, 1, 50, "/usr/bin/ours", SESSION);
	for (unsigned i = 0; i < COUNT_OF(rows); i++) {
		char text[256];

		snprintf(text, sizeof(text),
			 "[driver]\nversion = \"%s\"\n" GPU ON(500, "2 GiB"), rows[i].version);
		first_scene(text);
		assert_int_equal(scene.processes, 1);
		assert_int_equal(class_of(500),
				 rows[i].foreign ? CLASS_ORPHAN : CLASS_CONTENDER);
		scene_builder_free(builder);
		builder = NULL;
		sim_close();
	}
}

TEST(eleven_errors_in_a_row_make_a_gpu_blind)
{
	first_scene(GPU GPU ON(4100001, "1 GiB"));
	sim_fault("nvmlDeviceGetComputeRunningProcesses_v3", 1, 999);
	sim_fault("nvmlDeviceGetGraphicsRunningProcesses_v3", 1, 999);
	sim_fault("nvmlDeviceGetMPSComputeRunningProcesses_v3", 1, 999);
	for (unsigned i = 1; i <= SCENE_BLIND_ERRORS + 2; i++) {
		take_after(100 * NS_PER_MS);
		assert_int_equal(scene.gpu[1].errors, i);
		assert_int_equal(scene.gpu[1].health,
				 i > SCENE_BLIND_ERRORS ? SCENE_BLIND : SCENE_OK);
		assert_int_equal(scene.gpu[0].errors, 0);
		assert_int_equal(scene.processes, 0);
	}
	sim_fault("nvmlDeviceGetComputeRunningProcesses_v3", 1, 0);
	sim_fault("nvmlDeviceGetGraphicsRunningProcesses_v3", 1, 0);
	sim_fault("nvmlDeviceGetMPSComputeRunningProcesses_v3", 1, 0);
	take();
	assert_int_equal(scene.gpu[1].errors, 0);
	assert_int_equal(scene.gpu[1].health, SCENE_OK);
	assert_int_equal(scene.processes, 1);
}

TEST(a_forbidden_list_hides_processes_and_is_no_error)
{
	open_builder(GPU);
	sim_fault("nvmlDeviceGetComputeRunningProcesses_v3", 0, 4); /* no permission */
	sim_fault("nvmlDeviceGetGraphicsRunningProcesses_v3", 0, 4);
	sim_fault("nvmlDeviceGetMPSComputeRunningProcesses_v3", 0, 4);
	take();
	assert_true(scene.gpu[0].hidden);
	assert_int_equal(scene.gpu[0].errors, 0);
}

TEST(only_the_lost_gpu_is_lost_and_it_comes_back)
{
	first_scene_of("lost-gpu");
	assert_int_equal(scene.gpu[1].health, SCENE_OK);
	take_after(6 * NS_PER_S);
	assert_int_equal(scene.gpu[0].health, SCENE_OK);
	assert_int_equal(scene.gpu[1].health, SCENE_LOST);
	assert_false(scene.gpu[1].memory_known);
	for (unsigned i = 0; i < 60 && scene.gpu[1].health != SCENE_OK; i++)
		take_after(NS_PER_S);
	assert_int_equal(scene.gpu[1].health, SCENE_OK);
	assert_int_equal(scene.gpu[1].errors, 0);
}

TEST(only_the_gpu_with_a_hung_list_is_hung)
{
	sim_text(GPU ON(4100001, "1 GiB") GPU ON(4100002, "1 GiB"));
	sim_open_with(tree.path, 0, 300 * NS_PER_MS);
	assert_int_equal(scene_builder_new(sim.ctx, &policy, &builder), 0);
	take();
	assert_int_equal(scene.processes, 2);
	sim_hang("nvmlDeviceGetComputeRunningProcesses_v3", 1);
	take();
	assert_int_equal(scene.gpu[0].health, SCENE_OK);
	assert_int_equal(scene.gpu[1].health, SCENE_HUNG);
	assert_int_equal(scene.processes, 1);
	sim_unhang();
	assert_true(call_thread_wait(sim.ctx->slot[1]->thread,
				     clock_mono_ns(clock_real()) + 60 * NS_PER_S));
	take();
	assert_int_equal(scene.gpu[1].health, SCENE_OK);
	assert_int_equal(scene.processes, 2);
}

TEST(a_hung_utilisation_query_is_hung)
{
	sim_text(GPU ON(4100001, "1 GiB"));
	sim_open_with(tree.path, 0, 300 * NS_PER_MS);
	assert_int_equal(scene_builder_new(sim.ctx, &policy, &builder), 0);
	take();
	sim_hang("nvmlDeviceGetProcessUtilization", 0);
	assert_int_equal(scene_builder_take(builder, &scene, true), 0);
	assert_int_equal(scene.gpu[0].health, SCENE_HUNG);
	scene_builder_free(builder); /* the call still writes, but not into freed memory */
	builder = NULL;
	sim_unhang();
	assert_true(call_thread_wait(sim.ctx->slot[0]->thread,
				     clock_mono_ns(clock_real()) + 60 * NS_PER_S));
}

TEST(a_sleeping_gpu_stays_asleep)
{
	static const struct tree_row pci[] = {
		{ "vendor", "0x10de\n" },
		{ "class", "0x030000\n" },
		{ "power/runtime_status", "suspended\n" },
		{ 0 },
	};

	tree_fill(&tree, "sys/bus/pci/devices/0000:01:00.0/", pci);
	sim_text(GPU);
	sim_open_with(tree.path, 0, 0);
	assert_int_equal(scene_builder_new(sim.ctx, &policy, &builder), 0);
	for (unsigned i = 0; i < 20; i++) {
		take();
		sim_step(NS_PER_S);
	}
	assert_int_equal(scene.gpus, 1);
	assert_int_equal(scene.gpu[0].health, SCENE_ASLEEP);
	assert_int_equal(scene.gpu[0].errors, 0);
	assert_int_equal(sim_calls("nvmlInit_v2"), 0);
}

TEST(a_discharging_battery_is_reported)
{
	tree_put(&tree, "proc/meminfo",
		 "MemTotal: 2000 kB\nMemFree: 10 kB\nMemAvailable: 1000 kB\n");
	tree_put(&tree, "sys/class/power_supply/BAT0/type", "Battery\n");
	tree_put(&tree, "sys/class/power_supply/BAT0/status", "Discharging\n");
	tree_put(&tree, "sys/class/power_supply/AC/type", "Mains\n");
	tree_put(&tree, "sys/class/power_supply/AC/online", "0\n");
	first_scene(GPU);
	assert_true(scene.on_battery);
	assert_int_equal(scene.host_free_bytes, 1000 * 1024);
	tree_put(&tree, "sys/class/power_supply/AC/online", "1\n");
	take_after(5 * NS_PER_S);
	assert_false(scene.on_battery);
}

TEST(the_battery_of_a_mouse_does_not_count)
{
	tree_put(&tree, "sys/class/power_supply/hid/type", "Battery\n");
	tree_put(&tree, "sys/class/power_supply/hid/scope", "Device\n");
	tree_put(&tree, "sys/class/power_supply/hid/status", "Discharging\n");
	first_scene(GPU);
	assert_false(scene.on_battery);
}

TEST(the_offset_of_local_time_is_reported)
{
	setenv("TZ", "XST-5:30", 1);
	tzset();
	first_scene(GPU);
	unsetenv("TZ");
	tzset();
	assert_int_equal(scene.utc_offset_s, 5 * 3600 + 1800);
}

TEST(later_scenes_allocate_nothing)
{
	unsigned before;

	worker("w")->port = 11434;
	worker("v")->name = "server";
	tree_put(&tree, "proc/net/tcp", TCP_HEAD TCP_ROW("0100007F:2CAA", "0A", "333"));
	put_process(500, 1, 50, "/srv/server", SESSION);
	tree_put(&tree, "proc/500/fd/3", "-> socket:[333]");
	open_builder(GPU ON(500, "1 GiB") "[[gpu.process]]\ncount = 300\n");
	assert_int_equal(scene_builder_take(builder, &scene, true), 0);
	sim_step(20 * NS_PER_S);
	assert_int_equal(scene_builder_take(builder, &scene, true), 0);
	before = allocations;
	for (unsigned i = 0; i < 100; i++) {
		sim_step(NS_PER_S);
		assert_int_equal(scene_builder_take(builder, &scene, i & 1), 0);
	}
	assert_int_equal(allocations, before);
	assert_int_equal(scene.processes, 301);
}

static uint64_t calls_of(const char *name)
{
	struct call_cost cost[CALL_COST_CALLS];
	unsigned n = call_cost_list(sim.ctx, cost, CALL_COST_CALLS);

	for (unsigned i = 0; i < n; i++)
		if (strcmp(cost[i].name, name) == 0)
			return cost[i].count;
	return 0;
}

#define LISTS  calls_of("nvmlDeviceGetComputeRunningProcesses_v3")
#define MEMORY calls_of("nvmlDeviceGetMemoryInfo_v2")
#define POWER  calls_of("nvmlDeviceGetPowerUsage")

static void take_every_100_ms(unsigned n)
{
	while (n-- > 0)
		take_after(100 * NS_PER_MS);
}

TEST(while_nothing_changes_little_but_memory_is_read)
{
	uint64_t lists, memory, power;

	put_process(4100001, 1, 5, "/usr/bin/game", SESSION);
	open_builder(GPU ON(4100001, "1 GiB"));
	take_every_100_ms(30);
	lists = LISTS;
	memory = MEMORY;
	power = POWER;
	take_every_100_ms(100);
	assert_int_equal(MEMORY - memory, 100);
	/* lists are read every half second and with each full scene */
	assert_in_range(LISTS - lists, 15, 31);
	/* power is read only with full scenes, once a second */
	assert_in_range(POWER - power, 9, 11);
	assert_int_equal(scene.processes, 1);
	assert_int_equal(scene.process[0].bytes, GIB);
	assert_true(scene.gpu[0].memory_known);
}

TEST(processes_appear_and_disappear_with_the_next_scene)
{
	put_process(4100001, 1, 5, "/usr/bin/game", SESSION);
	put_process(4100002, 1, 5, "/usr/bin/other", SESSION);
	open_builder(GPU ON(4100001, "1 GiB")
			     ON(4100002, "2 GiB") "from = 5.05\nuntil = 8.05\n");
	for (unsigned i = 1; i <= 100; i++) {
		double now_s = i * 0.1;
		bool there = now_s > 5.05 && now_s < 8.05;

		take_every_100_ms(1);
		assert_int_equal(process(4100002) != NULL, there);
		assert_int_equal(scene.gpu[0].used_bytes > 2 * GIB, there);
	}
}

TEST(a_trigger_reads_the_lists)
{
	uint64_t lists;

	tree_put(&tree, "dev/nvidia0", "");
	open_builder(GPU ON(4100001, "1 GiB"));
	take_every_100_ms(30);
	take_after(PROCESS_CACHE_ORPHAN_NS); /* a full scene */
	sim_step(NS_PER_MS);
	lists = LISTS;
	take();
	assert_int_equal(LISTS, lists);
	close(openat(tree.root.fd, "dev/nvidia0", O_RDONLY));
	assert_true(scene_builder_triggered(builder));
	take();
	assert_int_equal(LISTS, lists + 1);
}

TEST(utilisation_is_read_twice_a_second_and_is_in_each_scene)
{
	uint64_t asked;

	put_process(4100001, 1, 5, "/usr/bin/game", SESSION);
	open_builder(GPU
		     "[[gpu.load]]\nkind = \"constant\"\nlevel = 0.5\n" ON(4100001, "1 GiB"));
	sim_step(10 * NS_PER_S);
	asked = calls_of("nvmlDeviceGetProcessUtilization");
	for (unsigned i = 0; i < 50; i++) {
		sim_step(100 * NS_PER_MS);
		assert_int_equal(scene_builder_take(builder, &scene, true), 0);
		assert_true(scene.process[0].sm_ratio > 0.3);
	}
	assert_in_range(calls_of("nvmlDeviceGetProcessUtilization") - asked, 10, 11);
}

TEST(without_memory_it_fails_and_nothing_leaks)
{
	int err = -GW_E_NOMEM;

	worker("w")->command = "x+";
	sim_text(GPU);
	sim_open_with(tree.path, 0, 0);
	for (unsigned n = 1; err == -GW_E_NOMEM; n++) {
		allocations = 0;
		fail_at = n;
		err = scene_builder_new(sim.ctx, &policy, &builder);
		fail_at = 0;
		assert_true(err == 0 || n < 20);
	}
	assert_int_equal(err, 0);
	allocations = 0;
	fail_at = 1;
	assert_int_equal(scene_builder_policy(builder, &policy), -GW_E_NOMEM);
	fail_at = 0;
	take(); /* the scene was built with the old policy */
	assert_int_equal(scene.gpus, 1);
}

static void touch(const char *path)
{
	if (!tree_open(&tree, path))
		skip();
}

static bool waits(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

/* True if an event triggers a scene after a pause without events. */
static bool triggered(void)
{
	sim_step(2 * NS_PER_S);
	return scene_builder_triggered(builder);
}

TEST(opening_a_gpu_triggers_once)
{
	struct scene_builder_stats stats;

	tree_node(&tree, "dev/nvidia0");
	tree_node(&tree, "dev/nvidia-uvm");
	tree_node(&tree, "dev/dri/renderD128");
	tree_node(&tree, "dev/null");
	tree_put(&tree, "dev/nvidia-caps/nvidia-cap1", "");
	open_builder(GPU);
	scene_builder_stats(builder, &stats);
	assert_int_equal(stats.nodes, 3);
	assert_false(waits(scene_builder_watch_fd(builder)));
	assert_false(triggered());
	touch("dev/null");
	assert_false(triggered());
	for (unsigned i = 0; i < 90; i++)
		touch(i & 1 ? "dev/nvidia0" : "dev/dri/renderD128");
	assert_true(waits(scene_builder_watch_fd(builder)));
	assert_true(triggered());
	assert_false(waits(scene_builder_watch_fd(builder)));
	assert_false(triggered());
	touch("dev/nvidia-uvm");
	assert_true(triggered());
}

TEST(many_opens_trigger_at_most_ten_times_a_second)
{
	unsigned triggers = 0;

	tree_node(&tree, "dev/nvidia0");
	open_builder(GPU);
	touch("dev/nvidia0");
	assert_true(scene_builder_triggered(builder)); /* the first event triggers at once */
	assert_int_equal(scene_builder_trigger_due_ns(builder), 0);
	touch("dev/nvidia0");
	assert_false(scene_builder_triggered(builder));
	assert_int_equal(scene_builder_trigger_due_ns(builder),
			 sim_mono(NULL) + WATCH_SPACING_NS);
	sim_step(WATCH_SPACING_NS);
	assert_true(scene_builder_triggered(builder)); /* the second event is not lost */
	assert_false(scene_builder_triggered(builder));
	for (unsigned i = 0; i < 1000; i++) {
		sim_step(NS_PER_MS);
		touch("dev/nvidia0");
		triggers += scene_builder_triggered(builder);
	}
	assert_in_range(triggers, 9, 12);
}

TEST(a_node_removed_and_made_again_is_watched_again)
{
	tree_node(&tree, "dev/nvidia0");
	open_builder(GPU);
	for (unsigned i = 0; i < 3; i++) {
		unlinkat(tree.root.fd, "dev/nvidia0", 0);
		triggered();
		tree_node(&tree, "dev/nvidia0");
		assert_true(triggered()); /* a new node triggers, too */
		assert_false(triggered());
		touch("dev/nvidia0");
		assert_true(triggered());
	}
	tree_node(&tree, "dev/other");
	assert_false(triggered());
}

TEST(nodes_that_come_later_are_watched)
{
	tree_put(&tree, "dev/null", "");
	open_builder(GPU);
	tree_node(&tree, "dev/nvidia1");
	tree_node(&tree, "dev/dri/renderD129"); /* the folder is new, too */
	assert_true(triggered());
	triggered();
	touch("dev/dri/renderD129");
	assert_true(triggered());
	unlinkat(tree.root.fd, "dev/dri/renderD129", 0);
	unlinkat(tree.root.fd, "dev/dri", AT_REMOVEDIR);
	triggered();
	tree_node(&tree, "dev/dri/renderD129");
	triggered();
	touch("dev/dri/renderD129");
	assert_true(triggered());
}

TEST(an_overflow_of_events_triggers)
{
	tree_node(&tree, "dev/nvidia0");
	open_builder(GPU);
	/* each touch causes two events; the queue holds 16384 */
	for (unsigned i = 0; i < 10000; i++)
		touch("dev/nvidia0");
	assert_true(triggered());
	assert_false(triggered());
	touch("dev/nvidia0");
	assert_true(triggered());
}

TEST(a_machine_without_gpus_is_an_empty_scene)
{
	first_scene_of("no-gpu");
	assert_int_equal(scene.gpus, 0);
	assert_int_equal(scene.processes, 0);
	assert_false(triggered());
	scene_builder_free(NULL);
}

TEST_MAIN(sim_setup, NULL)
