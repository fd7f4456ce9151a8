#include "daemon/bus_message.h"

#include "test.h"

#include <gpuward.h>

static const struct bus_method lock = { "org.freedesktop.login1", "/org/freedesktop/login1",
					"org.freedesktop.login1.Manager", "Inhibit" };
static const char *const lock_args[] = { "sleep", "gpuward", "why", "delay", NULL };

/* PrepareForSleep(true), from :1.2, in both byte orders. */
static const char little[] =
	"l\004\001\001\004\000\000\000\011\000\000\000u\000\000\000\001\001o\000\027\000\000"
	"\000"
	"/org/freedesktop/login1\000"
	"\002\001s\000\036\000\000\000org.freedesktop."
	"login1.Manager\000\000\003\001s\000\017\000\000\000"
	"PrepareForSleep\000\010\001g\000\001b\000\000"
	"\007\001s\000\004\000\000\000:1.2\000\000\000\000\001\000\000\000";
static const char big[] = "B\004\001\001\000\000\000\004\000\000\000\011\000\000\000u\001\001o"
			  "\000\000\000\000\027"
			  "/org/freedesktop/login1\000"
			  "\002\001s\000\000\000\000\036org.freedesktop."
			  "login1.Manager\000\000\003\001s\000\000\000\000\017"
			  "PrepareForSleep\000\010\001g\000\001b\000\000"
			  "\007\001s\000\000\000\000\004:1.2\000\000\000\000\000\000\000\001";

TEST(a_signal_is_read_in_either_byte_order)
{
	const struct {
		const char *p;
		size_t size;
	} of[] = { { little, sizeof(little) - 1 }, { big, sizeof(big) - 1 } };

	for (unsigned i = 0; i < 2; i++) {
		struct bus_message m;
		bool going = false;

		assert_int_equal(bus_read((const uint8_t *)of[i].p, of[i].size, &m),
				 of[i].size);
		assert_int_equal(m.type, BUS_SIGNAL);
		assert_int_equal(m.serial, 9);
		assert_string_equal(m.member, "PrepareForSleep");
		assert_string_equal(m.interface, "org.freedesktop.login1.Manager");
		assert_string_equal(m.sender, ":1.2");
		assert_null(m.destination);
		assert_int_equal(bus_read_bool(&m, &going), 0);
		assert_true(going);
	}
}

TEST(an_incomplete_message_is_waited_for)
{
	struct bus_message m;

	for (size_t n = 0; n < sizeof(little) - 1; n++)
		assert_int_equal(bus_read((const uint8_t *)little, n, &m), 0);
}

TEST(a_written_call_reads_back)
{
	struct bus_message m;
	char text[1024];
	struct buf out;
	long n;

	buf_init_fixed(&out, text, sizeof(text));
	buf_adds(&out, "xyz"); /* bytes before the message must not shift its alignment */
	bus_write(&out, 7, &lock, lock_args);
	bus_write(&out, 8, &lock, lock_args);
	assert_int_equal(out.err, 0);
	n = bus_read((const uint8_t *)text + 3, out.len - 3, &m);
	assert_int_equal(n * 2, out.len - 3);
	assert_int_equal(m.type, BUS_CALL);
	assert_int_equal(m.serial, 7);
	assert_string_equal(m.destination, lock.destination);
	assert_string_equal(m.path, lock.path);
	assert_string_equal(m.interface, lock.interface);
	assert_string_equal(m.member, lock.member);
	assert_string_equal(m.signature, "ssss");
	assert_string_equal((const char *)m.body + 4, "sleep");
	assert_int_equal(m.body_size, (4 + 6 + 2) + (4 + 8) + (4 + 4) + (4 + 6));
	assert_int_equal(bus_read((const uint8_t *)text + 3 + n, out.len - 3 - (size_t)n, &m),
			 n);
	assert_int_equal(m.serial, 8);
}

TEST(a_call_that_does_not_fit_is_an_error)
{
	char text[64];
	struct buf out;

	buf_init_fixed(&out, text, sizeof(text));
	bus_write(&out, 7, &lock, lock_args);
	assert_int_equal(out.err, -GW_E_SIZE);
}

/* Changes each byte in turn: the message is read within its bounds or refused. */
TEST(a_wrong_byte_is_refused_or_harmless)
{
	size_t size = sizeof(little) - 1;

	for (size_t i = 0; i < size; i++)
		for (int value = 0; value < 256; value++) {
			uint8_t *copy =
				malloc(size); /* a sanitizer detects reads past the end */
			struct bus_message m;
			bool going;
			long n;

			assert_non_null(copy);
			memcpy(copy, little, size);
			copy[i] = (uint8_t)value;
			n = bus_read(copy, size, &m);
			assert_true(n <= (long)size && n >= -GW_E_PARSE);
			if (n > 0)
				(void)bus_read_bool(&m, &going);
			free(copy);
		}
}

TEST(a_boolean_that_is_neither_0_nor_1_is_refused)
{
	struct bus_message m = { .signature = "b",
				 .body = (const uint8_t *)"\2\0\0\0",
				 .body_size = 4 };
	bool going;

	assert_int_equal(bus_read_bool(&m, &going), -GW_E_PARSE);
	m.body = (const uint8_t *)"\1\0\0\0";
	m.body_size = 3;
	assert_int_equal(bus_read_bool(&m, &going), -GW_E_PARSE);
	m.body_size = 4;
	m.signature = "u";
	assert_int_equal(bus_read_bool(&m, &going), -GW_E_PARSE);
	m.signature = NULL;
	assert_int_equal(bus_read_bool(&m, &going), -GW_E_PARSE);
}

TEST(a_call_with_numbers_lists_and_an_empty_dictionary_is_aligned_as_the_protocol_requires)
{
	static const struct bus_method m = { "a.b", "/a", "a.b", "Notify" };
	static const char *const list[] = { "x", "yz", NULL };
	char text[400];
	struct bus_message got;
	struct bus_call c;
	struct buf out;

	buf_init_fixed(&out, text, sizeof(text));
	bus_call_begin(&c, &out, 5, &m, "suasa{sv}i");
	bus_put_text(&c, "t");
	bus_put_u32(&c, 7);
	bus_put_texts(&c, list);
	bus_put_no_pairs(&c);
	bus_put_u32(&c, UINT32_MAX);
	bus_call_end(&c);
	assert_int_equal(bus_read((const uint8_t *)text, out.len, &got), out.len);
	assert_string_equal(got.signature, "suasa{sv}i");
	assert_int_equal(got.body_size % 4, 0);
	assert_memory_equal(got.body, "\1\0\0\0t\0\0\0\7\0\0\0", 12);
	/* the size of the list does not include the padding before the next value */
	assert_int_equal(got.body[12], 15);
	assert_memory_equal(got.body + got.body_size - 4, "\377\377\377\377", 4);
}

TEST(a_number_and_a_text_are_read_and_a_truncated_body_is_refused)
{
	static const uint8_t body[] = { 9, 0, 0, 0, 4, 0, 0, 0, 'h', 'o', 'l', 'd', 0 };
	struct bus_message m = { .signature = "us", .body = body, .body_size = sizeof(body) };
	const char *text;
	uint32_t n;

	assert_int_equal(bus_read_u32_text(&m, &n, &text), 0);
	assert_int_equal(n, 9);
	assert_string_equal(text, "hold");
	for (m.body_size = 0; m.body_size < sizeof(body); m.body_size++)
		assert_int_equal(bus_read_u32_text(&m, &n, &text), -GW_E_PARSE);
	m.signature = "u";
	assert_int_equal(bus_read_u32(&m, &n), 0);
	m.body_size = 3;
	assert_int_equal(bus_read_u32(&m, &n), -GW_E_PARSE);
}

TEST_MAIN(NULL, NULL)
