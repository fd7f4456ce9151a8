/* Tests the order of the classes, each field of a match, and which worker a process belongs
 * to. */
#include "guard/classify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEST_SETUP setup
#include "seed.h"

#define MIB (UINT64_C(1) << 20)

static struct policy policy;
static struct scene scene;
static struct verdict verdict[SCENE_PROCESSES];
static uint64_t random_state;

static int setup(void **state)
{
	memset(&policy, 0, sizeof(policy));
	memset(&scene, 0, sizeof(scene));
	policy.unknown_contends = true;
	scene.gpus = 2;
	for (unsigned i = 0; i < 2; i++) {
		scene.gpu[i].index = i;
		scene.gpu[i].cuda = 1 - (int)i;
		snprintf(scene.gpu[i].uuid, sizeof(scene.gpu[i].uuid), "GPU-%u234abcd", i);
		snprintf(scene.gpu[i].pci, sizeof(scene.gpu[i].pci), "0000:0%u:00.0", i + 1);
	}
	return 0;
}

static struct policy_match *worker(const char *name)
{
	struct policy_worker *w = &policy.worker[policy.workers++];

	w->name = name;
	w->match.uid = -1;
	return &w->match;
}

static struct policy_match *rule(enum guard_action action)
{
	struct policy_rule *r = &policy.rule[policy.rules++];

	r->action = action;
	r->match.uid = -1;
	r->text = "rule 1 (gpuward.toml:3)";
	return &r->match;
}

static struct scene_process *process(int64_t pid, const char *exe)
{
	struct scene_process *p = &scene.process[scene.processes++];
	const char *name = strrchr(exe, '/');

	p->id.pid = pid;
	p->id.start_ticks = (uint64_t)pid * 10;
	p->uid = 1000;
	p->type = GW_PROCESS_COMPUTE;
	p->bytes = 600 * MIB;
	p->bytes_known = true;
	p->sm_ratio = NAN;
	snprintf(p->name, sizeof(p->name), "%s", name ? name + 1 : exe);
	snprintf(p->exe, sizeof(p->exe), "%s", name ? exe : "");
	snprintf(p->command, sizeof(p->command), "%s --serve", exe);
	snprintf(p->cgroup, sizeof(p->cgroup), "/user.slice/user-1000.slice/session-2.scope");
	return p;
}

static void put_root(unsigned of, int64_t pid)
{
	scene.root[scene.roots++] = (struct scene_root){ .worker = of,
							 .id.pid = pid,
							 .id.start_ticks = (uint64_t)pid * 10 };
}

#define assert_class(i, want) \
	assert_string_equal(guard_class_name(verdict[i].class), guard_class_name(want))

/* Returns the class of one process under the policy of the test. */
static enum guard_class class_of(const struct scene_process *p)
{
	classify(&policy, &scene, verdict);
	return verdict[p - scene.process].class;
}

TEST(a_pattern_with_a_back_reference_matches_nothing)
{
	static const struct {
		const char *pattern;
		bool bounded;
	} row[] = {
		{ "(.*)(.*)\\1\\2z", false },
		{ "(a)\\9", false },
		{ "[[](a)\\1", false },
		{ "[]a](b)\\1", false },
		{ "[^]\\1](b)\\1", false },
		{ "a\\.b", true },
		{ "a\\\\1", true },
		{ "[\\1]", true },
		{ "[a", true },
		{ "a\\", true },
		{ "a{1,9}", true },
		{ "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", true },
		{ "^/usr/bin/python3 -m vllm.entrypoints.openai.api_server .*--port[= ]8000( "
		  "|$)",
		  true },
		{ ".*a.{100}z", false },
		{ "(a|b)*a(a|b){40}z", false },
		{ "((a{1,255}){1,255}){1,255}", false },
		{ "((((((((((((a?)+)+)+)+)+)+)+)+)+)+)+)+z", false },
		{ "a{99999999999999999999}", false },
		{ "((((((((((((((((a))))))))))))))))", false },
	};

	for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++)
		assert_int_equal(!classify_pattern_fault(row[i].pattern), row[i].bounded);
}

static double cpu_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static unsigned below(unsigned n)
{
	return (unsigned)(next(&random_state) % n);
}

/* Appends a random expression with few letters, so that much of a text matches. */
static void random_pattern(char *out, size_t size, unsigned depth)
{
	static const char *const atoms[] = { "a", "b", ".", ".", "[ab]", "[^c]", ".*", "a*" };
	static const char *const marks[] = { "", "", "*", "+", "?", "{3}", "{1,7}", "{20}" };

	for (unsigned n = 1 + below(4); n && strlen(out) + 32 < size; n--) {
		if (depth && below(3) == 0) {
			strcat(out, "(");
			random_pattern(out, size, depth - 1);
			strcat(out, below(2) ? "|b)" : ")");
		} else {
			strcat(out, atoms[below(sizeof(atoms) / sizeof(atoms[0]))]);
		}
		strcat(out, marks[below(sizeof(marks) / sizeof(marks[0]))]);
	}
}

/* No match may keep a thread busy. Tries the slowest known patterns, and random ones. */
TEST(a_match_of_every_pattern_that_is_accepted_takes_less_than_half_a_second)
{
	static const char *const slow[] = { ".*a.{40}z", "[ab]*a.{40}z", "(a|b)*a(a|b){22}z",
					    "(.?){40}z", "((a{1,6}){1,6})z" };
	struct scene_process *p = process(1, "/usr/bin/x");
	double worst = 0;

	random_state = seed_of_run();
	rule(GUARD_IGNORE);
	for (unsigned i = 0; i < 400; i++) {
		char pattern[200] = "";
		double began;

		if (i < sizeof(slow) / sizeof(slow[0]))
			snprintf(pattern, sizeof(pattern), "%s", slow[i]);
		else
			random_pattern(pattern, sizeof(pattern), 3);
		if (classify_pattern_fault(pattern))
			continue;
		for (unsigned k = 0; k < sizeof(p->command) - 1; k++)
			p->command[k] = "ab"[below(2)];
		policy.rule[0].match.command = pattern;
		began = cpu_s();
		(void)class_of(p);
		began = cpu_s() - began;
		worst = began > worst ? began : worst;
		if (began > 0.5)
			print_message("%s takes %.3f s\n", pattern, began);
	}
	print_message("the slowest match takes %.1f ms\n", worst * 1e3);
	assert_true(worst < 0.5);
}

TEST(matched_command_lines_are_not_matched_again)
{
	struct scene_process *p = process(1, "/usr/bin/x");
	struct classifier *c = NULL;

	rule(GUARD_IGNORE)->command = "never";
	worker("w")->command = "serve$";
	snprintf(p->command, sizeof(p->command), "x serve");
	assert_int_equal(classifier_new(&policy, &c), 0);
	classifier_match_command(c, p);
	classifier_free(c);
	assert_int_equal(class_of(p), CLASS_WORKER);
	snprintf(p->command, sizeof(p->command),
		 "other"); /* the stored result of the match is used, not the command line */
	assert_int_equal(class_of(p), CLASS_WORKER);
	p->command_match = COMMAND_PENDING;
	assert_int_equal(class_of(p), CLASS_UNKNOWN);
	p->command_match = COMMAND_UNMATCHED;
	assert_int_equal(class_of(p), CLASS_CONTENDER);
}

TEST(the_first_class_that_holds_wins)
{
	struct scene_process *p = process(1, "/usr/bin/gnome-shell");

	worker("w")->name = "gnome-shell";
	rule(GUARD_CONTEND_NOW)->name = "gnome-shell";
	p->self = true;
	assert_int_equal(class_of(p), CLASS_SELF);
	p->self = false;
	assert_int_equal(class_of(p), CLASS_WORKER);
	policy.workers = 0;
	p->orphan = true;
	assert_int_equal(class_of(p), CLASS_ORPHAN);
	p->orphan = false;
	assert_int_equal(class_of(p), CLASS_CONTENDER);
	assert_int_equal(verdict[0].action, GUARD_CONTEND_NOW);
	assert_int_equal(verdict[0].rule, 0);
	assert_string_equal(verdict[0].why, "rule 1 (gpuward.toml:3)");
	policy.rules = 0;
	assert_int_equal(class_of(p), CLASS_SYSTEM);
	assert_string_equal(verdict[0].why, "built in: gnome-shell");
	assert_int_equal(verdict[0].rule, -1);
}

/* Row a02 of GUARD-MACHINE.md. */
TEST(three_generations_below_a_root_belong_to_the_worker)
{
	worker("vllm")->port = 8000;
	put_root(0, 100);
	process(100, "/usr/bin/python3");
	process(101, "/usr/bin/python3")->ancestor[0] = 100;
	struct scene_process *grandchild = process(102, "/usr/bin/python3");
	grandchild->ancestor[0] = 101;
	grandchild->ancestor[1] = 100;
	/* The same program outside the process tree. */
	struct scene_process *stranger = process(200, "/usr/bin/python3");
	stranger->ancestor[0] = 1;
	classify(&policy, &scene, verdict);
	for (unsigned i = 0; i < 3; i++) {
		assert_class(i, CLASS_WORKER);
		assert_int_equal(verdict[i].worker, 0);
	}
	assert_class(3, CLASS_CONTENDER);
}

TEST(a_child_that_left_its_session_is_found_by_its_cgroup)
{
	struct scene_process *p = process(103, "/usr/lib/ollama/runner");

	worker("ollama")->unit = "ollama";
	p->ancestor[0] = 1; /* it forked twice: only the cgroup shows its worker */
	snprintf(p->cgroup, sizeof(p->cgroup), "/system.slice/ollama.service/model.scope");
	assert_int_equal(class_of(p), CLASS_WORKER);
	snprintf(p->cgroup, sizeof(p->cgroup), "/system.slice/not-ollama.service");
	assert_int_equal(class_of(p), CLASS_CONTENDER);
	policy.worker[0].match.unit = NULL;
	policy.worker[0].match.cgroup = "/system.slice/*ollama.service";
	assert_int_equal(class_of(p), CLASS_WORKER);
	snprintf(p->cgroup, sizeof(p->cgroup), "/system.slice/not-ollama.service/inner");
	assert_int_equal(class_of(p), CLASS_WORKER);
}

TEST(a_cgroup_that_a_user_named_like_a_unit_is_not_the_unit)
{
	static const struct {
		const char *path;
		bool system, user;
	} row[] = {
		{ "/system.slice/ollama.service", true, false },
		{ "/system.slice/ollama.service/models", true, false },
		{ "/user.slice/user-1000.slice/user@1000.service/app.slice/ollama.service",
		  false, true },
		{ "/user.slice/user-1000.slice/user@1000.service/app.slice/a.scope/"
		  "ollama.service",
		  false, false },
		{ "/user.slice/user-1000.slice/session-2.scope/ollama.service", false, false },
		{ "/system.slice/docker-0123.scope/system.slice/ollama.service", false, false },
		{ "/system.slice/web.service/ollama.service", false, false },
		{ "/system.slice/system-ollama.slice/ollama.service", true, false },
		{ "/lxc/box/system.slice/ollama.service", true, false },
		{ "/system.slice/notollama.service", false, false },
		{ "/", false, false },
		{ "", false, false },
	};

	for (size_t i = 0; i < COUNT_OF(row); i++) {
		assert_int_equal(classify_in_unit(row[i].path, "ollama", false), row[i].system);
		assert_int_equal(classify_in_unit(row[i].path, "ollama.service", true),
				 row[i].user);
	}
	assert_true(classify_in_unit("/system.slice/user@7.service", "user@7.service", false));
}

TEST(a_reused_pid_is_not_a_root)
{
	struct scene_process *p = process(100, "/usr/bin/game");

	worker("w")->pidfile = "/run/w.pid";
	put_root(0, 100);
	assert_int_equal(class_of(p), CLASS_WORKER);
	p->id.start_ticks++;
	assert_int_equal(class_of(p), CLASS_CONTENDER);
}

TEST(the_nearest_of_two_roots_decides)
{
	struct scene_process *p = process(300, "/opt/llama-server");

	worker("swap")->port = 1;
	worker("server")->port = 2;
	put_root(0, 100);
	put_root(1, 200);
	p->ancestor[0] = 200;
	p->ancestor[1] = 100;
	assert_int_equal(class_of(p), CLASS_WORKER);
	assert_int_equal(verdict[0].worker, 1);
	assert_int_equal(verdict[0].also, -1);
}

TEST(a_process_of_two_workers_is_the_firsts_with_a_warning)
{
	char said[200];

	worker("one")->exe = "/usr/bin/python3*";
	worker("two")->name = "python*";
	process(300, "/usr/bin/python3.11");
	process(301, "/usr/bin/other");
	classify(&policy, &scene, verdict);
	assert_int_equal(verdict[0].worker, 0);
	assert_int_equal(verdict[0].also, 1);
	assert_int_equal(verdict[1].also, -1);
	classify_conflict(&policy, &scene.process[0], &verdict[0], said, sizeof(said));
	assert_string_equal(
		said, "process 300 (python3.11) matches worker one and worker two: narrow "
		      "the match of one of them");
}

TEST(a_worker_with_a_port_is_not_found_by_its_name)
{
	struct policy_match *m = worker("w");
	struct scene_process *p = process(5, "/usr/bin/ollama");

	m->name = "ollama";
	m->port = 11434;
	assert_int_equal(class_of(p), CLASS_CONTENDER);
	m->port = 0;
	assert_int_equal(class_of(p), CLASS_WORKER);
	m->name = NULL; /* an empty match matches no process */
	assert_int_equal(class_of(p), CLASS_CONTENDER);
	m->vram_ge = 1;
	assert_int_equal(class_of(p), CLASS_CONTENDER);
}

/* Row a01 of GUARD-MACHINE.md: the desktop. */
TEST(desktop_programs_are_known_by_path_and_name)
{
	static const char *const exe[] = {
		"/usr/lib/xorg/Xorg",
		"/usr/bin/Xwayland",
		"/usr/bin/gnome-shell",
		"/usr/bin/gnome-shell (deleted)",
		"/usr/bin/kwin_wayland",
		"/usr/bin/plasmashell",
		"/usr/bin/cosmic-comp",
		"/usr/bin/sway",
		"/usr/bin/Hyprland",
		"/usr/bin/niri",
		"/usr/libexec/gdm-x-session",
		"/usr/bin/sddm-greeter",
		"/usr/bin/nvidia-persistenced",
		"/usr/bin/nvidia-powerd",
		"/usr/bin/nv-hostengine",
		"/usr/bin/dcgm-exporter",
		"/usr/bin/nvidia-cuda-mps-server",
		"/nix/store/abc-gnome-shell-46/bin/.gnome-shell-wrapped",
	};

	for (size_t i = 0; i < COUNT_OF(exe); i++) {
		struct scene_process *p;

		scene.processes = 0;
		p = process(7, exe[i]);
		p->name[strcspn(p->name, " ")] = '\0';
		if (class_of(p) != CLASS_SYSTEM)
			fail_msg("%s is not of the system", exe[i]);
	}
}

TEST(a_program_that_took_a_desktop_name_is_ordinary)
{
	struct scene_process *p = process(7, "/home/u/gnome-shell");

	assert_int_equal(class_of(p), CLASS_CONTENDER);
	snprintf(p->exe, sizeof(p->exe), "/usr/bin/python3.11");
	assert_int_equal(class_of(p), CLASS_CONTENDER);
	snprintf(p->exe, sizeof(p->exe), "/usr/bin/gnome-shell");
	snprintf(p->name, sizeof(p->name), "game");
	assert_int_equal(class_of(p), CLASS_CONTENDER);
	snprintf(p->name, sizeof(p->name), "gnome-shell");
	assert_int_equal(class_of(p), CLASS_SYSTEM);
}

TEST(with_a_hidden_path_the_command_line_must_fit)
{
	struct scene_process *p = process(7, "/usr/bin/gnome-shell");

	p->exe[0] = '\0';
	assert_int_equal(class_of(p), CLASS_SYSTEM);
	snprintf(p->command, sizeof(p->command), "/home/u/gnome-shell");
	assert_int_equal(class_of(p), CLASS_CONTENDER);
	snprintf(p->command, sizeof(p->command), "python3 train.py");
	assert_int_equal(class_of(p), CLASS_CONTENDER);
}

TEST(the_profile_decides_about_unknown_processes)
{
	struct scene_process *p = process(7, "/home/u/game");

	assert_int_equal(class_of(p), CLASS_CONTENDER);
	assert_int_equal(verdict[0].action, GUARD_CONTEND);
	policy.unknown_contends = false;
	assert_int_equal(class_of(p), CLASS_UNKNOWN);
	assert_int_equal(verdict[0].action, GUARD_WATCH);
}

TEST(any_makes_every_process_but_own_and_workers_contend)
{
	policy.any = true;
	policy.unknown_contends = false;
	worker("w")->name = "ollama";
	process(1, "/usr/bin/gnome-shell");
	process(2, "/usr/lib/xorg/Xorg");
	process(3, "/home/u/x");
	process(4, "/usr/bin/ollama");
	process(5, "/usr/bin/gpuward")->self = true;
	process(6, "/gone")->orphan = true;
	classify(&policy, &scene, verdict);
	for (unsigned i = 0; i < 3; i++)
		assert_class(i, CLASS_CONTENDER);
	assert_class(3, CLASS_WORKER);
	assert_class(4, CLASS_SELF);
	assert_class(5, CLASS_ORPHAN);     /* the memory of an orphan never counts as demand */
	rule(GUARD_IGNORE)->name = "Xorg"; /* a rule of the user still applies */
	classify(&policy, &scene, verdict);
	assert_class(1, CLASS_IGNORED);
}

TEST(the_first_rule_that_matches_wins)
{
	struct scene_process *p = process(7, "/home/u/game");

	rule(GUARD_WATCH)->name = "g?me";
	rule(GUARD_CONTEND_NOW)->exe = "/home/*";
	assert_int_equal(class_of(p), CLASS_IGNORED);
	assert_int_equal(verdict[0].action, GUARD_WATCH);
	assert_int_equal(verdict[0].rule, 0);
	policy.rule[0].match.name = "other";
	assert_int_equal(class_of(p), CLASS_CONTENDER);
	assert_int_equal(verdict[0].rule, 1);
}

TEST(an_empty_rule_matches_nothing)
{
	rule(GUARD_IGNORE);
	assert_int_equal(class_of(process(7, "/home/u/game")), CLASS_CONTENDER);
}

#define ID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

/* Tests each field of a match, with a value that matches and one that does not. */
TEST(every_field_of_a_match_counts)
{
#define M(...)                         \
	{                              \
		.uid = -1, __VA_ARGS__ \
	}
	static const struct {
		struct policy_match match;
		bool fits;
	} rows[] = {
		{ M(.name = "llama-server"), true },
		{ M(.name = "llama*"), true },
		{ M(.name = "LLAMA*"), false },
		{ M(.name = "llama"), false },
		{ M(.exe = "/srv/*/llama-server"), true },
		{ M(.exe = "*"), true },
		{ M(.exe = "/srv/?/llama-server"), false },
		{ M(.command = "--model +[a-z]+\\.gguf"), true },
		{ M(.command = "^--model"), false },
		{ M(.command = "("), false }, /* does not compile */
		{ M(.cgroup = "/system.slice/docker-*"), true },
		{ M(.cgroup = "/system.slice"), true },
		{ M(.cgroup = "/system"), false },
		{ M(.container = "0123"), true },
		{ M(.container = ID), true },
		{ M(.container = "1234"), false },
		{ M(.container = ""), false },
		{ { .uid = 1001 }, true },
		{ { .uid = 0 }, false },
		{ M(.type = GW_PROCESS_GRAPHICS), true },
		{ M(.type = GW_PROCESS_MPS), false },
		{ M(.type = GW_PROCESS_MPS | GW_PROCESS_COMPUTE), true },
		{ M(.vram_ge = 100 * MIB), true },
		{ M(.vram_ge = 100 * MIB + 1), false },
		{ M(.util_ge = 0.5), true },
		{ M(.util_ge = 0.51), false },
		{ M(.gpu = "1"), true },
		{ M(.gpu = "0"), false },
		{ M(.gpu = "GPU-1234"), true },
		{ M(.gpu = "GPU-0234"), false },
		{ M(.gpu = "02:00.0"), true },
		{ M(.gpu = "cuda:0"), true },
		{ M(.gpu = "cuda:1"), false },
		{ M(.gpu = "nonsense"), false },
		{ { .name = "llama*", .uid = 0 }, false }, /* all fields must match */
	};
	struct scene_process *p = process(7, "/srv/llm/bin/llama-server");

	snprintf(p->command, sizeof(p->command), "llama-server --model  tiny.gguf");
	snprintf(p->cgroup, sizeof(p->cgroup), "/system.slice/docker-" ID ".scope");
	snprintf(p->container, sizeof(p->container), "0123456789ab");
	p->uid = 1001;
	p->gpu = 1;
	p->type = GW_PROCESS_COMPUTE | GW_PROCESS_GRAPHICS;
	p->bytes = 100 * MIB;
	p->sm_ratio = 0.5;
	policy.rules = 1;
	policy.rule[0].action = GUARD_IGNORE;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		policy.rule[0].match = rows[i].match;
		if ((class_of(p) == CLASS_IGNORED) != rows[i].fits)
			fail_msg("row %zu", i);
	}
}

TEST(a_container_matches_by_its_whole_name)
{
	static const struct {
		const char *wanted, *container;
		bool fits;
	} rows[] = {
		{ "ollama", "ollama", true },
		{ "ollama", "ollama-evil", false },
		{ "ollama-evil", "ollama", false },
		{ "ollama", "ollam", false },
		{ "my-long-container", "my-long-cont", false },
		{ "c0ffee", "c0ffee012345", true },
		{ "c0ffee", "c0ffee01", false }, /* this is a name, not an id */
		{ "c0ffee01234567", "c0ffee012345", true },
		{ "c0ffee01234567", "c0ffee012346", false },
	};
	struct scene_process *p = process(7, "/bin/x");

	policy.rules = 1;
	policy.rule[0].action = GUARD_IGNORE;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		policy.rule[0].match =
			(struct policy_match){ .uid = -1, .container = rows[i].wanted };
		snprintf(p->container, sizeof(p->container), "%s", rows[i].container);
		if ((class_of(p) == CLASS_IGNORED) != rows[i].fits)
			fail_msg("row %zu", i);
	}
}

TEST(a_user_cannot_pretend_to_be_a_container_of_another_engine)
{
	struct scene_process *p = process(7, "/bin/x");
	struct policy_match *m = worker("w");

	m->container = ID;
	snprintf(p->container, sizeof(p->container), "0123456789ab");
	snprintf(p->cgroup, sizeof(p->cgroup), "/system.slice/docker-" ID ".scope");
	assert_int_equal(class_of(p), CLASS_WORKER);
	snprintf(p->cgroup, sizeof(p->cgroup),
		 "/user.slice/user-1000.slice/user@1000.service/docker-" ID ".scope");
	assert_int_equal(class_of(p), CLASS_CONTENDER);
	policy.worker[0].url = "unix:///run/user/100/podman/podman.sock";
	assert_int_equal(class_of(p), CLASS_CONTENDER);
	policy.worker[0].url = "unix:///run/user/1000/podman/podman.sock";
	assert_int_equal(class_of(p), CLASS_WORKER);
	policy.worker[0].url = NULL;
	m->uid = p->uid = 1000;
	assert_int_equal(class_of(p), CLASS_WORKER);
}

TEST(an_unknown_value_does_not_match)
{
	struct policy_match *m = rule(GUARD_IGNORE);
	struct scene_process *p = process(7, "x");

	m->vram_ge = 1;
	p->bytes_known = false; /* unknown memory does not match */
	assert_int_equal(class_of(p), CLASS_CONTENDER);
	*m = (struct policy_match){ .uid = -1, .util_ge = 0.01 };
	assert_int_equal(class_of(p), CLASS_CONTENDER);
	*m = (struct policy_match){ .uid = 1000 };
	p->uid = -1;
	assert_int_equal(class_of(p), CLASS_CONTENDER);
	*m = (struct policy_match){ .uid = -1, .exe = "*" };
	assert_int_equal(class_of(p), CLASS_CONTENDER);
}

TEST(a_process_with_a_hidden_program_may_be_a_missing_worker)
{
	struct scene_process *p;

	worker("w")->exe = "/srv/*";
	p = process(10, "/srv/server");
	p->exe[0] = '\0';
	classify(&policy, &scene, verdict);
	assert_int_equal(verdict[0].class, CLASS_UNKNOWN);
	assert_int_equal(verdict[0].action, GUARD_WATCH);
	/* the name of the process can be read and does not match */
	policy.worker[0].match.name = "other";
	classify(&policy, &scene, verdict);
	assert_int_equal(verdict[0].class, CLASS_CONTENDER);
	policy.worker[0].match.name = NULL;
	rule(GUARD_CONTEND)->name = "server"; /* a rule of the user decides */
	classify(&policy, &scene, verdict);
	assert_int_equal(verdict[0].class, CLASS_CONTENDER);
	policy.rules = 0;
	scene.root[scene.roots++] =
		(struct scene_root){ .id.pid = 20 }; /* the worker is another process */
	classify(&policy, &scene, verdict);
	assert_int_equal(verdict[0].class, CLASS_CONTENDER);
}

TEST(a_name_longer_than_in_the_kernel_matches)
{
	struct scene_process *p = process(7, "nvidia-persistenced");

	rule(GUARD_IGNORE)->name = "nvidia-persistenced";
	assert_string_equal(p->name, "nvidia-persiste");
	assert_int_equal(class_of(p), CLASS_IGNORED);
	policy.rule[0].match.name = "nvidia-personal-x";
	p->command[0] = 'x';
	assert_int_equal(class_of(p), CLASS_CONTENDER);
}

TEST(a_reused_classifier_gives_the_same_verdicts)
{
	static struct verdict again[SCENE_PROCESSES];
	struct classifier *c;

	rule(GUARD_CONTEND_NOW)->command = "^/home/.*--serve$";
	worker("w")->command = "ollama";
	for (unsigned i = 0; i < 1000; i++)
		process(i, i % 3 == 0   ? "/home/u/a"
			   : i % 3 == 1 ? "/usr/bin/ollama"
					: "/usr/bin/sway");
	assert_int_equal(classifier_new(&policy, &c), 0);
	classify(&policy, &scene, verdict);
	for (unsigned k = 0; k < 2; k++) {
		classifier_run(c, &scene, again);
		for (unsigned i = 0; i < scene.processes; i++)
			assert_true(verdict[i].class == again[i].class &&
				    verdict[i].action == again[i].action &&
				    verdict[i].worker == again[i].worker &&
				    verdict[i].rule == again[i].rule &&
				    verdict[i].why == again[i].why);
	}
	assert_class(0, CLASS_CONTENDER);
	assert_class(1, CLASS_WORKER);
	assert_class(2, CLASS_SYSTEM);
	classifier_free(c);
	classifier_free(NULL);
}

static void put_mps(unsigned gpu, const char *name, unsigned type, enum guard_class class)
{
	struct scene_process *p = process(1, name);

	p->gpu = gpu;
	p->type = type;
	verdict[scene.processes - 1].class = class;
}

TEST(workers_without_mps_are_not_served)
{
	assert_false(classify_mps_serves_worker(&scene, verdict));
	put_mps(0, "python", GW_PROCESS_COMPUTE, CLASS_WORKER);
	put_mps(0, "other", GW_PROCESS_COMPUTE | GW_PROCESS_MPS, CLASS_CONTENDER);
	assert_false(classify_mps_serves_worker(&scene, verdict));
}

TEST(a_worker_listed_as_an_mps_client_is_served)
{
	put_mps(0, "python", GW_PROCESS_COMPUTE | GW_PROCESS_MPS, CLASS_WORKER);
	assert_true(classify_mps_serves_worker(&scene, verdict));
}

TEST(mps_counts_only_on_the_workers_gpu)
{
	put_mps(1, "nvidia-cuda-mps-server", GW_PROCESS_COMPUTE, CLASS_SYSTEM);
	put_mps(0, "python", GW_PROCESS_COMPUTE, CLASS_WORKER);
	assert_false(classify_mps_serves_worker(&scene, verdict));
	put_mps(1, "python", GW_PROCESS_COMPUTE, CLASS_WORKER);
	assert_true(classify_mps_serves_worker(&scene, verdict));
}

TEST_MAIN(NULL, NULL)
