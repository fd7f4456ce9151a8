/* Tests which servers setup recognises, and which steps and notes it plans. */
#include "cli/setup_plan.h"

#include "daemon/config.h"
#include "device/proc.h"
#include "guard/classify.h"

#include "test.h"

static struct setup_servers found;
static struct setup_plan plan;

/* Makes a process from words that are separated by blanks. */
static struct setup_process process(const char *words, const char *folder)
{
	static char text[1000];
	struct setup_process p = { .folder = folder, .environment = "" };

	snprintf(text, sizeof(text), "%s", words);
	for (char *w = strtok(text, " "); w; w = strtok(NULL, " "))
		p.argv[p.argc++] = w;
	return p;
}

TEST(each_kind_of_server_is_recognised_and_other_programs_are_not)
{
	static const struct {
		const char *words, *folder;
		int kind; /* -1: none */
		unsigned port;
		bool lacks, stuck;
	} row[] = {
		{ "/usr/local/bin/ollama serve", "/", WORKER_OLLAMA, 11434, false, false },
		{ "ollama runner --port 3", "/", -1, 0, false, false },
		{ "ollama run llama3", "/", -1, 0, false, false },
		{ "llama-server --port=8081", "/", WORKER_LLAMACPP, 8081, false, false },
		{ "/x/llama-server-cuda -m a.gguf", "/", WORKER_LLAMACPP, 8080, false, true },
		{ "llama-swap --listen :9292", "/", WORKER_LLAMASWAP, 9292, false, false },
		{ "python3 /v/bin/vllm serve Q --port 8002", "/", WORKER_VLLM, 8002, true,
		  false },
		{ "python -m vllm.entrypoints.openai.api_server --enable-sleep-mode", "/",
		  WORKER_VLLM, 8000, false, false },
		{ "python3 -u -m sglang.launch_server --port 31000", "/", WORKER_SGLANG, 31000,
		  true, false },
		{ "python3 main.py", "/srv/tabbyAPI", WORKER_TABBY, 5000, false, false },
		{ "./koboldcpp-linux --admin --admindir /m", "/", WORKER_KOBOLD, 5001, false,
		  false },
		{ "python main.py --port nonsense", "/home/a/ComfyUI", WORKER_COMFY, 8188,
		  false, false },
		{ "python /a/stable-diffusion-webui/launch.py", "/", WORKER_A1111, 7860, true,
		  false },
		{ "python main.py", "/home/a/other", -1, 0, false, false },
		{ "vim llama-server", "/", -1, 0, false, false },
		{ "python", "/", -1, 0, false, false },
	};

	for (size_t i = 0; i < COUNT_OF(row); i++) {
		struct setup_process p = process(row[i].words, row[i].folder);
		struct setup_server s = { .sign = setup_recognise(&p) };

		if (row[i].kind < 0) {
			assert_null(s.sign);
			continue;
		}
		assert_non_null(s.sign);
		assert_int_equal(s.sign->kind, row[i].kind);
		setup_read_command(&p, &s);
		assert_int_equal(s.port, row[i].port);
		assert_int_equal(s.lacks, row[i].lacks);
		assert_int_equal(s.stuck, row[i].stuck);
	}
}

TEST(every_http_kind_has_a_row)
{
	for (unsigned k = 0; k < WORKER_KINDS; k++) {
		bool has = false;

		for (unsigned i = 0; i < setup_sign_count; i++)
			has |= setup_signs[i].kind == k;
		if (has != (policy_kind_url(k) != NULL))
			fail_msg("kind %s: every kind with a URL, and no other kind, has a row "
				 "in src/guard/kind_signs.def",
				 policy_kind_name(k));
	}
}

TEST(the_unit_that_setup_writes_is_one_that_the_guard_matches)
{
	static const struct {
		const char *path, *unit;
	} row[] = {
		{ "/system.slice/ollama.service", "ollama.service" },
		{ "/system.slice/ollama.service/runner", "ollama.service" },
		{ "/system.slice/web.service/ollama.service", "web.service" },
		{ "/system.slice/web.service/ollama.service/a.scope", "web.service" },
		{ "/user.slice/user-7.slice/user@7.service/app.slice/a.service/b.service",
		  "a.service" },
		{ "/user.slice/user-7.slice/user@7.service/app.slice/a.scope/b.service", "" },
		{ "/user.slice/user-7.slice/session-2.scope/b.service", "" },
		{ "/user.slice/user-7.slice/user@7.service", "" },
		{ "/", "" },
	};

	for (size_t i = 0; i < COUNT_OF(row); i++) {
		struct setup_server s = { .home = SETUP_PLAIN };

		assert_int_equal(setup_unit_of(row[i].path, &s), *row[i].unit != 0);
		assert_string_equal(s.unit, row[i].unit);
		if (*s.unit) {
			assert_true(classify_in_unit(row[i].path, s.unit,
						     s.home == SETUP_USER_UNIT));
			assert_true(proc_in_cgroup(row[i].path, s.cgroup));
		}
	}
}

TEST(a_unit_is_a_service_of_the_system_or_of_a_user)
{
	struct setup_server s = { .home = SETUP_PLAIN };

	assert_true(setup_unit_of("/system.slice/ollama.service", &s));
	assert_int_equal(s.home, SETUP_UNIT);
	assert_string_equal(s.unit, "ollama.service");
	assert_true(setup_unit_of(
		"/user.slice/user-1000.slice/user@1000.service/app.slice/comfy.service/sub",
		&s));
	assert_int_equal(s.home, SETUP_USER_UNIT);
	assert_string_equal(s.unit, "comfy.service");
	s.home = SETUP_PLAIN;
	assert_false(setup_unit_of(
		"/user.slice/user-1000.slice/user@1000.service/app.slice/x.scope", &s));
	assert_false(setup_unit_of("/user.slice/user-1000.slice/session-2.scope", &s));
	assert_int_equal(s.home, SETUP_PLAIN);
}

static const struct setup_sign *sign_of(enum policy_kind kind)
{
	for (unsigned i = 0; i < setup_sign_count; i++)
		if (setup_signs[i].kind == kind)
			return &setup_signs[i];
	return NULL;
}

static struct setup_server *add_server(enum policy_kind kind, enum setup_home home)
{
	struct setup_server *s = &found.server[found.count++];

	*s = (struct setup_server){ .sign = sign_of(kind),
				    .pid = 100 + found.count,
				    .uid = 1000,
				    .home = home,
				    .port = 4000 + found.count,
				    .listens = true };
	snprintf(s->script, sizeof(s->script), "/x/program-%u", found.count);
	snprintf(s->command, sizeof(s->command), "/x/program-%u serve", found.count);
	return s;
}

static struct setup_facts begin(void)
{
	memset(&found, 0, sizeof(found));
	return (struct setup_facts){ .servers = &found,
				     .manager = SETUP_STOPPED,
				     .account = true,
				     .port = 9490,
				     .port_user = -1,
				     .port_name = "",
				     .token = "secret\n",
				     .user = "alice",
				     .home = "/home/alice",
				     .date = "2026-01-31" };
}

static void make(const struct setup_facts *f)
{
	const struct setup_answers yes = { true, true, true };
	char message[500] = "";
	struct config c;

	assert_int_equal(setup_plan_make(f, &yes, &plan), 0);
	assert_int_equal(config_load_text(&c, "plan", plan.config.p, plan.config.len, message,
					  sizeof(message)),
			 0);
	config_done(&c);
}

static const struct setup_step *step_at(const char *path)
{
	for (unsigned i = 0; i < plan.count; i++)
		if (strcmp(plan.step[i].path, path) == 0)
			return &plan.step[i];
	return NULL;
}

TEST(an_ollama_unit_gives_token_configuration_copy_and_service)
{
	struct setup_facts f = begin();

	snprintf(add_server(WORKER_OLLAMA, SETUP_UNIT)->unit, 128, "ollama.service");
	make(&f);
	assert_int_equal(plan.count, 7);
	assert_string_equal(step_at(SETUP_TOKEN)->text, "secret\n");
	assert_int_equal(step_at(SETUP_TOKEN)->mode, 0600);
	assert_true(step_at(SETUP_TOKEN)->of_account);
	assert_in(step_at(SETUP_CONFIG)->text, "match.unit = \"ollama.service\"");
	assert_in(step_at(SETUP_CONFIG)->text, "mode = \"dry-run\"");
	assert_int_equal(step_at("/home/alice/.config/gpuward/token")->mode, 0600);
	assert_int_equal(plan.step[plan.count - 1].what, STEP_UNIT);
	assert_int_equal(plan.notes.len, 0);
	setup_plan_done(&plan);
}

TEST(a_configuration_by_a_person_is_never_written_but_the_lines_are_shown)
{
	struct setup_facts f = begin();

	add_server(WORKER_OLLAMA, SETUP_PLAIN);
	f.config = SETUP_THEIRS;
	make(&f);
	assert_null(step_at(SETUP_CONFIG));
	/* the lines name the token, so it must exist */
	assert_in(plan.config.p, "token_file");
	assert_non_null(step_at(SETUP_TOKEN));
	assert_null(step_at("/home/alice/.config/gpuward/token"));
	assert_true(plan.print_config);
	setup_plan_done(&plan);
	f.token_configured = true;
	make(&f);
	assert_null(step_at(SETUP_TOKEN));
	assert_null(strstr(plan.config.p, "token_file"));
	setup_plan_done(&plan);
	f.token_configured = false;
	f.config = SETUP_ABSENT;
	f.drop_in = SETUP_THEIRS;
	make(&f);
	assert_null(step_at(SETUP_CONFIG));
	setup_plan_done(&plan);
	/* if the main file has no setting, such as an example, a drop-in is added */
	f.config = SETUP_COMMENT;
	f.drop_in = SETUP_ABSENT;
	make(&f);
	assert_null(step_at(SETUP_CONFIG));
	assert_non_null(step_at(SETUP_DROP_IN));
	setup_plan_done(&plan);
	/* only an unchanged file of an earlier setup is replaced */
	f.config = SETUP_OURS;
	make(&f);
	assert_true(step_at(SETUP_CONFIG)->replaces);
	setup_plan_done(&plan);
	found.count = 0;
	make(&f);
	assert_null(step_at(SETUP_CONFIG));
	setup_plan_done(&plan);
}

TEST(without_systemd_or_with_a_second_instance_nothing_is_started_and_a_note_says_why)
{
	static const struct {
		enum setup_manager manager;
		int64_t port_user;
		const char *note;
		enum setup_what last; /* the last step */
	} row[] = {
		{ SETUP_NO_SYSTEMD, -1, "sudo gpuward serve", STEP_USER_FILE },
		{ SETUP_NO_UNIT, -1, "not installed", STEP_USER_FILE },
		{ SETUP_STOPPED, 77, "Port 9555 is in use (process 77, other)",
		  STEP_USER_FILE },
		{ SETUP_RUNNING, 77, "", STEP_RELOAD },
	};

	for (size_t i = 0; i < COUNT_OF(row); i++) {
		struct setup_facts f = begin();

		add_server(WORKER_OLLAMA, SETUP_PLAIN);
		f.manager = row[i].manager;
		f.port = 9555;
		f.port_user = row[i].port_user;
		f.port_name = "other";
		make(&f);
		assert_int_equal(plan.step[plan.count - 1].what, row[i].last);
		assert_in(plan.notes.len ? plan.notes.p : "", row[i].note);
		setup_plan_done(&plan);
	}
}

TEST(servers_that_cannot_be_moved_by_their_api_get_their_unit_stopped_or_a_note)
{
	struct setup_facts f = begin();
	struct setup_server *s = add_server(WORKER_LLAMACPP, SETUP_UNIT);

	s->stuck = true;
	snprintf(s->unit, sizeof(s->unit), "llama.service");
	add_server(WORKER_LLAMACPP, SETUP_PLAIN)->stuck = true;
	add_server(WORKER_KOBOLD, SETUP_PLAIN)->lacks = true;
	make(&f);
	assert_int_equal(plan.workers, 1);
	assert_in(plan.config.p, "kind = \"systemd\"");
	assert_in(step_at(SETUP_COMPANION)->text, "client gpuward\nunit llama.service\n");
	assert_non_null(step_at(SETUP_SOCKET));
	assert_in(plan.notes.p, "one fixed model");
	assert_in(plan.notes.p, "--admindir");
	setup_plan_done(&plan);
}

TEST(many_units_with_long_names_are_all_in_the_file_of_the_companion)
{
	struct setup_facts f = begin();

	for (unsigned i = 0; i < SETUP_SERVERS; i++) {
		struct setup_server *s = add_server(WORKER_LLAMACPP, SETUP_UNIT);

		s->stuck = true;
		s->pid = 100 + i;
		snprintf(s->unit, sizeof(s->unit), "llama-%0110u.service", i);
	}
	for (unsigned theirs = 0; theirs < 2; theirs++) {
		f.companion = theirs ? SETUP_THEIRS : SETUP_ABSENT;
		make(&f);
		for (unsigned i = 0; i < SETUP_SERVERS; i++) {
			char line[160];

			snprintf(line, sizeof(line), "unit llama-%0110u.service", i);
			assert_in(theirs ? plan.notes.p : step_at(SETUP_COMPANION)->text, line);
		}
		setup_plan_done(&plan);
	}
}

TEST(two_servers_of_a_kind_and_hostile_names_still_give_a_valid_file)
{
	struct setup_facts f = begin();

	for (unsigned i = 0; i < 2; i++) {
		struct setup_server *s = add_server(WORKER_LLAMACPP, SETUP_PLAIN);

		snprintf(s->script, sizeof(s->script), "/x/llama-server");
		snprintf(s->command, sizeof(s->command), "llama-server --port %u \"\n[x](*", i);
	}
	snprintf(add_server(WORKER_OLLAMA, SETUP_UNIT)->unit, 128, "a\"\n[guard]x.service");
	make(&f);
	assert_in(plan.config.p, "name = \"llamacpp-2\"");
	assert_int_equal(plan.workers, 3);
	setup_plan_done(&plan);
}

TEST(a_pattern_is_never_cut_inside_an_escape_or_a_character)
{
	struct setup_facts f = begin();
	struct setup_server *s = add_server(WORKER_LLAMACPP, SETUP_PLAIN);
	char dots[200], euros[200];
	struct setup_process p = {
		.argv = { euros }, .argc = 1, .folder = "", .environment = ""
	};

	memset(dots, '.', sizeof(dots));
	snprintf(s->script, sizeof(s->script), "/x/llama-server-%.100s", dots);
	snprintf(s->command, sizeof(s->command), "/x/llama-server-%.100s --port 1", dots);
	make(&f);
	/* the name is too long for a pattern, so the beginning of the command line is used */
	assert_in(plan.config.p, "\"^/x/llama-server-\\\\.\\\\.");
	assert_in(plan.config.p, "\\\\.\"\n");
	setup_plan_done(&plan);
	/* a path that does not fit is unknown, so that no pattern ends inside a character */
	snprintf(euros, sizeof(euros), "/x/llama-server-");
	for (size_t n = strlen(euros); n + 3 < sizeof(euros); n += 3)
		snprintf(euros + n, sizeof(euros) - n, "\xe2\x82\xac");
	setup_read_command(&p, s);
	assert_string_equal(s->script, "");
	snprintf(s->command, 158, "%.156s", euros);
	s->command[strlen(s->command) - (strlen(s->command) - 16) % 3] = '\0';
	make(&f);
	setup_plan_done(&plan);
}

TEST(a_command_line_that_is_not_utf8_leaves_only_its_server_out)
{
	struct setup_facts f = begin();
	struct setup_server *s = add_server(WORKER_LLAMACPP, SETUP_PLAIN);

	snprintf(s->script, sizeof(s->script), "/tmp/llama-server-\xff");
	add_server(WORKER_OLLAMA, SETUP_PLAIN);
	make(&f);
	assert_int_equal(plan.workers, 1);
	assert_in(plan.config.p, "name = \"ollama\"");
	assert_in(plan.notes.p, "llama.cpp (process 101) is left out");
	setup_plan_done(&plan);
}

TEST(controls_of_the_terminal_and_of_the_direction_of_text_are_escaped)
{
	struct setup_facts f = begin();
	struct setup_server *s = add_server(WORKER_LLAMACPP, SETUP_PLAIN);

	snprintf(s->script, sizeof(s->script), "/x/llama-server-\xc2\x9b\xe2\x80\xae");
	s = add_server(WORKER_OLLAMA, SETUP_CONTAINER);
	snprintf(s->container, sizeof(s->container), "\xc2\x9b\xe2\x80\xae");
	make(&f);
	assert_in(plan.config.p, "llama-server-\\u009b\\u202e");
	assert_null(strstr(plan.config.p, "\xc2\x9b"));
	assert_null(strstr(plan.config.p, "\xe2\x80\xae"));
	setup_plan_done(&plan);
}

TEST_MAIN(NULL, NULL)
