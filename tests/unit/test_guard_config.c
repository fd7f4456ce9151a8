#include "daemon/guard_config_read.h"

#include "daemon/guard_config.h"

#include <gpuward.h>

#include <math.h>
#include <signal.h>

#include "test.h"

#define SECOND UINT64_C(1000000000)

struct place {
	struct config c;
	struct config_faults faults;
	struct guard_settings s;
};

static int set_up(void **state)
{
	*state = calloc(1, sizeof(struct place));
	return *state ? 0 : -1;
}

static int tear_down(void **state)
{
	struct place *p = *state;

	guard_settings_done(&p->s);
	config_done(&p->c);
	config_faults_done(&p->faults);
	free(p);
	return 0;
}

#define GUARD_CONFIG_TEST(name) TEST_WITH(name, set_up, tear_down)

static int load(struct place *p, const char *text)
{
	guard_settings_done(&p->s);
	config_done(&p->c);
	config_faults_done(&p->faults);
	return config_read_text(&p->c, "/etc/g.toml", text, strlen(text), &p->faults);
}

/* Returns the messages as "3:1: sentence", separated by newlines. */
static const char *said(struct place *p)
{
	static char out[20000];
	struct buf b;

	buf_init_fixed(&b, out, sizeof(out));
	for (unsigned i = 0; i < p->faults.count; i++) {
		const struct config_fault *f = &p->faults.fault[i];

		buf_addf(&b, "%s%u:%u: %s%s", i ? "\n" : "", f->at.line, f->at.column,
			 f->warning ? "warning: " : "", f->text);
	}
	return out;
}

/* Loads the text, which must give no message, and makes a policy from it. */
static const struct policy *good(struct place *p, const char *text)
{
	if (load(p, text) != 0 || p->faults.count)
		fail_msg("%s\nsaid: %s", text, said(p));
	assert_int_equal(guard_config_make(&p->c, &p->s), 0);
	return &p->s.policy;
}

static const char everything[] =
	"[guard]\nmode = \"dry-run\"\ndemand = \"any\"\nunknown = \"watch\"\nby_unattributed = "
	"true\n"
	"unattributed_limit = \"1GiB\"\npoll_ms = 250.5\non_blind = \"evict\"\non_stop = "
	"\"leave\"\n"
	"state_dir = \"/var/lib/x\"\ncompanion = \"/run/c.sock\"\nsimulated = "
	"true\nuser_evictions = 5\n"
	"[guard.defaults]\ndebounce_ms = 123.456\nquiet_s = 1\nmin_resident_s = 2\ndrain_s = "
	"3\n"
	"verify_s = 4\nbudget_s = 5\npost_action_s = 6\nheadroom = \"7MiB\"\nheadroom_percent "
	"= 8\n"
	"min_vram = \"9MiB\"\nutil_percent = 50\nutil_s = 11\nmax_level = 5\nallow_kill = "
	"true\n"
	"[[schedule]]\nworker = \"*\"\nevict = [\"Mon 01:00-02:00\", \"daily 22:00-23:00\"]\n"
	"[[worker]]\nname = \"ollama\"\nkind = \"ollama\"\n"
	"[[worker]]\nname = \"v.llm-1_\"\nkind = \"vllm\"\nurl = "
	"\"https://gpu.example:8443/v/\"\n"
	"token_file = \"/etc/t\"\nmodel = \"m \\\"q\\\"\"\ngpus = [\"GPU-aaaa\", "
	"\"1\"]\npriority = -7\n"
	"resume = \"lazy\"\nlevel = 2\nac_only = true\nquiet_s = 99\nutil_percent = "
	"5\nmax_level = 2\n"
	"allow_kill = false\nmatch.unit = \"vllm.service\"\nmatch.name = \"vllm*\"\n"
	"match.exe = \"*/python3\"\nmatch.command = \"^python .*vllm\"\nmatch.cgroup = "
	"\"/a/*\"\n"
	"match.container = \"c0ffee\"\nmatch.pidfile = \"/run/v.pid\"\nmatch.port = 8000\n"
	"match.uid = 0\n"
	"[[worker]]\nname = \"e\"\nkind = \"exec\"\nmatch.exe = \"/usr/bin/e\"\nmanaged = "
	"true\n"
	"evict_command = [\"/usr/bin/evict\", \"a b\", \"-x\"]\nresume_command = "
	"[\"/usr/bin/r\"]\n"
	"[[worker]]\nname = \"s\"\nkind = \"signal\"\nmatch.exe = \"/usr/bin/s\"\n"
	"evict_signal = \"SIGUSR1\"\nresume_signal = \"SIGUSR2\"\n"
	"[[worker]]\nname = \"u\"\nkind = \"systemd\"\nmatch.unit = \"u.service\"\nresume = "
	"\"never\"\n"
	"[[worker]]\nname = \"comfy\"\nkind = \"comfy\"\n"
	"[[schedule]]\nworker = \"ollama\"\nevict = \"Fri-Sun 18:00-23:00; Tue 0:00-24:00\"\n"
	"[[rule]]\nmatch.name = \"steam*\"\nmatch.type = [\"graphics\", \"compute\"]\n"
	"match.vram_ge = \"1GiB\"\nmatch.util_ge = 25\nmatch.gpu = \"0\"\nmatch.uid = 1000\n"
	"action = \"contend-now\"\n"
	"[[rule]]\nmatch.exe = \"/usr/bin/x\"\naction = \"ignore\"\n";

GUARD_CONFIG_TEST(every_key_lands_in_its_place)
{
	const struct policy *y = good(*state, everything);
	const struct guard_settings *s = &((struct place *)*state)->s;
	const struct policy_knobs *k = &y->standard;

	assert_int_equal(y->mode, GUARD_DRY_RUN);
	assert_true(y->any && !y->unknown_contends && y->by_unattributed);
	assert_int_equal(y->user_evictions, 5);
	assert_int_equal(y->unattributed_bytes, 1 << 30);
	assert_true(y->evict_when_blind && !y->restore_on_stop && y->simulated_too);
	assert_int_equal(y->poll_ns, 250500000);
	assert_string_equal(((struct place *)*state)->c.guard_state_dir, "/var/lib/x");
	assert_string_equal(s->policy.companion, "/run/c.sock");
	assert_int_equal(k->debounce_ns, 123456000);
	assert_int_equal(k->quiet_ns, 1 * SECOND);
	assert_int_equal(k->resident_ns, 2 * SECOND);
	assert_int_equal(k->drain_ns, 3 * SECOND);
	assert_int_equal(k->verify_ns, 4 * SECOND);
	assert_int_equal(k->budget_ns, 5 * SECOND);
	assert_int_equal(k->post_ns, 6 * SECOND);
	assert_int_equal(k->headroom_bytes, 7 << 20);
	assert_true(k->headroom_ratio == 0.08);
	assert_int_equal(k->min_vram_bytes, 9 << 20);
	assert_true(k->util_ratio == 0.5);
	assert_int_equal(k->util_ns, 11 * SECOND);
	assert_int_equal(k->max_level, 5);
	assert_true(k->allow_kill);
	assert_int_equal(y->workers, 6);
	assert_int_equal(y->rules, 2);
}

GUARD_CONFIG_TEST(a_worker_has_the_values_of_its_table)
{
	const struct policy *y = good(*state, everything);
	const struct policy_worker *w = &y->worker[1];

	assert_string_equal(w->name, "v.llm-1_");
	assert_int_equal(w->kind, WORKER_VLLM);
	assert_string_equal(w->url, "https://gpu.example:8443/v");
	assert_string_equal(w->token_file, "/etc/t");
	assert_string_equal(w->model, "m \"q\"");
	assert_int_equal(w->gpu_count, 2);
	assert_string_equal(w->gpus[1], "1");
	assert_int_equal(w->priority, -7);
	assert_int_equal(w->resume, RESUME_LAZY);
	assert_int_equal(w->level, 2);
	assert_true(w->ac_only && !w->managed);
	assert_int_equal(w->knobs.quiet_ns, 99 * SECOND);
	assert_true(w->knobs.util_ratio == 0.05);
	assert_int_equal(w->knobs.drain_ns, UINT64_MAX);
	assert_true(isnan(w->knobs.headroom_ratio));
	assert_int_equal(w->knobs.max_level, 2);
	assert_false(w->knobs.allow_kill);
	assert_string_equal(w->match.unit, "vllm.service");
	assert_string_equal(w->match.name, "vllm*");
	assert_string_equal(w->match.exe, "*/python3");
	assert_string_equal(w->match.command, "^python .*vllm");
	assert_string_equal(w->match.cgroup, "/a/*");
	assert_string_equal(w->match.container, "c0ffee");
	assert_string_equal(w->match.pidfile, "/run/v.pid");
	assert_int_equal(w->match.port, 8000);
	assert_int_equal(w->match.uid, 0);
	assert_int_equal(w->schedules, 2);
	assert_memory_equal(w->text, "[[worker]] v.llm-1_ (g.toml:", 28);
}

GUARD_CONFIG_TEST(each_worker_kind_has_its_own_defaults)
{
	const struct policy *y = good(*state, everything);
	const struct policy_worker *ollama = &y->worker[0], *e = &y->worker[2];

	assert_string_equal(ollama->url, "http://127.0.0.1:11434");
	assert_int_equal(ollama->match.port, 11434);
	assert_int_equal(ollama->match.uid, -1);
	assert_int_equal(ollama->resume, RESUME_RESTORE);
	assert_int_equal(ollama->schedules, 4);
	assert_int_equal(ollama->schedule[3].days, 2);
	assert_int_equal(ollama->knobs.max_level, 5);
	assert_string_equal(e->evict_argv[1], "a b");
	assert_null(e->evict_argv[3]);
	assert_string_equal(e->resume_argv[0], "/usr/bin/r");
	assert_null(e->url);
	assert_true(e->managed);
	assert_int_equal(e->match.port, 0);
	assert_int_equal(y->worker[3].evict_signal, SIGUSR1);
	assert_int_equal(y->worker[3].resume_signal, SIGUSR2);
	assert_int_equal(y->worker[4].resume, RESUME_NEVER);
	assert_int_equal(y->worker[5].resume, RESUME_LAZY);
}

GUARD_CONFIG_TEST(a_rule_has_the_values_of_its_table)
{
	const struct policy_rule *rule = good(*state, everything)->rule;

	assert_int_equal(rule->action, GUARD_CONTEND_NOW);
	assert_int_equal(rule->match.type, GW_PROCESS_GRAPHICS | GW_PROCESS_COMPUTE);
	assert_int_equal(rule->match.vram_ge, 1 << 30);
	assert_true(rule->match.util_ge == 0.25);
	assert_string_equal(rule->match.gpu, "0");
	assert_int_equal(rule->match.uid, 1000);
	assert_int_equal(rule[1].action, GUARD_IGNORE);
	assert_int_equal(rule[1].match.uid, -1);
	assert_int_equal(rule[1].match.type, 0);
	assert_memory_equal(rule[1].text, "rule 2 (g.toml:", 15);
}

GUARD_CONFIG_TEST(xid_classes_can_be_set_in_the_configuration)
{
	const struct health_options *o = &((struct place *)*state)->s.health;

	good(*state, "[health]\nxid = [\"109=restart_app\", \"31=vendor\"]\n");
	assert_int_equal(o->xids, 2);
	assert_int_equal(o->xid[0].xid, 109);
	assert_int_equal(o->xid[0].class, XID_RESTART_APP);
	assert_int_equal(o->xid[1].class, XID_VENDOR);
}

GUARD_CONFIG_TEST(without_tables_the_policy_is_the_standard_one)
{
	const struct policy *y = good(*state, "");
	const struct guard_settings *s = &((struct place *)*state)->s;
	struct policy standard;

	policy_init(&standard);
	standard.unknown_contends = true;
	assert_true(policy_same(y, &standard));
	assert_true(s->health_enabled && s->capacity_enabled);
	assert_int_equal(s->health_interval_ns, 10 * SECOND);
	assert_true(s->health.warn_c == 10 && s->health.throttle_c == 5 &&
		    s->health.evict_c == 2 && s->health.clear_c == 5);
	assert_int_equal(s->health.clear_ns, 30 * SECOND);
	assert_int_equal(s->health.clean_ns, 60 * SECOND);
	assert_int_equal(s->health.critical, 4);
	assert_true(isnan(s->health.absolute_c));
	assert_true(s->health.fallback_c == 85);
	assert_null(s->policy.companion);
}

#define SOMEBODY "[[worker]]\nname = \"w\"\nkind = \"ollama\"\n"

GUARD_CONFIG_TEST(a_profile_sets_what_is_left_open)
{
	struct place *p = *state;

	good(p, "[guard]\nprofile = \"desktop\"\n" SOMEBODY);
	assert_int_equal(p->s.policy.mode, GUARD_ENFORCE);
	assert_true(p->s.policy.unknown_contends);
	assert_true(p->c.device_require_nvml);

	good(p, "[guard]\nprofile = \"server\"\n");
	assert_int_equal(p->s.policy.mode, GUARD_OBSERVE);
	assert_true(p->s.health_enabled);
	assert_false(p->c.device_require_nvml);

	good(p, "[guard]\nprofile = \"container\"\n" SOMEBODY);
	assert_int_equal(p->s.policy.mode, GUARD_ENFORCE);
	assert_true(p->s.policy.by_unattributed);
	assert_false(p->c.device_require_nvml);
}

GUARD_CONFIG_TEST(explicit_settings_override_the_profile)
{
	struct place *p = *state;

	good(p, "require_nvml = false\n[guard]\nmode = \"observe\"\nprofile = \"desktop\"\n"
		"unknown = \"watch\"\n");
	assert_int_equal(p->s.policy.mode, GUARD_OBSERVE);
	assert_false(p->s.policy.unknown_contends);
	assert_false(p->c.device_require_nvml);
	good(p, "auto_evict_for_user_apps = false\n[guard]\nprofile = \"desktop\"\n");
	assert_int_equal(p->s.policy.mode, GUARD_OBSERVE);
}

GUARD_CONFIG_TEST(a_profile_that_contradicts_a_setting_is_refused)
{
	struct place *p = *state;

	assert_int_equal(load(p, "enable_nvml = false\n[guard]\nprofile = \"desktop\"\n"),
			 -GW_E_PARSE);
	assert_string_equal(said(p),
			    "3:1: require_nvml is true but enable_nvml is false; change one "
			    "of them");
}

GUARD_CONFIG_TEST(a_guard_without_workers_warns)
{
	struct place *p = *state;

	assert_int_equal(load(p, "[guard]\nprofile = \"desktop\"\n"), 0);
	assert_string_equal(
		said(p),
		"2:1: warning: mode is \"enforce\" but there is no [[worker]], so nothing is "
		"ever moved; add workers as described in gpuward.toml(5)");
	assert_int_equal(load(p, "[guard]\nmode = \"dry-run\"\n"), 0);
	assert_in(said(p), "2:1: warning: mode is \"dry-run\" but there is no");
	/* No warning about missing workers: a worker may be in the part that could not be
	 * read. */
	assert_int_equal(load(p, "[guard]\nprofile = \"desktop\"\n[worker]\n"), -GW_E_PARSE);
	assert_int_equal(p->faults.count, 1);
}

GUARD_CONFIG_TEST(the_original_keys_mean_what_they_meant)
{
	struct place *p = *state;

	good(p, "auto_evict_for_user_apps = true\nprocess_check_interval_secs = 5\n"
		"enable_health_monitoring = false\nhealth_check_interval_secs = 20\n"
		"temperature_threshold_celsius = 80\nenable_capacity_tracking = false\n"
		"[guard]\ndemand = \"any\"\n" SOMEBODY);
	assert_int_equal(p->s.policy.mode, GUARD_ENFORCE);
	assert_int_equal(p->s.policy.poll_ns, 5 * SECOND);
	assert_true(p->s.policy.any);
	assert_false(p->s.health_enabled);
	assert_int_equal(p->s.health_interval_ns, 20 * SECOND);
	assert_true(p->s.health.absolute_c == 80);
	assert_false(p->s.capacity_enabled);
	good(p, "[guard]\nauto_evict_for_user_apps = false\n");
	assert_int_equal(p->s.policy.mode, GUARD_OBSERVE);
}

static bool same_settings(const struct guard_settings *a, const struct guard_settings *b)
{
	return policy_same(&a->policy, &b->policy) && a->health_enabled == b->health_enabled &&
	       memcmp(&a->health, &b->health, sizeof(a->health)) == 0 &&
	       a->health_interval_ns == b->health_interval_ns &&
	       a->capacity_enabled == b->capacity_enabled &&
	       memcmp(&a->budget, &b->budget, sizeof(a->budget)) == 0 &&
	       !a->record == !b->record && a->record_limit == b->record_limit;
}

/* Writes a value that differs from the default. */
static void other_value(const struct config_row *row, char *out, size_t size)
{
	const char *last = row->choices ? strrchr(row->choices, '|') + 1 : NULL;

	switch (row->type) {
	case CONFIG_BOOL:
		snprintf(out, size, "%s", row->standard[0] == 't' ? "false" : "true");
		break;
	case CONFIG_CHOICE:
		if (strcmp(last, row->standard) != 0)
			snprintf(out, size, "\"%s\"", last);
		else
			snprintf(out, size, "\"%.*s\"", (int)strcspn(row->choices, "|"),
				 row->choices);
		break;
	case CONFIG_COUNT:
	case CONFIG_NUMBER: snprintf(out, size, "%ld", atol(row->standard) + 1); break;
	case CONFIG_BYTES: snprintf(out, size, "\"3MiB\""); break;
	case CONFIG_LIST: snprintf(out, size, "[\"109=restart_app\"]"); break;
	default: snprintf(out, size, "\"/x\""); break;
	}
}

static bool is_elsewhere(unsigned id)
{
	return id == CONFIG_ID_guard_state_dir /* a key of the service */ ||
	       id == CONFIG_ID_guard_profile /* sets other settings */;
}

GUARD_CONFIG_TEST(every_setting_of_the_guard_changes_something)
{
	static const char *const sections[] = { "guard", CONFIG_DEFAULTS, "health",
						"capacity" };
	struct place *p = *state;
	struct guard_settings standard;
	char text[300], value[100];
	unsigned n = 0;

	good(p, "[guard]\nmode = \"dry-run\"\n" SOMEBODY);
	standard = p->s;
	p->s = (struct guard_settings){ 0 };
	good(p, "[guard]\nmode = \"dry-run\"\n" SOMEBODY);
	assert_true(same_settings(&standard, &p->s));
	for (unsigned i = 0; i < CONFIG_ROWS; i++) {
		const struct config_row *row = &config_rows[i];
		bool ours = false, mode = i == CONFIG_ID_guard_mode;

		for (unsigned k = 0; k < COUNT_OF(sections); k++)
			ours = ours || strcmp(row->section, sections[k]) == 0;
		if (!ours || is_elsewhere(i))
			continue;
		other_value(row, value, sizeof(value));
		if (i == CONFIG_ID_health_temp_override_c)
			snprintf(value, sizeof(value), "80");
		snprintf(text, sizeof(text), "%s[%s]\n%s = %s\n" SOMEBODY,
			 mode ? "" : "guard.mode = \"dry-run\"\n", row->section, row->key,
			 value);
		if (!mode && strcmp(row->section, "guard") == 0)
			snprintf(text, sizeof(text),
				 "[guard]\nmode = \"dry-run\"\n%s = %s\n" SOMEBODY, row->key,
				 value);
		if (load(p, text) != 0)
			fail_msg("%s\nsaid: %s", text, said(p));
		assert_int_equal(guard_config_make(&p->c, &p->s), 0);
		if (same_settings(&standard, &p->s))
			fail_msg("%s of [%s] changes nothing", row->key, row->section);
		n++;
	}
	assert_true(n > 40);
	guard_settings_done(&standard);
}

/* A valid beginning on one line, so that the text of the row begins on line 2. */
#define OLLAMA "guard = { mode = \"enforce\" }\n"
#define WORKER "[[worker]]\nname = \"w\"\n"

static const struct {
	const char *text, *says;
} refused[] = {
	{ "[worker]\n", "1:2: write [[worker]], with two brackets: there may be several, and "
			"GUARD.md shows a file that works" },
	{ "[worker]\nenable_nvml = true\nname = \"a\"\n",
	  "1:2: write [[worker]], with two brackets" },
	{ "worker = 3\n", "1:1: write [[worker]]" },
	{ "rule = [3]\n", "1:9: \"rule\" must be an array of tables ([[rule]])" },
	{ "[[worker]]\n", "1:1: this [[worker]] needs name: " },
	{ WORKER, "1:1: this [[worker]] needs kind: " },
	{ WORKER "kind = \"vlm\"\n", "3:8: kind must be ollama, " },
	{ WORKER "kind = \"vlm\"\n", "did you mean \"vllm\"?" },
	{ WORKER "kind = \"callback\"\n", "3:8: kind must be ollama, " },
	{ WORKER "kind = \"ollama\"\nurll = \"x\"\n",
	  "4:1: no such key \"urll\" in [[worker]]; did you mean \"url\"?" },
	{ WORKER "kind = \"ollama\"\nunit = \"x\"\n",
	  "4:1: no such key \"unit\" in [[worker]]; did you mean \"match.unit\"?" },
	{ WORKER "kind = \"ollama\"\nmatch.vram_ge = 3\n",
	  "4:7: \"match.vram_ge\" belongs in [[rule]], not in [[worker]]" },
	{ WORKER "kind = \"ollama\"\naction = \"x\"\n",
	  "4:1: \"action\" belongs in [[rule]], not in [[worker]]" },
	{ WORKER "kind = \"ollama\"\nmode = \"enforce\"\n",
	  "4:1: \"mode\" belongs in [guard], not in [[worker]]: a key belongs to" },
	{ WORKER "kind = \"ollama\"\nenabled = true\n",
	  "4:1: \"enabled\" belongs in [manage], [health] or [capacity], not in [[worker]]" },
	{ WORKER "kind = \"ollama\"\ngpus = [0]\n",
	  "4:9: gpus must be an array of strings: write \"0\", in quotes" },
	{ WORKER "kind = \"vllm\"\nurl = \"http://127.0.0.1:8000/v1\"\n",
	  "4:7: url: \"http://127.0.0.1:8000/v1\": write \"http://127.0.0.1:8000\", without "
	  "/v1: " },
	{ WORKER "kind = \"tabby\"\nurl = \"http://127.0.0.1:5000/v1/\"\n", "without /v1/: " },
	{ WORKER "kind = \"vllm\"\nurl = \"http://127.0.0.1:1/p//v1/models\"\n",
	  "write \"http://127.0.0.1:1/p\", without //v1/models: " },
	{ WORKER "kind = \"ollama\"\nurl = \"http://127.0.0.1:1/api\"\n", "without /api: " },
	{ WORKER "kind = \"ollama\"\nmatch = 3\n", "4:1: match must be a table" },
	{ WORKER "kind = \"ollama\"\nquiet_s = \"3\"\n",
	  "4:11: quiet_s must be a number, not a string" },
	{ WORKER "kind = \"ollama\"\nurl = \"\"\n", "4:7: url is empty" },
	{ "[[worker]]\nkind = \"ollama\"\nname = \"a b\"\n",
	  "3:8: name: \"a b\": a name has letters, digits" },
	{ WORKER "kind = \"ollama\"\nurl = \"ftp://x\"\n",
	  "4:7: url: \"ftp://x\": write http://HOST:PORT" },
	{ WORKER "kind = \"ollama\"\nurl = \"127.0.0.1:1\"\n",
	  "4:7: url: \"127.0.0.1:1\": write" },
	{ WORKER "kind = \"ollama\"\nurl = \"http://u:p@x\"\n",
	  "4:7: url: \"http://u:p@x\": remove the user name, query" },
	{ WORKER "kind = \"ollama\"\nurl = \"http://:80\"\n", "the host is missing" },
	{ WORKER "kind = \"ollama\"\nurl = \"http://x:99999\"\n", "the port after the colon" },
	{ WORKER "kind = \"ollama\"\nurl = \"http://x:1\"\n",
	  "4:7: no key identifies the process of this worker, and its url is on another "
	  "machine" },
	{ WORKER "kind = \"ollama\"\ntoken_file = \"t\"\n",
	  "4:14: token_file: \"t\": write an absolute path" },
	{ WORKER "kind = \"ollama\"\npriority = 1.5\n",
	  "4:12: priority must be a whole number" },
	{ WORKER "kind = \"ollama\"\nmatch.name = \"*\"\n",
	  "match.name = \"*\" matches every process" },
	{ WORKER "kind = \"ollama\"\nmatch.exe = \"/*\"\n",
	  "match.exe = \"/*\" matches every process" },
	{ WORKER "kind = \"ollama\"\nmatch.cgroup = \"/\"\n",
	  "match.cgroup = \"/\" matches every process" },
	{ WORKER "kind = \"ollama\"\nmatch.command = \".*\"\n",
	  "match.command = \".*\" matches every process" },
	{ WORKER "kind = \"ollama\"\nmatch.command = \"(x|.)+\"\n",
	  "match.command = \"(x|.)+\" matches every process" },
	{ WORKER "kind = \"ollama\"\npriority = 1e9\n", "priority must be from -1000 to 1000" },
	{ WORKER "kind = \"ollama\"\nlevel = 1\n",
	  "4:9: level has no effect on kind ollama; it is for vllm" },
	{ WORKER "kind = \"vllm\"\nidle_after = 60\n",
	  "4:14: idle_after: kind vllm does not load its model again on the next request" },
	{ WORKER "kind = \"systemd\"\nmatch.unit = \"a.service\"\nreload_j = 5\n",
	  "5:12: reload_j: kind systemd does not load" },
	{ WORKER "kind = \"ollama\"\nidle_after = 0\n", "idle_after must be from 1" },
	{ "[guard]\npower_cap_w = -1\n", "power_cap_w must be from 0" },
	{ WORKER "kind = \"ollama\"\nmanaged = true\n",
	  "4:11: managed has no effect on kind ollama; it is for systemd, container, exec" },
	{ WORKER "kind = \"systemd\"\nmatch.unit = \"a.service\"\nurl = \"http://x\"\n",
	  "5:7: url: \"http://x\": for a unit it selects the systemd manager" },
	{ WORKER "kind = \"systemd\"\nmatch.unit = \"a.service\"\nurl = \"user@-x y\"\n",
	  "for a unit it selects the systemd manager" },
	{ WORKER "kind = \"container\"\nmatch.container = \"a\"\nurl = \"/run/x\"\n",
	  "for a container it is the socket of the container engine" },
	{ WORKER "kind = \"exec\"\nmatch.exe = \"/a\"\nurl = \"http://127.0.0.1:1\"\n",
	  "5:7: url has no effect on kind exec; it is for ollama, " },
	{ WORKER "kind = \"systemd\"\nmatch.exe = \"/a\"\n",
	  "1:1: a worker of kind systemd needs match.unit" },
	{ WORKER "kind = \"container\"\nmatch.exe = \"/a\"\n", "needs match.container" },
	{ WORKER "kind = \"exec\"\nmatch.exe = \"/a\"\n",
	  "1:1: a worker of kind exec needs evict_command" },
	{ WORKER "kind = \"exec\"\nmatch.exe = \"/a\"\nevict_command = [\"/a\"]\n",
	  "1:1: a worker of kind exec needs resume_command: the program that makes the "
	  "worker use the GPU again; or" },
	{ WORKER "kind = \"exec\"\nmatch.exe = \"/a\"\nevict_command = [\"a\"]\n",
	  "5:17: evict_command: \"a\": write the absolute path of the program" },
	{ WORKER "kind = \"exec\"\nmatch.exe = \"/a\"\nevict_command = \"/a\"\n",
	  "5:17: evict_command must be an array of strings" },
	{ WORKER "kind = \"exec\"\nmatch.exe = \"/a\"\nevict_command = []\n",
	  "5:17: evict_command is empty" },
	{ WORKER "kind = \"signal\"\nmatch.exe = \"/a\"\n", "needs evict_signal" },
	{ WORKER "kind = \"signal\"\nmatch.exe = \"/a\"\nevict_signal = \"USR1\"\n",
	  "5:16: evict_signal: \"USR1\": unknown signal" },
	{ WORKER "kind = \"signal\"\nmatch.exe = \"/a\"\nevict_signal = \"SIGKILL\"\n",
	  "SIGKILL terminates the worker" },
	{ WORKER "kind = \"signal\"\nmatch.exe = \"/a\"\nevict_signal = \"SIGSTOP\"\n",
	  "a stopped process keeps its memory" },
	{ WORKER "kind = \"checkpoint\"\n",
	  "1:1: no key identifies the process of this worker" },
	{ WORKER "kind = \"checkpoint\"\nmatch.uid = 0\n",
	  "1:1: no key identifies the process of this worker" },
	{ WORKER "kind = \"checkpoint\"\nmatch.exe = \"/a\"\nmax_level = 2\n",
	  "5:13: max_level = 2 forbids everything that kind checkpoint can do: this "
	  "kind acts at level 3" },
	{ WORKER "kind = \"ollama\"\nmax_level = 5\n",
	  "4:13: max_level = 5 lets the guard terminate the worker's process: this needs "
	  "allow_kill = "
	  "true" },
	{ "[guard.defaults]\nmax_level = 6\n" WORKER "kind = \"ollama\"\n",
	  "2:1: max_level = 6 lets the guard terminate the worker's process" },
	{ WORKER "kind = \"ollama\"\nmax_level = 7\n", "4:13: max_level must be from 0 to 6" },
	{ WORKER "kind = \"systemd\"\nmatch.unit = \"a.service\"\nmanaged = true\n"
		 "resume = \"never\"\n",
	  "5:11: managed = true starts the worker, but resume = \"never\" forbids that; change "
	  "one of them" },
	{ WORKER "kind = \"ollama\"\nmatch.unit = \"ollama\"\n",
	  "4:14: match.unit: \"ollama\": write the unit with its suffix, such as "
	  "\"ollama.service\"" },
	{ WORKER "kind = \"ollama\"\nmatch.pidfile = \"p\"\n", "write an absolute path" },
	{ WORKER "kind = \"ollama\"\nmatch.port = 0\n", "match.port must be from 1 to 65535" },
	{ WORKER "kind = \"ollama\"\nmatch.exe = \"ollama\"\n", "write an absolute path, or" },
	{ WORKER "kind = \"ollama\"\nmatch.name = \"0123456789abcdef\"\n",
	  "4:14: match.name: \"0123456789abcdef\": the kernel keeps 15 bytes" },
	{ WORKER "kind = \"ollama\"\nmatch.command = \"a(\"\n",
	  "4:17: match.command: \"a(\": not an extended regular expression: " },
	{ WORKER "kind = \"ollama\"\nmatch.command = \"(.*)(.*)\\\\1\\\\2z\"\n",
	  "it has a back-reference such as \\1, and matching one can take hours" },
	{ WORKER "kind = \"ollama\"\nmatch.command = \"((a{9,99}){99}){99}\"\n",
	  "it has too many repetitions, and one match could take seconds" },
	{ WORKER "kind = \"ollama\"\nmatch.container = \"a/b\"\n",
	  "an id or a name has letters" },
	/* two workers */
	{ WORKER "kind = \"ollama\"\n[[worker]]\nname = \"w\"\nkind = \"vllm\"\n",
	  "5:8: the worker name \"w\" is already used in line 1" },
	{ WORKER "kind = \"llamacpp\"\n[[worker]]\nname = \"x\"\nkind = \"llamaswap\"\n",
	  "4:1: this worker and the one in line 1 would be the same process: they have the "
	  "same "
	  "port" },
	{ WORKER "kind = \"ollama\"\n[[worker]]\nname = \"x\"\nkind = \"vllm\"\n"
		 "match.port = 11434\n",
	  "4:1: this worker and the one in line 1 would be the same process: they have the "
	  "same "
	  "port" },
	{ WORKER "kind = \"ollama\"\nmatch.unit = \"a.service\"\n[[worker]]\nname = \"x\"\n"
		 "kind = \"vllm\"\nmatch.unit = \"a.service\"\n",
	  "5:1: this worker and the one in line 1 would be the same process: they have the "
	  "same "
	  "match" },
	/* all processes of a unit belong to one worker */
	{ WORKER
	  "kind = \"checkpoint\"\nmatch.unit = \"a.service\"\nmatch.name = \"a\"\n[[worker]]\n"
	  "name = \"x\"\nkind = \"checkpoint\"\nmatch.unit = \"a.service\"\n"
	  "match.name = \"b\"\n",
	  "6:1: this worker and the one in line 1 would be the same process: they have the "
	  "same "
	  "match.unit" },
	{ WORKER "kind = \"checkpoint\"\nmatch.exe = \"/a\"\n[[worker]]\nname = \"x\"\n"
		 "kind = \"checkpoint\"\nmatch.exe = \"/a\"\nmatch.uid = 5\n",
	  "5:1: this worker and the one in line 1 would be the same process: they have "
	  "overlapping matches" },
	{ WORKER "kind = \"checkpoint\"\nmatch.exe = \"/a/b\"\n[[worker]]\nname = \"x\"\n"
		 "kind = \"checkpoint\"\nmatch.exe = \"/a/*\"\n",
	  "5:1: this worker and the one in line 1 would be the same process: they have "
	  "overlapping matches" },
	{ WORKER "kind = \"ollama\"\nmatch.pidfile = \"/p\"\n[[worker]]\nname = \"x\"\n"
		 "kind = \"vllm\"\nmatch.pidfile = \"/p\"\nmatch.uid = 3\n",
	  "they have the same match.pidfile" },
	{ WORKER "kind = \"ollama\"\nmatch.exe = \"/p\"\n[[worker]]\nname = \"x\"\n"
		 "kind = \"vllm\"\nmatch.exe = \"/p\"\n",
	  "they have the same match" },
	/* rules */
	{ "[[rule]]\n", "1:1: this [[rule]] needs action: " },
	{ "[[rule]]\naction = \"ignore\"\n", "1:1: this rule has no match" },
	{ "[[rule]]\nmatch.name = \"a\"\naction = \"contend_now\"\n",
	  "did you mean \"contend-now\"?" },
	{ "[[rule]]\nmatch.port = 1\naction = \"ignore\"\n",
	  "2:7: \"match.port\" belongs in [[worker]], not in [[rule]]" },
	{ "[[rule]]\nmatch.type = [\"game\"]\naction = \"ignore\"\n",
	  "2:14: match.type: \"game\": types are compute, graphics and mps" },
	{ "[[rule]]\nmatch.util_ge = 101\naction = \"ignore\"\n",
	  "2:17: match.util_ge must be from 0 to 100, not 101" },
	{ "[[rule]]\nmatch.name = \"a\"\naction = \"ignore\"\n"
	  "[[rule]]\nmatch.name = \"a\"\naction = \"contend\"\n",
	  "4:1: this rule has no effect: the rule in line 1 already matches everything that "
	  "this rule matches, and the first match counts; move this rule before that one" },
	{ "[[rule]]\nmatch.name = \"a\"\naction = \"ignore\"\n"
	  "[[rule]]\nmatch.name = \"a\"\nmatch.uid = 0\naction = \"contend\"\n",
	  "4:1: this rule has no effect" },
	{ "[[rule]]\nmatch.name = \"fire*\"\naction = \"ignore\"\n"
	  "[[rule]]\nmatch.name = \"firefox\"\naction = \"contend\"\n",
	  "4:1: this rule has no effect" },
	{ "[[rule]]\nmatch.exe = \"/usr/*\"\naction = \"ignore\"\n"
	  "[[rule]]\nmatch.exe = \"/usr/bin/?z*\"\naction = \"contend\"\n",
	  "4:1: this rule has no effect" },
	/* schedules */
	{ "[[schedule]]\nevict = \"1:00-2:00\"\n", "1:1: this [[schedule]] needs worker: " },
	{ "[[schedule]]\nworker = \"*\"\n", "1:1: this [[schedule]] needs evict: " },
	{ "[[schedule]]\nworker = \"x\"\nevict = \"1:00-2:00\"\n",
	  "2:10: there is no worker \"x\"" },
	{ WORKER "kind = \"ollama\"\n[[schedule]]\nworker = \"W\"\nevict = \"1:00-2:00\"\n",
	  "5:10: there is no worker \"W\"; did you mean \"w\"?" },
	{ "[[schedule]]\nworker = \"*\"\nevict = \"Fri 24:30-25:00\"\n",
	  "3:9: evict: \"Fri 24:30-25:00\": 24:30 is out of range: a day has 00:00 to 23:59" },
	{ "[[schedule]]\nworker = \"*\"\nevict = [\"1:00-2:00\", \"Fry 1:00-2:00\"]\n",
	  "\"Fry\" is not a day" },
	{ "[[schedule]]\nworker = \"*\"\nevict = \"18:00-18:00\"\n", "the span is empty" },
	{ "[[schedule]]\nworker = \"*\"\nevict = \"\"\n", "3:9: evict is empty" },
	{ "[[schedule]]\nworker = \"*\"\nevict = 3\n",
	  "3:9: evict must be an array of strings" },
	{ "[[schedule]]\nworker = \"*\"\nmatch.name = \"x\"\n", "no such key \"match\"" },
	{ WORKER "kind = \"ollama\"\n[[schedule]]\nworker = \"*\"\n"
		 "evict = \"1:00-2:00;1:00-2:00;1:00-2:00;1:00-2:00;1:00-2:00\"\n"
		 "[[schedule]]\nworker = \"w\"\n"
		 "evict = \"1:00-2:00;1:00-2:00;1:00-2:00;1:00-2:00;1:00-2:00\"\n",
	  "9:9: worker \"w\" has 10 time spans; at most 8 are allowed" },
	/* settings */
	{ "[guard]\nprofile = \"dekstop\"\n", "did you mean \"desktop\"?" },
	{ "[guard]\nmode = \"enforced\"\n", "did you mean \"enforce\"?" },
	{ "[guard]\nstate_dir = \"x\"\n", "2:1: state_dir: \"x\": write an absolute path" },
	{ "[guard]\ncompanion = \"x.sock\"\n",
	  "2:1: companion: \"x.sock\": write the absolute path" },
	{ "[guard]\npoll_ms = 0.001\n",
	  "2:1: poll_ms must be 0 or from 1 to 3600000, not 0.001" },
	{ "[health]\ntemp_override_c = 12\n",
	  "2:1: temp_override_c must be 0 or from 30 to 120" },
	{ "temperature_threshold_celsius = 12\n",
	  "1:33: temperature_threshold_celsius must be from 30 to 120, not 12" },
	{ "[health]\nxid = [\"109=alert\"]\n", "2:1: xid: \"109=alert\": write NUMBER=CLASS" },
	{ "[health]\nevict_c = 7\n", "2:1: evict_c (7) must not be more than throttle_c (5)" },
	{ "[health]\nwarn_c = 3\n", "2:1: throttle_c (5) must not be more than warn_c (3)" },
};

GUARD_CONFIG_TEST(invalid_guard_configurations_are_refused_with_their_place)
{
	struct place *p = *state;

	for (unsigned i = 0; i < COUNT_OF(refused); i++) {
		int err = load(p, refused[i].text);

		if (err != -GW_E_PARSE || !strstr(said(p), refused[i].says))
			fail_msg("%s\nsaid: %s\nnot: %s", refused[i].text, said(p),
				 refused[i].says);
	}
}

/* One mistake gives one message: its consequences are not reported. */
GUARD_CONFIG_TEST(one_mistake_is_reported_once)
{
	static const char *const texts[] = {
		OLLAMA "[[worker]]\nname = \"w\"\nkind = \"olama\"\n",
		OLLAMA "[[worker]]\nname = \"w\"\nkind = \"ollama\"\nurl = \"x\"\n",
		OLLAMA "[[worker]]\nname = \"w\"\nkind = \"checkpoint\"\nmatch.exe = \"x\"\n",
		OLLAMA "[[worker]]\nname = \"w\"\nkind = \"systemd\"\nmatch.unit = \"x\"\n",
		OLLAMA "[[worker]]\nname = \"w\"\nkind = \"exec\"\nmatch.exe = \"/x\"\n"
		       "evict_command = [\"x\"]\nresume = \"lazy\"\n",
		"[[rule]]\nmatch.name = 3\naction = \"ignore\"\n",
		"[[rule]]\nmatch.name = \"a\"\naction = \"nothing\"\n",
		"[[schedule]]\nworker = \"x\"\nevict = \"1:00-2:00\"\n",
		"[[schedule]]\nworker = \"*\"\nevict = \"x\"\n",
	};
	struct place *p = *state;

	for (unsigned i = 0; i < COUNT_OF(texts); i++) {
		assert_int_equal(load(p, texts[i]), -GW_E_PARSE);
		if (p->faults.count != 1)
			fail_msg("%s\nsaid: %s", texts[i], said(p));
	}
}

GUARD_CONFIG_TEST(all_mistakes_are_reported)
{
	struct place *p = *state;

	assert_int_equal(load(p, "[guard]\nmode = \"x\"\n[[worker]]\nname = \"a b\"\n"
				 "kind = \"olama\"\n[[rule]]\nmatch.command = \"(\"\n"
				 "action = \"x\"\n[[schedule]]\nworker = \"q\"\n"
				 "evict = \"25:00-26:00\"\n"),
			 -GW_E_PARSE);
	assert_int_equal(p->faults.errors, 7);
}

static const char *const fine[] = {
	OLLAMA "[[worker]]\nname = \"w\"\nkind = \"ollama\"\nurl = \"http://[::1]:1/x/\"\n",
	OLLAMA "[[worker]]\nname = \"w\"\nkind = \"ollama\"\nurl = \"http://localhost\"\n",
	OLLAMA "[[worker]]\nname = \"w\"\nkind = \"ollama\"\nurl = \"http://[::1]/api/v12\"\n",
	OLLAMA "[[worker]]\nname = \"w\"\nkind = \"systemd\"\nurl = \"user\"\n"
	       "match.unit = \"w.service\"\n[[worker]]\nname = \"v\"\nkind = \"systemd\"\n"
	       "url = \"user\"\nmatch.unit = \"v.service\"\n",
	OLLAMA "[[worker]]\nname = \"w\"\nkind = \"systemd\"\nurl = \"user@ann\"\n"
	       "match.unit = \"w.service\"\n",
	OLLAMA "[[worker]]\nname = \"w\"\nkind = \"container\"\nurl = \"unix:///run/p.sock\"\n"
	       "match.container = \"ollama\"\n",
	OLLAMA "[[worker]]\nname = \"w\"\nkind = \"checkpoint\"\nmatch.exe = \"*/python3*\"\n",
	/* one program, two ports */
	OLLAMA "[[worker]]\nname = \"w\"\nkind = \"vllm\"\nmatch.exe = \"/a\"\n"
	       "match.port = 1\n[[worker]]\nname = \"x\"\nkind = \"vllm\"\n"
	       "url = \"http://127.0.0.1:2\"\nmatch.exe = \"/a\"\nmatch.port = 2\n",
	OLLAMA "[[worker]]\nname = \"w\"\nkind = \"exec\"\nmatch.exe = \"/a\"\n"
	       "evict_command = [\"/a\"]\nresume = \"never\"\n",
	/* the narrower rule first */
	("[[rule]]\nmatch.name = \"a\"\nmatch.uid = 0\naction = \"contend\"\n"
	 "[[rule]]\nmatch.name = \"a\"\naction = \"ignore\"\n"),
	"[[rule]]\nmatch.name = \"0123456789abcde*\"\naction = \"ignore\"\n",
	"[[rule]]\naction = \"ignore\"\n[rule.match]\nname = \"a\"\n",
	"rule = [{ action = \"watch\", match = { uid = 0 } }]\n",
	"worker = []\n",
};

GUARD_CONFIG_TEST(valid_guard_configurations_give_no_warning)
{
	for (unsigned i = 0; i < COUNT_OF(fine); i++)
		good(*state, fine[i]);
}

static const struct {
	const char *text, *says;
} warned[] = {
	{ WORKER "kind = \"ollama\"\n",
	  "1:1: warning: workers are observed but never moved: to move them, set mode" },
	{ OLLAMA WORKER "kind = \"ollama\"\ngpus = [\"big one\"]\n",
	  "5:8: warning: gpus: \"big one\" does not look like a GPU" },
	{ OLLAMA WORKER "kind = \"ollama\"\ngpus = [\"GPU-zzz\"]\n",
	  "5:8: warning: gpus: \"GPU-zzz\" does not look like a GPU" },
	{ OLLAMA WORKER "kind = \"ollama\"\ngpus = [\"0\", \"-1\"]\n",
	  "5:8: warning: gpus: \"-1\" does not look like a GPU" },
	{ OLLAMA WORKER "kind = \"ollama\"\ngpus = [\"99999\"]\n",
	  "5:8: warning: gpus: \"99999\" does not look like a GPU" },
	{ OLLAMA WORKER "kind = \"ollama\"\nmatch.container = \"a\"\n",
	  "5:19: warning: match.container: this matches every container whose id begins with "
	  "\"a\"" },
	{ OLLAMA WORKER "kind = \"ollama\"\nallow_kill = true\n",
	  "5:14: warning: allow_kill has no effect below max_level = 5, and max_level is 2" },
	{ OLLAMA WORKER "kind = \"ollama\"\nmatch.exe = \"/a\"\n[[worker]]\nname = \"x\"\n"
			"kind = \"ollama\"\nmatch.exe = \"/b\"\n",
	  "6:1: warning: this worker and the one in line 2 have the same url" },
	{ OLLAMA WORKER "kind = \"kobold\"\n", "2:1: warning: kind kobold does not report" },
};

GUARD_CONFIG_TEST(questionable_guard_configurations_give_a_warning)
{
	struct place *p = *state;

	for (unsigned i = 0; i < COUNT_OF(warned); i++) {
		if (load(p, warned[i].text) != 0 || !strstr(said(p), warned[i].says))
			fail_msg("%s\nsaid: %s", warned[i].text, said(p));
		assert_int_equal(p->faults.count, 1);
	}
}

GUARD_CONFIG_TEST(kinds_that_stop_or_checkpoint_have_a_higher_default_max_level)
{
	const struct policy *y =
		good(*state, OLLAMA "[[worker]]\nname = \"w\"\nkind = \"systemd\"\n"
				    "match.unit = \"a.service\"\n"
				    "[[worker]]\nname = \"c\"\nkind = \"checkpoint\"\n"
				    "match.exe = \"/c\"\n");

	assert_int_equal(y->worker[0].knobs.max_level, 4);
	assert_int_equal(y->worker[1].knobs.max_level, 3);
	assert_int_equal(y->standard.max_level, 2);
}

GUARD_CONFIG_TEST(too_many_rules_or_workers_are_refused)
{
	struct place *p = *state;
	struct buf b;

	buf_init(&b, 100000);
	for (unsigned i = 0; i <= POLICY_RULES; i++)
		buf_addf(&b, "[[rule]]\nmatch.name = \"r%u\"\naction = \"ignore\"\n", i);
	assert_int_equal(load(p, b.p), -GW_E_PARSE);
	assert_string_equal(said(p), "193:1: at most 64 [[rule]] are allowed");
	buf_clear(&b);
	buf_adds(&b, OLLAMA);
	for (unsigned i = 0; i < POLICY_WORKERS; i++)
		buf_addf(&b,
			 "[[worker]]\nname = \"w%u\"\nkind = \"vllm\"\nurl = "
			 "\"http://[::1]:%u\"\n",
			 i, 1000 + i);
	assert_int_equal(good(p, b.p)->workers, POLICY_WORKERS);
	buf_adds(&b, "[[worker]]\nname = \"more\"\nkind = \"ollama\"\n");
	assert_int_equal(load(p, b.p), -GW_E_PARSE);
	buf_done(&b);
}

GUARD_CONFIG_TEST(what_is_printed_reads_back_to_the_same_policy)
{
	struct place *p = *state;
	struct guard_settings first;
	struct buf b, again;

	for (int origin = 0; origin < 2; origin++) {
		good(p, everything);
		first = p->s;
		p->s = (struct guard_settings){ 0 };
		buf_init(&b, 1 << 20);
		config_print(&b, &p->c, origin);
		assert_int_equal(b.err, 0);
		assert_true(policy_same(&first.policy, good(p, b.p)));
		first.health.absolute_c = p->s.health.absolute_c = 0;
		assert_memory_equal(&first.health, &p->s.health, sizeof(first.health));
		buf_init(&again, 1 << 20);
		config_print(&again, &p->c, false);
		if (!origin)
			assert_string_equal(b.p, again.p);
		buf_done(&again);
		buf_done(&b);
		guard_settings_done(&first);
	}
}

GUARD_CONFIG_TEST(a_policy_outlives_the_configuration)
{
	struct place *p = *state;
	struct guard_settings old;

	good(p, everything);
	old = p->s;
	p->s = (struct guard_settings){ 0 };
	good(p, "[guard]\nmode = \"observe\"\n");
	assert_string_equal(old.policy.worker[1].match.command, "^python .*vllm");
	assert_string_equal(old.policy.worker[2].evict_argv[2], "-x");
	assert_false(policy_same(&old.policy, &p->s.policy));
	guard_settings_done(&old);
}

GUARD_CONFIG_TEST(as_json_keys_of_match_stand_together)
{
	struct place *p = *state;
	struct json j;
	struct buf b;

	good(p, "[[rule]]\nmatch.name = \"a\"\nmatch.vram_ge = \"1KiB\"\naction = \"watch\"\n");
	buf_init(&b, 1 << 20);
	json_init(&j, &b, false);
	json_object(&j, NULL);
	config_json(&j, &p->c);
	json_object_end(&j);
	assert_int_equal(json_end(&j), 0);
	assert_in(b.p, "\"workers\":[],\"rules\":[{\"match\":{\"name\":\"a\","
		       "\"vram_ge\":1024},\"action\":\"watch\","
		       "\"origin\":\"/etc/g.toml:1:1\"}],\"schedules\":[]");
	buf_done(&b);
}

TEST_MAIN(NULL, NULL)
