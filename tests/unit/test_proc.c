#include "here.h"
#include "device/proc.h"
#include "device/workload.h"

#include "tree_test.h"

#include <gpuward.h>
#include <pthread.h>
#include <sys/syscall.h>

#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define TAIL  "1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 "

static const struct tree_row worker[] = {
	{ "stat", "4242 (python3) S 4000 " TAIL "987654 1000 2000\n" },
	{ "status",
	  "Name:\tpython3\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t4242\nNgid:\t0\n"
	  "Pid:\t4242\nPPid:\t4000\nUid:\t1001\t1000\t1001\t1001\n" },
	{ "comm", "python3\n" },
	{ "exe", "-> /usr/bin/python3.11" },
	{ "cgroup", "0::/system.slice/docker-" HEX64 ".scope\n" },
	{ "ns/pid", "-> pid:[4026532001]" },
	{ 0 },
};

TEST(reads_every_field_of_a_process)
{
	struct proc p;

	tree_fill(&t, "proc/4242/", worker);
	tree_bytes(&t, "proc/4242/cmdline", "python3\0train.py\0--lr\0", 22);
	assert_int_equal(proc_read(&t.root, 4242, &p), 0);
	assert_int_equal(p.pid, 4242);
	assert_int_equal(p.parent, 4000);
	assert_int_equal(p.start_ticks, 987654);
	assert_int_equal(p.uid, 1000);
	assert_int_equal(p.state, 'S');
	assert_string_equal(p.name, "python3");
	assert_string_equal(p.exe, "/usr/bin/python3.11");
	assert_string_equal(p.command, "python3 train.py --lr");
	assert_string_equal(p.cgroup, "/system.slice/docker-" HEX64 ".scope");
	assert_string_equal(p.container, "0123456789ab");
	assert_int_equal(p.cpu_ns, (5 + 6) * (1000000000 / sysconf(_SC_CLK_TCK)));
}

TEST(maps_a_thread_to_its_process)
{
	struct proc p;

	tree_fill(&t, "proc/4242/", worker);
	tree_put(&t, "proc/4250/status", "Name:\tcuda-EvtHandlr\nTgid:\t4242\nPid:\t4250\n");
	tree_put(&t, "proc/4250/stat", "4250 (cuda-EvtHandlr) S 4000 " TAIL "987700\n");
	tree_put(&t, "proc/4250/comm", "cuda-EvtHandlr\n");
	assert_int_equal(proc_read(&t.root, 4250, &p), 0);
	assert_int_equal(p.pid, 4242);
	assert_int_equal(p.start_ticks, 987654);
	assert_string_equal(p.name, "python3");
	assert_true(proc_in_tree(&t.root, 4250, 4242));
}

TEST(reads_process_names_with_brackets_blanks_and_newlines)
{
	static const char *const name[] = { "a) R 1 (b", ") S 7", "two\nlines", "(", ")", " " };
	char text[256];
	struct proc p;

	for (size_t i = 0; i < COUNT_OF(name); i++) {
		tree_fill(&t, "proc/4242/", worker);
		snprintf(text, sizeof(text), "4242 (%s) D 17 " TAIL "555 0\n", name[i]);
		tree_put(&t, "proc/4242/stat", text);
		snprintf(text, sizeof(text), "%s\n", name[i]);
		tree_put(&t, "proc/4242/comm", text);
		assert_int_equal(proc_read(&t.root, 4242, &p), 0);
		assert_string_equal(p.name, name[i]);
		assert_int_equal(p.state, 'D');
		assert_int_equal(p.parent, 17);
		assert_int_equal(p.start_ticks, 555);
	}
}

TEST(a_missing_process_is_an_error)
{
	struct proc p = { .pid = 77 };
	uint64_t ticks = 5;

	assert_int_equal(proc_read(&t.root, 4242, &p), -GW_E_NOENT);
	assert_int_equal(proc_read(&t.root, 0, &p), -GW_E_NOENT);
	assert_int_equal(proc_read(&t.root, -1, &p), -GW_E_NOENT);
	assert_int_equal(p.pid, 77);
	assert_int_equal(proc_start_ticks(&t.root, 4242, &ticks), -GW_E_NOENT);
	assert_int_equal(ticks, 5);
}

/* A zombie has ended; a process with only its first thread ended still runs. */
TEST(knows_which_processes_run_unless_they_are_unreadable)
{
	static const struct {
		const char *text;
		int lives;
	} rows[] = {
		{ "4242 (x) S 1 " TAIL "50 1 2\n", 1 },
		{ "4242 (x) S 1 " TAIL "51 1 2\n", 0 },
		{ "4242 (x) Z 1 " TAIL "50 1 2\n", 0 },
		{ "4242 (x) X 1 " TAIL "50 1 2\n", 0 },
		{ "4242 (x) Z 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 50 1 2\n", 1 },
		{ "", -GW_E_IO },
	};
	struct proc p;

	assert_int_equal(proc_lives(&t.root, 4242, 50), 0);
	assert_int_equal(proc_lives(&t.root, 0, 50), 0);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		tree_put(&t, "proc/4242/stat", rows[i].text);
		assert_int_equal(proc_lives(&t.root, 4242, 50), rows[i].lives);
	}
	tree_put(&t, "proc/4242/stat", rows[0].text);
	tree_put(&t, "proc/4242/status", "Tgid:\t4242\n");
	assert_int_equal(proc_read(&t.root, 4242, &p), 0);
	assert_false(p.incomplete);
	tree_put(&t, "proc/4242/cmdline/x", ""); /* the file can be opened, but not read */
	assert_int_equal(proc_read(&t.root, 4242, &p), 0);
	assert_true(p.incomplete);
}

TEST(refuses_a_start_time_it_cannot_read)
{
	static const char *const bad[] = {
		"", "4242", "4242 (x", "4242 (x)", "4242 (x) S 1 2 3", ("4242 (x) S 1 " TAIL)
	};
	uint64_t ticks = 5;

	for (size_t i = 0; i < COUNT_OF(bad); i++) {
		tree_put(&t, "proc/4242/stat", bad[i]);
		assert_int_equal(proc_start_ticks(&t.root, 4242, &ticks), -GW_E_PARSE);
	}
	assert_int_equal(ticks, 5);
	tree_put(&t, "proc/4242/stat", worker[0].text);
	assert_int_equal(proc_start_ticks(&t.root, 4242, &ticks), 0);
	assert_int_equal(ticks, 987654);
}

TEST(fields_without_permission_are_unknown)
{
	struct proc p;

	tree_put(&t, "proc/9/status", "Name:\tx\nTgid:\t9\nUid:\t0\t0\t0\t0\n");
	tree_put(&t, "proc/9/stat", worker[0].text);
	assert_int_equal(proc_read(&t.root, 9, &p), 0);
	assert_string_equal(p.name, "");
	assert_string_equal(p.exe, "");
	assert_string_equal(p.command, "");
	assert_string_equal(p.cgroup, "");
	assert_string_equal(p.container, "");
	tree_put(&t, "proc/10/status", "");
	tree_put(&t, "proc/10/stat", "");
	assert_int_equal(proc_read(&t.root, 10, &p), 0);
	assert_int_equal(p.pid, 10);
	assert_int_equal(p.uid, -1);
	assert_int_equal(p.start_ticks, 0);
	assert_int_equal(p.state, 0);
}

TEST(follows_parents_and_survives_a_loop)
{
	for (int i = 1; i <= 80; i++) {
		char path[64], text[128];

		snprintf(path, sizeof(path), "proc/%d/status", i);
		snprintf(text, sizeof(text), "Tgid:\t%d\n", i);
		tree_put(&t, path, text);
		snprintf(path, sizeof(path), "proc/%d/stat", i);
		snprintf(text, sizeof(text), "%d (x) S %d " TAIL "1 0\n", i,
			 i == 10 ? 13 : i - 1);
		tree_put(&t, path, text);
	}
	assert_true(proc_in_tree(&t.root, 5, 5));
	assert_true(proc_in_tree(&t.root, 5, 1));
	assert_false(proc_in_tree(&t.root, 5, 6));
	assert_false(proc_in_tree(&t.root, 5, 0));
	assert_false(proc_in_tree(&t.root, 500, 1));
	assert_true(proc_in_tree(&t.root, 13, 10));
	assert_false(proc_in_tree(&t.root, 13, 5));
	assert_true(proc_in_tree(&t.root, 78, 14));
	assert_false(proc_in_tree(&t.root, 80, 14));
}

TEST(uses_the_most_specific_cgroup)
{
	static const struct {
		const char *text, *want;
	} row[] = {
		{ "0::/user.slice/user-1000.slice\n", "/user.slice/user-1000.slice" },
		{ "12:pids:/a/longer/path\n1:name=systemd:/x\n0::/y\n", "/y" },
		{ "12:pids:/docker/abc\n1:name=systemd:/\n0::/\n", "/docker/abc" },
		{ "0::/\n12:pids:/docker/abc\n", "/docker/abc" },
		{ "4:cpu,cpuacct:/short\n1:name=systemd:/the/longest\n", "/the/longest" },
		{ "0::/\n", "/" },
		{ "0::/with:colon\n", "/with:colon" },
		/* Slurm with cgroup v1 under a systemd that uses the unified hierarchy */
		{ "4:memory:/slurm/uid_5/job_1/step_0\n1:name=systemd:/system.slice/"
		  "slurmd.service\n0::/system.slice/slurmd.service\n",
		  "/slurm/uid_5/job_1/step_0" },
		{ "6:freezer:/slurm/uid_5/job_1\n4:memory:/a/much/longer/path/than/that\n0::/"
		  "\n",
		  "/slurm/uid_5/job_1" },
		{ "6:freezer:/x/slurm/uid_5/job_1\n0::/user.slice\n", "/user.slice" },
		{ "nonsense\n", "" },
		{ "", "" },
	};
	struct proc p;

	tree_fill(&t, "proc/4242/", worker);
	for (size_t i = 0; i < COUNT_OF(row); i++) {
		tree_put(&t, "proc/4242/cgroup", row[i].text);
		assert_int_equal(proc_read(&t.root, 4242, &p), 0);
		assert_string_equal(p.cgroup, row[i].want);
	}
}

TEST(names_the_container_of_every_runtime)
{
	static const struct {
		const char *path, *want;
	} row[] = {
		{ "/docker/" HEX64, "0123456789ab" },
		{ "/system.slice/docker-" HEX64 ".scope", "0123456789ab" },
		{ "/machine.slice/libpod-" HEX64 ".scope/container", "0123456789ab" },
		{ "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" HEX64
		  ".scope",
		  "0123456789ab" },
		{ "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/"
		  "cri-containerd-" HEX64 ".scope",
		  "0123456789ab" },
		{ "/kubepods-besteffort-pod12.slice:cri-containerd:" HEX64, "0123456789ab" },
		{ "/kubepods/burstable/pod12-34/" HEX64, "0123456789ab" },
		{ "/system.slice/web.service/libpod-payload-" HEX64, "0123456789ab" },
		{ "/kubepods.slice/kubepods-pod12.slice/crio-" HEX64 ".scope", "0123456789ab" },
		{ "/docker/ffff456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef/"
		  "docker/"
		  "buildkit/xyz",
		  "ffff456789ab" },
		{ "/lxc.payload.web-1/system.slice/ssh.service", "web-1" },
		{ "/lxc/web/init.scope", "web" },
		{ "/lxc.payload.web/system.slice/docker-" HEX64 ".scope", "0123456789ab" },
		{ "/machine.slice/systemd-nspawn@debian\\x2d12.service/payload", "debian-12" },
		{ "/machine.slice/machine-build\\x2dbox.scope/payload", "build-box" },
		/* in no container */
		{ "/machine.slice/machine-qemu\\x2d1\\x2dvm.scope", "" },
		{ "/machine.slice/libpod-conmon-" HEX64 ".scope", "" },
		{ "/system.slice/crio-conmon-" HEX64 ".scope", "" },
		{ "/system.slice/evil-" HEX64 ".scope", "" },
		{ "/system.slice/xdocker-" HEX64 ".scope", "" },
		{ "/system.slice/docker" HEX64 ".scope", "" },
		{ "/lxc.monitor.web", "" },
		{ "/system.slice/docker.service", "" },
		{ "/user.slice/user-1000.slice/session-2.scope", "" },
		{ "/x" HEX64, "" },
		{ "/docker/0123456789abcdefg123456789abcdef0123456789abcdef0123456789abcdef",
		  "" },
		{ "/lxc.payload.", "" },
		{ "/", "" },
		{ "", "" },
	};
	char out[72];

	for (size_t i = 0; i < COUNT_OF(row); i++) {
		memset(out, 'x', sizeof(out));
		cgroup_container_name(row[i].path, out, sizeof(out));
		assert_string_equal(out, row[i].want);
	}
}

TEST(names_the_innermost_unit_that_is_not_a_container)
{
	static const struct {
		const char *path, *want;
	} row[] = {
		{ "/system.slice/ollama.service", "ollama.service" },
		{ "/system.slice/ollama.service/worker", "ollama.service" },
		{ "/user.slice/user-1000.slice/user@1000.service/app.slice/app-steam-7.scope",
		  "app-steam-7.scope" },
		{ "/user.slice/user-1000.slice/session-2.scope", "session-2.scope" },
		{ "/system.slice/web.service/ollama.service", "web.service" },
		{ "/user.slice/user-1000.slice/user@1000.service", "user@1000.service" },
		{ "/system.slice/docker-" HEX64 ".scope", "" },
		{ "/system.slice/web.service/libpod-payload-" HEX64, "" },
		{ "/system.slice/docker-" HEX64 ".scope/system.slice/ssh.service",
		  "ssh.service" },
		{ "/lxc.payload.web/system.slice/ssh.service", "ssh.service" },
		{ "/system.slice/evil\033[31m.service", "evil\033[31m.service" },
		{ "/.service/.scope", "" },
		{ "/user.slice", "" },
		{ "/", "" },
		{ "", "" },
	};
	char out[128];

	for (size_t i = 0; i < COUNT_OF(row); i++) {
		memset(out, 'x', sizeof(out));
		cgroup_unit_name(row[i].path, out, sizeof(out));
		assert_string_equal(out, row[i].want);
	}
}

TEST(knows_which_groups_hold_which)
{
	assert_true(proc_in_cgroup("/a/b", "/a/b"));
	assert_true(proc_in_cgroup("/a/b/c", "/a/b"));
	assert_true(proc_in_cgroup("/a/b/c", "/a/b/"));
	assert_true(proc_in_cgroup("/a", "/"));
	assert_true(proc_in_cgroup("/", "/"));
	assert_false(proc_in_cgroup("/a/bc", "/a/b"));
	assert_false(proc_in_cgroup("/a", "/a/b"));
	assert_false(proc_in_cgroup("", "/a"));
	assert_false(proc_in_cgroup("/a", ""));
}

TEST(names_users_without_asking_nss)
{
	char out[16];

	proc_user(&t.root, 0, out, sizeof(out));
	assert_string_equal(out, "0");
	tree_put(&t, "etc/passwd",
		 "+::::::\n# root:x:0:0::/:/bin/sh is below\nbroken\n:x:0:0\n"
		 "root:x:0:0:root:/root:/bin/bash\nadmin:x:0:0:twin:/root:/bin/sh\n"
		 "ten:x:10:1000::/:\nann:x:1000:1000:Ann:/home/ann:/bin/sh\nlast:x:7:7");
	proc_user(&t.root, 1000, out, sizeof(out));
	assert_string_equal(out, "ann");
	proc_user(&t.root, 10, out, sizeof(out));
	assert_string_equal(out, "ten");
	proc_user(&t.root, 100, out, sizeof(out));
	assert_string_equal(out, "100");
	proc_user(&t.root, 7, out, sizeof(out));
	assert_string_equal(out, "last");
	proc_user(&t.root, -1, out, sizeof(out));
	assert_string_equal(out, "");
}

TEST(recognises_a_child_pid_namespace)
{
	assert_int_equal(proc_in_child_namespace(&t.root), -GW_E_NOSUPPORT);
	tree_put(&t, "proc/self/ns/pid", "-> pid:[4026531836]");
	assert_int_equal(proc_in_child_namespace(&t.root), 0);
	tree_put(&t, "proc/self/ns/pid", "-> pid:[4026532567]");
	assert_int_equal(proc_in_child_namespace(&t.root), 1);
	tree_put(&t, "proc/self/ns/pid", "-> nonsense");
	assert_int_equal(proc_in_child_namespace(&t.root), -GW_E_NOSUPPORT);
}

static void *ask_by_thread_number(void *arg)
{
	struct proc *p = arg;
	struct root real;

	assert_int_equal(root_open(&real, NULL), 0);
	assert_int_equal(proc_read(&real, (int64_t)syscall(SYS_gettid), p), 0);
	root_close(&real);
	return NULL;
}

TEST(knows_itself_on_the_real_machine)
{
	struct proc p;
	struct root real;
	pthread_t thread;
	uint64_t ticks, cpu_ns;

	assert_int_equal(pthread_create(&thread, NULL, ask_by_thread_number, &p), 0);
	pthread_join(thread, NULL);
	assert_int_equal(p.pid, getpid());
	assert_int_equal(p.parent, getppid());
	assert_int_equal(p.uid, geteuid());
	if (!under_valgrind())
		assert_in(p.exe, "test_proc");
	assert_int_equal(root_open(&real, NULL), 0);
	assert_int_equal(proc_start_ticks(&real, getpid(), &ticks), 0);
	assert_int_equal(ticks, p.start_ticks);
	assert_true(ticks > 0);
	/* The CPU time has a finer resolution than ticks of 10 ms. */
	cpu_ns = p.cpu_ns;
	assert_true(cpu_ns > 0);
	assert_int_equal(proc_read(&real, getpid(), &p), 0);
	assert_in_range(p.cpu_ns, cpu_ns + 1, cpu_ns + 10000000000);
	root_close(&real);
}

TEST_MAIN(NULL, NULL)
