/* rows: TOML tables into structs by rows: name, kind, offset, range. */
#ifndef SIM_ROWS_H
#define SIM_ROWS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/toml.h"

struct rows {
	const char *name; /* of the file, for sentences */
	char *error;
	size_t error_size;
	void *context;
};

enum key_kind {
	KEY_BOOL,    /* bool                                                       */
	KEY_UINT,    /* unsigned                                                   */
	KEY_INT,     /* int                                                        */
	KEY_NUMBER,  /* double                                                     */
	KEY_SECONDS, /* uint64_t, ns                                               */
	KEY_STEP,    /* int64_t, ns; may be negative                               */
	KEY_BYTES,   /* uint64_t; "10 GiB" or a number                             */
	KEY_BITS,    /* uint64_t; any integer, -1 is all ones                      */
	KEY_TEXT,    /* char[max]                                                  */
	KEY_CHOICE,  /* unsigned; index of the word in `words`                     */
	KEY_READ,    /* `read` does it                                             */
	KEY_SKIP,    /* somebody else has read it                                  */
};

struct key {
	const char *name;
	enum key_kind kind;
	size_t offset;
	double min, max;
	const char *const *words; /* NULL-terminated */
	int (*read)(struct rows *r, const struct toml_node *node, void *target);
};

/* Fails with "NAME:LINE:COLUMN: sentence". */
int rows_fail(struct rows *r, const struct toml_node *node, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
int rows_want(struct rows *r, const struct toml_node *node, const char *what);

/* Every member of the table by its row; one without a row is refused. */
int rows_table(struct rows *r, const struct toml_node *table, const struct key *keys, size_t n,
	       void *target);

/* Only those members that have a row. */
int rows_some(struct rows *r, const struct toml_node *table, const struct key *keys, size_t n,
	      void *target);

bool rows_number(const struct toml_node *node, double *number);

#endif
