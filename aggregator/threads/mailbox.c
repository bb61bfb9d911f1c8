#include "aggregator/threads/mailbox.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

struct fedge_mailbox {
    pthread_mutex_t mutex;
    fedge_mailbox_item *head, **tail;
    void (*wake)(void *user);
    void *user;
};

fedge_status fedge_mailbox_new(fedge_mailbox **mailbox, void (*wake)(void *user), void *user,
                               fedge_error *err)
{
    *mailbox = NULL;
    fedge_mailbox *box = calloc(1, sizeof(*box));
    if (!box)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the mailbox");
    pthread_mutex_init(&box->mutex, NULL);
    box->tail = &box->head;
    box->wake = wake;
    box->user = user;
    *mailbox = box;
    return FEDGE_OK;
}

void fedge_mailbox_free(fedge_mailbox *mailbox)
{
    if (!mailbox)
        return;
    assert(!mailbox->head);
    pthread_mutex_destroy(&mailbox->mutex);
    free(mailbox);
}

void fedge_mailbox_post(fedge_mailbox *mailbox, fedge_mailbox_item *item)
{
    assert(item);
    item->next = NULL;
    pthread_mutex_lock(&mailbox->mutex);
    *mailbox->tail = item;
    mailbox->tail = &item->next;
    pthread_mutex_unlock(&mailbox->mutex);
    /* After unlocking, since the woken thread locks it at once. */
    if (mailbox->wake)
        mailbox->wake(mailbox->user);
}

fedge_mailbox_item *fedge_mailbox_take(fedge_mailbox *mailbox)
{
    pthread_mutex_lock(&mailbox->mutex);
    /* Takes all items at once, to hold the lock only briefly. */
    fedge_mailbox_item *items = mailbox->head;
    mailbox->head = NULL;
    mailbox->tail = &mailbox->head;
    pthread_mutex_unlock(&mailbox->mutex);
    return items;
}
