/* suggest: finds the closest valid name for a misspelled one. */
#ifndef GW_BASE_SUGGEST_H
#define GW_BASE_SUGGEST_H

#include <stddef.h>

/* Returns the candidate with the fewest edits from word (insert, delete, replace, swap of
 * neighbours; '-' equals '_', case is ignored). Returns NULL if no candidate is close enough
 * for a typing error: at most one edit per three letters of the longer word, but one edit is
 * always allowed. A candidate that starts with word (three letters or more) counts as close.
 * Candidates are n pointers `stride` bytes apart, so that a table of structs can be passed with
 * the address of its first name. NULL names are skipped. */
const char *suggest(const char *word, const char *const *first, size_t n, size_t stride);

#endif
