/* The load client for brokers with text protocols: NATS core and JetStream, Redis Streams, beanstalkd, STOMP (ActiveMQ). Commands
 * are written and answers read many at a time over one plain socket.
 *
 *   setup | produce | consume | depth    with proto=nats|jetstream|redis|beanstalkd|stomp queue= count= window= rate= body= ack= stamp=
 *
 * Acknowledgements are one command a message: XACK, or a publish to the message's own $JS.ACK subject. What confirms a message:
 * redis XADD's answer, jetstream the stream's answer to the inbox, beanstalkd INSERTED, STOMP a RECEIPT, nats nothing
 * (the end is a PONG); durable=0 makes STOMP's messages non-persistent and asks for no receipt but the last.
 */
#define _GNU_SOURCE
#include "load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/socket.h>

enum { BUFFER_BYTES = 1 << 22, BATCH = 256 };
enum { NATS, JETSTREAM, REDIS, BEANSTALKD, STOMP };

static int proto, link_socket;
static char *inbox, *outbox;
static size_t in_end, out_end;
static const char *queue;
static long body_bytes, window_size, interval_ns, target, sent, confirmed, received;
static int64_t go_ns, deadline_ns, first_ns, last_ns, *sent_ns;
static bool stamped, acknowledging, confirming, browsing, pong, asking;
static long answer_count; /* the number a depth or setup command was answered with */
static Latencies latencies;

/* -- socket ------------------------------------------------------------------------------------------------------- */

static void open_link(void) {
  struct sockaddr_in place = {.sin_family = AF_INET, .sin_port = htons((uint16_t)option_number("port", 0))};
  inet_pton(AF_INET, "127.0.0.1", &place.sin_addr);
  link_socket = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(link_socket, (struct sockaddr *)&place, sizeof place)) die("connection refused");
  setsockopt(link_socket, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
  struct timeval patience = {.tv_usec = 200000};
  setsockopt(link_socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  inbox = malloc(BUFFER_BYTES + 1);
  outbox = malloc(BUFFER_BYTES);
  if (!inbox || !outbox) die("out of memory");
}

static void flush(void) {
  for (size_t done = 0; done < out_end;) {
    ssize_t wrote = send(link_socket, outbox + done, out_end - done, MSG_NOSIGNAL);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) die("the connection was lost while sending");
    done += (size_t)wrote;
  }
  out_end = 0;
}

static void put_bytes(const void *bytes, size_t count) {
  if (out_end + count > BUFFER_BYTES) flush();
  memcpy(outbox + out_end, bytes, count);
  out_end += count;
}

__attribute__((format(printf, 1, 2))) static void put(const char *format, ...) {
  char line[4096];
  va_list values;
  va_start(values, format);
  int length = vsnprintf(line, sizeof line, format, values);
  va_end(values);
  put_bytes(line, (size_t)length);
}

/* -- what is sent ------------------------------------------------------------------------------------------------- */

static void put_body(int64_t stamp_ns) {
  put_bytes(&stamp_ns, STAMP_BYTES);
  put_bytes(body_at(sent * 7) + STAMP_BYTES, (size_t)body_bytes - STAMP_BYTES);
  if (proto == STOMP) put_bytes("", 1);
  else put_bytes("\r\n", 2);
}

static void put_message(int64_t stamp_ns) {
  if (proto == NATS) put("PUB %s %ld\r\n", queue, body_bytes);
  if (proto == JETSTREAM) put("PUB %s inbox.produce %ld\r\n", queue, body_bytes);
  if (proto == REDIS) put("*5\r\n$4\r\nXADD\r\n$%zu\r\n%s\r\n$1\r\n*\r\n$1\r\nb\r\n$%ld\r\n", strlen(queue), queue, body_bytes);
  if (proto == BEANSTALKD) put("put 100 0 600 %ld\r\n", body_bytes);
  if (proto == STOMP)
    put("SEND\ndestination:/queue/%s\npersistent:%s\ncontent-length:%ld\n%s\n", queue, confirming ? "true" : "false", body_bytes,
        confirming ? "receipt:1\n" : "");
  put_body(stamp_ns);
  sent_ns[sent++ % window_size] = stamp_ns;
}

static void ask_for_more(void) {
  if (proto == REDIS && !asking)
    put("*11\r\n$10\r\nXREADGROUP\r\n$5\r\nGROUP\r\n$1\r\ng\r\n$1\r\nc\r\n$5\r\nCOUNT\r\n$4\r\n1000\r\n"
        "$5\r\nBLOCK\r\n$3\r\n100\r\n$7\r\nSTREAMS\r\n$%zu\r\n%s\r\n$1\r\n>\r\n",
        strlen(queue), queue);
  asking = true;
}

/* -- what comes --------------------------------------------------------------------------------------------------- */

static void on_confirm(void) {
  if (interval_ns || window_size == 1) latency_add(&latencies, now_ns() - sent_ns[confirmed % window_size]);
  confirmed++;
}

static void on_message(const char *body) {
  int64_t now = now_ns();
  if (stamped) {
    int64_t stamp;
    memcpy(&stamp, body, STAMP_BYTES);
    latency_add(&latencies, now - stamp);
  }
  if (!first_ns) first_ns = now;
  last_ns = now;
  received++;
}

/* One whole NATS item at `at`: its length, 0 when not all of it is here. */
static size_t read_nats(char *at, char *line_end, size_t available) {
  size_t line = (size_t)(line_end - at) + 2;
  if (!strncmp(at, "PONG", 4)) pong = true;
  if (!strncmp(at, "PING", 4)) put("PONG\r\n");
  if (!strncmp(at, "-ERR", 4)) die("the broker answered -ERR");
  if (strncmp(at, "MSG ", 4)) return line;
  char *words[5] = {0}, *rest = NULL;
  int count = 0;
  char head[512];
  snprintf(head, sizeof head, "%.*s", (int)(line_end - at), at);
  for (char *word = strtok_r(head, " ", &rest); word && count < 5; word = strtok_r(NULL, " ", &rest)) words[count++] = word;
  size_t whole = line + strtoul(words[count - 1], NULL, 10) + 2;
  if (whole > available) return 0;
  if (!strcmp(words[1], "inbox.produce")) {
    on_confirm();
  } else if (!strcmp(words[1], "inbox.api")) {
    char *body = at + line, *number = strstr(body, "\"num_ack_pending\":"), *waiting = strstr(body, "\"num_pending\":");
    if (strstr(body, "\"error\"") && strstr(body, "\"error\"") < at + whole) die("JetStream refused");
    answer_count = (number ? atol(number + 18) : 0) + (waiting ? atol(waiting + 14) : 0);
    pong = true;
  } else {
    on_message(at + line);
    if (acknowledging && count == 5) put("PUB %s 0\r\n\r\n", words[3]);
  }
  return whole;
}

/* Redis: answers to XADD and XACK are one token; an XREADGROUP answer is walked token by token. */
static long entries_left, redis_step; /* 0 between answers; then 1 *2, 2 name, 3 *N; an entry: 4 *2, 5 id, 6 *2, 7 field, 8 body */

static size_t read_redis(char *at, char *line_end, size_t available) {
  size_t line = (size_t)(line_end - at) + 2;
  long value = atol(at + 1);
  if (*at == '-' && value == 0) die("the broker answered with an error");
  size_t whole = *at == '$' && value >= 0 ? line + (size_t)value + 2 : line;
  if (whole > available) return 0;
  if (!redis_step) {
    if (*at == '$') on_confirm();
    if (*at == '*' && value == 1) redis_step = 1;
    if (*at == '*' && value != 1) asking = false; /* nothing new */
    if (*at == ':' || *at == '+') answer_count = value, pong = true;
    return whole;
  }
  if (redis_step == 3) entries_left = value;
  if (redis_step == 5 && acknowledging)
    put("*4\r\n$4\r\nXACK\r\n$%zu\r\n%s\r\n$1\r\ng\r\n$%ld\r\n%.*s\r\n", strlen(queue), queue, value, (int)value, at + line);
  if (redis_step == 8) on_message(at + line), entries_left--;
  redis_step = redis_step == 8 && entries_left ? 4 : redis_step == 8 ? 0 : redis_step + 1;
  if (!redis_step) asking = false;
  return whole;
}

static size_t read_beanstalkd(char *at, char *line_end) {
  if (!strncmp(at, "INSERTED", 8)) on_confirm();
  else if (strncmp(at, "USING", 5)) die("beanstalkd did not take a message");
  return (size_t)(line_end - at) + 2;
}

/* A header's value within a frame's head, NULL when it is not there. */
static const char *stomp_header(const char *head, const char *end, const char *name) {
  const char *found = memmem(head, (size_t)(end - head), name, strlen(name));
  return found ? found + strlen(name) : NULL;
}

static size_t read_stomp(char *at, size_t available) {
  if (*at == '\n') return 1; /* between frames, and as a heartbeat */
  char *head_end = memmem(at, available, "\n\n", 2);
  if (!head_end) return 0;
  const char *length = stomp_header(at, head_end + 1, "\ncontent-length:");
  size_t head = (size_t)(head_end - at) + 2;
  char *end = length ? at + head + atol(length) : memchr(at + head, 0, available - head);
  if (!end || end >= at + available) return 0;
  if (!strncmp(at, "RECEIPT", 7) && stomp_header(at, head_end + 1, "\nreceipt-id:1\n")) on_confirm();
  else if (!strncmp(at, "RECEIPT", 7) || !strncmp(at, "CONNECTED", 9)) pong = true;
  else if (!strncmp(at, "ERROR", 5)) die("the broker answered ERROR");
  else if (browsing && stomp_header(at, head_end + 1, "\nbrowser:end")) pong = true;
  else if (browsing) answer_count++;
  else if (!strncmp(at, "MESSAGE", 7)) {
    on_message(at + head);
    const char *id = acknowledging ? stomp_header(at, head_end + 1, "\nack:") : NULL;
    if (id) put("ACK\nid:%.*s\n\n%c", (int)strcspn(id, "\n"), id, 0);
  }
  return (size_t)(end - at) + 1;
}

static size_t read_line_item(char *at, size_t available) {
  char *line_end = memmem(at, available, "\r\n", 2);
  if (!line_end) return 0;
  if (proto == REDIS) return read_redis(at, line_end, available);
  return proto == BEANSTALKD ? read_beanstalkd(at, line_end) : read_nats(at, line_end, available);
}

static void read_items(void) {
  size_t start = 0;
  while (start < in_end) {
    char *at = inbox + start;
    size_t whole = proto == STOMP ? read_stomp(at, in_end - start) : read_line_item(at, in_end - start);
    if (!whole) break;
    start += whole;
  }
  memmove(inbox, inbox + start, in_end - start);
  in_end -= start;
}

static void receive(int flags) {
  ssize_t got = recv(link_socket, inbox + in_end, BUFFER_BYTES - in_end, flags);
  if (got == 0) die("the broker closed the connection");
  if (got < 0 && errno != EAGAIN && errno != EINTR) die("the connection was lost");
  if (got > 0) {
    in_end += (size_t)got;
    inbox[in_end] = 0;
    read_items();
  }
}

static void wait_for_answer(const char *what) {
  pong = false;
  flush();
  for (int64_t end = now_ns() + 10000000000; !pong && now_ns() < end;) receive(0);
  if (!pong) die(what);
}

/* -- roles -------------------------------------------------------------------------------------------------------- */

static void greet(void) {
  if (proto == NATS || proto == JETSTREAM) {
    put("CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":false}\r\nSUB inbox.produce 1\r\nSUB inbox.api 2\r\nPING\r\n");
    wait_for_answer("no answer to the first PING");
  }
  if (proto == STOMP) {
    put("CONNECT\naccept-version:1.2\nhost:localhost\n\n%c", 0);
    wait_for_answer("no CONNECTED");
  }
}

static void call_jetstream(const char *verb, const char *json) {
  put("PUB $JS.API.%s inbox.api %zu\r\n%s\r\n", verb, strlen(json), json);
  wait_for_answer("JetStream did not answer");
}

static void set_up(void) {
  char json[1024], verb[256];
  if (proto == REDIS) {
    put("XGROUP CREATE %s g $ MKSTREAM\r\n", queue);
    wait_for_answer("XGROUP was not answered");
  }
  if (proto == JETSTREAM) { /* acknowledged messages leave the stream, as from a queue */
    snprintf(json, sizeof json, "{\"name\":\"S\",\"subjects\":[\"%s\"],\"storage\":\"file\",\"retention\":\"workqueue\"}", queue);
    call_jetstream("STREAM.CREATE.S", json);
    snprintf(json, sizeof json,
             "{\"stream_name\":\"S\",\"config\":{\"durable_name\":\"C\",\"deliver_subject\":\"to.consumer\",\"ack_policy\":\"explicit\","
             "\"max_ack_pending\":1000,\"deliver_policy\":\"all\"}}");
    snprintf(verb, sizeof verb, "CONSUMER.DURABLE.CREATE.S.C");
    call_jetstream(verb, json);
  }
  printf("{\"count\": 1}\n");
}

static void depth(void) {
  if (proto == REDIS) {
    put("EVAL \"return redis.call('XPENDING',KEYS[1],'g')[1]\" 1 %s\r\n", queue); /* delivered and not acknowledged */
    wait_for_answer("XPENDING was not answered");
  }
  if (proto == JETSTREAM) call_jetstream("CONSUMER.INFO.S.C", "");
  if (proto == STOMP) {
    browsing = true;
    put("SUBSCRIBE\nid:0\ndestination:/queue/%s\nbrowser:true\n\n%c", queue, 0);
    wait_for_answer("the queue could not be browsed");
  }
  printf("{\"count\": %ld}\n", answer_count);
}

static void produce_paced(void) {
  while (confirmed < target && now_ns() < deadline_ns) {
    int64_t due = go_ns + sent * interval_ns, now = now_ns();
    if (sent < target && now >= due) {
      put_message(stamp_of(due, interval_ns));
      flush();
      continue;
    }
    int64_t patience = sent < target ? due - now : 100000000;
    struct pollfd waiting = {.fd = link_socket, .events = POLLIN};
    if (ppoll(&waiting, 1, &(struct timespec){patience / 1000000000, patience % 1000000000}, NULL) > 0) receive(MSG_DONTWAIT);
    if (!confirming) confirmed = sent;
  }
}

static void produce(void) {
  if (interval_ns) return produce_paced();
  while (confirmed < target && now_ns() < deadline_ns) {
    for (int i = 0; i < BATCH && sent < target && sent - confirmed < window_size; i++) put_message(now_ns());
    flush();
    if (!confirming) confirmed = sent;
    else receive(sent < target && sent - confirmed < window_size ? MSG_DONTWAIT : 0);
  }
  if (!confirming) {
    if (proto == STOMP) put("SEND\ndestination:/queue/end.%s\nreceipt:2\n\n%c", queue, 0);
    else put("PING\r\n");
    wait_for_answer("no answer at the end");
  }
}

static void start_consuming(void) {
  if (proto == NATS) put("SUB %s 3\r\nPING\r\n", queue);
  if (proto == JETSTREAM) put("SUB to.consumer 3\r\nPING\r\n");
  if (proto == STOMP)
    put("SUBSCRIBE\nid:0\ndestination:/queue/%s\nack:%s\nactivemq.prefetchSize:%ld\nreceipt:2\n\n%c", queue,
        acknowledging ? "client-individual" : "auto", option_number("prefetch", 1000), 0);
  if (proto != REDIS && proto != BEANSTALKD) wait_for_answer("the subscription was not answered");
}

static void consume(void) {
  while (received < target && now_ns() < deadline_ns) {
    ask_for_more();
    if (out_end) flush();
    receive(0);
  }
  if (out_end) flush();
  if (proto == NATS || proto == JETSTREAM) put("PING\r\n"), wait_for_answer("the last acknowledgements were not taken");
  if (proto == STOMP) put("DISCONNECT\nreceipt:2\n\n%c", 0), wait_for_answer("the last acknowledgements were not taken");
  if (proto == REDIS) put("PING\r\n"), wait_for_answer("the last acknowledgements were not taken");
}

static void run(bool producing) {
  if (!producing) start_consuming();
  wait_for_go();
  go_ns = now_ns();
  deadline_ns = go_ns + option_number("deadline", 60) * 1000000000;
  (producing ? produce : consume)();
  printf("{\"count\": %ld, \"refused\": 0, \"redelivered\": 0, \"started_ns\": %ld, \"first_ns\": %ld, \"ended_ns\": %ld",
         producing ? confirmed : received, (long)go_ns, (long)first_ns, (long)(producing ? now_ns() : last_ns));
  print_latencies(&latencies);
  printf("}\n");
}

static int proto_of(const char *name) {
  const char *names[] = {"nats", "jetstream", "redis", "beanstalkd", "stomp"};
  for (int i = 0; i < 5; i++)
    if (!strcmp(name, names[i])) return i;
  die("unknown proto");
  return 0;
}

int main(int count, char **words) {
  if (count < 2) die("usage: ROLE key=value ...");
  option_words = words + 2, option_count = count - 2;
  prctl(PR_SET_TIMERSLACK, 1);
  proto = proto_of(option_text("proto", ""));
  queue = option_text("queue", "bench");
  target = option_number("count", 0);
  body_bytes = option_number("body", 1024);
  window_size = option_number("window", 1000);
  interval_ns = option_number("rate", 0) ? 1000000000 / option_number("rate", 0) : 0;
  confirming = proto != NATS && option_number("confirm", 1);
  stamped = option_number("stamp", 0);
  acknowledging = strcmp(option_text("ack", "each"), "none");
  sent_ns = calloc((size_t)window_size, sizeof(int64_t));
  if (body_bytes < STAMP_BYTES || body_bytes > BUFFER_BYTES / 2) die("bodies hold 8 bytes to 2 MiB");
  open_link();
  greet();
  if (!strcmp(words[1], "setup")) set_up();
  else if (!strcmp(words[1], "depth")) depth();
  else if (!strcmp(words[1], "produce")) make_pool((size_t)body_bytes), run(true);
  else if (!strcmp(words[1], "consume")) run(false);
  else die("unknown role");
  fflush(stdout);
  return 0;
}
