/* Scenes out of the simulator and of small /proc trees: who is seen, whose it is, what cannot be read,
 * and what makes us look. */
#include "simtest.h"
#include "tree.h"

#include "device/call_cost.h"
#include "guard/scene_builder.h"
#include "guard/device_node_watch.h"
#include "guard/worker_finder.h"
#include "guard/process_cache.h"

#include <arpa/inet.h>
#include <math.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#define MIB  (UINT64_C(1) << 20)
#define GIB  (UINT64_C(1) << 30)
#define TAIL "1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 "

/* ---- what is allocated ---- */

static atomic_uint allocations;
static unsigned fail_at; /* the allocation that fails; 0: none */

static bool fails(void)
{
	return ++allocations == fail_at;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t m);
void *__real_realloc(void *p, size_t n);
char *__real_strdup(const char *s);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t m);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *s);

void *__wrap_malloc(size_t n)
{
	return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t m)
{
	return fails() ? NULL : __real_calloc(n, m);
}

void *__wrap_realloc(void *p, size_t n)
{
	return fails() ? NULL : __real_realloc(p, n);
}

char *__wrap_strdup(const char *s)
{
	return fails() ? NULL : __real_strdup(s);
}

/* ---- a world ---- */

static struct tree tree;
static struct policy policy;
static struct scene scene;
static struct verdict verdict[SCENE_PROCESSES];
static struct scene_builder *look;

static int begin(void **state)
{
	(void)state;
	memset(&policy, 0, sizeof(policy));
	memset(&scene, 0xA5, sizeof(scene)); /* whatever it held */
	policy.unknown_contends = true;
	look = NULL;
	tree_init(&tree);
	tree_put(&tree, "proc/self", "-> 77");
	return 0;
}

static int end(void **state)
{
	scene_builder_free(look);
	look = NULL;
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

static void open_look(const char *scenario_text)
{
	sim_text(scenario_text);
	sim_open_with(tree.path, 0, 0);
	assert_int_equal(scene_builder_new(sim.ctx, &policy, &look), 0);
}

static void take(void)
{
	assert_int_equal(scene_builder_take(look, &scene, false), 0);
	classify(&policy, &scene, verdict);
}

static bool unknown(double v)
{
	return isnan(v) != 0;
}

static const struct scene_process *process(int64_t pid)
{
	for (unsigned i = 0; i < scene.processes; i++)
		if (scene.process[i].pid == pid)
			return &scene.process[i];
	return NULL;
}

static enum guard_class class_of(int64_t pid)
{
	const struct scene_process *p = process(pid);

	assert_non_null(p);
	return verdict[p - scene.process].class;
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

/* ---- GPUs and lists ---- */

static void a_game_starts_and_is_seen_with_its_bytes(void **state)
{
	const struct scene_process *p;

	(void)state;
	sim_scenario("game-start");
	sim_open_with(tree.path, 0, 0);
	assert_int_equal(scene_builder_new(sim.ctx, &policy, &look), 0);
	take();
	assert_int_equal(scene.gpus, 1);
	assert_int_equal(scene.processes, 2);
	assert_true(scene.gpu[0].simulated && scene.gpu[0].memory_known);
	assert_int_equal(scene.gpu[0].health, SCENE_OK);
	assert_false(unknown(scene.gpu[0].temperature_c));
	assert_non_null(strstr(scene.gpu[0].uuid, "GPU-"));
	assert_true(scene.gpu[0].used_bytes >= 18 * GIB);
	assert_true(scene.gpu[0].used_bytes + scene.gpu[0].free_bytes <=
		    scene.gpu[0].total_bytes);
	assert_string_equal(scene.process[0].name, "ollama");
	assert_false(scene.process[0].orphan);
	assert_true(unknown(scene.process[0].sm_ratio));
	sim_step(12 * NS_PER_S);
	take();
	assert_int_equal(scene.processes, 3);
	p = &scene.process[2];
	assert_string_equal(p->name, "game.exe");
	assert_int_equal(p->type, GW_PROCESS_GRAPHICS);
	assert_true(p->bytes_known && p->bytes > 300 * MIB);
	assert_int_equal(verdict[2].class, CLASS_CONTENDER);
	assert_int_equal(verdict[1].class, CLASS_SYSTEM); /* Xorg */
}

static void memory_shared_with_the_host_is_not_known(void **state)
{
	(void)state;
	sim_scenario("shared-memory");
	sim_open_with(tree.path, 0, 0);
	assert_int_equal(scene_builder_new(sim.ctx, &policy, &look), 0);
	take();
	assert_int_equal(scene.gpus, 1);
	assert_false(scene.gpu[0].memory_known);
	assert_int_equal(scene.gpu[0].errors, 0); /* which is no failure */
	assert_int_equal(scene.processes, 1);
	assert_int_equal(scene.process[0].bytes, 40 * GIB);
}

/* A5 */
static void a_process_of_two_lists_is_one_and_unknown_bytes_are_none(void **state)
{
	(void)state;
	open_look(GPU "[[gpu.process]]\npid = 4100001\ntype = \"both\"\nmemory = \"3 GiB\"\n"
		      "[[gpu.process]]\npid = 4100002\nno_memory = true\n");
	take();
	assert_int_equal(scene.processes, 2);
	assert_int_equal(process(4100001)->type, GW_PROCESS_COMPUTE | GW_PROCESS_GRAPHICS);
	assert_int_equal(process(4100001)->bytes, 3 * GIB);
	assert_false(process(4100002)->bytes_known);
	assert_int_equal(process(4100002)->bytes, 0);
}

/* So many, of which the last holds most. */
static void look_at_many(unsigned count)
{
	char text[256] = GPU;

	if (count > 1)
		snprintf(text, sizeof(text),
			 GPU "[[gpu.process]]\nmemory = \"1 MiB\"\ncount = %u\n", count - 1);
	if (count > 0)
		strcat(text, ON(4300000, "9 GiB"));
	open_look(text);
	take();
	assert_int_equal(scene.processes, count < SCENE_PROCESSES ? count : SCENE_PROCESSES);
	assert_int_equal(scene.left_out, count - scene.processes);
	if (count > 0) /* not pushed out by the small ones */
		assert_int_equal(process(4300000)->bytes, 9 * GIB);
	scene_builder_free(look);
	look = NULL;
	sim_close();
}

static void any_number_of_processes_is_borne(void **state)
{
	static const unsigned counts[] = { 0, 1, 200, 2000 };

	(void)state;
	for (unsigned i = 0; i < 4; i++)
		look_at_many(counts[i]);
}

static void a_crowd_that_comes_and_goes_is_followed(void **state)
{
	(void)state;
	sim_scenario("crowd");
	sim_open_with(tree.path, 0, 0);
	assert_int_equal(scene_builder_new(sim.ctx, &policy, &look), 0);
	take();
	assert_int_equal(scene.processes, 80 + 1 + 8);
	sim_step(2 * NS_PER_S);
	take();
	assert_int_equal(process(4200000)->bytes, 300 * MIB);
	sim_step(3 * NS_PER_S);
	take();
	assert_int_equal(process(4200000)->bytes, 900 * MIB);
}

static void names_that_hurt_are_cleaned(void **state)
{
	(void)state;
	sim_scenario("odd-names");
	sim_open_with(tree.path, 0, 0);
	assert_int_equal(scene_builder_new(sim.ctx, &policy, &look), 0);
	take();
	assert_int_equal(scene.gpus, 3);
	assert_string_equal(scene.process[0].name, "a b?c\"d\\e<scrip");
}

static void a_thread_and_its_process_are_one(void **state)
{
	(void)state;
	put_process(4100001, 1, 5, "/usr/bin/game", SESSION);
	put_process(4100009, 1, 6, "/usr/bin/game", SESSION);
	tree_put(&tree, "proc/4100009/status", "Tgid:\t4100001\nUid:\t1\t1\t1\t1\n");
	open_look(GPU ON(4100009, "2 GiB") ON(4100001, "3 GiB"));
	take();
	assert_int_equal(scene.processes, 1);
	assert_int_equal(scene.process[0].pid, 4100001);
	assert_int_equal(scene.process[0].start_ticks, 5);
	assert_int_equal(scene.process[0].bytes, 3 * GIB);
}

static void a_process_on_two_instances_of_a_board_holds_the_sum(void **state)
{
	(void)state;
	put_process(4100001, 1, 5, "/usr/bin/game", SESSION);
	open_look(GPU "[[gpu.process]]\npid = 4100001\ngpu_instance = 1\nmemory = \"1 GiB\"\n"
		      "[[gpu.process]]\npid = 4100001\ngpu_instance = 2\nmemory = \"2 GiB\"\n");
	take();
	assert_int_equal(scene.processes, 1);
	assert_int_equal(scene.process[0].bytes, 3 * GIB);
}

static void how_busy_each_was_is_told_when_asked(void **state)
{
	(void)state;
	open_look(GPU "[[gpu.load]]\nkind = \"constant\"\nlevel = 0.8\n"
		      "[[gpu.process]]\npid = 4100001\nshare = 1.0\n");
	sim_step(10 * NS_PER_S);
	assert_int_equal(scene_builder_take(look, &scene, true), 0);
	assert_true(scene.process[0].sm_ratio > 0.3 && scene.process[0].sm_ratio <= 1);
	assert_int_equal(scene_builder_take(look, &scene, false), 0);
	assert_true(unknown(scene.process[0].sm_ratio));
}

/* ---- identity ---- */

/* A6 */
static void a_number_used_again_is_somebody_else(void **state)
{
	(void)state;
	put_process(4100001, 1, 5, "/usr/bin/first", SESSION);
	open_look(GPU ON(4100001, "1 GiB"));
	take();
	assert_string_equal(scene.process[0].name, "first");
	assert_string_equal(scene.process[0].exe, "/usr/bin/first");
	assert_string_equal(scene.process[0].cgroup, SESSION);
	assert_int_equal(scene.process[0].uid, 1000);
	put_process(4100001, 1, 6, "/usr/bin/second", SESSION);
	take();
	assert_string_equal(scene.process[0].name, "second");
	assert_int_equal(scene.process[0].start_ticks, 6);
}

static void a_process_that_became_another_program_is_seen_as_that(void **state)
{
	(void)state;
	put_process(4100001, 1, 5, "/usr/bin/sh", SESSION);
	open_look(GPU ON(4100001, "1 GiB"));
	take();
	put_process(4100001, 1, 5, "/usr/bin/game", SESSION);
	sim_step(PROCESS_CACHE_REFRESH_YOUNG_NS);
	take();
	assert_string_equal(scene.process[0].exe, "/usr/bin/game");
}

static void one_that_has_just_gone_is_counted_and_only_later_an_orphan(void **state)
{
	struct scene_builder_stats stats;

	(void)state;
	put_process(4100001, 1, 5, "/usr/bin/game", SESSION);
	open_look(GPU ON(4100001, "1 GiB"));
	take();
	tree_remove(&tree, "proc/4100001");
	take();
	assert_int_equal(scene.processes, 0);
	scene_builder_stats(look, &stats);
	assert_int_equal(stats.vanished, 1);
	sim_step(PROCESS_CACHE_ORPHAN_NS);
	take();
	assert_int_equal(class_of(4100001), CLASS_ORPHAN);
	assert_int_equal(process(4100001)->bytes, GIB);
	put_process(4100001, 1, 9, "/usr/bin/next", SESSION);
	take();
	assert_int_equal(class_of(4100001), CLASS_CONTENDER);
}

static void the_memory_of_processes_never_overflows(void **state)
{
	struct process_cache *t;
	uint64_t now = NS_PER_S;

	(void)state;
	assert_int_equal(process_cache_new(&tree.root, NULL, &t), 0);
	for (int64_t round = 0; round < 5; round++, now += 100 * NS_PER_MS)
		for (int64_t i = 1; i <= SCENE_PROCESSES; i++)
			assert_non_null(process_cache_find(t, round * 100000 + i, now));
	assert_non_null(process_cache_find(t, 1, now));
	for (int64_t i = 2; i <= SCENE_PROCESSES; i++)
		assert_non_null(process_cache_find(t, i, now));
	assert_null(process_cache_find(t, 99999, now)); /* one too many at once */
	process_cache_forget(t, now + PROCESS_CACHE_FORGET_NS + 1);
	assert_non_null(process_cache_find(t, 99999, now + PROCESS_CACHE_FORGET_NS + 1));
	process_cache_free(t);
}

/* ---- whose it is ---- */

/* A2 */
static void a_tree_by_pidfile_is_never_a_contender(void **state)
{
	(void)state;
	worker("w")->pidfile = "/run/w.pid";
	tree_put(&tree, "run/w.pid", "500\n");
	put_process(500, 1, 50, "/usr/bin/python3", SESSION);
	put_process(501, 500, 51, "/usr/bin/python3", SESSION);
	put_process(502, 501, 52, "/usr/bin/python3", SESSION);
	put_process(600, 1, 60, "/usr/bin/python3", SESSION);
	open_look(GPU ON(500, "1 GiB") ON(501, "1 GiB") ON(502, "1 GiB") ON(600, "1 GiB"));
	take();
	assert_int_equal(scene.roots, 1);
	assert_int_equal(scene.root[0].pid, 500);
	assert_int_equal(scene.root[0].start_ticks, 50);
	for (int64_t pid = 500; pid <= 502; pid++)
		assert_int_equal(class_of(pid), CLASS_WORKER);
	assert_int_equal(class_of(600), CLASS_CONTENDER);
}

static void a_child_whose_parents_died_stays_the_workers(void **state)
{
	(void)state;
	worker("w")->pidfile = "/run/w.pid";
	tree_put(&tree, "run/w.pid", "500\n");
	put_process(500, 1, 50, "/usr/bin/server", SESSION);
	put_process(501, 500, 51, "/usr/bin/sh", SESSION);
	put_process(502, 501, 52, "/usr/bin/runner", SESSION);
	open_look(GPU ON(502, "1 GiB"));
	take();
	assert_int_equal(class_of(502), CLASS_WORKER);
	put_process(502, 1, 52, "/usr/bin/runner", SESSION); /* setsid, and adopted by init */
	tree_remove(&tree, "proc/501");
	sim_step(PROCESS_CACHE_REFRESH_YOUNG_NS);
	take();
	assert_int_equal(process(502)->ancestor[0], 1);
	assert_int_equal(class_of(502), CLASS_WORKER);
	tree_remove(&tree, "proc/500");
	sim_step(PROCESS_CACHE_REFRESH_YOUNG_NS);
	take();
	assert_int_equal(class_of(502), CLASS_WORKER);
	put_process(502, 1, 99, "/usr/bin/runner", SESSION); /* another, by the same number */
	take();
	assert_int_equal(class_of(502), CLASS_CONTENDER);
}

static void a_member_of_a_units_group_is_the_workers(void **state)
{
	(void)state;
	worker("w")->unit = "w.service";
	put_process(500, 1, 50, "/usr/bin/w", SLICE);
	put_process(502, 1, 52, "/usr/bin/runner", SLICE "/models");
	put_process(600, 1, 60, "/usr/bin/runner", SESSION);
	open_look(GPU ON(502, "1 GiB") ON(600, "1 GiB"));
	take();
	assert_int_equal(class_of(502), CLASS_WORKER);
	assert_int_equal(class_of(600), CLASS_CONTENDER);
	assert_int_equal(scene.roots, 2); /* found though one of them is on no GPU */
	assert_int_equal(scene.root[0].pid + scene.root[1].pid, 500 + 502);
}

static void a_stale_pidfile_names_nobody(void **state)
{
	(void)state;
	worker("w")->pidfile = "/run/w.pid";
	tree_put(&tree, "run/w.pid", "500\n");
	put_process(500, 1, 50, "/usr/bin/w", SESSION);
	open_look(GPU ON(500, "1 GiB"));
	take();
	assert_int_equal(class_of(500), CLASS_WORKER);
	put_process(500, 1, 70, "/usr/bin/game", SESSION); /* the number was given away */
	sim_step(2 * NS_PER_S);
	take();
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

/* The machine began at 1000000 s; a tick is 10 ms. */
static void one_younger_than_the_pidfile_did_not_write_it(void **state)
{
	(void)state;
	worker("w")->pidfile = "/run/w.pid";
	tree_put(&tree, "proc/stat", "cpu 1 2 3\nbtime 1000000\n");
	tree_put(&tree, "run/w.pid", "500\n");
	write_at("run/w.pid", 1000100);
	put_process(500, 1, 10200, "/usr/bin/game", SESSION); /* 2 s later: its number only */
	open_look(GPU ON(500, "1 GiB"));
	take();
	assert_int_equal(class_of(500), CLASS_CONTENDER);
	assert_int_equal(scene_builder_policy(look, &policy), 0);
	take();
	assert_int_equal(class_of(500), CLASS_CONTENDER);
	write_at("run/w.pid", 1000102); /* the clock of files is coarser than ticks */
	sim_step(2 * NS_PER_S);
	take();
	assert_int_equal(class_of(500), CLASS_WORKER);
}

static void who_wrote_a_pidfile_is_known_to_the_next_policy(void **state)
{
	static struct policy next;

	(void)state;
	worker("w")->pidfile = "/run/w.pid";
	tree_put(&tree, "run/w.pid", "500\n");
	put_process(500, 1, 50, "/usr/bin/w", SESSION);
	open_look(GPU ON(500, "1 GiB"));
	take();
	assert_int_equal(class_of(500), CLASS_WORKER);
	put_process(500, 1, 70, "/usr/bin/game", SESSION);
	next = policy;
	next.worker[1] = next.worker[0]; /* it has another place now */
	next.worker[0].match.pidfile = "/run/other.pid";
	next.workers = 2;
	assert_int_equal(scene_builder_policy(look, &next), 0);
	sim_step(2 * NS_PER_S);
	take();
	assert_int_equal(scene.roots, 0);
}

static void neither_the_first_process_nor_one_above_us_is_a_worker(void **state)
{
	static const char *const number[] = { "0\n", "1\n", "70\n", "77\n" };

	(void)state;
	worker("w")->pidfile = "/run/w.pid";
	put_process(1, 0, 1, "/sbin/init", "/");
	put_process(70, 1, 5, "/usr/bin/shell", SESSION);
	put_process(77, 70, 7, "/usr/bin/gpuward", SESSION);
	put_process(90, 1, 9, "/usr/bin/game", SESSION);
	put_process(91, 70, 9, "/usr/bin/game", SESSION);
	tree_put(&tree, "run/w.pid", "1\n");
	open_look(GPU ON(90, "1 GiB") ON(91, "1 GiB"));
	for (size_t i = 0; i < sizeof(number) / sizeof(number[0]); i++) {
		tree_put(&tree, "run/w.pid", number[i]);
		sim_step(2 * NS_PER_S);
		take();
		assert_int_equal(scene.roots, 0);
		assert_int_equal(class_of(90), CLASS_CONTENDER);
		assert_int_equal(class_of(91), CLASS_CONTENDER);
	}
}

#define TCP_HEAD \
	"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt uid\n"
#define TCP_ROW(local, state, inode)                                                           \
	"   0: " local " 00000000:0000 " state " 00000000:00000000 00:00000000 00000000  1000" \
	"        0 " inode " 1 0000000000000000 100 0 0 10 0\n"
#define ANY6 "00000000000000000000000000000000"

static void the_one_that_listens_is_found_by_its_port(void **state)
{
	struct scene_builder_stats before, after;

	(void)state;
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
	tree_put(&tree, "proc/600/fd/3", "-> socket:[111]"); /* a client of it */
	tree_put(&tree, "proc/600/fd/4", "-> socket:[222]");
	open_look(GPU ON(501, "1 GiB") ON(600, "1 GiB"));
	take();
	assert_int_equal(class_of(501), CLASS_WORKER);
	assert_int_equal(class_of(600), CLASS_CONTENDER);
	scene_builder_stats(look, &before);
	for (unsigned i = 0; i < 30; i++) { /* found once, kept while the socket is there */
		sim_step(NS_PER_S);
		take();
	}
	scene_builder_stats(look, &after);
	assert_int_equal(after.searches, before.searches);
	assert_int_equal(class_of(501), CLASS_WORKER);
	tree_put(&tree, "proc/net/tcp6", TCP_HEAD TCP_ROW(ANY6 ":2CAA", "0A", "444"));
	tree_put(&tree, "proc/500/fd/3", "-> pipe:[9]"); /* it closed it, another took over */
	tree_put(&tree, "proc/600/fd/5", "-> socket:[444]");
	sim_step(5 * NS_PER_S);
	take();
	assert_int_equal(class_of(600), CLASS_WORKER);
}

/* Of another user's process a guard without rights sees neither the program nor the open files. */
static void put_unseen(int64_t pid, unsigned start, const char *exe)
{
	char path[64];

	put_process(pid, 1, start, exe, SESSION);
	snprintf(path, sizeof(path), "proc/%lld/exe", (long long)pid);
	tree_remove(&tree, path);
}

static void
one_that_cannot_be_seen_is_no_contender_while_a_worker_of_its_user_is_not_found(void **state)
{
	(void)state;
	worker("w")->port = 0x2CAA;
	tree_put(&tree, "proc/net/tcp", TCP_HEAD TCP_ROW("0100007F:2CAA", "0A", "333"));
	put_unseen(500, 50, "/usr/bin/runner");
	put_unseen(600, 60, "/usr/bin/game");
	tree_put(&tree, "proc/600/status", "Name:\tgame\nTgid:\t600\nUid:\t7\t7\t7\t7\n");
	put_process(700, 1, 70, "/usr/bin/seen", SESSION);
	open_look(GPU ON(500, "1 GiB") ON(600, "1 GiB") ON(700, "1 GiB"));
	take();
	assert_int_equal(class_of(500), CLASS_UNKNOWN);   /* of who listens */
	assert_int_equal(class_of(600), CLASS_CONTENDER); /* of another user */
	assert_int_equal(class_of(700), CLASS_CONTENDER); /* it is seen not to listen */
	tree_put(&tree, "proc/net/tcp", TCP_HEAD); /* nobody listens: there is no worker */
	sim_step(5 * NS_PER_S);
	take();
	assert_int_equal(class_of(500), CLASS_CONTENDER);
}

static void a_socket_that_the_first_process_holds_too_is_the_others(void **state)
{
	(void)state;
	worker("w")->port = 0x2CAA;
	tree_put(&tree, "proc/net/tcp", TCP_HEAD TCP_ROW("0100007F:2CAA", "0A", "333"));
	put_process(1, 0, 1, "/sbin/init", "/");
	put_process(500, 1, 50, "/usr/bin/w", SESSION);
	put_process(600, 1, 60, "/usr/bin/game", SESSION);
	tree_put(&tree, "proc/1/fd/3", "-> socket:[333]");
	tree_put(&tree, "proc/500/fd/3", "-> socket:[333]");
	open_look(GPU ON(500, "1 GiB") ON(600, "1 GiB"));
	take();
	assert_int_equal(class_of(500), CLASS_WORKER);
	assert_int_equal(class_of(600), CLASS_CONTENDER);
}

static void a_worker_that_starts_late_is_found_when_it_is_on_a_gpu(void **state)
{
	(void)state;
	worker("w")->port = 0x2CAA;
	put_process(600, 1, 60, "/usr/bin/other", SESSION);
	open_look(GPU ON(600, "1 GiB"));
	take();
	sim_step(300 * NS_PER_MS);
	tree_put(&tree, "proc/net/tcp", TCP_HEAD TCP_ROW("0100007F:2CAA", "0A", "333"));
	put_process(500, 1, 50, "/usr/bin/w", SESSION);
	tree_put(&tree, "proc/500/fd/3", "-> socket:[333]");
	assert_int_equal(sim_process(0, 500, GIB, 0), 0);
	take(); /* long before it would be asked for again */
	assert_int_equal(class_of(500), CLASS_WORKER);
	assert_int_equal(class_of(600), CLASS_CONTENDER);
}

static void a_worker_on_no_gpu_is_found_by_name_and_a_stranger_is_not(void **state)
{
	(void)state;
	*worker("w") = (struct policy_match){ .uid = -1, .name = "server", .exe = "/srv/*" };
	put_process(500, 1, 50, "/srv/bin/server", SESSION);
	put_process(600, 1, 60, "/home/u/server", SESSION);
	open_look(GPU);
	take();
	assert_int_equal(scene.processes, 0);
	assert_int_equal(scene.roots, 1);
	assert_int_equal(scene.root[0].pid, 500);
	tree_remove(&tree, "proc/500");
	take();
	assert_int_equal(scene.roots, 0);
}

/* ---- who it was, and is not any more ---- */

static unsigned roots_of(enum scene_how how)
{
	unsigned n = 0;

	for (unsigned i = 0; i < scene.roots; i++)
		n += scene.root[i].how == how;
	return n;
}

static void become(int64_t pid, const char *command)
{
	char path[64];

	snprintf(path, sizeof(path), "proc/%lld/cmdline", (long long)pid);
	tree_put(&tree, path, command);
}

/* The same number, start, name and path: only the arguments are others. */
static void one_that_becomes_another_program_is_no_worker(void **state)
{
	(void)state;
	worker("w")->command = "serve --model";
	put_process(500, 1, 50, "/usr/bin/python3", SESSION);
	put_process(501, 500, 51, "/usr/bin/python3", SESSION);
	become(500, "python3 serve --model x");
	open_look(GPU ON(500, "1 GiB") ON(501, "1 GiB"));
	take();
	assert_int_equal(class_of(500), CLASS_WORKER);
	assert_int_equal(class_of(501), CLASS_WORKER);
	become(500, "python3 serve --model y"); /* by another name it is the same */
	sim_step(PROCESS_CACHE_REFRESH_OLD_NS);
	take();
	assert_int_equal(roots_of(ROOT_FOUND), 1);
	become(500, "python3 game");
	sim_step(NS_PER_S);
	take();
	assert_int_equal(roots_of(ROOT_FOUND), 0);
	assert_int_equal(roots_of(ROOT_FORMER), 1);
	sim_step(PROCESS_CACHE_REFRESH_OLD_NS);
	take();
	assert_int_equal(class_of(500), CLASS_CONTENDER);
	assert_int_equal(class_of(501), CLASS_WORKER); /* it was below a worker */
	sim_step(60 * NS_PER_S);
	take();
	assert_int_equal(class_of(500), CLASS_CONTENDER);
	become(500, "python3 serve --model x");
	sim_step(60 * NS_PER_S);
	take();
	assert_int_equal(class_of(500), CLASS_WORKER);
	assert_int_equal(roots_of(ROOT_FORMER), 0);
}

/* What it holds is given back after its arguments are gone. */
static void one_that_is_about_to_end_is_who_it_was(void **state)
{
	(void)state;
	worker("w")->command = "serve";
	put_process(500, 1, 50, "/usr/bin/python3", SESSION);
	become(500, "python3 serve");
	open_look(GPU ON(500, "1 GiB"));
	take();
	become(500, "");
	tree_remove(&tree, "proc/500/exe");
	sim_step(PROCESS_CACHE_REFRESH_OLD_NS);
	take();
	assert_int_equal(class_of(500), CLASS_WORKER);
	assert_int_equal(roots_of(ROOT_FOUND), 1);
	tree_put(&tree, "proc/500/stat", "500 (python3) Z 1 " TAIL "50 1 2\n");
	sim_step(NS_PER_S);
	take();
	assert_int_equal(scene.roots, 0); /* it ended, though nobody has reaped it */
}

static void a_pidfile_that_names_nobody_for_a_moment_loses_nobody(void **state)
{
	static const char *const moment[] = { "", "\n", "no number\n", "4000000\n", NULL };

	(void)state;
	worker("w")->pidfile = "/run/w.pid";
	tree_put(&tree, "run/w.pid", "500\n");
	put_process(500, 1, 50, "/usr/bin/w", SESSION);
	open_look(GPU ON(500, "1 GiB"));
	take();
	for (size_t i = 0; i < sizeof(moment) / sizeof(moment[0]); i++) {
		if (moment[i])
			tree_put(&tree, "run/w.pid", moment[i]);
		else
			tree_remove(&tree, "run/w.pid");
		sim_step(2 * NS_PER_S);
		take();
		assert_int_equal(class_of(500), CLASS_WORKER);
		assert_int_equal(roots_of(ROOT_FOUND), 1);
	}
	become(500, "game"); /* now nothing says that it is the worker */
	sim_step(PROCESS_CACHE_REFRESH_OLD_NS);
	take();
	assert_int_equal(class_of(500), CLASS_CONTENDER);
	assert_int_equal(roots_of(ROOT_FORMER), 1);
}

static void a_pidfile_that_names_another_is_obeyed_at_once(void **state)
{
	(void)state;
	worker("w")->pidfile = "/run/w.pid";
	tree_put(&tree, "run/w.pid", "500\n");
	put_process(500, 1, 50, "/usr/bin/w", SESSION);
	put_process(600, 1, 60, "/usr/bin/w", SESSION);
	open_look(GPU ON(500, "1 GiB") ON(600, "1 GiB"));
	take();
	assert_int_equal(class_of(500), CLASS_WORKER);
	tree_put(&tree, "run/w.pid", "600\n");
	sim_step(2 * NS_PER_S);
	take();
	assert_int_equal(class_of(600), CLASS_WORKER);
	assert_int_equal(class_of(500), CLASS_CONTENDER);
	assert_int_equal(roots_of(ROOT_FOUND), 1);
	assert_int_equal(roots_of(ROOT_FORMER), 1);
	tree_remove(&tree, "proc/500");
	take();
	assert_int_equal(roots_of(ROOT_FORMER), 0);
}

static void a_number_with_a_nul_behind_it_is_none(void **state)
{
	(void)state;
	worker("w")->pidfile = "/run/w.pid";
	tree_bytes(&tree, "run/w.pid", "500\0\n", 5);
	put_process(500, 1, 50, "/usr/bin/w", SESSION);
	open_look(GPU ON(500, "1 GiB"));
	take();
	assert_int_equal(class_of(500), CLASS_CONTENDER);
}

/* All descriptors are taken: nothing can be opened, and nothing is known that was not known before. */
static void a_guard_that_can_open_no_file_loses_nobody(void **state)
{
	static int taken[1 << 16];
	struct rlimit limit, few;
	unsigned n = 0;

	(void)state;
	worker("p")->pidfile = "/run/w.pid";
	worker("l")->port = 0x2CAA;
	worker("n")->command = "third";
	tree_put(&tree, "run/w.pid", "500\n");
	tree_put(&tree, "proc/net/tcp", TCP_HEAD TCP_ROW("0100007F:2CAA", "0A", "333"));
	put_process(500, 1, 50, "/usr/bin/first", SESSION);
	put_process(600, 1, 60, "/usr/bin/second", SESSION);
	put_process(700, 1, 70, "/usr/bin/third", SESSION);
	tree_put(&tree, "proc/600/fd/3", "-> socket:[333]");
	open_look(GPU ON(500, "1 GiB") ON(600, "1 GiB") ON(700, "1 GiB"));
	take();
	assert_int_equal(roots_of(ROOT_FOUND), 3);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	few = limit;
	few.rlim_cur = 256;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	while (n < sizeof(taken) / sizeof(taken[0]) && (taken[n] = dup(0)) >= 0)
		n++;
	for (unsigned i = 0; i < 6; i++) {
		sim_step(PROCESS_CACHE_REFRESH_OLD_NS);
		take();
		assert_int_equal(roots_of(ROOT_FOUND), 3);
		for (int64_t pid = 500; pid <= 700; pid += 100)
			assert_int_equal(class_of(pid), CLASS_WORKER);
		assert_string_equal(process(700)->command, "/usr/bin/third");
		assert_int_equal(process(700)->start_ticks, 70);
		if (i == 3) /* it closed its port, and who listens cannot be read */
			tree_remove(&tree, "proc/600/fd/3");
	}
	while (n > 0)
		close(taken[--n]);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void one_that_closed_its_port_is_the_worker_until_it_ends(void **state)
{
	(void)state;
	worker("w")->port = 0x2CAA;
	tree_put(&tree, "proc/net/tcp", TCP_HEAD TCP_ROW("0100007F:2CAA", "0A", "333"));
	put_process(500, 1, 50, "/usr/bin/w", SESSION);
	put_process(600, 1, 60, "/usr/bin/w", SESSION);
	tree_put(&tree, "proc/500/fd/3", "-> socket:[333]");
	open_look(GPU ON(500, "1 GiB") ON(600, "1 GiB"));
	take();
	tree_put(&tree, "proc/net/tcp", TCP_HEAD);
	tree_remove(&tree, "proc/500/fd/3");
	sim_step(PROCESS_CACHE_REFRESH_OLD_NS);
	take();
	assert_int_equal(class_of(500), CLASS_WORKER);
	tree_put(&tree, "proc/net/tcp", TCP_HEAD TCP_ROW("0100007F:2CAA", "0A", "444"));
	tree_put(&tree, "proc/600/fd/3", "-> socket:[444]");
	sim_step(5 * NS_PER_S);
	take();
	assert_int_equal(class_of(600), CLASS_WORKER);
	assert_int_equal(class_of(500), CLASS_CONTENDER);
	assert_int_equal(roots_of(ROOT_FORMER), 1);
}

static void one_that_closed_its_port_by_becoming_another_is_nobodys(void **state)
{
	(void)state;
	worker("w")->port = 0x2CAA;
	tree_put(&tree, "proc/net/tcp", TCP_HEAD TCP_ROW("0100007F:2CAA", "0A", "333"));
	put_process(500, 1, 50, "/usr/bin/w", SESSION);
	tree_put(&tree, "proc/500/fd/3", "-> socket:[333]");
	open_look(GPU ON(500, "1 GiB"));
	take();
	become(500, "game");
	tree_put(&tree, "proc/net/tcp", TCP_HEAD);
	tree_remove(&tree, "proc/500/fd/3");
	sim_step(NS_PER_S);
	take();
	assert_int_equal(roots_of(ROOT_FOUND), 0);
	assert_int_equal(class_of(500), CLASS_CONTENDER);
}

static void whom_another_policy_does_not_find_is_told_while_it_lives(void **state)
{
	static struct policy wrong;

	(void)state;
	worker("v")->pidfile = "/run/v.pid";
	worker("w")->pidfile = "/run/w.pid";
	tree_put(&tree, "run/w.pid", "500\n");
	put_process(500, 1, 50, "/usr/bin/w", SESSION);
	open_look(GPU ON(500, "1 GiB"));
	take();
	wrong = policy;
	wrong.worker[0] = policy.worker[1];
	wrong.worker[0].match.pidfile = "/run/typo.pid";
	wrong.workers = 1;
	for (unsigned i = 0; i < 3; i++) { /* over more than one of them */
		assert_int_equal(scene_builder_policy(look, &wrong), 0);
		sim_step(NS_PER_S);
		take();
		assert_int_equal(scene.roots, 1);
		assert_int_equal(scene.root[0].how, ROOT_FORMER);
		assert_int_equal(scene.root[0].worker, 0);
		assert_int_equal(scene.root[0].pid, 500);
		assert_int_equal(scene.root[0].start_ticks, 50);
		assert_int_equal(class_of(500), CLASS_CONTENDER);
	}
	assert_int_equal(scene_builder_policy(look, &policy), 0);
	take();
	assert_int_equal(roots_of(ROOT_FOUND), 1);
	assert_int_equal(roots_of(ROOT_FORMER), 0);
	assert_int_equal(class_of(500), CLASS_WORKER);
}

/* Three that a worker was known by in an earlier run: one lives, one has its number from somebody else, one ended. */
static void who_was_known_before_a_restart_is_told_while_it_lives(void **state)
{
	const struct scene_builder_formers known = { .of = { { 0, { 500, 50 } },
							     { 0, { 501, 50 } },
							     { 0, { 502, 50 } },
							     { 99, { 500, 50 } } },
						     .count = 4 };

	(void)state;
	worker("w")->pidfile = "/run/w.pid";
	put_process(500, 1, 50, "/usr/bin/w", SESSION);
	put_process(501, 1, 60, "/usr/bin/other", SESSION);
	open_look(GPU ON(500, "1 GiB"));
	scene_builder_recall(look, &known);
	take();
	assert_int_equal(scene.roots, 1);
	assert_int_equal(scene.root[0].how, ROOT_FORMER);
	assert_int_equal(scene.root[0].pid, 500);
	tree_put(&tree, "run/w.pid", "500\n");
	sim_step(NS_PER_S);
	take();
	assert_int_equal(roots_of(ROOT_FOUND), 1);
	assert_int_equal(roots_of(ROOT_FORMER), 0);
}

/* The same policy, with another worker before it. */
static void read_policy_again(void)
{
	static struct policy again;

	again = policy;
	again.worker[1] = policy.worker[0];
	again.worker[0].name = "new";
	again.worker[0].match.pidfile = "/run/new.pid";
	again.workers = 2;
	assert_int_equal(scene_builder_policy(look, &again), 0);
	sim_step(2 * NS_PER_S);
	assert_int_equal(scene_builder_take(look, &scene, false), 0);
	classify(&again, &scene, verdict);
	assert_int_equal(scene.roots, 1);
	assert_int_equal(scene.root[0].worker, 1);
	assert_int_equal(scene_builder_policy(look, &policy), 0);
	sim_step(2 * NS_PER_S);
	take();
}

static void a_worker_without_its_pidfile_is_kept_over_the_same_policy(void **state)
{
	static const char *const moment[] = { "", "no number\n", NULL };

	(void)state;
	worker("w")->pidfile = "/run/w.pid";
	tree_put(&tree, "run/w.pid", "500\n");
	put_process(500, 1, 50, "/usr/bin/w", SESSION);
	open_look(GPU ON(500, "1 GiB"));
	take();
	for (size_t i = 0; i < sizeof(moment) / sizeof(moment[0]); i++) {
		if (moment[i])
			tree_put(&tree, "run/w.pid", moment[i]);
		else
			tree_remove(&tree, "run/w.pid");
		read_policy_again();
		assert_int_equal(class_of(500), CLASS_WORKER);
		assert_int_equal(roots_of(ROOT_FOUND), 1);
		assert_int_equal(roots_of(ROOT_FORMER), 0);
	}
	become(500, "game"); /* as at any look */
	sim_step(PROCESS_CACHE_REFRESH_OLD_NS);
	take();
	assert_int_equal(class_of(500), CLASS_CONTENDER);
	assert_int_equal(roots_of(ROOT_FORMER), 1);
}

static void a_worker_without_its_port_is_kept_over_the_same_policy(void **state)
{
	(void)state;
	worker("w")->port = 0x2CAA;
	tree_put(&tree, "proc/net/tcp", TCP_HEAD TCP_ROW("0100007F:2CAA", "0A", "333"));
	tree_put(&tree, "proc/500/fd/3", "-> socket:[333]");
	put_process(500, 1, 50, "/usr/bin/w", SESSION);
	open_look(GPU ON(500, "1 GiB"));
	take();
	assert_int_equal(class_of(500), CLASS_WORKER);
	tree_remove(&tree, "proc/500/fd/3");
	tree_put(&tree, "proc/net/tcp", TCP_HEAD);
	read_policy_again();
	assert_int_equal(class_of(500), CLASS_WORKER);
	assert_int_equal(roots_of(ROOT_FOUND), 1);
}

static void a_child_whose_parents_died_is_kept_over_the_same_policy(void **state)
{
	static struct policy other;

	(void)state;
	worker("w")->pidfile = "/run/w.pid";
	tree_put(&tree, "run/w.pid", "500\n");
	put_process(500, 1, 50, "/usr/bin/server", SESSION);
	put_process(502, 500, 52, "/usr/bin/runner", SESSION);
	open_look(GPU ON(502, "1 GiB"));
	take();
	put_process(502, 1, 52, "/usr/bin/runner", SESSION);
	tree_remove(&tree, "proc/500");
	sim_step(PROCESS_CACHE_REFRESH_YOUNG_NS);
	take();
	read_policy_again();
	assert_int_equal(class_of(502), CLASS_WORKER);
	assert_int_equal(roots_of(ROOT_KEPT), 1);
	other = policy;
	other.worker[0].match.pidfile = "/run/other.pid";
	assert_int_equal(scene_builder_policy(look, &other), 0);
	take();
	assert_int_equal(class_of(502), CLASS_CONTENDER);
}

/* Killed, and its parent does not ask: only its number is left. */
static void one_that_nobody_reaped_is_no_worker(void **state)
{
	static const struct policy_match by[] = {
		{ .uid = -1, .pidfile = "/run/w.pid" },
		{ .uid = -1, .name = "python3" },
		{ .uid = -1, .pidfile = "/run/w.pid", .name = "python3" },
	};

	for (size_t i = 0; i < sizeof(by) / sizeof(by[0]); i++) {
		*worker("w") = by[i];
		tree_put(&tree, "run/w.pid", "500\n");
		put_process(500, 1, 50, "/usr/bin/python3", SESSION);
		open_look(GPU ON(600, "1 GiB"));
		take();
		assert_int_equal(roots_of(ROOT_FOUND), 1);
		put_zombie(500, 50);
		for (unsigned n = 0; n < 3; n++) { /* nor is it found again */
			sim_step(6 * NS_PER_S);
			take();
			assert_int_equal(scene.roots, 0);
		}
		assert_int_equal(scene_builder_policy(look, &policy), 0);
		take();
		assert_int_equal(scene.roots, 0);
		end(state);
		begin(state);
	}
}

static void one_whose_first_thread_ended_lives(void **state)
{
	(void)state;
	worker("w")->pidfile = "/run/w.pid";
	tree_put(&tree, "run/w.pid", "500\n");
	put_process(500, 1, 50, "/usr/bin/w", SESSION);
	tree_put(&tree, "proc/500/stat",
		 "500 (w) Z 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 2 0 50 1 2\n");
	open_look(GPU ON(500, "1 GiB"));
	take();
	assert_int_equal(class_of(500), CLASS_WORKER);
	assert_int_equal(roots_of(ROOT_FOUND), 1);
}

static void a_child_that_nobody_reaped_is_not_kept(void **state)
{
	(void)state;
	worker("w")->pidfile = "/run/w.pid";
	tree_put(&tree, "run/w.pid", "500\n");
	put_process(500, 1, 50, "/usr/bin/server", SESSION);
	put_process(502, 500, 52, "/usr/bin/runner", SESSION);
	open_look(GPU ON(502, "1 GiB"));
	take();
	tree_remove(&tree, "proc/500");
	put_zombie(502, 52);
	take();
	assert_int_equal(scene.roots, 0);
	assert_int_equal(scene.processes, 0); /* as one that is gone */
	sim_step(PROCESS_CACHE_ORPHAN_NS);
	take();
	assert_int_equal(class_of(502), CLASS_ORPHAN);
}

static void a_storm_of_processes_is_searched_in_bounds(void **state)
{
	struct scene_builder_stats stats;
	char path[64];

	(void)state;
	worker("w")->name = "server";
	for (int64_t i = 1; i <= WORKER_FINDER_PROCESSES + 50; i++) {
		snprintf(path, sizeof(path), "proc/%lld/comm", (long long)i);
		tree_put(&tree, path, "x\n");
	}
	put_process(9000, 1, 5, "/srv/server", SESSION);
	open_look(GPU);
	for (unsigned i = 0; i < 20; i++) { /* two seconds: one search */
		take();
		sim_step(100 * NS_PER_MS);
	}
	scene_builder_stats(look, &stats);
	assert_int_equal(stats.searches, 1);
}

static void a_real_proc_is_searched_whole(void **state)
{
	char name[32];
	FILE *f = fopen("/proc/self/comm", "r");

	(void)state;
	assert_non_null(f);
	assert_non_null(fgets(name, sizeof(name), f));
	fclose(f);
	name[strcspn(name, "\n")] = '\0';
	worker("w")->name = name;
	sim_text(GPU);
	sim_open_with(NULL, 0, 0);
	assert_int_equal(scene_builder_new(sim.ctx, &policy, &look), 0);
	take();
	for (unsigned i = 0; i < scene.roots; i++)
		if (scene.root[i].pid == getpid())
			return;
	fail_msg("we were not found among %u", scene.roots);
}

/* A worker of flesh and blood: it listens, its child forks a runner that leaves the session.  Tells
 * the three numbers; ends when its standard input does. */
static void be_a_worker(int tell, int until)
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
	(void)!write(tell, pid, sizeof(pid));
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

static void a_real_worker_tree_is_known_by_its_port(void **state)
{
	int tell[2], until[2], listening;
	unsigned port = 0;
	pid_t pid[3], child;

	(void)state;
	assert_int_equal(pipe(tell) + pipe(until), 0);
	listening = listen_somewhere(&port);
	child = fork();
	if (child == 0) {
		close(until[1]);
		be_a_worker(tell[1], until[0]);
	}
	close(listening); /* from here on it is the worker's alone */
	assert_int_equal(read(tell[0], pid, sizeof(pid)), sizeof(pid));
	assert_int_equal(pid[0], child);
	worker("w")->port = port;
	sim_text(GPU);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(sim_process(0, (uint32_t)pid[i], GIB, 0), 0);
	assert_int_equal(sim_process(0, (uint32_t)getpid(), MIB, 0), 0);
	sim_open_with(NULL, 0, 0);
	assert_int_equal(scene_builder_new(sim.ctx, &policy, &look), 0);
	take();
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(class_of(pid[i]), CLASS_WORKER);
	assert_int_equal(class_of(getpid()), CLASS_SELF);
	assert_true(process(pid[2])->start_ticks > 0);
	assert_int_equal(process(pid[2])->uid, geteuid());
	close(until[1]);
	close(until[0]);
	close(tell[0]);
	close(tell[1]);
	assert_int_equal(waitpid(child, NULL, 0), child);
}

/* ---- ourselves ---- */

static void we_are_our_tree_and_our_services_group(void **state)
{
	(void)state;
	worker("w")->name = "started";
	put_process(77, 1, 7, "/usr/bin/gpuward", "/system.slice/gpuward.service");
	put_process(78, 77, 8, "/usr/bin/helper", SESSION);
	put_process(79, 1, 9, "/usr/bin/helper", "/system.slice/gpuward.service");
	put_process(80, 77, 10, "/usr/bin/started", "/system.slice/gpuward.service");
	put_process(90, 1, 11, "/usr/bin/game", SESSION);
	open_look(GPU ON(77, "1 MiB") ON(78, "1 MiB") ON(79, "1 MiB") ON(80, "1 GiB")
			  ON(90, "1 MiB"));
	take();
	assert_int_equal(class_of(77), CLASS_SELF);
	assert_int_equal(class_of(78), CLASS_SELF);
	assert_int_equal(class_of(79), CLASS_SELF);
	assert_int_equal(class_of(80),
			 CLASS_WORKER); /* that we started it does not make it us */
	assert_int_equal(class_of(90), CLASS_CONTENDER);
}

static void below_a_worker_we_are_still_ourselves(void **state)
{
	(void)state;
	worker("w")->name = "vllm"; /* in its container it is the first process */
	put_process(1, 0, 1, "/usr/bin/vllm", "/");
	put_process(77, 1, 7, "/usr/bin/gpuward", "/");
	put_process(78, 77, 8, "/usr/bin/helper", "/");
	put_process(90, 1, 9, "/usr/bin/rank", "/");
	open_look(GPU ON(1, "1 GiB") ON(77, "1 MiB") ON(78, "1 MiB") ON(90, "1 GiB"));
	take();
	assert_int_equal(class_of(1), CLASS_WORKER);
	assert_int_equal(class_of(77), CLASS_SELF);
	assert_int_equal(class_of(78), CLASS_SELF);
	assert_int_equal(class_of(90), CLASS_WORKER);
}

static void as_the_first_process_of_a_container_we_are_alone(void **state)
{
	(void)state;
	tree_put(&tree, "proc/self", "-> 1");
	put_process(1, 0, 1, "/usr/bin/gpuward", "/");
	put_process(90, 1, 9, "/usr/bin/game", "/");
	open_look(GPU ON(1, "1 MiB") ON(90, "1 GiB"));
	take();
	assert_int_equal(class_of(1), CLASS_SELF);
	assert_int_equal(class_of(90), CLASS_CONTENDER);
}

static void the_group_of_a_session_is_not_ours(void **state)
{
	(void)state;
	put_process(77, 1, 7, "/usr/bin/gpuward", SESSION);
	put_process(90, 1, 11, "/usr/bin/game", SESSION);
	open_look(GPU ON(77, "1 MiB") ON(90, "1 MiB"));
	take();
	assert_int_equal(class_of(77), CLASS_SELF);
	assert_int_equal(class_of(90), CLASS_CONTENDER);
}

static void a_worker_that_lives_in_us_is_a_worker(void **state)
{
	(void)state;
	worker("inner");
	policy.worker[0].kind = WORKER_CALLBACK;
	put_process(77, 1, 7, "/usr/bin/app", SESSION);
	open_look(GPU ON(77, "1 GiB"));
	take();
	assert_int_equal(class_of(77), CLASS_WORKER);
}

static void another_policy_finds_others(void **state)
{
	static struct policy other;

	(void)state;
	worker("w")->name = "server";
	put_process(500, 1, 50, "/srv/server", SESSION);
	put_process(501, 500, 51, "/srv/runner", SESSION);
	open_look(GPU ON(501, "1 GiB"));
	take();
	assert_int_equal(class_of(501), CLASS_WORKER);
	other = policy;
	other.workers = 0;
	assert_int_equal(scene_builder_policy(look, &other), 0);
	assert_int_equal(scene_builder_take(look, &scene, false), 0);
	assert_int_equal(scene.roots, 0);
}

/* ---- namespaces: A18 ---- */

static void in_a_namespace_others_are_hidden(void **state)
{
	(void)state;
	tree_remove(&tree, "proc/self");
	tree_put(&tree, "proc/self/ns/pid", "-> pid:[4026532001]");
	sim_scenario("container");
	sim_open_with(tree.path, 0, 0);
	assert_int_equal(scene_builder_new(sim.ctx, &policy, &look), 0);
	take();
	assert_true(scene.gpu[0].hidden);
	assert_true(scene.gpu[0].used_bytes > 50 * GIB); /* whoever it is */
}

/* In a namespace of its own, where it is the first process.  What it found, as an exit status. */
static int look_as_first_process(void)
{
	char place[128];

	snprintf(place, sizeof(place), "%s/proc", tree.path);
	tree_remove(&tree, "proc");
	if (mkdir(place, 0755) < 0 || mount("proc", place, "proc", 0, NULL) < 0)
		return 77;
	sim_open_with(tree.path, 0, 0);
	if (scene_builder_new(sim.ctx, &policy, &look) != 0 ||
	    scene_builder_take(look, &scene, false) != 0)
		return 1;
	if (!scene.gpu[0].hidden || scene.gpu[0].used_bytes < 2 * GIB)
		return 2;
	return scene.processes == 1 && scene.process[0].self ? 0 : 3;
}

static void in_a_real_namespace_we_see_ourselves_and_know_of_others(void **state)
{
	pid_t child, inner;
	int status = 0;

	(void)state;
	sim_text(GPU ON(1, "1 MiB")); /* we, as the driver translates it */
	sim_process(0, 3999999, 3 * GIB, 0);
	child = fork();
	if (child == 0) {
		if (unshare(CLONE_NEWPID | CLONE_NEWNS) < 0 ||
		    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
			_exit(77);
		inner = fork();
		if (inner == 0)
			_exit(look_as_first_process());
		waitpid(inner, &status, 0);
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 4);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip(); /* not allowed here */
	assert_int_equal(status, 0);
}

static void outside_nobody_is_hidden(void **state)
{
	(void)state;
	tree_remove(&tree, "proc/self");
	tree_put(&tree, "proc/self/ns/pid", "-> pid:[4026531836]");
	open_look(GPU);
	take();
	assert_false(scene.gpu[0].hidden);
}

/* An old driver tells the host's numbers: that one of them is somebody's here means nothing. */
static void numbers_of_the_host_are_not_taken_for_ours(void **state)
{
	static const struct {
		const char *version;
		bool foreign;
	} rows[] = { { "535.54.03", true },
		     { "525.147.05", true },
		     { "535.113.01", false },
		     { "580.159.04", false } };

	(void)state;
	tree_remove(&tree, "proc/self");
	tree_put(&tree, "proc/self/ns/pid", "-> pid:[4026532001]");
	put_process(500, 1, 50, "/usr/bin/ours", SESSION);
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char text[256];

		snprintf(text, sizeof(text),
			 "[driver]\nversion = \"%s\"\n" GPU ON(500, "2 GiB"), rows[i].version);
		open_look(text);
		take();
		assert_int_equal(scene.processes, 1);
		assert_int_equal(class_of(500),
				 rows[i].foreign ? CLASS_ORPHAN : CLASS_CONTENDER);
		scene_builder_free(look);
		look = NULL;
		sim_close();
	}
}

/* ---- what cannot be read ---- */

static void eleven_errors_in_a_row_make_it_blind_and_one_answer_sees_again(void **state)
{
	(void)state;
	open_look(GPU GPU ON(4100001, "1 GiB"));
	take();
	sim_fault("nvmlDeviceGetComputeRunningProcesses_v3", 1, 999);
	sim_fault("nvmlDeviceGetGraphicsRunningProcesses_v3", 1, 999);
	sim_fault("nvmlDeviceGetMPSComputeRunningProcesses_v3", 1, 999);
	for (unsigned i = 1; i <= SCENE_BUILDER_BLIND + 2; i++) {
		sim_step(100 * NS_PER_MS);
		take();
		assert_int_equal(scene.gpu[1].errors, i);
		assert_int_equal(scene.gpu[1].health,
				 i > SCENE_BUILDER_BLIND ? SCENE_BLIND : SCENE_OK);
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

static void a_list_that_may_not_be_read_hides_others_and_is_no_error(void **state)
{
	(void)state;
	open_look(GPU);
	sim_fault("nvmlDeviceGetComputeRunningProcesses_v3", 0, 4); /* no permission */
	sim_fault("nvmlDeviceGetGraphicsRunningProcesses_v3", 0, 4);
	sim_fault("nvmlDeviceGetMPSComputeRunningProcesses_v3", 0, 4);
	take();
	assert_true(scene.gpu[0].hidden);
	assert_int_equal(scene.gpu[0].errors, 0);
}

static void a_lost_gpu_is_lost_alone_and_comes_back(void **state)
{
	(void)state;
	sim_scenario("lost-gpu");
	sim_open_with(tree.path, 0, 0);
	assert_int_equal(scene_builder_new(sim.ctx, &policy, &look), 0);
	take();
	assert_int_equal(scene.gpu[1].health, SCENE_OK);
	sim_step(6 * NS_PER_S);
	take();
	assert_int_equal(scene.gpu[0].health, SCENE_OK);
	assert_int_equal(scene.gpu[1].health, SCENE_LOST);
	assert_false(scene.gpu[1].memory_known);
	for (unsigned i = 0; i < 60 && scene.gpu[1].health != SCENE_OK; i++) {
		sim_step(NS_PER_S);
		take();
	}
	assert_int_equal(scene.gpu[1].health, SCENE_OK);
	assert_int_equal(scene.gpu[1].errors, 0);
}

static void a_hung_list_is_hung_and_the_other_gpu_is_not(void **state)
{
	(void)state;
	sim_text(GPU ON(4100001, "1 GiB") GPU ON(4100002, "1 GiB"));
	sim_open_with(tree.path, 0, 300 * NS_PER_MS);
	assert_int_equal(scene_builder_new(sim.ctx, &policy, &look), 0);
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

static void a_utilisation_that_hangs_is_hung_as_well(void **state)
{
	(void)state;
	sim_text(GPU ON(4100001, "1 GiB"));
	sim_open_with(tree.path, 0, 300 * NS_PER_MS);
	assert_int_equal(scene_builder_new(sim.ctx, &policy, &look), 0);
	take();
	sim_hang("nvmlDeviceGetProcessUtilization", 0);
	assert_int_equal(scene_builder_take(look, &scene, true), 0);
	assert_int_equal(scene.gpu[0].health, SCENE_HUNG);
	scene_builder_free(look); /* the call still writes, but not into what was ours */
	look = NULL;
	sim_unhang();
	assert_true(call_thread_wait(sim.ctx->slot[0]->thread,
				     clock_mono_ns(clock_real()) + 60 * NS_PER_S));
}

static void a_gpu_that_sleeps_is_left_asleep(void **state)
{
	static const struct tree_row pci[] = {
		{ "vendor", "0x10de\n" },
		{ "class", "0x030000\n" },
		{ "power/runtime_status", "suspended\n" },
		{ 0 },
	};

	(void)state;
	tree_fill(&tree, "sys/bus/pci/devices/0000:01:00.0/", pci);
	sim_text(GPU);
	sim_open_with(tree.path, 0, 0);
	assert_int_equal(scene_builder_new(sim.ctx, &policy, &look), 0);
	for (unsigned i = 0; i < 20; i++) {
		take();
		sim_step(NS_PER_S);
	}
	assert_int_equal(scene.gpus, 1);
	assert_int_equal(scene.gpu[0].health, SCENE_ASLEEP);
	assert_int_equal(scene.gpu[0].errors, 0);
	assert_int_equal(sim_calls("nvmlInit_v2"), 0);
}

/* ---- the machine ---- */

static void a_battery_that_empties_is_told(void **state)
{
	(void)state;
	tree_put(&tree, "proc/meminfo",
		 "MemTotal: 2000 kB\nMemFree: 10 kB\nMemAvailable: 1000 kB\n");
	tree_put(&tree, "sys/class/power_supply/BAT0/type", "Battery\n");
	tree_put(&tree, "sys/class/power_supply/BAT0/status", "Discharging\n");
	tree_put(&tree, "sys/class/power_supply/AC/type", "Mains\n");
	tree_put(&tree, "sys/class/power_supply/AC/online", "0\n");
	open_look(GPU);
	take();
	assert_true(scene.on_battery);
	assert_int_equal(scene.host_free_bytes, 1000 * 1024);
	tree_put(&tree, "sys/class/power_supply/AC/online", "1\n");
	sim_step(5 * NS_PER_S);
	take();
	assert_false(scene.on_battery);
}

static void the_battery_of_a_mouse_does_not_count(void **state)
{
	(void)state;
	tree_put(&tree, "sys/class/power_supply/hid/type", "Battery\n");
	tree_put(&tree, "sys/class/power_supply/hid/scope", "Device\n");
	tree_put(&tree, "sys/class/power_supply/hid/status", "Discharging\n");
	open_look(GPU);
	take();
	assert_false(scene.on_battery);
}

static void local_time_is_told_with_its_offset(void **state)
{
	(void)state;
	setenv("TZ", "XST-5:30", 1);
	tzset();
	open_look(GPU);
	take();
	unsetenv("TZ");
	tzset();
	assert_int_equal(scene.utc_offset_s, 5 * 3600 + 1800);
}

static void a_look_allocates_nothing_once_it_is_warm(void **state)
{
	unsigned before;

	(void)state;
	worker("w")->port = 11434;
	worker("v")->name = "server";
	tree_put(&tree, "proc/net/tcp", TCP_HEAD TCP_ROW("0100007F:2CAA", "0A", "333"));
	put_process(500, 1, 50, "/srv/server", SESSION);
	tree_put(&tree, "proc/500/fd/3", "-> socket:[333]");
	open_look(GPU ON(500, "1 GiB") "[[gpu.process]]\ncount = 300\n");
	assert_int_equal(scene_builder_take(look, &scene, true), 0);
	sim_step(20 * NS_PER_S);
	assert_int_equal(scene_builder_take(look, &scene, true), 0);
	before = allocations;
	for (unsigned i = 0; i < 100; i++) {
		sim_step(NS_PER_S);
		assert_int_equal(scene_builder_take(look, &scene, i & 1), 0);
	}
	assert_int_equal(allocations, before);
	assert_int_equal(scene.processes, 301);
}

/* ---- what is asked ---- */

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
	while (n-- > 0) {
		sim_step(100 * NS_PER_MS);
		take();
	}
}

static void while_nothing_changes_memory_is_asked_and_little_else(void **state)
{
	uint64_t lists, memory, power;

	(void)state;
	put_process(4100001, 1, 5, "/usr/bin/game", SESSION);
	open_look(GPU ON(4100001, "1 GiB"));
	take_every_100_ms(30);
	lists = LISTS;
	memory = MEMORY;
	power = POWER;
	take_every_100_ms(100);
	assert_int_equal(MEMORY - memory, 100);
	assert_in_range(LISTS - lists, 15, 31); /* every half second, and with whole looks */
	assert_in_range(POWER - power, 9, 11);  /* of whole looks, once a second */
	assert_int_equal(scene.processes, 1);
	assert_int_equal(scene.process[0].bytes, GIB);
	assert_true(scene.gpu[0].memory_known);
}

static void who_comes_and_goes_is_seen_at_the_next_look(void **state)
{
	(void)state;
	put_process(4100001, 1, 5, "/usr/bin/game", SESSION);
	put_process(4100002, 1, 5, "/usr/bin/other", SESSION);
	open_look(GPU ON(4100001, "1 GiB") ON(4100002, "2 GiB") "from = 5.05\nuntil = 8.05\n");
	for (unsigned i = 1; i <= 100; i++) {
		double now_s = i * 0.1;
		bool there = now_s > 5.05 && now_s < 8.05;

		take_every_100_ms(1);
		assert_int_equal(process(4100002) != NULL, there);
		assert_int_equal(scene.gpu[0].used_bytes > 2 * GIB, there);
	}
}

static void a_trigger_has_the_lists_asked_for(void **state)
{
	uint64_t lists;

	(void)state;
	tree_put(&tree, "dev/nvidia0", "");
	open_look(GPU ON(4100001, "1 GiB"));
	take_every_100_ms(30);
	sim_step(PROCESS_CACHE_ORPHAN_NS);
	take(); /* a whole one */
	sim_step(NS_PER_MS);
	lists = LISTS;
	take();
	assert_int_equal(LISTS, lists);
	close(openat(tree.root.fd, "dev/nvidia0", O_RDONLY));
	assert_true(scene_builder_triggered(look));
	take();
	assert_int_equal(LISTS, lists + 1);
}

static void utilisation_is_asked_twice_a_second_and_told_at_each_look(void **state)
{
	uint64_t asked;

	(void)state;
	put_process(4100001, 1, 5, "/usr/bin/game", SESSION);
	open_look(GPU "[[gpu.load]]\nkind = \"constant\"\nlevel = 0.5\n" ON(4100001, "1 GiB"));
	sim_step(10 * NS_PER_S);
	asked = calls_of("nvmlDeviceGetProcessUtilization");
	for (unsigned i = 0; i < 50; i++) {
		sim_step(100 * NS_PER_MS);
		assert_int_equal(scene_builder_take(look, &scene, true), 0);
		assert_true(scene.process[0].sm_ratio > 0.3);
	}
	assert_in_range(calls_of("nvmlDeviceGetProcessUtilization") - asked, 10, 11);
}

static void without_memory_there_is_no_look_and_nothing_leaks(void **state)
{
	int err = -GW_E_NOMEM;

	(void)state;
	worker("w")->command = "x+";
	sim_text(GPU);
	sim_open_with(tree.path, 0, 0);
	for (unsigned n = 1; err == -GW_E_NOMEM; n++) {
		allocations = 0;
		fail_at = n;
		err = scene_builder_new(sim.ctx, &policy, &look);
		fail_at = 0;
		assert_true(err == 0 || n < 20);
	}
	assert_int_equal(err, 0);
	allocations = 0;
	fail_at = 1;
	assert_int_equal(scene_builder_policy(look, &policy), -GW_E_NOMEM);
	fail_at = 0;
	take(); /* with the old one */
	assert_int_equal(scene.gpus, 1);
}

/* ---- what makes us look: A17 ---- */

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

/* After a while in which nothing came. */
static bool triggered(void)
{
	sim_step(2 * NS_PER_S);
	return scene_builder_triggered(look);
}

static void opening_a_gpu_makes_us_look_once(void **state)
{
	struct scene_builder_stats stats;

	(void)state;
	tree_node(&tree, "dev/nvidia0");
	tree_node(&tree, "dev/nvidia-uvm");
	tree_node(&tree, "dev/dri/renderD128");
	tree_node(&tree, "dev/null");
	tree_put(&tree, "dev/nvidia-caps/nvidia-cap1", "");
	open_look(GPU);
	scene_builder_stats(look, &stats);
	assert_int_equal(stats.nodes, 3);
	assert_false(waits(scene_builder_watch_fd(look)));
	assert_false(triggered());
	touch("dev/null");
	assert_false(triggered());
	for (unsigned i = 0; i < 90; i++)
		touch(i & 1 ? "dev/nvidia0" : "dev/dri/renderD128");
	assert_true(waits(scene_builder_watch_fd(look)));
	assert_true(triggered());
	assert_false(waits(scene_builder_watch_fd(look)));
	assert_false(triggered());
	touch("dev/nvidia-uvm");
	assert_true(triggered());
}

static void many_opens_are_no_more_than_ten_looks_a_second(void **state)
{
	unsigned looks = 0;

	(void)state;
	tree_node(&tree, "dev/nvidia0");
	open_look(GPU);
	touch("dev/nvidia0");
	assert_true(scene_builder_triggered(look)); /* the first at once */
	assert_int_equal(scene_builder_trigger_due_ns(look), 0);
	touch("dev/nvidia0");
	assert_false(scene_builder_triggered(look));
	assert_int_equal(scene_builder_trigger_due_ns(look), sim_mono(NULL) + WATCH_SPACING_NS);
	sim_step(WATCH_SPACING_NS);
	assert_true(scene_builder_triggered(look)); /* the second is not forgotten */
	assert_false(scene_builder_triggered(look));
	for (unsigned i = 0; i < 1000; i++) {
		sim_step(NS_PER_MS);
		touch("dev/nvidia0");
		looks += scene_builder_triggered(look);
	}
	assert_in_range(looks, 9, 12);
}

static void a_node_removed_and_made_again_is_watched_again(void **state)
{
	(void)state;
	tree_node(&tree, "dev/nvidia0");
	open_look(GPU);
	for (unsigned i = 0; i < 3; i++) {
		unlinkat(tree.root.fd, "dev/nvidia0", 0);
		triggered();
		tree_node(&tree, "dev/nvidia0");
		assert_true(triggered()); /* a new node is worth a look itself */
		assert_false(triggered());
		touch("dev/nvidia0");
		assert_true(triggered());
	}
	tree_node(&tree, "dev/other");
	assert_false(triggered());
}

static void nodes_that_come_later_are_watched(void **state)
{
	(void)state;
	tree_put(&tree, "dev/null", "");
	open_look(GPU);
	tree_node(&tree, "dev/nvidia1");
	tree_node(&tree, "dev/dri/renderD129"); /* with its folder */
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

static void an_overflow_of_events_is_a_reason_to_look(void **state)
{
	(void)state;
	tree_node(&tree, "dev/nvidia0");
	open_look(GPU);
	for (unsigned i = 0; i < 10000; i++) /* two events each; the queue holds 16384 */
		touch("dev/nvidia0");
	assert_true(triggered());
	assert_false(triggered());
	touch("dev/nvidia0");
	assert_true(triggered());
}

static void a_machine_without_gpus_is_an_empty_scene(void **state)
{
	(void)state;
	sim_scenario("no-gpu");
	sim_open_with(tree.path, 0, 0);
	assert_int_equal(scene_builder_new(sim.ctx, &policy, &look), 0);
	take();
	assert_int_equal(scene.gpus, 0);
	assert_int_equal(scene.processes, 0);
	assert_false(triggered());
	scene_builder_free(NULL);
}

#define row(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(a_game_starts_and_is_seen_with_its_bytes),
		row(memory_shared_with_the_host_is_not_known),
		row(a_process_of_two_lists_is_one_and_unknown_bytes_are_none),
		row(any_number_of_processes_is_borne),
		row(a_crowd_that_comes_and_goes_is_followed),
		row(names_that_hurt_are_cleaned),
		row(a_thread_and_its_process_are_one),
		row(a_process_on_two_instances_of_a_board_holds_the_sum),
		row(how_busy_each_was_is_told_when_asked),
		row(a_number_used_again_is_somebody_else),
		row(a_process_that_became_another_program_is_seen_as_that),
		row(one_that_has_just_gone_is_counted_and_only_later_an_orphan),
		row(the_memory_of_processes_never_overflows),
		row(a_tree_by_pidfile_is_never_a_contender),
		row(a_child_whose_parents_died_stays_the_workers),
		row(a_member_of_a_units_group_is_the_workers),
		row(a_stale_pidfile_names_nobody),
		row(one_younger_than_the_pidfile_did_not_write_it),
		row(who_wrote_a_pidfile_is_known_to_the_next_policy),
		row(neither_the_first_process_nor_one_above_us_is_a_worker),
		row(a_socket_that_the_first_process_holds_too_is_the_others),
		row(the_one_that_listens_is_found_by_its_port),
		row(one_that_cannot_be_seen_is_no_contender_while_a_worker_of_its_user_is_not_found),
		row(a_worker_that_starts_late_is_found_when_it_is_on_a_gpu),
		row(a_worker_on_no_gpu_is_found_by_name_and_a_stranger_is_not),
		row(one_that_becomes_another_program_is_no_worker),
		row(one_that_is_about_to_end_is_who_it_was),
		row(a_pidfile_that_names_nobody_for_a_moment_loses_nobody),
		row(a_pidfile_that_names_another_is_obeyed_at_once),
		row(a_number_with_a_nul_behind_it_is_none),
		row(a_guard_that_can_open_no_file_loses_nobody),
		row(one_that_closed_its_port_is_the_worker_until_it_ends),
		row(one_that_closed_its_port_by_becoming_another_is_nobodys),
		row(whom_another_policy_does_not_find_is_told_while_it_lives),
		row(who_was_known_before_a_restart_is_told_while_it_lives),
		row(a_worker_without_its_pidfile_is_kept_over_the_same_policy),
		row(a_worker_without_its_port_is_kept_over_the_same_policy),
		row(a_child_whose_parents_died_is_kept_over_the_same_policy),
		row(one_that_nobody_reaped_is_no_worker),
		row(one_whose_first_thread_ended_lives),
		row(a_child_that_nobody_reaped_is_not_kept),
		row(a_storm_of_processes_is_searched_in_bounds),
		row(a_real_proc_is_searched_whole),
		row(a_real_worker_tree_is_known_by_its_port),
		row(we_are_our_tree_and_our_services_group),
		row(below_a_worker_we_are_still_ourselves),
		row(as_the_first_process_of_a_container_we_are_alone),
		row(the_group_of_a_session_is_not_ours),
		row(a_worker_that_lives_in_us_is_a_worker),
		row(another_policy_finds_others),
		row(in_a_namespace_others_are_hidden),
		row(in_a_real_namespace_we_see_ourselves_and_know_of_others),
		row(outside_nobody_is_hidden),
		row(numbers_of_the_host_are_not_taken_for_ours),
		row(eleven_errors_in_a_row_make_it_blind_and_one_answer_sees_again),
		row(a_list_that_may_not_be_read_hides_others_and_is_no_error),
		row(a_lost_gpu_is_lost_alone_and_comes_back),
		row(a_hung_list_is_hung_and_the_other_gpu_is_not),
		row(a_utilisation_that_hangs_is_hung_as_well),
		row(a_gpu_that_sleeps_is_left_asleep),
		row(a_battery_that_empties_is_told),
		row(the_battery_of_a_mouse_does_not_count),
		row(local_time_is_told_with_its_offset),
		row(a_look_allocates_nothing_once_it_is_warm),
		row(while_nothing_changes_memory_is_asked_and_little_else),
		row(who_comes_and_goes_is_seen_at_the_next_look),
		row(a_trigger_has_the_lists_asked_for),
		row(utilisation_is_asked_twice_a_second_and_told_at_each_look),
		row(without_memory_there_is_no_look_and_nothing_leaks),
		row(opening_a_gpu_makes_us_look_once),
		row(many_opens_are_no_more_than_ten_looks_a_second),
		row(a_node_removed_and_made_again_is_watched_again),
		row(nodes_that_come_later_are_watched),
		row(an_overflow_of_events_is_a_reason_to_look),
		row(a_machine_without_gpus_is_an_empty_scene),
	};

	return cmocka_run_group_tests(tests, sim_setup, NULL);
}
