/* Tests which games are registered. Each test decides whether a process can be watched; the
 * fake store only counts its documents. */
#include "daemon/games.h"

#include "daemon/journal_record.h"
#include "daemon/peer_process.h"

#include "base/buf.h"

#include <gpuward.h>

#include <stdio.h>
#include <unistd.h>

#include "test.h"

static struct {
	int watch_error;
	int writer; /* write end of the pipe that represents the latest process */
	int documents;
	unsigned count; /* number of reported games */
	int64_t latest; /* the reported game */
} seen;

static struct loop *loop;
static struct games *games;
static bool kept;

int peer_process_open(struct proc_id id, int *ret_fd)
{
	int fds[2];

	if (seen.watch_error)
		return seen.watch_error;
	assert_int_equal(pipe(fds), 0);
	*ret_fd = fds[0];
	seen.writer = fds[1];
	return 0;
}

int store_put_document(struct store *s, const char *kind, const char *id, const char *json,
		       size_t size)
{
	seen.documents++;
	return 0;
}

void store_delete_document(struct store *s, const char *kind, const char *id)
{
	seen.documents--;
}

int store_each_document(struct store *s, const char *kind, unsigned max,
			void (*each)(void *arg, const char *id, const char *json), void *arg)
{
	return 0;
}

void store_commit(struct store *s)
{
}

void guard_game_write(struct buf *out, const struct guard_game_record *r)
{
	buf_adds(out, "{}");
}

int guard_game_read(const char *json, struct guard_game_record *ret)
{
	return -GW_E_ARG;
}

static void changed(void *arg, unsigned count, int64_t latest)
{
	seen.count = count;
	seen.latest = latest;
}

static int begin(int64_t pid, const char *who)
{
	return games_begin(games, pid, 1, UINT64_MAX, 1000, who, 5, &kept);
}

TEST(a_registration_that_fails_leaves_the_earlier_one)
{
	int first = -1;

	assert_int_equal(loop_new(&loop), 0);
	assert_int_equal(games_new(loop, NULL, changed, NULL, 0, &games), 0);
	for (int pid = 1; pid <= GUARD_VIEW_GAMES; pid++) {
		assert_int_equal(begin(pid, "first"), 0);
		if (pid > 1)
			close(seen.writer);
		else
			first = seen.writer;
	}
	assert_int_equal(begin(GUARD_VIEW_GAMES + 1, "one too many"), -GW_E_SIZE);
	seen.watch_error = -GW_E_NOENT;
	assert_int_equal(begin(1, "second"), -GW_E_ARG);
	assert_int_equal(seen.count, GUARD_VIEW_GAMES);
	/* of the games that came at the same time, the first is reported */
	assert_int_equal(seen.latest, 1);
	assert_int_equal(games_list(games)[0].pid, 1);
	assert_string_equal(games_list(games)[0].who, "first");
	seen.watch_error = 0;
	assert_int_equal(begin(1, "second"), 0); /* replaces pid 1, so it needs no free slot */
	assert_string_equal(games_list(games)[0].who, "second");
	close(first); /* only the new process is watched */
	close(seen.writer);
	games_free(games);
	loop_free(loop);
}

TEST_MAIN(NULL, NULL)
