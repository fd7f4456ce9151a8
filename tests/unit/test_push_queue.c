/* Tests the queue of the push: order, limit, restart, and damage at every byte. */
#include "daemon/push_queue.h"
#include "daemon/push_segment.h"

#include "base/file.h"

#include "test.h"

#include <gpuward.h>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/gpuward-push-XXXXXX", dir[64], message[1000];
static char taken[400]; /* the message of the last take() */
static struct push_queue *q;

static void empty_folder(const char *path)
{
	DIR *d = opendir(path);
	const struct dirent *e;

	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.')
			unlinkat(dirfd(d), e->d_name, 0);
	if (d)
		closedir(d);
}

static int each_setup(void **state)
{
	push_queue_close(q);
	q = NULL;
	empty_folder(dir);
	rmdir(dir);
	message[0] = '\0';
	return 0;
}

static int each_teardown(void **state)
{
	push_queue_close(q);
	q = NULL;
	return 0;
}

static int setup(void **state)
{
	if (!mkdtemp(folder))
		return -1;
	snprintf(dir, sizeof(dir), "%s/queue", folder);
	return 0;
}

static int teardown(void **state)
{
	each_setup(NULL);
	return rmdir(folder);
}

#define TEST_SETUP    each_setup
#define TEST_TEARDOWN each_teardown

#define LIMIT (64u << 20)

static void reopen(uint64_t limit)
{
	push_queue_close(q);
	q = NULL;
	assert_int_equal(push_queue_open(dir, limit, &q, message, sizeof(message)), 0);
}

/* Adds record number i. The payload contains the number. */
static int add(unsigned i, size_t n)
{
	char *p = calloc(1, n + 16);
	struct push_record r = { .protocol = PUSH_REMOTE_WRITE,
				 .time_ms = 1000 + i,
				 .samples = 10,
				 .raw_bytes = 100,
				 .p = p,
				 .n = n };
	int err;

	snprintf(p, 16, "<%u>", i);
	err = push_queue_add(q, &r, message, sizeof(message));
	free(p);
	return err;
}

/* Takes a batch; returns the numbers of its records, such as "3 4 ". */
static const char *take(uint64_t raw_max, struct push_batch *b)
{
	static char text[20000];
	struct buf out;
	size_t len = 0;

	text[0] = '\0';
	buf_init(&out, 100u << 20);
	if (push_queue_take(q, raw_max, &out, b, taken, sizeof(taken)))
		for (size_t i = 0; i < out.len; i++)
			if (out.p[i] == '<')
				len += (size_t)snprintf(text + len, sizeof(text) - len, "%d ",
							atoi(out.p + i + 1));
	buf_done(&out);
	return text;
}

/* Takes and removes everything; returns the numbers. */
static const char *drain(void)
{
	static char text[20000];
	struct push_batch b;
	size_t len = 0;

	text[0] = '\0';
	for (const char *got; *(got = take(0, &b));) {
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s", got);
		push_queue_remove(q, &b);
	}
	return text;
}

static struct push_queue_status status(void)
{
	struct push_queue_status s;

	push_queue_status(q, &s);
	return s;
}

TEST(records_come_back_in_order_and_in_batches)
{
	struct push_batch b;

	reopen(LIMIT);
	assert_string_equal(take(1000, &b), "");
	for (unsigned i = 1; i <= 5; i++)
		assert_int_equal(add(i, 50), 0);
	assert_int_equal(status().bytes, 5 * (50 + PUSH_RECORD_HEAD));
	assert_string_equal(take(0, &b), "1 ");
	assert_string_equal(take(250, &b), "1 2 "); /* 100 bytes each before compression */
	assert_int_equal(b.records, 2);
	assert_int_equal(b.samples, 20);
	assert_int_equal(b.raw_bytes, 200);
	push_queue_remove(q, &b);
	assert_string_equal(take(1000, &b), "3 4 5 ");
	push_queue_remove(q, &b);
	assert_int_equal(status().bytes, 0);
	assert_int_equal(status().dropped, 0);
	assert_int_equal(status().last_ms, 1005);
}

TEST(a_batch_has_records_of_one_protocol)
{
	struct push_record r = { .protocol = PUSH_OTLP, .time_ms = 9, .p = "<9>", .n = 3 };
	struct push_batch b;

	reopen(LIMIT);
	assert_int_equal(add(1, 20), 0);
	assert_int_equal(push_queue_add(q, &r, message, sizeof(message)), 0);
	assert_string_equal(take(1000, &b), "1 ");
	push_queue_remove(q, &b);
	assert_string_equal(take(1000, &b), "9 ");
	assert_int_equal(b.protocol, PUSH_OTLP);
}

TEST(after_a_restart_only_what_was_not_accepted_is_there)
{
	struct push_batch b;

	reopen(LIMIT);
	for (unsigned i = 1; i <= 4; i++)
		assert_int_equal(add(i, 50), 0);
	take(0, &b);
	push_queue_remove(q, &b);
	take(0, &b);
	reopen(LIMIT); /* the removal of the second batch is not stored */
	assert_int_equal(status().bytes, 3 * (50 + PUSH_RECORD_HEAD));
	assert_int_equal(add(5, 50), 0);
	assert_string_equal(drain(), "2 3 4 5 ");
	reopen(LIMIT);
	assert_string_equal(drain(), "");
	assert_int_equal(status().last_ms, 1005); /* known even if no record is left */
	assert_int_equal(add(6, 50), 0);
	assert_string_equal(drain(), "6 ");
}

TEST(a_second_process_is_refused)
{
	struct push_queue *other;

	reopen(LIMIT);
	assert_int_equal(push_queue_open(dir, LIMIT, &other, message, sizeof(message)),
			 -GW_E_STATE);
	assert_in(message, "another process uses the push queue");
	assert_in(message, "push.queue_dir");
}

TEST(a_full_queue_drops_the_oldest_and_counts_them)
{
	char text[20000];
	unsigned first;

	reopen(1 << 20);
	for (unsigned i = 1; i <= 100; i++)
		assert_int_equal(add(i, 20000), 0);
	assert_true(status().bytes <= 1 << 20);
	assert_true(status().bytes >= 700000);
	assert_true(status().dropped > 0 && status().dropped % 10 == 0);
	first = (unsigned)(status().dropped / 10) + 1;
	snprintf(text, sizeof(text), "%s", drain());
	assert_int_equal(atoi(text), first);
	assert_in(text, " 99 100 ");
	assert_int_equal(add(1, 600000), -GW_E_SIZE);
	assert_in(message, "raise queue_bytes");
}

TEST(a_batch_whose_segment_was_dropped_can_be_removed)
{
	struct push_batch b;

	reopen(1 << 20);
	assert_int_equal(add(1, 20000), 0);
	take(0, &b);
	for (unsigned i = 2; i <= 100; i++)
		assert_int_equal(add(i, 20000), 0);
	push_queue_remove(q, &b);
	assert_in(drain(), " 100 ");
	assert_int_equal(status().bytes, 0);
}

TEST(segments_that_were_sent_are_deleted)
{
	struct push_batch b;
	struct dirent **list;
	int n;

	reopen(1 << 20);
	for (unsigned i = 1; i <= 200; i++) {
		assert_int_equal(add(i, 20000), 0);
		take(0, &b);
		push_queue_remove(q, &b);
	}
	assert_int_equal(status().dropped, 0);
	n = scandir(dir, &list, NULL, NULL);
	assert_true(n <= 2 + 3); /* . and .., state, at most two segments */
	while (n-- > 0)
		free(list[n]);
	free(list);
}

/* ---- damage ---- */

static char path[400];

static const char *only_segment(void)
{
	DIR *d = opendir(dir);
	const struct dirent *e;

	path[0] = '\0';
	while ((e = readdir(d)))
		if (strstr(e->d_name, ".queue"))
			snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
	closedir(d);
	assert_true(path[0]);
	return path;
}

/* Writes three records and closes the queue. Returns the bytes of the segment. */
static size_t three_records(char *out, size_t size)
{
	ssize_t n;

	each_setup(NULL);
	reopen(LIMIT);
	for (unsigned i = 1; i <= 3; i++)
		assert_int_equal(add(i, 40), 0);
	push_queue_close(q);
	q = NULL;
	n = file_read(only_segment(), out, size, message, sizeof(message));
	assert_int_equal(n, 3 * (40 + PUSH_RECORD_HEAD));
	return (size_t)n;
}

static void write_segment(const char *p, size_t n)
{
	int fd = open(path, O_WRONLY | O_TRUNC);

	assert_true(fd >= 0);
	assert_int_equal(file_write_all(fd, p, n), 0);
	close(fd);
}

TEST(a_file_that_ends_at_any_byte_loses_only_the_last_record)
{
	char bytes[400], want[20];
	size_t n = three_records(bytes, sizeof(bytes)), one = n / 3;

	for (size_t cut = 0; cut <= n; cut++) {
		write_segment(bytes, cut);
		reopen(LIMIT);
		assert_true(!strstr(message, "damaged") == (cut % one == 0));
		assert_int_equal(add(4, 40), 0);
		snprintf(want, sizeof(want), "%s%s%s4 ", cut >= one ? "1 " : "",
			 cut >= 2 * one ? "2 " : "", cut >= n ? "3 " : "");
		assert_string_equal(drain(), want);
		three_records(bytes, sizeof(bytes));
	}
}

TEST(any_damaged_byte_loses_only_its_record)
{
	char bytes[400], bad[400], want[20];
	size_t n = three_records(bytes, sizeof(bytes)), one = n / 3;

	for (size_t at = 0; at < n; at++) {
		memcpy(bad, bytes, n);
		bad[at] = (char)(bad[at] ^ (1 << at % 8));
		write_segment(bad, n);
		reopen(LIMIT);
		snprintf(want, sizeof(want), "%s%s%s", at / one == 0 ? "" : "1 ",
			 at / one == 1 ? "" : "2 ", at / one == 2 ? "" : "3 ");
		assert_string_equal(drain(), want);
		assert_in(message, "damaged");
		assert_int_equal(status().bytes, 0);
		three_records(bytes, sizeof(bytes));
	}
}

TEST(damage_while_the_queue_is_open_is_skipped_too)
{
	int fd;

	reopen(LIMIT);
	for (unsigned i = 1; i <= 3; i++)
		assert_int_equal(add(i, 40), 0);
	fd = open(only_segment(), O_WRONLY);
	assert_int_equal(pwrite(fd, "x", 1, 50), 1);
	close(fd);
	assert_int_equal(status().bytes, 3 * (40 + PUSH_RECORD_HEAD));
	assert_string_equal(drain(), "2 3 ");
	assert_int_equal(status().bytes, 0);
	assert_int_equal(status().dropped, 10);
}

TEST(the_loss_by_damage_is_named_once_and_the_waiting_bytes_are_true)
{
	struct push_batch b;
	int fd;

	reopen(LIMIT);
	for (unsigned i = 1; i <= 4; i++)
		assert_int_equal(add(i, 40), 0);
	fd = open(only_segment(), O_WRONLY);
	assert_int_equal(pwrite(fd, "x", 1, 50), 1); /* in the first record */
	assert_int_equal(pwrite(fd, "x", 1, 2 * (40 + PUSH_RECORD_HEAD) + 50), 1); /* third */
	close(fd);
	assert_string_equal(take(0, &b), "2 ");
	assert_in(taken, ".queue are damaged and are skipped; about 20 samples are lost");
	assert_in(taken, "144 bytes of /tmp/");
	assert_int_equal(status().bytes, 2 * (40 + PUSH_RECORD_HEAD));
	assert_int_equal(status().dropped, 20);
	push_queue_remove(q, &b);
	assert_string_equal(take(0, &b), "4 ");
	/* the loss of the third record is already counted and reported */
	assert_string_equal(taken, "");
	push_queue_remove(q, &b);
	assert_int_equal(status().bytes, 0);
	assert_int_equal(status().dropped, 20);
}

TEST(a_segment_that_was_cut_short_keeps_its_first_records)
{
	reopen(LIMIT);
	for (unsigned i = 1; i <= 3; i++)
		assert_int_equal(add(i, 40), 0);
	assert_int_equal(truncate(only_segment(), 2 * (40 + PUSH_RECORD_HEAD) + 10), 0);
	assert_string_equal(drain(), "1 2 ");
	assert_int_equal(status().bytes, 0);
	assert_int_equal(status().dropped, 10);
}

TEST(a_restart_counts_what_is_damaged_and_names_the_file)
{
	char bytes[400];
	size_t n = three_records(bytes, sizeof(bytes));

	bytes[n / 3 + 40] ^= 1; /* this byte is in the payload of the second record */
	write_segment(bytes, n);
	reopen(LIMIT);
	assert_in(message, path);
	assert_in(message, "about 10 samples are lost");
	assert_int_equal(status().dropped, 10);
	assert_int_equal(status().bytes, 2 * (40 + PUSH_RECORD_HEAD));
	assert_string_equal(drain(), "1 3 ");
	assert_int_equal(status().dropped, 10); /* counted once */
}

/* ---- a folder that others change ---- */

TEST(a_deleted_folder_is_made_again_and_the_loss_is_named)
{
	reopen(LIMIT);
	for (unsigned i = 1; i <= 3; i++)
		assert_int_equal(add(i, 40), 0);
	empty_folder(dir);
	rmdir(dir);
	assert_int_equal(add(4, 40), 0);
	assert_in(message, dir);
	assert_in(message, "gpuward made it again, and 30 samples are lost");
	assert_int_equal(status().dropped, 30);
	assert_int_equal(status().bytes, 40 + PUSH_RECORD_HEAD);
	assert_int_equal(add(5, 40), 0);
	assert_string_equal(message, "");
	assert_string_equal(drain(), "4 5 ");
	reopen(LIMIT);
	assert_int_equal(add(6, 40), 0);
	assert_string_equal(drain(), "6 ");
}

TEST(a_folder_that_cannot_be_made_is_an_error_until_it_can)
{
	reopen(LIMIT);
	assert_int_equal(add(1, 40), 0);
	empty_folder(dir);
	rmdir(dir);
	assert_int_equal(file_replace(dir, "x", 1, message, sizeof(message)), 0); /* a file */
	assert_int_not_equal(add(2, 40), 0);
	assert_in(message, dir);
	assert_int_not_equal(add(3, 40), 0);
	assert_int_equal(status().bytes, 0);
	assert_int_equal(unlink(dir), 0);
	assert_int_equal(add(4, 40), 0);
	assert_string_equal(drain(), "4 ");
}

TEST(a_deleted_segment_is_named_and_a_new_one_begins)
{
	reopen(LIMIT);
	assert_int_equal(add(1, 40), 0);
	assert_int_equal(unlink(only_segment()), 0);
	assert_int_equal(add(2, 40), 0);
	assert_in(message, "was deleted; 10 samples are lost");
	assert_string_equal(drain(), "2 ");
}

TEST(only_regular_files_of_a_sane_size_are_read)
{
	static const char *const name[] = { "0000000000000007", "0000000000000008",
					    "0000000000000009" };
	char other[3][128];
	int fd;

	reopen(LIMIT);
	assert_int_equal(add(1, 40), 0);
	for (unsigned i = 0; i < 3; i++)
		snprintf(other[i], sizeof(other[i]), "%s/%s.queue", dir, name[i]);
	assert_int_equal(mkfifo(other[0], 0600), 0);
	assert_int_equal(symlink("/dev/zero", other[1]), 0);
	fd = open(other[2], O_WRONLY | O_CREAT, 0600);
	assert_int_equal(ftruncate(fd, INT64_C(1) << 40), 0);
	close(fd);
	reopen(LIMIT);
	for (unsigned i = 0; i < 3; i++)
		assert_in(message, other[i]);
	assert_in(message, "not a file of the push queue (it is not a regular file)");
	assert_in(message, "(it is too large) and is ignored; remove it");
	assert_int_equal(add(2, 40), 0);
	assert_string_equal(drain(), "1 2 ");
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(access(other[i], F_OK), 0); /* still there */
}

TEST(a_state_that_is_no_regular_file_is_refused)
{
	char state_path[128];

	reopen(LIMIT);
	push_queue_close(q);
	q = NULL;
	snprintf(state_path, sizeof(state_path), "%s/state", dir);
	assert_int_equal(unlink(state_path), 0);
	assert_int_equal(mkfifo(state_path, 0600), 0);
	assert_int_not_equal(push_queue_open(dir, LIMIT, &q, message, sizeof(message)), 0);
	q = NULL;
	assert_in(message, "/state is not a regular file; remove it");
}

TEST(a_damaged_state_sends_again_and_loses_nothing)
{
	struct push_batch b;
	char copies[128];
	struct stat st;

	for (unsigned at = 0; at < 80; at++) {
		int fd;

		each_setup(NULL);
		reopen(LIMIT);
		for (unsigned i = 1; i <= 3; i++)
			assert_int_equal(add(i, 40), 0);
		for (unsigned i = 1; i <= 2; i++) {
			take(0, &b);
			push_queue_remove(q, &b);
		}
		push_queue_close(q);
		q = NULL;
		snprintf(copies, sizeof(copies), "%s/state", dir);
		assert_int_equal(stat(copies, &st), 0);
		assert_int_equal(st.st_size, 80);
		fd = open(copies, O_WRONLY);
		assert_int_equal(pwrite(fd, "\x5a", 1, at), 1);
		close(fd);
		reopen(LIMIT);
		/* The damaged copy is ignored: at worst the last removal is forgotten. */
		assert_string_equal(drain(), at < 40 ? "2 3 " : "3 ");
		push_queue_close(q);
		q = NULL;
	}
}

TEST(files_of_others_in_the_folder_are_left_alone)
{
	char other[128];
	struct stat st;

	reopen(LIMIT);
	snprintf(other, sizeof(other), "%s/notes.txt", dir);
	assert_int_equal(file_replace(other, "x", 1, message, sizeof(message)), 0);
	reopen(LIMIT);
	assert_int_equal(add(1, 10), 0);
	assert_string_equal(drain(), "1 ");
	assert_int_equal(stat(other, &st), 0);
	assert_int_equal(stat(dir, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
}

TEST(an_unusable_folder_is_named)
{
	assert_int_not_equal(
		push_queue_open("/proc/1/push", LIMIT, &q, message, sizeof(message)), 0);
	assert_in(message, "/proc/1/push");
}

TEST_MAIN(setup, teardown)
