#include "base/buf.h"

#include "test.h"

#include <gpuward.h>

static struct buf b;

TEST(an_empty_buffer_is_an_empty_text)
{
	buf_init(&b, 100);
	assert_string_equal(b.p, "");
	buf_clear(&b);
	buf_add(&b, NULL, 0);
	assert_string_equal(b.p, "");
	assert_int_equal(b.err, 0);
	buf_done(&b);
	assert_string_equal(b.p, "");
}

TEST(adds_everything_in_order)
{
	buf_init(&b, 1 << 20);
	buf_adds(&b, "one");
	buf_addc(&b, ' ');
	buf_add(&b, "two three", 3);
	buf_addf(&b, " %d %s", 3, "four");
	assert_string_equal(b.p, "one two 3 four");
	assert_int_equal(b.len, strlen(b.p));
	for (int i = 0; i < 10000; i++)
		buf_addf(&b, "%04d", i);
	assert_int_equal(b.len, 14 + 40000);
	assert_string_equal(b.p + b.len - 4, "9999");
	assert_int_equal(b.err, 0);
	buf_done(&b);
}

TEST(never_exceeds_its_maximum)
{
	buf_init(&b, 8);
	buf_adds(&b, "1234567");
	assert_int_equal(b.err, 0);
	assert_true(b.cap <= 8);
	buf_addc(&b, '8');
	assert_int_equal(b.err, -GW_E_SIZE);
	assert_string_equal(b.p, "1234567");
	buf_done(&b);
	buf_init(&b, 0);
	buf_addc(&b, 'x');
	assert_int_equal(b.err, -GW_E_SIZE);
	buf_done(&b);
}

TEST(ignores_what_comes_after_the_first_failure)
{
	buf_init(&b, 8);
	buf_adds(&b, "123456789");
	buf_adds(&b, "a");
	buf_addf(&b, "%d", 1);
	assert_string_equal(b.p, "");
	assert_int_equal(b.err, -GW_E_SIZE);
	buf_clear(&b);
	assert_int_equal(b.err, 0);
	buf_adds(&b, "a");
	assert_string_equal(b.p, "a");
	buf_done(&b);
}

TEST(a_fixed_buffer_stays_in_the_callers_memory)
{
	char mem[6] = "junk";

	buf_init_fixed(&b, mem, sizeof(mem));
	assert_string_equal(mem, "");
	buf_addf(&b, "%s", "12345");
	assert_ptr_equal(b.p, mem);
	assert_string_equal(mem, "12345");
	assert_int_equal(b.err, 0);
	buf_addf(&b, "%s", "6");
	assert_int_equal(b.err, -GW_E_SIZE);
	buf_done(&b);
	assert_string_equal(mem, "12345");
}

TEST_MAIN(NULL, NULL)
