/* Tests the protocol between guard and companion, and what the companion allows. */
#include "companion/allow.h"
#include "guard/worker/wire.h"

#include <gpuward.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

static struct wire_request request;
static struct allow allow;
static char message[500];

static int read_text(const char *text)
{
	const char *why;

	return wire_read(text, strlen(text), &request, &why);
}

TEST(each_request_reads_back_as_written)
{
	static const char *const rows[] = {
		"checkpoint 30000 1234:98765 1235:98770\n",
		"restore 1 2:18446744073709551615\n",
		"signal 15 1234:98765\n",
		"unit 3600000 stop ollama.service\n",
		"unit 5 start a@b\\x2d:_.1-z.service\n",
	};
	char out[WIRE_SIZE];

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		assert_int_equal(read_text(rows[i]), 0);
		assert_int_equal(wire_write(&request, out), strlen(rows[i]));
		assert_string_equal(out, rows[i]);
	}
}

TEST(an_invalid_request_is_refused_with_a_phrase)
{
	static const char *const rows[] = {
		"",
		"\n",
		"checkpoint 1 2:3",
		"checkpoint 1 2:3\n\n",
		"checkpoint 1 2:3\nrestore 1 2:3\n",
		"Checkpoint 1 2:3\n",
		"checkpoint  1 2:3\n",
		"checkpoint 1 2:3 \n",
		"checkpoint 1  2:3\n",
		"checkpoint 1\n",
		"checkpoint 0 2:3\n",
		"checkpoint 3600001 2:3\n",
		"checkpoint 01 2:3\n",
		"checkpoint +1 2:3\n",
		"checkpoint 1 -2:3\n",
		"checkpoint 1 0:3\n",
		"checkpoint 1 02:3\n",
		"checkpoint 1 2:0\n",
		"checkpoint 1 2:3 2:4\n",
		"checkpoint 1 2147483648:3\n",
		"checkpoint 1 2:18446744073709551616\n",
		"checkpoint 1 2\n",
		"restoration 1 2:3\n",
		"signal 0 2:3\n",
		"signal 65 2:3\n",
		"signal TERM 2:3\n",
		"unit 1 restart a.service\n",
		"unit 1 stop\n",
		"unit 1 stop \n",
		"unit 1 stop -a.service\n",
		"unit 1 stop service\n",
		"unit 1 stop a.service b.service\n",
		"unit 1 stop ../a.service\n",
		"unit 1 stop a;b.service\n",
		"unit 1 stop a$(b).service\n",
	};
	const char *why = NULL;

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		assert_int_equal(wire_read(rows[i], strlen(rows[i]), &request, &why),
				 -GW_E_PARSE);
		assert_true(why && *why);
	}
	assert_int_equal(wire_read("unit 1 stop a\0.service\n", 24, &request, &why),
			 -GW_E_PARSE);
}

TEST(the_limit_of_processes_fits_and_one_more_does_not)
{
	char text[WIRE_SIZE], out[WIRE_SIZE];
	int n = snprintf(text, sizeof(text), "checkpoint 3600000");

	for (int i = 0; i < WIRE_TARGETS; i++)
		n += snprintf(text + n, sizeof(text) - (size_t)n, " %d:18446744073709551615",
			      2147483000 + i);
	snprintf(text + n, sizeof(text) - (size_t)n, "\n");
	assert_int_equal(read_text(text), 0);
	assert_int_equal(request.targets, WIRE_TARGETS);
	wire_write(&request, out);
	assert_string_equal(out, text);
	snprintf(text + n, sizeof(text) - (size_t)n, " 5:5\n");
	assert_int_equal(read_text(text), -GW_E_PARSE);
}

TEST(replies_read_back_as_written)
{
	struct wire_reply r = { .rc = -GW_E_PERM, .words = "no\n\033[31mway" };
	char out[WIRE_SIZE];

	wire_reply_write(&r, out);
	assert_string_equal(out, "no 4 no??[31mway\n");
	assert_int_equal(wire_reply_read("no 4 words", &r), 0);
	assert_int_equal(r.rc, -GW_E_PERM);
	assert_string_equal(r.words, "words");
	assert_int_equal(wire_reply_read("ok 0 ", &r), 0);
	assert_int_equal(wire_reply_read("ok 3 ", &r), 0);
	assert_int_equal(r.count, 3);
	assert_int_equal(r.rc, 0);
	assert_int_equal(wire_reply_read("no 0 words", &r), -GW_E_PARSE);
	assert_int_equal(wire_reply_read("ok", &r), -GW_E_PARSE);
	assert_int_equal(wire_reply_read("ok 65 ", &r), -GW_E_PARSE);
	assert_int_equal(wire_reply_read("perhaps", &r), -GW_E_PARSE);
}

static int allow_text(const char *text)
{
	char copy[1000];

	snprintf(copy, sizeof(copy), "%s", text);
	return allow_read(&allow, "/f", copy, message, sizeof(message));
}

TEST(nothing_is_allowed_without_a_line_for_it)
{
	struct proc p = {
		.pid = 5, .uid = 7, .name = "w", .exe = "/bin/w", .cgroup = "/s/w.service/x"
	};

	assert_int_equal(allow_text("# nothing\n\n"), 0);
	assert_int_equal(allow_client(&allow, 7, message, sizeof(message)), -GW_E_PERM);
	assert_in(message, "/f: client 7");
	assert_int_equal(allow_client(&allow, 0, message, sizeof(message)), 0);
	assert_int_equal(allow_unit(&allow, "a.service", message, sizeof(message)), -GW_E_PERM);
	assert_in(message, "/f: unit a.service");
	assert_int_equal(allow_process(&allow, ALLOW_SIGNAL, &p, message, sizeof(message)),
			 -GW_E_PERM);
	assert_in(message, "/f: signal cgroup=/s/w.service/x");
	p.cgroup[1] = '\0';
	assert_int_equal(allow_process(&allow, ALLOW_CHECKPOINT, &p, message, sizeof(message)),
			 -GW_E_PERM);
	assert_in(message, "/f: checkpoint exe=/bin/w");
}

TEST(all_conditions_of_a_line_must_hold)
{
	static const struct {
		const char *line;
		int signal, checkpoint;
	} rows[] = {
		{ "signal exe=/bin/w", 0, -GW_E_PERM },
		{ "signal exe=/bin/w uid=8", -GW_E_PERM, -GW_E_PERM },
		{ "signal exe=/bin/w uid=7 cgroup=/s", 0, -GW_E_PERM },
		{ "signal exe=/bin/", -GW_E_PERM, -GW_E_PERM },
		{ "checkpoint cgroup=/s/w.service", -GW_E_PERM, 0 },
		{ "checkpoint cgroup=/s/w.serv", -GW_E_PERM, -GW_E_PERM },
		{ "checkpoint cgroup=//s//w.service/", -GW_E_PERM, 0 },
		{ " \tcheckpoint\tcgroup=/s/w.service/x/y", -GW_E_PERM, -GW_E_PERM },
		{ "signal uid=7\ncheckpoint uid=7", 0, 0 },
		{ "unit w.service\nclient 7", -GW_E_PERM, -GW_E_PERM },
	};
	const struct proc p = {
		.pid = 5, .uid = 7, .exe = "/bin/w", .cgroup = "/s/w.service/x"
	};
	const struct proc unknown = { .pid = 5, .uid = -1 };

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		assert_int_equal(allow_text(rows[i].line), 0);
		assert_int_equal(
			allow_process(&allow, ALLOW_SIGNAL, &p, message, sizeof(message)),
			rows[i].signal);
		assert_int_equal(
			allow_process(&allow, ALLOW_CHECKPOINT, &p, message, sizeof(message)),
			rows[i].checkpoint);
		assert_int_equal(
			allow_process(&allow, ALLOW_SIGNAL, &unknown, message, sizeof(message)),
			-GW_E_PERM);
	}
}

TEST(users_are_those_of_the_machine)
{
	assert_int_equal(allow_text("client root\nclient 65534\n"), 0);
	assert_int_equal(allow_client(&allow, 65534, message, sizeof(message)), 0);
	assert_int_equal(allow_client(&allow, 65533, message, sizeof(message)), -GW_E_PERM);
	assert_int_equal(allow_text("client no-such-user-here\n"), -GW_E_PARSE);
	assert_in(message, "/f:1:");
}

TEST(one_invalid_line_disables_the_whole_file)
{
	static const char *const rows[] = {
		"allow everything",
		"unit",
		"unit a b.service",
		"unit -x.service",
		"client",
		"client -1",
		"client 4294967295",
		"signal",
		"signal all",
		"signal exe=w",
		"signal uid=root:x",
		"signal exe=/bin/w exe=/bin/v",
		"signal uid=7 uid=8",
		"checkpoint cgroup=/s cgroup=/t",
		"checkpoint cgroup=/",
		"signal cgroup=//",
		"signal cgroup=///",
		"signal cgroup=/.",
		"signal cgroup=/s/..",
		"checkpoint cgroup=s",
		"signal uid=nobody-of-that-name",
		"signal uid=",
		"signal exe=",
	};
	char text[300];

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		snprintf(text, sizeof(text), "unit good.service\n%s\n", rows[i]);
		assert_int_equal(allow_text(text), -GW_E_PARSE);
		assert_in(message, "/f:2: ");
		assert_int_equal(allow_unit(&allow, "good.service", message, sizeof(message)),
				 -GW_E_PERM);
	}
}

TEST(a_file_that_others_can_write_allows_nothing)
{
	char path[] = "/tmp/gpuward-allow-XXXXXX", link[64];
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, "unit a.service\n", 15), 15);
	if (geteuid() == 0) {
		assert_int_equal(allow_load(&allow, path, message, sizeof(message)), 0);
		assert_int_equal(allow.rules, 1);
	}
	fchmod(fd, 0620);
	assert_int_equal(allow_load(&allow, path, message, sizeof(message)), -GW_E_PERM);
	assert_in(message, "chmod");
	assert_int_equal(allow.rules, 0);
	fchmod(fd, 0600);
	snprintf(link, sizeof(link), "%s.link", path);
	assert_int_equal(symlink(path, link), 0);
	assert_int_equal(allow_load(&allow, link, message, sizeof(message)), -GW_E_PERM);
	unlink(link);
	unlink(path);
	close(fd);
	assert_int_equal(allow_load(&allow, path, message, sizeof(message)), -GW_E_PERM);
	assert_in(message, "No such file");
	assert_int_equal(allow_load(&allow, "/", message, sizeof(message)), -GW_E_PERM);
}

TEST_MAIN(NULL, NULL)
