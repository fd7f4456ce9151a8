/* rows: reads TOML tables into structs. A struct key describes one key of a table: its name,
 * the kind of its value, the allowed range, and where the value is stored. */
#ifndef SIM_ROWS_H
#define SIM_ROWS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/toml.h"

struct rows {
	const char *name; /* name of the file, for messages */
	char *error;
	size_t error_size;
	void *context; /* data for the functions `read` and `each` */
};

enum key_kind {
	KEY_BOOL,    /* a bool */
	KEY_UINT,    /* an unsigned */
	KEY_INT,     /* an int */
	KEY_NUMBER,  /* a double */
	KEY_SECONDS, /* a time in seconds, stored as uint64_t in ns */
	KEY_STEP,    /* seconds that may be negative, stored as int64_t in ns */
	KEY_BYTES,   /* "10 GiB" or a number of bytes, stored as uint64_t */
	KEY_BITS,    /* any integer, stored as uint64_t; -1 sets all bits */
	KEY_TEXT,    /* a string, stored as char[max] */
	KEY_CHOICE,  /* a name in `words`; its index is stored as unsigned */
	KEY_READ,    /* The function `read` reads the value. */
	/* a table with more members of the same struct; key.table describes its keys */
	KEY_TABLE,
	KEY_EACH, /* a list of tables; the function `each` reads one */
	KEY_SKIP, /* The value is ignored here, because other code reads it. */
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
/* Fails with "'KEY' must be WHAT, not TYPE". */
int rows_want(struct rows *r, const struct toml_node *node, const char *what);

/* Reads every member of the table as its struct key in keys[] says; a member without a struct
 * key is an error. */
int rows_table(struct rows *r, const struct toml_node *table, const struct key *keys, size_t n,
	       void *target);

/* Reads only the members that have a struct key in keys[]. */
int rows_some(struct rows *r, const struct toml_node *table, const struct key *keys, size_t n,
	      void *target);

bool rows_number(const struct toml_node *node, double *number);

/* Reads a value of the kind KEY_BYTES. Returns 0, or -1 with the error set. */
int rows_bytes(struct rows *r, const struct toml_node *node, uint64_t *out);

#endif
