/* Tests the rows about scenes in the acceptance list of the guard (docs/GUARD-MACHINE.md). The
 * real scene builder reads process lists of drivers, and real inotify watches device nodes. The
 * name of a test begins with the id of its row. */
#define TEST_SETUP    begin
#define TEST_TEARDOWN end
#include "simtest.h"
#include "tree.h"
#include "here.h"

#include "guard/guard_input.h"
#include "guard/guard_query.h"
#include "guard/scene_builder.h"

#include <malloc.h>
#include <math.h>
#include <poll.h>
#include <time.h>

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static struct tree tree;
static struct policy policy;
static struct scene scene;
static struct scene_builder *look;

static int begin(void **state)
{
	policy_init(&policy);
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

static void open_look(const char *text)
{
	sim_text(text);
	sim_open_with(tree.path, 0, 0);
	assert_int_equal(scene_builder_new(sim.ctx, &policy, &look), 0);
}

static void close_look(void)
{
	scene_builder_free(look);
	look = NULL;
	sim_close();
}

static const struct scene_process *process(int64_t pid)
{
	for (unsigned i = 0; i < scene.processes; i++)
		if (scene.process[i].id.pid == pid)
			return &scene.process[i];
	return NULL;
}

static void put(int64_t pid, int64_t parent, const char *name, const char *tgid,
		const char *cgroup)
{
	char folder[64], stat[160], status[160], comm[32], link[64], group[160];
	const struct tree_row rows[] = { { "stat", stat },
					 { "status", status },
					 { "comm", comm },
					 { "exe", link },
					 { "cmdline", name },
					 { "cgroup", group },
					 { 0 } };

	snprintf(folder, sizeof(folder), "proc/%lld/", (long long)pid);
	snprintf(stat, sizeof(stat),
		 "%lld (%s) S %lld 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 50 1 2\n",
		 (long long)pid, name, (long long)parent);
	snprintf(status, sizeof(status), "Name:\t%s\nTgid:\t%s\nUid:\t1\t1\t1\t1\n", name,
		 tgid);
	snprintf(comm, sizeof(comm), "%.15s\n", name);
	snprintf(link, sizeof(link), "-> /opt/%s", name);
	snprintf(group, sizeof(group), "0::%s\n", cgroup);
	tree_fill(&tree, folder, rows);
}

#define UNIT    "/system.slice/ollama.service"
#define SESSION "/user.slice/user-1000.slice/session-2.scope"

TEST(a02_a_tree_a_child_that_left_and_a_member_of_the_group_are_the_workers)
{
	static struct verdict verdict[SCENE_PROCESSES];
	static const enum guard_class wanted[] = { CLASS_WORKER, CLASS_WORKER, CLASS_WORKER,
						   CLASS_CONTENDER };

	policy.workers = 1;
	policy_worker_init(&policy.worker[0]);
	policy.worker[0].name = "ollama";
	policy.worker[0].match.unit = "ollama.service";
	put(4300010, 1, "ollama", "4300010", UNIT);
	put(4300011, 4300010, "between", "4300011", UNIT);
	/* a process of the third generation */
	put(4300000, 4300011, "runner", "4300000", UNIT);
	/* called setsid, and its parents have ended */
	put(4300001, 1, "left", "4300001", UNIT);
	put(4300002, 4300011, "moved", "4300002", SESSION); /* a descendant in another cgroup */
	/* a process with only the same name */
	put(4300003, 1, "runner", "4300003", SESSION);
	open_look("[[gpu]]\nprofile = \"a100\"\n"
		  "[[gpu.process]]\npid = 4300000\nmemory = \"1 GiB\"\n"
		  "[[gpu.process]]\npid = 4300001\nmemory = \"1 GiB\"\n"
		  "[[gpu.process]]\npid = 4300002\nmemory = \"1 GiB\"\n"
		  "[[gpu.process]]\npid = 4300003\nmemory = \"1 GiB\"\n");
	for (unsigned n = 0; n < 3; n++) {
		sim_step(NS_PER_S);
		assert_int_equal(scene_builder_take(look, &scene, false), 0);
		classify(&policy, &scene, verdict);
		assert_int_equal(scene.processes, 4);
		for (unsigned i = 0; i < 4; i++)
			assert_int_equal(verdict[process(4300000 + i) - scene.process].class,
					 wanted[i]);
	}
}

/* A process of type C+G, one with unknown memory, and `many` small ones, in a list that grows
 * while it is read. */
static const char *const crowd =
	"[driver]\nversion = \"%s\"\nprocess_bytes = %u\n"
	"[[gpu]]\nprofile = \"a100\"\nlist_growth = 3\n"
	"[[gpu.process]]\npid = 4300000\ntype = \"both\"\nmemory = \"3 GiB\"\n"
	"[[gpu.process]]\npid = 4300001\nno_memory = true\nmemory = \"1 GiB\"\n";

static uint64_t sum(void)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < scene.processes; i++)
		bytes += scene.process[i].bytes;
	return bytes;
}

static void check_crowd(unsigned many)
{
	const struct scene_process *both = process(4300000), *untold = process(4300001);
	unsigned there = many + 2;

	assert_int_equal(scene.gpu[0].errors, 0);
	assert_int_equal(scene.processes + scene.left_out, there);
	assert_non_null(both);
	assert_int_equal(both->type, GW_PROCESS_COMPUTE | GW_PROCESS_GRAPHICS);
	assert_int_equal(both->bytes, 3 * GIB); /* once */
	if (there <= SCENE_PROCESSES) {
		assert_non_null(untold);
		assert_false(untold->bytes_known);
		assert_int_equal(untold->bytes, 0);
		assert_int_equal(sum(), 3 * GIB + many * MIB);
	}
	assert_true(sum() <= scene.gpu[0].used_bytes);
}

TEST(a05_lists_of_every_layout_and_length_are_read_the_same)
{
	static const unsigned bytes[] = { 16, 24, 32 }, counts[] = { 0, 1, 200, 2000 };

	for (unsigned b = 0; b < 3; b++)
		for (unsigned c = 0; c < 4; c++) {
			char text[1024];
			int n = snprintf(text, sizeof(text), crowd, "580.159.04", bytes[b]);

			if (counts[c])
				snprintf(text + n, sizeof(text) - (size_t)n,
					 "[[gpu.process]]\nmemory = \"1 MiB\"\ncount = %u\n",
					 counts[c]);
			open_look(text);
			assert_int_equal(scene_builder_take(look, &scene, false), 0);
			check_crowd(counts[c]);
			close_look();
		}
}

/* Without PID namespaces, all drivers report the same pids. Older drivers may report the id of
 * a thread. */
TEST(a05_drivers_that_list_host_pids_or_translated_pids_give_the_same_result)
{
	static const char *const versions[] = { "525.147.05", "535.54.03", "535.113.01",
						"570.86.10", "580.159.04" };

	tree_remove(&tree, "proc/self");
	tree_put(&tree, "proc/self/ns/pid", "-> pid:[4026531836]");
	put(4300000, 1, "game", "4300000", SESSION);
	put(4300001, 1, "game", "4300000", SESSION); /* a thread of the game */
	for (unsigned i = 0; i < COUNT_OF(versions); i++) {
		char text[1024];

		snprintf(text, sizeof(text), crowd, versions[i], 24u);
		open_look(text);
		assert_int_equal(scene_builder_take(look, &scene, false), 0);
		assert_int_equal(scene.processes, 1);
		assert_int_equal(scene.process[0].id.pid, 4300000);
		assert_int_equal(scene.process[0].id.start_ticks, 50);
		assert_false(scene.process[0].orphan);
		assert_true(scene.process[0].bytes >= 3 * GIB);
		close_look();
	}
}

static const char *const lists[] = { "nvmlDeviceGetComputeRunningProcesses_v3",
				     "nvmlDeviceGetGraphicsRunningProcesses_v3",
				     "nvmlDeviceGetMPSComputeRunningProcesses_v3" };

static void fetch(struct guard *g, unsigned *ret_orders)
{
	struct guard_decision said;
	struct guard_order order;
	struct guard_record record;

	while (guard_next_record(g, &record))
		;
	while (guard_next_order(g, &order)) {
		++*ret_orders;
		guard_outcome(
			g, &(struct guard_outcome){ .order = order.id, .ending = ENDING_DONE },
			scene.mono_ns);
	}
	while (guard_next_decision(g, &said))
		;
}

static struct guard_status step(struct guard *g, unsigned *ret_orders)
{
	struct guard_status s;

	sim_step(100 * NS_PER_MS);
	assert_int_equal(scene_builder_take(look, &scene, guard_wants_utilisation(g)), 0);
	guard_observe(g, &scene);
	fetch(g, ret_orders);
	assert_int_equal(guard_status(g, 0, &s), 0);
	return s;
}

static void worker(const char *name)
{
	struct policy_worker *w = &policy.worker[policy.workers++];

	policy.mode = GUARD_ENFORCE;
	policy.simulated_too = true;
	policy_worker_init(w);
	w->kind = WORKER_EXEC;
	w->name = w->match.name = name;
}

TEST(a07_eleven_errors_make_it_blind_and_three_answers_see_again)
{
	unsigned orders = 0;
	struct guard *g;

	worker("w");
	open_look("[[gpu]]\nprofile = \"a100\"\n[[gpu.process]]\nname = \"w\"\nmemory = \"9 "
		  "GiB\"\n");
	assert_int_equal(guard_new(&policy, NULL, 0, &g), 0);
	assert_int_equal(step(g, &orders).state, STATE_ACTIVE);
	for (unsigned turn = 0; turn < 3; turn++) { /* the guard recovers each time */
		for (unsigned i = 0; i < 3; i++)
			sim_fault(lists[i], 0, 999);
		for (unsigned i = 1; i <= 15; i++) {
			struct guard_status s = step(g, &orders);

			assert_int_equal(scene.gpu[0].errors, i); /* exactly */
			assert_int_equal(s.blind, i > 10);
			/* the last decision stays valid */
			assert_int_equal(s.state, STATE_ACTIVE);
		}
		for (unsigned i = 0; i < 3; i++)
			sim_fault(lists[i], 0, 0);
		assert_true(step(g, &orders).blind);
		assert_true(step(g, &orders).blind);
		step(g, &orders);
		assert_false(step(g, &orders).blind);
		assert_int_equal(step(g, &orders).state, STATE_ACTIVE);
	}
	assert_int_equal(orders, 0);
	guard_free(g);
}

TEST(a09_of_two_gpus_only_the_lost_one_is_quarantined)
{
	struct guard_status one, other;
	unsigned orders = 0;
	struct guard *g;

	worker("w");
	worker("v");
	open_look("[[gpu]]\nprofile = \"a100\"\n[[gpu.process]]\nname = \"w\"\nmemory = \"9 "
		  "GiB\"\n"
		  "[[gpu]]\nprofile = \"a100\"\n[[gpu.process]]\nname = \"v\"\nmemory = \"9 "
		  "GiB\"\n"
		  "[[timeline]]\nat = 5\ndo = \"lose\"\ngpu = 1\n");
	assert_int_equal(guard_new(&policy, NULL, 0, &g), 0);
	for (unsigned i = 0; i < 200; i++)
		one = step(g, &orders);
	assert_int_equal(guard_status(g, 1, &other), 0);
	assert_true(other.quarantine);
	assert_int_equal(other.mask, 1u << REASON_HEALTH);
	assert_false(one.quarantine);
	assert_int_equal(one.mask, 0);
	assert_int_equal(one.state, STATE_ACTIVE);
	guard_free(g);
}

static void open_node(const char *path)
{
	if (!tree_open(&tree, path))
		skip();
}

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

TEST(a17_an_open_of_a_node_makes_a_scene_within_ten_milliseconds)
{
	double took[200];

	tree_node(&tree, "dev/nvidia0");
	tree_node(&tree, "dev/dri/renderD128");
	open_look("[[gpu]]\nprofile = \"a100\"\n[[gpu.process]]\ncount = 5\nmemory = \"1 "
		  "GiB\"\n");
	for (unsigned i = 0; i < 200; i++) {
		struct pollfd p = { .fd = scene_builder_watch_fd(look), .events = POLLIN };
		double from = now_ms();

		sim_step(NS_PER_S);
		open_node(i & 1 ? "dev/nvidia0" : "dev/dri/renderD128");
		assert_int_equal(poll(&p, 1, 5000), 1);
		assert_true(scene_builder_triggered(look));
		assert_int_equal(scene_builder_take(look, &scene, false), 0);
		took[i] = now_ms() - from;
		assert_int_equal(scene.processes, 5);
	}
	qsort(took, 200, sizeof(took[0]), by_size);
	print_message("open to scene: median %.2f ms, p99 %.2f ms\n", took[100], took[197]);
	assert_true(took[100] < 10); /* the median, because this machine may be busy */
}

TEST(a17_a_node_removed_and_made_again_is_watched_again)
{
	tree_node(&tree, "dev/nvidia0");
	tree_node(&tree, "dev/nvidiactl");
	open_look("[[gpu]]\nprofile = \"a100\"\n");
	for (unsigned i = 0; i < 5; i++) {
		unlinkat(tree.root.fd, "dev/nvidia0", 0);
		sim_step(NS_PER_S);
		scene_builder_triggered(look);
		tree_node(&tree, "dev/nvidia0");
		sim_step(NS_PER_S);
		assert_true(scene_builder_triggered(look)); /* a new node triggers a scene */
		sim_step(NS_PER_S);
		assert_false(scene_builder_triggered(look));
		open_node("dev/nvidia0");
		assert_true(scene_builder_triggered(look));
	}
}

/* Runs the real scene builder and the guard for `looks` scenes, ten seconds apart. */
static void live(struct guard *g, unsigned looks)
{
	unsigned orders = 0;

	while (looks--) {
		sim_step(10 * NS_PER_S);
		assert_int_equal(scene_builder_take(look, &scene, guard_wants_utilisation(g)),
				 0);
		guard_observe(g, &scene);
		fetch(g, &orders);
	}
}

TEST(a19_a_day_of_scenes_takes_no_memory_and_no_files)
{
	struct guard *g;
	size_t memory;
	unsigned files;

	policy.mode = GUARD_ENFORCE;
	policy.simulated_too = true;
	policy.workers = 1;
	policy_worker_init(&policy.worker[0]);
	policy.worker[0].name = policy.worker[0].match.name = "w";
	policy.worker[0].kind = WORKER_EXEC;
	open_look(
		"[[gpu]]\nprofile = \"a100\"\n"
		"[[gpu.load]]\nkind = \"square\"\nhigh = 0.8\nlow = 0\nperiod = 1000\n"
		"[[gpu.process]]\nname = \"w\"\nmemory = \"9 GiB\"\nfrom = 100\nuntil = 40000\n"
		"[[gpu.process]]\ncount = 40\nmemory = \"20 MiB\"\nfrom = 5000\nuntil = 90000\n"
		"[[gpu.process]]\nname = \"job\"\nmemory = \"20 GiB\"\nfrom = 30000\nuntil = "
		"50000\n"
		"[[timeline]]\nat = 60000\ndo = \"lose\"\n[[timeline]]\nat = 61000\ndo = "
		"\"heal\"\n");
	assert_int_equal(guard_new(&policy, NULL, 0, &g), 0);
	live(g, 600); /* the scenes cover an hour and forty minutes */
	memory = mallinfo2().uordblks;
	files = open_descriptors();
	live(g, 8640); /* a day */
	assert_true(mallinfo2().uordblks <=
		    memory + 64 * 1024); /* the history of the simulator grows */
	assert_int_equal(open_descriptors(), files);
	guard_free(g);
}

TEST_MAIN(sim_setup, NULL)
