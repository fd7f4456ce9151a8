#include "device/workload.h"

#include "seed.h"

#define ID   "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define ID2  "ffff456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define UID  "8f1c3a52-4c1e-4a7b-9d35-0a1b2c3d4e5f"
#define UID_ "8f1c3a52_4c1e_4a7b_9d35_0a1b2c3d4e5f"
#define HASH "3d6f2b8f0c9e4f5a8b7c6d5e4f3a2b1c" /* the UID of a static pod */
#define USER "/user.slice/user-1000.slice/user@1000.service"

struct path_row {
	const char *path;
	enum workload_kind kind;
	const char *id, *space, *name, *part;
};

static bool tested[WORKLOAD_KINDS]; /* by check_rows() */

static void check_rows(const struct path_row *row, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct path_row *r = &row[i];
		struct workload w;

		tested[r->kind] = true;
		memset(&w, 'x', sizeof(w));
		workload_from_cgroup(r->path, 1234, &w);
		if (w.kind != r->kind || strcmp(w.id, r->id) != 0 ||
		    strcmp(w.space, r->space) != 0 || strcmp(w.name, r->name) != 0 ||
		    strcmp(w.part, r->part) != 0)
			fail_msg("%s: %s, id \"%s\", space \"%s\", name \"%s\", part \"%s\"",
				 r->path, workload_kind_word(w.kind), w.id, w.space, w.name,
				 w.part);
	}
}

#define POD(path, uid, part)                                  \
	{                                                     \
		path, WORKLOAD_KUBERNETES, uid, "", uid, part \
	}
#define JOB(path, id, user, step)                        \
	{                                                \
		path, WORKLOAD_SLURM, id, user, id, step \
	}
#define CONTAINER(path, kind)                         \
	{                                             \
		path, WORKLOAD_##kind, ID, "", ID, "" \
	}
#define ROOTLESS(path, kind)                                      \
	{                                                         \
		path, WORKLOAD_##kind, "1000/" ID, "1000", ID, "" \
	}
#define UNIT(path, name)                                \
	{                                               \
		path, WORKLOAD_UNIT, name, "", name, "" \
	}
#define SESSION(path, user)                                \
	{                                                  \
		path, WORKLOAD_SESSION, user, "", user, "" \
	}
#define NONE(path)                                  \
	{                                           \
		path, WORKLOAD_NONE, "", "", "", "" \
	}

TEST(recognises_pods_of_every_driver_and_runtime)
{
	static const struct path_row row[] = {
		/* systemd driver: containerd, CRI-O, cri-dockerd; the three classes */
		POD("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" UID_
		    ".slice/cri-containerd-" ID ".scope",
		    UID, ID),
		POD("/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" UID_
		    ".slice/crio-" ID ".scope",
		    UID, ID),
		POD("/kubepods.slice/kubepods-pod" UID_ ".slice/docker-" ID ".scope", UID, ID),
		/* CRI-O puts the processes into a group below the scope */
		POD("/kubepods.slice/kubepods-pod" UID_ ".slice/crio-" ID ".scope/container",
		    UID, ID),
		/* static pods: the hash of the manifest is the UID */
		POD("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" HASH
		    ".slice/cri-containerd-" ID ".scope",
		    HASH, ID),
		/* the pod's own group and the monitor of CRI-O */
		POD("/kubepods.slice/kubepods-pod" UID_ ".slice", UID, ""),
		POD("/kubepods.slice/kubepods-pod" UID_ ".slice/crio-conmon-" ID ".scope", UID,
		    ""),
		/* a systemd inside the container */
		POD("/kubepods.slice/kubepods-pod" UID_ ".slice/cri-containerd-" ID
		    ".scope/system.slice/ssh.service",
		    UID, ID),
		/* cgroupfs driver */
		POD("/kubepods/burstable/pod" UID "/" ID, UID, ID),
		POD("/kubepods/besteffort/pod" UID "/" ID, UID, ID),
		POD("/kubepods/pod" UID "/" ID, UID, ID),
		POD("/kubepods/burstable/pod" HASH "/" ID, HASH, ID),
		/* the kubelet uses the systemd driver, containerd does not */
		POD("/system.slice/containerd.service/kubepods-burstable-pod" UID_
		    ".slice:cri-containerd:" ID,
		    UID, ID),
		POD("/kubepods-besteffort-pod" UID_ ".slice:cri-containerd:" ID, UID, ID),
		POD("/system.slice/k3s.service/kubepods/burstable/pod" UID "/" ID, UID, ID),
		/* --cgroup-root, as kind sets it */
		POD("/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
		    "kubelet-kubepods-burstable-pod" UID_ ".slice/cri-containerd-" ID ".scope",
		    UID, ID),
		POD("/kubelet/kubepods/besteffort/pod" UID "/" ID, UID, ID),
		/* a node that is a container: kind, minikube */
		POD("/system.slice/docker-" ID2 ".scope/kubelet.slice/kubelet-kubepods.slice/"
		    "kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod" UID_
		    ".slice/cri-containerd-" ID ".scope",
		    UID, ID),
		POD("/docker/" ID2 "/kubelet/kubepods/burstable/pod" UID "/" ID, UID, ID),
		POD("/docker/" ID2 "/kubepods/burstable/pod" UID "/" ID, UID, ID),
		POD("/machine.slice/libpod-" ID2
		    ".scope/container/kubelet.slice/kubelet-kubepods.slice/"
		    "kubelet-kubepods-pod" UID_ ".slice/cri-containerd-" ID ".scope",
		    UID, ID),
		/* seen from a pod with its own control group namespace */
		POD("/../../kubepods-burstable-pod" UID_ ".slice/cri-containerd-" ID ".scope",
		    UID, ID),
		POD("/../../../kubepods-pod" UID_ ".slice/cri-containerd-" ID ".scope", UID,
		    ID),
		POD("/../../pod" UID "/" ID, UID, ID),
		POD("/../../../burstable/pod" UID "/" ID, UID, ID),
		POD("/../../../../kubepods/besteffort/pod" UID "/" ID, UID, ID),
	};

	check_rows(row, COUNT_OF(row));
}

TEST(recognises_jobs_and_steps_of_slurm)
{
	static const struct path_row row[] = {
		/* cgroup v1: the user is in the path */
		JOB("/slurm/uid_1000/job_42/step_0/task_0", "42", "1000", "0"),
		JOB("/slurm/uid_0/job_7/step_batch", "7", "0", "batch"),
		JOB("/slurm_node3/uid_1000/job_42/step_extern/task_0", "42", "1000", "extern"),
		JOB("/slurm/uid_1000/job_42", "42", "1000", ""),
		/* cgroup v2: the owner of the process is the user */
		JOB("/system.slice/slurmstepd.scope/job_42/step_0/user/task_0", "42", "1234",
		    "0"),
		JOB("/system.slice/slurmstepd.scope/job_42/step_batch/user/task_special", "42",
		    "1234", "batch"),
		JOB("/system.slice/slurmstepd.scope/job_42/step_extern/user/task_special", "42",
		    "1234", "extern"),
		JOB("/system.slice/slurmstepd.scope/job_42/step_interactive/user/task_0", "42",
		    "1234", "interactive"),
		JOB("/system.slice/node3_slurmstepd.scope/job_42/step_1/slurm", "42", "1234",
		    "1"),
		JOB("/slurmstepd.scope/job_42/step_0/user/task_0", "42", "1234", "0"),
		/* a container that a job starts, and a cluster made of containers */
		JOB("/system.slice/slurmstepd.scope/job_42/step_0/user/task_0/libpod-" ID, "42",
		    "1234", "0"),
		JOB("/system.slice/docker-" ID
		    ".scope/system.slice/slurmstepd.scope/job_5/step_0/user/task_0",
		    "5", "1234", "0"),
		JOB("/../../../../system.slice/slurmstepd.scope/job_42/step_0/user/task_0",
		    "42", "1234", "0"),
		/* Slurm's own processes */
		NONE("/system.slice/slurmstepd.scope/system"),
		UNIT("/system.slice/slurmd.service", "slurmd.service"),
	};

	check_rows(row, COUNT_OF(row));
}

TEST(recognises_containers_outside_pods)
{
	static const struct path_row row[] = {
		CONTAINER("/system.slice/docker-" ID ".scope", DOCKER),
		CONTAINER("/docker/" ID, DOCKER),
		CONTAINER("/docker/" ID "/docker/" ID2, DOCKER),
		CONTAINER("/docker/" ID "/system.slice/ssh.service", DOCKER),
		CONTAINER("/ecs/6a1c7d2e9b3f4c58a0d1e2f3a4b5c6d7/" ID, DOCKER),
		CONTAINER("/ecstasks-6a1c7d2e.slice/docker-" ID ".scope", DOCKER),
		CONTAINER("/../docker-" ID ".scope", DOCKER),
		ROOTLESS(USER "/user.slice/docker-" ID ".scope", DOCKER),
		CONTAINER("/machine.slice/libpod-" ID ".scope", PODMAN),
		CONTAINER("/machine.slice/libpod-" ID ".scope/container", PODMAN),
		CONTAINER("/machine.slice/machine-libpod_pod_" ID2 ".slice/libpod-" ID ".scope",
			  PODMAN),
		CONTAINER("/libpod_parent/libpod-" ID, PODMAN),
		CONTAINER("/libpod_parent/" ID2 "/libpod-" ID, PODMAN),
		ROOTLESS(USER "/user.slice/libpod-" ID ".scope/container", PODMAN),
		ROOTLESS(USER "/user.slice/user-libpod_pod_" ID2 ".slice/libpod-" ID ".scope",
			 PODMAN),
		CONTAINER("/system.slice/nerdctl-" ID ".scope", CONTAINERD),
		CONTAINER("/default/" ID, CONTAINERD),
		CONTAINER("/system.slice/cri-containerd-" ID ".scope", CONTAINERD),
		CONTAINER("/system.slice/crio-" ID ".scope", CONTAINERD),
		NONE("/machine.slice/libpod-conmon-" ID ".scope"),
		NONE("/libpod_parent/conmon"),
		NONE("/system.slice/evil-" ID ".scope"),
	};

	check_rows(row, COUNT_OF(row));
}

TEST(recognises_units_and_sessions)
{
	static const struct path_row row[] = {
		UNIT("/system.slice/ollama.service", "ollama.service"),
		UNIT("/system.slice/ollama.service/runner", "ollama.service"),
		UNIT("/system.slice/system-llm.slice/llm@0.service", "llm@0.service"),
		UNIT("/gpu.slice/train.service", "train.service"),
		UNIT("/../../../system.slice/ollama.service", "ollama.service"),
		UNIT("/machine.slice/systemd-nspawn@box.service/payload",
		     "systemd-nspawn@box.service"),
		/* Quadlet: the workload is the unit, because people know its name */
		UNIT("/system.slice/web.service/libpod-payload-" ID, "web.service"),
		{ USER "/app.slice/train.service", WORKLOAD_UNIT, "1000/train.service", "1000",
		  "train.service", "" },
		SESSION("/user.slice/user-1000.slice/session-3.scope", "1000"),
		SESSION("/user.slice/user-1000.slice/session-c1.scope", "1000"),
		SESSION(USER "/app.slice/app-gnome-firefox-4711.scope", "1000"),
		SESSION(USER "/app.slice/app-org.kde.konsole@9f3b.service", "1000"),
		SESSION(USER "/app.slice/app-org.gnome.Terminal.slice/vte-spawn-1.scope",
			"1000"),
		SESSION(USER "/init.scope", "1000"),
		SESSION(USER "", "1000"),
		SESSION("/../../user-1000.slice/session-3.scope", "1000"),
		NONE("/init.scope"),
		NONE("/machine.slice/machine-qemu\\x2d1\\x2dvm.scope"),
		NONE("/user.slice"),
		NONE("/system.slice"),
		NONE("/process_api/3c6eabbee3b628a09130e796c9e65792"),
		NONE("/"),
		NONE(""),
		NONE(NULL),
	};

	check_rows(row, COUNT_OF(row));
}

TEST(ignores_names_that_a_user_or_a_unit_chose)
{
	static const struct path_row row[] = {
		SESSION(USER "/x.scope/slurmstepd.scope/job_7/step_0/user/task_0", "1000"),
		SESSION(USER "/slurmstepd.scope/job_7/step_0", "1000"),
		SESSION(USER "/system.slice/slurmstepd.scope/job_7/step_0", "1000"),
		SESSION(USER "/slurm/uid_0/job_7/step_0", "1000"),
		SESSION(USER "/kubepods.slice/kubepods-pod" UID_ ".slice", "1000"),
		SESSION(USER "/kubepods/burstable/pod" UID, "1000"),
		SESSION(USER "/user-1001.slice/session-1.scope", "1000"),
		SESSION(USER "/user@1001.service/x", "1000"),
		/* containers and units of a user never count as those of the system or of
		 * another user */
		ROOTLESS(USER "/docker-" ID ".scope/kubepods/pod" UID "/" ID2, DOCKER),
		ROOTLESS(USER "/user.slice/libpod-" ID
			      ".scope/container/slurmstepd.scope/job_7",
			 PODMAN),
		{ USER "/app.slice/ollama.service", WORKLOAD_UNIT, "1000/ollama.service",
		  "1000", "ollama.service", "" },
		{ USER "/app.slice/x.service/docker-" ID ".scope", WORKLOAD_UNIT,
		  "1000/x.service", "1000", "x.service", "" },
		SESSION("/user.slice/user-1000.slice/session-3.scope/docker-" ID ".scope",
			"1000"),
		/* a service with Delegate= that runs as its own user */
		UNIT("/system.slice/lab.service/kubepods.slice/kubepods-pod" UID_ ".slice",
		     "lab.service"),
		UNIT("/system.slice/lab.service/slurmstepd.scope/job_7/step_0", "lab.service"),
		UNIT("/system.slice/lab.service/docker-" ID ".scope", "lab.service"),
		UNIT("/system.slice/containerd.service/slurmstepd.scope/job_7",
		     "containerd.service"),
		/* nested in a pod or a job: the outermost workload counts */
		POD("/kubepods/pod" UID "/" ID "/kubepods/pod" HASH "/" ID2, UID, ID),
		POD("/kubepods/pod" UID "/" ID "/slurmstepd.scope/job_7", UID, ID),
		JOB("/slurm/uid_5/job_1/step_0/kubepods/pod" UID "/" ID, "1", "5", "0"),
		/* LXC and virtual machines: root inside them can choose the names of groups */
		NONE("/lxc.payload.web/system.slice/ollama.service"),
		NONE("/lxc/web/system.slice/ollama.service"),
		NONE("/machine.slice/machine-box.scope/system.slice/slurmstepd.scope/job_1"),
		/* paths that no container engine uses */
		NONE("/somewhere/kubepods/burstable/pod" UID),
		NONE("/somewhere/slurmstepd.scope/job_7"),
		NONE("/somewhere/slurm/uid_0/job_7"),
		NONE("/system.slice/slurm/uid_0/job_7"),
		NONE("/pod" UID "/x"),
		NONE("/burstable/pod" UID "/x"),
		NONE("/system.slice/slurmstepd.scope/job_"),
		NONE("/system.slice/slurmstepd.scope/job_7x/step_0"),
		NONE("/system.slice/slurmstepd.scope/job_99999999999999999999"),
		NONE("/system.slice/xslurmstepd.scope/job_7"),
		NONE("/slurm/uid_x/job_7"),
		NONE("/kubepods.slice/kubepods-pod.slice"),
		NONE("/kubepods.slice/evilkubepods-pod" UID_ ".slice"),
		NONE("/kubepods/burstable/pod"),
	};

	check_rows(row, COUNT_OF(row));
}

/* A user can make any groups below the user's own manager. The workload must still have this
 * user's id. */
TEST(no_path_below_a_user_leaves_the_user)
{
	static const char *const parts[] = {
		"kubepods",
		"kubepods.slice",
		"kubepods-pod" UID_ ".slice",
		"pod" UID,
		"burstable",
		"slurmstepd.scope",
		"n_slurmstepd.scope",
		"job_7",
		"step_0",
		"slurm",
		"uid_0",
		"docker",
		"docker-" ID ".scope",
		ID,
		"libpod-" ID2 ".scope",
		"container",
		"kubelet",
		"system.slice",
		"containerd.service",
		"user-0.slice",
		"user@0.service",
		"app.slice",
		"x.service",
		"session-1.scope",
		"..",
	};
	uint64_t seed = seed_of_run();

	for (unsigned i = 0; i < 200000; i++) {
		char path[1200];
		size_t n = (size_t)snprintf(path, sizeof(path), USER);
		struct workload w;

		for (unsigned k = (unsigned)(next(&seed) % 8); k > 0; k--)
			n += (size_t)snprintf(path + n, sizeof(path) - n, "/%s",
					      parts[next(&seed) % COUNT_OF(parts)]);
		workload_from_cgroup(path, 0, &w);
		if (w.kind == WORKLOAD_NONE || w.kind == WORKLOAD_KUBERNETES ||
		    w.kind == WORKLOAD_SLURM || strtol(w.id, NULL, 10) != 1000 ||
		    (w.kind != WORKLOAD_SESSION && strncmp(w.id, "1000/", 5) != 0))
			fail_msg("%s: %s %s", path, workload_kind_word(w.kind), w.id);
	}
}

TEST(keeps_hostile_text_printable_and_bounded)
{
	char path[700], other[700];
	struct workload a, b;

	workload_from_cgroup("/system.slice/a\033[31m\xff.service", 0, &a);
	assert_string_equal(a.name, "a?[31m?.service");
	assert_string_equal(a.id, "a?[31m?.service");
	workload_from_cgroup("/kubepods/pod1\033/x", 0, &a);
	assert_int_equal(a.kind, WORKLOAD_NONE);

	/* two units with the same first 95 characters are two workloads */
	snprintf(path, sizeof(path), "/system.slice/%0200d-a.service", 0);
	snprintf(other, sizeof(other), "/system.slice/%0200d-b.service", 0);
	workload_from_cgroup(path, 0, &a);
	workload_from_cgroup(other, 0, &b);
	assert_int_equal(a.kind, WORKLOAD_UNIT);
	assert_int_equal(strlen(a.id), sizeof(a.id) - 1);
	assert_false(workload_equal(&a, &b));
	assert_true(workload_equal(&a, &a));
}

TEST(knows_whether_a_name_is_still_an_id)
{
	struct workload w;

	workload_from_cgroup("/docker/" ID, 0, &w);
	assert_false(workload_is_named(&w));
	snprintf(w.name, sizeof(w.name), "web");
	assert_true(workload_is_named(&w));
	workload_from_cgroup(USER "/user.slice/libpod-" ID ".scope", 0, &w);
	assert_false(workload_is_named(&w));
	workload_from_cgroup("/user.slice/user-1000.slice/session-3.scope", 0, &w);
	assert_false(workload_is_named(&w));
	workload_from_cgroup("/slurm/uid_1/job_2", 0, &w);
	assert_true(workload_is_named(&w));
	workload_from_cgroup("/system.slice/ollama.service", 0, &w);
	assert_true(workload_is_named(&w));
	workload_from_cgroup("/", 0, &w);
	assert_true(workload_is_named(&w));
}

TEST(every_kind_has_a_path_in_the_tests_above)
{
	for (unsigned k = 0; k < WORKLOAD_KINDS; k++)
		if (!tested[k])
			fail_msg("no test has a path of the kind %s", workload_kind_word(k));
}

TEST_MAIN(NULL, NULL)
