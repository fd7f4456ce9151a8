/* Checks values that depend on each other, and strings with a format: addresses, hosts,
 * origins. */
#include "config_read.h"

#include "base/file.h"
#include "base/utf8.h"
#include "serve/render.h"
#include "serve/metrics_family.h"

#include <gpuward.h>

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* The buffers in push.h and fleet_ask.h are larger than these limits. The limits are defined
 * here, because the configuration reader must not include those headers. */
#define HTTP_URL_MAX   1000
#define FLEET_JOB_MAX  500
#define PUSH_LABEL_MAX 200

static bool is_port(const char *s)
{
	size_t n = strspn(s, "0123456789");

	return n >= 1 && n <= 5 && !s[n] && strtoul(s, NULL, 10) <= 65535;
}

static const char *check_unix(const char *path)
{
	if (*path != '/')
		return "the path after unix: must begin with /";
	if (strlen(path) >= sizeof(((struct sockaddr_un *)0)->sun_path))
		return "the path of a UNIX socket has at most 107 bytes";
	return NULL;
}

static const char *check_ipv6(const char *text)
{
	const char *end = strchr(text, ']');
	char address[INET6_ADDRSTRLEN];
	struct in6_addr in6;
	size_t n;

	if (!end || end[1] != ':' || !is_port(end + 2))
		return "an IPv6 address is written [ADDRESS]:PORT, such as [::1]:9490";
	n = strcspn(text + 1, "%]"); /* The address ends before the interface name (%eth0). */
	if (n >= sizeof(address))
		return "not an IPv6 address";
	memcpy(address, text + 1, n);
	address[n] = '\0';
	return inet_pton(AF_INET6, address, &in6) == 1 ? NULL : "not an IPv6 address";
}

/* Checks a host name. A host name that has only digits and dots must be an IPv4 address. */
static const char *check_host(const char *host)
{
	struct in_addr in;

	if (!*host)
		return "the host is missing: write 127.0.0.1:PORT, or 0.0.0.0:PORT for all "
		       "addresses";
	if (!host[strspn(host, "0123456789.")])
		return inet_pton(AF_INET, host, &in) == 1 ? NULL : "not an IPv4 address";
	for (const char *p = host; *p; p++)
		if (!isalnum((unsigned char)*p) && *p != '-' && *p != '.' && *p != '_')
			return "the host name has a character that is not allowed: use "
			       "letters, digits, dots, dashes and underscores";
	return NULL;
}

const char *config_check_address(const char *text)
{
	const char *colon = strrchr(text, ':');
	char host[256];
	size_t n;

	if (strncmp(text, "unix:", 5) == 0)
		return check_unix(text + 5);
	if (*text == '[')
		return check_ipv6(text);
	if (!colon)
		return "the port is missing: write HOST:PORT, [IPV6]:PORT or unix:PATH";
	if (strchr(text, ':') != colon)
		return "an IPv6 address is written [ADDRESS]:PORT, such as [::1]:9490";
	if (!is_port(colon + 1))
		return "the port after the colon must be a number up to 65535";
	n = (size_t)(colon - text);
	if (n >= sizeof(host))
		return "the host name is too long";
	memcpy(host, text, n);
	host[n] = '\0';
	return check_host(host);
}

static const char *check_host_name(const char *text)
{
	struct in6_addr in6;

	if (inet_pton(AF_INET6, text, &in6) == 1)
		return NULL;
	if (strpbrk(text, ":/"))
		return "write the host name alone, without scheme and port";
	return check_host(text);
}

static const char *check_origin(const char *text)
{
	const char *host = strstr(text, "://");

	if (!host || (strncmp(text, "http://", 7) != 0 && strncmp(text, "https://", 8) != 0))
		return "an origin is written http://HOST or https://HOST:PORT";
	if (!host[3] || strpbrk(host + 3, "/?#@ *"))
		return "an origin is scheme, host and port, without a path and without *";
	return NULL;
}

static const struct config_place *place_of(const struct config_reader *r, enum config_id id)
{
	return &r->m->place[id];
}

static bool is_set(const struct config_reader *r, enum config_id id)
{
	return place_of(r, id)->from != CONFIG_STANDARD;
}

static void check_list(struct config_reader *r, enum config_id id,
		       const struct config_list *list, const char *(*wrong)(const char *text))
{
	for (unsigned i = 0; i < list->count; i++) {
		const char *why = wrong(list->item[i]);

		if (why)
			config_complain(r, place_of(r, id), "%s: \"%.100s\": %s",
					config_rows[id].key, list->item[i], why);
		for (unsigned k = 0; k < i; k++)
			if (strcasecmp(list->item[k], list->item[i]) == 0)
				config_complain(r, place_of(r, id),
						"%s: \"%.100s\" is listed twice",
						config_rows[id].key, list->item[i]);
	}
}

static void check_tls(struct config_reader *r)
{
	const char *cert = r->c->service_tls_cert, *key = r->c->service_tls_key;

	if (!config_both_valid(r, CONFIG_ID_service_tls_cert, CONFIG_ID_service_tls_key))
		return;
	if (cert && !key)
		config_complain(r, place_of(r, CONFIG_ID_service_tls_cert),
				"tls_cert is set and tls_key is not; TLS needs both");
	if (key && !cert)
		config_complain(r, place_of(r, CONFIG_ID_service_tls_key),
				"tls_key is set and tls_cert is not; TLS needs both");
}

/* True if other machines can reach this address. False for a host name, because its address is
 * unknown here. */
static bool is_exposed(const char *address)
{
	if (strncmp(address, "unix:", 5) == 0 || strncmp(address, "127.", 4) == 0 ||
	    strncmp(address, "[::1]", 5) == 0)
		return false;
	return *address == '[' || !address[strspn(address, "0123456789.:")];
}

/* Warns about addresses that the service would refuse to listen on. This is not an error,
 * because systemd may pass other sockets to the service. */
static void check_exposure(struct config_reader *r)
{
	const struct config *c = r->c;

	if (c->service_insecure || (c->service_token_file && c->service_tls_cert))
		return;
	for (unsigned i = 0; i < c->service_listen.count; i++)
		if (is_exposed(c->service_listen.item[i]) &&
		    !config_check_address(c->service_listen.item[i]))
			config_warn(r, place_of(r, CONFIG_ID_service_listen),
				    "listen: \"%.100s\" is reachable from other machines; the "
				    "service refuses it unless token_file and tls_cert are "
				    "set, or insecure is true",
				    c->service_listen.item[i]);
}

static void check_unix_mode(struct config_reader *r)
{
	const char *mode = r->c->service_unix_mode ? r->c->service_unix_mode : "";
	size_t n = strspn(mode, "01234567");

	if (n < 3 || n > 4 || mode[n] || strtoul(mode, NULL, 8) > 0777)
		config_complain(r, place_of(r, CONFIG_ID_service_unix_mode),
				"unix_mode must be octal permissions such as \"0660\", not "
				"\"%.20s\"",
				mode);
}

/* A currency is one word on the page and in documents. */
static void check_currency(struct config_reader *r)
{
	const char *word = r->c->energy_price_currency ? r->c->energy_price_currency : "";
	char clean[64];

	utf8_clean(clean, sizeof(clean), word);
	if (strlen(word) >= ENERGY_COST_CURRENCY || strcmp(clean, word) != 0)
		config_complain(r, place_of(r, CONFIG_ID_energy_price_currency),
				"price_currency must be a word of at most %d bytes such as "
				"\"EUR\", not \"%.40s\"",
				ENERGY_COST_CURRENCY - 1, clean);
}

static void check_streams(struct config_reader *r)
{
	const struct config *c = r->c;

	if (c->service_streams > c->service_connections &&
	    config_both_valid(r, CONFIG_ID_service_streams, CONFIG_ID_service_connections))
		config_complain(r,
				place_of(r, is_set(r, CONFIG_ID_service_streams)
						    ? CONFIG_ID_service_streams
						    : CONFIG_ID_service_connections),
				"streams (%llu) must not exceed connections (%llu), because "
				"each stream uses a connection",
				(unsigned long long)c->service_streams,
				(unsigned long long)c->service_connections);
}

static void check_nvml(struct config_reader *r)
{
	if (r->c->device_require_nvml && !r->c->device_enable_nvml &&
	    config_both_valid(r, CONFIG_ID_device_require_nvml, CONFIG_ID_device_enable_nvml))
		config_complain(
			r, place_of(r, CONFIG_ID_device_require_nvml),
			"require_nvml is true but enable_nvml is false; change one of them");
}

static void check_textfile(struct config_reader *r)
{
	const char *path = r->c->metrics_textfile;
	size_t n = path ? strlen(path) : 0;

	if (path && (n < 6 || strcmp(path + n - 5, ".prom") != 0))
		config_complain(r, place_of(r, CONFIG_ID_metrics_textfile),
				"textfile: \"%.100s\": the name must end with .prom, because "
				"node_exporter ignores other files",
				path);
}

static void check_history(struct config_reader *r)
{
	if (!r->c->history_path && !r->bad[CONFIG_ID_history_path])
		config_complain(r, place_of(r, CONFIG_ID_history_path),
				"history.path is empty: name a file, \"auto\" or \"none\"");
}

/* Checks the address of a server that the service sends requests to. */
static const char *check_http_url(const char *url)
{
	const char *host = strncmp(url, "http://", 7) == 0    ? url + 7
			   : strncmp(url, "https://", 8) == 0 ? url + 8
							      : NULL;
	size_t n = host ? strcspn(host, "/?#") : 0;

	if (!host)
		return "it must begin with http:// or https://";
	for (const char *s = url; *s; s++)
		if (isspace((unsigned char)*s) || iscntrl((unsigned char)*s))
			return "it must not contain spaces";
	if (memchr(host, '@', n))
		return "it contains a password, which would appear in messages; use "
		       "token_file, or user and password_file";
	if (n == 0 || *host == ':')
		return "the host is missing";
	return strlen(url) >= HTTP_URL_MAX ? "it is too long" : NULL;
}

static const char *check_push_url(const char *url)
{
	const char *why = check_http_url(url), *path = why ? NULL : strstr(url, "://") + 3;

	if (why)
		return why;
	path += strcspn(path, "/?#");
	if (*path != '/' || !path[1])
		return "the path is missing: write the whole address, such as "
		       "http://HOST:9090/api/v1/write for Prometheus, or "
		       "http://HOST:4318/v1/metrics for OTLP";
	return NULL;
}

const char *config_check_prometheus(const char *url)
{
	const char *why = check_http_url(url);

	if (!why && strpbrk(url, "?#"))
		return "it must end with the path, without ? and #";
	return why;
}

static const char *check_push_label(const char *text)
{
	size_t n = strcspn(text, "=");

	if (!text[n] || n == 0 || !text[n + 1])
		return "a label is written \"name=value\"";
	if (isdigit((unsigned char)*text) || strncmp(text, "__", 2) == 0)
		return "the name of a label must begin with a letter";
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)text[i]) && text[i] != '_')
			return "the name of a label may have only letters, digits and "
			       "underscores";
	if ((n == 3 && strncmp(text, "job", n) == 0) ||
	    (n == 8 && strncmp(text, "instance", n) == 0))
		return "use the setting of this name in [push]";
	return strlen(text) < PUSH_LABEL_MAX ? NULL : "it is longer than 200 bytes";
}

/* True if the host of a URL is this machine. */
static bool is_loopback_url(const char *url)
{
	const char *host = strstr(url, "://") + 3;

	return strncmp(host, "127.", 4) == 0 || strncmp(host, "[::1]", 5) == 0 ||
	       (strncmp(host, "localhost", 9) == 0 && strchr(":/", host[9]));
}

static void check_push_secret(struct config_reader *r)
{
	const struct config *c = r->c;

	if (c->push_token_file && c->push_user)
		config_complain(r, place_of(r, CONFIG_ID_push_token_file),
				"push.token_file and push.user are both set; a request can "
				"have only one of them");
	if (c->push_user && !c->push_password_file)
		config_complain(r, place_of(r, CONFIG_ID_push_user),
				"push.user is set and push.password_file is not; set both");
	if (c->push_password_file && !c->push_user)
		config_complain(r, place_of(r, CONFIG_ID_push_password_file),
				"push.password_file is set and push.user is not; set both");
	if ((c->push_token_file || c->push_user) && c->push_url &&
	    strncmp(c->push_url, "http://", 7) == 0 && !is_loopback_url(c->push_url))
		config_warn(r, place_of(r, CONFIG_ID_push_url),
			    "push.url: the secret is sent without encryption; use https://");
}

static void check_push_length(struct config_reader *r, enum config_id id, const char *text)
{
	if (text && strlen(text) >= PUSH_LABEL_MAX)
		config_complain(r, place_of(r, id),
				"push.%s has %zu bytes, but at most %d are possible",
				config_rows[id].key, strlen(text), PUSH_LABEL_MAX - 1);
}

static void check_push(struct config_reader *r)
{
	const struct config *c = r->c;
	const char *why = c->push_url ? check_push_url(c->push_url) : NULL;

	if (why)
		config_complain(r, place_of(r, CONFIG_ID_push_url), "push.url \"%.100s\": %s",
				strchr(c->push_url, '@') ? "..." : c->push_url, why);
	check_list(r, CONFIG_ID_push_labels, &c->push_labels, check_push_label);
	check_push_secret(r);
	check_push_length(r, CONFIG_ID_push_job, c->push_job);
	check_push_length(r, CONFIG_ID_push_instance, c->push_instance);
	check_push_length(r, CONFIG_ID_push_user, c->push_user);
}

static void check_fleet(struct config_reader *r)
{
	const struct config *c = r->c;
	const char *why =
		c->fleet_prometheus ? config_check_prometheus(c->fleet_prometheus) : NULL;

	if (why)
		config_complain(r, place_of(r, CONFIG_ID_fleet_prometheus),
				"fleet.prometheus: %s", why);
	else if (c->fleet_prometheus && c->fleet_token_file &&
		 strncmp(c->fleet_prometheus, "http://", 7) == 0 &&
		 !is_loopback_url(c->fleet_prometheus))
		config_warn(r, place_of(r, CONFIG_ID_fleet_prometheus),
			    "fleet.prometheus: the token is sent without encryption; use "
			    "https://");
	if (c->fleet_job && strlen(c->fleet_job) > FLEET_JOB_MAX)
		config_complain(r, place_of(r, CONFIG_ID_fleet_job),
				"fleet.job has more than %d bytes", FLEET_JOB_MAX);
}

static void check_metrics(struct config_reader *r, enum config_id id,
			  const struct config_list *list)
{
	char closest[METRIC_NAME_SIZE], meant[CONFIG_MEANT_MAX];

	for (unsigned i = 0; i < list->count; i++) {
		const char *word = list->item[i];

		if (metrics_word_known(word, closest))
			continue;
		if (strchr(word, '*'))
			config_complain(r, place_of(r, id),
					"%s: no metric matches \"%.100s\"; gpuward-metrics(7) "
					"lists the names",
					config_rows[id].key, word);
		else
			config_complain(r, place_of(r, id),
					"%s: \"%.100s\" is neither a metric nor a group of "
					"metrics%s",
					config_rows[id].key, word,
					*closest ? config_meant(closest, meant)
						 : "; gpuward-metrics(7) lists both");
	}
}

void config_check(struct config_reader *r)
{
	const struct config *c = r->c;

	check_list(r, CONFIG_ID_service_listen, &c->service_listen, config_check_address);
	check_list(r, CONFIG_ID_service_hosts, &c->service_hosts, check_host_name);
	check_list(r, CONFIG_ID_service_origins, &c->service_origins, check_origin);
	check_metrics(r, CONFIG_ID_metrics_include, &c->metrics_include);
	check_metrics(r, CONFIG_ID_metrics_exclude, &c->metrics_exclude);
	check_tls(r);
	check_exposure(r);
	check_unix_mode(r);
	check_currency(r);
	check_streams(r);
	check_nvml(r);
	check_textfile(r);
	check_history(r);
	check_push(r);
	check_fleet(r);
	guard_config_check(r);
}

#define SERVICE_USER "gpuward" /* User= of the packaged systemd unit. */

/* Warns if only the owner of the file can read it, and the service's user is not the owner.
 * Checks the mode bits instead of opening the file, because root can read every file. */
static void warn_owner(struct config_reader *r, const struct config_place *at, const char *key,
		       const char *path)
{
	const struct passwd *user = getpwnam(SERVICE_USER);
	struct stat st;

	if (user && stat(path, &st) == 0 && st.st_uid != user->pw_uid && !(st.st_mode & 044))
		config_warn(
			r, at,
			"%s: only the owner of %.200s can read it, and the packaged service "
			"runs as " SERVICE_USER ": chown " SERVICE_USER " %.200s",
			key, path, path);
}

/* Warns if the user who runs this check cannot read the file. This is not an error, because the
 * service may run as another user. */
static void warn_unreadable(struct config_reader *r, const struct config_place *at,
			    const char *key, const char *path)
{
	config_warn(r, at,
		    "%s: %.200s is not readable by this user; make sure that the service's "
		    "user can read it",
		    key, path);
}

static void check_token_file(struct config_reader *r)
{
	const struct config_place *at = place_of(r, CONFIG_ID_service_token_file);
	const char *path = r->c->service_token_file;
	char text[SECRET_MAX], message[400];
	int err;

	if (!path)
		return;
	err = secret_read(path, text, message, sizeof(message));
	explicit_bzero(text, sizeof(text));
	if (!err)
		warn_owner(r, at, "token_file", path);
	else if (err == -GW_E_PERM && access(path, R_OK) != 0)
		warn_unreadable(r, at, "token_file", path);
	else
		config_complain(r, at, "token_file: %s", message);
}

static void check_readable(struct config_reader *r, enum config_id id, const char *path)
{
	struct stat s;

	if (!path)
		return;
	if (stat(path, &s) == 0 && !S_ISREG(s.st_mode))
		config_complain(r, place_of(r, id), "%s: %.200s is not a regular file",
				config_rows[id].key, path);
	else if (access(path, R_OK) == 0)
		return;
	else if (errno == EACCES)
		warn_unreadable(r, place_of(r, id), config_rows[id].key, path);
	else
		config_complain(r, place_of(r, id), "%s: %.200s cannot be read: %s",
				config_rows[id].key, path, strerror(errno));
}

/* Warns if other users can change a path that the service uses as root. */
static void warn_unsafe(struct config_reader *r, enum config_id id, const char *path,
			const char *effect)
{
	if (path && file_is_unsafe_for_root(path))
		config_warn(r, place_of(r, id),
			    "%s: other users can change %.200s or its folder%s: use a folder "
			    "that only root can write",
			    config_rows[id].key, path, effect);
}

void config_check_files(struct config_reader *r)
{
	static const char unused[] = ", so gpuward does not use it as root";

	warn_unsafe(r, CONFIG_ID_device_nvml_library, r->c->device_nvml_library,
		    " and so control what gpuward does as root");
	warn_unsafe(r, CONFIG_ID_push_queue_dir, r->c->push_queue_dir, unused);
	warn_unsafe(r, CONFIG_ID_guard_record, r->c->guard_record, unused);
	warn_unsafe(r, CONFIG_ID_history_path, r->c->history_path, unused);
	warn_unsafe(r, CONFIG_ID_guard_state_dir, r->c->guard_state_dir, unused);
	check_token_file(r);
	check_readable(r, CONFIG_ID_service_tls_cert, r->c->service_tls_cert);
	check_readable(r, CONFIG_ID_service_tls_key, r->c->service_tls_key);
	check_readable(r, CONFIG_ID_push_token_file, r->c->push_token_file);
	check_readable(r, CONFIG_ID_push_password_file, r->c->push_password_file);
	check_readable(r, CONFIG_ID_push_ca_file, r->c->push_ca_file);
	check_readable(r, CONFIG_ID_fleet_token_file, r->c->fleet_token_file);
	check_readable(r, CONFIG_ID_fleet_ca_file, r->c->fleet_ca_file);
	guard_config_check_files(r);
}
