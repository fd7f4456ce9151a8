/* curl_abi: the numbers of libcurl's interface that this program uses.
 *
 * They come from curl/curl.h of 7.88. libcurl keeps them as long as its library is called
 * libcurl.so.4. tests/unit/test_worker_abi.c compares them with the header where it is
 * installed. */
#ifndef GW_GUARD_WORKER_CURL_ABI_H
#define GW_GUARD_WORKER_CURL_ABI_H

/* clang-format off */
#define CURL_NUMBERS(N)                                        \
	N(CURL_WRITEDATA, CURLOPT_WRITEDATA, 10001)            \
	N(CURL_URL, CURLOPT_URL, 10002)                        \
	N(CURL_PROXY, CURLOPT_PROXY, 10004)                    \
	N(CURL_ERRORBUFFER, CURLOPT_ERRORBUFFER, 10010)        \
	N(CURL_POSTFIELDS, CURLOPT_POSTFIELDS, 10015)          \
	N(CURL_USERAGENT, CURLOPT_USERAGENT, 10018)            \
	N(CURL_HTTPHEADER, CURLOPT_HTTPHEADER, 10023)          \
	N(CURL_UNIX_SOCKET, CURLOPT_UNIX_SOCKET_PATH, 10231)   \
	N(CURL_WRITEFUNCTION, CURLOPT_WRITEFUNCTION, 20011)    \
	N(CURL_POST, CURLOPT_POST, 47)                         \
	N(CURL_POSTFIELDSIZE, CURLOPT_POSTFIELDSIZE, 60)       \
	N(CURL_HTTPGET, CURLOPT_HTTPGET, 80)                   \
	N(CURL_NOSIGNAL, CURLOPT_NOSIGNAL, 99)                 \
	N(CURL_TIMEOUT_MS, CURLOPT_TIMEOUT_MS, 155)            \
	N(CURL_CONNECT_MS, CURLOPT_CONNECTTIMEOUT_MS, 156)     \
	N(CURL_PROTOCOLS, CURLOPT_PROTOCOLS, 181)              \
	N(CURL_RESPONSE_CODE, CURLINFO_RESPONSE_CODE, 0x200002) \
	N(CURL_HTTP_AND_HTTPS, CURLPROTO_HTTP | CURLPROTO_HTTPS, 3) \
	N(CURL_GLOBAL_EVERYTHING, CURL_GLOBAL_ALL, 3)          \
	N(CURL_ERROR_SIZE_, CURL_ERROR_SIZE, 256)              \
	N(CURL_UNSUPPORTED, CURLE_UNSUPPORTED_PROTOCOL, 1)     \
	N(CURL_MALFORMED, CURLE_URL_MALFORMAT, 3)              \
	N(CURL_WRITE_FAILED, CURLE_WRITE_ERROR, 23)            \
	N(CURL_NO_MEMORY, CURLE_OUT_OF_MEMORY, 27)             \
	N(CURL_TIMED_OUT, CURLE_OPERATION_TIMEDOUT, 28)
/* clang-format on */

#endif
