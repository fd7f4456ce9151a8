/* asset: the files of the page, inside the program.
 *
 * Hides where they come from: web/, and what npm brought, put in at build time by tools/assets.
 * Without the page (-Dpage=disabled) the table is empty. */
#ifndef GW_SERVE_ASSET_H
#define GW_SERVE_ASSET_H

/* Everything but the big ones is there plain and gzipped; of the big ones data is NULL and there
 * is the gzipped form alone: a client that does not accept it is refused (406). */
struct asset {
	const char *path; /* as in the request: "/", "/assets/app.js", "/docs" */
	const char *type; /* "text/html; charset=utf-8" */
	const unsigned char *data, *end;
	const unsigned char *gz, *gz_end;
};

extern const struct asset assets[]; /* in order of their paths, as strcmp() has it */
extern const unsigned asset_count;

#endif
