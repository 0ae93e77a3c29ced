/* Load over HTTP on many connections at once, in a closed loop; latencies by kind of request, as JSON on standard output.
 *
 * Usage: load_client PORT CLIENTS SECONDS MODE BASE FILE
 *
 * BASE begins the paths ("/e/name/"), and FILE has a line for each client or request, by MODE:
 *   get      GET BASE, over and over; FILE is not read
 *   query    a session a line: GET BASEquery, each time the next turn, the last one being skipped
 *   answers  a body a line: POST BASEanswers, each once
 *   page     a session a line: GET BASEquery, POST BASEanswers with its token, over and over
 *   old      a puid a line: GET /query?puid=, POST /answer with what came, over and over
 *   arrive   a puid a line, over one second: POST BASEarrive, GET BASEquery; "first" is the time from one to the other's
 *            reply. Who is told to wait waits as long as Retry-After says.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define BUFFER 65536
enum kind { QUERY, ANSWER, FIRST, KINDS };
static const char *names[KINDS] = {"query", "answer", "first"};

struct client {
    int fd, place, busy;
    char out[BUFFER], in[BUFFER], key[1024], line[4096];
    size_t sent, to_send, got;
    enum kind asking;
    double since, first, wake;
    long trial;
    int arrived;
};

static char **lines, *mode, *base;
static long line_count, next_line, errors, waits;
static double *taken[KINDS], until;
static long counts[KINDS], room[KINDS];
static int port, epoll;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void note(enum kind kind, double seconds) {
    if (counts[kind] == room[kind]) {
        room[kind] = room[kind] ? 2 * room[kind] : 4096;
        taken[kind] = realloc(taken[kind], room[kind] * sizeof(double));
    }
    taken[kind][counts[kind]++] = seconds;
}

static void dial(struct client *c) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address) && errno != EINPROGRESS) perror("connect"), exit(1);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.ptr = c};
    epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &event);
}

static void ask(struct client *c, enum kind kind, const char *method, const char *path, const char *session, const char *body) {
    char header[1200] = "";
    if (session[0]) snprintf(header, sizeof header, "X-Salmon-Session: %s\r\n", session);
    int length = snprintf(c->out, BUFFER, "%s %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAccept: application/json\r\n%s", method, path, port, header);
    if (body[0]) length += snprintf(c->out + length, BUFFER - length, "Content-Type: application/json\r\nContent-Length: %zu\r\n", strlen(body));
    length += snprintf(c->out + length, BUFFER - length, "\r\n%s", body);
    c->asking = kind, c->to_send = length, c->sent = c->got = 0, c->since = now(), c->busy = 1;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.ptr = c};
    epoll_ctl(epoll, EPOLL_CTL_MOD, c->fd, &event);
}

static const char *field(const char *body, const char *name, char *value, size_t most) {
    char wanted[64];
    snprintf(wanted, sizeof wanted, "\"%s\":", name);
    const char *at = strstr(body, wanted);
    value[0] = 0;
    if (!at) return 0;
    at += strlen(wanted);
    while (*at == ' ') at++;
    int quoted = *at == '"';
    at += quoted;
    size_t i = 0;
    while (*at && i < most - 1 && (quoted ? *at != '"' : *at != ',' && *at != '}')) value[i++] = *at++;
    value[i] = 0;
    return value;
}

static void ask_query(struct client *c) {
    char path[512];
    if (!strcmp(mode, "old")) snprintf(path, sizeof path, "/query?puid=%s", c->key);
    else if (c->trial && !strcmp(mode, "query")) snprintf(path, sizeof path, "%squery?number=%ld&skipped=%ld", base, c->trial + 1, c->trial);
    else snprintf(path, sizeof path, "%squery?number=%ld", base, c->trial ? c->trial + 1 : 0);
    ask(c, QUERY, "GET", path, strcmp(mode, "old") ? c->key : "", "");
}

/* Send the next request of a client, or nothing where there is none left. */
static void begin(struct client *c) {
    char path[256], body[512];
    if (now() >= until && strcmp(mode, "arrive")) {
        c->busy = 0;
        if (c->trial && !strcmp(mode, "query") && !c->arrived) {  // leave no turn open
            c->arrived = 1;
            snprintf(path, sizeof path, "%squery?number=1&skipped=%ld", base, c->trial);
            ask(c, QUERY, "GET", path, c->key, "");
        }
        return;
    }
    if (!strcmp(mode, "get")) ask(c, QUERY, "GET", base, "", "");
    else if (!strcmp(mode, "answers")) {
        if (next_line == line_count) { c->busy = 0; return; }
        snprintf(path, sizeof path, "%sanswers", base);
        ask(c, ANSWER, "POST", path, "", lines[next_line++]);
    } else if (!strcmp(mode, "arrive") && !c->arrived) {
        snprintf(path, sizeof path, "%sarrive", base);
        snprintf(body, sizeof body, "{\"parameters\":{\"puid\":\"%s\"}}", lines[c->place]);
        if (!c->first) c->first = now();
        ask(c, ANSWER, "POST", path, "", body);
    } else ask_query(c);
}

static void answer(struct client *c, const char *body) {
    char token[2048], left[32], path[256], text[8192];
    if (!field(body, "token", token, sizeof token)) { errors++; fprintf(stderr, "%.300s\n", body); begin(c); return; }
    field(body, "left", left, sizeof left);
    if (!strcmp(mode, "old")) {
        const char *end = strrchr(body, '}');
        snprintf(text, sizeof text, "%.*s,\"winner\":%s,\"puid\":\"%s\",\"response_time\":0.7}", (int)(end - body), body, left, c->key);
        ask(c, ANSWER, "POST", "/answer", "", text);
    } else {
        snprintf(path, sizeof path, "%sanswers", base);
        snprintf(text, sizeof text, "{\"token\":\"%s\",\"winner\":%s,\"rt_ms\":700,\"query_wait_ms\":0,\"network_latency_ms\":5}", token, left);
        ask(c, ANSWER, "POST", path, "", text);
    }
}

static void replied(struct client *c, int status, const char *head, const char *body) {
    char value[1024];
    double seconds = now() - c->since;
    if (!strcmp(mode, "arrive")) {
        if (status == 429 || status == 503) {
            const char *after = strcasestr(head, "retry-after:");
            c->wake = now() + (after ? atof(after + 12) : 1.0), c->busy = 0, waits++;
            return;
        }
        if (status != 200) { errors++; fprintf(stderr, "%d %.300s\n", status, body); c->busy = 0; return; }
        if (!c->arrived) {
            c->arrived = 1;
            field(body, "session", c->key, sizeof c->key);
            begin(c);
        } else {
            note(FIRST, now() - c->first);
            c->busy = 0;
        }
        return;
    }
    if (status != 200) {
        if (errors++ < 3) fprintf(stderr, "%d %.300s\n", status, body);
        begin(c);
        return;
    }
    if (!c->arrived) note(c->asking, seconds);
    if (c->asking == QUERY && (!strcmp(mode, "page") || !strcmp(mode, "old"))) {
        if (field(body, "trial", value, sizeof value)) c->trial = atol(value);
        answer(c, body);
        return;
    }
    if (!strcmp(mode, "query") && field(body, "trial", value, sizeof value)) c->trial = atol(value);
    begin(c);
}

static void receive(struct client *c) {
    for (;;) {
        ssize_t n = recv(c->fd, c->in + c->got, BUFFER - 1 - c->got, 0);
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) {
            if (c->busy) errors++, fprintf(stderr, "a connection was closed\n");
            close(c->fd);
            c->busy = 0;
            dial(c);
            begin(c);
            return;
        }
        c->got += n;
        c->in[c->got] = 0;
        char *end = strstr(c->in, "\r\n\r\n");
        if (!end) continue;
        const char *length = strcasestr(c->in, "content-length:");
        size_t wanted = (end + 4 - c->in) + (length && length < end ? atol(length + 15) : 0);
        if (c->got < wanted) continue;
        c->in[wanted] = 0;
        static char body[BUFFER];
        strcpy(body, end + 4);
        *end = 0;
        c->got = 0;
        replied(c, atoi(c->in + 9), c->in, body);
        return;
    }
}

static void send_out(struct client *c) {
    while (c->sent < c->to_send) {
        ssize_t n = send(c->fd, c->out + c->sent, c->to_send - c->sent, MSG_NOSIGNAL);
        if (n < 0) return;
        c->sent += n;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(epoll, EPOLL_CTL_MOD, c->fd, &event);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    if (argc != 7) return fprintf(stderr, "Usage: load_client PORT CLIENTS SECONDS MODE BASE FILE\n"), 2;
    port = atoi(argv[1]);
    int clients = atoi(argv[2]);
    mode = argv[4], base = argv[5];
    FILE *file = fopen(argv[6], "r");
    size_t size = 0;
    char *line = 0;
    while (file && getline(&line, &size, file) > 0) {
        line[strcspn(line, "\n")] = 0;
        lines = realloc(lines, (line_count + 1) * sizeof *lines);
        lines[line_count++] = strdup(line);
    }
    epoll = epoll_create1(0);
    struct client *all = calloc(clients, sizeof *all);
    double began = now();
    until = began + atof(argv[3]);
    for (int i = 0; i < clients; i++) {
        struct client *c = &all[i];
        c->place = i;
        if (line_count && strcmp(mode, "answers")) snprintf(c->key, sizeof c->key, "%s", lines[i % line_count]);
        dial(c);
        if (strcmp(mode, "arrive")) begin(c);
        else c->wake = began + (double)i / clients;
    }
    struct epoll_event events[512];
    for (;;) {
        int open = 0;
        double moment = now();
        for (int i = 0; i < clients; i++) {
            struct client *c = &all[i];
            if (!c->busy && c->wake && moment >= c->wake) c->wake = 0, begin(c);
            open += c->busy || c->wake;
        }
        if (!open || moment > until + 30) break;
        int count = epoll_wait(epoll, events, 512, 2);
        for (int i = 0; i < count; i++) {
            struct client *c = events[i].data.ptr;
            if (events[i].events & EPOLLOUT && c->busy) send_out(c);
            if (events[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP)) receive(c);
        }
    }
    double seconds = now() - began;
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu = used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    printf("{\"seconds\": %.4f, \"cpu_seconds\": %.3f, \"errors\": %ld, \"waits\": %ld", seconds, cpu, errors, waits);
    for (int k = 0; k < KINDS; k++) {
        if (!counts[k]) continue;
        qsort(taken[k], counts[k], sizeof(double), compare);
        printf(", \"%s\": {\"count\": %ld, \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"most_ms\": %.3f}", names[k], counts[k],
               1e3 * taken[k][counts[k] / 2], 1e3 * taken[k][(long)(.99 * (counts[k] - 1))], 1e3 * taken[k][counts[k] - 1]);
    }
    printf("}\n");
    return 0;
}
