/* text: small helpers for strings, and a hash. */
#ifndef GW_BASE_TEXT_H
#define GW_BASE_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* True if a and b are equal. NULL equals only NULL. */
static inline bool text_same(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

/* Moves *at past the word and returns true. Returns false if the word is not at *at. */
static inline bool text_read_word(const char **at, const char *word)
{
	size_t n = strlen(word);

	if (strncmp(*at, word, n) != 0)
		return false;
	*at += n;
	return true;
}

/* Reads a decimal number without sign and moves *at past the number. Returns false if there is
 * no number at *at, or if the number is above `most`. */
static inline bool text_read_number(const char **at, uint64_t most, uint64_t *ret)
{
	uint64_t v = 0;

	if (**at < '0' || **at > '9')
		return false;
	for (; **at >= '0' && **at <= '9'; ++*at) {
		unsigned digit = (unsigned)(**at - '0');

		if (v > most / 10 || digit > most - 10 * v)
			return false;
		v = 10 * v + digit;
	}
	*ret = v;
	return true;
}

/* Returns the position of a word of n bytes in a list that ends with NULL; -1: it is not in the
 * list. */
static inline int text_find(const char *const *words, const char *word, size_t n)
{
	for (int i = 0; words[i]; i++)
		if (strlen(words[i]) == n && memcmp(words[i], word, n) == 0)
			return i;
	return -1;
}

/* Continues an FNV-1a hash with n bytes; the first hash is TEXT_HASH_START. The hash detects
 * cut or edited files, but not an attack. */
#define TEXT_HASH_START UINT64_C(0xcbf29ce484222325)
#define TEXT_HASH_PRIME UINT64_C(0x100000001b3)
static inline uint64_t text_hash(uint64_t hash, const char *p, size_t n)
{
	while (n--)
		hash = (hash ^ (unsigned char)*p++) * TEXT_HASH_PRIME;
	return hash;
}

/* Works like snprintf(), for text that may be cut. The compiler does not warn about the cut. */
__attribute__((format(printf, 3, 4))) static inline void text_fit(char *out, size_t size,
								  const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(out, size, fmt, ap);
	va_end(ap);
}

/* Copies a text that another program chose. Replaces each byte that is not a printable ASCII
 * character by "?", and cuts the text if it does not fit. */
static inline void text_clean(char *out, size_t size, const char *text)
{
	size_t n = 0;

	for (; n + 1 < size && text[n]; n++)
		out[n] = text[n] >= ' ' && text[n] < 127 ? text[n] : '?';
	out[n] = '\0';
}

#endif
