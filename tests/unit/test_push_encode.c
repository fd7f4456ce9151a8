/* Tests the records of the push: Snappy, protobuf, labels and staleness markers. */
#include "daemon/push_encode.h"
#include "daemon/push_http.h"
#include "daemon/push.h"
#include "daemon/push_wire.h"

#include "seed.h"

#include <math.h>
#include <zlib.h>

/* ---- Snappy ---- */

/* Decodes Snappy elements without the length, as format_description.txt of Snappy describes.
 * The test fails if the format does not allow an element. */
static size_t unpack(const char *in, size_t n, char *out, size_t room)
{
	const unsigned char *p = (const unsigned char *)in, *end = p + n;
	size_t at = 0;

	while (p < end) {
		unsigned tag = *p++;
		size_t len = tag >> 2, distance = 0;

		if ((tag & 3) == 0) {
			unsigned bytes = len < 60 ? 0 : (unsigned)len - 59;

			assert_true(end - p >= bytes);
			if (bytes)
				len = 0;
			for (unsigned i = 0; i < bytes; i++)
				len |= (size_t)*p++ << 8 * i;
			len++;
			assert_true((size_t)(end - p) >= len && at + len <= room);
			memcpy(out + at, p, len);
			p += len;
			at += len;
			continue;
		}
		assert_int_not_equal(tag & 3, 3); /* the encoder needs no four-byte distance */
		assert_true(end - p >= (tag & 3));
		if ((tag & 3) == 1) {
			len = 4 + (tag >> 2 & 7);
			distance = (size_t)(tag >> 5) << 8 | p[0];
		} else {
			len++;
			distance = p[0] | (size_t)p[1] << 8;
		}
		p += tag & 3;
		assert_true(distance >= 1 && distance <= at && at + len <= room);
		for (; len > 0; len--, at++)
			out[at] = out[at - distance];
	}
	return at;
}

#define DATA_MAX 300000

static void check_round_trip(const char *p, size_t n)
{
	static char back[DATA_MAX];
	struct buf packed;

	buf_init(&packed, DATA_MAX * 2);
	push_snappy_add(&packed, p, n);
	assert_int_equal(packed.err, 0);
	assert_true(packed.len <= n + n / 6 + 32);
	assert_int_equal(unpack(packed.p, packed.len, back, sizeof(back)), n);
	assert_memory_equal(back, p, n);
	buf_done(&packed);
}

TEST(snappy_gives_back_any_data)
{
	static const size_t sizes[] = { 0,   1,   3,   4,     5,     59,    60,     61,      62,
					256, 257, 258, 65535, 65536, 65537, 131072, DATA_MAX };
	static char p[DATA_MAX];
	uint64_t seed = seed_of_run();

	for (unsigned kind = 0; kind < 6; kind++)
		for (size_t s = 0; s < COUNT_OF(sizes); s++) {
			size_t period = 1 + next(&seed) % 3000;

			for (size_t i = 0; i < sizes[s]; i++)
				p[i] = kind == 0   ? 0
				       : kind == 1 ? (char)next(&seed)
				       : kind == 2 ? (char)(next(&seed) % 2)
				       : kind == 3 ? (char)(i % period * 7)
				       /* long matches with single differences */
				       : kind == 4 ? (char)(next(&seed) % 61 == 0)
						   : (i >= period ? p[i - period]
								  : (char)next(&seed));
			check_round_trip(p, sizes[s]);
		}
}

TEST(snappy_copies_of_every_length_and_distance_are_decoded)
{
	static char p[70000];
	uint64_t seed = seed_of_run();

	for (size_t i = 0; i < sizeof(p); i++)
		p[i] = (char)next(&seed);
	for (size_t len = 1; len < 200; len++)
		for (unsigned k = 0; k < 6; k++) {
			static const size_t distances[] = { 4, 11, 2047, 2048, 2049, 60000 };
			size_t n = distances[k] + len + 300;

			if (len > distances[k])
				continue;
			memcpy(p + distances[k], p, len);
			check_round_trip(p, n);
		}
}

TEST(the_elements_of_two_calls_are_those_of_the_joined_data)
{
	static const char one[] = "aaaaaaaaaaaaaaaaaaaabcdefgh", two[] = "abcdefghabcdefghabcd";
	char back[200];
	struct buf packed;

	buf_init(&packed, 1000);
	push_snappy_add(&packed, one, sizeof(one));
	push_snappy_add(&packed, two, sizeof(two));
	assert_int_equal(unpack(packed.p, packed.len, back, sizeof(back)),
			 sizeof(one) + sizeof(two));
	assert_memory_equal(back, one, sizeof(one));
	assert_memory_equal(back + sizeof(one), two, sizeof(two));
	buf_done(&packed);
}

/* ---- protobuf ---- */

TEST(protobuf_writes_the_bytes_of_the_specification)
{
	struct buf b;
	size_t outer;

	buf_init(&b, 1000);
	protobuf_uint(&b, 1, 150);
	assert_memory_equal(b.p, "\x08\x96\x01", 3);
	buf_clear(&b);
	protobuf_string(&b, 2, "testing");
	assert_memory_equal(b.p, "\x12\x07testing", 9);
	buf_clear(&b);
	outer = protobuf_open(&b, 3);
	protobuf_uint(&b, 1, 150);
	protobuf_close(&b, outer);
	assert_memory_equal(b.p, "\x1a\x03\x08\x96\x01", 5);
	assert_int_equal(b.len, 5);
	buf_clear(&b);
	protobuf_double(&b, 1, 1.0);
	assert_memory_equal(b.p, "\x09\0\0\0\0\0\0\xf0\x3f", 9);
	buf_done(&b);
}

TEST(a_message_of_any_length_gets_its_length_in_front)
{
	static const size_t sizes[] = { 0, 127, 128, 16383, 16384, 20000 };
	struct protobuf_field f;
	struct buf b;

	buf_init(&b, 100000);
	for (size_t s = 0; s < COUNT_OF(sizes); s++) {
		const char *p;
		size_t place;

		buf_clear(&b);
		protobuf_uint(&b, 7, 9);
		place = protobuf_open(&b, 1);
		for (size_t i = 0; i < sizes[s]; i++)
			buf_addc(&b, (char)i);
		protobuf_close(&b, place);
		p = b.p;
		assert_true(protobuf_next(&p, b.p + b.len, &f) && f.number == 7 && f.v == 9);
		assert_true(protobuf_next(&p, b.p + b.len, &f));
		assert_int_equal(f.n, sizes[s]);
		for (size_t i = 0; i < f.n; i++)
			assert_int_equal(f.p[i], (char)i);
		assert_false(protobuf_next(&p, b.p + b.len, &f));
	}
	buf_done(&b);
}

/* ---- records ---- */

static struct push_identity id = { .job = "gpuward",
				   .instance = "node7",
				   .host = "node7.example",
				   .label = { { "cluster", "west" }, { "gpu", "external" } },
				   .labels = 2 };
static const struct metric power = { .name = "gpuward_gpu_power_watts",
				     .help = "Power",
				     .labels = "uuid,gpu",
				     .type = METRIC_GAUGE };
static const struct metric energy = { .name = "gpuward_energy_joules",
				      .help = "Energy",
				      .labels = "uuid,gpu",
				      .type = METRIC_COUNTER };

/* Writes a record of remote write as lines: time, then labels and value of each series. */
static const char *lines_of(const struct push_record *r)
{
	static char raw[20000], text[20000];
	const char *p = raw, *end = raw + unpack(r->p, r->n, raw, sizeof(raw));
	struct protobuf_field f, part, x;
	size_t len = 0;

	text[0] = '\0';
	assert_int_equal(end - raw, r->raw_bytes);
	while (protobuf_next(&p, end, &f)) {
		assert_int_equal(f.number, 1);
		for (const char *q = f.p; protobuf_next(&q, f.p + f.n, &part);) {
			const char *at = part.p, *stop = part.p + part.n;

			if (part.number == 1) {
				assert_true(protobuf_next(&at, stop, &x) && x.number == 1);
				len += (size_t)snprintf(text + len, sizeof(text) - len,
							"%.*s=", (int)x.n, x.p);
				assert_true(protobuf_next(&at, stop, &x) && x.number == 2);
				len += (size_t)snprintf(text + len, sizeof(text) - len, "%.*s ",
							(int)x.n, x.p);
			} else {
				uint64_t bits;
				double v;

				assert_int_equal(part.number, 2);
				assert_int_equal(*at, 9); /* field 1, eight bytes */
				memcpy(&bits, at + 1, 8);
				memcpy(&v, &bits, 8);
				at += 9;
				assert_true(protobuf_next(&at, stop, &x) && x.number == 2);
				assert_true(x.v == (uint64_t)r->time_ms);
				if (bits == UINT64_C(0x7ff0000000000002))
					len += (size_t)snprintf(text + len, sizeof(text) - len,
								"STALE\n");
				else
					len += (size_t)snprintf(text + len, sizeof(text) - len,
								"%g\n", v);
			}
		}
	}
	assert_ptr_equal(p, end);
	return text;
}

TEST(a_record_has_sorted_labels_and_marks_what_disappeared)
{
	struct push_encoder *e;
	struct push_record r;

	assert_int_equal(push_encoder_new(PUSH_REMOTE_WRITE, &id, 1, &e), 0);
	push_encoder_begin(e, 1000);
	push_encoder_sample(e, &power, "uuid=\"U\",gpu=\"0\"", NULL, 12.5);
	push_encoder_sample(e, &power, "uuid=\"U\",gpu=\"0\"", NULL, 13); /* ignored */
	push_encoder_sample(e, &energy, "uuid=\"U\",empty=\"\"",
			    "job=\"a \\\"b\\\" \\\\ \\n, c\"", 7);
	assert_int_equal(push_encoder_end(e, &r), 0);
	assert_int_equal(r.samples, 2);
	assert_string_equal(lines_of(&r),
			    "__name__=gpuward_gpu_power_watts cluster=west gpu=0 "
			    "instance=node7 job=gpuward uuid=U 12.5\n"
			    "__name__=gpuward_energy_joules_total cluster=west "
			    "exported_job=a \"b\" \\ \n, c gpu=external instance=node7 "
			    "job=gpuward uuid=U 7\n");

	push_encoder_begin(e, 2000);
	push_encoder_sample(e, &power, "uuid=\"U\",gpu=\"0\"", NULL, 14);
	assert_int_equal(push_encoder_end(e, &r), 0);
	assert_in(lines_of(&r), "uuid=U 14\n");
	assert_in(lines_of(&r), "gpuward_energy_joules_total");
	assert_in(lines_of(&r), "uuid=U STALE\n");
	assert_int_equal(r.samples, 2);

	/* The marker is written once. At the end of the service everything is stale. */
	push_encoder_begin(e, 3000);
	assert_int_equal(push_encoder_end(e, &r), 0);
	assert_int_equal(r.samples, 1);
	assert_in(lines_of(&r), "gpu=0 instance=node7 job=gpuward uuid=U STALE\n");
	push_encoder_free(e);
}

TEST(a_page_of_thousands_of_series_loses_none)
{
	struct push_encoder *e;
	struct push_record r;
	char labels[64];

	assert_int_equal(push_encoder_new(PUSH_REMOTE_WRITE, &id, 1, &e), 0);
	for (unsigned round = 0; round < 3; round++) {
		push_encoder_begin(e, 1000 + round);
		for (unsigned i = 0; i < 5000; i++) {
			snprintf(labels, sizeof(labels), "n=\"%u\"", i + 1000 * round);
			push_encoder_sample(e, &power, labels, NULL, i);
		}
		assert_int_equal(push_encoder_end(e, &r), 0);
		assert_int_equal(r.samples, round ? 6000 : 5000);
	}
	push_encoder_free(e);
}

TEST(hostile_label_text_stays_within_its_memory)
{
	static const char *const texts[] = {
		"a", "a=", "a=\"", "a=\"\\", "a=\"x\",", "=\"\"", "a=\"\\\\\\\"\\n\",b=\""
	};
	struct push_encoder *e;
	struct push_record r;
	struct labels l;

	assert_int_equal(push_encoder_new(PUSH_OTLP, &id, 1, &e), 0);
	push_encoder_begin(e, 1);
	for (size_t i = 0; i < COUNT_OF(texts); i++)
		push_encoder_sample(e, &power, texts[i], texts[i], 1);
	labels_clear(&l);
	for (unsigned i = 0; i < 100; i++)
		labels_add(&l, i % 2 ? "name" : "n", "\"\\\n\xff long and hostile \"");
	push_encoder_sample(e, &power, l.text, l.text, 1);
	assert_int_equal(push_encoder_end(e, &r), 0);
	push_encoder_free(e);
}

/* Returns field `number` of message m; the field is a message, too. */
static struct protobuf_field inside(struct protobuf_field m, unsigned number)
{
	struct protobuf_field f;

	for (const char *p = m.p; protobuf_next(&p, m.p + m.n, &f);)
		if (f.number == number)
			return f;
	fail_msg("field %u is missing", number);
	return m;
}

TEST(otlp_has_gauges_and_cumulative_monotonic_sums)
{
	static char raw[20000];
	struct protobuf_field m = { .p = raw }, metric, point;
	struct push_encoder *e;
	struct push_record r;
	z_stream z = { .next_out = (Bytef *)raw, .avail_out = sizeof(raw) };

	assert_int_equal(push_encoder_new(PUSH_OTLP, &id, 123456789, &e), 0);
	push_encoder_begin(e, 5000);
	push_encoder_sample(e, &energy, "uuid=\"U\"", NULL, 7);
	push_encoder_sample(e, &energy, "uuid=\"V\"", NULL, 8);
	assert_int_equal(push_encoder_end(e, &r), 0);
	z.next_in = (Bytef *)(uintptr_t)r.p;
	z.avail_in = (uInt)r.n;
	assert_int_equal(inflateInit2(&z, 15 + 16), Z_OK);
	assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
	inflateEnd(&z);
	m.n = sizeof(raw) - z.avail_out;
	assert_int_equal(m.n, r.raw_bytes);
	metric = inside(inside(inside(m, 1), 2), 2);
	assert_memory_equal(inside(metric, 1).p, "gpuward_energy_joules_total", 27);
	assert_memory_equal(inside(metric, 3).p, "J", 1);
	assert_int_equal(inside(inside(metric, 7), 2).v, 2);
	assert_int_equal(inside(inside(metric, 7), 3).v, 1);
	point = inside(inside(metric, 7), 1);
	assert_memory_equal(inside(inside(point, 7), 1).p, "uuid", 4);
	push_encoder_free(e);
}

TEST(a_partial_success_of_otlp_is_read_and_garbage_is_not)
{
	char message[100];
	struct buf b;
	size_t place;

	buf_init(&b, 1000);
	place = protobuf_open(&b, 1);
	protobuf_uint(&b, 1, 3);
	protobuf_string(&b, 2, "too old");
	protobuf_close(&b, place);
	assert_int_equal(push_otlp_rejected(b.p, b.len, message, sizeof(message)), 3);
	assert_string_equal(message, "too old");
	for (size_t n = 0; n < b.len; n++) /* truncates at every length */
		(void)push_otlp_rejected(b.p, n, message, sizeof(message));
	assert_int_equal(push_otlp_rejected("{}", 2, message, sizeof(message)), 0);
	assert_int_equal(push_otlp_rejected("", 0, message, sizeof(message)), 0);
	buf_done(&b);
}

/* ---- decisions ---- */

TEST(times_never_go_back_unless_the_last_one_was_wrong)
{
	assert_int_equal(push_time(0, 1000), 1000);
	assert_int_equal(push_time(1000, 1001), 1001);
	assert_int_equal(push_time(1000, 1000), -1);
	assert_int_equal(push_time(5000000, 4000000), -1);
	assert_int_equal(push_time(5000000 + PUSH_CLOCK_BACK_MS, 5000000), -1);
	assert_int_equal(push_time(5000001 + PUSH_CLOCK_BACK_MS, 5000000), 5000000);
}

TEST(a_status_about_the_data_drops_it_and_any_other_keeps_it)
{
	static const int again[] = { 0, 100, 301, 401, 403, 404, 407, 408, 429, 500, 503, 599 };

	assert_int_equal(push_http_verdict(200), PUSH_ACCEPTED);
	assert_int_equal(push_http_verdict(204), PUSH_ACCEPTED);
	assert_int_equal(push_http_verdict(400), PUSH_REFUSED);
	assert_int_equal(push_http_verdict(413), PUSH_REFUSED);
	for (size_t i = 0; i < COUNT_OF(again); i++)
		assert_int_equal(push_http_verdict(again[i]), PUSH_AGAIN);
}

TEST(the_delay_doubles_from_one_second_to_one_minute)
{
	uint64_t s = NS_PER_S;

	for (unsigned n = 1; n < 100; n++)
		for (double chance = 0; chance <= 1; chance += 0.25) {
			uint64_t d = push_delay(n, 15 * s, chance);

			assert_true(d >= s && d <= 60 * s);
			if (n > 8 && chance >= 0.5)
				assert_true(d == 60 * s);
		}
	assert_true(push_delay(1, 15 * s, 0) == s);
	assert_true(push_delay(3, 15 * s, 0.5) == 4 * s);
	assert_true(push_delay(50, s / 10, 1) == 4 * s / 10);
}

TEST_MAIN(NULL, NULL)
