/* asset: the files of the page and /openapi.json, compiled into the program.
 *
 * The files of the page come from web/ and npm packages; tools/assets packs them. Without the
 * page (-Dpage=disabled) the table is empty. tools/openapi makes /openapi.json from routes.def
 * and docs/schema; the tests check all documents against these schemas. */
#ifndef GW_SERVE_ASSET_H
#define GW_SERVE_ASSET_H

/* A small file is stored both plain and gzipped. A large file is stored only gzipped: the
 * member data is NULL, and a client that does not accept gzip gets the status 406. */
struct asset {
	const char *path; /* path in the request: "/", "/assets/app.js", "/docs" */
	const char *type; /* Content-Type, such as "text/html; charset=utf-8" */
	const unsigned char *data, *end;
	const unsigned char *gz, *gz_end;
};

extern const struct asset assets[]; /* sorted by path */
extern const unsigned asset_count;
extern const struct asset asset_openapi; /* plain and gzipped */

#endif
