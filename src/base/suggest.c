#include "suggest.h"

#include <ctype.h>
#include <string.h>

#define WORD_MAX 64 /* longer names are ignored */

static char suggest_letter(const char *s, size_t i)
{
	return s[i] == '_' ? '-' : (char)tolower((unsigned char)s[i]);
}

static unsigned suggest_smaller(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

/* Returns the number of edits from a to b (Damerau-Levenshtein distance); a swap of two
 * neighbouring letters is one edit. Computes the table row by row and keeps the last two rows,
 * because a swap needs both. */
static unsigned suggest_edits(const char *a, size_t na, const char *b, size_t nb)
{
	unsigned rows[3][WORD_MAX + 1];
	unsigned *before = rows[0], *above = rows[1], *row = rows[2];

	for (size_t j = 0; j <= nb; j++)
		above[j] = (unsigned)j;
	for (size_t i = 1; i <= na; i++) {
		unsigned *spare = before;

		row[0] = (unsigned)i;
		for (size_t j = 1; j <= nb; j++) {
			char x = suggest_letter(a, i - 1), y = suggest_letter(b, j - 1);

			row[j] = suggest_smaller(above[j - 1] + (x != y),
						 suggest_smaller(above[j], row[j - 1]) + 1);
			if (i > 1 && j > 1 && x == suggest_letter(b, j - 2) &&
			    y == suggest_letter(a, i - 2))
				row[j] = suggest_smaller(row[j], before[j - 2] + 1);
		}
		before = above;
		above = row;
		row = spare;
	}
	return above[nb];
}

/* Returns the distance from word to name. A word that is the beginning of name (three letters
 * or more) is one edit away. */
static unsigned suggest_distance(const char *word, size_t n, const char *name, size_t m)
{
	unsigned d = suggest_edits(word, n, name, m);

	if (n >= 3 && n < m && suggest_edits(word, n, name, n) == 0)
		d = suggest_smaller(d, 1);
	return d;
}

const char *suggest(const char *word, const char *const *first, size_t n, size_t stride)
{
	size_t len = strlen(word);
	const char *best = NULL;
	unsigned best_d = 0;

	if (len == 0 || len > WORD_MAX)
		return NULL;
	for (size_t i = 0; i < n; i++) {
		const char *name = *(const char *const *)((const char *)first + i * stride);
		size_t m = name ? strlen(name) : 0;
		unsigned d, limit = (unsigned)(len > m ? len : m) / 3;

		if (m == 0 || m > WORD_MAX)
			continue;
		d = suggest_distance(word, len, name, m);
		if (d <= (limit ? limit : 1) && (!best || d < best_d)) {
			best = name;
			best_d = d;
		}
	}
	return best;
}
