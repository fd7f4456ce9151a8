#include "serve/stream.h"
#include "serve/view.h"

#include "test.h"

#include <gpuward.h>

static unsigned woken;

static void wake(struct follower *f)
{
	woken++;
}

static struct stream *new_stream(size_t bytes)
{
	struct stream *s;

	assert_int_equal(stream_new(bytes, &s), 0);
	woken = 0;
	return s;
}

static void push(struct stream *s, enum stream_topic topic, uint64_t id, const char *json)
{
	stream_push(s, topic, id ? "event" : "tick", id, json, strlen(json));
}

/* Reads everything in pieces of n bytes. */
static const char *read_all(struct follower *f, size_t n)
{
	static char text[65536];
	size_t used = 0;
	long got;

	while ((got = follower_read(f, text + used, n)) > 0) {
		assert_true((size_t)got <= n);
		used += (size_t)got;
		assert_true(used + n < sizeof(text));
	}
	assert_int_equal(got, 0);
	text[used] = '\0';
	return text;
}

TEST(a_message_has_id_event_and_data)
{
	struct stream *s = new_stream(1000);
	struct follower f;

	follower_start(&f, s, UINT64_MAX, STREAM_EVENT | STREAM_TICK, wake);
	assert_string_equal(read_all(&f, 100), "");
	push(s, STREAM_EVENT, 7, "{\"a\":1}\n");
	assert_int_equal(woken, 1);
	assert_string_equal(read_all(&f, 100), "id: 7\nevent: event\ndata: {\"a\":1}\n\n");
	push(s, STREAM_TICK, 0, "{}");
	assert_string_equal(read_all(&f, 100), "event: tick\ndata: {}\n\n");
	follower_stop(&f);
	stream_free(s);
}

TEST(pieces_of_any_size_make_the_same_text)
{
	struct stream *s = new_stream(10000);

	for (unsigned i = 1; i <= 20; i++)
		push(s, STREAM_EVENT, i, "{\"some\":\"thing\"}");
	for (size_t n = 1; n < 200; n += 13) {
		struct follower f;
		const char *text;

		follower_start(&f, s, 10, STREAM_EVENT, wake);
		text = read_all(&f, n);
		assert_int_equal(strlen(text), 10 * strlen("id: 11\nevent: event\ndata: "
							   "{\"some\":\"thing\"}\n\n"));
		assert_true(strncmp(text, "id: 11\n", 7) == 0);
		follower_stop(&f);
	}
	stream_free(s);
}

TEST(a_stream_begins_with_the_next_tick_and_only_the_latest_is_kept)
{
	struct stream *s = new_stream(1000);
	struct follower f;

	push(s, STREAM_TICK, 0, "1");
	push(s, STREAM_TICK, 0, "2");
	follower_start(&f, s, UINT64_MAX, STREAM_TICK, wake);
	/* tick 2 is not sent, because it may be minutes old */
	assert_string_equal(read_all(&f, 100), "");
	push(s, STREAM_TICK, 0, "3");
	push(s, STREAM_TICK, 0, "4");
	assert_string_equal(read_all(&f, 100), "event: tick\ndata: 4\n\n");
	follower_stop(&f);
	stream_free(s);
}

TEST(topics_without_a_subscription_neither_wake_nor_send)
{
	struct stream *s = new_stream(200);
	struct follower f;

	follower_start(&f, s, UINT64_MAX, STREAM_WINDOW, wake);
	assert_string_equal(read_all(&f, 100), "");
	for (unsigned i = 1; i < 100; i++)
		push(s, STREAM_EVENT, i, "\"much of another topic\"");
	assert_int_equal(woken, 0);
	push(s, STREAM_WINDOW, 100, "1");
	assert_int_equal(woken, 1);
	assert_string_equal(read_all(&f, 100), "id: 100\nevent: event\ndata: 1\n\n");
	follower_stop(&f);
	stream_free(s);
}

TEST(a_client_that_lags_more_than_the_ring_gets_a_gap_event)
{
	struct stream *s = new_stream(200);
	struct follower f, late;
	const char *text;

	follower_start(&f, s, UINT64_MAX, STREAM_EVENT, wake);
	for (unsigned i = 1; i <= 50; i++)
		push(s, STREAM_EVENT, i, "\"0123456789\"");
	text = read_all(&f, 100);
	assert_true(strncmp(text, "event: gap\ndata: {\"lost_until_id\":", 34) == 0);
	assert_null(strstr(text, "id: 1\n"));
	assert_in(text, "id: 50\n");
	assert_string_equal(read_all(&f, 100), "");
	/* A client that comes back late also gets a gap event; a client that was up to date
	 * does not. */
	follower_start(&late, s, 3, STREAM_EVENT, wake);
	assert_in(read_all(&late, 100), "event: gap");
	follower_stop(&late);
	follower_start(&late, s, 50, STREAM_EVENT, wake);
	assert_string_equal(read_all(&late, 100), "");
	follower_stop(&late);
	follower_stop(&f);
	stream_free(s);
}

TEST(a_message_that_is_being_sent_outlives_the_ring)
{
	struct stream *s = new_stream(100);
	struct follower f;
	char piece[16];

	follower_start(&f, s, UINT64_MAX, STREAM_EVENT, wake);
	push(s, STREAM_EVENT, 1, "\"first\"");
	assert_int_equal(follower_read(&f, piece, 10), 10);
	for (unsigned i = 2; i <= 20; i++)
		push(s, STREAM_EVENT, i, "\"later\"");
	assert_true(strncmp(read_all(&f, 7), "t: event\ndata: \"first\"\n\nevent: gap\n", 30) ==
		    0);
	follower_stop(&f);
	stream_free(s);
}

TEST(a_message_larger_than_the_ring_is_still_sent)
{
	struct stream *s = new_stream(10);
	struct follower f;

	follower_start(&f, s, UINT64_MAX, STREAM_EVENT, wake);
	push(s, STREAM_EVENT, 1, "\"much more than ten bytes\"");
	assert_in(read_all(&f, 100), "much more");
	follower_stop(&f);
	stream_free(s);
}

TEST(a_message_that_is_too_long_is_dropped)
{
	struct stream *s = new_stream(1000);
	char *much = malloc(VIEW_DOCUMENT_MAX + 2);
	struct follower f, late;

	assert_non_null(much);
	memset(much, '1', VIEW_DOCUMENT_MAX + 1);
	much[VIEW_DOCUMENT_MAX + 1] = '\0';
	follower_start(&f, s, UINT64_MAX, STREAM_EVENT | STREAM_WINDOW, wake);
	push(s, STREAM_EVENT, 1, "\"before\"");
	push(s, STREAM_WINDOW, 2, much);
	push(s, STREAM_EVENT, 3, "\"after\"");
	follower_start(&late, s, 0, STREAM_EVENT | STREAM_WINDOW, wake);
	assert_string_equal(read_all(&f, 100), "id: 1\nevent: event\ndata: \"before\"\n\n"
					       "id: 3\nevent: event\ndata: \"after\"\n\n");
	assert_in(read_all(&late, 100), "id: 1\n");
	follower_stop(&late);
	follower_stop(&f);
	stream_free(s);
	free(much);
}

TEST(a_heartbeat_goes_only_to_waiting_clients)
{
	struct stream *s = new_stream(1000);
	struct follower f;

	follower_start(&f, s, UINT64_MAX, STREAM_EVENT, wake);
	follower_beat(&f); /* the follower has not read yet, so it need not be woken */
	assert_int_equal(woken, 0);
	assert_string_equal(read_all(&f, 100), "");
	follower_beat(&f);
	assert_int_equal(woken, 1);
	follower_beat(&f);
	assert_int_equal(woken, 1);
	assert_string_equal(read_all(&f, 100), ":\n\n");
	follower_stop(&f);
	stream_free(s);
}

TEST(the_end_of_a_stream_ends_all_clients)
{
	struct stream *s = new_stream(1000);
	struct follower waits, busy;
	char piece[4];

	follower_start(&waits, s, UINT64_MAX, STREAM_EVENT, wake);
	assert_string_equal(read_all(&waits, 100), "");
	push(s, STREAM_GUARD, 1, "1");
	follower_start(&busy, s, 0, STREAM_GUARD, wake);
	assert_int_equal(follower_read(&busy, piece, 4), 4);
	stream_free(s);
	assert_int_equal(woken, 1);
	assert_int_equal(follower_read(&waits, piece, 4), -1);
	assert_int_equal(follower_read(&busy, piece, 4), -1);
	follower_stop(&waits);
	follower_stop(&busy);
}

TEST_MAIN(NULL, NULL)
