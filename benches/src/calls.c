// Makes one kind of call again and again: `calls start|make|open|connect COUNT [FILE]`.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int die(const char *what) {
  perror(what);
  return 1;
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  int count = atoi(argv[2]);
  char name[64];
  if (!strcmp(argv[1], "start")) {
    char *words[] = {"true", 0}, *none[] = {0};
    for (int i = 0; i < count; i++) {
      pid_t child = vfork();
      if (child == 0) {
        execve("/bin/true", words, none);
        _exit(127);
      }
      int status;
      if (waitpid(child, &status, 0) != child || status != 0) return die("start");
    }
  } else if (!strcmp(argv[1], "make")) {
    mkdir("made", 0755);
    for (int i = 0; i < count; i++) {
      snprintf(name, sizeof name, "made/%d", i);
      int file = open(name, O_CREAT | O_WRONLY | O_EXCL, 0644);
      if (file < 0) return die("make");
      close(file);
    }
    for (int i = 0; i < count; i++) {
      snprintf(name, sizeof name, "made/%d", i);
      unlink(name);
    }
  } else if (!strcmp(argv[1], "open")) {
    const char *path = argc > 3 ? argv[3] : "calls.c";
    for (int i = 0; i < count; i++) {
      int file = open(path, O_RDONLY);
      if (file < 0) return die("open");
      close(file);
    }
  } else if (!strcmp(argv[1], "connect")) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int here = socket(AF_INET, SOCK_STREAM, 0);
    struct linger now = {1, 0};
    if (bind(here, (struct sockaddr *)&at, sizeof at) || listen(here, 16) || getsockname(here, (struct sockaddr *)&at, &size))
      return die("listen");
    for (int i = 0; i < count; i++) {
      int out = socket(AF_INET, SOCK_STREAM, 0);
      if (connect(out, (struct sockaddr *)&at, sizeof at)) return die("connect");
      int in = accept(here, 0, 0);
      // Reset, so that no port waits.
      setsockopt(out, SOL_SOCKET, SO_LINGER, &now, sizeof now);
      close(out);
      close(in);
    }
  } else
    return 2;
  return 0;
}
