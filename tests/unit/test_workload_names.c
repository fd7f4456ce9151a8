#include "daemon/workload_names.h"

#include "base/loop.h"
#include "tree_test.h"

#include <gpuward.h>

#include <sys/socket.h>
#include <sys/un.h>

#define ID   "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define ID2  "ffff456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define POD  "8f1c3a52-4c1e-4a7b-9d35-0a1b2c3d4e5f"
#define HASH "3d6f2b8f0c9e4f5a8b7c6d5e4f3a2b1c"
#define USER "/user.slice/user-1000.slice/user@1000.service"

static struct clock_stepped now;
static char logged[512];
static unsigned log_lines;

static void take_log(void *arg, const char *sentence)
{
	(void)arg;
	snprintf(logged, sizeof(logged), "%s", sentence);
	log_lines++;
}

static struct workload_names *names_on_tree(struct loop *loop, const char *mapping)
{
	struct workload_names *n;

	clock_stepped_init(&now, 1000 * NS_PER_S, 0);
	log_lines = 0;
	tree_put(&t, "etc/passwd",
		 "root:x:0:0:root:/root:/bin/sh\nalice:x:1000:1000:A:/home/alice:/bin/sh\n"
		 "evil\033]0;:x:1001:1001::/home/evil:/bin/sh\n");
	assert_int_equal(
		workload_names_new(
			&(struct workload_names_config){ .loop = loop,
							 .root = t.path,
							 .hpc_job_mapping_dir = mapping,
							 .clock = &now.clock,
							 .log = take_log },
			&n),
		0);
	return n;
}

static struct workload resolve(struct workload_names *n, const char *cgroup)
{
	const struct gw_process p = { .cgroup = cgroup, .uid = 1000, .mig_gpu_instance = -1 };
	struct workload w;

	memset(&w, 'x', sizeof(w));
	workload_names_resolve(n, &p, &w);
	return w;
}

static void check(struct workload w, const char *space, const char *name, const char *part)
{
	assert_string_equal(w.space, space);
	assert_string_equal(w.name, name);
	assert_string_equal(w.part, part);
}

/* A pod as a kubelet lays it out: a folder per pod and container, and a link per container. */
static void put_pod(const char *space, const char *pod, const char *uid, const char *container,
		    const char *id)
{
	char path[600], target[600];

	snprintf(path, sizeof(path), "var/log/pods/%s_%s_%s/%s/0.log", space, pod, uid,
		 container);
	tree_put(&t, path, "2026-01-31T12:00:00.123456789Z stdout F started\n");
	if (!id)
		return;
	snprintf(target, sizeof(target), "-> /%s", path);
	snprintf(path, sizeof(path), "var/log/containers/%s_%s_%s-%s.log", pod, space,
		 container, id);
	tree_put(&t, path, target);
}

TEST(names_pods_and_containers_from_the_log_directories)
{
	struct workload_names *n = names_on_tree(NULL, NULL);

	put_pod("ml-team", "trainer-7c9f-x2x4p", POD, "main", ID);
	put_pod("ml-team", "trainer-7c9f-x2x4p", POD, "init-data", ID2);
	put_pod("kube-system", "etcd-node1", HASH, "etcd", NULL);
	put_pod("other", "trainer-7c9f-x2x4p", "11111111-2222-3333-4444-555555555555", "main",
		"eeee456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
	check(resolve(n, "/kubepods/burstable/pod" POD "/" ID), "ml-team", "trainer-7c9f-x2x4p",
	      "main");
	check(resolve(n, "/kubepods/burstable/pod" POD "/" ID2), "ml-team",
	      "trainer-7c9f-x2x4p", "init-data");
	/* no link, because the runtime logs elsewhere; the pod has only one container */
	check(resolve(n, "/kubepods/pod" HASH "/" ID), "kube-system", "etcd-node1", "etcd");
	workload_names_free(n);
}

TEST(finds_a_container_although_the_kubelet_cut_the_name_of_its_link)
{
	struct workload_names *n = names_on_tree(NULL, NULL);
	char pod[190], container[40], link[400];
	struct workload w;

	memset(pod, 'p', sizeof(pod) - 1);
	pod[sizeof(pod) - 1] = '\0';
	memset(container, 'c', sizeof(container) - 1);
	container[sizeof(container) - 1] = '\0';
	put_pod("s", pod, POD, container, NULL);
	put_pod("s", pod, POD, "sidecar", NULL);
	snprintf(link, sizeof(link), "%s_s_%s-%s", pod, container, ID);
	link[251] = '\0';
	tree_put(&t, "var/log/containers/x", "");
	{
		char path[400];

		snprintf(path, sizeof(path), "var/log/containers/%.251s.log", link);
		tree_put(&t, path, "-> /nowhere");
	}
	w = resolve(n, "/kubepods/pod" POD "/" ID);
	assert_string_equal(w.name, pod);
	assert_string_equal(w.part, container);
	workload_names_free(n);
}

TEST(looks_up_what_is_unknown_after_2_s_10_s_and_each_minute)
{
	struct workload_names *n = names_on_tree(NULL, NULL);
	static const unsigned waits[] = { 2, 10, 60, 60 };
	const char *path = "/kubepods/burstable/pod" POD "/" ID;
	struct workload w = resolve(n, path);

	assert_string_equal(w.name, POD);
	assert_string_equal(w.part, ID);
	assert_false(workload_is_named(&w));
	for (size_t i = 0; i < COUNT_OF(waits); i++) {
		/* A name that appears just before a lookup is due is not seen yet. A lookup
		 * that fails when it is due sets the time of the next lookup. */
		clock_step(&now, waits[i] * NS_PER_S - 1);
		put_pod("space", "pod", POD, "main", ID);
		w = resolve(n, path);
		assert_false(workload_is_named(&w));
		tree_remove(&t, "var");
		clock_step(&now, 1);
		w = resolve(n, path);
		assert_false(workload_is_named(&w));
	}
	put_pod("space", "pod", POD, "main", ID);
	clock_step(&now, 60 * NS_PER_S);
	w = resolve(n, path);
	assert_true(workload_is_named(&w));
	check(w, "space", "pod", "main");
	/* the kubelet deletes the logs; the name stays */
	tree_remove(&t, "var");
	check(resolve(n, path), "space", "pod", "main");
	workload_names_free(n);
}

TEST(keeps_the_names_of_at_most_256_workloads)
{
	struct workload_names *n = names_on_tree(NULL, NULL);
	char path[128];

	put_pod("space", "pod", POD, "main", ID);
	check(resolve(n, "/kubepods/pod" POD "/" ID), "space", "pod", "main");
	tree_remove(&t, "var");
	for (unsigned i = 0; i < 255; i++) {
		snprintf(path, sizeof(path), "/slurm/uid_1000/job_%u", i);
		(void)resolve(n, path);
	}
	/* this workload is used again, so another workload is forgotten first */
	check(resolve(n, "/kubepods/pod" POD "/" ID), "space", "pod", "main");
	for (unsigned i = 0; i < 5000; i++) {
		snprintf(path, sizeof(path), "/slurm/uid_1000/job_%u", 1000 + i);
		check(resolve(n, path), "alice", strrchr(path, '_') + 1, "");
	}
	check(resolve(n, "/kubepods/pod" POD "/" ID), "", POD, ID);
	workload_names_free(n);
}

TEST(hostile_names_are_bounded_and_printable)
{
	struct workload_names *n = names_on_tree(NULL, NULL);
	struct workload w;

	put_pod("a\033[2J\xff", "b\"\n\xe2\x80\xae", POD, "c\001", NULL);
	w = resolve(n, "/kubepods/pod" POD "/" ID);
	check(w, "a?[2J?", "b\"??", "c?");
	tree_put(&t, "var/log/pods/_" HASH, "");
	tree_put(&t, "var/log/pods/" HASH, "");
	w = resolve(n, "/kubepods/pod" HASH "/" ID);
	assert_false(workload_is_named(&w));
	w = resolve(n, "/user.slice/user-1001.slice/session-1.scope");
	assert_string_equal(w.name, "evil?]0;");
	workload_names_free(n);
}

TEST(names_users_of_sessions_jobs_and_units)
{
	struct workload_names *n = names_on_tree(NULL, NULL);

	check(resolve(n, "/user.slice/user-1000.slice/session-3.scope"), "", "alice", "");
	check(resolve(n, "/user.slice/user-4711.slice/session-3.scope"), "", "4711", "");
	check(resolve(n, USER "/app.slice/train.service"), "alice", "train.service", "");
	check(resolve(n, "/slurm/uid_0/job_42/step_batch"), "root", "42", "batch");
	check(resolve(n, "/slurm/uid_0/job_42/step_0/task_0"), "root", "42", "0");
	check(resolve(n, "/system.slice/slurmstepd.scope/job_43/step_0/user"), "alice", "43",
	      "0");
	check(resolve(n, "/system.slice/ollama.service"), "", "ollama.service", "");
	check(resolve(n, "/"), "", "", "");
	check(resolve(n, NULL), "", "", "");
	workload_names_free(n);
}

TEST(names_containers_from_the_files_of_their_engines)
{
	struct workload_names *n = names_on_tree(NULL, NULL);

	tree_put(&t, "var/lib/containers/storage/overlay-containers/containers.json",
		 "[{\"id\":\"" ID2 "\",\"names\":[\"other\"]},{\"id\":\"" ID
		 "\",\"names\":[\"llm\"],\"flags\":{}}]");
	tree_put(&t,
		 "home/alice/.local/share/containers/storage/vfs-containers/containers.json",
		 "[{\"id\":\"" ID "\",\"names\":[\"notebook\"]}]");
	tree_put(&t, "var/lib/docker/containers/" ID "/config.v2.json",
		 "{\"ID\":\"" ID "\",\"Name\":\"/web\"}");
	check(resolve(n, "/machine.slice/libpod-" ID ".scope"), "", "llm", "");
	check(resolve(n, USER "/user.slice/libpod-" ID ".scope/container"), "alice", "notebook",
	      "");
	check(resolve(n, "/docker/" ID), "", "web", "");
	/* Docker's file is not used for a user's container with a copied id */
	check(resolve(n, USER "/user.slice/docker-" ID ".scope"), "alice", ID, "");
	check(resolve(n, "/system.slice/nerdctl-" ID ".scope"), "", ID, "");
	workload_names_free(n);
}

TEST(does_not_follow_links_in_a_home)
{
	struct workload_names *n = names_on_tree(NULL, NULL);

	tree_put(&t, "elsewhere/vfs-containers/containers.json",
		 "[{\"id\":\"" ID "\",\"names\":[\"trap\"]}]");
	tree_put(&t, "home/alice/.local/share/containers/storage",
		 "-> ../../../../../elsewhere");
	check(resolve(n, USER "/user.slice/libpod-" ID ".scope"), "alice", ID, "");
	workload_names_free(n);
}

TEST(files_of_engines_that_are_damaged_give_no_name)
{
	static const char *const texts[] = {
		"",
		"[",
		"{}",
		"[1,null,{\"id\":5,\"names\":7}]",
		"[{\"id\":\"" ID "\"}]",
		"[{\"id\":\"" ID "\",\"names\":[]}]",
		"[{\"id\":\"" ID "\",\"names\":[\"\"]}]",
		"[{\"id\":\"" ID "\",\"names\":[{}]}]",
		"\xff\xfe\0\0",
	};
	const char *path = "var/lib/containers/storage/overlay-containers/containers.json";

	for (size_t i = 0; i < COUNT_OF(texts); i++) {
		struct workload_names *n = names_on_tree(NULL, NULL);

		tree_put(&t, path, texts[i]);
		check(resolve(n, "/machine.slice/libpod-" ID ".scope"), "", ID, "");
		workload_names_free(n);
	}
}

TEST(asks_the_engine_without_waiting_for_it)
{
	static const char answer[] =
		"HTTP/1.0 200 OK\r\n\r\n{\"Id\":\"" ID "\",\"Name\":\"/from-engine\"}";
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	char request[512] = "";
	struct workload_names *n;
	struct loop *loop;
	struct workload w;
	int server, peer;

	assert_int_equal(loop_new(&loop), 0);
	n = names_on_tree(loop, NULL);
	tree_put(&t, "run/x", "");
	snprintf(a.sun_path, sizeof(a.sun_path), "%s/run/docker.sock", t.path);
	server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(server, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(server, 4), 0);
	w = resolve(n, "/docker/" ID);
	assert_false(workload_is_named(&w));
	peer = accept(server, NULL, NULL);
	assert_true(peer >= 0);
	assert_true(recv(peer, request, sizeof(request) - 1, 0) > 0);
	assert_in(request, "GET /containers/" ID "/json HTTP/1.1\r\n");
	w = resolve(n, "/docker/" ID); /* one query at a time */
	assert_false(workload_is_named(&w));
	assert_int_equal(send(peer, answer, sizeof(answer) - 1, 0), sizeof(answer) - 1);
	close(peer);
	while (!workload_is_named(&w)) {
		loop_once(loop, NS_PER_S);
		w = resolve(n, "/docker/" ID);
	}
	check(w, "", "from-engine", "");

	/* the module is freed while a query runs */
	(void)resolve(n, "/docker/" ID2);
	workload_names_free(n);
	close(server);
	loop_free(loop);
}

static struct workload resolve_on(struct workload_names *n, unsigned gpu, int instance,
				  const char *cgroup)
{
	const struct gw_process p = {
		.cgroup = cgroup, .uid = 1000, .device = gpu, .mig_gpu_instance = instance
	};
	struct workload w;

	workload_names_resolve(n, &p, &w);
	return w;
}

TEST(a_process_belongs_to_the_job_that_the_prolog_recorded_for_its_gpu)
{
	const char *unit = "/system.slice/slurmd.service";
	struct workload_names *n;
	struct workload w;
	char folder[100];

	snprintf(folder, sizeof(folder), "%s/jobs", t.path);
	tree_put(&t, "jobs/0", "41\n");
	tree_put(&t, "jobs/1", "42\r\n43\n\n42\n");
	tree_put(&t, "jobs/2.7", "50");
	tree_put(&t, "jobs/3", "");
	n = names_on_tree(NULL, folder);
	w = resolve_on(n, 0, -1, unit);
	assert_int_equal(w.kind, WORKLOAD_SLURM);
	assert_string_equal(w.id, "41");
	check(w, "alice", "41", "");
	w = resolve_on(n, 1, -1, unit);
	assert_string_equal(w.id, "42,43");
	check(w, "alice", "42,43", "");
	/* the job of the process's own group has priority */
	w = resolve_on(n, 0, -1, "/slurm/uid_0/job_99/step_0");
	check(w, "root", "99", "0");
	/* MIG: the file of the instance is used, or else the file of the GPU */
	assert_string_equal(resolve_on(n, 2, 7, unit).id, "50");
	assert_int_equal(resolve_on(n, 2, 8, unit).kind, WORKLOAD_UNIT);
	assert_int_equal(resolve_on(n, 2, -1, unit).kind, WORKLOAD_UNIT);
	assert_string_equal(resolve_on(n, 0, 3, unit).id, "41");
	assert_int_equal(resolve_on(n, 3, -1, unit).kind, WORKLOAD_UNIT);

	/* The next job is seen at once, although the cached file is younger than a second. */
	tree_put(&t, "jobs/0", "44\n");
	assert_string_equal(resolve_on(n, 0, -1, unit).id, "44");
	tree_remove(&t, "jobs/0");
	assert_int_equal(resolve_on(n, 0, -1, unit).kind, WORKLOAD_UNIT);

	/* The folder disappears and returns. */
	tree_remove(&t, "jobs");
	clock_step(&now, 2 * NS_PER_S);
	assert_int_equal(resolve_on(n, 1, -1, unit).kind, WORKLOAD_UNIT);
	assert_int_equal(resolve_on(n, 2, -1, unit).kind, WORKLOAD_UNIT);
	assert_int_equal(log_lines, 1);
	assert_in(logged, folder);
	assert_in(logged, "workloads.hpc_job_mapping_dir");
	tree_put(&t, "jobs/1", "45\n");
	clock_step(&now, NS_PER_S);
	assert_string_equal(resolve_on(n, 1, -1, unit).id, "45");
	tree_put(&t, "jobs/1", "46\n");
	assert_string_equal(resolve_on(n, 1, -1, unit).id, "46");
	workload_names_free(n);
}

TEST(a_mapping_directory_outside_local_file_systems_is_refused_once)
{
	struct workload_names *n;

	log_lines = 0;
	assert_int_equal(workload_names_new(
				 &(struct workload_names_config){
					 .hpc_job_mapping_dir = "/proc/self", .log = take_log },
				 &n),
			 0);
	assert_int_equal(log_lines, 1);
	assert_in(logged, "/proc/self is not used");
	(void)resolve_on(n, 0, -1, "/system.slice/a.service");
	(void)resolve_on(n, 1, -1, "/system.slice/a.service");
	assert_int_equal(log_lines, 1);
	workload_names_free(n);
}

TEST(a_mapping_file_may_contain_anything)
{
	struct workload_names *n;
	char folder[100], huge[40000];
	struct workload w;

	snprintf(folder, sizeof(folder), "%s/jobs", t.path);
	tree_bytes(&t, "jobs/0", "\0\1\2\n7\n", 6);
	tree_put(&t, "jobs/1", "8\n\033[31m9\n<script>\n10 trailing words\n\xff\xfe\n");
	for (size_t i = 0; i < sizeof(huge) - 1; i++)
		huge[i] = i % 8 == 7 ? '\n' : (char)('0' + i / 8 % 10);
	huge[sizeof(huge) - 1] = '\0';
	tree_put(&t, "jobs/2", huge);
	memset(huge, '5', sizeof(huge) - 1);
	tree_put(&t, "jobs/3", huge);
	assert_int_equal(mkfifoat(t.root.fd, "jobs/4", 0644), 0);
	assert_int_equal(mkdirat(t.root.fd, "jobs/5", 0755), 0);
	tree_put(&t, "jobs/6", "-> 6");
	tree_put(&t, "jobs/7", "-> /dev/zero");
	n = names_on_tree(NULL, folder);
	assert_int_equal(resolve_on(n, 0, -1, "/").kind, WORKLOAD_NONE);
	assert_string_equal(resolve_on(n, 1, -1, "/").id, "8,10");
	w = resolve_on(n, 2, -1, "/");
	assert_int_equal(w.kind, WORKLOAD_SLURM);
	assert_in(w.id, "0000000,1111111,");
	assert_in_range(strlen(w.id), 60, sizeof(w.id) - 1);
	for (unsigned i = 3; i < 8; i++)
		assert_int_equal(resolve_on(n, i, -1, "/").kind, WORKLOAD_NONE);
	for (unsigned i = 0; i < 2000; i++)
		assert_int_equal(resolve_on(n, 8 + i, (int)i, "/").kind, WORKLOAD_NONE);
	assert_int_equal(log_lines, 0);
	workload_names_free(n);
}

TEST_MAIN(NULL, NULL)
