#include "aggregator/server/mailbox.h"

#include <pthread.h>
#include <stdlib.h>

struct fedge_mailbox {
    pthread_mutex_t mutex;
    fedge_mail *head, **tail;
    void (*wake)(void *user);
    void *user;
};

fedge_status fedge_mailbox_new(fedge_mailbox **mailbox, void (*wake)(void *user), void *user,
                               fedge_error *err)
{
    *mailbox = NULL;
    fedge_mailbox *box = calloc(1, sizeof(*box));
    if (!box) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the mailbox");
    }
    pthread_mutex_init(&box->mutex, NULL);
    box->tail = &box->head;
    box->wake = wake;
    box->user = user;
    *mailbox = box;
    return FEDGE_OK;
}

void fedge_mailbox_free(fedge_mailbox *mailbox)
{
    if (!mailbox) {
        return;
    }
    for (fedge_mail *mail = mailbox->head, *next; mail; mail = next) {
        next = mail->next;
        free(mail->result);
        free(mail);
    }
    pthread_mutex_destroy(&mailbox->mutex);
    free(mailbox);
}

void fedge_mailbox_post(fedge_mailbox *mailbox, fedge_mail *mail)
{
    mail->next = NULL;
    pthread_mutex_lock(&mailbox->mutex);
    *mailbox->tail = mail;
    mailbox->tail = &mail->next;
    pthread_mutex_unlock(&mailbox->mutex);
    if (mailbox->wake) {
        mailbox->wake(mailbox->user);
    }
}

fedge_mail *fedge_mailbox_take(fedge_mailbox *mailbox)
{
    pthread_mutex_lock(&mailbox->mutex);
    fedge_mail *mail = mailbox->head;
    mailbox->head = NULL;
    mailbox->tail = &mailbox->head;
    pthread_mutex_unlock(&mailbox->mutex);
    return mail;
}
