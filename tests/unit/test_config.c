#include "daemon/config_read.h"

#include "tree.h"
#include "test.h"

#include "cli/option.h"

#include <gpuward.h>

extern char **environ;

static struct place {
	struct tree tree;
	struct config c;
	char message[8192];
} place, *const p = &place;

/* Starts without files and without GPUWARD_ variables. */
static int set_up(void **state)
{
	char home[100];

	for (char **e = environ; *e;) {
		char name[200];

		snprintf(name, sizeof(name), "%.*s", (int)strcspn(*e, "="), *e);
		if (strncmp(name, "GPUWARD_", 8) != 0)
			e++;
		else if (unsetenv(name) != 0)
			return -1;
	}
	memset(p, 0, sizeof(*p));
	tree_init(&p->tree);
	snprintf(home, sizeof(home), "%s/home", p->tree.path);
	setenv("GPUWARD_CONFIG_ROOT", p->tree.path, 1);
	setenv("XDG_CONFIG_HOME", home, 1);
	return 0;
}

static int tear_down(void **state)
{
	config_done(&p->c);
	tree_done(&p->tree);
	return 0;
}

#define TEST_SETUP    set_up
#define TEST_TEARDOWN tear_down

static int load_with(const struct config_flag *flags, unsigned n)
{
	config_done(&p->c);
	return config_load(&p->c, NULL, flags, n, p->message, sizeof(p->message));
}

static int load(void)
{
	return load_with(NULL, 0);
}

#define ETC  "etc/gpuward/gpuward.toml"
#define HOME "home/gpuward/gpuward.toml"

static int load_text(const char *text)
{
	tree_put(&p->tree, ETC, text);
	return load();
}

/* Returns the message without the path of the file: "3:1: sentence", lines joined. */
static const char *said(void)
{
	char prefix[200];
	char *at;

	snprintf(prefix, sizeof(prefix), "%s/" ETC ":", p->tree.path);
	while ((at = strstr(p->message, prefix)))
		memmove(at, at + strlen(prefix), strlen(at + strlen(prefix)) + 1);
	return p->message;
}

TEST(without_files_the_defaults_apply)
{
	assert_int_equal(load(), 0);
	assert_string_equal(p->message, "");
	assert_string_equal(config_files(&p->c), "");
	assert_null(config_file(&p->c, 0));
	assert_int_equal(p->c.service_listen.count, 1);
	assert_string_equal(p->c.service_listen.item[0], "127.0.0.1:9490");
	assert_null(p->c.service_listen.item[1]);
	assert_int_equal(p->c.service_interval, 1000000000);
	assert_null(p->c.service_token_file);
	assert_int_equal(p->c.service_hosts.count, 0);
	assert_int_equal(p->c.history_limit, 1 << 30);
	assert_string_equal(p->c.device_backend, "auto");
	assert_true(p->c.device_enable_nvml);
	assert_true(p->c.guard_poll_ms == 0);
	assert_string_equal(p->c.guard_mode, "observe");
	assert_true(p->c.guard_defaults_quiet_s == 30);
}

TEST(every_type_is_read_in_each_of_its_forms)
{
	assert_int_equal(load_text("[service]\ninterval = \"500ms\"\nheader_timeout = 2\n"
				   "body_timeout = 0.25\nidle_timeout = \"1.5m\"\n"
				   "hosts = [\"a.example\", \"10.0.0.1\", \"fe80::1\"]\n"
				   "streams = 8\ntoken_file = \"/t \\\"q\\\"\"\n"
				   "[history]\nlimit = \"512MiB\"\n"
				   "[log]\nlevel = \"debug\"\n[manage]\nenabled = true\n"
				   "[health]\nhealth_check_interval_secs = 2.5\n"),
			 0);
	assert_string_equal(p->message, "");
	assert_int_equal(p->c.service_interval, 500000000);
	assert_int_equal(p->c.service_header_timeout, 2000000000);
	assert_int_equal(p->c.service_body_timeout, 250000000);
	assert_int_equal(p->c.service_idle_timeout, 90000000000);
	assert_int_equal(p->c.service_hosts.count, 3);
	assert_string_equal(p->c.service_hosts.item[2], "fe80::1");
	assert_int_equal(p->c.service_streams, 8);
	assert_string_equal(p->c.service_token_file, "/t \"q\"");
	assert_int_equal(p->c.history_limit, 512 << 20);
	assert_string_equal(p->c.log_level, "debug");
	assert_true(p->c.manage_enabled);
	assert_true(p->c.health_interval_s == 2.5);

	assert_int_equal(load_text("[history]\nlimit = 2000000\n"), 0);
	assert_int_equal(p->c.history_limit, 2000000);
	assert_int_equal(load_text("[history]\nlimit = \"2 GB\"\n"), 0);
	assert_int_equal(p->c.history_limit, 2000000000);
	assert_int_equal(load_text("[history]\nlimit = \"2G\"\n"), 0);
	assert_int_equal(p->c.history_limit, UINT64_C(2) << 30);
	assert_int_equal(load_text("[history]\nlimit = \"300m\"\n"), 0);
	assert_int_equal(p->c.history_limit, 300 << 20);
}

static const struct {
	const char *text, *says;
} refused[] = {
	{ "lisen = 1\n", "1:1: no such key \"lisen\"; did you mean \"listen\" in [service]?" },
	{ "quux = 1\n", "1:1: no such key \"quux\"" },
	{ "listen = []\n", "1:1: \"listen\" belongs in [service]" },
	{ "[service]\nlisen = []\n",
	  "2:1: no such key \"lisen\" in [service]; did you mean \"listen\"?" },
	{ "[service]\nlevel = \"info\"\n", "2:1: \"level\" belongs in [log]" },
	{ "[servic]\n", "1:2: no such section \"servic\"; did you mean \"service\"?" },
	{ "[[servic]]\n", "1:3: no such section \"servic\"; did you mean \"service\"?" },
	{ "[quux]\n", "1:2: no such section \"quux\"" },
	{ "[[workers]]\n", "1:3: no such section \"workers\"; did you mean [[worker]]?" },
	{ "[history]\npath = \"\"\n", "2:1: history.path is empty" },
	{ "[metrics]\ntextfile = \"nan\"\n",
	  "2:1: textfile: \"nan\": the name must end with .prom" },
	{ "[metrics]\ntextfile = \".prom\"\n",
	  "2:1: textfile: \".prom\": the name must end with" },
	{ "[[service]]\n", "1:3: \"service\" must be a table ([service]), not an array" },
	{ "service = 3\n", "1:1: \"service\" must be a table ([service]), not a value" },
	{ "\"a\\nb\" = 3\n", "1:1: no such key \"a?b\"" },
	{ "[service]\n\"listen\\u0000\" = []\n",
	  "2:1: no such key \"listen?\" in [service]; did you mean \"listen\"?" },
	{ "[service]\nlisten = \"127.0.0.1:1\"\n",
	  "2:10: listen must be an array of strings, not a string" },
	{ "[service]\nlisten = [1]\n",
	  "2:11: listen must be an array of strings: write \"1\", in quotes\n" },
	{ "[service]\nlisten = [\"127.0.0.1:1\", true]\n",
	  "2:26: listen must be an array of strings, but has a boolean\n" },
	{ "[guard]\nenabled = true\n", "2:1: no such key \"enabled\" in [guard]; use mode = " },
	{ "[service]\nenabled = true\n",
	  "2:1: \"enabled\" belongs in [manage], [health] or [capacity]\n" },
	{ "[guard]\nquiet_s = 3\n", "2:1: \"quiet_s\" belongs in [guard.defaults]\n" },
	{ "[service]\nhosts = [\"\"]\n", "2:10: hosts must be a list without empty items" },
	{ "[service]\ninterval = true\n", "2:12: interval must be a time such as \"1s\" or "
					  "\"500ms\", or a number of seconds, not "
					  "a boolean" },
	{ "[service]\ninterval = \"1 week\"\n", "2:12: interval must be a time such as \"1s\" "
						"or \"500ms\", or a number of seconds, not "
						"\"1 week\"" },
	{ "[service]\ninterval = \"0x1s\"\n", "2:12: interval must be a time such as \"1s\" or "
					      "\"500ms\", or a number of seconds, not "
					      "\"0x1s\"" },
	{ "[service]\ninterval = \"90s\"\n",
	  "2:12: interval must be from 100ms to 1m, not 90s" },
	{ "[service]\ninterval = -1\n", "2:12: interval must be from 100ms to 1m, not -1" },
	{ "[service]\ninterval = nan\n", "2:12: interval must be a finite number" },
	{ "[service]\nconnections = 7\n",
	  "2:15: connections must be from 8 to 100000, not 7\n" },
	{ "[service]\nconnections = 10.0\n",
	  "2:15: connections must be a whole number, not a float" },
	{ "[service]\ninsecure = 1\n", "2:12: insecure must be true or false, not an integer" },
	{ "[history]\nlimit = \"1KiB\"\n",
	  "2:9: limit must be from 1MiB to 1024TiB, not 1KiB" },
	{ "[history]\nlimit = 1e9\n",
	  "2:9: limit must be a size such as \"512MiB\", or a number of bytes, not a float" },
	{ "[history]\npath = \"a\\u0000b\"\n", "2:8: path must be a string without NUL" },
	{ "[log]\nlevel = \"warn\"\n",
	  "2:9: level must be error, warning, info or debug, not \"warn\"; did you mean "
	  "\"warning\"?" },
	{ "[log]\nlevel = \"a\\n\\u001bb\"\n",
	  "2:9: level must be error, warning, info or debug, not \"a??b\"" },
	{ "auto_evict_for_user_app = true\n",
	  "1:1: no such key \"auto_evict_for_user_app\"; did you mean "
	  "\"auto_evict_for_user_apps\"?" },
	{ "[service]\nauto_evict_for_user_apps = true\n",
	  "2:1: \"auto_evict_for_user_apps\" belongs in [guard]" },
	{ "[guard]\ndefaults = 3\n",
	  "2:1: \"defaults\" must be a table ([guard.defaults]), not a value" },
	{ "[guard.defaults]\nquiet = 3\n",
	  "2:1: no such key \"quiet\" in [guard.defaults]; did you mean \"quiet_s\"?" },
	{ "[service]\ntls_cert = \"c\"\n",
	  "2:1: tls_cert is set and tls_key is not; TLS needs both" },
	{ "[service]\ntls_key = \"k\"\n",
	  "2:1: tls_key is set and tls_cert is not; TLS needs both" },
	{ "[service]\nunix_mode = \"0888\"\n",
	  "2:1: unix_mode must be octal permissions such as \"0660\", not \"0888\"" },
	{ "[service]\nunix_mode = \"1777\"\n", "2:1: unix_mode must be octal" },
	{ "[service]\nunix_mode = \"\"\n", "2:1: unix_mode must be octal" },
	{ "[service]\nconnections = 10\nstreams = 11\n",
	  "3:1: streams (11) must not exceed connections (10)" },
	{ "[service]\nconnections = 10\n",
	  "2:1: streams (1024) must not exceed connections (10)" },
	{ "[device]\nenable_nvml = false\nrequire_nvml = true\n",
	  "3:1: require_nvml is true but enable_nvml is false; change one of them" },
	{ "[service]\norigins = [\"*\"]\n",
	  "2:1: origins: \"*\": an origin is written http://HOST or https://HOST:PORT" },
	{ "[service]\norigins = [\"http://a/b\"]\n",
	  "2:1: origins: \"http://a/b\": an origin is scheme, host and port" },
	{ "[service]\nhosts = [\"a:80\"]\n",
	  "2:1: hosts: \"a:80\": write the host name alone" },
	{ "[service]\nhosts = [\"a\", \"A\"]\n", "2:1: hosts: \"A\" is listed twice" },
	{ "[service\n", "1:9: " },
	{ "[gpu]\nlevel = 1\n", "2:1: \"level\" belongs in [log]" },
	{ "[gpu]\nrequire_nvm = true\n",
	  "2:1: no such key \"require_nvm\" in [gpu]; did you mean \"require_nvml\"?" },
};

TEST(errors_have_their_line_and_column)
{
	for (size_t i = 0; i < COUNT_OF(refused); i++) {
		size_t n = strcspn(refused[i].says, "\n");

		assert_int_equal(load_text(refused[i].text), -GW_E_PARSE);
		if (strncmp(said(), refused[i].says, n) != 0)
			fail_msg("%s\n  says %s\n  not  %s", refused[i].text, said(),
				 refused[i].says);
		assert_null(p->c.memory);
	}
}

TEST(all_errors_are_reported_one_per_line)
{
	setenv("GPUWARD_LOG_FORMAT", "xml", 1);
	assert_int_equal(load_text("[service]\nfoo = 1\nlisten = [\"x\", \"y:1\", \"z\"]\n"
				   "[log]\nlevel = 3\n"),
			 -GW_E_PARSE);
	assert_string_equal(
		said(),
		"2:1: no such key \"foo\" in [service]\n"
		"3:1: listen: \"x\": the port is missing: write HOST:PORT, [IPV6]:PORT or "
		"unix:PATH\n"
		"3:1: listen: \"z\": the port is missing: write HOST:PORT, [IPV6]:PORT or "
		"unix:PATH\n"
		"5:9: level must be a string, not an integer\n"
		"GPUWARD_LOG_FORMAT: must be logfmt or json, not \"xml\"");
}

TEST(too_many_errors_are_counted)
{
	struct buf b;
	char small[200];

	buf_init(&b, 100000);
	for (unsigned i = 0; i < 150; i++)
		buf_addf(&b, "zz%u = 1\n", i);
	assert_int_equal(load_text(b.p), -GW_E_PARSE);
	assert_in(p->message, "and 50 more");
	assert_int_equal(config_load(&p->c, NULL, NULL, 0, small, sizeof(small)), -GW_E_PARSE);
	assert_in(small, "zz0");
	assert_in(small, " more");
	buf_done(&b);
}

TEST(a_refused_value_is_reported_once)
{
	assert_int_equal(load_text("[service]\ntls_cert = \"c\"\ntls_key = 1\n"), -GW_E_PARSE);
	assert_string_equal(said(), "3:11: tls_key must be a string, not an integer");
}

static const char *const flat = "enable_nvml = true\nrequire_nvml = true\n"
				"auto_evict_for_user_apps = true\n"
				"process_check_interval_secs = 5\n"
				"enable_health_monitoring = false\n"
				"health_check_interval_secs = 20\n"
				"temperature_threshold_celsius = 80\n"
				"enable_capacity_tracking = false\n";

TEST(old_keys_are_read_in_every_old_place)
{
	static const char *const heads[] = { "", "[guard]\n", "[gpu]\n", "[worker]\n" };
	char text[1000];

	for (unsigned i = 0; i < 4; i++) {
		snprintf(text, sizeof(text), "%s%s", heads[i], flat);
		assert_int_equal(load_text(text), 0);
		assert_in(p->message, "there is no [[worker]]");
		assert_null(strchr(p->message, '\n'));
		assert_true(p->c.device_require_nvml);
		assert_string_equal(p->c.guard_mode, "enforce");
		assert_true(p->c.guard_poll_ms == 5000);
		assert_false(p->c.health_enabled);
		assert_true(p->c.health_interval_s == 20);
		assert_true(p->c.health_temp_override_c == 80);
		assert_false(p->c.capacity_enabled);
	}
}

TEST(two_places_of_a_key_must_agree)
{
	assert_int_equal(load_text("require_nvml = true\n[device]\nrequire_nvml = false\n"),
			 -GW_E_PARSE);
	assert_string_equal(said(), "3:1: require_nvml has one value in line 1 and another in "
				    "line 3; keep one of them");
	assert_int_equal(load_text("require_nvml = true\n[device]\nrequire_nvml = true\n"), 0);
	assert_true(p->c.device_require_nvml);
	assert_int_equal(load_text("auto_evict_for_user_apps = true\n[guard]\n"
				   "mode = \"dry-run\"\n"),
			 -GW_E_PARSE);
	assert_string_equal(said(), "3:1: mode has one value in line 1 and another in line 3; "
				    "keep one of them");
	assert_int_equal(load_text("auto_evict_for_user_apps = true\n[guard]\n"
				   "mode = \"enforce\"\n"),
			 0);
}

TEST(later_layers_win)
{
	const struct config_flag flags[] = { { "log-level", "error" } };

	tree_put(&p->tree, ETC,
		 "[log]\nlevel = \"debug\"\n[service]\nstreams = 1\nheader_timeout = 1\n"
		 "[metrics]\nprocesses = 1\n");
	tree_put(&p->tree, "etc/gpuward/gpuward.d/20-b.toml", "[service]\nstreams = 3\n");
	tree_put(&p->tree, "etc/gpuward/gpuward.d/10-a.toml",
		 "[service]\nstreams = 2\nheader_timeout = 2\n");
	tree_put(&p->tree, "etc/gpuward/gpuward.d/30-c.toml.bak", "rubbish");
	tree_put(&p->tree, HOME, "[metrics]\nprocesses = 2\n");
	setenv("GPUWARD_LOG_LEVEL", "warning", 1);
	assert_int_equal(load(), 0);
	assert_int_equal(p->c.service_streams, 3);
	assert_int_equal(p->c.service_header_timeout, 2000000000);
	assert_int_equal(p->c.metrics_processes, 2);
	assert_string_equal(p->c.log_level, "warning");
	assert_in(config_file(&p->c, 1), "10-a.toml");
	assert_in(config_file(&p->c, 3), HOME);
	assert_null(config_file(&p->c, 4));
	assert_in(config_files(&p->c), "10-a.toml, ");
	assert_int_equal(load_with(flags, 1), 0);
	assert_string_equal(p->c.log_level, "error");
}

TEST(a_named_file_replaces_the_others)
{
	char path[200];

	tree_put(&p->tree, ETC, "rubbish");
	tree_put(&p->tree, "mine.toml", "[service]\nstreams = 5\n");
	snprintf(path, sizeof(path), "%s/mine.toml", p->tree.path);
	assert_int_equal(config_load(&p->c, path, NULL, 0, p->message, sizeof(p->message)), 0);
	assert_int_equal(p->c.service_streams, 5);
	assert_string_equal(config_files(&p->c), path);
	config_done(&p->c);
	snprintf(path, sizeof(path), "%s/none.toml", p->tree.path);
	assert_int_equal(config_load(&p->c, path, NULL, 0, p->message, sizeof(p->message)),
			 -GW_E_NOENT);
	assert_in(p->message, "none.toml: ");
}

TEST(variables_are_read_and_named_when_wrong)
{
	setenv("GPUWARD_LISTEN", "127.0.0.1:1,unix:/run/x.sock", 1);
	setenv("GPUWARD_INTERVAL", "2", 1);
	setenv("GPUWARD_DEVICE_ENABLE_NVML", "off", 1);
	setenv("GPUWARD_HISTORY_LIMIT", "2GiB", 1);
	setenv("GPUWARD_TOKEN_FILE", "", 1); /* empty counts as not set */
	assert_int_equal(load(), 0);
	assert_string_equal(p->message, "");
	assert_int_equal(p->c.service_listen.count, 2);
	assert_string_equal(p->c.service_listen.item[1], "unix:/run/x.sock");
	assert_int_equal(p->c.service_interval, 2000000000);
	assert_false(p->c.device_enable_nvml);
	assert_int_equal(p->c.history_limit, INT64_C(2) << 30);

	setenv("GPUWARD_LISTEN", "127.0.0.1", 1);
	setenv("GPUWARD_INTERVAL", "soon", 1);
	assert_int_equal(load(), -GW_E_ARG);
	assert_string_equal(
		p->message,
		"GPUWARD_INTERVAL: must be a time such as \"1s\" or \"500ms\", or a number of "
		"seconds, not \"soon\"\n"
		"GPUWARD_LISTEN: listen: \"127.0.0.1\": the port is missing: write HOST:PORT, "
		"[IPV6]:PORT or unix:PATH");
}

TEST(unknown_variables_warn_and_other_prefixes_do_not)
{
	setenv("GPUWARD_SIM", "demo", 1);
	setenv("GPUWARD_TEST_DATA", "/", 1);
	assert_int_equal(load(), 0);
	assert_string_equal(p->message, "");
	setenv("GPUWARD_LISEN", "x", 1);
	assert_int_equal(load(), 0);
	assert_string_equal(p->message, "GPUWARD_LISEN: warning: unknown setting, ignored; "
					"did you mean \"GPUWARD_LISTEN\"?");
}

TEST(wrong_flags_are_named_and_list_flags_accumulate)
{
	const struct config_flag good[] = { { "listen", "127.0.0.1:1" },
					    { "listen", "127.0.0.1:2" },
					    { "insecure", NULL },
					    { "device.backend", "nvml" } };
	const struct config_flag bad[] = { { "interval", "x" },
					   { "quux", "1" },
					   { "device.backend", "cuda" } };

	setenv("GPUWARD_LISTEN", "127.0.0.1:9", 1);
	assert_int_equal(load_with(good, 4), 0);
	assert_int_equal(p->c.service_listen.count, 2);
	assert_string_equal(p->c.service_listen.item[0], "127.0.0.1:1");
	assert_true(p->c.service_insecure);
	assert_string_equal(p->c.device_backend, "nvml");
	assert_int_equal(load_with(bad, 3), -GW_E_ARG);
	assert_string_equal(
		p->message,
		"--interval: must be a time such as \"1s\" or \"500ms\", or a number "
		"of seconds, not \"x\"\n"
		"--quux: no such setting\n"
		"device.backend: must be auto, all, nvml, nvidia-smi, amdgpu, intel or "
		"none, not \"cuda\"");
}

TEST(a_world_writable_file_warns)
{
	char path[200];

	tree_put(&p->tree, ETC, "[service]\n");
	snprintf(path, sizeof(path), "%s/" ETC, p->tree.path);
	assert_int_equal(chmod(path, 0666), 0);
	assert_int_equal(load(), 0);
	assert_in(p->message, ": warning: every user can write this file");
}

TEST(an_address_that_will_be_refused_warns)
{
	static const char *const exposed[] = { "0.0.0.0:1", "192.0.2.1:1", "[::]:1" };
	static const char *const closed[] = { "127.0.0.2:1", "[::1]:1", "unix:/run/a",
					      "localhost:1" };

	for (unsigned i = 0; i < 3; i++) {
		setenv("GPUWARD_LISTEN", exposed[i], 1);
		assert_int_equal(load(), 0);
		assert_in(p->message, "is reachable from other machines");
	}
	assert_int_equal(load_text("[service]\ninsecure = true\n"), 0);
	assert_string_equal(p->message, "");
	assert_int_equal(load_text("[service]\ntoken_file = \"t\"\ntls_cert = \"c\"\n"
				   "tls_key = \"k\"\n"),
			 0);
	assert_string_equal(p->message, "");
	tree_put(&p->tree, ETC, "");
	for (unsigned i = 0; i < 4; i++) {
		setenv("GPUWARD_LISTEN", closed[i], 1);
		assert_int_equal(load(), 0);
		assert_string_equal(p->message, "");
	}
}

TEST(an_unreadable_file_is_an_error)
{
	int err;

	tree_put(&p->tree, ETC, "");
	tree_forbid(&p->tree, ETC);
	err = load();
	tree_allow();
	assert_int_equal(err, -GW_E_PERM);
	assert_in(p->message, ETC ": ");
}

TEST(addresses_are_checked)
{
	static const char *const good[] = { "127.0.0.1:0",  "0.0.0.0:65535",    "localhost:80",
					    "[::1]:9490",   "[fe80::1%eth0]:1", "unix:/run/a",
					    "node-1.lan:80" };
	static const char *const bad[] = { "",           "127.0.0.1", ":80",     "1.2.3:80",
					   "::1:80",     "[::1]",     "[::1]80", "[zz]:80",
					   "a:65536",    "a:-1",      "a:8x",    "unix:rel",
					   "a b:80",     "unix:",     "[::1]:",  "http://a:80",
					   "256.1.1.1:1" };

	for (size_t i = 0; i < COUNT_OF(good); i++)
		assert_null(config_check_address(good[i]));
	for (size_t i = 0; i < COUNT_OF(bad); i++)
		if (!config_check_address(bad[i]))
			fail_msg("\"%s\" was taken", bad[i]);
}

static bool same(const struct config *a, const struct config *b)
{
	for (unsigned i = 0; i < CONFIG_ROWS; i++) {
		struct config_value x, y;

		config_value_get(a, &config_rows[i], &x);
		config_value_get(b, &config_rows[i], &y);
		if (!config_value_same(&config_rows[i], &x, &y))
			return false;
	}
	return true;
}

TEST(printed_configuration_reads_back_unchanged)
{
	static const char *const texts[] = {
		"",
		"[service]\ninterval = 0.123456789\ntoken_file = "
		"\"a\\\"\\\\\\n\\u007f\xc3\xbc\"\n"
		"listen = []\nhosts = [\"x\", \"y\"]\nconnections = 8\nstreams = 0\n"
		"[history]\nlimit = 1048577\n[health]\nhealth_check_interval_secs = 0.3\n",
	};

	for (unsigned i = 0; i < 4; i++) {
		struct config again;
		struct buf out;

		assert_int_equal(load_text(texts[i / 2]), 0);
		buf_init(&out, 1 << 20);
		config_print(&out, &p->c, i % 2 == 1);
		assert_int_equal(out.err, 0);
		tree_put(&p->tree, ETC, out.p);
		buf_done(&out);
		assert_int_equal(
			config_load(&again, NULL, NULL, 0, p->message, sizeof(p->message)), 0);
		assert_string_equal(p->message, "");
		assert_true(same(&p->c, &again));
		config_done(&again);
	}
}

TEST(the_origin_of_each_value_is_reported)
{
	const struct config_flag flags[] = { { "log-level", "error" } };
	struct buf out;

	tree_put(&p->tree, ETC, "require_nvml = true\n[service]\nstreams = 1\n");
	setenv("GPUWARD_INTERVAL", "2s", 1);
	assert_int_equal(load_with(flags, 1), 0);
	buf_init(&out, 1 << 20);
	config_print(&out, &p->c, true);
	assert_in(out.p, "\ninterval = \"2s\"  # GPUWARD_INTERVAL\n");
	assert_in(out.p, "\nlevel = \"error\"  # --log-level\n");
	assert_in(out.p, "\nconnections = 2048  # default\n");
	assert_in(out.p, "/" ETC ":3:1\n");
	assert_in(out.p, "/" ETC ":1:1\n");
	buf_done(&out);
}

TEST(options_of_the_command_line_become_flags)
{
	struct given {
		struct option_list listen;
		bool insecure;
		const char *level, *format;
	} given = { 0 };
	static const struct option options[] = {
		OPTION_ROW(LIST, 0, "listen", offsetof(struct given, listen), "ADDRESS", ""),
		OPTION_ROW(FLAG, 0, "insecure", offsetof(struct given, insecure), NULL, ""),
		OPTION_ROW(TEXT, 0, "log-level", offsetof(struct given, level), "WORD", ""),
		OPTION_ROW(TEXT, 0, "log-format", offsetof(struct given, format), "WORD", ""),
		OPTION_END,
	};
	char words[] = "serve\0--listen\0a:1,b:2\0--listen=c:3\0--insecure\0--log-level\0debug";
	char *argv[8] = { words };
	int argc = 7;
	const struct option_table tables[] = { { options, &given }, { NULL, NULL } };
	struct config_flag out[16];
	char error[200];
	unsigned n;

	for (int i = 1; i < argc; i++)
		argv[i] = argv[i - 1] + strlen(argv[i - 1]) + 1;
	assert_int_equal(option_parse(&argc, argv, tables, false, error, sizeof(error)), 0);
	n = option_config_flags(options, &given, out, 16);
	assert_int_equal(n, 5);
	assert_int_equal(load_with(out, n), 0);
	assert_int_equal(p->c.service_listen.count, 3);
	assert_string_equal(p->c.service_listen.item[2], "c:3");
	assert_true(p->c.service_insecure);
	assert_string_equal(p->c.log_level, "debug");
	assert_int_equal(option_config_flags(options, &given, out, 2), 2);
}

TEST_MAIN(NULL, NULL)
