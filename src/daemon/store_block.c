#include "store_block.h"

#include <gpuward.h>

#include <math.h>
#include <string.h>

#define VERSION 1
#define STEPS   5 /* Number of rows in steps[]. */

enum kind { KIND_MISSING, KIND_SAME, KIND_FLOAT, KIND_STEPS };

/* Each row is a step size, which is the quotient of two numbers. A column can use a step if all
 * its values are integer multiples of it. The kind of such a column is KIND_STEPS + 2 * (index
 * of the row), plus one if each value takes two bytes. */
static const struct {
	double numerator, denominator;
} steps[STEPS] = { { 1, 1 }, { 1, 100 }, { 1e6, 1 }, { 1048576, 1 }, { 1, 1000 } };

static float value_of(int64_t k, unsigned step)
{
	return (float)((double)k * steps[step].numerator / steps[step].denominator);
}

static void put_head(struct buf *out, unsigned kind, const void *p, size_t n)
{
	buf_addc(out, (char)kind);
	buf_add(out, p, n);
}

/* Converts values to multiples of a step. Returns false if a value is not a multiple. */
static bool as_steps(const float *v, unsigned n, unsigned step, int64_t *k, int64_t *ret_least,
		     int64_t *ret_most)
{
	int64_t least = INT32_MAX, most = INT32_MIN;

	for (unsigned i = 0; i < n; i++) {
		double m = rint((double)v[i] * steps[step].denominator / steps[step].numerator);

		if (isnan(v[i]))
			continue;
		if (!(fabs(m) < 1e9) || value_of((int64_t)m, step) != v[i])
			return false;
		k[i] = (int64_t)m;
		least = k[i] < least ? k[i] : least;
		most = k[i] > most ? k[i] : most;
	}
	*ret_least = least;
	*ret_most = most;
	return most - least < UINT16_MAX;
}

static void put_steps(struct buf *out, const float *v, unsigned n, unsigned step,
		      const int64_t *k, int64_t least, bool wide)
{
	int32_t base = (int32_t)least;

	put_head(out, KIND_STEPS + step * 2 + wide, &base, sizeof(base));
	for (unsigned i = 0; i < n; i++) {
		uint16_t d = isnan(v[i]) ? UINT16_MAX : (uint16_t)(k[i] - least);
		uint8_t narrow = (uint8_t)d;

		buf_add(out, wide ? (const void *)&d : &narrow, wide ? 2 : 1);
	}
}

/* If all values of a column are missing, or if all are the same, writes the column. Otherwise
 * returns false. */
static bool put_plain(struct buf *out, const float *v, unsigned n)
{
	unsigned missing = 0;

	for (unsigned i = 0; i < n; i++)
		missing += isnan(v[i]) != 0;
	if (missing == n) {
		buf_addc(out, KIND_MISSING);
		return true;
	}
	for (unsigned i = 0; i < n; i++)
		if (memcmp(&v[i], &v[0], sizeof(v[0])) != 0)
			return false;
	put_head(out, KIND_SAME, &v[0], sizeof(v[0]));
	return true;
}

static void put_column(struct buf *out, const float *v, unsigned n)
{
	int64_t k[BLOCK_MOMENTS] = { 0 }, least, most, best_least = 0;
	int64_t best_k[BLOCK_MOMENTS];
	unsigned best = STEPS;
	bool wide = true;

	if (put_plain(out, v, n))
		return;
	for (unsigned s = 0; s < STEPS && wide; s++) {
		if (!as_steps(v, n, s, k, &least, &most))
			continue;
		if (best == STEPS || most - least < UINT8_MAX) {
			best = s;
			best_least = least;
			wide = most - least >= UINT8_MAX;
			memcpy(best_k, k, sizeof(k));
		}
	}
	if (best < STEPS)
		put_steps(out, v, n, best, best_k, best_least, wide);
	else
		put_head(out, KIND_FLOAT, v, n * sizeof(*v));
}

void block_encode(const struct block *b, struct buf *out)
{
	char head[3] = { VERSION, (char)b->count, (char)b->columns };
	float v[BLOCK_MOMENTS];

	buf_add(out, head, sizeof(head));
	for (unsigned i = 0; i < b->count; i++)
		v[i] = (float)b->offset[i];
	put_column(out, v, b->count);
	for (unsigned c = 0; c < b->columns; c++) {
		for (unsigned i = 0; i < b->count; i++)
			v[i] = b->value[i * b->columns + c];
		put_column(out, v, b->count);
	}
}

struct reader {
	const unsigned char *p;
	size_t left;
};

static bool block_get(struct reader *r, void *out, size_t n)
{
	if (r->left < n)
		return false;
	memcpy(out, r->p, n);
	r->p += n;
	r->left -= n;
	return true;
}

static bool get_steps(struct reader *r, float *v, unsigned n, unsigned step, bool wide)
{
	int32_t base;

	if (step >= STEPS || !block_get(r, &base, sizeof(base)))
		return false;
	for (unsigned i = 0; i < n; i++) {
		uint16_t d = 0;
		uint8_t narrow = 0;

		if (!block_get(r, wide ? (void *)&d : &narrow, wide ? 2 : 1))
			return false;
		if (!wide)
			d = narrow == UINT8_MAX ? UINT16_MAX : narrow;
		v[i] = d == UINT16_MAX ? NAN : value_of((int64_t)base + d, step);
	}
	return true;
}

static bool get_column(struct reader *r, float *v, unsigned n)
{
	unsigned char kind;

	if (!block_get(r, &kind, 1))
		return false;
	if (kind >= KIND_STEPS)
		return get_steps(r, v, n, (kind - KIND_STEPS) / 2u, (kind - KIND_STEPS) % 2);
	if (kind == KIND_FLOAT)
		return block_get(r, v, n * sizeof(*v));
	v[0] = NAN;
	if (kind == KIND_SAME && !block_get(r, &v[0], sizeof(v[0])))
		return false;
	for (unsigned i = 1; i < n; i++)
		v[i] = v[0];
	return true;
}

static bool get_offsets(struct reader *r, struct block *b)
{
	float v[BLOCK_MOMENTS];

	if (!get_column(r, v, b->count))
		return false;
	for (unsigned i = 0; i < b->count; i++) {
		if (!(v[i] >= 0 && v[i] <= UINT16_MAX))
			return false;
		b->offset[i] = (uint16_t)v[i];
		if (i && b->offset[i] <= b->offset[i - 1])
			return false;
	}
	return true;
}

int block_decode(struct block *b, const void *bytes, size_t n)
{
	struct reader r = { bytes, n };
	unsigned char head[3];
	float v[BLOCK_MOMENTS];

	if (!block_get(&r, head, sizeof(head)) || head[0] != VERSION || head[1] < 1 ||
	    head[1] > BLOCK_MOMENTS || head[2] > BLOCK_COLUMNS)
		return -GW_E_PARSE;
	b->count = head[1];
	if (!get_offsets(&r, b))
		return -GW_E_PARSE;
	for (unsigned c = 0; c < b->columns || c < head[2]; c++) {
		for (unsigned i = 0; i < b->count; i++)
			v[i] = NAN;
		if (c < head[2] && !get_column(&r, v, b->count))
			return -GW_E_PARSE;
		for (unsigned i = 0; c < b->columns && i < b->count; i++)
			b->value[i * b->columns + c] = v[i];
	}
	return 0;
}
