/* Connects again and again, while another thread changes the address in memory: from one that is refused to one that is
   not, and back. Prints how many came about and how many were refused. */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static volatile struct sockaddr_in address;
static volatile int over;

static void *swap(void *unused)
{
    in_addr_t far = inet_addr("93.184.216.34"), near = inet_addr("10.0.0.1");
    unsigned turn = 0;
    while (!over) {
        address.sin_port = htons(1);
        address.sin_addr.s_addr = near;
        address.sin_port = htons(1);
        if (++turn % 64 == 0)
            usleep(1);
        address.sin_addr.s_addr = far;
        address.sin_port = htons(2);
        if (turn % 64 == 0)
            usleep(1);
    }
    return unused;
}

int main(int count, char **words)
{
    int tries = count > 1 ? atoi(words[1]) : 1000, made = 0, refused = 0;
    /* Closed at once, without a port that waits: a fast machine would run out of them. */
    struct linger at_once = {1, 0};
    pthread_t thread;
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = inet_addr("93.184.216.34");
    address.sin_port = htons(1);
    pthread_create(&thread, NULL, swap, NULL);
    for (int n = 0; n < tries; n++) {
        int s = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(s, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        if (connect(s, (struct sockaddr *)&address, sizeof address) == 0)
            made++;
        else if (errno == ECONNREFUSED)
            refused++;
        else
            return perror("connect"), 1;
        close(s);
    }
    over = 1;
    pthread_join(thread, NULL);
    printf("%d %d\n", made, refused);
    return 0;
}
