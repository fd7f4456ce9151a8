/* rows: reads TOML tables into structs, with one row per key: name, kind, offset, range. */
#ifndef SIM_ROWS_H
#define SIM_ROWS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/toml.h"

struct rows {
	const char *name; /* name of the file, for messages */
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
	KEY_BITS,    /* uint64_t; any integer, -1 is all bits set */
	KEY_TEXT,    /* char[max]                                                  */
	KEY_CHOICE,  /* unsigned; index of the name in `words` */
	KEY_READ,    /* the function `read` reads the value */
	KEY_TABLE,   /* a table with values of the same struct; `table` has its rows */
	KEY_EACH,    /* a list of tables; `each` reads one */
	KEY_SKIP,    /* another function reads the key */
};

struct key {
	const char *name;
	enum key_kind kind;
	size_t offset;
	double min, max;
	const char *const *words; /* NULL-terminated */
	int (*read)(struct rows *r, const struct toml_node *node, void *target);
	int (*each)(struct rows *r, const struct toml_node *table);
	const struct key *table; /* ends with a NULL name */
};

/* Sets the error "NAME:LINE:COLUMN: sentence" and returns -1. */
int rows_fail(struct rows *r, const struct toml_node *node, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
int rows_want(struct rows *r, const struct toml_node *node, const char *what);

/* Reads every member of the table by its row; a member without a row is an error. */
int rows_table(struct rows *r, const struct toml_node *table, const struct key *keys, size_t n,
	       void *target);

/* Reads only the members that have a row. */
int rows_some(struct rows *r, const struct toml_node *table, const struct key *keys, size_t n,
	      void *target);

bool rows_number(const struct toml_node *node, double *number);

#endif
