/* suggest: the nearest right spelling of a wrong word. */
#ifndef GW_BASE_SUGGEST_H
#define GW_BASE_SUGGEST_H

#include <stddef.h>

/* The candidate nearest to word by edits (insert, delete, replace, swap of neighbours; '-' and
 * '_' count as the same, case is ignored), or NULL when none is near enough to be a likely
 * slip: at most one edit for each three letters of the longer word, and at least one.
 * A candidate of which word is a prefix (three letters or more) counts as near.
 * Candidates are an array of n pointers `stride` bytes apart, so that a table of structs can be
 * handed in with the address of its first name; NULL names are passed over. */
const char *suggest(const char *word, const char *const *first, size_t n, size_t stride);

#endif
