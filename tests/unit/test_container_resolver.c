#include "daemon/container_resolver.h"

#include "test.h"

#include <gpuward.h>

#define ID "f6314c57544c3922d67e8eaf377584780ef3820e06fcbb0423798fe9cdfd9371"

TEST(an_answer_has_the_id_or_the_reason)
{
	static const struct {
		int err;
		const char *answer;
	} rows[] = {
		{ 0, "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{\"Id\":\"" ID
		     "\",\"Created\":\"x\"}" },
		{ 0, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9b\r\n{\"Id\":\"" ID
		     "\",\"Image\":\"sha256:" ID "\"}\r\n0\r\n\r\n" },
		{ -GW_E_PARSE,
		  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9b\r\n{\"Id\":\"" ID
		  "\"}" },
		{ -GW_E_PARSE, "HTTP/1.0 200 OK\r\n\r\n{\"Config\":{\"Id\":\"" ID "\"}}" },
		{ 0, "HTTP/1.0 200 OK\r\n\r\n{ \"Id\": \"" ID "\" }" },
		{ -GW_E_NOENT,
		  "HTTP/1.0 404 Not Found\r\n\r\n{\"message\":\"No such container: x\"}" },
		{ -GW_E_PARSE, "HTTP/1.0 500 Broken\r\n\r\n{\"Id\":\"" ID "\"}" },
		{ -GW_E_PARSE, "HTTP/1.0 200 OK\r\nX: {\"Id\":\"" ID "\"}" },
		{ -GW_E_PARSE, "HTTP/1.0 200 OK\r\n\r\n{\"Id\":\"f6314c57\"}" },
		{ -GW_E_PARSE, "HTTP/1.0 200 OK\r\n\r\n{\"Id\":\"" ID "0\"}" },
		{ -GW_E_PARSE, "HTTP/1.0 200 OK\r\n\r\n{\"Id\":\"../../../etc" },
		{ -GW_E_PARSE, "HTTP/1.0" },
		{ -GW_E_PARSE, "HTTP/1.0 0 OK\r\n\r\n{\"Id\":\"" ID "\"}" },
		{ -GW_E_PARSE, "HTTP/1.0 4294967496 OK\r\n\r\n{\"Id\":\"" ID "\"}" },
		{ -GW_E_PARSE, "SSH-2.0-x 200 \r\n\r\n{\"Id\":\"" ID "\"}" },
		{ -GW_E_PARSE, "" },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		char id[CONTAINER_RESOLVER_ID + 1] = "";
		struct buf answer;

		buf_init(&answer, 4096);
		buf_adds(&answer, rows[i].answer);
		if (container_resolver_read(&answer, id) != rows[i].err)
			fail_msg("row %zu", i);
		buf_done(&answer);
		assert_string_equal(id, rows[i].err ? "" : ID);
	}
}

TEST_MAIN(NULL, NULL)
